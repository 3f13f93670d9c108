#!/usr/bin/env bash
# Configures (release preset, build/) when needed and builds. Words: ninja targets; none = all.
set -euo pipefail
cd "$(dirname "$0")/.."
# A compile job takes up to 1.2 GB: as many at once as cores, and as memory allows.
cores=$(nproc)
by_memory=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
jobs=$((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
torch=()
[ -z "${PLAIT_TORCH_DIR:-}" ] || torch=(-DPLAIT_TORCH_DIR="$PLAIT_TORCH_DIR")
if [ ! -e build/build.ninja ] || [ ${#torch[@]} -gt 0 ]; then
  cmake --preset release "${torch[@]}" >build.log 2>&1 || { cat build.log >&2; rm -f build.log; exit 2; }
  rm -f build.log
fi
echo "build: $jobs jobs"
ninja -C build -j "$jobs" "$@"
