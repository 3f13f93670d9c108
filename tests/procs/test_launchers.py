"""Ranks started by others: by hand with torchrun's variables, as Kubeflow's pods, and by torchrun itself when .venv-test is there
(setup/test_venv.sh)."""
import os
import subprocess
import time
import unittest

import tiny
import two_nodes
from program import PROGRAM, ROOT, ProgramTest, free_port, layout_flags
from hugging_face_venv import venv_python


class LauncherTest(ProgramTest):
    def words(self, work_dir, layout):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 20)
        return ["train", "--model", tiny.BERT, "--train_file", rows, "--valid_file", rows, "--set", "train.batch_size=8", "--set", "train.max_epochs=1",
                "--work_dir", self.path(work_dir), *layout_flags(layout)]

    def reference(self, layout):
        self.ok(*self.words("own", layout))
        return self.metrics("own")

    def assert_same_run(self, work_dir, reference):
        steps, evaluations = self.metrics(work_dir)
        self.assert_same_losses(steps, reference[0], 1e-6, work_dir)
        self.assert_close([evaluations[0]["eval_loss"]], [reference[1][0]["eval_loss"]], 1e-6)
        self.assertTrue(os.path.exists(self.path(work_dir, "output", "model.safetensors")))
        self.assertEqual(self.left_behind(), [])


class ByHand(LauncherTest):
    def start_ranks(self, world, words, **more):
        port = str(free_port())
        return [self.start(words, env=self.environment(RANK=str(r), WORLD_SIZE=str(world), LOCAL_RANK=str(r), MASTER_ADDR="127.0.0.1",
                                                       MASTER_PORT=port, **more)) for r in range(world)]

    def test_four_ranks_give_the_same_run(self):
        reference = self.reference("1x2x2")
        ranks = self.start_ranks(4, self.words("by_hand", "1x2x2"))
        done = [self.finish(rank, 180) for rank in ranks]
        self.assertEqual([d.code for d in done], [0, 0, 0, 0], "\n".join(map(str, done)))
        self.assertEqual([d.out for d in done[1:]], ["", "", ""], "only rank 0 speaks")
        self.assert_same_run("by_hand", reference)

    def test_a_folder_in_use_ends_all_ranks(self):
        """Nobody ends the other ranks for rank 0: they learn from it why it cannot begin."""
        holder = self.start(self.words("held", "1x1x1") + ["--set", "train.max_steps=1000000"])
        self.wait_for_steps(holder, "held")
        begin = time.monotonic()
        done = [self.finish(rank, 60) for rank in self.start_ranks(4, self.words("held", "2x2x1"))]
        self.assertEqual([d.code for d in done], [11] * 4, "\n".join(map(str, done)))
        self.assertLess(time.monotonic() - begin, 30)
        for d in done[1:]:
            self.assertIn("rank 0 ended before the ranks met", d.err)
            self.assertIn("held", d.err)
        holder.kill()
        self.finish(holder, 30)

    def test_local_rank_flag_of_the_old_launcher(self):
        port = str(free_port())
        ranks = []
        for r in range(2):
            flag = f"--local-rank={r}" if r else f"--local_rank={r}"
            ranks.append(self.start([self.words("by_hand", "2x1x1")[0], flag, *self.words("by_hand", "2x1x1")[1:]],
                                    env=self.environment(RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)))
        done = [self.finish(rank, 180) for rank in ranks]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))

    def test_a_size_left_out_follows_from_the_world(self):
        words = self.words("by_hand", "1x2x1")
        at = words.index("--data_parallel_size")
        ranks = self.start_ranks(4, words[:at] + words[at + 2:])
        done = [self.finish(rank, 180) for rank in ranks]
        self.assertEqual([d.code for d in done], [0] * 4, "\n".join(map(str, done)))
        with open(self.path("by_hand", "config.resolved.yaml"), encoding="utf-8") as f:
            self.assertIn("data_parallel_size: 2\n", f.read())

    def test_one_rank_that_dies_ends_the_others(self):
        ranks = self.start_ranks(4, self.words("by_hand", "2x1x2"), PLAIT_FAULT="kill:3:step:2")
        done = [self.finish(rank, 60) for rank in ranks]
        self.assertEqual(done[3].code, -9)
        for rank in done[:3]:
            self.assertEqual(rank.code, 6, rank)
        self.assertEqual(self.left_behind(), [])

    def test_a_world_of_one(self):
        done = self.run_plait(*self.words("one", "1x1x1"), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        self.assertEqual(done.code, 0, done)


class Kubeflow(LauncherTest):
    """PyTorchJob (v1): RANK is the pod's, no LOCAL_RANK; the first pod is told that the master is localhost."""

    def pod(self, rank, address):
        return self.environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT="23456", KUBERNETES_SERVICE_HOST="10.0.0.1",
                                OMP_NUM_THREADS="1")

    def test_two_pods_are_two_ranks(self):
        reason = two_nodes.why_not()
        if reason:
            self.skipTest(reason)
        self.ok(*self.words("own", "1x2x1"), OMP_NUM_THREADS="1")
        with two_nodes.TwoNodes(self.environment()) as nodes:
            pods = []
            for rank, address in enumerate(("localhost", "node0")):
                words = nodes.command(rank, [PROGRAM, *self.words("pods", "1x2x1")], self.folder)
                pods.append(subprocess.Popen(words, env=self.pod(rank, address), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            first = self.finish(pods[0], 180)
            if first.code != 0:
                pods[1].kill()
            done = [first, self.finish(pods[1], 180)]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        self.assertIn("taken as one rank on each of 2 nodes", done[0].err)
        self.assert_same_run("pods", self.metrics("own"))

    def test_more_ranks_than_pods(self):
        done = self.finish(self.start(self.words("wrong", "2x2x2"), env=self.pod(1, "job-master-0")), 60)
        self.assertEqual(done.code, 2, done)
        self.assertIn("plait launch --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT --nproc_per_node=4 ", done.err)

    def test_a_layout_that_fits_no_number_of_pods(self):
        done = self.finish(self.start(self.words("wrong", "1x3x1"), env=self.pod(1, "job-master-0")), 60)
        self.assertEqual(done.code, 2, done)
        self.assertIn("nearest number that does: 4", done.err)


class PlaitLaunch(LauncherTest):
    def test_the_script_of_the_torch_launcher(self):
        """`plait launch` in the place of `python -m torch.distributed.launch`: the same script, the same flags."""
        reference = self.reference("2x1x2")
        script = os.path.join(ROOT, "examples", "pytorch", "text_generation", "run_train.py")
        self.ok("launch", "--nproc_per_node=4", script, *self.words("script", "2x1x2")[1:])
        self.assert_same_run("script", reference)


class Torchrun(LauncherTest):
    def setUp(self):
        super().setUp()
        python = venv_python()
        if not python:
            self.skipTest("no .venv-test here: setup/test_venv.sh makes it (4 GB), or PLAIT_TEST_VENV=1 lets this test do so")
        self.python = python

    def launch(self, words):
        process = subprocess.Popen([self.python, *words], cwd=self.folder, env=self.environment(OMP_NUM_THREADS="1"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self.finish(process, 300)

    def test_torchrun_and_its_old_name(self):
        reference = self.reference("2x1x2")
        torchrun = os.path.join(os.path.dirname(self.python), "torchrun")
        # A Python script that becomes the program, started by the oldest launcher, which adds --local-rank=N before the words.
        script = self.path("run_train.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(f"import os, sys\nos.execv({PROGRAM!r}, [{PROGRAM!r}, 'train', *[w for w in sys.argv[1:] if w != 'train']])\n")
        for name, launcher, program in (("torchrun", [torchrun], ["--no-python", PROGRAM]),
                                        ("module", ["-m", "torch.distributed.run"], ["--no-python", PROGRAM]),
                                        ("launch", ["-W", "ignore", "-m", "torch.distributed.launch"], [script])):
            with self.subTest(name):
                *option, program = program
                done = self.launch([*launcher, *option, "--nproc_per_node=4", f"--master_port={free_port()}", program, *self.words(name, "2x1x2")])
                self.assertEqual(done.code, 0, done)
                self.assert_same_run(name, reference)

    def test_a_stale_copy_of_the_rows(self):
        """Over the launcher's store too, ranks compare what their files hold."""
        script = self.path("stale.sh")
        other = tiny.bert_rows(self.path("other.jsonl"), 20, seed=9)
        with open(script, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nif [ "$RANK" = 1 ]; then cp {other} rows1.jsonl; else cp rows.jsonl rows0.jsonl; fi\nexec "$@" --train_file rows$RANK.jsonl\n')
        os.chmod(script, 0o755)
        words = self.words("stale", "2x1x1")
        at = words.index("--train_file")
        done = self.launch(["-m", "torch.distributed.run", "--no-python", "--nproc_per_node=2", f"--master_port={free_port()}", script, PROGRAM, *words[:at],
                            *words[at + 2:]])
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("the inputs differ: dataset.train.file has other contents at rank 1", done.err)
        self.assertFalse(os.path.exists(self.path("stale", "metrics.jsonl")), "a step was made")

    def test_a_restart_meets_again_on_the_launchers_store(self):
        """The first attempt's keys are still in the launcher's store when its second attempt begins."""
        script = self.path("once.sh")
        with open(script, "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\nif [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then export PLAIT_FAULT=throw:1:step:2; fi\nexec "$@"\n')
        os.chmod(script, 0o755)
        done = self.launch(["-m", "torch.distributed.run", "--no-python", "--nproc_per_node=2", "--max_restarts=1", f"--master_port={free_port()}", script,
                            PROGRAM, *self.words("again", "2x1x1")])
        self.assertEqual(done.code, 0, done)
        self.assertIn("PLAIT_FAULT asked for it", done.err)
        steps, evaluations = self.metrics("again")
        self.assertEqual([s["step"] for s in steps], [1, 1, 2, 3])
        self.assertEqual(len(evaluations), 1)


if __name__ == "__main__":
    unittest.main()
