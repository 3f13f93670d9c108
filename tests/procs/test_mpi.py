"""Ranks started by OpenMPI's and MPICH's launchers from Debian (setup/test_launchers.sh): the same losses as plait's own ranks. With
train.comm.backend mpi the library carries the messages too (a plugin beside the program, built where its headers are); else only the
launchers' variables are read."""
import os
import shlex
import shutil
import signal
import subprocess
import unittest

import tiny
import two_nodes
from program import PROGRAM, ProgramTest, free_port, layout_flags, write_text

OPENMPI, HYDRA = shutil.which("mpirun.openmpi"), shutil.which("mpiexec.hydra")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPENMPI_WORDS = [OPENMPI, "--oversubscribe"]
OVER_MPI = ["--set", "train.comm.backend=mpi"]


def has_plugin(name):
    return os.path.exists(os.path.join(os.path.dirname(PROGRAM), f"libplait_{name}.so"))


def needs_plugin(name, headers):
    return unittest.skipUnless(has_plugin(name), f"libplait_{name}.so is not built: setup/test_launchers.sh installs {headers}")


class MpiTest(ProgramTest):
    def words(self, work_dir, layout):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 20)
        return ["train", "--model", tiny.BERT, "--train_file", rows, "--valid_file", rows, "--set", "train.batch_size=8", "--set", "train.max_epochs=1",
                "--work_dir", self.path(work_dir), *layout_flags(layout)]

    def launcher(self, words):
        return subprocess.Popen(words, cwd=self.folder, env=self.environment(OMP_NUM_THREADS="1", **AS_ROOT), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def launch(self, *words, timeout=180):
        return self.finish(self.launcher(words), timeout)

    def same_run(self, layout, *words):
        self.ok(*self.words("own", layout), OMP_NUM_THREADS="1")
        done = self.launch(*words, PROGRAM, *self.words("mpi", layout))
        self.assertEqual(done.code, 0, done)
        self.assert_like_own("mpi")
        return done

    def assert_like_own(self, work_dir):
        own, mpi = self.metrics("own"), self.metrics(work_dir)
        self.assertEqual([s["step"] for s in mpi[0]], [1, 2, 3])
        self.assert_same_losses(mpi[0], own[0], 1e-6, work_dir)
        self.assert_close([mpi[1][0]["eval_loss"]], [own[1][0]["eval_loss"]], 1e-6)
        self.assertEqual(self.left_behind(), [])

    def two_jobs_at_once(self, *words):
        jobs = [self.launcher([*words, PROGRAM, *self.words(f"job{i}", "2x1x1")]) for i in (0, 1)]
        done = [self.finish(job, 180) for job in jobs]
        self.assertEqual([d.code for d in done], [0, 0], "\n".join(map(str, done)))
        self.assertEqual(self.metrics("job0")[0][-1]["loss"], self.metrics("job1")[0][-1]["loss"])

    def one_rank_is_no_launcher(self, *words):
        done = self.launch(*words, PROGRAM, *self.words("single", "1x2x1"))
        self.assertEqual(done.code, 0, done)
        self.assertTrue(os.path.exists(self.path("single", "logs", "rank_1.log")), "plait starts its own two ranks")

    def same_numbers_over_mpi(self, layout, *words):
        """Sums in rank order, as over shared memory: not one bit differs."""
        self.ok(*self.words("own", layout), "--set", "train.comm.backend=shm", OMP_NUM_THREADS="1")
        done = self.launch(*words, PROGRAM, *self.words("mpi", layout), *OVER_MPI)
        self.assertEqual(done.code, 0, done)
        own, mpi = self.metrics("own"), self.metrics("mpi")
        self.assertEqual(len(own[0]), 3)
        for name in ("loss", "grad_norm"):
            self.assertEqual([s[name] for s in mpi[0]], [s[name] for s in own[0]], name)
        self.assertEqual([s["eval_loss"] for s in mpi[1]], [s["eval_loss"] for s in own[1]])
        self.assertEqual(self.left_behind(), [])

    def killed_rank_ends_the_job(self, variable, *words):
        rows = tiny.bert_rows(self.path("many.jsonl"), 400)
        job = self.launcher([*words, PROGRAM, "train", "--model", tiny.BERT, "--train_file", rows, "--set", "train.batch_size=8", "--set", "train.max_epochs=500",
                             "--work_dir", self.path("run"), *layout_flags("2x1x1"), *OVER_MPI])
        self.wait_for_steps(job)
        ranks = [pid for pid in self.left_behind() if self.variable_of(pid, variable) == "1" and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(PROGRAM)]
        self.assertEqual(len(ranks), 1)
        os.kill(ranks[0], signal.SIGKILL)
        done = self.finish(job, 60)
        self.assertNotEqual(done.code, 0, done)
        self.assertEqual(self.left_behind(), [])

    def variable_of(self, pid, name):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                return dict(line.split("=", 1) for line in f.read().decode(errors="replace").split("\0") if "=" in line).get(name)
        except OSError:
            return None

    def refused(self, code, fragment, *words):
        """A rank's own code is in its output; the launcher returns it or one of its own."""
        done = self.launch(*words, timeout=60)
        self.assertNotEqual(done.code, 0, done)
        self.assertIn(fragment, done.out + done.err, done)
        self.assertEqual(done.code, code, done)
        self.assertEqual(self.left_behind(), [])


@unittest.skipUnless(OPENMPI, "no OpenMPI here: setup/test_launchers.sh installs its launcher")
class OpenMpi(MpiTest):
    def test_same_run(self):
        self.same_run("1x2x2", *OPENMPI_WORDS, "-n", "4")

    def test_two_jobs_at_once(self):
        self.two_jobs_at_once(*OPENMPI_WORDS, "-n", "2")

    def test_one_rank_is_no_launcher(self):
        self.one_rank_is_no_launcher(*OPENMPI_WORDS, "-n", "1")

    def test_wrong_number_of_ranks(self):
        self.refused(2, "there are 3 ranks", *OPENMPI_WORDS, "-n", "3", PROGRAM, *self.words("wrong", "2x1x2"))

    def test_contradiction(self):
        self.refused(2, "WORLD_SIZE=8 contradicts OMPI_COMM_WORLD_SIZE=2", *OPENMPI_WORDS, "-n", "2", "-x", "WORLD_SIZE=8", PROGRAM, *self.words("wrong", "2x1x1"))

    @needs_plugin("openmpi", "libopenmpi-dev")
    def test_same_numbers_over_mpi(self):
        self.same_numbers_over_mpi("2x2x1", *OPENMPI_WORDS, "-n", "4")

    @needs_plugin("openmpi", "libopenmpi-dev")
    def test_pipeline_over_mpi(self):
        self.same_numbers_over_mpi("1x1x2", *OPENMPI_WORDS, "-n", "2")

    @needs_plugin("openmpi", "libopenmpi-dev")
    def test_killed_rank_ends_the_job_over_mpi(self):
        self.killed_rank_ends_the_job("OMPI_COMM_WORLD_RANK", *OPENMPI_WORDS, "-n", "2")

    def test_two_nodes(self):
        reason = two_nodes.why_not()
        if reason:
            self.skipTest(reason)
        self.ok(*self.words("own", "2x1x2"), OMP_NUM_THREADS="1")
        with two_nodes.TwoNodes(self.environment()) as nodes:
            # Stands in for ssh: "agent HOST COMMAND".
            agent = write_text(self.path("agent.sh"), f"#!/bin/sh\nshift\nexec {shlex.join(nodes.command(1, ['sh', '-c'], self.folder))} \"$*\"\n")
            os.chmod(agent, 0o755)
            hosts = ",".join(f"{address}:2" for address in two_nodes.ADDRESSES)
            start = [OPENMPI, "-n", "4", "--host", hosts, "--mca", "plm_rsh_agent", agent, PROGRAM]
            done = self.launch(*nodes.command(0, [*start, *self.words("mpi", "2x1x2")], self.folder))
            self.assertEqual(done.code, 0, done)
            if has_plugin("openmpi"):
                over_mpi = self.launch(*nodes.command(0, [*start, *self.words("over_mpi", "2x1x2"), *OVER_MPI], self.folder))
                self.assertEqual(over_mpi.code, 0, over_mpi)
        self.assertIn(two_nodes.ADDRESSES[0], done.err)
        self.assert_like_own("mpi")
        if has_plugin("openmpi"):  # shared memory on each node, MPI or Gloo between: the same order of sums, so not one bit differs
            for name in ("loss", "grad_norm"):
                self.assertEqual([s[name] for s in self.metrics("over_mpi")[0]], [s[name] for s in self.metrics("mpi")[0]], name)
            self.assert_like_own("over_mpi")


@unittest.skipUnless(HYDRA, "no MPICH here: setup/test_launchers.sh installs its launcher")
class Mpich(MpiTest):
    def test_same_run(self):
        self.same_run("2x1x2", HYDRA, "-n", "4")

    def test_two_jobs_at_once(self):
        self.two_jobs_at_once(HYDRA, "-n", "2")

    def test_one_rank_is_no_launcher(self):
        self.one_rank_is_no_launcher(HYDRA, "-n", "1")

    def test_wrong_number_of_ranks(self):
        self.refused(2, "there are 3 ranks", HYDRA, "-n", "3", PROGRAM, *self.words("wrong", "2x1x2"))

    @needs_plugin("mpich", "libmpich-dev")
    def test_same_numbers_over_mpi(self):
        self.same_numbers_over_mpi("2x2x1", HYDRA, "-n", "4")

    @needs_plugin("mpich", "libmpich-dev")
    def test_pipeline_over_mpi(self):
        self.same_numbers_over_mpi("1x1x2", HYDRA, "-n", "2")

    @needs_plugin("mpich", "libmpich-dev")
    def test_killed_rank_ends_the_job_over_mpi(self):
        self.killed_rank_ends_the_job("PMI_RANK", HYDRA, "-n", "2")

    def test_two_nodes_need_an_address(self):
        """Two of Hydra's proxies on this machine, which it takes for two hosts."""
        hosts = [HYDRA, "-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-ppn", "1", "-n", "2"]
        self.refused(2, "MASTER_ADDR is not set", *hosts, PROGRAM, *self.words("none", "2x1x1"))
        self.ok(*self.words("own", "2x1x1"), OMP_NUM_THREADS="1")
        self.assertEqual(self.launch(*hosts, "-genv", "MASTER_ADDR", "127.0.0.1", "-genv", "MASTER_PORT", str(free_port()), PROGRAM, *self.words("mpi", "2x1x1")).code, 0)


class WithoutLauncher(MpiTest):
    """The wish for MPI is refused before any file is written."""

    def refused_without_launcher(self, who, **variables):
        done = self.run_plait(*self.words("none", "2x1x1"), *OVER_MPI, **variables)
        self.assertEqual(done.code, 2, done)
        self.assertIn(f"train.comm.backend mpi (command line) needs ranks that an MPI launcher starts (mpirun -n 2 plait train ..., or srun --mpi=pmix); here {who} "
                      "starts them; nearest valid value auto", done.last_line)
        self.assertFalse(os.path.exists(self.path("none")))

    def test_own_ranks(self):
        self.refused_without_launcher("plait itself")

    def test_other_launcher(self):
        self.refused_without_launcher("torchrun", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TORCHELASTIC_RUN_ID="7")

    def test_program_without_the_plugin(self):
        shutil.copy(PROGRAM, self.path("plait"))
        env = self.environment(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="0", OMPI_COMM_WORLD_LOCAL_SIZE="2",
                               MASTER_PORT=str(free_port()))
        done = self.finish(subprocess.Popen([self.path("plait"), *self.words("none", "2x1x1"), *OVER_MPI], cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), 60)
        self.assertEqual(done.code, 8, done)
        self.assertIn("train.comm.backend mpi needs the plugin libplait_openmpi.so", done.last_line)

    def test_one_rank_needs_nobody(self):
        self.ok(*self.words("one", "1x1x1"), *OVER_MPI)


if __name__ == "__main__":
    unittest.main()
