"""Two nodes on one machine: two network namespaces with host names of their own, joined by a cable (veth pair). Needs root.

They live as long as processes are in them: nothing is left on the machine, whatever happens to the test.
"""
import os
import shutil
import subprocess

ADDRESSES = ("10.213.7.1", "10.213.7.2")


def why_not():
    """The reason why this machine cannot have them, or None."""
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"no two nodes here: the program {tool} is missing"
    if os.geteuid() != 0:
        return "no two nodes here: network namespaces need root"
    probe = subprocess.run(["unshare", "--net", "--uts", "--", "sh", "-c", "hostname probe && ip link set lo up && ip link add e0 type veth peer name e1"],
                           capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no two nodes here: {probe.stderr.strip()}"


class TwoNodes:
    """with TwoNodes(environment) as nodes: subprocess.Popen(nodes.command(1, ["hostname"]))"""

    def __init__(self, environment):
        self.environment = environment
        self.holders = []

    def __enter__(self):
        try:
            for node in (0, 1):
                self.holders.append(subprocess.Popen(["unshare", "--net", "--uts", "--", "sh", "-c", f"hostname node{node} && ip link set lo up && echo ready && exec sleep 900"],
                                                     env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
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
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()

    def command(self, node, words):
        return ["nsenter", "-t", str(self.holders[node].pid), "--net", "--uts", "--", *words]

    def run(self, node, words):
        subprocess.run(self.command(node, words), check=True, timeout=20, stdin=subprocess.DEVNULL)
