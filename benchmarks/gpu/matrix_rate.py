"""matrix_rate.py DEVICE SIZE: FLOP/s that PyTorch's product of two SIZE x SIZE bfloat16 matrices reaches there, as one JSON object: the median of
15 windows, their smallest and largest. The values are normally distributed: a device that lowers its clock to stay within its power multiplies
constants faster than anything a model meets."""
import json
import statistics
import sys
import time

import torch

WINDOWS, WARM_UP, PRODUCTS = 15, 2, 20


def main():
    device, size = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    c = torch.empty_like(a)
    rates = []
    for _ in range(WARM_UP + WINDOWS):
        begin = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=c)
        c[0, 0].item()  # until they are done
        rates.append(PRODUCTS * 2 * size**3 / (time.perf_counter() - begin))
    rates = rates[WARM_UP:]
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(json.dumps(dict(device=name, torch=torch.__version__, median=statistics.median(rates), smallest=min(rates), largest=max(rates))))


main()
