"""Compressed messages between real processes: the same numbers whatever carries them, fields of the metrics, and a run over two nodes."""
import os
import subprocess
import unittest

import tiny
import two_nodes
from program import PROGRAM, ProgramTest, free_port, write_text


class Compression(ProgramTest):
    def words(self, algorithm, *more, rank=4):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 24)
        return ["--model", tiny.BERT, "--train_file", rows, "--set", "train.max_epochs=1", "--set", "train.batch_size=8",
                "--set", "train.optimizer.params.lr=1e-3", "--set", f"train.comm.compression.algorithm={algorithm}",
                *([] if algorithm == "none" else ["--set", "train.comm.compression.threshold_bytes=0"]),
                *(["--set", f"train.comm.compression.rank={rank}"] if algorithm == "powersgd" else []), *more]

    def numbers(self, steps):
        return [(s["loss"], s["grad_norm"], s.get("bytes_sent")) for s in steps]

    def test_every_backend_gives_the_same_bits(self):
        for algorithm in ("bf16", "fp8", "powersgd", "topk"):
            with self.subTest(algorithm):
                runs = [self.train("2x1x2", f"{algorithm}_{backend}",
                                   *self.words(algorithm, "--set", "train.distributed.bucket_size_bytes=20000", "--set", f"train.comm.backend={backend}"))[0]
                        for backend in ("shm", "gloo")]
                self.assertEqual(self.numbers(runs[0]), self.numbers(runs[1]))
                for step in runs[0]:
                    self.assertGreater(step["bytes_saved"], 0)
                    self.assertGreater(step["bytes_sent"], 0)
                    self.assertTrue(0 < step["compression_error"] < 1)

    def test_compression_that_compresses_nothing_says_so(self):
        # Rank 16, the default: too much for every matrix of the tiny model.
        done = self.ok("train", *self.words("powersgd", "--set", "train.max_steps=2", rank=16),
                       "--data_parallel_size", "2", "--work_dir", self.path("nothing"))
        self.assertIn("warning: train.comm.compression.algorithm powersgd (command line) saved no byte in step 1: ", done.err)
        self.assertIn("step 1: all matrices are too small for rank 16 (command line); lower rank\n", done.err)  # not the threshold, which is 0

    def test_fields_are_there_only_where_something_is_compressed(self):
        plain = self.train("2x1x1", "plain", *self.words("none"))[0]
        self.assertNotIn("bytes_sent", plain[0])
        borders = self.train("1x1x2", "borders", *self.words("none", "--set", "train.comm.compression.pipeline=fp8"))[0]
        self.assertIn("bytes_saved", borders[0])
        self.assertNotIn("compression_error", borders[0])
        compressed = self.train("2x1x1", "fp8", *self.words("fp8"))[0]
        self.assert_close([s["loss"] for s in compressed], [s["loss"] for s in plain], 0.02)

    def test_an_overflow_is_skipped_by_all_and_the_run_goes_on(self):
        steps = self.train("2x1x1", "half", *self.words("fp8", "--set", "train.dtype=float16"), PLAIT_FAULT="overflow:1:step:2")[0]
        self.assertEqual([s["skipped"] for s in steps], [0, 1, 0])
        self.assertIsNone(steps[1]["compression_error"])
        self.assertTrue(0 < steps[2]["compression_error"] < 1)

    def test_two_nodes(self):
        reason = two_nodes.why_not()
        if reason:
            self.skipTest(reason)
        port = free_port()
        secret = write_text(self.path("secret"), "of this test alone")
        os.chmod(secret, 0o600)
        with two_nodes.TwoNodes(self.environment()) as nodes:
            launched = []
            for node in (0, 1):
                words = [PROGRAM, "launch", "--nnodes=2", f"--node_rank={node}", "--nproc_per_node=1", f"--master_addr={two_nodes.ADDRESSES[0]}",
                         f"--master_port={port}", "--secret_file", secret, "--", PROGRAM, "train", *self.words("powersgd"), "--set", "train.distributed.data_parallel_size=2",
                         "--work_dir", self.path("far")]
                launched.append(subprocess.Popen(nodes.command(node, words), env=self.environment(OMP_NUM_THREADS="1"), stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            done = [self.finish(process, 120) for process in launched]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        near = self.train("2x1x1", "near", *self.words("powersgd"), OMP_NUM_THREADS="1")[0]
        self.assertEqual(self.numbers(self.metrics("far")[0]), self.numbers(near))


if __name__ == "__main__":
    unittest.main()
