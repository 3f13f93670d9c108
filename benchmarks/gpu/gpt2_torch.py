"""PyTorch's sides of the speed check: GPT-2, bfloat16 autocast over fp32 weights, fused AdamW, clipping, one device; eager or compiled.

usage: gpt2_torch.py SIZE eager|compiled ROWS.jsonl STEPS [--device cpu] [--weights FILE]

Says "ready", then for each line that it reads trains STEPS steps from the first row on and prints their seconds, losses and gradient norms as one
JSON object; the weights stay as they became. Compilation falls into the first steps of the first turn. --weights: first writes the weights it
begins with, in Hugging Face's names and layout, so that plait begins with the same."""
import argparse
import ctypes
import json
import struct
import sys
import time

import torch
import torch.nn.functional as F
from figures import SHAPES
from torch import nn

STORED_NAMES = dict(norm1="ln_1", norm2="ln_2", qkv="attn.c_attn", out="attn.c_proj", up="mlp.c_fc", down="mlp.c_proj")


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, self.heads, h // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden = shape["hidden"]
        self.words, self.places = nn.Embedding(shape["vocab"], hidden), nn.Embedding(shape["length"], hidden)
        self.blocks, self.norm = nn.ModuleList(Block(hidden, shape["heads"]) for _ in range(shape["layers"])), nn.LayerNorm(hidden)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, ids):
        """Mean cross entropy of each next token."""
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x)[:, :-1], self.words.weight)  # the last token has no target
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def stored(model):
    """Name -> weight, as Hugging Face stores them: linear layers transposed."""
    found = {"transformer.wte.weight": model.words.weight, "transformer.wpe.weight": model.places.weight,
             "transformer.ln_f.weight": model.norm.weight, "transformer.ln_f.bias": model.norm.bias}
    for name, p in model.blocks.named_parameters():
        layer, module, kind = name.split(".")
        found[f"transformer.h.{layer}.{STORED_NAMES[module]}.{kind}"] = p.T if p.dim() == 2 else p
    return found


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, t in tensors.items():
        header[name] = dict(dtype="F32", shape=list(t.shape), data_offsets=[end, end + t.nbytes])
        end += t.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            t = t.detach().contiguous()
            f.write(ctypes.string_at(t.data_ptr(), t.nbytes))


def take_turn(model, optimizer, ids, steps, rows):
    seconds, losses, norms = [], [], []
    for step in range(steps):
        begin = time.perf_counter()
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = model(ids[step * rows:(step + 1) * rows])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        norms.append(norm)
    return dict(step_seconds=seconds, losses=losses, gradient_norms=[n.item() for n in norms])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", choices=SHAPES)
    p.add_argument("side", choices=["eager", "compiled"])
    p.add_argument("rows")
    p.add_argument("steps", type=int)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--weights")
    args = p.parse_args()
    shape = SHAPES[args.size]
    torch.manual_seed(0)
    model = Gpt2(shape)  # on the CPU: both sides draw the same weights
    if args.weights:
        write_safetensors(args.weights, stored(model))
    model.to(args.device)
    with open(args.rows) as f:
        ids = torch.tensor([json.loads(line)["input_ids"] for line in f], device=args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    if args.side == "compiled":
        model = torch.compile(model)
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(take_turn(model, optimizer, ids, args.steps, shape["rows"])), flush=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()  # the others' turn: keep the weights and the optimizer's state only


main()
