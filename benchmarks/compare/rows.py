"""The rows of the comparison: workload x dtype x layout, the baselines that can run each, and the bars plait is measured against."""
from workloads import CLIP, WEIGHT_DECAY, WORKLOADS

LAYOUTS = ["dp1", "dp2", "dp4", "tp2", "tp4", "pp2", "dp2-tp2", "dp2-tp2-pp2"]
DTYPES = ["fp32", "bf16"]
MICRO_BATCHES = 4  # of a pipeline


class Row:
    """workload, dtype, layout. `threads` of one rank; 1 everywhere but in plait's own one process that uses all cores."""

    def __init__(self, workload, dtype, layout, threads=1):
        self.workload, self.dtype, self.layout, self.threads = workload, dtype, layout, threads
        self.w, self.clip, self.weight_decay = WORKLOADS[workload], CLIP, WEIGHT_DECAY
        self.sizes = dict(dp=1, tp=1, pp=1)
        for part in layout.split("-"):
            self.sizes[part[:2]] = int(part[2:])
        self.world = self.sizes["dp"] * self.sizes["tp"] * self.sizes["pp"]
        self.micro_batches = MICRO_BATCHES if self.sizes["pp"] > 1 else 1
        self.name = f"{workload}-{dtype}-{layout}" + ("" if threads == 1 else f"-{threads}-threads")
        self.tokens = self.w["rows"] * self.w["length"]

    def peers(self):
        """Programs of peers/run.py that can run the row."""
        s = self.sizes
        if self.world == 1:
            return ["single"]
        if s["tp"] == s["pp"] == 1:
            return ["ddp", "fsdp2", "zero1", "ds-zero1", "ds-zero2"]
        if s["dp"] == s["pp"] == 1:
            return ["tp"] + (["megatron"] if self.w["family"] == "gpt2" else [])
        if s["dp"] == s["tp"] == 1:
            return ["pp-1f1b", "pp-interleaved"]
        return ["dp-tp"] if s["pp"] == 1 else ["3d"]

    def one_process(self):
        """The row that the 8-rank layout is held against beside the baselines: the same work in one plait process with two threads."""
        return Row(self.workload, self.dtype, "dp1", threads=2) if self.layout == "dp2-tp2-pp2" and self.workload in OWN_BARS else None


ROWS = [Row(w, t, layout) for w in WORKLOADS for t in DTYPES for layout in LAYOUTS]

# 12 rows of 30 minutes with 7 pairs on 2 cores.
SUBSET = [f"W2-fp32-{layout}" for layout in LAYOUTS] + ["W2-bf16-dp1", "W2-bf16-tp2", "W1-fp32-dp1", "W1-fp32-tp2"]

# Steps of one run and how many first ones are not timed. Long steps need few: the pairs are repetitions too.
STEPS = {"W1": (3, 1), "W2": (8, 2), "W3": (4, 1), "W4": (3, 1)}
SUBSET_STEPS = {**STEPS, "W1": (2, 1)}

# What plait is built to reach: baseline's step time over plait's.
EVERY_ROW_BAR = 1.0
MEAN_BAR = 1.5  # geometric mean over the rows
OWN_BARS = {"W1": 0.85, "W2": 0.5}  # dp2-tp2-pp2 against one process with two threads
START_BAR_SECONDS = 1.5  # W2, 8 ranks: start to the end of the first step
PEAK_BAR = 0.7  # W1 and W4, fp32, one thread: share of the rate of matrix products


def bar_of(row):
    w, layout = row.workload, row.layout
    if layout in ("tp2", "tp4"):
        return {"W1": 1.35, "W2": 1.6, "W4": 1.35}.get(w, EVERY_ROW_BAR)
    if layout == "dp2-tp2-pp2":
        return {"W1": 1.5, "W2": 4.0}.get(w, EVERY_ROW_BAR)
    if layout == "dp1" and w in ("W1", "W4"):
        return {"fp32": 1.3, "bf16": 1.8}[row.dtype]
    return EVERY_ROW_BAR
