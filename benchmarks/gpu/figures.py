"""What the device check computes without a device: shapes, floating-point operations of a step, time limits, the table. No torch here."""
import math
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compare"))
from bounds import ratio_bounds  # noqa: E402
from workloads import hugging_face_config  # noqa: E402

SIDES = ("plait", "eager", "compiled")
NAMES = {"plait": "plait", "eager": "PyTorch", "compiled": "PyTorch, torch.compile"}
SHAPES = {
    "small": dict(layers=12, hidden=768, heads=12, vocab=50257, length=1024, rows=8),
    "medium": dict(layers=24, hidden=1024, heads=16, vocab=50257, length=1024, rows=8),
    "tiny": dict(layers=2, hidden=64, heads=2, vocab=512, length=32, rows=4),  # to try the programs on a CPU
}
# Seconds after which the check is ended. Start: PyTorch's two processes and compilation; pair: a turn of each side, plait's start with it.
PARITY_LIMIT, PEAK_LIMIT = 90, 40
START_LIMIT, PAIR_LIMIT = {"small": 100, "medium": 160, "tiny": 100}, {"small": 12, "medium": 16, "tiny": 10}


def limit_seconds(parity, sizes, pairs):
    speed = PEAK_LIMIT + sum(START_LIMIT[size] + pairs * PAIR_LIMIT[size] for size in sizes)
    return (PARITY_LIMIT if parity else 0) + (speed if sizes else 0)


def config(shape):
    """config.json of the model folder."""
    return hugging_face_config(dict(shape, family="gpt2", ffn=4 * shape["hidden"]))


def tokens(shape):
    return shape["rows"] * shape["length"]


def step_flops(shape):
    """Of forward and backward over one batch, counted as plait/train/flops.h counts: 6 for each weight of a matrix product and each token it meets,
    the head only for tokens that have a target (a row's last has none), and 12 H for each pair of tokens that the causal mask leaves, in each layer."""
    hidden, length = shape["hidden"], shape["length"]
    layer_weights = 12 * hidden * hidden  # query, key, value, out: 4 H H; the feed-forward: 2 x 4 H H
    products = tokens(shape) * shape["layers"] * layer_weights + shape["rows"] * (length - 1) * shape["vocab"] * hidden
    pairs = shape["rows"] * shape["layers"] * length * (length + 1) // 2
    return 6 * products + 12 * hidden * pairs


def disagreement(ours, theirs):
    """Largest differences of two runs, as shares: of the losses of all steps, and of the first gradient norm (later ones amplify rounding).
    Infinite when a loss is not a number."""
    losses = [abs(a - b) / abs(a) for a, b in zip(ours["losses"], theirs["losses"], strict=True)]
    norm, other = (run["gradient_norms"][0] for run in (ours, theirs))
    return max(losses) if all(map(math.isfinite, losses)) else math.inf, abs(norm - other) / norm


def table(size, taken, peak):
    """Markdown. `taken`: one dict for each pair, side -> median seconds of a step; `peak`: FLOP/s of a large matrix product."""
    shape = SHAPES[size]
    lines = ["| model | side | step ms | tokens/s | TFLOP/s of the model | MFU | this step / plait's (95 % bounds; smallest, largest of the pairs) |",
             "|---|---|---|---|---|---|---|"]
    for side in SIDES:
        seconds = statistics.median(pair[side] for pair in taken)
        rate = step_flops(shape) / seconds
        ratio = ""
        if side != "plait":
            middle, lower, upper = ratio_bounds([(pair["plait"], pair[side]) for pair in taken])
            each = [pair[side] / pair["plait"] for pair in taken]
            ratio = f"**{middle:.2f}** ({lower:.2f}, {upper:.2f}; {min(each):.2f}, {max(each):.2f})"
        figures = [f"{1e3 * seconds:.2f}", f"{tokens(shape) / seconds:.0f}", f"{rate / 1e12:.1f}", f"{100 * rate / peak:.1f} %", ratio]
        lines.append(f"| GPT-2 {size} | {NAMES[side]} | " + " | ".join(figures) + " |")
    work = f"{tokens(shape)} tokens and {step_flops(shape) / 1e12:.4g} TFLOP a step"
    return "\n".join(lines) + f"\n\nPairs: {len(taken)}; {work}; peak {peak / 1e12:.4g} TFLOP/s"
