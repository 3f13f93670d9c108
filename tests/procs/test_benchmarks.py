"""What of benchmarks/ can run anywhere: its lists, its refusals, its arithmetic. The measurements themselves are no tests."""
import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/benchmarks/compare")
sys.path.insert(0, f"{ROOT}/benchmarks/collectives")
sys.path.insert(0, f"{ROOT}/benchmarks/bubble")
import bounds  # noqa: E402
import bubble  # noqa: E402
import compare  # noqa: E402
import collectives  # noqa: E402
import rows  # noqa: E402
import workloads  # noqa: E402
from measure import Memory, Sample  # noqa: E402


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def sample(step_seconds, losses):
    memory = Memory()
    memory.look([os.getpid()])
    return Sample(step_seconds, losses, 1.0, memory, 0.0)


class Compare(unittest.TestCase):
    def test_rows_are_listed_once_and_fit_their_layout(self):
        listed = run(sys.executable, f"{ROOT}/benchmarks/compare/compare.py", "--list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        names = listed.stdout.split()
        self.assertEqual(len(names), len(set(names)))
        for row in rows.ROWS:
            self.assertEqual(row.w["rows"] % (row.sizes["dp"] * row.micro_batches), 0, row.name)
            self.assertEqual(row.w["kv_heads"] % row.sizes["tp"], 0, row.name)

    def test_without_the_baselines_python_it_says_how_to_get_it(self):
        with tempfile.TemporaryDirectory() as folder:
            refused = run(sys.executable, f"{ROOT}/benchmarks/compare/compare.py", "--python", f"{folder}/python")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("setup_venv.sh", refused.stderr)

    def test_the_subset_is_twelve_rows_of_the_table(self):
        self.assertEqual(len(rows.ROWS), 4 * 2 * 8)
        self.assertEqual(len(set(rows.SUBSET)), 12)
        self.assertLessEqual(set(rows.SUBSET), {r.name for r in rows.ROWS})
        listed = run(sys.executable, f"{ROOT}/benchmarks/compare/compare.py", "--list", "--subset")
        self.assertEqual(set(listed.stdout.split()), set(rows.SUBSET))
        for row in rows.ROWS:
            self.assertTrue(row.peers(), row.name)

    def test_bars_are_those_of_the_kind_of_row(self):
        bar = {r.name: rows.bar_of(r) for r in rows.ROWS}
        self.assertEqual([bar[n] for n in ("W2-fp32-tp4", "W1-fp32-tp2", "W2-fp32-dp2-tp2-pp2", "W1-fp32-dp2-tp2-pp2", "W4-bf16-dp1", "W3-fp32-dp2")],
                         [1.6, 1.35, 4.0, 1.5, 1.8, 1.0])

    def test_ratio_is_of_medians_and_above_one_when_plait_is_faster(self):
        row = rows.ROWS[0]
        pairs = [(sample([1.0], [2.0]), sample([1.5], [2.0])), (sample([2.0], [2.0]), sample([2.0], [2.0])), (sample([1.0], [2.0]), sample([3.0], [2.0]))]
        result = compare.summary(row, dict(pairs=pairs, one_process=[], best="single", qualifying=dict(single=2.0), not_run={}, mfu=0.5))
        self.assertEqual((result["ratio"], result["lower"], result["upper"]), (2.0, 1.0, 3.0))
        self.assertEqual(result["plait"]["tokens_per_second"], row.w["rows"] * row.w["length"])

    def test_bounds_hold_the_ratio_and_narrow_with_pairs(self):
        noise = [0.97, 1.02, 1.0, 0.99, 1.05, 1.01, 0.98]
        few = [(1.0, 2.0 * x) for x in noise[:3]]
        many = [(1.0, 2.0 * x) for x in noise * 4]
        for pairs in (few, many):
            middle, lower, upper = bounds.ratio_bounds(pairs)
            self.assertTrue(lower <= middle <= upper, (lower, middle, upper))
        width = lambda pairs: bounds.ratio_bounds(pairs)[2] - bounds.ratio_bounds(pairs)[1]
        self.assertLess(width(many), width(few))
        self.assertEqual(bounds.ratio_bounds([(1.0, 3.0)]), (3.0, 3.0, 3.0))
        mean, lower, upper = bounds.mean_bounds([[(1.0, 4.0)], [(2.0, 2.0)]])
        self.assertAlmostEqual(mean, 2.0)
        self.assertTrue(lower <= mean + 1e-9 and upper >= mean - 1e-9)

    def test_a_bar_is_missed_only_when_the_upper_bound_is_below_it(self):
        self.assertEqual(bounds.verdict(1.61, 1.6), "pass")
        self.assertEqual(bounds.verdict(1.59, 1.6), "MISSED")

    def test_losses_that_disagree_are_seen(self):
        self.assertLess(compare.loss_difference([8.0, 7.0], [8.0, 7.0001]), compare.LOSS_TOLERANCE["fp32"])
        self.assertGreater(compare.loss_difference([8.0, 7.0], [8.0, 7.1]), compare.LOSS_TOLERANCE["fp32"])
        self.assertGreater(compare.loss_difference([8.0, float("nan")], [8.0, 8.0]), compare.LOSS_TOLERANCE["fp32"])
        with self.assertRaises(ValueError):
            compare.loss_difference([8.0], [8.0, 7.0])

    def test_workloads_have_the_weights_they_name(self):
        count = {name: sum(a * (shape + (1,))[1] for shape in workloads.tensor_shapes(w).values() for a in shape[:1])
                 for name, w in workloads.WORKLOADS.items()}
        self.assertEqual(count["W2"], 2048 * 128 + 128 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128)
        self.assertEqual(count["W4"], 2 * 8192 * 1024 + 4 * (3 * 1024 * 1024 + 3 * 1024 * 2816 + 2 * 1024) + 1024)


class Compression(unittest.TestCase):
    def setUp(self):
        path = f"{ROOT}/benchmarks/compression/compression.py"
        spec = importlib.util.spec_from_file_location("plait_compression", path)  # a package of Python's own has the file's name
        self.compression = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.compression)

    def table(self, times, accuracies):
        out = io.StringIO()
        last = {way: {"bytes_sent": 1e6, "compression_error": 0.1} for way in times if way != "none"} | {"none": {}}
        with contextlib.redirect_stdout(out):
            self.compression.print_table(list(times), times, last, accuracies, "100mbit", 3)
        return [line for line in out.getvalue().splitlines() if line.startswith("| ")]

    def test_ratios_are_of_rounds_and_bars_are_judged(self):
        found = self.table({"none": [4.0, 6.0, 8.0], "bf16": [2.0, 3.0, 8.0], "fp8": [2.0, 3.0, 4.0]}, {"none": 0.82, "bf16": 0.815, "fp8": 0.80})
        self.assertEqual(len(found), 4)
        self.assertIn("| fp8 | 3.000 | 2.00 (2.00 to 2.00) | 3.0 MISSED | 1.00 | 0.1 | 0.8000 | MISSED |", found)
        bf16 = next(line for line in found if line.startswith("| bf16 "))
        self.assertRegex(bf16, r"^\| bf16 \| 3.000 \| 2.00 \(1.00 to 2.00\) \| 1.7 met \| 1.00 \| 0.1 \| 0.8150 \| met \|$")

    def test_refusals(self):
        script = f"{ROOT}/benchmarks/compression/compression.py"
        refused = run(sys.executable, script, "--ways", "bf16,none")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("begins with none", refused.stderr)
        refused = run(sys.executable, script, "--plait", "/nowhere/plait")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("setup/build.sh", refused.stderr)


class Bubble(unittest.TestCase):
    def events(self):
        """1F1B of two ranks and two micro-batches: F 1 s, B 2 s, messages 0.5 s; as a trace has it, in microseconds."""
        rows = {0: "0F0:0:1 0SF0:1:1 0F1:1:2 0SF1:2:2 0RB0:2:5 0B0:5:7 0RB1:7:8 0B1:8:10",
                1: "1RF0:0:1.5 1F0:1.5:2.5 1B0:2.5:4.5 1SB0:4.5:4.5 1RF1:4.5:4.5 1F1:4.5:5.5 1B1:5.5:7.5 1SB1:7.5:7.5"}
        events = []
        for rank, row in rows.items():
            events.append(dict(ph="X", name="step 5", pid=0, tid=rank, ts=0, dur=11e6))
            for word in row.split():
                name, begin, end = word.split(":")
                events.append(dict(ph="X", name=name, pid=0, tid=rank, ts=1e6 * float(begin), dur=1e6 * (float(end) - float(begin))))
        return events

    def test_idle_share_costs_and_travel_of_a_trace(self):
        (step,) = bubble.actions_by_step(self.events())
        self.assertAlmostEqual(bubble.idle_share(step), 1 - 12 / 20)
        costs, travel = bubble.costs_of([step])
        self.assertEqual(costs, {"F": [1, 1], "B": [2, 2], "W": [0, 0]})
        self.assertAlmostEqual(travel, 0.5)
        self.assertEqual(len(bubble.travel_seconds(step)), 3, "1RF1 was there after its message")

    def test_refusals(self):
        refused = run(sys.executable, f"{ROOT}/benchmarks/bubble/bubble.py", "--steps", "3", "--warm_up", "3")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--warm_up", refused.stderr)


class Collectives(unittest.TestCase):
    def test_sizes_and_their_refusal(self):
        self.assertEqual([collectives.size_bytes(t) for t in ("4K", "256k", "64M", "512")], [4096, 262144, 64 << 20, 512])
        self.assertEqual([collectives.size_text(n) for n in (4096, 64 << 20, 768)], ["4 KiB", "64 MiB", "768 B"])
        for words in (["--sizes", "5"], ["--sizes", "4X"], ["--backends", "shm,smoke"], ["--operations", "gather"], ["--ranks", "1"]):
            refused = run(sys.executable, f"{ROOT}/benchmarks/collectives/collectives.py", "--no-build", *words)
            self.assertEqual(refused.returncode, 2, words)
            self.assertIn(words[0], refused.stderr)

    def test_ratios_are_of_medians_and_say_what_is_missing(self):
        times = dict(gloo=[10.0, 30.0, 20.0], shm=[4.0, 2.0, 3.0], mpi=[5.0, 5.0, 5.0])
        self.assertEqual(collectives.row(4, "barrier", "-", times, ["gloo", "shm", "nccl", "mpi"]),
                         [4, "barrier", "-", 3, "20.0 (10.0)", "3.0 (2.0)", "-", "5.0 (5.0)", "6.67", "-", "1.67", "4.00", "-"])

    def test_without_devices_or_mpi_it_says_so(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertIn("setup/test_launchers.sh", collectives.why_not("openmpi", 2, empty))
        self.assertIn("devices", collectives.why_not("nccl", 1000, ROOT).replace("device here", "devices"))
        self.assertEqual(collectives.why_not("shm", 8, ROOT), "")


if __name__ == "__main__":
    unittest.main()
