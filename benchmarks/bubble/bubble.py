#!/usr/bin/env python3
"""How much of a pipeline's time is idle, measured beside predicted. Python's standard library only.

usage: bubble.py [--program build/plait] [--kinds 1f1b,zb_h1] [--micro_batches 4,8] [--steps 12] [--warm_up 4] [--rounds 3] [--allow-load]

Trains a GPT-2 shape with random weights on pp2, one thread a rank, and reads the Chrome trace of both ranks (train.profile.trace_file). Of each
traced step: window = from the first forward's begin to the last computation's end over both ranks; idle share = 1 - computing / (2 x window).
The prediction is the schedule's: plait schedule with the medians of the F, B and W times of each stage and of the messages' travel as costs.
Configurations take turns, --rounds times. A row is within the bar when measured / predicted is within 10 %. Exit code 1 when one is not.
The ranks need a core each: on a machine that is loaded (more than 0.25 foreign cores) a row is not quoted, unless --allow-load.
"""
import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHAPE = dict(layers=8, hidden=256, heads=4, ffn=1024, vocab=2048, length=128)
ROWS = 4  # of a micro-batch
STAGES = 2


def busy_seconds():
    """CPU seconds of the whole machine so far, waiting not counted."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = (float(x) for x in file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def write_inputs(folder):
    model = os.path.join(folder, "model")
    os.makedirs(model)
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=SHAPE["vocab"], n_positions=SHAPE["length"], n_embd=SHAPE["hidden"],
                  n_layer=SHAPE["layers"], n_head=SHAPE["heads"], n_inner=SHAPE["ffn"], activation_function="gelu_new", resid_pdrop=0.0,
                  embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5, initializer_range=0.02, tie_word_embeddings=True)
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump(config, file)
    draw = random.Random(7)
    with open(os.path.join(folder, "rows.jsonl"), "w") as file:
        for _ in range(256):  # all of full length: micro-batches cost the same
            file.write(json.dumps({"input_ids": [draw.randrange(SHAPE["vocab"]) for _ in range(SHAPE["length"])]}) + "\n")
    return model, os.path.join(folder, "rows.jsonl")


def train(program, folder, model, rows, kind, micro_batches, steps, warm_up):
    """(trace events, rank 0's lines of metrics.jsonl, foreign cores)"""
    work = tempfile.mkdtemp(dir=folder)
    settings = {"model.init": "random", "train.max_steps": steps, "train.batch_size": ROWS * micro_batches,
                "train.distributed.gradient_accumulation_steps": micro_batches, "train.distributed.schedule": kind, "train.profile.trace_file": f"{work}/trace.json",
                "train.profile.first_step": warm_up + 1, "train.profile.num_steps": steps - warm_up, "train.progress_bar": "false"}
    command = [program, "train", "--model", model, "--task", "text-generation", "--train_file", rows, "--work_dir", f"{work}/run",
               "--pipeline_parallel_size", str(STAGES)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    before, began = busy_seconds(), time.monotonic()
    children = os.times()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    own = os.times().children_user + os.times().children_system - children.children_user - children.children_system
    foreign = (busy_seconds() - before - own) / (time.monotonic() - began)
    with open(f"{work}/trace.json") as file:
        trace = json.load(file)
    with open(f"{work}/run/metrics.jsonl") as file:
        metrics = [json.loads(line) for line in file]
    return trace["traceEvents"] if isinstance(trace, dict) else trace, [line for line in metrics if "step_seconds" in line][warm_up:], foreign


def actions_by_step(events):
    """[{rank: [(begin, end, stage, kind, micro-batch)]}], one a traced step, in seconds; events of one step lie inside its event "step N"."""
    spans, found = {}, {}
    for event in events:
        if event.get("ph") != "X":
            continue
        begin = event["ts"] / 1e6
        end = begin + event["dur"] / 1e6
        if step := re.fullmatch(r"step (\d+)", event["name"]):
            spans.setdefault(event["tid"], []).append((begin, end, int(step[1])))
        elif action := re.fullmatch(r"(\d+)(F|B|W|SF|RF|SB|RB)(\d+)", event["name"]):
            found.setdefault(event["tid"], []).append((begin, end, int(action[1]), action[2], int(action[3])))
    steps = {}
    for rank, actions in found.items():
        for begin, end, number in spans[rank]:
            steps.setdefault(number, {})[rank] = [a for a in actions if begin <= a[0] and a[1] <= end + 1e-6]
    return [steps[number] for number in sorted(steps)]


def idle_share(step):
    compute = [a for actions in step.values() for a in actions if a[3] in ("F", "B", "W")]
    window = max(a[1] for a in compute) - min(a[0] for a in compute)
    return 1 - sum(a[1] - a[0] for a in compute) / (len(step) * window)


def travel_seconds(step):
    """Of the messages whose receiver was there first: from the send's begin to the receive's end."""
    sends, travelled = {}, []
    for actions in step.values():
        for begin, _, stage, kind, m in actions:
            if kind in ("SF", "SB"):
                sends[(kind[1], stage, m)] = begin
    for actions in step.values():
        for begin, end, stage, kind, m in actions:
            if kind in ("RF", "RB"):
                sent = sends.get((kind[1], stage - 1 if kind == "RF" else stage + 1, m))
                if sent is not None and begin < sent:
                    travelled.append(end - sent)
    return travelled


def costs_of(steps):
    """{kind: [median seconds of stage 0, 1]}, and the median travel of a message."""
    times, travelled = {}, []
    for step in steps:
        travelled += travel_seconds(step)
        for actions in step.values():
            for begin, end, stage, kind, _ in actions:
                if kind in ("F", "B", "W"):
                    times.setdefault((kind, stage), []).append(end - begin)
    medians = {kind: [statistics.median(times.get((kind, stage), [0.0])) for stage in range(STAGES)] for kind in "FBW"}
    return medians, statistics.median(travelled) if travelled else 0.0


def predict(program, kind, micro_batches, costs, send):
    numbers = lambda values: ",".join(f"{1e3 * v:.6f}" for v in values)
    whole = [b + w for b, w in zip(costs["B"], costs["W"])]
    command = [program, "schedule", "--kind", kind, "--stages", str(STAGES), "--micro_batches", str(micro_batches), "--forward", numbers(costs["F"]),
               "--backward", numbers(whole), "--weight", numbers(costs["W"]), "--send", f"{1e3 * send:.6f}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return float(re.search(r"bubble ([\d.]+) %", out)[1]) / 100


def measure(program, folder, options):
    model, rows = write_inputs(folder)
    configurations = [(kind, int(m)) for m in options.micro_batches.split(",") for kind in options.kinds.split(",")]
    steps, metrics, foreign = {c: [] for c in configurations}, {c: [] for c in configurations}, {c: [] for c in configurations}
    for _ in range(options.rounds):
        for c in configurations:
            events, lines, others = train(program, folder, model, rows, *c, options.steps, options.warm_up)
            steps[c] += actions_by_step(events)
            metrics[c] += lines
            foreign[c].append(others)
    return configurations, steps, metrics, foreign


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=f"{ROOT}/build/plait")
    parser.add_argument("--kinds", default="1f1b,zb_h1")
    parser.add_argument("--micro_batches", default="4,8")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm_up", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--allow-load", action="store_true")
    options = parser.parse_args()
    if not 1 <= options.warm_up < options.steps:
        parser.error("--warm_up must be at least 1 and below --steps")
    if len(os.sched_getaffinity(0)) < STAGES:
        parser.error(f"{STAGES} ranks need {STAGES} cores: on fewer, idle time is not the pipeline's")
    with tempfile.TemporaryDirectory(prefix="plait-bubble-") as folder:
        configurations, steps, metrics, foreign = measure(options.program, folder, options)
    print(f"{time.strftime('%Y-%m-%d')}, {platform.node()}, {len(os.sched_getaffinity(0))} cores, pp{STAGES}, {SHAPE['layers']} layers of {SHAPE['hidden']}, "
          f"{ROWS} x {SHAPE['length']} tokens a micro-batch, {options.rounds} rounds of {options.steps - options.warm_up} steps\n")
    print("| schedule | micro-batches | idle measured | predicted | measured / predicted | within 10 % | pipeline wait of rank 0 | F B W ms by stage | message ms | foreign cores |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = 0
    for kind, m in configurations:
        c = (kind, m)
        costs, send = costs_of(steps[c])
        measured = statistics.median(idle_share(step) for step in steps[c])
        predicted = predict(options.program, kind, m, costs, send)
        wait = statistics.median(line["pipeline_wait_seconds"] / line["step_seconds"] for line in metrics[c])
        loaded = max(foreign[c]) > 0.25 and not options.allow_load
        good = abs(measured - predicted) <= 0.1 * predicted
        missed += not good or loaded
        times = " / ".join(" ".join(f"{1e3 * v:.1f}" for v in costs[k]) for k in "FBW")
        print(f"| {kind} | {m} | {100 * measured:.1f} % | {100 * predicted:.1f} % | {measured / predicted:.3f} | "
              f"{'not quoted: loaded' if loaded else 'yes' if good else 'NO'} | {100 * wait:.1f} % of the step | {times} | {1e3 * send:.2f} | {max(foreign[c]):.2f} |")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
