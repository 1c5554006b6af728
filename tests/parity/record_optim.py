#!/usr/bin/env python3
"""Records what bitsandbytes' CPU path makes of 8-bit states: tests/parity/optim/bitsandbytes.json.

    python record_optim.py [FILE]        (needs torch and bitsandbytes)

Gradients are whole numbers times powers of two, made by integer arithmetic from step and element, so that
tests/unit/test_optim_blocks.c makes the same ones. Codes and the bits of the scales are stored after some of the steps.
"""
import json
import os
import sys

import bitsandbytes
import bitsandbytes.functional as functional
import numpy
import torch

ELEMENTS, STEPS, KEPT, BLOCK = 700, 50, (1, 2, 10, 50), 256
BETAS = {"adam": (0.9, 0.999), "lion": (0.9, 0.99)}


def gradient(step):
    h = (numpy.arange(ELEMENTS, dtype=numpy.uint64) * 2654435761 + step * 40503) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 2246822519) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 3266489917) & 0xFFFFFFFF
    h = h ^ (h >> 16)
    whole = (h >> 12).astype(numpy.int64) % 4095 - 2047
    return torch.from_numpy((whole * 2.0 ** -(h % 20).astype(numpy.int64)).astype(numpy.float32))


def bits(tensor):
    return tensor.numpy().astype("<f4").tobytes().hex()


def record(name):
    signed, unsigned = functional.create_dynamic_map(True), functional.create_dynamic_map(False)
    blocks = -(ELEMENTS // -BLOCK)
    weight = torch.zeros(ELEMENTS)
    codes = [torch.zeros(ELEMENTS, dtype=torch.uint8) for _ in range(2)]
    scales = [torch.zeros(blocks) for _ in range(2)]
    two = name == "adam"
    steps = []
    for step in range(1, STEPS + 1):
        torch.ops.bitsandbytes.optimizer_update_8bit_blockwise(
            name, gradient(step), weight, codes[0], codes[1] if two else None, *BETAS[name], 0.0, 0.0, 1e-8, step, 1e-3,
            signed, unsigned if two else None, scales[0], scales[1] if two else None, 0.0, 0.5, False)
        if step in KEPT:
            steps.append({"step": step,
                          "codes": [c.numpy().tobytes().hex() for c in codes[:1 + two]],
                          "scales": [bits(s) for s in scales[:1 + two]]})
    return {"betas": BETAS[name], "steps": steps}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "optim", "bitsandbytes.json")
    result = {"made_by": f"bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}",
              "elements": ELEMENTS,
              "signed_map": bits(functional.create_dynamic_map(True)),
              "unsigned_map": bits(functional.create_dynamic_map(False)),
              "adam": record("adam"),
              "lion": record("lion")}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
