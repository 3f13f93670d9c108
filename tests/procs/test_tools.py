"""What a person asks the program about itself and about the machine: --version, --help, completion, man, doctor."""
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import unittest

from program import ProgramTest, free_port, write_text

COMMANDS = ("train", "eval", "predict", "schedule", "doctor", "completion", "man")


class Help(ProgramTest):
    def test_version(self):
        lines = self.ok("--version").out.splitlines()
        self.assertRegex(lines[0], r"^plait \d+\.\d+\.\d+$")
        parts = dict(line.split(None, 1) for line in lines[1:])
        self.assertEqual(sorted(parts), ["CPU", "CUDA", "compiler", "git", "torch"])
        self.assertRegex(parts["torch"], r"^2\.\d+\.\S* \(/.*libtorch_cpu\.so\)$")
        self.assertRegex(parts["compiler"], r"^\w+ \d+\.\d+")
        self.assertRegex(parts["git"], r"^([0-9a-f]{12}(-dirty)?|unknown)$")
        self.assertRegex(parts["CUDA"], r"^(NCCL \d+\.\d+\.\d+ \(/.*libplait_cuda\.so\)|no plugin .*)$")

    def test_every_command_tells_its_flags(self):
        text = self.ok("--help").out
        names = re.findall(r"^  (\w+) +\S", text, re.MULTILINE)
        self.assertLessEqual(set(COMMANDS), set(names))
        for name in names:
            with self.subTest(name):
                help_text = self.ok(name, "--help").out
                self.assertTrue(help_text.startswith(f"usage: plait {name}"), help_text)
                self.assertEqual(help_text, self.ok("help", name).out)
                self.assertEqual([line for line in help_text.splitlines() if len(line) > 120], [])

    def test_wrong_words(self):
        for words, fragment in ((["completion"], "bash, zsh or fish"), (["completion", "csh"], "known shells"), (["man", "train"], "no arguments"),
                                (["doctor", "--jsom"], "nearest known flag: --json"), (["doctor", "here"], "unexpected argument 'here'"),
                                (["doctor", "--nproc_per_node", "0"], "from 1 to"), (["doctor", "--master_port", "70000"], "from 1 to 65535"),
                                (["doctor", "--set", "a=b"], "reads no settings"), (["trian"], "did you mean 'train'")):
            with self.subTest(words):
                done = self.run_plait(*words)
                self.assertEqual(done.code, 2, done)
                self.assertIn(fragment, done.err)


class ManualPage(ProgramTest):
    def test_renders_without_warnings(self):
        page = write_text(self.path("plait.1"), self.ok("man").out)
        command = ["man", "--warnings", "-l", page] if shutil.which("man") else ["groff", "-man", "-Tutf8", "-ww", page]
        if not shutil.which(command[0]):
            self.skipTest("neither man nor groff here")
        # No locale: the page is plain ASCII.
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C", "MANPAGER": "cat"}, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("SYNOPSIS", "train.optimizer.params.lr", "--nproc_per_node", "EXIT STATUS", "schedule"):
            self.assertIn(word, done.stdout)

    def test_names_every_command_and_setting(self):
        page = self.ok("man").out.replace("\\-", "-")
        for name in COMMANDS:
            self.assertIn(f"\n.SS {name}\n", page)
        settings = re.findall(r"^(\w[\w.]*):", self.ok("train", "--print-config").out, re.MULTILINE)
        self.assertIn("task", settings)
        for name in ("task", "model.path", "train.dtype", "evaluation.metrics"):
            self.assertIn(f"\n.TP\n\\fB{name}\\fP\n", page)
        self.assertEqual([line for line in page.splitlines() if line.startswith("'")], [], "a line that roff takes for a request")


class Completion(ProgramTest):
    def script(self, shell):
        return write_text(self.path("completion." + shell), self.ok("completion", shell).out)

    def test_syntax(self):
        for shell in ("bash", "zsh", "fish"):
            with self.subTest(shell):
                path = self.script(shell)
                if not shutil.which(shell):
                    continue  # the script is made, at least; bash is everywhere
                done = subprocess.run([shell, "-n", path], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def complete(self, *words):
        """What bash offers for the last of these words of a command line, parted as readline parts them."""
        words = [part for word in words for part in re.split("(=)", word) if part or not word]
        array = " ".join("'" + w.replace("'", "'\\''") + "'" for w in words)
        done = subprocess.run(["bash", "--norc", "-c", f'source "{self.bash}"; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _plait; '
                               'printf "%s\\n" "${COMPREPLY[@]}"'], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return [line for line in done.stdout.splitlines() if line]

    def test_bash(self):
        self.bash = self.script("bash")
        os.mkdir(self.path("a folder"))
        write_text(self.path("settings.yaml"), "")
        self.assertLessEqual(set(COMMANDS), set(self.complete("plait", "")))
        self.assertEqual(self.complete("plait", "tr"), ["train"])
        self.assertEqual(self.complete("plait", "tri"), [])
        for command, flag in (("train", "--print-c"), ("predict", "--logit"), ("schedule", "--micro"), ("doctor", "--nproc")):
            with self.subTest(command):
                found = self.complete("plait", command, flag)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(flag))
        self.assertIn("--batch_size", self.complete("plait", "train", "--batch"), "a setting is a flag")
        self.assertNotIn("--batch_size", self.complete("plait", "schedule", "--"))
        self.assertEqual(self.complete("plait", "train", "sett"), ["settings.yaml"])
        self.assertEqual(self.complete("plait", "train", "--config", "sett"), ["settings.yaml"])
        self.assertEqual(self.complete("plait", "train", "--work_dir", ""), ["a folder"], "folders only")
        self.assertEqual(self.complete("plait", "train", "--set", "train.optimizer.ty"), ["train.optimizer.type="])
        self.assertLessEqual({"AdamW", "SGD"}, set(self.complete("plait", "train", "--set", "train.optimizer.type=")))
        self.assertEqual(self.complete("plait", "train", "--set", "train.optimizer.type=S"), ["SGD"])
        self.assertEqual(self.complete("plait", "train", "--set", "train.shuffle=f"), ["false"])
        self.assertEqual(self.complete("plait", "train", "--task", "text-g"), ["text-generation"])
        self.assertEqual(self.complete("plait", "train", "--task=text-g"), ["text-generation"])
        self.assertEqual(self.complete("plait", "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete("plait", "launch", "--", "plait", "sch"), ["schedule"], "behind -- stands a command of its own")

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish here")
        script = self.script("fish")

        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", f'source "{script}"; complete -C "{line}"'], cwd=self.folder, capture_output=True,
                                  text=True, timeout=60, env={**os.environ, "HOME": self.folder})
            self.assertEqual(done.stderr, "")
            return [row.split("\t")[0] for row in done.stdout.splitlines()]

        self.assertEqual(complete("plait sched"), ["schedule"])
        self.assertEqual(complete("plait schedule --micro"), ["--micro_batches"])
        self.assertIn("train.optimizer.type=", complete("plait train --set train.optimizer.t"))


class Doctor(ProgramTest):
    def test_this_machine(self):
        done = self.run_plait("doctor")
        self.assertIn(done.code, (0, 8), done)
        rows = re.findall(r"^  (OK|note|warning|FAIL) +(\S+)", done.out, re.MULTILINE)
        names = [name for _, name in rows]
        for name in ("cores", "memory", "/dev/shm", "GPUs", "torch", "NCCL", "descriptors", "clock", "work_dir", "network", "ports", "firewall", "launcher"):
            self.assertIn(name, names)
        self.assertEqual(done.code == 8, "FAIL" in [status for status, _ in rows], done)
        self.assertRegex(done.out.splitlines()[-1], r"(stops a run|stop a run); \d+ warnings?$")
        self.assertEqual(os.listdir(self.folder), [], "nothing is left behind")

    def json(self, *words, code=0, **options):
        done = self.run_plait("doctor", "--json", *words, **options)
        self.assertEqual(done.code, code, done)
        return json.loads(done.out)

    def checks(self, report):
        return {check["name"]: check for check in report["hosts"][0]["checks"]}

    def test_json_and_what_stops_a_run(self):
        report = self.json()
        self.assertEqual(report["exit_code"], 0)
        self.assertNotIn("pairs", report)
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        report = self.json("--work_dir", self.path("file"), code=8)
        check = self.checks(report)["work_dir"]
        self.assertEqual((check["status"], report["worst"], report["exit_code"]), ("FAIL", "FAIL", 8))
        self.assertIn("no folder", check["found"])
        self.assertTrue(check["remedy"])

    def test_work_dir_that_is_not_there_yet(self):
        check = self.checks(self.json("--work_dir", self.path("new")))["work_dir"]
        self.assertIn("new is not there yet", check["found"])
        check = self.checks(self.json("--work_dir", self.path("nope", "new")))["work_dir"]
        self.assertIn(check["status"], ("warning", "FAIL"))

    def test_port_in_use(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            self.assertEqual(self.checks(self.json("--master_port", port, code=8))["ports"]["status"], "FAIL")
        self.assertEqual(self.checks(self.json("--master_port", free_port()))["ports"]["status"], "OK")

    def test_launcher_variables_that_contradict(self):
        check = self.checks(self.json(code=8, RANK="3", WORLD_SIZE="2", LOCAL_RANK="0"))["launcher"]
        self.assertEqual(check["status"], "FAIL")
        self.assertIn("RANK", check["found"])

    def test_few_descriptors(self):
        done = self.finish(self.start(["doctor", "--json"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))), 60)
        self.assertEqual(done.code, 8, done)
        check = self.checks(json.loads(done.out))["descriptors"]
        self.assertEqual(check["status"], "FAIL")
        self.assertIn("ulimit -n", check["remedy"])

    def test_links_between_ranks(self):
        report = self.json("--nproc_per_node", "3")
        self.assertEqual([pair["ranks"] for pair in report["pairs"]], [[0, 1], [0, 2], [1, 2]])
        for pair in report["pairs"]:
            self.assertGreater(pair["latency_seconds"], 0)
            self.assertGreater(pair["bytes_per_second"], 1e5)
        self.assertEqual(len(report["collectives"]), 9)
        self.assertEqual({c["operation"] for c in report["collectives"]}, {"all_reduce", "all_gather", "reduce_scatter"})
        self.assertEqual([c["rank"] for c in report["clocks"]], [0, 1, 2])
        self.assertTrue(all(abs(c["seconds"]) < 1 for c in report["clocks"]), report["clocks"])
        self.assertEqual([c["name"] for c in report["link_checks"]], ["links", "clocks"])
        self.assertEqual(len(report["hosts"]), 1, "one rank looks at the machine")
        self.assertEqual(self.left_behind(), [])

    def test_text_names_the_slowest_pair(self):
        done = self.ok("doctor", "--nproc_per_node", "2")
        self.assertRegex(done.out, r"  0 - 1 +[\d.]+ (us|ms|s) +[\d.]+ (GiB|MiB|KiB)/s +same host")
        self.assertRegex(done.out, r"links +slowest pair: ranks 0 and 1")
        self.assertIn("4.0 MiB", done.out.replace("4 MiB", "4.0 MiB"))

    def test_under_a_launcher(self):
        port = str(free_port())
        ranks = [self.start(["doctor", "--json"], env=self.environment(RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r), MASTER_ADDR="127.0.0.1",
                                                                       MASTER_PORT=port)) for r in range(2)]
        done = [self.finish(rank, 120) for rank in ranks]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        self.assertEqual(done[1].out, "", "only rank 0 speaks")
        self.assertEqual(len(json.loads(done[0].out)["pairs"]), 1)

    def test_two_nodes(self):
        """Through plait launch, both on this machine."""
        secret = write_text(self.path("secret"), "a-secret-of-two-nodes-0123456789abcdef\n")
        os.chmod(secret, 0o600)
        port = free_port()
        nodes = [self.start(["doctor", "--json", "--nnodes=2", f"--node_rank={n}", "--nproc_per_node=1", "--master_addr=127.0.0.1", f"--master_port={port}",
                             "--secret_file", secret, "--rdzv_timeout", "60"]) for n in (0, 1)]
        done = [self.finish(node, 120) for node in nodes]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        report = json.loads(done[0].out)
        self.assertEqual((len(report["pairs"]), len(report["hosts"]), done[1].out), (1, 2, ""))
        self.assertEqual(self.left_behind(), [])


if __name__ == "__main__":
    unittest.main()
