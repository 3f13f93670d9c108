"""benchmarks/gpu without a device and without torch: its count of operations and that it is plait's, its table, its refusals, and its course with
stand-ins for plait and PyTorch."""
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/benchmarks/gpu")
import check  # noqa: E402
import figures  # noqa: E402
from program import ProgramTest  # noqa: E402


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Figures(unittest.TestCase):
    def test_operations_of_a_step_counted_by_hand(self):
        # Two rows of 3 tokens, hidden 4. A layer: query, key, value, out 4 x 4 each, the feed-forward 4 x 16 and 16 x 4: 192 weights. The head: 10 x 4.
        # Pairs of tokens: 3 * 4 / 2 in each row and layer.
        shape = dict(layers=5, hidden=4, heads=2, vocab=10, length=3, rows=2)
        self.assertEqual(figures.step_flops(shape), 6 * (2 * 3 * 5 * 192 + 2 * 2 * 40) + 12 * 4 * (2 * 5 * 6))

    def test_operations_of_gpt2(self):
        # small: 84,934,656 weights in 12 layers for 8192 tokens, 38,597,376 in the head for 8184, 50,380,800 pairs of tokens.
        self.assertEqual(figures.step_flops(figures.SHAPES["small"]), 6 * (84934656 * 8192 + 38597376 * 8184) + 12 * 768 * 50380800)
        # medium: 301,989,888 weights in 24 layers, 51,463,168 in the head, 100,761,600 pairs.
        self.assertEqual(figures.step_flops(figures.SHAPES["medium"]), 6 * (301989888 * 8192 + 51463168 * 8184) + 12 * 1024 * 100761600)

    def test_table_has_rates_of_the_medians_and_ratios_of_the_pairs(self):
        taken = [dict(plait=0.010, eager=0.020, compiled=0.010), dict(plait=0.020, eager=0.020, compiled=0.030),
                 dict(plait=0.020, eager=0.060, compiled=0.016)]
        flops = figures.step_flops(figures.SHAPES["small"])
        lines = figures.table("small", taken, 2 * flops / 0.020).splitlines()
        self.assertEqual(len(lines), 2 + 3 + 2)
        self.assertEqual({line.count("|") for line in lines[:5]}, {8})
        rate = flops / 0.020 / 1e12
        self.assertEqual(lines[2], f"| GPT-2 small | plait | 20.00 | 409600 | {rate:.1f} | 50.0 % |  |")
        self.assertRegex(lines[3], r"\| PyTorch \| 20.00 \| 409600 \| .* \| 50.0 % \| \*\*1.00\*\* \(1.00, 3.00; 1.00, 3.00\) \|$")
        self.assertRegex(lines[4], r"\| PyTorch, torch.compile \| 16.00 \| 512000 \| .* \| 62.5 % \| \*\*0.80\*\* \(.*; 0.80, 1.50\) \|$")
        self.assertIn("Pairs: 3; 8192 tokens", lines[6])

    def test_disagreement_is_of_all_losses_and_the_first_norm(self):
        one = dict(losses=[10.0, 10.0], gradient_norms=[2.0, 2.0])
        losses, norms = figures.disagreement(one, dict(losses=[10.0, 9.0], gradient_norms=[2.5, 9.0]))
        self.assertAlmostEqual(losses, 0.1)
        self.assertAlmostEqual(norms, 0.25)
        self.assertEqual(figures.disagreement(one, dict(losses=[10.0, float("nan")], gradient_norms=[2.0]))[0], float("inf"))
        with self.assertRaises(ValueError):
            figures.disagreement(one, dict(losses=[10.0], gradient_norms=[2.0]))

    def test_config_has_the_shape(self):
        medium = figures.config(figures.SHAPES["medium"])
        self.assertEqual([medium[k] for k in ("model_type", "n_layer", "n_embd", "n_head", "n_inner", "vocab_size", "n_positions")],
                         ["gpt2", 24, 1024, 16, 4096, 50257, 1024])


class SameCount(ProgramTest):
    def test_plait_counts_the_same_operations(self):
        shape = dict(layers=2, hidden=32, heads=2, vocab=64, length=128, rows=4)  # head and attention: 7 % and 23 % of it
        os.makedirs(self.path("model"))
        with open(self.path("model", "config.json"), "w") as f:
            json.dump(figures.config(shape), f)
        check.write_rows(self.path("rows.jsonl"), shape["rows"], shape["length"], shape["vocab"])
        settings = ["train.batch_size=4", "train.max_steps=2", "train.profile.mfu=true", "model.init=random"]
        done = self.ok("train", "--task", "text-generation", "--model", self.path("model"), "--train_file", self.path("rows.jsonl"), "--work_dir",
                       self.path("run"), *[word for setting in settings for word in ("--set", setting)])
        peak = 1e9 * float(re.search(r"alone reach ([0-9.]+) here", done.err).group(1))  # a tenth of a GFLOP/s is its last digit
        steps, _ = self.metrics("run")
        for step in steps:
            self.assertAlmostEqual(step["mfu"] * step["step_seconds"] * peak / figures.step_flops(shape), 1, delta=0.02)


class Refusals(unittest.TestCase):
    def test_wrong_options(self):
        for words in (["--sizes", "large"], ["--sizes", "small,small"], ["--sizes", "tiny"], ["--pairs", "0"], ["--only", "loss"],
                      ["--rehearse", "--sizes", "small"]):
            refused = run(sys.executable, f"{ROOT}/benchmarks/gpu/check.py", *words)
            self.assertEqual(refused.returncode, 2, words)
            self.assertIn(words[0], refused.stderr)

    def test_parts_and_their_limits_are_listed(self):
        listed = lambda *words: run(sys.executable, f"{ROOT}/benchmarks/gpu/check.py", "--list", *words).stdout
        self.assertEqual(listed(), "gpu check: parity; speed of small, 7 pairs; speed of medium, 7 pairs; ended after 586 s\n")
        self.assertEqual(listed("--only", "parity"), "gpu check: parity; ended after 90 s\n")
        self.assertEqual(listed("--only", "speed", "--sizes", "small", "--pairs", "3"), "gpu check: speed of small, 3 pairs; ended after 176 s\n")

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a device")
    def test_without_a_device_it_says_so(self):
        for command in (["bash", f"{ROOT}/benchmarks/gpu/check.sh"], [sys.executable, f"{ROOT}/benchmarks/gpu/check.py", "--only", "speed"]):
            refused = run(*command)
            self.assertEqual(refused.returncode, 8, refused.stderr)
            self.assertIn("no CUDA device", refused.stderr)


# Stand-ins of plait (loss LOSS at each step), gpt2_torch.py and matrix_rate.py. Of 30 steps the first 10 and the last 9 are slow: medians that count the
# warm-up come out slow.
PLAIT = """#!{python}
import json, os, sys
train = json.load(open(sys.argv[2]))["train"]
os.makedirs(train["work_dir"])
with open(train["work_dir"] + "/metrics.jsonl", "w") as f:
    for step in range(train["max_steps"]):
        print(json.dumps(dict(loss=LOSS, grad_norm=2.0, step_seconds=0.01 if 10 <= step < 21 else 0.02)), file=f)
"""
TORCH = """
import json, sys
side, steps = sys.argv[2], int(sys.argv[4])
print(json.dumps("ready"), flush=True)
for turn, _ in enumerate(sys.stdin):
    if side == "FAILS" and turn == 1: sys.exit("no more memory")
    seconds = dict(eager=0.03, compiled=0.02)[side] * (1 + turn)
    times = [1.0] * 10 + [seconds] * 11 + [1.0] * 9
    print(json.dumps(dict(step_seconds=times, losses=[5.0 - turn] * steps, gradient_norms=[2.0] * steps)), flush=True)
"""
RATE = "print('{\"device\": \"Example\", \"torch\": \"2.11\", \"median\": 2e9, \"smallest\": 1e9, \"largest\": 3e9}')"


class Course(unittest.TestCase):
    def check(self, *words, loss="5.0", fails="neither", missing=""):
        """Exit code and output of check.py with the stand-ins."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("plait", PLAIT.replace("{python}", sys.executable).replace("LOSS", loss)),
                               ("gpt2_torch.py", TORCH.replace("FAILS", fails)), ("matrix_rate.py", RATE)):
                with open(f"{folder}/{name}", "w") as f:
                    f.write(text)
            os.chmod(f"{folder}/plait", 0o755)
            out = io.StringIO()
            self.addCleanup(signal.alarm, 0)
            with mock.patch.object(check, "HERE", folder), mock.patch.object(check, "missing", lambda _: missing), \
                    mock.patch.object(sys, "argv", ["check.py", "--rehearse", "--plait", f"{folder}/plait", *words]), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    code = check.main()
                except SystemExit as e:
                    code = 1
                    print(e, file=out)
            return code, out.getvalue()

    def test_all_parts(self):
        code, out = self.check("--pairs", "3")
        self.assertEqual(code, 0, out)
        self.assertEqual(out.count("(within"), 2, out)
        self.assertIn("device: Example, torch 2.11", out)
        self.assertEqual(out.count(", pair "), 3)
        self.assertIn("| GPT-2 tiny | plait | 10.00 |", out)
        self.assertIn("| GPT-2 tiny | PyTorch | 60.00 |", out)
        self.assertIn("**6.00** (3.00, 9.00; 3.00, 9.00)", out)

    def test_one_part(self):
        code, out = self.check("--only", "parity")
        self.assertEqual((code, "pair 1" in out), (0, False), out)
        code, out = self.check("--only", "speed", "--pairs", "1")
        self.assertEqual((code, "parity" in out), (0, False), out)

    def test_sides_that_compute_something_else_are_seen(self):
        code, out = self.check("--only", "speed", "--pairs", "1", loss="5.01")
        self.assertEqual(code, 1, out)
        self.assertEqual(out.count("DISAGREE"), 2, out)
        code, out = self.check("--only", "speed", "--pairs", "1", loss="float('nan')")
        self.assertEqual(code, 1, out)

    def test_a_side_that_fails_is_named_and_its_last_words_quoted(self):
        code, out = self.check("--only", "speed", "--pairs", "3", fails="compiled")
        self.assertEqual(code, 1, out)
        self.assertIn("gpt2_torch.py (compiled) ended with 1: no more memory", out)
        self.assertIn("Pairs: 1;", out, "what was measured before is shown")

    def test_time_limit(self):
        with mock.patch.object(check, "limit_seconds", lambda *_: 1), mock.patch.object(check, "measure_peak", lambda _: signal.pause()):
            code, out = self.check("--only", "speed")
        self.assertEqual(code, 1, out)
        self.assertIn("the time limit is over", out)

    def test_a_part_that_is_missing(self):
        code, out = self.check(missing="no such part")
        self.assertEqual(code, 8)
        self.assertIn("gpu check: no such part", out)


if __name__ == "__main__":
    unittest.main()
