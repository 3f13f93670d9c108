"""Parity and speed of the device check; called by check.sh. Only the standard library is needed here: PyTorch's sides are programs that it runs
with the same python (gpt2_torch.py, matrix_rate.py)."""
import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from figures import SHAPES, SIDES, config, disagreement, limit_seconds, table  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "data", "golden", "models", "gpt2")
STEPS, WARM_UP = 30, 10  # of a turn; the first are not timed
# bfloat16 programs round in different places: 6e-5 and 2e-4 on a CPU. A mask left out made 2e-3 and 6e-3, a doubled learning rate 2e-3 of the losses.
LOSSES_AGREE, NORMS_AGREE = 5e-4, 4e-3


class Failed(Exception):
    pass


def write_rows(path, num_rows, length, vocab):
    source = random.Random(1)
    with open(path, "w") as f:
        for _ in range(num_rows):
            f.write(json.dumps({"input_ids": [source.randrange(vocab) for _ in range(length)]}) + "\n")


def tail(text):
    return text.strip()[-800:]


def train(plait, folder, model, rows, steps, batch, length, dtype, device, lr):
    """One run of plait; `folder` must not exist and is removed."""
    os.makedirs(folder)
    settings = dict(
        task="text-generation", model=dict(path=model, init="pretrained"), dataset=dict(train=dict(file=rows)),
        preprocessor=dict(sequence_length=length),
        train=dict(work_dir=f"{folder}/work", max_steps=steps, shuffle=False, dropout=0, batch_size=batch, dtype=dtype, device=device, clip_grad=1.0,
                   progress_bar=False, export_dtype=dtype, lr_scheduler=dict(type="constant"),
                   optimizer=dict(type="AdamW", params=dict(lr=lr, weight_decay=0.01, decay_all=True))),
        evaluation=dict(period=dict(eval_strategy="no")))
    with open(f"{folder}/settings.json", "w") as f:
        json.dump(settings, f)
    run = subprocess.run([plait, "train", f"{folder}/settings.json"], capture_output=True, text=True)
    if run.returncode != 0:
        raise Failed(f"plait train ({os.path.basename(folder)}) ended with {run.returncode}: {tail(run.stderr)}")
    with open(f"{folder}/work/metrics.jsonl") as f:
        lines = [line for line in map(json.loads, f) if "loss" in line]
    shutil.rmtree(folder)
    return dict(step_seconds=[line["step_seconds"] for line in lines], losses=[line["loss"] for line in lines],
                gradient_norms=[line["grad_norm"] for line in lines])


class TorchSide:
    """PyTorch's process of one side. It stays between its turns, so that it compiles once."""

    def __init__(self, side, size, rows, folder, device, weights=None):
        self.side, self.errors = side, open(f"{folder}/{side}.errors", "w+")
        command = [sys.executable, f"{HERE}/gpt2_torch.py", size, side, rows, str(STEPS), "--device", device]
        self.process = subprocess.Popen(command + (["--weights", weights] if weights else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=dict(os.environ, TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor"))

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            raise Failed(f"gpt2_torch.py ({self.side}) ended with {code}: {tail(self.errors.read())}")
        return json.loads(line)

    def turn(self):
        try:
            print("", file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has ended: answer() says why
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            self.process.kill()
        self.process.communicate()
        self.errors.close()


def parity(args, folder):
    with open(f"{GOLDEN}/config.json") as f:
        shape = json.load(f)
    length, steps, batch = shape["n_positions"], 5, 4
    rows = f"{folder}/parity.jsonl"
    write_rows(rows, steps * batch, length, shape["vocab_size"])
    good = True
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-9)):
        cpu, device = (train(args.plait, f"{folder}/{dtype}-{place}", GOLDEN, rows, steps, batch, length, dtype, d, 1e-3)
                       for place, d in (("cpu", "cpu"), ("device", args.device)))
        worst = max(abs(a - b) / max(1.0, abs(a)) for k in ("losses", "gradient_norms") for a, b in zip(cpu[k], device[k], strict=True))
        fine = worst <= tolerance
        good = good and fine
        print(f"parity {dtype}: largest difference of losses and gradient norms, CPU and {args.device}, {steps} steps: {worst:.1e} "
              f"({'within' if fine else 'ABOVE'} {tolerance:.0e})", flush=True)
    return good


def measure_peak(args):
    size = 8192 if args.device == "cuda" else 256
    run = subprocess.run([sys.executable, f"{HERE}/matrix_rate.py", args.device, str(size)], capture_output=True, text=True)
    if run.returncode != 0:
        raise Failed(f"matrix_rate.py ended with {run.returncode}: {tail(run.stderr)}")
    found = json.loads(run.stdout)
    low, middle, high = (found[k] / 1e12 for k in ("smallest", "median", "largest"))
    print(f"device: {found['device']}, torch {found['torch']}; peak: a bfloat16 product of {size} x {size} matrices reaches {middle:.3g} TFLOP/s "
          f"({low:.3g} to {high:.3g})", flush=True)
    return found["median"]


def take_pairs(args, size, folder, taken):
    """Appends each pair to `taken` once it is complete: what was measured before a failure can still be shown. True when all sides compute the same."""
    shape = SHAPES[size]
    model, rows = f"{folder}/model", f"{folder}/rows.jsonl"
    os.makedirs(model)
    with open(f"{model}/config.json", "w") as f:
        json.dump(config(shape), f)
    write_rows(rows, STEPS * shape["rows"], shape["length"], shape["vocab"])
    same = True
    with TorchSide("eager", size, rows, folder, args.device, f"{model}/model.safetensors") as eager, \
            TorchSide("compiled", size, rows, folder, args.device) as compiled:
        for side in (eager, compiled):
            side.answer()
        for pair in range(args.pairs):
            turns = dict(plait=train(args.plait, f"{folder}/{pair}", model, rows, STEPS, shape["rows"], shape["length"], "bfloat16", args.device, 1e-4),
                         eager=eager.turn(), compiled=compiled.turn())
            taken.append({side: statistics.median(turns[side]["step_seconds"][WARM_UP:]) for side in SIDES})
            print(f"GPT-2 {size}, pair {pair + 1}: " + ", ".join(f"{side} {1e3 * taken[-1][side]:.2f} ms" for side in SIDES), flush=True)
            for side in SIDES[1:] if pair == 0 else ():  # later turns of PyTorch go on from trained weights
                losses, norms = disagreement(turns["plait"], turns[side])
                fine = losses <= LOSSES_AGREE and norms <= NORMS_AGREE
                same = same and fine
                print(f"GPT-2 {size}: losses of plait and {side} {'agree' if fine else 'DISAGREE: one computes something else'}: to {losses:.1e} over "
                      f"{STEPS} steps (at most {LOSSES_AGREE:.0e}), first gradient norms to {norms:.1e} (at most {NORMS_AGREE:.0e})", flush=True)
    return same


def speed(args, folder):
    peak, good = measure_peak(args), True
    for size in args.sizes:
        os.makedirs(f"{folder}/{size}")
        taken = []
        try:
            good = take_pairs(args, size, f"{folder}/{size}", taken) and good
        finally:
            if taken:
                print(f"\n{table(size, taken, peak)}\n", flush=True)
        shutil.rmtree(f"{folder}/{size}")
    return good


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", choices=["parity", "speed"], help="that part alone")
    p.add_argument("--sizes", help="of the speed part: small, medium or both (default small,medium)")
    p.add_argument("--pairs", type=int, default=7, help="turns of each side")
    p.add_argument("--plait", default=f"{HERE}/../../build-gpu/plait")
    p.add_argument("--list", action="store_true", help="say what would be done, with its time limit, and end")
    p.add_argument("--rehearse", action="store_true", help="no device: a tiny model on the CPU on all sides, to try the programs")
    args = p.parse_args()
    if args.rehearse and args.sizes:
        p.error("--rehearse has a size of its own: leave --sizes out")
    args.device = "cpu" if args.rehearse else "cuda"
    args.sizes = ["tiny"] if args.rehearse else (args.sizes or "small,medium").split(",")
    if not args.rehearse and (not set(args.sizes) <= {"small", "medium"} or len(set(args.sizes)) < len(args.sizes)):
        p.error(f"--sizes {','.join(args.sizes)}: small, medium or small,medium")
    if args.pairs < 1:
        p.error("--pairs must be at least 1")
    args.limit = limit_seconds(args.only != "speed", [] if args.only == "parity" else args.sizes, args.pairs)
    return args


def missing(args):
    """What this machine lacks, or nothing."""
    if not args.rehearse and not os.path.exists("/dev/nvidiactl"):
        return "no CUDA device on this machine (/dev/nvidiactl is not there): nothing was checked"
    for module in ("torch", "triton") if args.only != "parity" else ():
        if importlib.util.find_spec(module) is None and not (args.rehearse and module == "triton"):
            return f"{sys.executable} has no {module}; name a python that has with PYTHON="
    return ""


def time_is_up(*_):
    raise Failed("the time limit is over")


def main():
    args = arguments()
    parts = ([] if args.only == "speed" else ["parity"]) + ([] if args.only == "parity" else [f"speed of {s}, {args.pairs} pairs" for s in args.sizes])
    print(f"gpu check: {'; '.join(parts)}; ended after {args.limit} s", flush=True)
    if args.list:
        return 0
    lacks = missing(args)
    if lacks:
        print(f"gpu check: {lacks}", file=sys.stderr)
        return 8
    signal.signal(signal.SIGALRM, time_is_up)
    signal.alarm(args.limit)
    good = True
    try:
        with tempfile.TemporaryDirectory(prefix="plait-gpu-") as folder:
            if args.only != "speed":
                good = parity(args, folder)
            if args.only != "parity":
                good = speed(args, folder) and good
    except Failed as e:
        sys.exit(f"gpu check: {e}")
    if args.rehearse:
        print("rehearsal on the CPU: the programs run; the figures mean nothing")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
