"""Runs build/plait for the tests of this folder: real processes, each with a time limit, in a temporary folder of the test's own.

Whatever a test starts carries a mark in its environment; left_behind() finds marked processes by it, and only those are ever killed.
The path of the program comes in PLAIT_PROGRAM (CMake sets it; default: build/plait of this checkout).
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("PLAIT_PROGRAM", os.path.join(ROOT, "build", "plait"))
GOLDEN = os.path.join(ROOT, "tests", "data", "golden")
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                      "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK", "NODE_RANK", "KUBERNETES_SERVICE_HOST")
LAUNCHER_PREFIXES = ("PLAIT_", "SLURM_", "OMPI_", "PMIX_", "PMI_", "MPI_", "PET_", "HYDRA_")
SIZES = ("data_parallel_size", "model_parallel_size", "pipeline_parallel_size")


class Finished:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def last_line(self):
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-5000:]}"


def layout_flags(layout):
    """"2x1x3" (data x tensor x pipeline) -> flags."""
    return [word for name, size in zip(SIZES, layout.split("x")) for word in (f"--{name}", size)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="plait-test-")
        self.mark = uuid.uuid4().hex
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for pid in self.left_behind():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def left_behind(self):
        """Process ids that carry this test's mark."""
        mark = f"PLAIT_TEST_MARK={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                pass  # ended meanwhile, or not ours
        return found

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES and not k.startswith(LAUNCHER_PREFIXES)}
        env.update(PLAIT_TEST_MARK=self.mark, **more)
        return env

    def start(self, words, cwd=None, env=None, **options):
        return subprocess.Popen([PROGRAM, *words], cwd=cwd or self.folder, env=env or self.environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)

    def finish(self, process, timeout, begin=None):
        begin = begin or time.monotonic()
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in self.left_behind():
                os.kill(pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"still running after {timeout} s\n--- stdout\n{out[-3000:]}\n--- stderr\n{err[-5000:]}")
        return Finished(process.returncode, out, err, time.monotonic() - begin)

    def run_plait(self, *words, timeout=180, cwd=None, **env):
        return self.finish(self.start([str(w) for w in words], cwd=cwd, env=self.environment(**env)), timeout)

    def ok(self, *words, **options):
        done = self.run_plait(*words, **options)
        self.assertEqual(done.code, 0, f"plait {' '.join(map(str, words))}\n{done}")
        return done

    def train(self, layout, work_dir, *words, **options):
        """Trains and returns (step lines, evaluation lines) of metrics.jsonl."""
        self.ok("train", *words, *layout_flags(layout), "--work_dir", self.path(work_dir), **options)
        return self.metrics(work_dir)

    def metrics(self, work_dir):
        lines = read_jsonl(self.path(work_dir, "metrics.jsonl"))
        return [x for x in lines if "loss" in x], [x for x in lines if "eval_loss" in x]

    def wait_for_steps(self, process, work_dir="run", count=1, timeout=120):
        """Until metrics.jsonl of the run holds `count` lines."""
        path, end = self.path(work_dir, "metrics.jsonl"), time.monotonic() + timeout
        while True:
            ended = process.poll()  # before the look: a run may write its last line and end between the two
            if os.path.exists(path) and read_bytes(path).count(b"\n") >= count:
                return
            self.assertIsNone(ended, f"the run ended with {ended} before step {count}")
            self.assertLess(time.monotonic(), end, "no step was made")
            time.sleep(0.02)

    def assert_close(self, found, expected, tolerance, what=""):
        self.assertEqual(len(found), len(expected), what)
        for i, (a, b) in enumerate(zip(found, expected)):
            if not abs(a - b) <= tolerance * max(1.0, abs(b)):
                self.fail(f"{what}: number {i} is {a} instead of {b} (all: {found[:40]} instead of {expected[:40]})")

    def assert_same_losses(self, found, expected, tolerance=1e-5, what=""):
        for name in ("loss", "grad_norm"):
            self.assert_close([x[name] for x in found], [x[name] for x in expected], tolerance, f"{what} {name}")


def read_jsonl(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path
