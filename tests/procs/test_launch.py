"""plait launch: torchrun's flags, restarts, logs, several nodes on one machine, orphans, and the same numbers as plait train alone."""
import os
import re
import signal
import time
import unittest

import tiny
from program import PROGRAM, ProgramTest, free_port, layout_flags, read_bytes, write_text

SOON = 10
ENDLESS = 1000000


class LaunchTest(ProgramTest):
    def words(self, layout, *more, work_dir="run", steps=4):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 16)
        return ["plait", "train", "--model", tiny.BERT, "--train_file", rows, "--set", "train.batch_size=8", "--set", f"train.max_steps={steps}",
                "--work_dir", self.path(work_dir), *layout_flags(layout), *more]

    def script(self, name, text):
        path = write_text(self.path(name), "#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def assert_nothing_left(self, within=SOON):
        end = time.monotonic() + within
        while self.left_behind():
            self.assertLess(time.monotonic(), end, f"processes left behind: {self.left_behind()}")
            time.sleep(0.05)

    def refused(self, code, *words, **env):
        done = self.run_plait("launch", *words, timeout=20, **env)
        self.assertEqual(done.code, code, done)
        return done.err


class OneNode(LaunchTest):
    def test_the_same_numbers_as_without_it(self):
        self.ok(*self.words("2x1x2", work_dir="alone")[1:])
        done = self.ok("launch", "--nproc-per-node=4", *self.words("2x1x2", work_dir="launched"))
        self.assertEqual(self.metrics("launched")[0][-1]["step"], 4)
        self.assert_same_losses(self.metrics("launched")[0], self.metrics("alone")[0], 0)
        for name in ("model.safetensors", "config.json"):
            self.assertEqual(read_bytes(self.path("launched", "output", name)), read_bytes(self.path("alone", "output", name)))
        self.assertEqual(done.err.count("training 4 steps"), 1, "rank 0 only")
        self.assert_nothing_left(1)

    def test_a_world_of_one_and_a_layout_that_follows_from_the_world(self):
        self.ok("launch", "--", *self.words("1x1x1", work_dir="one"))
        self.ok("launch", "--nproc_per_node", "2", "--standalone", *self.words("1x1x1", work_dir="two")[:-6])
        self.assertIn(b"data_parallel_size: 2\n", read_bytes(self.path("two", "config.resolved.yaml")))

    def test_what_a_rank_finds_in_its_environment(self):
        out = self.script("show.sh", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $PLAIT_LAUNCHER $PLAIT_JOB_ID '
                                     '$PLAIT_RESTART_COUNT $PLAIT_RDZV_TIMEOUT"; env | grep -c "^PLAIT_[A-Z_]*FD="; cat /proc/self/fd/$PLAIT_SECRET_FD >"$1.$RANK"\n')
        done = self.ok("launch", "--nproc_per_node=2", "--job_id", "j7", "--rdzv_timeout=9", "--tee", "3", out, self.path("secret"), OMP_NUM_THREADS="3")
        self.assertRegex(done.out, r"(?m)^0 0 2 2 0 127.0.0.1 plait j7 0 9$")
        self.assertRegex(done.out, r"(?m)^4$")
        self.assertRegex(done.out, r"(?m)^\[\S+ 1\] 1 1 2 2 0 127.0.0.1 plait j7 0 9$")
        self.assertRegex(done.out, r"(?m)^\[\S+ 1\] 3$")
        secrets = [read_bytes(self.path(f"secret.{r}")) for r in range(2)]
        self.assertEqual(secrets[0], secrets[1])
        self.assertGreaterEqual(len(secrets[0]), 32)

    def test_output_is_rank_zeros_and_the_rest_is_in_the_logs(self):
        out = self.script("talk.sh", 'echo "out $RANK"; echo "err $RANK" >&2; [ $RANK = 0 ] || echo "warning: old $RANK" >&2\n')
        done = self.ok("launch", "--nproc_per_node=3", "--log_dir", "logs/deep", out)
        self.assertEqual(done.out, "out 0\n")
        self.assertEqual(len(done.err.splitlines()), 3, done)
        self.assertIn("err 0\n", done.err)
        for rank in (1, 2):
            self.assertRegex(done.err, rf"(?m)^\[\S+ {rank}\] warning: old {rank}$")
            self.assertEqual(sorted(read_bytes(self.path("logs", "deep", f"rank_{rank}.log")).decode().splitlines()),
                             [f"err {rank}", f"out {rank}", f"warning: old {rank}"])
        done = self.ok("launch", "--nproc_per_node=3", out)
        self.assertEqual(done.err.count("writes lines that are not shown"), 1, done)
        done = self.ok("launch", "--nproc_per_node=3", "--log_dir", "logs", "--redirects", "0:1", "--tee", "2:1", out)
        self.assertRegex(done.out, r"\A\[\S+ 2\] out 2\n\Z")
        self.assertEqual(read_bytes(self.path("logs", "rank_0.log")), b"out 0\nerr 0\n")

    def test_restarts(self):
        once = self.script("once.sh", 'if [ "$PLAIT_RESTART_COUNT" = 0 ]; then export PLAIT_FAULT=throw:1:step:2; fi\nexec "$@"\n')
        program = [once, PROGRAM, *self.words("2x1x1")[1:]]
        done = self.ok("launch", "--nproc_per_node=2", "--max_restarts=1", *program)
        self.assertIn("restart 1 of 1: all 2 ranks start anew", done.err)
        self.assertIn("ROOT CAUSE", done.err)
        self.assertEqual([x["step"] for x in self.metrics("run")[0]], [1, 1, 2, 3, 4])
        done = self.run_plait("launch", "--nproc_per_node=2", "--max_restarts=2", *self.words("2x1x1", work_dir="again"), PLAIT_FAULT="throw:1:step:1")
        self.assertEqual(done.code, 10, done)
        self.assertIn("all 2 restarts are used up", done.err)
        self.assertIn("rank 1 (dp 1, pp 0, tp 0) failed first", done.last_line)

    def test_root_cause(self):
        done = self.run_plait("launch", "--nproc_per_node=4", "--log_dir=logs", *self.words("1x2x2"), PLAIT_FAULT="kill:3:step:2")
        self.assertEqual(done.code, 6, done)
        block = done.err[done.err.index("ROOT CAUSE\n"):]
        self.assertIn("  rank     rank 3 (dp 0, pp 1, tp 1) on ", block)
        self.assertIn("  phase    training, step 2\n", block)
        self.assertIn("signal 9", done.last_line)
        self.assertIn("logs/rank_3.log", done.last_line)
        done = self.run_plait("launch", "--nproc_per_node=2", *self.words("2x1x1", "--lr", "nan"))
        self.assertEqual(done.code, 2, "the rank's own code")
        self.assertIn("nan", done.last_line)
        self.assert_nothing_left(1)

    def test_python_files_and_modules(self):
        script = write_text(self.path("hello.py"), "import os, sys\nprint('hello', os.environ['RANK'], *sys.argv[1:])\n")
        self.assertEqual(self.ok("launch", script, "--flag").out, "hello 0 --flag\n")
        self.assertEqual(self.ok("launch", "-m", "hello", "x", PYTHONPATH=self.folder).out, "hello 0 x\n")
        self.assertIn("not an executable file", self.refused(2, "--no-python", script))

    def test_signals_stop_at_a_step_boundary(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            work_dir = f"run{code}"
            process = self.start(["launch", "--nproc_per_node=2", *self.words("2x1x1", work_dir=work_dir, steps=ENDLESS)])
            self.wait_for_steps(process, work_dir, 2)
            process.send_signal(number)
            done = self.finish(process, 60)
            self.assertEqual(done.code, code, done)
            found = re.search(rf"stopped after step (\d+) of {ENDLESS} by signal {int(number)}", done.err)
            self.assertTrue(found, done)
            self.assertEqual(self.metrics(work_dir)[0][-1]["step"], int(found[1]))
            self.assert_nothing_left(1)

    def test_the_rank_that_others_name_is_the_cause(self):
        # Rank 0 must have its trap before rank 1 ends and the launcher stops the others.
        one = self.script("blame.sh", f'ready={self.path("ready")}\n'
                                      'if [ $RANK = 1 ]; then until test -e $ready; do sleep 0.05; done\n'
                                      '  echo "error: rank 0 failed while exporting the model: why" >&2; exit 8; fi\n'
                                      'trap "" TERM; touch $ready; while ! grep -q failed "$1/rank_1.log"; do sleep 0.05; done; sleep 0.5; echo "error: why" >&2; exit 8\n')
        err = self.refused(8, "--nproc_per_node=2", "--log_dir", self.path("logs"), one, self.path("logs"))
        self.assertIn("error: rank 0 failed first, with exit code 8", err)

    def test_a_rank_that_ended_well_too_early_is_mentioned(self):
        one = self.script("early.sh", f'if [ $RANK = 1 ]; then touch {self.path("gone")}; exit 0; fi\n'
                                      f'until test -e {self.path("gone")}; do sleep 0.05; done; sleep 1; exit 5\n')
        err = self.refused(5, "--nproc_per_node=2", one)
        self.assertIn("consequences: rank 1: had ended with exit code 0\n", err)

    def test_ignored_signals_stay_ignored(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a script's "&"

        wait = f"touch {self.path('started')}; until test -e {self.path('go')}; do sleep 0.05; done"
        process = self.start(["launch", "--", "sh", "-c", wait], preexec_fn=ignore)
        end = time.monotonic() + SOON
        while not os.path.exists(self.path("started")):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        for number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(number)
        time.sleep(0.3)
        write_text(self.path("go"), "")
        done = self.finish(process, 60)
        self.assertEqual((done.code, done.err), (0, ""), done)

    def test_a_killed_launcher_leaves_no_orphan_behind_wrappers(self):
        """The death signal of the kernel reaches the shell only; the program in it notices by the launcher's pipe."""
        wrapper = self.script("wrapper.sh", '"$@"\nexit $?\n')
        process = self.start(["launch", "--nproc_per_node=2", wrapper, PROGRAM, *self.words("2x1x1", steps=ENDLESS)[1:]])
        self.wait_for_steps(process)
        self.assertEqual(len(self.left_behind()), 5)  # launcher, two shells, two ranks
        process.kill()
        self.assert_nothing_left()
        process.communicate()

    def test_refusals(self):
        self.assertIn("unknown flag --nproc_per_nod; nearest known flag: --nproc_per_node", self.refused(2, "--nproc_per_nod", "2", "true"))
        self.assertIn("no such program", self.refused(2, "no-such-program"))
        self.assertIn("no program is named", self.refused(2, "--nproc_per_node=2"))
        self.assertIn("--log_dir", self.refused(2, "--redirects=3", "true"))
        self.assertIn("--secret_file nope", self.refused(12, "--secret_file", "nope", "--", "true"))
        self.assertIn("cannot listen on 192.0.2.1", self.refused(5, "--nproc_per_node=2", "--master_addr=192.0.2.1", "--master_port=29511", "true"))


class TwoNodes(LaunchTest):
    """Both on this machine, over loopback."""

    def secret(self, mode=0o600):
        path = write_text(self.path("secret"), "twelve-monkeys-and-a-half-0123456789\n")
        os.chmod(path, mode)
        return path

    def start_nodes(self, words, *flags, nodes=(0, 1), **env):
        port = free_port()
        common = ["launch", "--nnodes=2", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}", *flags]
        return [self.start([*common, f"--node_rank={n}", "--", *words], env=self.environment(**env)) for n in nodes]

    def test_two_nodes_train_as_one(self):
        self.ok(*self.words("2x1x2", work_dir="alone")[1:])
        nodes = self.start_nodes(self.words("2x1x2"), "--secret_file", self.secret())
        done = [self.finish(node, 120) for node in nodes]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        self.assert_same_losses(self.metrics("run")[0], self.metrics("alone")[0], 0)
        self.assertIn("node 1 of 2, ranks 2 to 3", done[1].err)
        self.assertNotIn("training 4 steps", done[1].err)

    def test_a_rank_that_dies_on_one_node(self):
        nodes = self.start_nodes(self.words("2x1x2"), "--secret_file", self.secret(), PLAIT_FAULT="kill:3:step:2")
        done = [self.finish(node, 60) for node in nodes]
        self.assertEqual([d.code for d in done], [6, 6], "\n".join(map(str, done)))
        self.assertIn("rank 3 (dp 1, pp 1, tp 0) failed first, with signal 9", done[1].last_line)
        self.assertIn("look at the other nodes", done[0].last_line)
        self.assert_nothing_left(1)

    def test_a_signal_to_one_node_stops_both(self):
        nodes = self.start_nodes(self.words("2x1x2", steps=ENDLESS), "--secret_file", self.secret())
        self.wait_for_steps(nodes[0])
        nodes[1].send_signal(signal.SIGTERM)
        done = [self.finish(node, 60) for node in nodes]
        self.assertEqual([d.code for d in done], [143, 143], "\n".join(map(str, done)))
        self.assertIn("stopped after step", done[0].err)

    def test_a_secret_is_needed_and_must_be_the_same(self):
        flags = ("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1")
        err = self.refused(2, *flags, "true")
        self.assertIn("--secret_file", err)
        self.assertIn("head -c 32 /dev/urandom | base64", err)
        self.refused(12, *flags, "--secret_file", self.secret(0o644), "true")
        nodes = self.start_nodes(self.words("2x1x2"), "--secret_file", self.secret(), "--rdzv_timeout=5", nodes=(0,))
        self.assertIn("did not come", self.finish(nodes[0], 60).err)

    def test_refusals(self):
        self.assertIn("--node_rank is not given", self.refused(2, "--nnodes=2", "--master_addr=127.0.0.1", "true"))
        self.assertIn("--master_addr is not given", self.refused(2, "--nnodes=2", "--node_rank=1", "true"))
        self.assertIn("restarts over several nodes", self.refused(2, "--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", "--max_restarts=1", "true"))


if __name__ == "__main__":
    unittest.main()
