#!/usr/bin/env python3
"""Who may include whom. Exit code 1 and one line a fault when the sources break the layer graph of docs/architecture.md.

usage: check_includes.py [REPOSITORY]

Checked in plait/, apps/, examples/ and tests/:
  - a layer includes only itself and what its arrows reach; a layer's tests likewise
  - no torch below the tensor line; <torch/torch.h> and torch/nn nowhere
  - c10d, Gloo, NCCL and MPI are named in plait/comm only
  - quoted includes are repository paths and exist; headers start with #pragma once
  - plait/CMakeLists.txt links along the same arrows, one target a folder
"""
import pathlib
import re
import sys

# Layer -> the layers it may include, besides everything that those reach.
ARROWS = {
    "base": [],
    "config": ["base"],
    "plan": ["config"],
    "rendezvous": ["config"],
    "elastic": ["rendezvous", "plan"],
    "tensor": ["plan"],
    "comm": ["tensor", "rendezvous", "plan"],
    "tensor_parallel": ["comm"],
    "model": ["tensor_parallel"],
    "pipeline_parallel": ["model"],
    "data_parallel": ["comm"],
    "optim": ["comm"],
    "checkpoint": ["comm"],
    "data": ["tensor"],
    "train": ["checkpoint", "pipeline_parallel", "data_parallel", "optim", "data"],
    "apps": ["train", "elastic"],
}
TORCH_FREE = ("base", "config", "plan", "rendezvous", "elastic")
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
COMM_HEADER = re.compile(r"^(torch/csrc/distributed/|gloo/|nccl|mpi\.h)")
COMM_NAME = re.compile(r"\b(c10d|gloo)::|\bnamespace (c10d|gloo)\b|\bProcessGroup(Gloo|NCCL|MPI)\b|\b(nccl[A-Z]\w*|MPI_[A-Z]\w*)\s*\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.M)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIGIT_SEPARATOR = re.compile(r"(?<=\d)'(?=\d)")


def reach(layer):
    """The layer itself and everything its arrows lead to."""
    found = {layer}
    for below in ARROWS[layer]:
        found |= reach(below)
    return found


def layer_of(path):
    """Layer whose rules hold for a file, or None where all layers may be used (examples, shared test code)."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] == "apps":
        return "apps"
    if parts[0] in ("plait", "tests") and len(parts) > 2:
        return parts[1]
    return None


def is_comm(path):
    return path.startswith(("plait/comm/", "tests/comm/"))


def check_file(path, text, exists):
    """Faults of one file, as messages without the path. `path` is relative to the repository, `exists` tells about another."""
    layer, faults = layer_of(path), []
    in_layers = layer in ARROWS
    if path.startswith("plait/") and not in_layers:
        return [f"folder plait/{layer} is not in the layer graph" if layer else "belongs into a layer's folder"]
    code = COMMENT_OR_TEXT.sub(lambda m: "\n" * m.group().count("\n") + " ", DIGIT_SEPARATOR.sub("", text))
    allowed = reach(layer) if in_layers else None
    for match in INCLUDE.finditer(text):
        system, quoted = match.groups()
        name = system or quoted
        where = f"line {text.count(chr(10), 0, match.start()) + 1}: "
        if name == "torch/torch.h" or name.startswith("torch/nn"):
            faults.append(f"{where}<{name}> costs 12-16 s a file: include the smallest torch header that works")
        elif layer in TORCH_FREE and TORCH_HEADER.match(name):
            faults.append(f"{where}<{name}>: {layer} stays free of torch")
        if COMM_HEADER.match(name) and not is_comm(path):
            faults.append(f"{where}<{name}> may be included in plait/comm only")
        if quoted is None:
            if name.startswith("plait/"):
                faults.append(f'{where}write "{name}", not <{name}>')
            continue
        if not exists(name) and not (is_comm(path) and name.startswith("gloo/")):
            faults.append(f'{where}"{name}" is no path from the repository root')
        target = layer_of(name)
        if allowed is not None and name.startswith("plait/") and target not in allowed:
            faults.append(f"{where}{layer} may not include {target} (\"{name}\"); allowed: {', '.join(sorted(allowed - {layer}))}")
    if not is_comm(path):
        for match in COMM_NAME.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            faults.append(f"line {line}: {match.group().strip()} is named outside plait/comm")
    if path.endswith(".h") and not re.match(r"(//[^\n]*\n|\s)*#pragma once", text):
        faults.append("header without #pragma once after its opening comment")
    return faults


def check_cmake(text):
    """Faults of plait/CMakeLists.txt."""
    faults = []
    for layer, words in re.findall(r"^\s*plait_layer\((\w+)([^)]*)\)", text, re.M):
        if layer not in ARROWS:
            faults.append(f"layer {layer} is not in the layer graph")
            continue
        if ("TORCH" in words.split()) != (layer not in TORCH_FREE):
            faults.append(f"layer {layer}: TORCH {'is missing' if layer not in TORCH_FREE else 'does not belong here'}")
        for dep in re.findall(r"\bplait_(\w+)", words):
            if dep in ARROWS and dep not in reach(layer):
                faults.append(f"layer {layer} may not link plait_{dep}")
    return faults


def main(root):
    root = pathlib.Path(root)
    faults, count = [], 0
    for folder in ("plait", "apps", "examples", "tests"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".cu") or "gloo_abi" in file.parts:  # gloo_abi: declarations of a foreign library
                continue
            count += 1
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            faults += [f"{path}: {fault}" for fault in check_file(path, text, lambda name: (root / name).is_file())]
    cmake = root / "plait/CMakeLists.txt"
    if cmake.is_file():
        faults += [f"plait/CMakeLists.txt: {fault}" for fault in check_cmake(cmake.read_text(encoding="utf-8"))]
    print("\n".join(faults) if faults else f"includes: {count} files keep to the layers")
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
