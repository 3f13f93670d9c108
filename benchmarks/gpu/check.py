"""Parity and speed of the device check; called by check.sh. Standard library only (gpt2_torch.py is run as a program)."""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "data", "golden", "models", "gpt2")
GPT2_SMALL = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12,
                  n_inner=3072, activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5,
                  initializer_range=0.02, tie_word_embeddings=True)


def write_rows(path, num_rows, length, vocab):
    source = random.Random(1)
    with open(path, "w") as f:
        for _ in range(num_rows):
            f.write(json.dumps({"input_ids": [source.randrange(vocab) for _ in range(length)]}) + "\n")


def train(plait, folder, name, model, init, rows, steps, batch, length, dtype, device, lr):
    settings = dict(
        task="text-generation", model=dict(path=model, init=init), dataset=dict(train=dict(file=rows)), preprocessor=dict(sequence_length=length),
        train=dict(work_dir=f"{folder}/{name}", max_steps=steps, shuffle=False, dropout=0, batch_size=batch, dtype=dtype, device=device,
                   progress_bar=False, lr_scheduler=dict(type="constant"),
                   optimizer=dict(type="AdamW", params=dict(lr=lr, weight_decay=0.01, decay_all=True))),
        evaluation=dict(period=dict(eval_strategy="no")))
    path = f"{folder}/{name}.json"
    with open(path, "w") as f:
        json.dump(settings, f)
    run = subprocess.run([plait, "train", path], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"gpu check: plait train ({name}) ended with {run.returncode}: {run.stderr.strip()[-800:]}")
    lines = [json.loads(line) for line in open(f"{folder}/{name}/metrics.jsonl")]
    return [line for line in lines if "loss" in line]


def parity(plait, folder):
    shape = json.load(open(f"{GOLDEN}/config.json"))
    length, steps, batch = shape["n_positions"], 5, 4
    rows = f"{folder}/parity.jsonl"
    write_rows(rows, steps * batch, length, shape["vocab_size"])
    good = True
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-9)):
        cpu, cuda = (train(plait, folder, f"{dtype}-{d}", GOLDEN, "pretrained", rows, steps, batch, length, dtype, d, 1e-3) for d in ("cpu", "cuda"))
        worst = max(abs(a[k] - b[k]) / max(1.0, abs(a[k])) for a, b in zip(cpu, cuda, strict=True) for k in ("loss", "grad_norm"))
        fine = worst <= tolerance
        good = good and fine
        print(f"parity {dtype}: largest difference of losses and gradient norms, CPU and CUDA, {steps} steps: {worst:.1e} "
              f"({'within' if fine else 'ABOVE'} {tolerance:.0e})", flush=True)
    return good


def speed(plait, folder):
    steps, warmup, batch, length = 16, 6, 8, 1024
    model, rows = f"{folder}/gpt2-small", f"{folder}/speed.jsonl"
    os.makedirs(model)
    with open(f"{model}/config.json", "w") as f:
        json.dump(GPT2_SMALL, f)
    write_rows(rows, steps * batch, length, GPT2_SMALL["vocab_size"])
    ratios, rates, good = [], [], True
    for pair in range(3):
        ours = train(plait, folder, f"speed-{pair}", model, "random", rows, steps, batch, length, "bfloat16", "cuda", 1e-4)
        run = subprocess.run([sys.executable, f"{HERE}/gpt2_torch.py", rows, str(steps)], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"gpu check: gpt2_torch.py ended with {run.returncode}: {run.stderr.strip()[-800:]}")
        theirs = json.loads(run.stdout.strip().splitlines()[-1])
        # Other random weights, so the losses agree only roughly; a wrong model would be far away.
        expected = math.log(GPT2_SMALL["vocab_size"])
        good = good and all(abs(loss - expected) < 0.5 for loss in (ours[0]["loss"], theirs["losses"][0]))
        a = statistics.median(line["step_seconds"] for line in ours[warmup:])
        b = statistics.median(theirs["step_seconds"][warmup:])
        ratios.append(b / a)
        rates.append((batch * length / a, batch * length / b))
    rate = [statistics.median(r[i] for r in rates) for i in range(2)]
    print(f"speed GPT-2 small bfloat16: plait {rate[0]:.0f} tokens/s, PyTorch {rate[1]:.0f} tokens/s, ratio {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}, 3 pairs)", flush=True)
    if not good:
        print("speed: a first loss is not near log(vocabulary): one side computes something else")
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--plait", required=True)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-gpu-") as folder:
        good = parity(args.plait, folder)
        good = speed(args.plait, folder) and good
    return 0 if good else 1


sys.exit(main())
