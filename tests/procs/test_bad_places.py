"""Numbers that explode, folders and disks that cannot be written or are in use, ports: right exit code, earlier output kept."""
import os
import shutil
import socket
import subprocess
import unittest

import tiny
from program import free_port, layout_flags, read_bytes, write_text
from refusals import BUSY, CHECKPOINT, DATA, NON_FINITE, RENDEZVOUS, RESOURCE, USAGE, RefusalTest


class Numbers(RefusalTest):
    def test_loss_that_explodes(self):
        words = self.words(tiny.BERT, None, "--lr", "1e30", "--set", "train.clip_grad=0")
        self.refused(NON_FINITE, ["step ", "lr"], words)
        self.assertFalse(os.path.exists(self.path("run", "output")))
        done = self.run_plait(*words, *layout_flags("2x1x2"))
        self.assertEqual(done.code, NON_FINITE, done)
        self.assertIn("step ", done.last_line)
        self.assertEqual(self.left_behind(), [])


class Folders(RefusalTest):
    def words_to(self, work_dir, *more):
        return ["train", "--model", tiny.BERT, "--train_file", self.rows, "--set", "train.batch_size=4", "--set", "train.max_epochs=1", "--work_dir",
                work_dir, *more]

    def test_work_dir_that_cannot_be_written(self):
        self.refused(USAGE, ["work_dir", self.rows], self.words_to(self.rows))
        self.refused(USAGE, ["work_dir", "rows.jsonl/run"], self.words_to(self.rows + "/run"))
        self.refused(USAGE, "work_dir", self.words_to("/proc/plait"))
        if os.getuid() != 0:
            os.mkdir(self.path("closed"), 0o500)
            self.refused(USAGE, ["work_dir", "closed"], self.words_to(self.path("closed", "run")))

    def test_output_that_is_no_model_folder_is_left_alone(self):
        os.makedirs(self.path("run", "output"))
        write_text(self.path("run", "output", "thesis.txt"), "years of work")
        done = self.run_plait(*self.words_to(self.path("run")))
        self.assertEqual(done.code, USAGE, done)
        self.assertIn("not a model folder", done.err)
        self.assertEqual(os.listdir(self.path("run", "output")), ["thesis.txt"])
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")), "a step was made")
        os.rename(self.path("run", "output"), self.path("run", "output_best"))
        self.refused(USAGE, ["output_best", "not a model folder"], self.words_to(self.path("run"), "--valid_file", self.rows))
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")), "a step was made")
        self.ok(*self.words_to(self.path("run")))  # no validation rows: nothing goes to output_best

    def test_outputs_that_are_inputs(self):
        shutil.copytree(tiny.BERT, self.path("model"))
        os.symlink(self.rows, self.path("link.jsonl"))
        settings = write_text(self.path("settings.yaml"), "task: text-classification\n")
        before = read_bytes(self.rows)
        for command, flag, output in (("predict", "--output", self.rows), ("predict", "--output", self.path("link.jsonl")), ("predict", "--logits", "rows.jsonl"),
                                      ("predict", "--logits", self.path("model", "model.safetensors")), ("eval", "--output", self.rows),
                                      ("eval", "--output", settings), ("eval", "--output", self.path("model", "config.json"))):
            with self.subTest(f"{command} {flag} {output}"):
                more = ["--output", "out.jsonl"] if flag == "--logits" else []
                self.refused(USAGE, [flag, output, "overwrite"], [command, "--config", settings, "--model", self.path("model"), "--data", self.rows, flag, output, *more])
        self.refused(USAGE, ["--logits", "another file"], ["predict", "--model", tiny.BERT, "--data", self.rows, "--output", "o", "--logits", self.path("o")])
        self.assertEqual(read_bytes(self.rows), before)

    def test_places_that_are_empty(self):
        """An unset shell variable: as root, an empty work_dir would be /."""
        for flag in ("--work_dir", "--train.work_dir", "--model", "--train_file", "--valid_file"):
            self.refused(USAGE, [f"{flag} is empty", "unset shell variable"], ["train", "--model", tiny.BERT, "--train_file", self.rows, flag, ""])
        self.refused(USAGE, "train.work_dir= is empty", self.words_to(self.path("run"), "--set", "train.work_dir="))
        for flag in ("--data", "--output"):
            self.refused(USAGE, f"{flag} is empty", ["eval", "--model", tiny.BERT, "--data", self.rows, flag, ""])
        settings = write_text(self.path("settings.yaml"), f'model: {{path: {tiny.BERT}}}\ndataset: {{train: {{file: rows.jsonl}}}}\ntrain: {{work_dir: ""}}\n')
        self.refused(USAGE, ["train.work_dir", "settings.yaml:3", "is empty"], ["train", settings])

    def test_work_dir_in_use(self):
        long = self.start(self.words_to(self.path("run"), "--set", "train.max_steps=100000"))
        self.wait_for_steps(long)
        done = self.refused(BUSY, ["work_dir", "in use", str(long.pid)], self.words_to(self.path("run")))
        self.assertLess(done.seconds, 60)
        long.kill()
        self.finish(long, 60)
        self.ok(*self.words_to(self.path("run")))

    def test_refusals_keep_an_earlier_output(self):
        self.ok(*self.words_to(self.path("run")))
        before = {f: read_bytes(self.path("run", "output", f)) for f in os.listdir(self.path("run", "output"))}
        bad = write_text(self.path("bad.jsonl"), '{"input_ids": [5], "labels": 0}\n{"input_ids": [999], "labels": 1}\n')
        for code, words in ((DATA, ["--train_file", bad]), (USAGE, ["--model_parallel_size", "3"]), (NON_FINITE, ["--lr", "1e30", "--set", "train.clip_grad=0"]),
                            (CHECKPOINT, ["--set", f"model.head_init={self.rows}"])):
            done = self.run_plait(*[w for w in self.words_to(self.path("run")) if w not in ("--train_file", self.rows) or words[0] != "--train_file"], *words)
            self.assertEqual(done.code, code, done)
            self.assertEqual({f: read_bytes(self.path("run", "output", f)) for f in os.listdir(self.path("run", "output"))}, before)

    def mount(self, options):
        """A small disk of our own; needs root."""
        disk = self.path("disk")
        os.mkdir(disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", disk])
        return disk

    def test_read_only_disk(self):
        disk = self.mount("ro,size=64k")
        self.refused(USAGE, ["work_dir", "Read-only file system"], self.words_to(disk + "/run"))

    def test_full_disk(self):
        disk = self.mount("size=256k")
        self.ok(*self.words_to(disk + "/run"))  # 110 kB of weights: fits once
        before = read_bytes(disk + "/run/output/model.safetensors")
        shutil.rmtree(disk + "/run/output_best", ignore_errors=True)
        room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        with open(disk + "/ballast", "wb") as f:
            f.write(b"x" * max(0, room - 20000))
        for layout in ("1x1x1", "1x2x2"):
            done = self.run_plait(*self.words_to(disk + "/run", "--lr", "1e-3"), *layout_flags(layout))
            self.assertEqual(done.code, RESOURCE, done)
            self.assertIn("No space left", done.err)
            self.assertEqual(read_bytes(disk + "/run/output/model.safetensors"), before)
            self.assertEqual([n for n in os.listdir(disk + "/run") if ".tmp" in n], [])
        with open(disk + "/ballast2", "wb") as f:
            try:
                f.write(b"x" * 10**6)
                f.flush()
            except OSError:
                pass
        self.refused(RESOURCE, "No space left", self.words_to(disk + "/run"))
        self.refused(RESOURCE, "No space left", ["predict", "--model", tiny.BERT, "--data", tiny.bert_rows(self.path("many.jsonl"), 1500), "--output",
                                               disk + "/out.jsonl"])
        self.assertFalse(os.path.exists(disk + "/out.jsonl"))

    def test_full_disk_of_the_logs(self):
        disk = self.mount("size=64k")
        with open(disk + "/ballast", "wb") as f:
            try:
                f.write(b"x" * 10**5)
                f.flush()
            except OSError:
                pass
        done = self.ok("launch", "--nproc_per_node=2", "--log_dir", disk, "--", "sh", "-c", "for i in 1 2 3; do echo line $i; done")
        self.assertEqual(done.out, "line 1\nline 2\nline 3\n", done)
        for rank in range(2):
            self.assertEqual(done.err.count(f"warning: {disk}/rank_{rank}.log: No space left on device; further lines of this rank are not logged\n"), 1, done)


class Ports(RefusalTest):
    def test_port_busy(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.refused(RENDEZVOUS, ["port busy", str(port)], self.words(tiny.BERT, None, *layout_flags("2x1x1")), RANK="0", WORLD_SIZE="2",
                                LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            self.assertLess(done.seconds, 60)

    def test_peers_that_never_come(self):
        done = self.refused(RENDEZVOUS, ["did not come: rank 1 of 2; here: rank 0 host"], self.words(tiny.BERT, None, *layout_flags("2x1x1")),
                            PLAIT_RDZV_TIMEOUT="3", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        self.assertLess(done.seconds, 60)


if __name__ == "__main__":
    unittest.main()
