"""Ranks started by a real Slurm of two nodes (namespaces of this machine; setup/test_launchers.sh installs Debian's packages): srun, a batch script,
two steps of one job at once, other launchers inside a job."""
import os
import shutil
import subprocess
import time
import unittest

import tiny
import two_nodes
from hugging_face_venv import venv_python
from program import PROGRAM, ProgramTest, layout_flags, write_text

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc")
# Names that no resolver of the machine knows; each node claims 8 cores whatever the machine has.
CONFIGURATION = """
ClusterName=plait
SlurmctldHost=node0({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0
ReturnToService=2
KillWait=2
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=node0 NodeAddr={addresses[0]} CPUs=8
NodeName=node1 NodeAddr={addresses[1]} CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class SlurmTest(ProgramTest):
    def setUp(self):
        super().setUp()
        missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
        reason = f"no Slurm here ({', '.join(missing)}): setup/test_launchers.sh installs it" if missing else two_nodes.why_not()
        if reason:
            self.skipTest(reason)
        self.slurm = self.path("slurm")
        os.chmod(self.folder, 0o755)  # munge wants to be reached
        for name in ("slurm", "slurm/state", "slurm/spool.node0", "slurm/spool.node1"):
            os.mkdir(self.path(name))
        write_text(os.path.join(self.slurm, "slurm.conf"), CONFIGURATION.format(folder=self.slurm, addresses=two_nodes.ADDRESSES))
        with open(os.path.join(self.slurm, "munge.key"), "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(os.urandom(128))
        self.env = self.environment(OMP_NUM_THREADS="1", SLURM_CONF=os.path.join(self.slurm, "slurm.conf"), OMPI_ALLOW_RUN_AS_ROOT="1",
                                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.env["PATH"] += ":/usr/sbin"
        self.daemons = []
        self.addCleanup(self.stop_daemons)
        self.nodes = two_nodes.TwoNodes(self.env)
        self.nodes.__enter__()
        self.addCleanup(self.nodes.__exit__)
        at = lambda name: os.path.join(self.slurm, name)
        self.daemon(["munged", "--foreground", "--force", f"--key-file={at('munge.key')}", f"--socket={at('munge.socket')}", f"--pid-file={at('munge.pid')}",
                     f"--log-file={at('munge.log')}", f"--seed-file={at('munge.seed')}"])
        self.daemon(self.nodes.command(0, ["slurmctld", "-D"]))
        for node in (0, 1):
            self.daemon(self.nodes.command(node, ["slurmd", "-D", "-N", f"node{node}"]))
        self.wait_for_idle_nodes()

    def daemon(self, words):
        with open(os.path.join(self.slurm, "daemons.txt"), "a", encoding="utf-8") as log:
            self.daemons.append(subprocess.Popen(words, env=self.env, cwd=self.slurm, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def stop_daemons(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def wait_for_idle_nodes(self):
        end = time.monotonic() + 60
        while True:
            seen = subprocess.run(self.nodes.command(0, ["sinfo", "-h", "-o", "%T %D"]), env=self.env, capture_output=True, text=True, timeout=60)
            if seen.stdout.split() == ["idle", "2"]:
                return
            if time.monotonic() > end:
                with open(os.path.join(self.slurm, "daemons.txt"), encoding="utf-8") as f:
                    self.fail(f"Slurm does not come up: {seen.stdout} {seen.stderr}\n{f.read()[-4000:]}")
            time.sleep(0.1)

    def words(self, work_dir, layout):
        rows = self.path("rows.jsonl")
        if not os.path.exists(rows):
            tiny.bert_rows(rows, 20)
        return [PROGRAM, "train", "--model", tiny.BERT, "--train_file", rows, "--valid_file", rows, "--set", "train.batch_size=8", "--set", "train.max_epochs=1",
                "--work_dir", self.path(work_dir), *layout_flags(layout)]

    def launch(self, *words, timeout=180, **env):
        """Runs the words on node0."""
        process = subprocess.Popen(self.nodes.command(0, words, self.folder), cwd=self.folder, env=dict(self.env, **env), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        return self.finish(process, timeout)

    def launched(self, *words, **env):
        done = self.launch(*words, **env)
        self.assertEqual(done.code, 0, done)
        return done

    def same_run(self, work_dir, layout):
        self.ok(*self.words("own", layout)[1:], OMP_NUM_THREADS="1")
        own, here = self.metrics("own"), self.metrics(work_dir)
        self.assertEqual([s["step"] for s in here[0]], [1, 2, 3])
        self.assert_same_losses(here[0], own[0], 1e-6, work_dir)
        self.assert_close([here[1][0]["eval_loss"]], [own[1][0]["eval_loss"]], 1e-6)


class Slurm(SlurmTest):
    def test_srun_on_two_nodes(self):
        """Four tasks that Slurm lays out as 3 and 1."""
        secret = write_text(self.path("secret"), "of this job")
        os.chmod(secret, 0o600)
        done = self.launched("srun", "-N2", "-n4", *self.words("step", "1x2x2"), PLAIT_SECRET_FILE=secret)
        self.assertNotIn("no secret", done.err)
        self.assertEqual(done.err.count("training 3 steps"), 1, "only rank 0 speaks\n" + str(done))
        self.same_run("step", "1x2x2")

    def test_two_steps_of_a_job_at_once(self):
        step = lambda i: f"srun --mpi=pmi2 --overlap -N2 -n2 {' '.join(self.words(f'step{i}', '2x1x1'))}"
        script = write_text(self.path("steps.sh"), f"#!/bin/sh\n{step(0)} & first=$!\n{step(1)}\nsecond=$?\nwait $first && exit $second\n")
        os.chmod(script, 0o755)
        self.launched("salloc", "-N2", "-n4", script)
        self.assertEqual(self.metrics("step0")[0][-1]["loss"], self.metrics("step1")[0][-1]["loss"])

    def test_messages_over_mpi(self):
        """srun itself starts MPICH's ranks: two on each node."""
        if not os.path.exists(os.path.join(os.path.dirname(PROGRAM), "libplait_mpich.so")):
            self.skipTest("libplait_mpich.so is not built: setup/test_launchers.sh installs libmpich-dev")
        over_mpi = ["--set", "train.comm.backend=mpi"]
        self.launched("srun", "--mpi=pmi2", "-N2", "-n4", "--ntasks-per-node=2", *self.words("step", "2x2x1"), *over_mpi)
        self.same_run("step", "2x2x1")
        done = self.launch("srun", "-N2", "-n4", *self.words("none", "2x2x1"), *over_mpi, timeout=60)
        self.assertEqual(done.code, 2, done)
        self.assertIn("here Slurm starts them; nearest valid value auto", done.err, done)

    def test_a_batch_script_without_srun_starts_its_own_ranks(self):
        script = write_text(self.path("batch.sh"), f"#!/bin/sh\ncd {self.folder}\n{' '.join(self.words('batch', '1x2x1'))}\n")
        done = self.launch("sbatch", "--wait", "-N2", "-n4", "-o", self.path("batch.txt"), script)
        with open(self.path("batch.txt"), encoding="utf-8") as f:
            self.assertEqual(done.code, 0, f"{done}\n{f.read()}")
        self.assertTrue(os.path.exists(self.path("batch", "logs", "rank_1.log")))

    def test_one_task_starts_its_own_ranks(self):
        self.launched("srun", "-n1", *self.words("one", "1x2x1"))
        self.assertTrue(os.path.exists(self.path("one", "logs", "rank_1.log")))

    def test_refusals(self):
        for words, env, fragment in ((["-n3"], {}, "there are 3 ranks"), (["-n2"], {"WORLD_SIZE": "8"}, "WORLD_SIZE=8 contradicts SLURM_STEP_NUM_TASKS=2")):
            done = self.launch("srun", *words, *self.words("wrong", "2x1x2"), timeout=60, **env)
            self.assertEqual(done.code, 2, done)
            self.assertIn(fragment, done.err, done)

    def test_torchrun_in_a_step(self):
        python = venv_python()
        if not python:
            self.skipTest("no .venv-test here: setup/test_venv.sh makes it (4 GB)")
        torchrun = os.path.join(os.path.dirname(python), "torchrun")
        done = self.launched("srun", "-N2", "-n2", "--ntasks-per-node=1", "sh", "-c",
                             f'exec {torchrun} --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=2 --master_addr=node0 --master_port=29500 --no-python "$@"', "sh",
                             *self.words("torchrun", "2x1x2"))
        self.assertIn("torchrun runs inside Slurm: the inner one counts (WORLD_SIZE=4, not SLURM_STEP_NUM_TASKS=2)", done.err, done)
        self.same_run("torchrun", "2x1x2")

    def test_openmpi_in_a_job(self):
        """Its mpirun starts a daemon a node by srun; the ranks see both launchers' variables."""
        if not shutil.which("mpirun.openmpi"):
            self.skipTest("no OpenMPI here: setup/test_launchers.sh installs its launcher")
        self.launched("salloc", "-N2", "-n4", "mpirun.openmpi", "-n", "4", *self.words("mpi", "2x1x2"))
        self.same_run("mpi", "2x1x2")

    def test_mpich_in_a_job(self):
        if not shutil.which("mpiexec.hydra"):
            self.skipTest("no MPICH here: setup/test_launchers.sh installs its launcher")
        self.launched("salloc", "-N2", "-n4", "mpiexec.hydra", "-n", "4", "-genv", "MASTER_ADDR", "node0", "-genv", "MASTER_PORT", "29500", *self.words("mpi", "2x1x2"))
        self.same_run("mpi", "2x1x2")


if __name__ == "__main__":
    unittest.main()
