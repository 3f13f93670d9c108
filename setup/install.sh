#!/usr/bin/env bash
# Installs what a build needs: Debian packages (only those missing), then the parts of the torch wheel that plait compiles and links
# against, into .deps/. Run it as often as you like: what is there is left alone, what was cut short is done again.
#   setup/install.sh               set PLAIT_TORCH_DIR=.../site-packages/torch to use a torch >= 2.11 of your own
# Exit codes: 0 done, 2 a missing right or a wrong setting, 5 network, 8 disk or unsupported machine.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=setup/steps.sh
. setup/steps.sh

packages=(cmake g++ ninja-build lld nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  libgtest-dev python3 python3-pip python3-venv unzip clang-format)

torch_wheel=torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl
torch_sha=7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
cudart_sha=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
cupti_sha=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8

install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    for package in cmake g++ ninja python3 unzip; do command -v "$package" >/dev/null || missing+=("$package"); done
    [ ${#missing[@]} -eq 0 ] || fail 2 "this is no Debian system: please install these yourself, then run me again: ${packages[*]}"
    say "no Debian system: taking the build tools and libraries as they are"
    return
  fi
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing Debian packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      fail 2 "these Debian packages are missing and I am neither root nor allowed to use sudo. As root, run:
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  local log=.deps/apt.log
  "${as_root[@]}" apt-get update >"$log" 2>&1 || say "apt-get update failed ($(tail -n 1 "$log")); trying with the package lists as they are"
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null; then
    grep -qi "no space left" "$log" && fail 8 "the disk is full: apt-get could not install ${missing[*]} (see $log)"
    fail 5 "apt-get could not install ${missing[*]}; its last words (all in $log):
$(grep -E '^(E|W|Err)' "$log" | tail -n 3 || tail -n 3 "$log")
Check the network and the package sources, then run me again."
  fi
}

# A torch that the user brought: only looked at, never changed.
check_own_torch() {
  local dir=$PLAIT_TORCH_DIR header version
  header=$dir/include/torch/headeronly/version.h
  [ -e "$dir/lib/libtorch_cpu.so" ] || fail 2 "PLAIT_TORCH_DIR=$dir holds no lib/libtorch_cpu.so: give the torch folder of a PyTorch install (.../site-packages/torch)"
  [ -e "$header" ] || fail 2 "PLAIT_TORCH_DIR=$dir holds no include/torch/headeronly/version.h: it is older than 2.11, or installed without headers"
  version=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\) \([0-9]*\)$/\2/p' "$header" | paste -sd.)
  [ "$(printf '%s\n2.11\n' "$version" | sort -V | head -n 1)" = 2.11 ] || fail 2 "torch $version in PLAIT_TORCH_DIR=$dir is too old: plait needs 2.11 or newer"
  say "using torch $version in $dir"
}

# The plugin for NVIDIA devices links against the CUDA half of torch; nothing else needs its 700 MB.
wants_cuda() {
  [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null || command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]
}

install_torch() {
  [ "$(uname -m)" = x86_64 ] || fail 8 "the torch wheel is for x86_64, this machine is $(uname -m): install PyTorch >= 2.11 yourself and set PLAIT_TORCH_DIR"
  local kind=cpu
  wants_cuda && kind=cuda
  local marker=.deps/torch-2.11.0-$kind.installed  # its time stamp is the moment the unpacking was complete
  if { [ -e "$marker" ] || [ -e .deps/torch-2.11.0-cuda.installed ]; } && [ -e .deps/torch/lib/libtorch_cpu.so ] &&
    [ -e .deps/nvidia/cu13/lib/libcudart.so.13 ]; then return 0; fi
  rm -f .deps/torch-2.11.0-*.installed
  need_space_mb .deps 2300
  say "fetching torch 2.11.0 (531 MB) and two small runtime packages (13 MB) from the Python package index"
  fetch_wheel torch==2.11.0 "$torch_wheel" "$torch_sha"
  fetch_wheel nvidia-cuda-runtime==13.0.96 nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl "$cudart_sha"
  fetch_wheel nvidia-cuda-cupti==13.0.85 nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl "$cupti_sha"
  local parts=('torch/include/*' torch/lib/libc10.so torch/lib/libtorch_cpu.so 'torch/lib/libgomp*' torch/lib/libshm.so torch/version.py)
  [ $kind = cpu ] || parts+=(torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so)
  say "unpacking into .deps/torch ($kind)"
  # Unpacked beside its place and moved in whole: a half unpacked folder is never taken for a good one.
  rm -rf .deps/unpack && mkdir .deps/unpack
  unpack .deps/download/"$torch_wheel" .deps/unpack "${parts[@]}"
  unpack .deps/download/nvidia_cuda_runtime-*.whl .deps/unpack 'nvidia/*'
  unpack .deps/download/nvidia_cuda_cupti-*.whl .deps/unpack 'nvidia/*'
  rm -rf .deps/torch .deps/nvidia
  mv .deps/unpack/torch .deps/unpack/nvidia .deps/
  rm -rf .deps/unpack .deps/download
  : >"$marker"
}

mkdir -p .deps 2>/dev/null && [ -w .deps ] || fail 2 "cannot write to $PWD/.deps: check the rights of this folder"
exec 9>.deps/lock
flock 9  # two set-ups at once: the second waits and finds everything done
install_packages
if [ -n "${PLAIT_TORCH_DIR:-}" ]; then check_own_torch; else install_torch; fi
