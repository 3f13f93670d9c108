#!/usr/bin/env python3
"""The snippets of the documentation, run or checked. usage: PLAIT_BUILD=build snippets_test.py [-k README]

What is in a fenced block decides what happens to it:
  console run   lines "$ command" are run, one shell a block, in a scratch copy of the repository; the lines below a command are its output
                and errors; "..." stands for any text, on a line of its own for any lines
  sh run        run with `bash -e`
  sh            checked, not run: syntax, the repository's files that it names, and `plait train` lines with --print-config
  yaml, json    settings: `plait train FILE --print-config` must accept them
  python        must compile
Files that a document links to or names in backticks must exist.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PLAIT_BUILD", SOURCE / "build")).resolve()
DOCUMENTS = sorted(p for p in [*SOURCE.glob("*.md"), *SOURCE.glob("docs/*.md"), *SOURCE.glob("examples/*.md"), *SOURCE.glob("benchmarks/*.md")] if p.name != "settings.md")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
NAMED_FILE = re.compile(r"`((?:apps|cmake|configs|docs|examples|plait|setup|tests|tools)/[\w./-]+\.(?:h|cpp|py|sh|md|yaml|txt))`")
REPOSITORY_PATH = re.compile(r"^(\./)?(configs|examples|setup|tests|tools|apps|plait|docs|cmake)/[\w./-]+$|^\./[\w.-]+\.sh$")


def blocks(path):
    """(first line number, info string, text) of each fenced block."""
    start, info, lines, found = 0, None, [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            if info is None:
                start, info, lines = number, line[3:].strip(), []
            else:
                found.append((start, info, "\n".join(lines) + "\n"))
                info = None
        elif info is not None:
            lines.append(line)
    return found


def make_scratch():
    """A folder that looks like the repository after a build, where runs may write."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="plait-docs-"))
    for name in ("configs", "examples"):
        shutil.copytree(SOURCE / name, scratch / name)
    for name in ("apps", "docs", "plait", "setup", "tests", "tools", "cmake", "quickstart.sh", "test.sh", "CMakePresets.json"):
        (scratch / name).symlink_to(SOURCE / name)
    (scratch / "build").symlink_to(BUILD)
    return scratch


def pattern_of(expected):
    """Expected output as a regular expression."""
    lines = []
    for line in expected:
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append(r"[^\n]*".join(re.escape(part) for part in line.split("...")) + r"\n")
    return re.compile("".join(lines) + r"\Z")


class Snippets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = make_scratch()
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PLAIT_", "RANK", "WORLD_SIZE", "LOCAL_RANK"))}
        cls.environment["PATH"] = f"{BUILD}:{cls.environment['PATH']}"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def shell(self, script, *options):
        return subprocess.run(["bash", *options, "-c", script], cwd=self.scratch, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)

    def check_console(self, text):
        commands = []  # [command, expected lines]
        for line in text.splitlines():
            if line.startswith("$ "):
                commands.append([line[2:], []])
            else:
                commands[-1][1].append(line)
        mark = "--- end of command ---"
        script = "".join(f"{command}\n__code=$?; echo '{mark}'; (exit $__code)\n" for command, _ in commands)
        outputs = self.shell(script).stdout.split(mark + "\n")
        self.assertEqual(len(outputs), len(commands) + 1, f"the shell ended before its last command; it printed\n{mark.join(outputs)}")
        for (command, expected), output in zip(commands, outputs):
            if output and not output.endswith("\n"):
                output += "\n"
            self.assertRegex(output, re.compile(r"\A" + pattern_of(expected).pattern), f"\n$ {command}\nprints\n{output}\nexpected\n" + "\n".join(expected))

    def check_shell_words(self, text):
        result = self.shell(f"bash -n <<'END_OF_SNIPPET'\n{text}END_OF_SNIPPET")
        self.assertEqual(result.returncode, 0, result.stdout)
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for word in words:
                if REPOSITORY_PATH.match(word):
                    self.assertTrue((SOURCE / word).exists(), f"{word} does not exist")
            if words and REPOSITORY_PATH.match(words[0]):
                self.assertTrue(os.access(SOURCE / words[0], os.X_OK), f"{words[0]} cannot be executed")
            names = [i for i, word in enumerate(words) if word in ("plait", "build/plait") and words[i + 1 : i + 2] == ["train"]]
            if names and "--print-config" not in words:
                command = shlex.join(["plait", *words[names[0] + 1 :], "--print-config"])
                result = self.shell(command)
                self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}")

    def check_settings(self, text, suffix):
        path = self.scratch / "configs" / f"snippet.{suffix}"
        path.write_text(text)
        result = self.shell(f"plait train configs/snippet.{suffix} --print-config")
        self.assertEqual(result.returncode, 0, result.stdout)

    def check_block(self, info, text):
        if info == "console run":
            self.check_console(text)
        elif info == "sh run":
            result = self.shell(text, "-e")
            self.assertEqual(result.returncode, 0, result.stdout)
        elif info == "sh":
            self.check_shell_words(text)
        elif info in ("yaml", "json"):
            self.check_settings(text, info)
        elif info == "python":
            compile(text, "snippet", "exec")
        else:
            self.assertIn(info, ("", "text", "cmake", "cpp", "diff"), "unknown kind of block")

    def check_document(self, document):
        for number, info, text in blocks(document):
            with self.subTest(line=number, kind=info):
                self.check_block(info, text)
        for name in NAMED_FILE.findall(document.read_text()):
            if not re.search("[A-Z]{4}", name):  # plait/plan/schedule_NAME.cpp
                with self.subTest(file=name):
                    self.assertTrue((SOURCE / name).exists(), f"{document.name} names {name}")
        for target, _ in LINK.findall(document.read_text()):
            if "://" not in target:
                with self.subTest(link=target):
                    self.assertTrue((document.parent / target).exists(), f"{document.name} links to {target}")


def add_test(document):
    name = "test_" + re.sub(r"\W", "_", str(document.relative_to(SOURCE).with_suffix("")))
    setattr(Snippets, name, lambda self: self.check_document(document))


for each in DOCUMENTS:
    add_test(each)

if __name__ == "__main__":
    unittest.main()
