"""gpt2_torch.py ROWS.jsonl STEPS: PyTorch's side of the speed check. GPT-2 small, bfloat16 autocast over fp32 weights, fused AdamW,
clipping, one device. Prints the seconds of each step and its loss as one JSON object."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HIDDEN, HEADS, VOCAB, LENGTH, ROWS = 12, 768, 12, 50257, 1024, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, HEADS, h // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(LENGTH, HIDDEN)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(HIDDEN)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


def main():
    rows = [json.loads(line)["input_ids"] for line in open(sys.argv[1])]
    ids = torch.tensor(rows, device="cuda")
    torch.manual_seed(0)
    model = Gpt2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    seconds, losses = [], []
    for step in range(int(sys.argv[2])):
        begin = time.perf_counter()
        batch = ids[step * ROWS:(step + 1) * ROWS]
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(batch)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_seconds": seconds, "losses": losses}))


main()
