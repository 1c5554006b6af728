#!/usr/bin/env python3
"""Training steps on a card at full size: tokens per second, MFU, memory.

    bench/gpu/train.py OUT [--seconds N] [--device cuda] [--steps N] [JOB ...]     leaves OUT/train.json
    bench/gpu/train.py OUT --rehearse [cuda]     a small job on the CPU, or the card in software, through the same code

MFU is (6 x parameters + 6 x layers x width x sequence) x tokens per second over 989 TFLOP/s: forward and backward of the weights, and of
causal attention (width: columns of all heads); what is made again is not counted. Where the plan does not fit, the rows are halved, and the
document says how many there were. PyTorch's side: torch_side.py."""

import time

import card

PURE = ["--precision", "bf16-pure", "--moments", "bf16"]
# name: model, rows, sequence, options
JOBS = {
    "gpt2-124m": ("gpt2-124m", 64, 1024, ["--precision", "bf16"]),
    "llama-3-8b": ("llama-3-8b", 4, 4096, [*PURE, "--update", "in-backward", "--clip", "0", "--recompute", "levels:cheap*32"]),
    "gpt2-1558m": ("gpt2-1558m", 16, 1024, ["--precision", "bf16"]),
    "llama-3-8b qlora": ("llama-3-8b", 1, 2048, [*PURE, "--accumulate", "2", "--quantize", "nf4+dq", "--lora", "r=16,alpha=32,targets=all-linear",
                                                 "--recompute", "auto", "--budget", "7.4GiB"]),
}
REHEARSED = {"tiny": ("micro-llama-bytes", 4, 64, ["--precision", "fp32"])}
WARMUP = 3
DOES_NOT_FIT = 3  # the program's exit code


def measure(model, rows, sequence, options, steps, device, limit):
    """With fewer rows where they do not fit."""
    tried = []
    while rows >= 1:
        found = card.steps_of(model, options, steps + WARMUP, device, sequence, rows, limit)
        tried.append({"rows": rows, "failed": found.get("failed")})
        if found.get("exit") != DOES_NOT_FIT:
            break
        rows //= 2
    accumulate = int(options[options.index("--accumulate") + 1]) if "--accumulate" in options else 1
    return {**found, "rows": rows, "sequence": sequence, "accumulate": accumulate, "tried": tried}


def figures(found, shape):
    if "failed" in found:
        return found
    seconds = card.middle(found["step_seconds"][WARMUP:])
    tokens = found["rows"] * found["sequence"] * found["accumulate"] / seconds
    flops = card.flops_per_token(found["parameter_count"], shape["layer_count"], shape["width"], found["sequence"])
    return {**found, "median_step_seconds": seconds, "tokens_per_second": tokens, "flops_per_token": flops,
            "mfu": tokens * flops / 989e12}


def shape_of(model, sequence, device):
    """Layers and width of attention, as the plan says them."""
    document, said = card.plan(model, ["--seq", sequence], "cpu" if device == "cpu" else "h200")
    if document is None:
        raise RuntimeError(said)
    shape = document["model"]
    return {"layer_count": shape["layer_count"], "width": shape.get("head_count", 0) * shape.get("head_size", 0) or shape["hidden_size"]}


def main():
    day, bad = card.Day(__doc__, JOBS, REHEARSED, {"--steps": 12}), 0
    document, device, end = day.document, day.device, day.end
    for name, (model, rows, sequence, options) in day.jobs(least=30):
        found = measure(model, rows, sequence, options, day.arguments.steps, device, max(30, min(240, end - time.perf_counter())))
        found = figures(found, shape_of(model, sequence, device))
        document["jobs"][name] = found
        card.write(day.arguments.out, "train", document)
        if "failed" in found:
            bad += 1
            card.say(f"{name}: FAILED: {found['failed']}")
        else:
            card.say(f"{name}: {found['rows']} x {sequence}, {found['tokens_per_second']:.0f} tokens/s, MFU {100 * found['mfu']:.1f} %, "
                     f"{found['used_by_job_mib']} MiB by nvidia-smi, {(found['planned_bytes'] + found['fixed_bytes']) / 2**20:.0f} MiB planned")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
