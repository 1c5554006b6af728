"""Attention forward + backward beside PyTorch's scaled_dot_product_attention.

    build/venv/bin/python bench/attention.py [--bench build/bench_attention] [--rounds 7] [--threads 1 2]

Batch 1, 12 heads of 64, causal, 1k, 4k and 16k tokens, fp32 and bf16. The two sides run in turns (the machine's rate may
swing with its neighbours): each round is one of PyTorch's passes here and one of ours in a process of bench_attention,
which does one pass to warm up and reports the best of two. Prints milliseconds and GFLOP/s of both (medians; 14 D flops
per visible pair), and the median of the ratios of the rounds.
"""

import argparse
import os
import statistics
import subprocess
import time

import torch

HEADS, SIZE = 12, 64
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def torch_pass(operands, gradient):
    start = time.perf_counter()
    y = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=True)
    y.backward(gradient)
    seconds = time.perf_counter() - start
    for operand in operands:
        operand.grad = None
    return seconds


def our_pass(bench, tokens, name, threads):
    command = [bench, "pass", str(tokens), str(HEADS), str(SIZE), name, str(threads), "2"]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return sum(int(word) for word in output.stdout.split()) * 1e-9


def compare(bench, tokens, name, threads, rounds):
    torch.set_num_threads(threads)
    operands = [torch.randn(1, HEADS, tokens, SIZE, dtype=TYPES[name], requires_grad=True) for _ in range(3)]
    gradient = torch.randn(1, HEADS, tokens, SIZE, dtype=TYPES[name])
    torch_pass(operands, gradient)
    theirs, ours = [], []
    for _ in range(rounds):
        theirs.append(min(torch_pass(operands, gradient) for _ in range(2)))
        ours.append(our_pass(bench, tokens, name, threads))
    flops = 14 * SIZE * HEADS * tokens * (tokens + 1) / 2
    mine, torch_s = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    print(f"{name:5} {tokens:6} tokens, {threads} threads: headroom {mine * 1e3:8.1f} ms {flops / mine * 1e-9:6.1f} GFLOP/s   "
          f"PyTorch {torch_s * 1e3:8.1f} ms {flops / torch_s * 1e-9:6.1f} GFLOP/s   {ratio:.2f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/bench_attention")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    arguments = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} processors")
    for threads in arguments.threads:
        for name in arguments.types:
            for tokens in arguments.tokens:
                compare(arguments.bench, tokens, name, threads, arguments.rounds)


if __name__ == "__main__":
    main()
