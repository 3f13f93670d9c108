"""The Python of .venv-test (torch, transformers; setup/test_venv.sh), for tests that need them."""
import os
import subprocess

from program import ROOT


def venv_python():
    """Its path; None when it is not there and nobody asked to make it (PLAIT_TEST_VENV=1: 4 GB, several minutes)."""
    path = os.path.join(ROOT, ".venv-test", "bin", "python")
    made = os.path.isdir(os.path.join(ROOT, ".venv-test")) and any(n.startswith("installed-") for n in os.listdir(os.path.join(ROOT, ".venv-test")))
    if made:
        return path
    if os.environ.get("PLAIT_TEST_VENV") != "1":
        return None
    done = subprocess.run([os.path.join(ROOT, "setup", "test_venv.sh")], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise RuntimeError(f"setup/test_venv.sh failed: {done.stderr}")
    return done.stdout.strip().splitlines()[-1]
