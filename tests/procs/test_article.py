"""The article's two commands, word for word, under the real torch launcher: 8 ranks on one node, 16 ranks on two. Same losses, bit for bit, as
the native launch in the same layout. Fewer steps and shorter rows than the file says keep it affordable."""
import os
import shlex
import subprocess
import unittest

import two_nodes
from hugging_face_venv import venv_python
from program import ROOT, ProgramTest, free_port, layout_flags

CONFIG = "configs/nlp/sequence_classification_trainer.yaml"
COMMAND = ("python -m torch.distributed.launch {more}--nproc_per_node=8 examples/pytorch/text_generation/run_train.py "
           f"--config {CONFIG} --distributed_strategy hybrid_parallel --data_parallel_size 2 --model_parallel_size 4")


class ArticleTest(ProgramTest):
    def setUp(self):
        super().setUp()
        python = venv_python()
        if not python:
            self.skipTest("no .venv-test here: setup/test_venv.sh makes it (4 GB), or PLAIT_TEST_VENV=1 lets this test do so")
        self.venv = os.path.dirname(python)

    def words(self, work_dir, steps):
        return ["--work_dir", self.path(work_dir), "--set", f"train.max_steps={steps}", "--set", "preprocessor.sequence_length=16",
                "--set", "dataset.train.rows=96", "--set", "dataset.valid.rows=16"]

    def launch(self, command, work_dir, steps, wrap=lambda words: words):
        env = self.environment(OMP_NUM_THREADS="1")
        env["PATH"] = f"{self.venv}:{env['PATH']}"
        return subprocess.Popen(wrap([*shlex.split(command), *self.words(work_dir, steps)]), cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def native(self, layout, steps):
        self.ok("train", CONFIG, *layout_flags(layout), *self.words("native", steps), cwd=ROOT, timeout=400, OMP_NUM_THREADS="1")
        return self.metrics("native")

    def assert_same_bits(self, work_dir, native):
        steps, evaluations = self.metrics(work_dir)
        for name in ("loss", "grad_norm"):
            self.assertEqual([s[name] for s in steps], [s[name] for s in native[0]], name)
        self.assertEqual([e["eval_loss"] for e in evaluations], [e["eval_loss"] for e in native[1]])
        self.assertTrue(os.path.exists(self.path(work_dir, "output", "model.safetensors")))
        self.assertEqual(self.left_behind(), [])

    def test_eight_ranks_on_one_node(self):
        done = self.finish(self.launch(COMMAND.format(more=f"--master_port={free_port()} "), "article", 3), 400)
        self.assertEqual(done.code, 0, done)
        self.assertIn("pipeline_parallel_size 2 (", done.err)
        self.assertIn("replaced by 1: the command line fixes 2 x 4 on 8 ranks", done.err)
        self.assert_same_bits("article", self.native("2x4x1", 3))

    def test_sixteen_ranks_on_two_nodes(self):
        reason = two_nodes.why_not()
        if reason:
            self.skipTest(reason)
        with two_nodes.TwoNodes(self.environment()) as nodes:
            launched = []
            for node in (0, 1):
                more = f"--nnodes=2 --node_rank={node} --master_addr={two_nodes.ADDRESSES[0]} --master_port=29500 "
                launched.append(self.launch(COMMAND.format(more=more), "article", 2, lambda words, node=node: nodes.command(node, words, ROOT)))
            done = [self.finish(process, 600) for process in launched]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        with open(self.path("article", "config.resolved.yaml"), encoding="utf-8") as f:
            self.assertIn("pipeline_parallel_size: 2\n", f.read())
        self.assert_same_bits("article", self.native("2x4x2", 2))


class RunTrainScript(ProgramTest):
    def test_says_how_to_build(self):
        script = self.path("pytorch", "a", "run_train.py")
        os.makedirs(os.path.dirname(script))
        with open(os.path.join(ROOT, "examples", "pytorch", "text_generation", "run_train.py"), encoding="utf-8") as f:
            text = f.read()
        with open(script, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run(["/usr/bin/python3", script, "--config", "x"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("plait is not built", done.stderr)
        self.assertIn("setup/build.sh", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
