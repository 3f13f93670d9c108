#!/usr/bin/env bash
# Makes .venv-test: Python with torch (CPU use), transformers, tokenizers and safetensors, for the tests that let Hugging Face open what
# plait exports. About 4 GB, several minutes; only those tests need it. Prints the path of its python as the last line.
# Exit codes: 0 done, 2 a missing right, 5 network, 8 disk.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=setup/steps.sh
. setup/steps.sh

requirements=(torch==2.11.0 transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 numpy)
marker=".venv-test/installed-$(printf '%s ' "${requirements[@]}" | sha256sum | cut -c 1-12)"

if [ ! -e "$marker" ]; then
  mkdir -p .deps 2>/dev/null && [ -w . ] && [ -w .deps ] || fail 2 "cannot write to $PWD: check the rights of this folder"
  exec 9>.deps/venv.lock
  flock 9
fi
if [ ! -e "$marker" ]; then
  need_space_mb . 6500
  say "making .venv-test (about 4 GB, several minutes)"
  [ -x .venv-test/bin/python ] || python3 -m venv .venv-test >.deps/venv.log 2>&1 ||
    fail 2 "python3 cannot make a venv (apt-get install python3-venv): $(tail -n 1 .deps/venv.log)"
  # A rerun goes on where this stopped: pip keeps what it has installed.
  if ! .venv-test/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --only-binary=:all: "${requirements[@]}" >.deps/venv.log 2>&1 </dev/null; then
    ! grep -qi "no space left" .deps/venv.log || fail 8 "the disk is full: .venv-test could not be made"
    fail 5 "pip could not install ${requirements[*]} into .venv-test: $(grep ERROR .deps/venv.log | tail -n 1 || true)"
  fi
  .venv-test/bin/python -c 'import torch, transformers, tokenizers, safetensors' >.deps/venv.log 2>&1 ||
    fail 5 ".venv-test is there but does not work: $(tail -n 1 .deps/venv.log)"
  : >"$marker"
fi
echo "$PWD/.venv-test/bin/python"
