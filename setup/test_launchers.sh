#!/usr/bin/env bash
# Installs the launchers of OpenMPI and MPICH from Debian, for the tests that start plait with them (tests/procs/test_mpi.py): 15 MB to fetch,
# 70 MB on disk, seconds. No compiler, no MPI headers. Does nothing when they are there.
# Exit codes: 0 done, 2 a missing right or no Debian system, 5 network, 8 disk.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=setup/steps.sh
. setup/steps.sh

if command -v mpirun.openmpi >/dev/null && command -v mpiexec.hydra >/dev/null; then exit 0; fi
command -v apt-get >/dev/null || fail 2 "this is no Debian system: install the launchers of OpenMPI and MPICH yourself (mpirun.openmpi, mpiexec.hydra in PATH)"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null && sudo -n true 2>/dev/null || fail 2 "as root, run: apt-get install -y --no-install-recommends openmpi-bin mpich"
  as_root=(sudo)
fi
need_space_mb / 200
mkdir -p .deps
exec 9>.deps/lock
flock 9
log=.deps/launchers.log
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openmpi-bin mpich >"$log" 2>&1 </dev/null; }
say "installing Debian packages: openmpi-bin mpich"
install || { "${as_root[@]}" apt-get update >"$log" 2>&1 && install; } || fail 5 "apt-get could not install openmpi-bin and mpich: $(grep -E '^(E|Err)' "$log" | tail -n 1 || true)"
