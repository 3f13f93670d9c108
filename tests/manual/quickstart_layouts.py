#!/usr/bin/env python3
"""Losses of the quickstart (MiniLM on wordnet12) against the stored reference run, in many layouts and number formats.

    python3 tests/manual/quickstart_layouts.py losses      first 20 steps of the 150-step run, fp32, eight layouts
    python3 tests/manual/quickstart_layouts.py formats     the whole run at 2x2x2 in fp32, bf16, fp16
    python3 tests/manual/quickstart_layouts.py overflow    fp16, an overflow injected on one rank of each axis in turn

Needs build/plait and setup/fetch.sh minilm wordnet12. Too long for the test suite; its last output lies beside it.
"""
import json, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = json.loads((ROOT / "tests/data/golden/wordnet12/reference.json").read_text())
LAYOUTS = [(1, 1, 1), (2, 2, 2), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 3), (1, 3, 1), (1, 4, 2)]  # data, tensor, pipeline


def train(layout, work_dir, *more, stop_after=None, env=None):
    """Lines of metrics.jsonl. stop_after: ends the run after that many steps; the learning rates stay those of the whole run."""
    data, tensor, pipeline = layout
    command = [str(ROOT / "build/plait"), "train", str(ROOT / "configs/quickstart.yaml"), "--work_dir", work_dir, "--data_parallel_size", str(data),
               "--model_parallel_size", str(tensor), "--pipeline_parallel_size", str(pipeline), *more]
    metrics = pathlib.Path(work_dir) / "metrics.jsonl"
    with open(os.path.join(work_dir, "output.txt"), "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        while stop_after:
            try:
                process.wait(0.3)
                break
            except subprocess.TimeoutExpired:
                if metrics.exists() and len(metrics.read_text().splitlines()) >= stop_after:
                    process.terminate()
                    break
        process.wait(3600)
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def relative(steps, count):
    return [abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(steps[:count], REFERENCE["steps"][:count])]


def losses():
    failed = False
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            steps = train(layout, folder, stop_after=20)
            apart = relative(steps, 20)
            good = len(apart) == 20 and apart[0] <= 1e-4 and max(apart) <= 1e-3
            failed |= not good
            print("data %d x tensor %d x pipeline %d: step 1 apart %.1e, worst of 20 steps %.1e  %s" % (*layout, apart[0], max(apart), "ok" if good else "FAILED"), flush=True)
    return failed


def formats():
    failed = False
    accuracy = {}
    for dtype in ("float32", "bfloat16", "float16"):
        with tempfile.TemporaryDirectory() as folder:
            lines = train((2, 2, 2), folder, "--set", "train.dtype=" + dtype)
        steps = [l for l in lines if "loss" in l]
        accuracy[dtype] = [l for l in lines if "eval_accuracy" in l][-1]["eval_accuracy"]
        windows = [sum(s["loss"] for s in steps[i:i + 20]) / sum(s["loss"] for s in REFERENCE["steps"][i:i + 20]) - 1 for i in range(0, len(steps), 20)]
        worst = max(abs(w) for w in windows)
        good = worst <= 0.02 and abs(accuracy[dtype] - accuracy["float32"]) <= 0.01
        failed |= not good
        print("%s: accuracy %.4f, mean loss of 20 steps at most %.2e from fp32, skipped steps %d  %s" % (
            dtype, accuracy[dtype], worst, sum(s.get("skipped", 0) for s in steps), "ok" if good else "FAILED"), flush=True)
    return failed


def overflow():
    failed = False
    for rank in (0, 1, 2, 4):  # tensor, pipeline and data neighbours of rank 0
        with tempfile.TemporaryDirectory() as folder:
            steps = train((2, 2, 2), folder, "--set", "train.dtype=float16", stop_after=6, env={"PLAIT_FAULT": "overflow:%d:step:3" % rank})
        skipped = [s["step"] for s in steps[:6] if s.get("skipped")]
        scales = [s["loss_scale"] for s in steps[:6]]
        good = skipped == [3] and scales[3] == scales[2] / 2
        failed |= not good
        print("overflow on rank %d in step 3: skipped steps %s, loss scale %s  %s" % (rank, skipped, scales, "ok" if good else "FAILED"), flush=True)
    return failed


if __name__ == "__main__":
    parts = {"losses": losses, "formats": formats, "overflow": overflow}
    wanted = sys.argv[1:] or list(parts)
    sys.exit(any([parts[name]() for name in wanted]))
