"""make_inputs.py WORKLOAD NUM_ROWS FOLDER: what all programs train from.

FOLDER/model (config.json, model.safetensors: weights seeded by their names), FOLDER/rows.jsonl (token rows) and
FOLDER/rows.safetensors (the same rows, which the baselines read without parsing)."""
import json
import os
import sys
import zlib

import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from workloads import WORKLOADS, hugging_face_config, tensor_shapes  # noqa: E402


def seeded(name, shape):
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if "norm" in name.lower() or ".ln_" in name:
        return torch.ones(shape)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.empty(shape).normal_(0, 0.02, generator=generator)


def main():
    w, num_rows, folder = WORKLOADS[sys.argv[1]], int(sys.argv[2]), sys.argv[3]
    os.makedirs(f"{folder}/model", exist_ok=True)
    with open(f"{folder}/model/config.json", "w") as f:
        json.dump(hugging_face_config(w), f, indent=1)
    save_file({name: seeded(name, shape) for name, shape in tensor_shapes(w).items()}, f"{folder}/model/model.safetensors",
              metadata={"format": "pt"})
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, w["vocab"], (num_rows, w["length"]), generator=generator)  # 0 is BERT's padding
    rows = {"input_ids": ids}
    if "labels" in w:
        rows["labels"] = torch.randint(0, w["labels"], (num_rows,), generator=generator)
    save_file(rows, f"{folder}/rows.safetensors")
    with open(f"{folder}/rows.jsonl", "w") as f:
        for i in range(num_rows):
            row = {"input_ids": ids[i].tolist()}
            if "labels" in rows:
                row["labels"] = int(rows["labels"][i])
            f.write(json.dumps(row) + "\n")


main()
