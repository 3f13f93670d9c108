#!/usr/bin/env bash
# Installs OpenMPI and MPICH, with the headers that the plugins of train.comm.backend mpi are built from, and the daemons of Slurm from
# Debian, for the tests that start plait with them (tests/procs/test_mpi.py, tests/procs/test_slurm.py, tests/comm/mpi_*procs_test.cpp): about
# 45 MB to fetch, 210 MB on disk, half a minute. No daemon is started. Does nothing when they are there.
# Exit codes: 0 done, 2 a missing right or no Debian system, 5 network, 8 disk.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=setup/steps.sh
. setup/steps.sh

packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev slurmctld slurmd slurm-client munge)
missing=()
PATH=$PATH:/usr/sbin
for name in mpirun.openmpi mpiexec.hydra slurmctld slurmd srun munged; do command -v "$name" >/dev/null || missing+=("$name"); done
if command -v dpkg-query >/dev/null; then
  for name in libopenmpi-dev libmpich-dev; do dpkg-query -W -f '${db:Status-Status}\n' $name 2>/dev/null | grep -qx installed || missing+=("$name"); done
fi
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || fail 2 "this is no Debian system: install these programs yourself: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null && sudo -n true 2>/dev/null || fail 2 "as root, run: apt-get install -y --no-install-recommends ${packages[*]}"
  as_root=(sudo)
fi
need_space_mb / 400
mkdir -p .deps
exec 9>.deps/lock
flock 9
log=.deps/launchers.log
# A policy of the machine's that keeps services from starting is left alone; where there is none, one stands for the time of this script.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod 755 $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}" >"$log" 2>&1 </dev/null; }
say "installing Debian packages: ${packages[*]}"
install || { "${as_root[@]}" apt-get update >"$log" 2>&1 && install; } || fail 5 "apt-get could not install ${packages[*]}: $(grep -E '^(E|Err)' "$log" | tail -n 1 || true)"
# A build folder that was made before looks for the MPI libraries once more.
[ ! -e build/build.ninja ] || cmake build >>"$log" 2>&1 || fail 2 "cmake could not look for MPI again: $(grep -m1 -A3 Error "$log" || tail -n 1 "$log")"
