"""What of benchmarks/ can run anywhere: its lists, its refusals, its arithmetic. The measurements themselves are no tests."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/benchmarks/compare")
import compare  # noqa: E402
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
        for row in compare.ROWS:
            self.assertEqual(row.w["rows"] % (row.sizes["dp"] * row.micro_batches), 0, row.name)
            self.assertEqual(row.w["kv_heads"] % row.sizes["tp"], 0, row.name)

    def test_without_the_baselines_python_it_says_how_to_get_it(self):
        with tempfile.TemporaryDirectory() as folder:
            refused = run(sys.executable, f"{ROOT}/benchmarks/compare/compare.py", "--python", f"{folder}/python")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("setup_venv.sh", refused.stderr)

    def test_ratio_is_of_pairs_and_above_one_when_plait_is_faster(self):
        row = compare.ROWS[0]
        result = compare.summary(row, [(sample([1.0], [2.0]), sample([1.5], [2.0])), (sample([2.0], [2.0]), sample([2.0], [2.0])),
                                       (sample([1.0], [2.0]), sample([3.0], [2.0]))])
        self.assertEqual((result["ratio"], result["ratio_smallest"], result["ratio_largest"]), (1.5, 1.0, 3.0))
        self.assertEqual(result["plait"]["tokens_per_second"], row.w["rows"] * row.w["length"])

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


class DeviceCheck(unittest.TestCase):
    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a device")
    def test_without_a_device_it_says_so(self):
        refused = run("bash", f"{ROOT}/benchmarks/gpu/check.sh")
        self.assertEqual(refused.returncode, 8, refused.stderr)
        self.assertIn("no CUDA device", refused.stderr)


if __name__ == "__main__":
    unittest.main()
