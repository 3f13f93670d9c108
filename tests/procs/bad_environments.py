"""Environments in which no rank may start: (name, environment, exit code, words of the message). Each is refused before any socket is opened,
whatever the settings; test_refusal_table.py runs them."""

TORCH = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29487"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURM_NTASKS": "2",
         "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "2"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
           "OMPI_MCA_ess_base_jobid": "77"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
POD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


def without(environment, *names):
    return {name: value for name, value in environment.items() if name not in names}


BAD_ENVIRONMENTS = [
    ("RANK missing", without(TORCH, "RANK"), 2, ["RANK is not set", "WORLD_SIZE is set"]),
    ("WORLD_SIZE missing", without(TORCH, "WORLD_SIZE"), 2, ["WORLD_SIZE is not set", "RANK is set"]),
    ("LOCAL_RANK missing on one machine", without(TORCH, "LOCAL_RANK"), 2, ["LOCAL_RANK is not set"]),
    ("MASTER_ADDR empty", {**TORCH, "MASTER_ADDR": ""}, 2, ["MASTER_ADDR is empty"]),
    ("MASTER_PORT missing", without(TORCH, "MASTER_PORT"), 2, ["MASTER_PORT is not set"]),
    ("MASTER_PORT no port", {**TORCH, "MASTER_PORT": "295000"}, 2, ["MASTER_PORT=295000", "1 to 65535"]),
    ("RANK of another world", {**TORCH, "RANK": "2"}, 2, ["RANK=2", "below WORLD_SIZE 2"]),
    ("LOCAL_RANK beyond the node", {**TORCH, "LOCAL_RANK": "2"}, 2, ["LOCAL_RANK=2", "2"]),
    ("LOCAL_RANK above RANK", {**TORCH, "RANK": "0"}, 2, ["LOCAL_RANK=1 contradicts RANK=0"]),
    ("LOCAL_WORLD_SIZE above WORLD_SIZE", {**TORCH, "LOCAL_WORLD_SIZE": "4"}, 2, ["LOCAL_WORLD_SIZE=4", "at most WORLD_SIZE 2"]),
    ("WORLD_SIZE in words", {**TORCH, "WORLD_SIZE": "two"}, 2, ["WORLD_SIZE=two", "not a whole number"]),
    ("restart count", {**TORCH, "TORCHELASTIC_RESTART_COUNT": "-1"}, 2, ["TORCHELASTIC_RESTART_COUNT=-1"]),
    ("time-out with a unit", {**TORCH, "PLAIT_RDZV_TIMEOUT": "10s"}, 2, ["PLAIT_RDZV_TIMEOUT=10s", "seconds"]),
    ("two secrets", {**TORCH, "PLAIT_SECRET_FD": "9", "PLAIT_SECRET_FILE": "/dev/null"}, 2, ["PLAIT_SECRET_FD=9 contradicts PLAIT_SECRET_FILE=/dev/null"]),
    ("secret that is no file", {**TORCH, "PLAIT_SECRET_FILE": "/nowhere/secret"}, 12, ["/nowhere/secret"]),
    ("Slurm and another WORLD_SIZE", {**SLURM, "WORLD_SIZE": "4"}, 2, ["WORLD_SIZE=4 contradicts SLURM_STEP_NUM_TASKS=2"]),
    ("Slurm and another RANK", {**SLURM, "RANK": "0"}, 2, ["RANK=0 contradicts SLURM_PROCID=1"]),
    ("Slurm node list cut off", {**SLURM, "SLURM_STEP_NODELIST": "n[1-2,0"}, 2, ["SLURM_STEP_NODELIST=n[1-2,0", "not closed"]),
    ("Slurm tasks do not add up", {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, 2, ["SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_STEP_NUM_TASKS says 2"]),
    ("Slurm rank beyond the step", {**SLURM, "SLURM_PROCID": "2"}, 2, ["SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=2"]),
    ("OpenMPI and another WORLD_SIZE", {**OPENMPI, "WORLD_SIZE": "8"}, 2, ["WORLD_SIZE=8 contradicts OMPI_COMM_WORLD_SIZE=2"]),
    ("OpenMPI without its size", without(OPENMPI, "OMPI_COMM_WORLD_SIZE"), 2, ["OMPI_COMM_WORLD_SIZE is not set"]),
    ("OpenMPI, several nodes, no address", {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, 2, ["MASTER_ADDR is not set", "mpirun"]),
    ("MPICH, several nodes, no address", {**MPICH, "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0"}, 2, ["MASTER_ADDR is not set", "-genv MASTER_ADDR"]),
    ("MPICH rank beyond its size", {**MPICH, "PMI_RANK": "2"}, 2, ["PMI_RANK=2", "PMI_SIZE=2"]),
    ("Kubeflow v1 pod that counts ranks", {**POD, "WORLD_SIZE": "16", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "8"}, 2, ["PET_NNODES=2", "RANK=1 is the pod's", "plait launch"]),
    ("Kubeflow v2 without a launcher", {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "h", "PET_MASTER_PORT": "29400"}, 2, ["PET_NNODES=2", "plait launch"]),
]
