#!/usr/bin/env python3
"""Runs plait beside PyTorch, DeepSpeed and Megatron-core: same weights, same rows in the same order, same layout and dtype, one thread a rank.

  benchmarks/compare/setup_venv.sh                       # once: the baselines' Python, outside the repository, about 4 GB
  benchmarks/compare/compare.py                          # all 64 rows: hours
  benchmarks/compare/compare.py --subset                 # 12 rows, 30 minutes on 2 cores
  benchmarks/compare/compare.py W2-fp32 --pairs 5        # the rows whose name contains a word given
  benchmarks/compare/compare.py --list

In each row every baseline that can run it goes once; the fastest takes turns with plait (A B A B ...). A row is the ratio of the medians with its
95 % bounds (bounds.py), beside the bar it is built to reach (rows.py). A run whose losses differ from plait's is rejected. Nothing is quoted while
other programs use the cores, unless --allow-load is given: then the table says how much they used. Only the standard library is needed here; the
baselines run in the environment named by --python."""
import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bounds import ratio_bounds  # noqa: E402
from measure import Failed, run_peer, run_plait  # noqa: E402
from report import print_all  # noqa: E402
from rows import ROWS, STEPS, SUBSET, SUBSET_STEPS, bar_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOREIGN_CORES_ALLOWED = 0.25
# Largest difference of losses over the steps, as a share of the loss. bfloat16 programs round in different places.
LOSS_TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}


def make_inputs(python, workload, num_rows, folder):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "make_inputs.py")
    subprocess.run([python, program, workload, str(num_rows), folder], check=True)


def loss_difference(a, b):
    """The largest over the steps, as a share of the loss; infinite when one is not a number."""
    differences = [abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


class Sitting:
    """Runs of one row: each in a folder of its own."""

    def __init__(self, row, args, inputs, scratch):
        self.row, self.args, self.inputs, self.scratch = row, args, inputs, scratch
        self.steps, self.warmup = steps_of(row.workload, args)

    def folder(self, name):
        return tempfile.mkdtemp(prefix=f"{self.row.name}-{name}-", dir=self.scratch)

    def plait(self, row=None, mfu=False):
        return run_plait(self.args.plait, row or self.row, self.inputs, self.folder("plait"), self.steps, self.warmup, self.args.timeout, mfu)

    def peer(self, name, like):
        """`like`: a sample of plait, whose losses must be the same."""
        sample = run_peer(self.args.python, self.row, name, self.inputs, self.folder(name), self.steps, self.warmup, self.args.timeout, self.args.malloc)
        difference = loss_difference(like.losses, sample.losses)
        if not difference <= LOSS_TOLERANCE[self.row.dtype]:
            raise Failed(f"losses of {name} disagree by {difference:.2e}: plait {like.losses[:3]} ... {like.losses[-1]}, baseline "
                         f"{sample.losses[:3]} ... {sample.losses[-1]}")
        return sample


def measure_row(row, args, inputs, scratch):
    """What `summary` needs; raises Failed when no baseline can run the row."""
    sitting = Sitting(row, args, inputs, scratch)
    first = sitting.plait(mfu=True)
    peers = [p for p in row.peers() if not args.peers or p in args.peers]
    qualifying, not_run = {}, {}
    for name in peers:
        try:
            qualifying[name] = sitting.peer(name, first).step
        except Failed as e:
            not_run[name] = str(e)[:200]
    if not qualifying:
        raise Failed(f"no baseline ran it: {not_run}")
    best = min(qualifying, key=qualifying.get)
    pairs, own = [], []
    for _ in range(args.pairs):
        ours = sitting.plait()
        pairs.append((ours, sitting.peer(best, ours)))
        if row.one_process():
            own.append(sitting.plait(row.one_process()))
    return dict(pairs=pairs, one_process=own, best=best, qualifying=qualifying, not_run=not_run, mfu=first.extra.get("mfu"))


def median_of(samples, field):
    return statistics.median(getattr(s, field) for s in samples)


def summary(row, measured):
    pairs = measured["pairs"]
    ratio, lower, upper = ratio_bounds([(a.step, b.step) for a, b in pairs])
    result = dict(row=row.name, workload=row.workload, dtype=row.dtype, layout=row.layout, micro_batches=row.micro_batches, baseline=measured["best"],
                  pairs=len(pairs), ratio=ratio, lower=lower, upper=upper, bar=bar_of(row), mfu=measured["mfu"],
                  qualifying_step_ms={k: 1e3 * v for k, v in measured["qualifying"].items()}, not_run=measured["not_run"],
                  loss_difference=max(loss_difference(a.losses, b.losses) for a, b in pairs),
                  foreign_cores=statistics.median([s.foreign_cores for pair in pairs for s in pair]))
    for side, samples in (("plait", [p[0] for p in pairs]), ("peer", [p[1] for p in pairs])):
        result[side] = dict(steps=[s.step for s in samples], tokens_per_second=row.tokens / median_of(samples, "step"),
                            step_ms=1e3 * median_of(samples, "step"), startup_seconds=median_of(samples, "startup"),
                            resident_mb_largest=median_of(samples, "resident_max"), resident_mb_sum=median_of(samples, "resident_sum"),
                            memory_mb_largest=median_of(samples, "memory_max"), memory_mb_sum=median_of(samples, "memory_sum"))
    result["plait"].update({k: statistics.median(p[0].extra.get(k, 0.0) for p in pairs) for k in pairs[0][0].extra})
    if measured["one_process"]:
        own = ratio_bounds([(a.step, one.step) for (a, _), one in zip(pairs, measured["one_process"])])
        result["one_process"] = dict(steps=[s.step for s in measured["one_process"]], ratio=own[0], lower=own[1], upper=own[2],
                                     step_ms=1e3 * median_of(measured["one_process"], "step"))
    return result


def default_python():
    venv = os.environ.get("PLAIT_BENCH_VENV", os.path.expanduser("~/.cache/plait-bench-venv"))
    return f"{venv}/bin/python"


def steps_of(workload, args):
    steps, warmup = (SUBSET_STEPS if args.subset else STEPS)[workload]
    return args.steps or steps, args.warmup or warmup


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("words", nargs="*", help="only rows whose name is, or contains, one of them")
    p.add_argument("--list", action="store_true", help="name the rows and end")
    p.add_argument("--subset", action="store_true", help="the 12 rows of half an hour")
    p.add_argument("--pairs", type=int, default=7)
    p.add_argument("--steps", type=int, help="steps of one run, warm-up included (default: by workload, rows.py)")
    p.add_argument("--warmup", type=int, help="first steps that are not timed")
    p.add_argument("--peers", nargs="+", help="only these baselines")
    p.add_argument("--malloc", choices=["default", "thp"], default="thp", help="of the baselines; thp: freed memory kept, in 2 MiB pages, their best")
    p.add_argument("--python", default=default_python(), help="python of setup_venv.sh")
    p.add_argument("--plait", default=f"{ROOT}/build/plait")
    p.add_argument("--timeout", type=float, default=900, help="seconds for one run")
    p.add_argument("--allow-load", action="store_true", help="quote although others use the cores")
    p.add_argument("--json", help="write the results to this file")
    args = p.parse_args()
    for workload in STEPS:
        steps, warmup = steps_of(workload, args)
        if warmup < 1 or steps <= warmup:
            p.error("--steps must be above --warmup, and --warmup at least 1")
    if args.pairs < 1:
        p.error("--pairs must be at least 1")
    return args


def chosen_rows(args):
    names = {r.name for r in ROWS}

    def asked(name: str) -> bool:  # a whole name means that row alone: W1-fp32-dp2 not the rows dp2-tp2 too
        return not args.words or any(word == name if word in names else word in name for word in args.words)

    return [r for r in ROWS if (not args.subset or r.name in SUBSET) and asked(r.name)]


def machine_line(args):
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    return (f"{time.strftime('%Y-%m-%d %H:%M')}, {platform.node()}: {len(os.sched_getaffinity(0))} cores ({model.group(1) if model else platform.machine()}), "
            f"load {os.getloadavg()[0]:.2f}; {args.pairs} pairs, baselines with --malloc {args.malloc}")


def main():
    args = arguments()
    rows = chosen_rows(args)
    if args.list:
        print("\n".join(r.name for r in rows))
        return 0
    if not rows:
        sys.exit(f"no row has one of the words {args.words}; --list names them")
    if not os.access(args.python, os.X_OK):
        sys.exit(f"{args.python} is not there: run benchmarks/compare/setup_venv.sh, or name the baselines' python with --python")
    print(machine_line(args), flush=True)
    begin, results, refused = time.time(), [], []
    with tempfile.TemporaryDirectory(prefix="plait-compare-") as scratch:
        for row in rows:
            inputs = f"{scratch}/{row.workload}"
            if not os.path.exists(f"{inputs}/rows.jsonl"):
                make_inputs(args.python, row.workload, steps_of(row.workload, args)[0] * row.w["rows"], inputs)
            try:
                result = summary(row, measure_row(row, args, inputs, scratch))
            except Failed as e:
                print(f"{row.name}: {e}", flush=True)
                refused.append(row.name)
                continue
            if result["foreign_cores"] > FOREIGN_CORES_ALLOWED and not args.allow_load:
                print(f"{row.name}: not quoted, other programs used {result['foreign_cores']:.2f} cores (at most {FOREIGN_CORES_ALLOWED}; --allow-load)",
                      flush=True)
                refused.append(row.name)
                continue
            print(f"{row.name}: {result['ratio']:.2f} ({result['lower']:.2f} to {result['upper']:.2f}) against {result['baseline']}, bar {result['bar']}; "
                  f"losses agree to {result['loss_difference']:.1e}, foreign cores {result['foreign_cores']:.2f}, after {time.time() - begin:.0f} s", flush=True)
            results.append(result)
            if args.json:
                with open(args.json, "w") as f:
                    json.dump(results, f, indent=1)
    if any(r["foreign_cores"] > FOREIGN_CORES_ALLOWED for r in results):
        print("\nThe machine was LOADED (last column): these are not quotable results.")
    if results:
        print_all(results)
    if refused:
        print(f"\nNot in the tables: {', '.join(refused)}")
    print(f"\n{(time.time() - begin) / 60:.0f} minutes")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
