#!/usr/bin/env python3
"""Records steps of torch.optim.Adafactor: tests/parity/optim/adafactor.json.

    python record_adafactor.py [FILE]        (needs torch)

Gradients and weights are whole numbers times powers of two, made by integer arithmetic from step and element, so that
tests/unit/test_adafactor.c makes the same ones. `shift`: of the gradients, so that some lie below the epsilon. The bits of
the weights are stored after some of the steps, and those of the factors after the last.
"""
import json
import os
import sys

import numpy
import torch

STEPS, KEPT = 20, (1, 2, 5, 20)
CASES = (dict(rows=23, columns=17, lr=0.01, shift=0),
         dict(rows=5, columns=200, lr=0.5, beta2_decay=-0.5, eps=(1e-3, 0.05), d=1.5, weight_decay=0.1, shift=-4),
         dict(rows=130, columns=3, lr=0.02, weight_decay=0.01, shift=-34),
         dict(rows=1, columns=70, lr=0.01, shift=-8),
         dict(rows=77, columns=0, lr=0.01, weight_decay=0.1, shift=0),
         dict(rows=300, columns=0, lr=0.3, beta2_decay=-1.0, eps=(1e-6, 1e-3), d=2.0, shift=-30))


def values(step, count, shift):
    h = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + step * 40503) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 2246822519) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 3266489917) & 0xFFFFFFFF
    h = h ^ (h >> 16)
    whole = (h >> 12).astype(numpy.int64) % 4095 - 2047
    return torch.from_numpy((whole * 2.0 ** (shift - 11 - (h % 8).astype(numpy.int64))).astype(numpy.float32))


def bits(tensor):
    return tensor.detach().contiguous().numpy().astype("<f4").tobytes().hex()


def record(rows, columns, shift, **options):
    shape = (rows, columns) if columns else (rows,)
    count = rows * max(columns, 1)
    weight = torch.nn.Parameter(values(1000, count, 0).reshape(shape))
    optimizer = torch.optim.Adafactor([weight], foreach=False, **options)
    steps = []
    for step in range(1, STEPS + 1):
        weight.grad = values(step, count, shift).reshape(shape)
        optimizer.step()
        if step in KEPT:
            steps.append({"step": step, "weight": bits(weight)})
    state = optimizer.state[weight]
    factors = [state["row_var"], state["col_var"]] if columns else [state["variance"]]
    group = optimizer.param_groups[0]
    return {"rows": rows, "columns": columns, "shift": shift, "learning_rate": group["lr"],
            "decay": group["beta2_decay"], "epsilon": group["eps"][0] or float(torch.finfo(torch.float32).eps),
            "least": group["eps"][1], "clip": group["d"], "weight_decay": group["weight_decay"], "steps": steps,
            "factors": "".join(bits(f) for f in factors)}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "optim", "adafactor.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"made_by": f"torch {torch.__version__}", "cases": [record(**c) for c in CASES]}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
