"""Runs one program and watches it from outside: step times, start-up, memory of each process, CPU that others used."""
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import time


def text_of(path):
    with open(path, errors="replace") as f:
        return f.read()


def machine_busy_seconds():
    fields = [int(x) for x in text_of("/proc/stat").split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def tree(pid):
    """pid and everything it started."""
    found = [pid]
    for p in found:
        try:
            for task in os.listdir(f"/proc/{p}/task"):
                found += [int(c) for c in text_of(f"/proc/{p}/task/{task}/children").split()]
        except OSError:
            pass
    return found


class Memory:
    """Highest megabytes of every process seen: resident (the kernel's own high-water mark), and without files (sampled): anonymous and shared
    memory, of which a page that several processes have mapped counts at each of them."""

    def __init__(self):
        self.resident, self.own = {}, {}

    def look(self, roots):
        for root in roots:
            for pid in tree(root):
                try:
                    status = dict(line.split(":", 1) for line in text_of(f"/proc/{pid}/status").splitlines() if line.startswith(("VmHWM", "Rss")))
                    resident, anonymous, shared = (int(status[k].split()[0]) / 1024 for k in ("VmHWM", "RssAnon", "RssShmem"))
                except (OSError, KeyError, ValueError):
                    continue  # it has just ended
                self.resident[pid] = max(resident, self.resident.get(pid, 0))
                self.own[pid] = max(anonymous + shared, self.own.get(pid, 0))


def watch(processes, first_step_seen, timeout_s):
    """Until all have ended. Returns (memory, seconds from the call to the end of the first step or None). Ends all when one fails."""
    memory, begin, started, looked = Memory(), time.time(), None, 0.0
    roots = [p.pid for p in processes]
    while any(p.poll() is None for p in processes):
        now = time.time()
        if started is None and first_step_seen():
            started = now - begin
        if now - looked > 0.25:
            memory.look(roots)
            looked = now
        if any(p.poll() not in (None, 0) for p in processes) or now - begin > timeout_s:
            time.sleep(2)
            for p in processes:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            break
        time.sleep(0.01 if started is None else 0.05)
    for p in processes:
        p.wait()
    return memory, started


class Sample:
    """What one run gave."""

    def __init__(self, step_seconds, losses, startup, memory, foreign_cores, extra=None):
        self.step_seconds, self.losses, self.startup, self.foreign_cores, self.extra = step_seconds, losses, startup, foreign_cores, extra or {}
        self.step = statistics.median(step_seconds)
        self.resident_max, self.resident_sum = max(memory.resident.values()), sum(memory.resident.values())
        self.memory_max, self.memory_sum = max(memory.own.values()), sum(memory.own.values())


class Failed(Exception):
    pass


class Load:
    """CPU that processes not of ours used meanwhile, in cores."""

    def __enter__(self):
        self.begin, self.busy, self.own = time.time(), machine_busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_):
        used = machine_busy_seconds() - self.busy - (own_seconds() - self.own)
        self.foreign_cores = max(0.0, used / (time.time() - self.begin))


def tail(path):
    return " | ".join(text_of(path).strip().splitlines()[-4:])


def run_plait(binary, row, inputs, folder, steps, warmup, timeout_s, mfu=False):
    """`mfu`: let it measure the machine's rate of matrix products first; such a run says nothing about its start."""
    w, sizes = row.w, row.sizes
    settings = dict(
        task="text-classification" if "labels" in w else "text-generation", model=dict(path=f"{inputs}/model", init="pretrained"),
        dataset=dict(train=dict(file=f"{inputs}/rows.jsonl")), preprocessor=dict(sequence_length=w["length"]),
        train=dict(work_dir=f"{folder}/work", max_steps=steps, shuffle=False, dropout=0, clip_grad=row.clip, batch_size=w["rows"], progress_bar=False,
                   dtype={"fp32": "float32", "bf16": "bfloat16"}[row.dtype], device="cpu", lr_scheduler=dict(type="constant"),
                   profile=dict(mfu=mfu), optimizer=dict(type="AdamW", params=dict(lr=w["lr"], weight_decay=row.weight_decay, decay_all=True)),
                   distributed=dict(data_parallel_size=sizes["dp"], model_parallel_size=sizes["tp"], pipeline_parallel_size=sizes["pp"],
                                    gradient_accumulation_steps=row.micro_batches)),
        evaluation=dict(period=dict(eval_strategy="no")))
    with open(f"{folder}/settings.json", "w") as f:
        json.dump(settings, f)
    metrics = f"{folder}/work/metrics.jsonl"
    env = dict(os.environ, OMP_NUM_THREADS=str(row.threads))
    with Load() as load, open(f"{folder}/out", "w") as out:
        process = subprocess.Popen([binary, "train", f"{folder}/settings.json"], stdout=out, stderr=out, env=env, start_new_session=True)
        memory, startup = watch([process], lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, timeout_s)
    if process.returncode != 0:
        raise Failed(f"plait ended with {process.returncode}: {tail(f'{folder}/out')}")
    lines = [json.loads(line) for line in text_of(metrics).splitlines()]
    lines = [line for line in lines if "loss" in line]
    parts = {}
    for name in lines[-1]:
        if name.endswith("_seconds") and name != "step_seconds":
            parts[name] = statistics.mean(line[name] for line in lines[warmup:])
    if mfu:
        parts["mfu"] = statistics.median(line["mfu"] for line in lines[warmup:])
    parts["mean_step_seconds"] = statistics.mean(line["step_seconds"] for line in lines[warmup:])
    return Sample([line["step_seconds"] for line in lines[warmup:]], [line["loss"] for line in lines], startup, memory, load.foreign_cores, parts)


# glibc told to keep freed memory and to use 2 MiB pages: PyTorch at its best on small steps (README.md).
THP = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:glibc.malloc.top_pad=67108864:"
                         "glibc.malloc.arena_max=1", "THP_MEM_ALLOC_ENABLE": "1"}


def run_peer(python, row, peer, inputs, folder, steps, warmup, timeout_s, malloc):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "run.py")
    sizes, world = row.sizes, row.world
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
               MKL_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", **(THP if malloc == "thp" else {}))
    command = [python, program, peer, "--workload", row.workload, "--dtype", row.dtype, "--inputs", inputs, "--out", folder, "--steps", str(steps),
               "--micro_batches", str(row.micro_batches)] + [x for k in ("dp", "tp", "pp") for x in (f"--{k}", str(sizes[k]))]
    begin, processes = time.time(), []
    with Load() as load:
        for rank in range(world):
            out = open(f"{folder}/{rank}.out", "w")
            processes.append(subprocess.Popen(command, env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=out, stderr=out,
                                              start_new_session=True))
            out.close()
        memory, _ = watch(processes, lambda: True, timeout_s)
    for rank, p in enumerate(processes):
        if p.returncode != 0:
            raise Failed(f"{peer} rank {rank} ended with {p.returncode}: {tail(f'{folder}/{rank}.out')}")
    ranks = [json.loads(text_of(f"{folder}/{rank}.json")) for rank in range(world)]
    ends = ranks[0]["ends"]
    step_seconds = [b - a for a, b in zip(ends[warmup - 1:], ends[warmup:])]
    losses = [[x for x in step if x is not None] for step in zip(*(r["losses"] for r in ranks))]
    losses = [sum(step) / len(step) for step in losses]
    return Sample(step_seconds, losses, max(r["ends"][0] for r in ranks) - begin, memory, load.foreign_cores)
