#!/usr/bin/env python3
"""What communication costs: 1 - step without communication / step, and the same for switches and styles.

  benchmarks/communication/communication.py                           # W1: dp4 and tp2
  benchmarks/communication/communication.py W2-tp2 W2-tp4 --pairs 3   # any workload and layout
  benchmarks/communication/communication.py W1-tp2 --against overlap_tensor_comm=false --against tensor_parallel=p2p

plait and `plait_without_communication` (the same program whose process groups do nothing; its results mean nothing) take turns in one
sitting. A cost is that of one pair, the table has the median, the smallest and the largest. --against adds runs of plait with one setting of
train.distributed or train.comm.priority changed, as ratios to plait as it is. Random weights, one thread a rank, Python's standard library."""
import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "benchmarks", "compare"))
from workloads import CLIP, WEIGHT_DECAY, WORKLOADS, hugging_face_config  # noqa: E402

PRIORITY = ("tensor_parallel", "data_parallel")


def make_inputs(w, num_rows, folder):
    os.makedirs(f"{folder}/model")
    with open(f"{folder}/model/config.json", "w") as f:
        json.dump(hugging_face_config(w), f)
    numbers = random.Random(1)
    with open(f"{folder}/rows.jsonl", "w") as f:
        for _ in range(num_rows):
            row = {"input_ids": [numbers.randrange(1, w["vocab"]) for _ in range(w["length"])]}
            if "labels" in w:
                row["labels"] = numbers.randrange(w["labels"])
            f.write(json.dumps(row) + "\n")


def settings_of(workload, layout, dtype, micro_batches, inputs, folder, steps, change):
    w = WORKLOADS[workload]
    sizes = dict(dp=1, tp=1, pp=1, sp=0)
    for part in layout.split("-"):
        sizes[part[:2]] = int(part[2:])
    distributed = dict(data_parallel_size=sizes["dp"], model_parallel_size=sizes["tp"], pipeline_parallel_size=sizes["pp"],
                       gradient_accumulation_steps=micro_batches, sequence_parallel=sizes["sp"] == 1)
    comm = {}
    if change:
        name, _, value = change.partition("=")
        if name in PRIORITY:
            comm = dict(priority={name: value})
        else:
            distributed[name] = json.loads(value)
    return dict(
        task="text-classification" if "labels" in w else "text-generation", model=dict(path=f"{inputs}/model", init="random"),
        dataset=dict(train=dict(file=f"{inputs}/rows.jsonl")), preprocessor=dict(sequence_length=w["length"]),
        train=dict(work_dir=f"{folder}/work", max_steps=steps, shuffle=False, dropout=0, clip_grad=CLIP, batch_size=w["rows"], progress_bar=False,
                   dtype=dtype, device="cpu", lr_scheduler=dict(type="constant"),
                   optimizer=dict(type="AdamW", params=dict(lr=w["lr"], weight_decay=WEIGHT_DECAY, decay_all=True)), distributed=distributed,
                   comm=comm), evaluation=dict(period=dict(eval_strategy="no")))


def run(binary, settings, folder, warmup, timeout_s):
    """Seconds of the steps after warm-up."""
    os.makedirs(folder)
    with open(f"{folder}/settings.json", "w") as f:
        json.dump(settings, f)
    with open(f"{folder}/out", "w") as out:
        code = subprocess.run([binary, "train", f"{folder}/settings.json"], stdout=out, stderr=out, env=dict(os.environ, OMP_NUM_THREADS="1"),
                              timeout=timeout_s).returncode
    if code != 0:
        with open(f"{folder}/out") as f:
            sys.exit(f"{binary} ended with {code}: {' | '.join(f.read().strip().splitlines()[-4:])}")
    with open(f"{folder}/work/metrics.jsonl") as f:
        lines = [json.loads(line) for line in f]
    return [line["step_seconds"] for line in lines if "loss" in line][warmup:]


def spread(values, form):
    return f"{form(statistics.median(values))} ({form(min(values))}, {form(max(values))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=["W1-dp4", "W1-tp2"], help="workload and layout: W1-dp4, W2-dp2-tp2-pp2; sp1 = sequence parallel")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--against", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    plait, silent = f"{args.build}/plait", f"{args.build}/benchmarks/plait_without_communication"
    if not os.access(silent, os.X_OK):
        sys.exit(f"{silent} is not there; cmake --build {args.build} --target plait_without_communication")
    variants = [("plait", plait, ""), ("without communication", silent, "")] + [(change, plait, change) for change in args.against]
    print(f"{platform.node()}, {os.cpu_count()} cores, {args.pairs} pairs of {args.steps - args.warmup} steps, {args.dtype}; load "
          f"{os.getloadavg()[0]:.1f} at the start\n")
    print("| row | program | step ms | cost of communication | step / plait's |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="plait-communication-") as scratch:
        for row in args.rows:
            workload, _, layout = row.partition("-")
            inputs = f"{scratch}/{row}-inputs"
            make_inputs(WORKLOADS[workload], WORKLOADS[workload]["rows"] * 4, inputs)
            steps = {name: [] for name, _, _ in variants}
            for pair in range(args.pairs):
                for index, (name, binary, change) in enumerate(variants):
                    folder = f"{scratch}/{row}-{pair}-{index}"
                    settings = settings_of(workload, layout, args.dtype, args.micro_batches, inputs, folder, args.steps, change)
                    steps[name].append(statistics.median(run(binary, settings, folder, args.warmup, args.timeout)))
            for name, values in steps.items():
                ratios = [a / b for a, b in zip(values, steps["plait"], strict=True)]
                cost = [1 - r for r in ratios] if name == "without communication" else None
                print(f"| {row} | {name} | {1e3 * statistics.median(values):.1f} | {spread(cost, lambda v: f'{100 * v:.1f} %') if cost else ''} | "
                      f"{spread(ratios, lambda v: f'{v:.3f}')} |", flush=True)


main()
