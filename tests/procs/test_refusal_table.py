"""Environments, settings, launch flags and meetings that must be refused: the exit code, a piece of the message, within 20 seconds with
--rdzv_timeout 10, and nothing started that should not start: no rank is forked, no work_dir is made, no process is left.

The rows of single processes are in bad_environments.py and bad_configs.py and in LAUNCH below; MEETINGS are several ranks that do not belong together."""
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import unittest

import tiny
from bad_configs import BAD_CONFIGS
from bad_environments import BAD_ENVIRONMENTS
from program import ProgramTest, free_port, read_bytes, read_json, write_text

USAGE, RENDEZVOUS, RESOURCE, AUTH = 2, 5, 8, 12
SLOWEST = 20

# (title, flags behind `plait launch`, exit code, words of the message). PORT is a port that another program listens on.
LAUNCH = [
    ("no ranks", ["--nproc_per_node", "0", "true"], USAGE, ["nproc_per_node 0"]),
    ("ranks in words", ["--nproc_per_node", "many", "true"], USAGE, ["nproc_per_node many", "auto"]),
    ("GPUs that are not there", ["--nproc_per_node", "gpu", "true"], RESOURCE, ["nproc_per_node gpu"]),
    ("nodes the wrong way round", ["--nnodes", "4:2", "true"], USAGE, ["nnodes 4:2"]),
    ("a node beyond the last", ["--nnodes", "2", "--node_rank", "2", "--master_addr", "127.0.0.1", "true"], USAGE, ["node_rank 2"]),
    ("a port out of range", ["--master_port", "70000", "true"], USAGE, ["master_port 70000", "65535"]),
    ("an endpoint without its bracket", ["--rdzv_endpoint", "[::1:29500", "true"], USAGE, ["rdzv_endpoint"]),
    ("an endpoint and another address", ["--rdzv_endpoint", "a:29500", "--master_addr", "b", "true"], USAGE, ["rdzv_endpoint", "master_addr"]),
    ("standalone with nodes", ["--standalone", "--nnodes", "2", "--node_rank", "0", "true"], USAGE, ["standalone"]),
    ("a time-out with a unit", ["--rdzv_timeout", "10s", "true"], USAGE, ["rdzv_timeout 10s"]),
    ("streams that are none", ["--redirects", "7", "--log_dir", "logs", "true"], USAGE, ["redirects 7"]),
    ("streams of a rank that is not there", ["--nproc_per_node", "2", "--tee", "5:3", "true"], USAGE, ["tee 5:3"]),
    ("a restart below none", ["--max_restarts", "-1", "true"], USAGE, ["max_restarts -1"]),
    ("a secret that others can read", ["--nproc_per_node", "2", "--secret_file", "OPEN", "true"], AUTH, ["chmod 600 OPEN"]),
    ("a secret that is not there", ["--nproc_per_node", "2", "--secret_file", "nowhere", "true"], AUTH, ["nowhere"]),
    ("a program that cannot be executed", ["--nproc_per_node", "2", "./OPEN"], USAGE, ["OPEN"]),
    ("a port in use", ["--nproc_per_node", "2", "--master_port", "PORT", "true"], RENDEZVOUS, ["PORT"]),
]

FORK_COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
/* Notes every fork of the program under test in the file $PLAIT_TEST_FORKS. */
pid_t fork(void) {
  const char* path = getenv("PLAIT_TEST_FORKS");
  int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (file >= 0) { if (write(file, "f", 1) < 0) abort(); close(file); }
  return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
}
"""


class RowTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.rows = tiny.bert_rows(self.path("rows.jsonl"), 12)
        # Outside of the folder that must stay empty.
        self.counter = self.path("counter.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.counter, "-ldl"], input=FORK_COUNTER, text=True, check=True, timeout=60)
        self.place = self.path("place")
        os.mkdir(self.place)

    def counted(self, **env):
        return self.environment(LD_PRELOAD=self.counter, PLAIT_TEST_FORKS=self.path("forks"), **env)

    def num_forks(self):
        path = self.path("forks")
        if not os.path.exists(path):
            return 0
        size = os.path.getsize(path)
        os.remove(path)
        return size

    def train(self, *more):
        return ["train", "--model", tiny.BERT, "--train_file", self.rows, "--set", "train.batch_size=6", "--set", "train.max_epochs=1",
                "--work_dir", os.path.join(self.place, "run"), *more]

    def assert_refused(self, done, code, fragments):
        self.assertEqual(done.code, code, done)
        for fragment in fragments:
            self.assertIn(fragment, done.err, done)
        self.assertLess(done.seconds, SLOWEST, done)
        self.assertNotIn("terminate called", done.err)
        self.assertNotIn("bug in plait", done.err)

    def assert_nothing_started(self, left=()):
        self.assertEqual(self.num_forks(), 0, "a rank was started")
        self.assertEqual(sorted(os.listdir(self.place)), sorted(left), "something was written")
        self.assertEqual(self.left_behind(), [])

    def run_row(self, words, code, fragments, left=(), **env):
        self.num_forks()  # those of a row that failed do not count
        done = self.finish(self.start(words, cwd=self.place, env=self.counted(**env)), 60)
        self.assert_refused(done, code, fragments)
        self.assert_nothing_started(left)
        return done


class RefusalTable(RowTest):
    def test_there_are_sixty_rows(self):
        titles = [row[0] for row in BAD_ENVIRONMENTS] + [row.title for row in BAD_CONFIGS] + [row[0] for row in LAUNCH]
        titles += [name for name in dir(Meetings) if name.startswith("test_")]
        self.assertEqual(len(titles), len(set(titles)))
        self.assertGreaterEqual(len(titles), 60)

    def test_ranks_are_counted(self):
        """The counter sees what the rows say does not happen."""
        done = self.finish(self.start(self.train("--data_parallel_size", "2"), env=self.counted()), 120)
        self.assertEqual(done.code, 0, done)
        self.assertGreaterEqual(self.num_forks(), 2)

    def test_environments(self):
        for title, env, code, fragments in BAD_ENVIRONMENTS:
            with self.subTest(title):
                self.run_row(self.train("--rdzv_timeout", "10"), code, fragments, **env)

    def test_configs(self):
        for row in BAD_CONFIGS:
            with self.subTest(row.title):
                words, left, env = ["train", *row.flags], [], {}
                if row.text is not None:
                    write_text(os.path.join(self.place, row.name), row.text)
                    words.insert(1, row.name)
                    left = [row.name]
                if row.world_size:
                    env = dict(RANK="0", WORLD_SIZE=str(row.world_size), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
                self.run_row(words, row.code, [row.message], left, **env)
                for name in left:
                    os.remove(os.path.join(self.place, name))

    @unittest.skipIf(any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvmap"))), "this machine may have a CUDA device")
    def test_devices_that_are_not_there(self):
        """By the first process, once, not by each rank."""
        nccl, data = ["--set", "train.comm.backend=nccl"], ["--model", tiny.BERT, "--data", self.rows]
        backend = ["plait: train.comm.backend nccl (command line) needs a CUDA device: ", "; nearest valid value auto"]
        device = ["plait: train.device cuda (command line): ", "; nearest valid value cpu"]
        launched = dict(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        for title, words, code, fragments, env in (
                ("NCCL", self.train("--data_parallel_size", "2", *nccl), RESOURCE, backend, {}),
                ("NCCL, one rank", self.train(*nccl), RESOURCE, backend, {}),
                ("NCCL, a launcher's rank", self.train("--rdzv_timeout", "10", *nccl), RESOURCE, backend, launched),
                ("NCCL, eval", ["eval", *data, "--data_parallel_size", "2", *nccl], RESOURCE, backend, {}),
                ("cuda", self.train("--data_parallel_size", "2", "--device", "cuda"), RESOURCE, device, {}),
                ("cuda with NCCL", self.train("--data_parallel_size", "2", "--device", "cuda", *nccl), RESOURCE,
                 [*device, "with train.comm.backend auto instead of nccl (command line)"], {}),
                ("cuda, predict", ["predict", *data, "--data_parallel_size", "2", "--device", "cuda", "--output", "o"], RESOURCE, device, {}),
                ("NCCL on the CPU", self.train("--data_parallel_size", "2", "--device", "cpu", *nccl), USAGE,
                 ["train.comm.backend nccl (command line) does not carry tensors of device cpu (command line); nearest valid value auto"], {})):
            with self.subTest(title):
                done = self.run_row(words, code, fragments, **env)
                self.assertEqual(len(done.err.splitlines()), 1, done)

    def test_launch_flags(self):
        secret = write_text(os.path.join(self.place, "OPEN"), "a-secret-that-everybody-reads-0123456789\n")
        os.chmod(secret, 0o644)
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = str(busy.getsockname()[1])
            for title, words, code, fragments in LAUNCH:
                with self.subTest(title):
                    words = [word.replace("PORT", port) for word in words]
                    self.run_row(["launch", "--rdzv_timeout", "10", *words] if "--rdzv_timeout" not in words else ["launch", *words],
                                 code, [fragment.replace("PORT", port) for fragment in fragments], left=["OPEN"])


class Meetings(RowTest):
    """Ranks that do not belong together, started at once with --rdzv_timeout 10."""

    def start_rank(self, rank, world=2, port=None, flags=(), **env):
        variables = dict(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port or self.port))
        variables.update(env)
        layout = ["--data_parallel_size", str(world)]
        return self.start(self.train(*layout, "--rdzv_timeout", "10", *flags), env=self.environment(**variables))

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def end(self, *processes):
        """All of them, at the same time; each within the time of a row."""
        begin = time.monotonic()
        return [self.finish(process, 60, begin) for process in processes]

    def assert_one_says(self, done, code, *fragments):
        text = "\n".join(map(str, done))
        for each in done:
            self.assertNotEqual(each.code, 0, text)
            self.assertLess(each.seconds, SLOWEST, text)
            self.assertNotIn("bug in plait", each.err)
        self.assertTrue(any(each.code == code and all(fragment in each.err for fragment in fragments) for each in done), text)
        self.assertFalse(os.path.exists(os.path.join(self.place, "run", "metrics.jsonl")), "a step was made")
        self.assertEqual(self.left_behind(), [])

    def secret(self, name, text):
        path = write_text(self.path(name), text + "\n")
        os.chmod(path, 0o600)
        return path

    def test_a_rank_that_does_not_come(self):
        self.assert_one_says(self.end(self.start_rank(0, 3), self.start_rank(1, 3)), RENDEZVOUS, "rank 2")

    def test_rank_0_does_not_come(self):
        self.assert_one_says(self.end(self.start_rank(1)), RENDEZVOUS, f":{self.port}")

    def test_the_same_rank_twice(self):
        self.assert_one_says(self.end(self.start_rank(0, 3), self.start_rank(1, 3), self.start_rank(1, 3)), RENDEZVOUS, "rank 1")

    def test_two_of_rank_0(self):
        first = self.start_rank(0)
        time.sleep(2)
        self.assert_one_says(self.end(self.start_rank(0), first), RENDEZVOUS, str(self.port))

    def test_another_world_size(self):
        self.assert_one_says(self.end(self.start_rank(0, 2), self.start_rank(1, 3)), RENDEZVOUS, "WORLD_SIZE) is 2 at rank 0", "3 at rank 1")

    def test_another_job(self):
        self.assert_one_says(self.end(self.start_rank(0, PLAIT_JOB_ID="morning"), self.start_rank(1, PLAIT_JOB_ID="evening")), RENDEZVOUS, "morning", "evening")

    def test_other_settings(self):
        self.assert_one_says(self.end(self.start_rank(0), self.start_rank(1, flags=["--set", "train.seed=7"])), RENDEZVOUS, "train.seed", "7")

    def test_other_contents(self):
        """The same names, another copy: of rows, settings of the model, weights."""
        other = lambda name, seed: tiny.bert_rows(self.path(name), 12, seed=seed)
        config = shutil.copytree(tiny.BERT, self.path("config"))
        text = read_json(os.path.join(config, "config.json"))
        write_text(os.path.join(config, "config.json"), json.dumps({**text, "layer_norm_eps": 1e-3}))
        weights = shutil.copytree(tiny.BERT, self.path("weights"))
        path = os.path.join(weights, "model.safetensors")
        whole = bytearray(read_bytes(path))
        whole[-3] ^= 1
        with open(path, "wb") as f:
            f.write(whole)
        valid = ["--valid_file", self.rows]
        for name, mine, theirs in (("dataset.train.file", self.rows, other("train.jsonl", 7)), ("dataset.valid.file", self.rows, other("valid.jsonl", 8)),
                                   ("model.path/config.json", tiny.BERT, config), ("model.path/*.safetensors", tiny.BERT, weights)):
            with self.subTest(name):
                self.port = free_port()
                flag = {"dataset.train.file": "--train_file", "dataset.valid.file": "--valid_file"}.get(name, "--model")
                ranks = []
                for rank, value in enumerate((mine, theirs)):
                    words = [*self.train("--data_parallel_size", "2", "--rdzv_timeout", "10"), *valid]
                    words[words.index(flag) + 1] = value
                    ranks.append(self.start(words, env=self.environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                                                                        MASTER_PORT=str(self.port))))
                done = self.end(*ranks)
                self.assert_one_says(done, RENDEZVOUS, f"the inputs differ: {name} has other contents at rank 1 (host ", theirs, "than at rank 0 (host ", mine)
                self.assertEqual([d.code for d in done], [RENDEZVOUS] * 2, "\n".join(map(str, done)))

    def test_other_rows_of_an_evaluation(self):
        data = [self.rows, tiny.bert_rows(self.path("other.jsonl"), 12, seed=7)]
        for command in ("eval", "predict"):
            with self.subTest(command):
                port = str(free_port())
                more = ["--output", self.path("out")] if command == "predict" else []
                ranks = [self.start([command, "--model", tiny.BERT, "--data", data[rank], "--data_parallel_size", "2", "--rdzv_timeout", "10", *more],
                                    env=self.environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                                                         MASTER_PORT=port)) for rank in range(2)]
                self.assert_one_says(self.end(*ranks), RENDEZVOUS, "the inputs differ: dataset.valid.file has other contents at rank 1")

    def test_another_secret(self):
        a, b = self.secret("a", "one-secret-of-this-job-0123456789abcdef"), self.secret("b", "another-secret-0123456789abcdefghijkl")
        self.assert_one_says(self.end(self.start_rank(0, PLAIT_SECRET_FILE=a), self.start_rank(1, PLAIT_SECRET_FILE=b)), AUTH, "secret")

    def test_one_without_a_secret(self):
        a = self.secret("a", "one-secret-of-this-job-0123456789abcdef")
        self.assert_one_says(self.end(self.start_rank(0, PLAIT_SECRET_FILE=a), self.start_rank(1)), AUTH, "secret")

    def test_a_port_of_another_program(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", self.port))
            busy.listen()
            self.assert_one_says(self.end(self.start_rank(0), self.start_rank(1)), RENDEZVOUS, str(self.port))

    def test_a_server_that_says_nothing_or_something_else(self):
        def answer(listener):
            with listener:
                try:
                    while True:
                        peer, _ = listener.accept()
                        with peer:
                            peer.recv(1000)
                            peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                except OSError:
                    pass  # closed at the end of the test

        listener = socket.socket()
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            self.assert_one_says(self.end(self.start_rank(1)), RENDEZVOUS, str(self.port))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)

    def test_an_address_of_another_machine(self):
        self.assert_one_says(self.end(self.start_rank(0, MASTER_ADDR="192.0.2.77")), RENDEZVOUS, "192.0.2.77")

    def test_a_name_that_does_not_resolve(self):
        self.assert_one_says(self.end(self.start_rank(1, MASTER_ADDR="no-such-host.invalid")), RENDEZVOUS, "no-such-host.invalid")


if __name__ == "__main__":
    unittest.main()
