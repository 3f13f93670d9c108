#!/usr/bin/env python3
"""Writes adam.json: weights after each of six updates of torch.optim.Adam (2.11.0) with weight decay, for optimizer_test.cpp.

{"start", "gradients": [a list an update], "scale", "lr": [an update], "beta1", "beta2", "eps", "weight_decay", "weights": [a list an update]}
in float64; a gradient counts as gradient * scale, as after clipping."""
import json
import math
import os

import torch

N, STEPS = 41, 6
record = {"start": [math.sin(1.7 * i + 0.3) for i in range(N)],
          "gradients": [[0.3 * math.sin(12.9898 * i + 78.233 * (s + 1)) for i in range(N)] for s in range(STEPS)],
          "scale": 0.37, "lr": [1e-2 * (s + 1) for s in range(STEPS)], "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.3, "weights": []}
weight = torch.nn.Parameter(torch.tensor(record["start"], dtype=torch.float64))
optimizer = torch.optim.Adam([weight], betas=(record["beta1"], record["beta2"]), eps=record["eps"], weight_decay=record["weight_decay"])
for lr, gradient in zip(record["lr"], record["gradients"]):
    optimizer.param_groups[0]["lr"] = lr
    weight.grad = torch.tensor(gradient, dtype=torch.float64) * record["scale"]
    optimizer.step()
    record["weights"].append(weight.tolist())
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "adam.json"), "w", encoding="ascii") as file:
    json.dump(record, file)
