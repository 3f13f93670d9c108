"""Two nodes, node0 and node1, on one machine: network namespaces with host names of their own, joined by a cable (veth pair), and an
/etc/hosts that knows both. Needs root.

They live as long as processes are in them; at the end all of these are killed, and nothing is left on the machine.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

ADDRESSES = ("10.213.7.1", "10.213.7.2")
KINDS = ["--net", "--uts", "--mount"]


def why_not():
    """The reason why this machine cannot have them, or None."""
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"no two nodes here: the program {tool} is missing"
    if os.geteuid() != 0:
        return "no two nodes here: network namespaces need root"
    probe = subprocess.run(["unshare", *KINDS, "--", "sh", "-c", "hostname probe && ip link set lo up && ip link add e0 type veth peer name e1 && mount --bind /etc/hosts /etc/hosts"],
                           capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no two nodes here: {probe.stderr.strip()}"


def network_of(pid):
    """Identity of the network namespace of a process, None when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


class TwoNodes:
    """with TwoNodes(environment) as nodes: subprocess.Popen(nodes.command(1, ["hostname"]))"""

    def __init__(self, environment):
        self.environment = environment
        self.holders = []

    def __enter__(self):
        folder = tempfile.mkdtemp(prefix="plait-nodes-")
        try:
            hosts = os.path.join(folder, "hosts")
            with open(hosts, "w", encoding="utf-8") as f:
                f.write("127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{address} node{i}\n" for i, address in enumerate(ADDRESSES)))
            for node in (0, 1):
                script = f"hostname node{node} && ip link set lo up && mount --bind {hosts} /etc/hosts && echo ready && exec sleep 900"
                self.holders.append(subprocess.Popen(["unshare", *KINDS, "--", "sh", "-c", script], env=self.environment,
                                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
            for holder in self.holders:
                if holder.stdout.readline() != "ready\n":
                    raise RuntimeError("no namespaces")
            self.run(0, ["ip", "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", str(self.holders[1].pid)])
            for node, address in enumerate(ADDRESSES):
                self.run(node, ["ip", "address", "add", f"{address}/24", "dev", "e0"])
                self.run(node, ["ip", "link", "set", "e0", "up"])
        except BaseException:
            self.__exit__()
            raise
        finally:
            shutil.rmtree(folder)  # the mounts keep the file
        return self

    def __exit__(self, *_):
        # Also those that hide their environment from the test's mark (slurmstepd), and what they start meanwhile.
        own = {os.readlink("/proc/self/ns/net")}
        namespaces = {link for link in (network_of(holder.pid) for holder in self.holders) if link} - own
        for _ in range(20):
            inside = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if network_of(pid) in namespaces]
            inside = [pid for pid in inside if pid not in [holder.pid for holder in self.holders]]
            for pid in inside:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not inside:
                break
            time.sleep(0.05)
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()

    def command(self, node, words, cwd="."):
        return ["nsenter", "-t", str(self.holders[node].pid), *KINDS, "--", "sh", "-c", 'cd "$0" && exec "$@"', os.path.abspath(cwd), *words]

    def run(self, node, words):
        subprocess.run(self.command(node, words), check=True, timeout=20, stdin=subprocess.DEVNULL)
