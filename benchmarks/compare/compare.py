#!/usr/bin/env python3
"""Runs plait beside PyTorch, DeepSpeed and Megatron-core: same weights, same rows in the same order, same layout and dtype, one thread a rank.

  benchmarks/compare/setup_venv.sh                       # once: the baselines' Python, outside the repository, about 4 GB
  benchmarks/compare/compare.py                          # all rows, slow (an hour on 2 cores)
  benchmarks/compare/compare.py W2-fp32 --pairs 5        # the rows whose name contains a word given
  benchmarks/compare/compare.py --list

plait and the baseline take turns (A B A B ...) in one sitting; a row is the median of the pairs' ratios with the smallest and largest.
A run whose losses differ from plait's is rejected. Nothing is quoted while other programs use the cores, unless --allow-load is given: then
the table says how much they used. Only the standard library is needed here; the baselines run in the environment named by --python."""
import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import Failed, run_peer, run_plait  # noqa: E402
from workloads import CLIP, WEIGHT_DECAY, WORKLOADS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOREIGN_CORES_ALLOWED = 0.25
# Largest difference of losses over the steps, as a share of the loss. bfloat16 programs round in different places.
LOSS_TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}


class Row:
    """workload, dtype, layout, baseline."""

    def __init__(self, workload, dtype, layout, peer, micro_batches=1):
        self.workload, self.dtype, self.layout, self.peer, self.micro_batches = workload, dtype, layout, peer, micro_batches
        self.w, self.clip, self.weight_decay = WORKLOADS[workload], CLIP, WEIGHT_DECAY
        self.sizes = dict(dp=1, tp=1, pp=1)
        for part in layout.split("-"):
            self.sizes[part[:2]] = int(part[2:])
        self.world = self.sizes["dp"] * self.sizes["tp"] * self.sizes["pp"]
        self.name = f"{workload}-{dtype}-{layout}-{peer}"
        self.tokens = self.w["rows"] * self.w["length"]


ROWS = [
    Row("W2", "fp32", "dp1", "single"), Row("W2", "fp32", "dp2", "ddp"), Row("W2", "fp32", "dp4", "ddp"), Row("W2", "fp32", "dp2", "ds-zero1"),
    Row("W2", "fp32", "tp2", "tp"), Row("W2", "fp32", "tp2", "megatron"), Row("W2", "fp32", "pp2", "pp-1f1b", 4),
    Row("W2", "fp32", "dp2-tp2-pp2", "3d", 4), Row("W2", "bf16", "dp1", "single"), Row("W2", "bf16", "dp2", "ddp"),
    Row("W1", "fp32", "dp1", "single"), Row("W1", "fp32", "dp2", "ddp"), Row("W1", "fp32", "tp2", "tp"), Row("W1", "fp32", "pp2", "pp-1f1b", 4),
    Row("W1", "bf16", "dp1", "single"), Row("W3", "fp32", "dp1", "single"), Row("W3", "fp32", "dp2", "ddp"), Row("W4", "fp32", "dp1", "single"),
    Row("W4", "fp32", "dp2", "ddp"),
]


def make_inputs(python, workload, num_rows, folder):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "make_inputs.py")
    subprocess.run([python, program, workload, str(num_rows), folder], check=True)


def loss_difference(a, b):
    """The largest over the steps, as a share of the loss; infinite when one is not a number."""
    differences = [abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def run_pairs(row, args, inputs, scratch):
    """[(plait, baseline)] samples; raises Failed."""
    pairs = []
    for i in range(args.pairs):
        folders = [tempfile.mkdtemp(prefix=f"{row.name}-{i}-", dir=scratch) for _ in range(2)]
        ours = run_plait(args.plait, row, inputs, folders[0], args.steps, args.warmup, args.timeout)
        theirs = run_peer(args.python, row, inputs, folders[1], args.steps, args.warmup, args.timeout, args.malloc)
        difference = loss_difference(ours.losses, theirs.losses)
        if not difference <= LOSS_TOLERANCE[row.dtype]:
            raise Failed(f"losses disagree by {difference:.2e}: plait {ours.losses[:3]} ... {ours.losses[-1]}, baseline {theirs.losses[:3]} ... "
                         f"{theirs.losses[-1]}")
        pairs.append((ours, theirs))
    return pairs


def median_of(samples, field):
    return statistics.median(getattr(s, field) for s in samples)


def summary(row, pairs):
    ratios = sorted(theirs.step / ours.step for ours, theirs in pairs)
    result = dict(row=row.name, workload=row.workload, dtype=row.dtype, layout=row.layout, micro_batches=row.micro_batches, baseline=row.peer,
                  pairs=len(pairs), ratio=statistics.median(ratios), ratio_smallest=ratios[0], ratio_largest=ratios[-1],
                  loss_difference=max(loss_difference(a.losses, b.losses) for a, b in pairs),
                  foreign_cores=statistics.median([s.foreign_cores for pair in pairs for s in pair]))
    for side, samples in (("plait", [p[0] for p in pairs]), ("peer", [p[1] for p in pairs])):
        result[side] = dict(tokens_per_second=row.tokens / median_of(samples, "step"), step_ms=1e3 * median_of(samples, "step"),
                            step_ms_smallest=1e3 * min(min(s.step_seconds) for s in samples), startup_seconds=median_of(samples, "startup"),
                            resident_mb_largest=median_of(samples, "resident_max"), resident_mb_sum=median_of(samples, "resident_sum"),
                            private_mb_largest=median_of(samples, "private_max"), private_mb_sum=median_of(samples, "private_sum"))
    parts = {k: statistics.median(p[0].extra.get(k, 0.0) for p in pairs) for k in pairs[0][0].extra}
    result["plait"].update(parts)
    return result


def speed_table(results):
    print("\n| row | ratio (smallest, largest) | tokens/s plait, baseline | step ms plait, baseline | start s | resident MB largest | private MB largest "
          "| private MB sum | foreign cores |\n|---|---|---|---|---|---|---|---|---|")
    for r in results:
        a, b = r["plait"], r["peer"]
        both = lambda k, digits=0: f"{a[k]:.{digits}f}, {b[k]:.{digits}f}"
        print(f"| {r['row']} | **{r['ratio']:.2f}** ({r['ratio_smallest']:.2f}, {r['ratio_largest']:.2f}) | {both('tokens_per_second')} | "
              f"{both('step_ms')} | {both('startup_seconds', 1)} | {both('resident_mb_largest')} | {both('private_mb_largest')} | "
              f"{both('private_mb_sum')} | {r['foreign_cores']:.2f} |")


def breakdown_table(results):
    """Where plait's step goes, on rank 0. What is neither of the named parts is compute and everything between."""
    rows = [r for r in results if "communication_seconds" in r["plait"]]
    if not rows:
        return
    print("\n| row | step ms (mean) | compute and other | communication | waiting for the pipeline | optimizer |\n|---|---|---|---|---|---|")
    for r in rows:
        a = r["plait"]
        step, parts = a["mean_step_seconds"], [a["communication_seconds"], a["pipeline_wait_seconds"], a["optimizer_seconds"]]
        share = [(step - sum(parts)) / step] + [p / step for p in parts]
        print(f"| {r['row']} | {1e3 * step:.0f} | " + " | ".join(f"{100 * s:.0f} %" for s in share) + " |")


def default_python():
    venv = os.environ.get("PLAIT_BENCH_VENV", os.path.expanduser("~/.cache/plait-bench-venv"))
    return f"{venv}/bin/python"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("words", nargs="*", help="only rows whose name contains one of them")
    p.add_argument("--list", action="store_true", help="name the rows and end")
    p.add_argument("--pairs", type=int, default=7)
    p.add_argument("--steps", type=int, default=10, help="steps of one run, warm-up included")
    p.add_argument("--warmup", type=int, default=2, help="first steps that are not timed")
    p.add_argument("--malloc", choices=["default", "thp"], default="thp", help="of the baselines; thp: freed memory kept, in 2 MiB pages, their best")
    p.add_argument("--python", default=default_python(), help="python of setup_venv.sh")
    p.add_argument("--plait", default=f"{ROOT}/build/plait")
    p.add_argument("--timeout", type=float, default=900, help="seconds for one run")
    p.add_argument("--allow-load", action="store_true", help="quote although others use the cores")
    p.add_argument("--json", help="write the results to this file")
    args = p.parse_args()
    if args.warmup < 1 or args.steps <= args.warmup:
        p.error("--steps must be above --warmup, and --warmup at least 1")
    return args


def main():
    args = arguments()
    rows = [r for r in ROWS if not args.words or any(word in r.name for word in args.words)]
    if args.list:
        print("\n".join(r.name for r in rows))
        return 0
    if not os.access(args.python, os.X_OK):
        sys.exit(f"{args.python} is not there: run benchmarks/compare/setup_venv.sh, or name the baselines' python with --python")
    print(f"{platform.node()}: {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; {args.pairs} pairs, {args.steps} steps ({args.warmup} warm-up), "
          f"baselines with --malloc {args.malloc}", flush=True)
    results, refused = [], []
    with tempfile.TemporaryDirectory(prefix="plait-compare-") as scratch:
        for row in rows:
            inputs = f"{scratch}/{row.workload}"
            if not os.path.exists(f"{inputs}/rows.jsonl"):
                make_inputs(args.python, row.workload, args.steps * row.w["rows"], inputs)
            try:
                result = summary(row, run_pairs(row, args, inputs, scratch))
            except Failed as e:
                print(f"{row.name}: {e}", flush=True)
                refused.append(row.name)
                continue
            if result["foreign_cores"] > FOREIGN_CORES_ALLOWED and not args.allow_load:
                print(f"{row.name}: not quoted, other programs used {result['foreign_cores']:.2f} cores (at most {FOREIGN_CORES_ALLOWED}; --allow-load)")
                refused.append(row.name)
                continue
            print(f"{row.name}: ratio {result['ratio']:.2f} ({result['ratio_smallest']:.2f} to {result['ratio_largest']:.2f}), losses agree to "
                  f"{result['loss_difference']:.1e}, foreign cores {result['foreign_cores']:.2f}", flush=True)
            results.append(result)
            if args.json:
                with open(args.json, "w") as f:
                    json.dump(results, f, indent=1)
    if args.allow_load and any(r["foreign_cores"] > FOREIGN_CORES_ALLOWED for r in results):
        print("\nThe machine was LOADED (last column): these are not quotable results.")
    speed_table(results)
    breakdown_table(results)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
