#!/usr/bin/env python3
"""Gradient compression over a slow link: the quickstart's model on two data ranks, each a node of its own (network namespaces), joined by a
cable that tc's token bucket holds to 100 Mbit/s in each direction. The ways to send gradients take turns; then each trains the whole
quickstart (on one node: the link changes no bit) and its accuracy is compared. Prints one markdown table.

usage: benchmarks/compression/compression.py [--pairs 7] [--steps 4] [--rate 100mbit] [--ways none,bf16,fp8,powersgd] [--no-accuracy]
Needs root, iproute2 (ip, tc) and the quickstart's model and data (setup/fetch.sh).
"""
import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [f"{ROOT}/tests/procs", f"{ROOT}/benchmarks/compare"]
import bounds  # noqa: E402
import two_nodes  # noqa: E402

CONFIG = f"{ROOT}/configs/quickstart.yaml"
BARS = {"bf16": 1.7, "fp8": 3.0, "powersgd": 4.0}  # step time against none
ACCURACY_BAND = 0.01
RANK = 16  # powersgd: with 4 this short run loses 3 points of accuracy
WAYS = ("none", "bf16", "fp16", "fp8", "powersgd", "topk", "nccl")


def settings(way, work_dir, more):
    values = {"train.distributed.data_parallel_size": 2, "train.distributed.model_parallel_size": 1,
              "train.distributed.pipeline_parallel_size": 1, "train.comm.compression.algorithm": way, **more}
    if way == "powersgd":
        values["train.comm.compression.rank"] = RANK
    return [CONFIG, "--work_dir", work_dir] + [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PLAIT_", "RANK", "WORLD_SIZE", "MASTER_"))}
    return {**clean, "OMP_NUM_THREADS": "1"}


def metrics(work_dir):
    with open(f"{work_dir}/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [m for m in lines if "loss" in m], [m for m in lines if "eval_loss" in m]


def run_on_link(plait, nodes, way, steps, work_dir):
    """Steps but the first of one short run on both nodes."""
    shutil.rmtree(work_dir, ignore_errors=True)
    train = settings(way, work_dir, {"train.max_steps": steps, "evaluation.strategy": "no"})
    launched = []
    for node in (0, 1):
        words = [plait, "launch", "--nnodes=2", f"--node_rank={node}", "--nproc_per_node=1", f"--master_addr={two_nodes.ADDRESSES[0]}",
                 "--master_port=29500", "--secret_file", f"{os.path.dirname(work_dir)}/secret", "--", plait, "train", *train]
        launched.append(subprocess.Popen(nodes.command(node, words, ROOT), env=environment(), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate(timeout=1200)[0] for process in launched]
    if any(process.returncode for process in launched):
        sys.exit(f"{way}: the run failed\n" + "\n".join(outputs))
    return metrics(work_dir)[0][1:]


def accuracy(plait, way, work_dir):
    shutil.rmtree(work_dir, ignore_errors=True)
    subprocess.run([plait, "train", *settings(way, work_dir, {})], check=True, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=3600)
    return metrics(work_dir)[1][-1]["eval_accuracy"]


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown processor")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {datetime.date.today()}"


def why_not():
    if not shutil.which("tc"):
        return "no slow link here: the program tc is missing (iproute2)"
    return two_nodes.why_not()


def measure(plait, ways, pairs, steps, rate, folder):
    """Of each way the median step time and the last step of every round."""
    times, last = {way: [] for way in ways}, {}
    with two_nodes.TwoNodes(environment()) as nodes:
        for node in (0, 1):
            nodes.run(node, ["tc", "qdisc", "add", "dev", "e0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms"])
        for round_index in range(pairs):
            for way in ways if round_index % 2 == 0 else ways[::-1]:
                found = run_on_link(plait, nodes, way, steps, f"{folder}/run")
                times[way].append(statistics.median(m["step_seconds"] for m in found))
                last[way] = found[-1]
                print(f"round {round_index + 1}: {way} {times[way][-1]:.3f} s a step", file=sys.stderr, flush=True)
    return times, last


def print_table(ways, times, last, accuracies, rate, pairs):
    print(f"Two data ranks over {rate}, {machine()}; {pairs} rounds, the ways alternating. Ratio: median step time of none over that of the way, with "
          "its 95 % bounds (bootstrap over the rounds); a bar is missed when the upper one is below it.\n")
    print("| way | step, s | ratio | bar | MB sent by both ranks a step | compression error | accuracy | bar |\n|---|---|---|---|---|---|---|---|")
    for way in ways:
        ratio, low, high = bounds.ratio_bounds(list(zip(times[way], times["none"])))
        bar = f"{BARS[way]} {'met' if high >= BARS[way] else 'MISSED'}" if way in BARS else ""
        sent = f"{last[way]['bytes_sent'] / 1e6:.2f}" if "bytes_sent" in last[way] else ""
        error = f"{last[way]['compression_error']:.3g}" if "compression_error" in last[way] else ""
        score = f"{accuracies[way]:.4f}" if accuracies else ""
        within = ""
        if accuracies and way != "none":
            within = "met" if accuracies[way] >= accuracies["none"] - ACCURACY_BAND else "MISSED"
        name = f"{way}, rank {RANK}" if way == "powersgd" else way
        print(f"| {name} | {statistics.median(times[way]):.3f} | {ratio:.2f} ({low:.2f} to {high:.2f}) | {bar} | "
              f"{sent} | {error} | {score} | {within} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="rounds in which every way runs once")
    parser.add_argument("--steps", type=int, default=4, help="steps of one short run; the first is not counted")
    parser.add_argument("--rate", default="100mbit", help="of the link, as tc writes it")
    parser.add_argument("--ways", default="none,bf16,fp8,powersgd", help=f"of {', '.join(WAYS)}; none comes first")
    parser.add_argument("--no-accuracy", action="store_true", help="leave out the whole quickstarts")
    parser.add_argument("--plait", default=f"{ROOT}/build/plait")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    if ways[0] != "none" or not set(ways) <= set(WAYS) or arguments.steps < 2 or arguments.pairs < 1:
        parser.error("--ways begins with none and names known ways, --steps is at least 2, --pairs at least 1")
    if not os.access(arguments.plait, os.X_OK):
        sys.exit(f"{arguments.plait} is not there: setup/build.sh makes it")
    reason = why_not()
    if reason:
        sys.exit(reason)
    folder = tempfile.mkdtemp(prefix="plait-compression-")
    with open(f"{folder}/secret", "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
        f.write(os.urandom(16).hex())
    try:
        times, last = measure(arguments.plait, ways, arguments.pairs, arguments.steps, arguments.rate, folder)
        accuracies = {} if arguments.no_accuracy else {way: accuracy(arguments.plait, way, f"{folder}/whole") for way in ways}
    finally:
        shutil.rmtree(folder)
    print_table(ways, times, last, accuracies, arguments.rate, arguments.pairs)


if __name__ == "__main__":
    main()
