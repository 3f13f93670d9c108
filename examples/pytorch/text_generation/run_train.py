"""Becomes `plait train ARGUMENTS`, so that commands written for a Python training script start plait; see docs/launchers.md.

    python3 -m torch.distributed.launch --nproc_per_node=8 examples/pytorch/text_generation/run_train.py --config CONFIG ...

The program: build/plait of this checkout, else plait in PATH.
"""
import os
import shutil
import sys

checkout = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
built = os.path.join(checkout, "build", "plait")
program = built if os.access(built, os.X_OK) else shutil.which("plait")
if not program:
    sys.exit(f"error: plait is not built: there is no {built}, and no plait in PATH. Build it with: {os.path.join(checkout, 'setup', 'build.sh')}")
os.execv(program, [program, "train", *sys.argv[1:]])
