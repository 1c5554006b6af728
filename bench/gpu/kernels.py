#!/usr/bin/env python3
"""Times of our kernels on a card, as shares of what it can do.

    bench/gpu/kernels.py OUT [NAME ...]      leaves OUT/kernels.json: TFLOP/s and GB/s, and shares of the card's peak, of its stated
                                             bandwidth, and of what a copy reached in the same run

The list of cases and how they are timed: bench/gpu/kernels.c. With PyTorch there, its attention (whatever it takes: cuDNN or its own flash
kernels) at the same sizes is timed beside it."""

import argparse
import json
import subprocess
import sys

import card

TORCH = """
import json, sys, time
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
def timed(call):
    for _ in range(3): call()
    torch.cuda.synchronize()
    batches = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(10): call()
        end.record()
        torch.cuda.synchronize()
        batches.append(begin.elapsed_time(end) / 10e3)
    return sorted(batches)[2]
found = {"version": torch.__version__, "cudnn": torch.backends.cudnn.version(), "cases": []}
for b, t, h, d in ((4, 4096, 16, 128), (1, 16384, 16, 128), (64, 1024, 12, 64)):
    q, k, v = (torch.randn(b, h, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dy = torch.randn(b, h, t, d, device="cuda", dtype=torch.bfloat16)
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        entry = {"provider": name, "batch": b, "sequence": t, "heads": h, "head_size": d}
        try:
            with sdpa_kernel(backend):
                forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                with torch.no_grad(): entry["forward_seconds"] = timed(forward)
                def both():
                    for x in (q, k, v): x.grad = None
                    forward().backward(dy)
                entry["backward_seconds"] = timed(both) - entry["forward_seconds"]
        except Exception as error:
            entry["failed"] = str(error)[:200]
        found["cases"].append(entry)
json.dump(found, sys.stdout)
"""


def with_shares(case, peak, bandwidth, copied):
    rate, moved = case["flops"] / case["seconds"], case["bytes"] / case["seconds"]
    shares = {"gb_per_second": moved / 1e9, "share_of_copy": moved / copied if copied else None}
    if case["flops"]:
        shares["tflops"] = rate / 1e12
    if peak:
        shares["share_of_bandwidth"] = moved / bandwidth
        if case["flops"]:
            shares["share_of_peak"] = rate / peak
    return {**case, **shares}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_intermixed_args()
    found = card.need_card()
    done = subprocess.run([card.ours("card_kernels"), *(["copy", *arguments.names] if arguments.names else [])], stdout=subprocess.PIPE, text=True,
                          env=card.environment(), check=False)
    try:
        measured = json.loads(done.stdout)
    except ValueError:
        card.say(f"card_kernels ended with {done.returncode} before it was done")
        card.write(arguments.out, "kernels", {"card": found, "failed": done.returncode, "said": done.stdout[-2000:]})
        return 1
    copied = next((case["bytes"] / case["seconds"] for case in measured["cases"] if case["name"] == "copy"), None)
    document = {"card": found, "multiprocessors": measured["multiprocessors"],
                "cases": [with_shares(case, found["peak_flops"], found["peak_bytes_per_second"], copied) for case in measured["cases"]]}
    card.write(arguments.out, "kernels", document)
    for case in document["cases"]:
        print(f"{case['name']:30} {case['shape']:44} {case['seconds'] * 1e6:10.1f} us {case.get('tflops', 0):8.1f} TFLOP/s {case['gb_per_second']:8.0f} GB/s")
    torch = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, timeout=300, check=False)
    try:
        document["torch_attention"] = json.loads(torch.stdout)
    except ValueError:
        document["torch_attention"] = "not run: " + (torch.stderr.strip().splitlines() or ["PyTorch said nothing"])[-1]
    card.write(arguments.out, "kernels", document)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
