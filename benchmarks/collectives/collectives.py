#!/usr/bin/env python3
"""Collectives of every backend on one machine, in turns, as one markdown table.

All backends' ranks stand ready at once, asleep at a socket of this program. For each operation and size it lets each backend run in turn
(A B C, B C A, ...) and takes the slowest rank's time. The values of every operation and size are checked once before.

  benchmarks/collectives/collectives.py                         2, 4 and 8 ranks, under 3 minutes on a quiet machine
  benchmarks/collectives/collectives.py --ranks 4 --sizes 4K,4M --rounds 21

Backends: gloo, shm, mpi (plait's own, over OpenMPI), openmpi (the library's own blocking calls, without plait), threads, nccl.
"""
import argparse
import datetime
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BACKENDS = ("gloo", "openmpi", "shm", "threads", "mpi", "nccl")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "ring", "barrier")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ANSWER_SECONDS = 300


def size_bytes(text):
    unit = UNITS.get(text[-1:].upper(), 1)
    number = text[:-1] if unit > 1 else text
    if not number.isdigit() or int(number) * unit < 256 or int(number) * unit % 256:
        raise argparse.ArgumentTypeError(f"size {text} is no multiple of 256 bytes, as 4K or 64M")
    return int(number) * unit


def size_text(size):
    for name, unit in reversed(UNITS.items()):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}iB"
    return f"{size} B"


def list_of(kind, known=None):
    def read(text):
        items = [kind(word) for word in text.split(",") if word]
        unknown = [item for item in items if known and item not in known]
        if unknown or not items:
            raise argparse.ArgumentTypeError(f"{text}: known are {', '.join(known)}" if known else f"{text} names nothing")
        return items
    return read


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Failed(Exception):
    pass


def mpirun_words(size):
    # Not bound to cores: with more ranks than cores nobody can be, and the other backends are not either.
    return [shutil.which("mpirun.openmpi") or shutil.which("mpirun") or "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(size)]


def why_not(backend, size, build):
    """Why a backend cannot run here with so many ranks, or ""."""
    if backend in ("mpi", "openmpi"):
        if not os.path.exists(f"{build}/plait_bench_mpi_direct") or not (shutil.which("mpirun.openmpi") or shutil.which("mpirun")):
            return "no OpenMPI here (setup/test_launchers.sh installs it; then build again)"
    if backend == "nccl":
        devices = len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()])
        if devices < size:
            return f"{devices} CUDA devices here, {size} ranks need {size}" if devices else "no CUDA device here"
    return ""


def commands(backend, size, build, control, port):
    program = [f"{build}/plait_bench_collectives", backend, str(size), control, str(port)]
    if backend == "openmpi":
        return [[*mpirun_words(size), f"{build}/plait_bench_mpi_direct", control]]
    if backend == "mpi":
        return [[*mpirun_words(size), *program]]
    if backend == "threads":
        return [program]
    return [[*program, str(rank)] for rank in range(size)]


class Ranks:
    """The processes of one backend, and the sockets to their ranks."""

    def __init__(self, backend, size, build, folder):
        self.backend, self.size, self.lines = backend, size, {}
        path = os.path.join(folder, f"{backend}{size}")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(size)
            listener.settimeout(0.5)
            environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            self.log = open(path + ".log", "w+")
            self.processes = [subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
                              for words in commands(backend, size, build, path, free_port())]
            end = time.monotonic() + 60
            while len(self.lines) < size:
                try:
                    connection = listener.accept()[0]
                except TimeoutError:
                    if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                        raise Failed(f"{backend}: its ranks did not start: {self.last_words()}") from None
                    continue
                connection.settimeout(ANSWER_SECONDS)
                stream = connection.makefile("rw")
                self.lines[int(stream.readline().split()[1])] = stream

    def last_words(self):
        self.log.seek(0)
        return " | ".join(self.log.read().strip().splitlines()[-3:])

    def ask(self, *words):
        """All ranks do it; the slowest one's seconds."""
        for stream in self.lines.values():
            stream.write(" ".join(map(str, words)) + "\n")
            stream.flush()
        seconds = []
        for rank, stream in sorted(self.lines.items()):
            answer = stream.readline().strip()
            if not answer or answer.startswith("error"):
                raise Failed(f"{self.backend}, rank {rank} of {self.size}, {' '.join(map(str, words))}: {answer or self.last_words()}")
            seconds.append(float(answer))
        return max(seconds)

    def end(self):
        for stream in self.lines.values():
            try:
                stream.write("end\n")
                stream.flush()
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
        self.log.close()


def measure(all_ranks, operation, size, rounds, round_seconds, cell_seconds):
    """backend -> microseconds of a call, one number a round."""
    calls = {}
    for ranks in all_ranks:
        ranks.ask("check", operation, size)
        # The first calls of an operation may be slow by far: twice, and the second time several.
        seconds, n = ranks.ask("time", operation, size, 1), 1
        if seconds < round_seconds:
            n = min(50, int(round_seconds / seconds) + 1)
            seconds = min(seconds, ranks.ask("time", operation, size, n) / n)
        calls[ranks.backend] = max(1, min(2000, int(round_seconds / max(seconds, 1e-6))))
    times, begin = {ranks.backend: [] for ranks in all_ranks}, time.monotonic()
    for i in range(rounds):
        turn = i % len(all_ranks)
        for ranks in all_ranks[turn:] + all_ranks[:turn]:
            n = calls[ranks.backend]
            times[ranks.backend].append(ranks.ask("time", operation, size, n) / n * 1e6)
        if i >= 2 and time.monotonic() - begin > cell_seconds:
            break
    return times


def number(us):
    return f"{us:.1f}" if us < 100 else f"{us:.0f}" if us < 10000 else f"{us / 1000:.1f}k"


def row(n, operation, size, times, backends):
    cells = [f"{number(statistics.median(times[b]))} ({number(min(times[b]))})" if b in times else "-" for b in backends]

    def ratio(other, own):
        if other not in times or own not in times:
            return "-"
        return f"{statistics.median(times[other]) / statistics.median(times[own]):.2f}"
    turns = max((len(t) for t in times.values()), default=0)
    ratios = [ratio(*pair) for pair in (("gloo", "shm"), ("openmpi", "shm"), ("mpi", "shm"), ("gloo", "mpi"), ("openmpi", "mpi"))]
    return [n, operation, size, turns, *cells, *ratios]


def machine_line():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = int(open("/proc/meminfo").readline().split()[1]) / (1 << 20)
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


def build_programs(build):
    if not os.path.exists(f"{build}/build.ninja"):
        sys.exit(f"error: no build in {build}: run setup/build.sh plait first")
    done = subprocess.run(["cmake", "--build", build, "--target", "plait_bench_collectives"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: the benchmark's programs could not be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=list_of(int), default=[2, 4, 8], help="numbers of ranks, 2,4,8")
    parser.add_argument("--sizes", type=list_of(size_bytes), default=[size_bytes(s) for s in ("4K", "256K", "4M", "64M")],
                        help="bytes of the whole tensor: all_gather's output, reduce_scatter's input, a ring's message to each rank")
    parser.add_argument("--operations", type=list_of(str, OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--backends", type=list_of(str, BACKENDS), default=list(BACKENDS))
    parser.add_argument("--rounds", type=int, default=7, help="turns of every backend; large sizes stop after --cell-seconds, with 3 at least")
    parser.add_argument("--round-seconds", type=float, default=0.012, help="about how long one turn lasts")
    parser.add_argument("--cell-seconds", type=float, default=1.0)
    parser.add_argument("--build", default=f"{ROOT}/build", help="build folder")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are")
    options = parser.parse_args()
    if options.rounds < 1 or min(options.ranks) < 2:
        parser.error("--rounds is at least 1, --ranks at least 2")
    return options


def main():
    options = arguments()
    if not options.no_build:
        build_programs(options.build)
    begin, load, notes, table = time.monotonic(), os.getloadavg()[0], [], []
    for n in options.ranks:
        with tempfile.TemporaryDirectory(prefix="plait-collectives-") as folder:
            all_ranks = []
            try:
                for backend in options.backends:
                    reason = why_not(backend, n, options.build)
                    if reason:
                        notes.append(f"{backend}, {n} ranks: {reason}")
                    else:
                        all_ranks.append(Ranks(backend, n, options.build, folder))
                        all_ranks[-1].ask("resize", max(options.sizes))
                for operation in options.operations if all_ranks else ():
                    for size in sorted(options.sizes) if operation != "barrier" else (0,):
                        times = measure(all_ranks, operation, size, options.rounds, options.round_seconds, options.cell_seconds)
                        table.append(row(n, operation, size_text(size) if size else "-", times, options.backends))
                        print(f"{n} ranks, {operation} {table[-1][2]}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
            finally:
                for ranks in all_ranks:
                    ranks.end()
    columns = ["ranks", "operation", "size", "turns", *options.backends, "gloo / shm", "openmpi / shm", "mpi / shm", "gloo / mpi", "openmpi / mpi"]
    print(f"{datetime.date.today()}, {machine_line()}; load before {load:.1f}; {time.monotonic() - begin:.0f} s. Microseconds of a call, slowest rank: "
          "median (smallest) of the turns; ratios of medians, above 1: the second is faster. Values checked.\n")
    sys.stderr.flush()
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for cells in table:
        print("| " + " | ".join(map(str, cells)) + " |")
    for note in notes:
        print(f"\nNot run: {note}.", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"error: {failure}")
