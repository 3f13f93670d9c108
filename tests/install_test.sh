#!/usr/bin/env bash
# Installs a build into a fresh folder, builds a small foreign program against it with find_package(plait), and runs both.
#   tests/install_test.sh BUILD_FOLDER TORCH_FOLDER
set -euo pipefail
build=$(cd "$1" && pwd) torch=$(cd "$2" && pwd) source=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" 2>&1 || { cat "$folder/log"; echo "FAILED: install"; exit 1; }
# Nothing of the build or source folder may be named in the package: it must work after they are gone.
if grep -rn --include='*.cmake' -F -e "$build" -e "$(dirname "$source")/plait" "$folder/prefix/lib"*; then
  echo "FAILED: the package names folders of the build"
  exit 1
fi
cp -r "$source/install_consumer" "$folder/consumer"
cmake -G Ninja -S "$folder/consumer" -B "$folder/out" -DCMAKE_PREFIX_PATH="$folder/prefix" -DPLAIT_TORCH_DIR="$torch" >"$folder/log" 2>&1 &&
  ninja -C "$folder/out" >>"$folder/log" 2>&1 || { cat "$folder/log"; echo "FAILED: the consumer does not build"; exit 1; }
"$folder/out/consumer"
"$folder/prefix/bin/plait" schedule --kind 1f1b --stages 2 --micro_batches 2 >"$folder/schedule" || { echo "FAILED: installed plait"; exit 1; }
grep -q F "$folder/schedule"
for page in man/man1/plait.1 bash-completion/completions/plait zsh/site-functions/_plait fish/vendor_completions.d/plait.fish; do
  grep -q schedule "$folder/prefix/share/$page" || { echo "FAILED: share/$page"; exit 1; }
done
# A torch that is not there is one clear message.
if cmake -G Ninja -S "$folder/consumer" -B "$folder/none" -DCMAKE_PREFIX_PATH="$folder/prefix" -DPLAIT_TORCH_DIR="$folder/absent" >"$folder/log" 2>&1; then
  echo "FAILED: configured without torch"
  exit 1
fi
grep -q "holds no lib/libtorch_cpu.so" "$folder/log" || { cat "$folder/log"; exit 1; }
echo "install: the package builds and runs a foreign program"
