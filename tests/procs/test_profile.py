"""Where the time of a run goes: the parts of each step, MFU, the trace of all ranks; and which cores the ranks run on."""
import os
import re
import unittest

import tiny
from program import ProgramTest, layout_flags, read_json, write_text

PARTS = ["compute", "communication", "pipeline_wait", "optimizer", "data", "other"]


class Profile(ProgramTest):
    def words(self, *more):
        rows = tiny.causal_rows(self.path("rows.jsonl"))
        return ["--task", "text-generation", "--model", tiny.LLAMA, "--train_file", rows, "--set", "train.batch_size=8", "--set", "train.max_steps=6",
                "--set", "train.distributed.gradient_accumulation_steps=2", *[word for setting in more for word in ("--set", setting)]]

    def test_parts_add_up(self):
        for layout in ("1x1x1", "2x2x2"):
            done = self.ok("train", *self.words("train.profile.mfu=true"), *layout_flags(layout), "--work_dir", self.path(layout))
            steps, _ = self.metrics(layout)
            for step in steps:
                self.assertAlmostEqual(sum(step[p + "_seconds"] for p in PARTS), step["step_seconds"], delta=1e-6 + 1e-3 * step["step_seconds"])
                self.assertGreater(step["compute_seconds"], 0)
                self.assertGreater(step["optimizer_seconds"], 0)
                self.assertGreaterEqual(step["hidden_communication_seconds"], 0)
                self.assertEqual(step["pipeline_wait_seconds"] > 0, layout == "2x2x2")
                self.assertEqual(step["communication_seconds"] > 0.0001, layout == "2x2x2")
                self.assertTrue(0 < step["mfu"] < 2, step)
                # 1F1B on 2 ranks with 2 micro-batches: (p - 1) / (m + p - 1)
                self.assertAlmostEqual(step.get("pipeline_bubble_predicted", 0), 1 / 3 if layout == "2x2x2" else 0)
            table = [line for line in done.err.splitlines() if re.match(r"ms, steps 2 to 6|rank 0 |largest of 8 |MFU ", line)]
            bubble = [line for line in done.err.splitlines() if line.startswith("bubble ")]
            self.assertEqual([line[:40] for line in bubble], ["bubble 33.3 % predicted by the schedule;"] if layout == "2x2x2" else [])
            self.assertEqual(len(table), 4 if layout == "2x2x2" else 3, done.err)
            self.assertEqual(table[0].split()[5:], "step compute communication pipeline optimizer data other hidden communication".split())
            self.assertEqual(len(table[1].split()), 2 + 8)
        self.assertNotIn("mfu", self.metrics_without_mfu()[0])

    def metrics_without_mfu(self):
        return self.train("1x1x1", "plain", *self.words())[0]

    def test_trace(self):
        trace = self.path("traces", "run.json")  # a folder that is not there yet
        done = self.ok("train", *self.words(f"train.profile.trace_file={trace}", "train.profile.first_step=2", "train.profile.num_steps=2"),
                       *layout_flags("2x2x2"), "--work_dir", self.path("run"))
        self.assertIn(f"trace of steps 2 to 3: {trace} (open it in ui.perfetto.dev)", done.err)
        self.assertEqual(os.listdir(self.path("traces")), ["run.json"])
        content = read_json(trace)
        self.assertEqual(content["otherData"]["events_left_out"], 0)
        events = content["traceEvents"]
        named = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        self.assertEqual(set(named), set(range(8)))
        self.assertEqual(named[3], "rank 3 (dp 0, pp 1, tp 1)")
        self.assertEqual(named[6], "rank 6 (dp 1, pp 1, tp 0)")
        for rank in range(8):
            self.check_row([e for e in events if e["tid"] == rank and e["ph"] != "M"], pp=rank // 2 % 2)
        begins = [min(e["ts"] for e in events if e["ph"] == "X" and e["tid"] == rank) for rank in range(8)]
        self.assertEqual(min(begins), 0)
        self.assertLess(max(begins), 60e6)  # one clock: the ranks begin step 2 within the same minute

    def check_row(self, events, pp):
        """Rules of the format: known phases, times not negative, complete events of one row inside each other or apart, pairs of begin and end."""
        complete, under_way = [], {}
        for e in events:
            self.assertIn(e["ph"], "Xbe")
            self.assertGreaterEqual(e["ts"], 0)
            if e["ph"] == "X":
                self.assertGreaterEqual(e["dur"], 0)
                complete.append((round(1000 * e["ts"]), -round(1000 * e["dur"]), e["name"], e["cat"]))
            else:
                under_way.setdefault((e["id"], e["name"]), []).append((e["ph"], e["ts"]))
        for (name, pair) in under_way.items():
            self.assertEqual([ph for ph, _ in pair], ["b", "e"], name)
            self.assertLessEqual(pair[0][1], pair[1][1])
        open_ends = []
        for begin, minus_duration, name, _ in sorted(complete):
            end = begin - minus_duration
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            self.assertTrue(not open_ends or end <= open_ends[-1], name)
            open_ends.append(end)
        names = [name for _, _, name, _ in complete]
        self.assertEqual([n for n in names if n.startswith("step ")], ["step 2", "step 3"])
        # 1F1B, two micro-batches, two steps.
        for action in (f"{pp}F0", f"{pp}F1", f"{pp}B0", f"{pp}B1", *((f"0SF{m}" for m in range(2)) if pp == 0 else (f"1RF{m}" for m in range(2)))):
            self.assertEqual(names.count(action), 2, action)
        groups = {e["args"]["group"] for e in events if e["ph"] == "X" and "args" in e}
        self.assertLessEqual({"data", "pipeline", "tensor"}, {g.split()[0] for g in groups})
        self.assertTrue(all(e["args"]["bytes"] >= 0 for e in events if "args" in e))
        self.assertLessEqual({"compute", "communication", "pipeline", "optimizer", "data"}, {cat for _, _, _, cat in complete})

    def test_traces_that_cannot_be(self):
        write_text(self.path("plain"), "a file")
        for setting, text in ((f"train.profile.trace_file={self.folder}", "is a folder"),
                              (f"train.profile.trace_file={self.path('plain', 'trace.json')}", "cannot be written"),
                              ("train.profile.num_steps=2", "has no effect without train.profile.trace_file")):
            done = self.run_plait("train", *self.words(setting), "--work_dir", self.path("refused"))
            self.assertEqual(done.code, 2, done)
            self.assertIn(text, done.last_line)
            self.assertIn("train.profile", done.last_line)
        for layout in ("1x1x1", "2x1x1"):
            done = self.run_plait("train", *self.words(f"train.profile.trace_file={self.path('t.json')}", "train.profile.first_step=7"),
                                  *layout_flags(layout), "--work_dir", self.path("short"))
            self.assertEqual(done.code, 2, done)
            self.assertIn("the trace begins with step 7, train.profile.first_step (command line)", done.last_line)
            self.assertNotIn("ROOT CAUSE", done.err)  # refused before any rank
            self.assertFalse(os.path.exists(self.path("t.json")))

    def test_a_run_that_ends_early_leaves_its_trace(self):
        trace = self.path("trace.json")
        done = self.ok("train", *self.words(f"train.profile.trace_file={trace}", "train.profile.first_step=5", "train.profile.num_steps=50"),
                       "--work_dir", self.path("run"))
        self.assertIn("trace of steps 5 to 6", done.err)
        self.assertEqual([e["name"] for e in read_json(trace)["traceEvents"] if e["name"].startswith("step ")], ["step 5", "step 6"])


class Cores(ProgramTest):
    """As many ranks of one thread as there are cores (two of them are taken here): each has its own."""

    def cores_of_ranks(self, *more, layout="2x1x1", **env):
        rows, work_dir = tiny.causal_rows(self.path("rows.jsonl")), f"run_{len(os.listdir(self.folder))}"
        words = ["train", "--task", "text-generation", "--model", tiny.LLAMA, "--train_file", rows, *layout_flags(layout), "--work_dir", self.path(work_dir),
                 "--set", "train.max_steps=100000", *[word for setting in more for word in ("--set", setting)]]
        two = sorted(os.sched_getaffinity(0))[:2]
        process = self.start(words, env=self.environment(OMP_NUM_THREADS="1", **env), preexec_fn=lambda: os.sched_setaffinity(0, two))
        self.wait_for_steps(process, work_dir)
        cores = []
        for pid in self.left_behind():
            if pid != process.pid:
                with open(f"/proc/{pid}/status") as f:
                    cores.append(re.search(r"^Cpus_allowed_list:\s*(\S+)", f.read(), re.M).group(1))
        process.terminate()
        done = self.finish(process, 60)
        return two, sorted(cores), done.err

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core: nothing to choose")
    def test_ranks_stay_on_their_cores(self):
        two, cores, text = self.cores_of_ranks()
        self.assertEqual(cores, [str(core) for core in two])
        self.assertIn("2 ranks x 1 thread on 2 cores: each rank stays on its own (train.cpu_affinity)", text)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core: nothing to choose")
    def test_ranks_are_left_alone(self):
        for more in (dict(layout="3x1x1"), dict(OMP_PROC_BIND="false")):
            two, cores, text = self.cores_of_ranks(**more)
            self.assertEqual(len(set(cores)), 1, cores)
            self.assertEqual(cores[0], f"{two[0]}-{two[1]}" if two[1] == two[0] + 1 else f"{two[0]},{two[1]}")
            self.assertNotIn("stays on its own", text)
        two, cores, _ = self.cores_of_ranks("train.cpu_affinity=none")
        self.assertEqual(len(set(cores)), 1, cores)


if __name__ == "__main__":
    unittest.main()
