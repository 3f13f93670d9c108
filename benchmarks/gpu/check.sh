#!/usr/bin/env bash
# Checks plait on a CUDA machine, offline:
#   1. builds the program and its CUDA plugin against the PyTorch that is installed (python3 -c "import torch"), in build-gpu/; at most 5 minutes;
#   2. parity: five steps of the small golden GPT-2 (tests/data/golden/models/gpt2) on the CPU and on the device, float32 and float64;
#   3. speed: GPT-2 small and medium, bfloat16, 8 x 1024 tokens a step: tokens/s and MFU beside PyTorch, eager and compiled, seven times in turn.
# 2 and 3 are ended after 10 minutes (586 s): the whole takes at most 15. Less: --only parity, --only speed, --sizes small, --pairs 3. Options are
# those of check.py (check.py --help); check.py --list OPTIONS says after how long it would be ended.
# Needs: a CUDA device, PyTorch >= 2.11 with CUDA and triton, nvcc, cmake, ninja, g++ and the small libraries of setup/install.sh.
# PYTHON names another python.
# Exit codes: 0 all well, 1 build failed, numbers differ or time is up, 2 wrong options, 8 this machine has no CUDA device or lacks a part (one message
# says which).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
build=build-gpu

missing() {
  printf '%s\n' "gpu check: $*" >&2
  exit 8
}

[ -r /dev/nvidiactl ] || missing "no CUDA device on this machine (/dev/nvidiactl is not there): nothing was checked"
"$python" -c 'import torch' 2>/dev/null || missing "$python has no torch; name a python that has with PYTHON="
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || missing "PyTorch of $python sees no CUDA device: nothing was checked"
PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc cmake ninja g++; do command -v "$tool" >/dev/null || missing "$tool is not there"; done
"$python" -c 'import sys, torch; sys.exit(tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 11))' ||
  missing "PyTorch of $python is older than 2.11"
"$python" benchmarks/gpu/check.py --list "$@"  # wrong options are refused before anything is built

torch_dir=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
echo "gpu check: building against $torch_dir"
mkdir -p "$build"
log=$build/build.log
if ! { cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DPLAIT_CUDA=ON -DPLAIT_TORCH_DIR="$torch_dir" &&
  timeout 300 cmake --build "$build" --target plait --target plait_cuda; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "gpu check: the build failed, whole log in $log" >&2
  exit 1
fi
exec "$python" benchmarks/gpu/check.py --plait "$build/plait" "$@"
