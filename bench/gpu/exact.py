#!/usr/bin/env python3
"""Twelve jobs on a card, from 124M to 8B: do they run, in the bytes that were planned, and with the CPU's losses?

    bench/gpu/exact.py OUT [--seconds N] [--device cuda] [JOB ...]     leaves OUT/exact.json
    bench/gpu/exact.py OUT --rehearse [cuda]                           two small jobs on the CPU, or the card in software, through the same code

Each job makes three steps. Its arena is checked from within (the run ends where bytes differ); from outside, nvidia-smi's count is
compared with planned and fixed bytes. The smallest jobs run on the CPU too, two steps, and the losses are compared."""

import time

import card

LORA = ["--lora", "r=16,alpha=32,targets=all-linear"]
# name: model, rows, sequence, options, whether the CPU runs it too
JOBS = {
    "gpt2-124m fp32": ("gpt2-124m", 4, 256, ["--precision", "fp32"], True),
    "gpt2-124m bf16": ("gpt2-124m", 4, 256, ["--precision", "bf16"], True),
    "gpt2-124m bf16-pure, recomputation, accumulation": (
        "gpt2-124m", 2, 256, ["--precision", "bf16-pure", "--moments", "bf16", "--recompute", "block", "--accumulate", "2"], False),
    "gpt2-124m adamw8bit": ("gpt2-124m", 4, 256, ["--precision", "bf16", "--optimizer", "adamw8bit"], True),
    "gpt2-124m in the backward": ("gpt2-124m", 4, 256, ["--precision", "bf16", "--update", "in-backward", "--clip", "0"], False),
    "gpt2-124m lora": ("gpt2-124m", 4, 256, ["--precision", "bf16", "--lora", "r=8,alpha=16"], True),
    "smollm2-135m bf16": ("smollm2-135m", 4, 256, ["--precision", "bf16"], True),
    "llama-3.2-1b bf16": ("llama-3.2-1b", 2, 1024, ["--precision", "bf16", "--recompute", "levels:cheap*16"], False),
    "llama-3.2-1b qlora": ("llama-3.2-1b", 2, 1024, ["--precision", "bf16-pure", "--moments", "bf16", "--quantize", "nf4+dq", *LORA], False),
    "llama-3-8b qlora": ("llama-3-8b", 1, 2048, [
        "--accumulate", "2", "--precision", "bf16-pure", "--moments", "bf16", "--quantize", "nf4+dq", *LORA, "--recompute", "auto", "--budget", "7.4GiB"], False),
    "llama-3-8b lora": ("llama-3-8b", 1, 2048, ["--precision", "bf16-pure", "--moments", "bf16", *LORA], False),
    "llama-3-8b full": ("llama-3-8b", 1, 2048, ["--precision", "bf16-pure", "--moments", "bf16", "--update", "in-backward", "--clip", "0",
                                               "--recompute", "block"], False),
}
REHEARSED = {"tiny fp32": ("micro-llama-bytes", 2, 64, ["--precision", "fp32"], True),
             "tiny lora": ("micro-llama-bytes", 2, 64, ["--precision", "fp32", "--lora", "r=4,alpha=8"], False)}


def judge(found):
    """What of a job's memory is as planned: the arena to the byte, all of it within a page for each allocation, and nothing of the device was
    taken while steps ran."""
    if "failed" in found:
        return {"exact": False}
    bound = (found["planned_bytes"] + found["fixed_bytes"]) / 2**20
    whole = found["planned_bytes"] <= found["reserved_bytes"] < found["planned_bytes"] + 2**21
    return {"exact": whole and not found["grown_bytes"],  # null: on the CPU, or nobody says
            "planned_and_fixed_mib": bound, "used_less_planned_and_fixed_mib": found["used_by_job_mib"] - bound}


def parity(found, cpu):
    """The largest relative difference of losses: those of the first two steps."""
    pairs = list(zip(found.get("losses", []), cpu.get("losses", [])))
    return max((abs(a - b) / abs(b) for a, b in pairs), default=None)


def predictions(jobs):
    """How far the plans' times lie from the last step's, over all jobs: by the probe's rates where one was stored before."""
    off = sorted(abs(job["predicted_step_seconds"] / job["step_seconds"][-1] - 1) for job in jobs.values() if "failed" not in job)
    return {"jobs": len(off), "median_error": off[len(off) // 2] if off else None, "largest_error": off[-1] if off else None}


def main():
    day, bad = card.Day(__doc__, JOBS, REHEARSED), []
    document, device, end = day.document, day.device, day.end
    for name, (model, rows, sequence, options, both) in day.jobs(least=20):
        found = card.steps_of(model, options, 3, device, sequence, rows, limit=max(20, min(150, end - time.perf_counter())))
        found |= judge(found)
        if both and "failed" not in found:
            cpu = card.steps_of(model, options, 2, "cpu", sequence, rows, limit=120)
            found |= {"cpu_losses": cpu.get("losses"), "cpu_failed": cpu.get("failed"), "largest_difference_of_losses": parity(found, cpu)}
        document["jobs"][name] = found
        card.say(f"{name}: {found.get('failed') or ('exact' if found['exact'] else 'NOT AS PLANNED')}, losses {found.get('losses')}, "
                 f"beside the CPU's {found.get('largest_difference_of_losses')}")
        if not found["exact"] or (both and not (found.get("largest_difference_of_losses") or 0) < 0.02):
            bad.append(name)
        card.write(day.arguments.out, "exact", {**document, "bad": bad, "predictions": predictions(document["jobs"])})
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
