#!/usr/bin/env bash
# Makes the Python environment of the baselines, outside the repository: torch, DeepSpeed and megatron-core. About 4 GB, several minutes.
# Usage: setup_venv.sh [FOLDER]   (default: $PLAIT_BENCH_VENV, else ~/.cache/plait-bench-venv)
# Prints the path of its python as the last line. DeepSpeed and megatron-core are optional: a failure is said and their rows are left out.
# Exit codes: 0 done, 2 a missing right, 5 network.
set -euo pipefail
venv=${1:-${PLAIT_BENCH_VENV:-$HOME/.cache/plait-bench-venv}}

say() { printf '%s\n' "setup_venv: $*" >&2; }
fail() { local code=$1; shift; printf '%s\n' "error: $*" >&2; exit "$code"; }
pip() { "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-cache-dir "$@" </dev/null; }

mkdir -p "$(dirname "$venv")" 2>/dev/null || fail 2 "cannot write to $(dirname "$venv")"
if [ ! -x "$venv/bin/python" ]; then python3 -m venv "$venv" || fail 2 "python3 cannot make a venv (apt-get install python3-venv)"; fi
say "torch into $venv (about 4 GB)"
pip --only-binary=:all: torch==2.11.0 numpy safetensors ninja || fail 5 "pip could not install torch 2.11.0"
pip setuptools wheel || fail 5 "pip could not install setuptools"
# DeepSpeed's source package imports torch while it is built.
pip --no-build-isolation deepspeed==0.19.8 || say "deepspeed 0.19.8 could not be installed: its rows are left out"
pip megatron-core==0.16.1 || say "megatron-core 0.16.1 could not be installed: its rows are left out"
"$venv/bin/python" -c 'import torch, safetensors; print("torch", torch.__version__)' >&2 || fail 5 "$venv is there but does not work"
echo "$venv/bin/python"
