#!/usr/bin/env python3
"""How well the rates that one training run saw predict other jobs, and what is assumed before any run.

    ./dev bench rates                 # all jobs, a few minutes
    ./dev bench rates --quick         # six of them
    ./dev bench rates --threads 1
    ./dev bench rates --write         # also into docs/performance.md

Every job is trained once in a directory of measurements of its own, without a probe, and leaves its rates there. Then every
job is planned with the rates of every other one: what is predicted is held against the median of the steps that it took.
Close other programs first: a busy machine's rates are not stored, and the steps of one minute are predicted from another's.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import ROOT, command_text, core_count, find, machine_text, replace_section  # noqa: E402

# model, micro-batch, sequence, further options
JOBS = [
    ("gpt2-124m", 1, 64, []),
    ("gpt2-124m", 4, 256, []),
    ("gpt2-124m", 1, 1024, []),
    ("gpt2-124m", 4, 256, ["--lora", "r=8"]),
    ("gpt2-124m", 1, 64, ["--precision", "bf16"]),
    ("gpt2-124m", 2, 512, ["--precision", "bf16"]),
    ("smollm2-135m", 1, 64, []),
    ("smollm2-135m", 2, 256, ["--recompute", "block"]),
    ("smollm2-135m", 1, 1024, []),
    ("smollm2-135m", 2, 128, ["--lora", "r=16"]),
    ("smollm2-135m", 1, 192, ["--loss-chunk", "64"]),
    ("smollm2-135m", 1, 256, ["--precision", "bf16"]),
    ("smollm2-360m", 2, 128, ["--precision", "bf16"]),
    ("qwen3-0.6b", 1, 128, ["--lora", "r=16"]),
    ("tiny-llama-bytes", 8, 128, []),
    ("tiny-llama-bytes", 2, 1024, ["--precision", "bf16"]),
]
QUICK = [JOBS[0], JOBS[1], JOBS[4], JOBS[6], JOBS[7], JOBS[14]]
TRIES = 4  # the first may tell no more than how long a step takes
ROUNDS, ROUND_SECONDS = 5, 0.2  # of src/train/rates.c
MORE_ROUNDS = 5  # than five, so that one that is disturbed does not cost the run
HEADER = "| seen | jobs predicted | median error | worst |\n|---|---|---|---|"


def name_of(job):
    return " ".join([job[0], f"{job[1]}x{job[2]}", *job[3]])


def words_of(options, job):
    model, micro_batch, sequence, more = job
    return [model, "--micro-batch", micro_batch, "--seq", sequence, "--threads", options.threads, *more]


def call(words, cache):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, env={**os.environ, "HEADROOM_CACHE": str(cache)})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def steps_for(step_seconds):
    """Steps of which a run keeps its rates (src/train/rates.c): one warms up, then come rounds of that many seconds or more."""
    return 1 + (ROUNDS + MORE_ROUNDS) * math.ceil(ROUND_SECONDS / step_seconds)


def train(options, job, directory):
    """Seconds of a step, what was assumed of it, and the directory with the rates that the run left; None: the machine was busy."""
    data = directory / "data.jsonl"
    if not data.exists():  # token ids that every vocabulary here has
        rows = [[(7 * row + 13 * k * k) % 250 for k in range(1025)] for row in range(64)]
        data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    steps = options.steps
    cache = directory / name_of(job).replace(" ", "-")
    for _ in range(TRIES):
        words = [options.program, "train", *words_of(options, job), "--data", data, "--out", directory / "run", "--steps", steps, "--json", "--quiet"]
        result = call(words, cache)
        libraries = find(json.loads((directory / "run" / "run.json").read_text()), "libraries", str)
        subprocess.run(["rm", "-r", str(directory / "run")], check=True)
        if stored := bool(list(cache.glob("*seen.json"))):
            break
        steps = max(steps, steps_for(result["step_seconds"]))
    return result["step_seconds"], result["predicted_step_seconds"], cache if stored else None, libraries


def row(seen, errors):
    """errors: of (error, job)."""
    worst = max(errors)
    return f"| {seen} | {len(errors)} | {statistics.median(e for e, _ in errors) * 100:.1f} % | {worst[0] * 100:.0f} % ({name_of(worst[1])}) |"


def predict(options, job, cache):
    time = call([options.program, "plan", *words_of(options, job), "--json"], cache)["time"]
    if not time["seen"]:
        raise SystemExit(f"{name_of(job)} is not predicted from the rates in {cache}")
    return time["step_ns"] * 1e-9


def measure(options):
    """The table's rows, and the library of products."""
    lines, runs, every, own = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        for job in QUICK if options.quick else JOBS:
            print(name_of(job), file=sys.stderr, flush=True)
            runs.append((job, *train(options, job, pathlib.Path(name))))
            if not runs[-1][3]:
                print("  its rates were not stored: the machine is busy", file=sys.stderr)
        if not any(run[3] for run in runs):
            raise SystemExit("no job left its rates: close other programs")
        print(HEADER, flush=True)
        lines.append(row("nothing", [(abs(assumed / seconds - 1), job) for job, seconds, assumed, _, _ in runs]))
        print(lines[-1], flush=True)
        for seen, _, _, cache, _ in runs:
            errors = []
            if not cache:
                continue
            for job, seconds, _, _, _ in runs:
                error = (abs(predict(options, job, cache) / seconds - 1), job)
                (own if job == seen else errors).append(error)
            every += errors
            lines.append(row(name_of(seen), errors))
            print(lines[-1], flush=True)
    lines.append(row("any other job", every))
    lines.append(row("the job itself", own))
    print("\n".join(lines[-2:]), flush=True)
    return lines, runs[0][4]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--quick", action="store_true", help="six jobs instead of all")
    parser.add_argument("--write", action="store_true", help="also put the table into docs/performance.md")
    options = parser.parse_args()
    rows, libraries = measure(options)
    about = f"{machine_text(options.program, [libraries])}; {options.threads} threads, medians of {options.steps} steps, of more where these are shorter than {ROUND_SECONDS} s."
    print("\n" + about)
    if options.write:
        replace_section("rates", command_text("rates", sys.argv[1:]), "\n".join([HEADER, *rows, "", about]))


if __name__ == "__main__":
    main()
