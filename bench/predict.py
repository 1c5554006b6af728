#!/usr/bin/env python3
"""Predicted against measured step time over several jobs, as the table of docs/performance.md.

    bench/predict.py PROGRAM [--steps N] [--quick]

Uses the probe that is stored (`headroom devices --probe`); says so when there is none. Each job is planned and trained on
token ids made here; the median of its steps counts, the fastest is shown beside it: on a machine that is otherwise idle
the two agree. The last line has the median error and Kendall's tau over all pairs of jobs: 1 means that the planner puts
every pair in the right order of tokens per second.
"""
import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import tempfile

# model, micro-batch, sequence, further options
JOBS = [
    ("tiny-llama-bytes", 8, 128, []),
    ("tiny-llama-bytes", 8, 128, ["--recompute", "block"]),
    ("smollm2-135m", 2, 256, []),
    ("smollm2-135m", 2, 256, ["--recompute", "block"]),
    ("gpt2-124m", 4, 64, []),
    ("gpt2-124m", 4, 64, ["--recompute", "block"]),
    ("gpt2-124m", 4, 256, []),
    ("gpt2-124m", 4, 256, ["--recompute", "block"]),
    ("gpt2-124m", 1, 256, ["--accumulate", "4"]),
]
QUICK = [JOBS[0], JOBS[2], JOBS[4], JOBS[6]]


def train(program, job, steps, directory):
    model, micro_batch, sequence, more = job
    data = directory / "data.jsonl"
    if not data.exists():  # token ids that every vocabulary here has
        rows = [[(7 * row + 13 * k * k) % 250 for k in range(1025)] for row in range(64)]
        data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    if "tiny" in model:
        steps *= 10
    words = [program, "train", model, "--data", str(data), "--out", str(directory / "run"), "--micro-batch", str(micro_batch),
             "--seq", str(sequence), "--steps", str(steps), "--json", "--quiet", *more]
    result = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    lines = (directory / "run" / "metrics.jsonl").read_text().splitlines()
    result["fastest"] = min(step["step_seconds"] for step in map(json.loads, lines) if "step_seconds" in step)
    subprocess.run(["rm", "-r", str(directory / "run")], check=True)
    accumulate = int(more[more.index("--accumulate") + 1]) if "--accumulate" in more else 1
    return result, micro_batch * sequence * accumulate


def kendall(pairs):
    """Of (predicted, measured): agreeing less disagreeing pairs over all pairs."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    return sum((s > 0) - (s < 0) for s in signs) / len(signs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rates, errors = [], []
    print("| job | predicted, ms | median, ms | fastest, ms | median / predicted |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for job in QUICK if options.quick else JOBS:
            result, tokens = train(options.program, job, options.steps, pathlib.Path(name))
            if not result["prediction_measured"]:
                raise SystemExit("no probe of this machine is stored: headroom devices --probe")
            predicted, measured = result["predicted_step_seconds"], result["step_seconds"]
            errors.append(abs(predicted / measured - 1))
            rates.append((tokens / predicted, tokens / measured))
            print(f"| {job[0]} {job[1]}x{job[2]} {' '.join(job[3])} | {predicted * 1e3:.0f} | {measured * 1e3:.0f} | {result['fastest'] * 1e3:.0f} "
                  f"| {measured / predicted:.2f} |", flush=True)
    print(f"\nmedian error {statistics.median(errors) * 100:.1f} %, Kendall tau {kendall(rates):.2f} over {len(rates)} jobs")


if __name__ == "__main__":
    main()
