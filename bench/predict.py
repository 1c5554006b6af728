#!/usr/bin/env python3
"""Predicted against measured step time over several jobs, as a table.

    ./dev bench predict                       # all jobs, with a fresh probe of this machine first
    ./dev bench predict --quick --keep-probe  # fewer jobs, with the probe that is stored
    ./dev bench predict --write               # also into docs/performance.md

Close other programs first: the probe and the runs must meet the same machine. Each job is planned and trained on token
ids made here; the median of its steps counts, the fastest is shown beside it: on a machine that is otherwise idle the
two agree. The last line has the median error and Kendall's tau over the pairs of strategies of the same model and batch,
between which the planner chooses: 1 means that every pair is in the right order. Beside it, tau over all pairs of jobs,
where different models of nearly equal rate meet as well.
"""
import argparse
import itertools
import json
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
    ("tiny-llama-bytes", 8, 128, []),
    ("tiny-llama-bytes", 8, 128, ["--recompute", "block"]),
    ("smollm2-135m", 2, 256, []),
    ("smollm2-135m", 2, 256, ["--recompute", "block"]),
    ("gpt2-124m", 4, 64, []),
    ("gpt2-124m", 4, 64, ["--recompute", "block"]),
    ("gpt2-124m", 4, 256, []),
    ("gpt2-124m", 4, 256, ["--recompute", "block"]),
    ("gpt2-124m", 1, 256, ["--accumulate", "4"]),
    ("gpt2-124m", 4, 256, ["--recompute", "selective"]),
    ("gpt2-124m", 4, 256, ["--update", "in-backward", "--clip", "0"]),
    ("smollm2-135m", 2, 256, ["--precision", "bf16"]),
    ("smollm2-135m", 2, 256, ["--precision", "bf16", "--recompute", "block"]),
    ("gpt2-124m", 4, 64, ["--precision", "bf16"]),
    ("gpt2-124m", 4, 256, ["--precision", "bf16"]),
    ("gpt2-124m", 4, 256, ["--precision", "bf16", "--recompute", "block"]),
    ("gpt2-124m", 4, 256, ["--precision", "bf16-pure"]),
]
QUICK = [JOBS[0], JOBS[2], JOBS[3], JOBS[6], JOBS[7], JOBS[11]]
HEADER = "| job | predicted, ms | median, ms | fastest, ms | median / predicted |\n|---|---|---|---|---|"


def train(options, job, directory):
    model, micro_batch, sequence, more = job
    data = directory / "data.jsonl"
    if not data.exists():  # token ids that every vocabulary here has
        rows = [[(7 * row + 13 * k * k) % 250 for k in range(1025)] for row in range(64)]
        data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    steps = options.steps * (10 if "tiny" in model else 1)
    words = [options.program, "train", model, "--data", data, "--out", directory / "run", "--micro-batch", micro_batch, "--seq", sequence,
             "--steps", steps, "--threads", options.threads, "--json", "--quiet", *more]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"headroom train ended with {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout)
    lines = (directory / "run" / "metrics.jsonl").read_text().splitlines()
    result["fastest"] = min(step["step_seconds"] for step in map(json.loads, lines) if "step_seconds" in step)
    result["libraries"] = find(json.loads((directory / "run" / "run.json").read_text()), "libraries", str)
    subprocess.run(["rm", "-r", str(directory / "run")], check=True)
    accumulate = int(more[more.index("--accumulate") + 1]) if "--accumulate" in more else 1
    return result, micro_batch * sequence * accumulate


def kendall(jobs, same_work):
    """Of (work, predicted, measured): agreeing less disagreeing pairs over all pairs, or those of the same work."""
    signs = [(a[1] - b[1]) * (a[2] - b[2]) for a, b in itertools.combinations(jobs, 2) if not same_work or a[0] == b[0]]
    return sum((s > 0) - (s < 0) for s in signs) / max(len(signs), 1), len(signs)


def measure(options):
    """The table's rows, and what they come to."""
    lines, rates, errors = [], [], []
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as name:
        for job in QUICK if options.quick else JOBS:
            result, tokens = train(options, job, pathlib.Path(name))
            if not result["prediction_measured"]:
                raise SystemExit("no probe of this machine is stored for this many threads: leave --keep-probe away")
            predicted, measured = result["predicted_step_seconds"], result["step_seconds"]
            errors.append(abs(predicted / measured - 1))
            rates.append(((job[0], tokens), tokens / predicted, tokens / measured))
            text = " ".join([job[0], f"{job[1]}x{job[2]}", *job[3]])
            lines.append(f"| {text} | {predicted * 1e3:.0f} | {measured * 1e3:.0f} | {result['fastest'] * 1e3:.0f} | {measured / predicted:.2f} |")
            print(lines[-1], flush=True)
    (strategies, pairs), (jobs, _) = kendall(rates, True), kendall(rates, False)
    last = (f"Median error {statistics.median(errors) * 100:.1f} % over {len(rates)} jobs; Kendall's tau {strategies:.2f} over {pairs} pairs of strategies for the "
            f"same work, {jobs:.2f} over all jobs.")
    return lines, f"{last} {machine_text(options.program, [result['libraries']])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--quick", action="store_true", help="six jobs instead of all")
    parser.add_argument("--keep-probe", action="store_true", help="use the stored probe instead of a fresh one")
    parser.add_argument("--write", action="store_true", help="also put the table into docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        if not options.keep_probe:  # in a cache of its own: what is stored stays
            os.environ["HEADROOM_CACHE"] = cache
            print("probing this machine", file=sys.stderr)
            subprocess.run([options.program, "devices", "--probe", "--threads", str(options.threads)], check=True, stdout=subprocess.DEVNULL)
        rows, last = measure(options)
    about = f"{last}; {options.threads} threads, medians of {options.steps} steps."
    print("\n" + about)
    if options.write:
        replace_section("predict", command_text("predict", sys.argv[1:]), "\n".join([HEADER, *rows, "", about]))


if __name__ == "__main__":
    main()
