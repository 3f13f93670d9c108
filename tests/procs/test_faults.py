"""Ranks that fail, launchers that are interrupted or killed: every run ends soon, with the first cause last, and leaves nothing behind."""
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

import tiny
from program import PROGRAM, ProgramTest, layout_flags, read_bytes

SOON = 10  # seconds from the fault to the end of the launcher (invariant HANG)
PEER_LOST, HANG = 6, 7
ENDLESS = 1000000


class FaultTest(ProgramTest):
    def words(self, layout, *more, work_dir="run", steps=4):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 16)
        return ["train", "--model", tiny.BERT, "--train_file", rows, "--set", "train.batch_size=8", "--set", f"train.max_steps={steps}",
                "--work_dir", self.path(work_dir), *layout_flags(layout), *more]

    def assert_nothing_left(self, within=SOON):
        end = time.monotonic() + within
        while self.left_behind():
            self.assertLess(time.monotonic(), end, f"processes left behind: {self.left_behind()}")
            time.sleep(0.05)


class RanksThatFail(FaultTest):
    """2x2x2: rank 3 is data 0, pipeline 1, tensor 1."""

    def fails(self, action, place, code):
        fault = f"{action}:3:{place}" + (":3" if place == "step" else "")
        process = self.start(self.words("2x2x2"), env=self.environment(PLAIT_FAULT=fault))
        # The fault's moment is seen from outside: a killed rank is gone, one that throws writes its error line.
        if place == "step":
            self.wait_for_steps(process, count=1)  # rank 0 may still be writing the line of step 2 when rank 3 dies in step 3
        begin = time.monotonic()
        done = self.finish(process, 120, begin)
        self.assertEqual(done.code, code, done)
        if place == "step":
            self.assertLess(done.seconds, SOON, done)
        self.assertIn("rank 3 (", done.last_line, done)
        self.assertIn("dp 0, pp 1, tp 1", done.last_line, done)
        self.assertIn("failed first", done.last_line, done)
        # The block before it: where the rank was, though a killed one could not say so.
        block = done.err[done.err.index("ROOT CAUSE\n"):]
        self.assertIn("  rank     rank 3 (dp 0, pp 1, tp 1) on ", block)
        phase = {"start": "loading", "step": "training, step 3", "export": "export, step 4"}[place]
        self.assertIn(f"  phase    {phase}\n", block)
        self.assertRegex(block, r"\nconsequences: .*rank")
        if action == "throw":
            self.assertIn("PLAIT_FAULT", done.last_line, done)
            self.assertIn(place, done.last_line, done)
        else:
            self.assertIn("signal 9", done.last_line, done)
        self.assert_nothing_left(1)
        self.assertFalse(os.path.exists(self.path("run", "output")))
        return done

    def test_killed_at_start(self):
        self.fails("kill", "start", PEER_LOST)

    def test_killed_in_step_3(self):
        self.fails("kill", "step", PEER_LOST)
        self.assertIn([m["step"] for m in self.metrics("run")[0]], [[1], [1, 2]])

    def test_killed_while_exporting(self):
        self.fails("kill", "export", PEER_LOST)

    def test_throws_at_start(self):
        self.fails("throw", "start", 1)

    def test_throws_in_step_3(self):
        self.fails("throw", "step", 1)

    def test_throws_while_exporting(self):
        self.fails("throw", "export", 1)

    def test_earlier_output_survives_a_failed_export(self):
        self.ok(*self.words("2x1x1"))
        before = {f: read_bytes(self.path("run", "output", f)) for f in sorted(os.listdir(self.path("run", "output")))}
        for fault in ("kill:1:export", "throw:0:export"):
            done = self.run_plait(*self.words("2x1x1", "--lr", "1e-2"), PLAIT_FAULT=fault)
            self.assertIn(done.code, (1, PEER_LOST), done)
            self.assertEqual({f: read_bytes(self.path("run", "output", f)) for f in sorted(os.listdir(self.path("run", "output")))}, before)
        self.ok(*self.words("2x1x1", "--lr", "1e-2"))
        self.assertNotEqual(read_bytes(self.path("run", "output", "model.safetensors")), before["model.safetensors"])
        self.assertEqual([n for n in os.listdir(self.path("run")) if ".tmp" in n], [])

    def test_a_fault_that_is_not_understood(self):
        for fault in ("kill", "kill:x:step:1", "sing:0:start", "kill:0:lunch"):
            done = self.run_plait(*self.words("1x1x1"), PLAIT_FAULT=fault)
            self.assertEqual(done.code, 2, done)
            self.assertIn("PLAIT_FAULT=" + fault, done.err)


class Signals(FaultTest):
    """A signal to a run that trains: all ranks stop after the same step, what they wrote is whole."""

    def interrupted(self, number, code, layout="2x1x2", *more):
        process = self.start(self.words(layout, *more, steps=ENDLESS))
        self.wait_for_steps(process, count=3)
        begin = time.monotonic()
        process.send_signal(number)
        done = self.finish(process, 60, begin)
        self.assertEqual(done.code, code, done)
        self.assertLess(done.seconds, SOON, done)
        self.assertNotIn("ROOT CAUSE", done.err)
        found = re.search(rf"stopped after step (\d+) of {ENDLESS} by signal {int(number)} \(.*\); (.*)", done.err)
        self.assertTrue(found, done)
        steps, _ = self.metrics("run")
        self.assertEqual([x["step"] for x in steps], list(range(1, int(found[1]) + 1)), "metrics are complete up to the step that is named")
        self.assertFalse(os.path.exists(self.path("run", "output")))
        self.assert_nothing_left(1)
        return done, found[2]

    def test_interrupt(self):
        done, weights = self.interrupted(signal.SIGINT, 130)
        self.assertEqual(weights, "no weights were written")
        self.assertIn("signal 2", done.last_line)

    def test_terminate(self):
        done, _ = self.interrupted(signal.SIGTERM, 143)
        self.assertIn("signal 15", done.last_line)

    def test_the_last_weights_are_named(self):
        rows = tiny.bert_rows(self.path("valid.jsonl"), 8)
        _, weights = self.interrupted(signal.SIGTERM, 143, "1x1x2", "--valid_file", rows, "--set", "evaluation.strategy=steps", "--set", "evaluation.interval=2")
        self.assertEqual(weights, "the last weights written are in " + self.path("run", "output_best"))
        self.assertTrue(os.path.exists(self.path("run", "output_best", "model.safetensors")))

    def test_one_process_alone(self):
        self.interrupted(signal.SIGINT, 130, "1x1x1")
        shutil.rmtree(self.path("run"))
        self.interrupted(signal.SIGTERM, 143, "1x1x1")

    def test_a_signal_to_one_rank_stops_all(self):
        process = self.start(self.words("2x1x2", steps=ENDLESS))
        self.wait_for_steps(process)
        os.kill(max(self.left_behind()), signal.SIGTERM)
        done = self.finish(process, 60)
        self.assertEqual(done.code, 143, done)
        self.assertIn("stopped after step", done.err)
        self.assertNotIn("ROOT CAUSE", done.err)

    def test_a_second_signal_ends_at_once(self):
        process = self.start(self.words("2x1x2", steps=ENDLESS))
        self.wait_for_steps(process)
        os.kill(max(self.left_behind()), signal.SIGSTOP)  # this rank never comes to its step's end
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "the other ranks are given their time")
        process.send_signal(signal.SIGINT)
        done = self.finish(process, 60)
        self.assertEqual(done.code, 130, done)
        self.assertIn("waiting up to 60 s for the ranks to finish their step (a second Ctrl-C ends them now)\n", done.err)
        self.assertIn("had not ended at the second signal: ", done.err)
        self.assertLess(done.seconds, SOON, done)
        self.assert_nothing_left(1)

    def test_a_rank_that_does_not_stop_is_killed_after_the_grace(self):
        process = self.start(self.words("2x1x2", "--stop_grace", "1", steps=ENDLESS))
        self.wait_for_steps(process)
        os.kill(max(self.left_behind()), signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        done = self.finish(process, 60)
        self.assertEqual(done.code, 143, done)
        self.assertLess(done.seconds, SOON, done)
        self.assertIn("stopping: waiting up to 1 s for the ranks to finish their step (a second signal ends them now)\n", done.err)
        self.assertRegex(done.err, r"killed, as (it|they) did not end within \d+ s: .*rank 3 \(dp 1, pp 1, tp 0\) in training, step \d+")
        self.assert_nothing_left(1)

    def test_killed_launcher_leaves_no_orphan(self):
        process = self.start(self.words("2x1x2", steps=ENDLESS))
        self.wait_for_steps(process)
        self.assertEqual(len(self.left_behind()), 5)
        process.kill()
        self.assert_nothing_left()
        process.communicate()

    def test_a_killed_rank_of_a_running_job(self):
        process = self.start(self.words("2x1x2", steps=ENDLESS))
        self.wait_for_steps(process)
        victim = max(self.left_behind())
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        done = self.finish(process, 60, begin)
        self.assertEqual(done.code, PEER_LOST, done)
        self.assertLess(done.seconds, SOON, done)
        self.assertIn("signal 9", done.last_line, done)
        self.assert_nothing_left(1)


class RanksThatHang(FaultTest):
    def test_a_stopped_rank_is_a_hang_and_is_ended(self):
        process = self.start(self.words("2x1x2", "--set", "train.comm_timeout_seconds=4", steps=ENDLESS))
        self.wait_for_steps(process)
        begin = time.monotonic()
        os.kill(max(self.left_behind()), signal.SIGSTOP)
        done = self.finish(process, 60, begin)
        self.assertEqual(done.code, HANG, done)
        self.assertLess(done.seconds, 4 + SOON, done)
        self.assertIn("failed first, with exit code 7", done.last_line, done)
        self.assertIn("group", done.last_line, done)
        self.assert_nothing_left(1)


class Overflow(FaultTest):
    def test_one_rank_of_each_axis_makes_all_skip_the_same_step(self):
        reference = None
        # 2x2x2: rank = (data, pipeline, tensor) in binary digits; each rank differs from rank 0 along one axis.
        for rank, axis in ((0, "none"), (4, "data"), (2, "pipeline"), (1, "tensor")):
            work_dir = f"run_{axis}"
            self.ok(*self.words("2x2x2", "--set", "train.dtype=float16", work_dir=work_dir), PLAIT_FAULT=f"overflow:{rank}:step:2")
            steps, _ = self.metrics(work_dir)
            self.assertEqual([s["skipped"] for s in steps], [0, 1, 0, 0], axis)
            self.assertEqual([s["loss_scale"] for s in steps], [65536, 65536, 32768, 32768], axis)
            # A skipped step moves nothing: the learning rate's clock neither.
            self.assertEqual(steps[1]["learning_rate"], steps[2]["learning_rate"], axis)
            reference = reference or steps
            self.assert_close([s["loss"] for s in steps], [s["loss"] for s in reference], 1e-6, axis)

    def test_overflow_without_a_loss_scale_ends_the_run(self):
        done = self.run_plait(*self.words("2x1x1"), PLAIT_FAULT="overflow:1:step:2")
        self.assertEqual(done.code, 9, done)
        self.assertIn("step 2", done.last_line)
        self.assertFalse(os.path.exists(self.path("run", "output")))


class Limits(FaultTest):
    """What a shell or a service manager takes away from the process."""

    def limited(self, words, prefix, suffix=""):
        return subprocess.run(["sh", "-c", f'ulimit -c 0; {prefix} "$@" {suffix}', "sh", PROGRAM, *words], env=self.environment(), cwd=self.folder,
                              capture_output=True, text=True, timeout=120)

    def test_closed_descriptors(self):
        done = self.limited(self.words("2x1x2"), "", ">&- 2>&- <&-")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertIn(b"training 4 steps", read_bytes(self.path("run", "logs", "rank_0.log")))
        self.assertEqual(len(self.metrics("run")[0]), 4)
        done = self.limited(["launch", "--nproc_per_node=2", "--log_dir", self.path("logs"), "--", "sh", "-c", "echo to out; echo to err >&2"], "", ">&- 2>&- <&-")
        self.assertEqual(done.returncode, 0)
        for rank in range(2):
            self.assertEqual(sorted(read_bytes(self.path("logs", f"rank_{rank}.log")).split(b"\n")), [b"", b"to err", b"to out"])

    def test_no_memory_for_the_libraries(self):
        done = self.limited(["--version"], "ulimit -v 400000;")
        if done.returncode == 127:
            self.skipTest("this torch is too large for the dynamic linker already")
        if done.returncode == 0 or "Sanitizer" in done.stderr:
            self.skipTest("this torch needs less, or the sanitizer more")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertTrue(done.stderr.startswith("plait: out of memory"), done.stderr)

    def test_little_memory_is_an_answer_in_time(self):
        for kib in (430000, 440000, 450000):
            done = self.limited(self.words("1x1x1"), f"ulimit -v {kib};")
            if "libgomp: Thread creation failed" not in done.stderr and "Sanitizer" not in done.stderr:  # they end the process themselves
                self.assertIn(done.returncode, (0, 8, 127), done.stderr)

    def test_few_descriptors(self):
        done = self.limited(self.words("2x1x2"), "ulimit -n 20;")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn("Too many open files (ulimit -n is 20); the launcher needs about 4 for each rank", done.stderr.splitlines()[-1])

    def test_file_size_limit(self):
        done = self.limited(self.words("2x1x1"), "ulimit -f 20;")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertNotIn("signal 25", done.stderr)
        # The limit is that of other programs, too, with the signal that they know.
        done = self.limited(["launch", "--", "sh", "-c", "exec head -c 100000 /dev/zero > big"], "ulimit -f 20;")
        self.assertLess(os.path.getsize(self.path("big")), 100000)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("File size limit exceeded", done.stderr)

    def test_deleted_current_folder(self):
        done = self.limited(["--version"], "mkdir gone; cd gone; rmdir ../gone;")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the current folder does not exist any more", done.stderr)
        self.assertNotIn("FATAL", done.stderr)


class Crowd(FaultTest):
    def test_absurdly_many_ranks_are_refused_before_any_is_started(self):
        done = self.run_plait(*[w.replace("train.batch_size=8", "train.batch_size=1000") for w in self.words("1000x1x1")])
        self.assertEqual(done.code, 8, done)
        self.assertIn("data_parallel_size 1000", done.err)
        self.assertIn("plait launch --nproc_per_node 1000", done.err)
        self.assertFalse(os.path.exists(self.path("run")))


class TwoJobs(FaultTest):
    def test_two_jobs_at_once_both_run(self):
        jobs = [self.start(self.words("2x1x1", work_dir=f"job{i}")) for i in range(2)]
        for job in jobs:
            done = self.finish(job, 180)
            self.assertEqual(done.code, 0, done)
        self.assert_same_losses(self.metrics("job0")[0], self.metrics("job1")[0], 0)


if __name__ == "__main__":
    unittest.main()
