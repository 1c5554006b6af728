#!/usr/bin/env python3
"""Records what torch.amp.GradScaler makes of overflows: tests/parity/optim/scaler.json.

    python record_scaler.py [FILE]        (needs torch)

Three tensors are trained by AdamW with clipping, three micro-steps to a step. Gradients are small fractions made by
integer arithmetic, times the scale, so that tests/unit/test_skip.c makes the same ones; in two steps of seven one element
of one tensor and micro-step is infinite or NaN, until every tensor, micro-step and kind had its turn. After each step
the scale, the growth tracker, whether it was skipped, and the weights. Then the ends of the range of the scale.
"""
import json
import os
import sys

import torch

TENSORS, ELEMENTS, MICRO_STEPS, STEPS, GROWTH_INTERVAL = 3, 8, 3, 98, 2
BAD = (float("inf"), float("-inf"), float("nan"))
EDGES = (2.0 ** 127, 2.0 ** 126, 1.5 * 2.0 ** 127, 1.0, 2.0 ** -126, 2.0 ** -149)


def start(tensor):
    return torch.tensor([((tensor * ELEMENTS + e) * 37 % 23 - 11) / 32 for e in range(ELEMENTS)])


def share(step, tensor, micro, element):
    return ((step * 31 + tensor * 7 + micro * 13 + element * 5) % 17 - 8) / 16


def bits(tensors):
    return torch.cat([t.detach() for t in tensors]).numpy().astype("<f4").tobytes().hex()


def record():
    weights = [torch.nn.Parameter(start(t)) for t in range(TENSORS)]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=GROWTH_INTERVAL)
    steps, bad = [], 0
    for step in range(STEPS):
        for tensor, weight in enumerate(weights):
            weight.grad = torch.zeros(ELEMENTS)
        scale = scaler.scale(torch.ones(())).item()  # makes the scale, too
        for micro in range(MICRO_STEPS):
            for tensor, weight in enumerate(weights):
                weight.grad += torch.tensor([share(step, tensor, micro, e) for e in range(ELEMENTS)]) * scale
                if step % 7 in (2, 3) and tensor == bad % TENSORS and micro == bad // TENSORS % MICRO_STEPS:
                    weight.grad[bad % ELEMENTS] += BAD[bad // (TENSORS * MICRO_STEPS) % len(BAD)]
        before = bits(weights)
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        scaler.step(optimizer)
        scaler.update()
        skipped = step % 7 in (2, 3)
        assert skipped == (bits(weights) == before) and skipped == (not torch.isfinite(norm))
        bad += skipped
        state = scaler.state_dict()
        steps.append({"scale": state["scale"], "tracker": state["_growth_tracker"], "skipped": skipped,
                      "weights": bits(weights)})
    assert bad >= TENSORS * MICRO_STEPS * len(BAD)
    return steps


def update(scale, found):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)
    scaler.scale(torch.ones(()))
    weight.grad = torch.full((1,), float("inf") if found else 0.0)
    scaler.step(optimizer)
    scaler.update()
    return scaler.state_dict()["scale"]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "optim", "scaler.json")
    result = {"made_by": f"torch {torch.__version__}",
              "growth_interval": GROWTH_INTERVAL,
              "steps": record(),
              "edges": [{"scale": e, "sound": update(e, False), "overflow": update(e, True)} for e in EDGES]}
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
