#!/usr/bin/env bash
# Builds the fuzz targets and lets each run for so many seconds, two at a time.
#   tests/fuzz/run.sh [SECONDS] [NAME ...]      default: 30 s of every entry in tests/fuzz/
# Build folder: PLAIT_FUZZ_BUILD (default build-fuzz/). An input that fails stays in its folder findings/; run it again with
# build-fuzz/fuzz_NAME FILE, mend the parser, and add the file to tests/fuzz/corpus/NAME/. Exit code: 0 when nothing failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-30}
shift $(($# > 0 ? 1 : 0))
case $seconds in '' | *[!0-9]*) echo "error: '$seconds' is no number of seconds" >&2; exit 2 ;; esac
build=${PLAIT_FUZZ_BUILD:-build-fuzz}
cmake -G Ninja -S tests/fuzz -B "$build" >/dev/null
ninja -C "$build" -j "$(nproc)" --quiet
mkdir -p "$build/findings"

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for entry in tests/fuzz/*.cpp; do
    name=$(basename "$entry" .cpp)
    [ "$name" = driver ] || names+=("$name")
  done
fi
# A seed of the day: each day's runs differ, and a run of today can be repeated.
seed=${PLAIT_FUZZ_SEED:-$(date +%Y%m%d)}
failed=0
run_one() {
  local log=$build/$1.log
  nice "$build/fuzz_$1" "tests/fuzz/corpus/$1" --seconds "$seconds" --seed "$seed" --out "$build/findings" >"$log" 2>&1 || {
    echo "FAILED: $1 (seed $seed)"
    tail -n 40 "$log"
    return 1
  }
  echo "fuzz $1: $(tail -n 1 "$log") (seed $seed, $seconds s)"
}
for ((i = 0; i < ${#names[@]}; i += 2)); do
  pids=()
  for name in "${names[@]:i:2}"; do
    run_one "$name" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
done
exit $failed
