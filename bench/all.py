#!/usr/bin/env python3
"""All benchmarks of docs/performance.md, one after the other; each rewrites its section of the document.

    ./dev bench all                          # some hours on two cores; close other programs first
    ./dev bench all --quick                  # each section from its smallest setting, about half an hour
    ./dev bench all --only yardstick profile
    ./dev bench all --dry-run                # the commands

A section that fails is reported at the end and keeps what it had.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import ROOT, core_count, machine_text, replace_section  # noqa: E402

BUILD = ROOT / "build/release"
# model, batch, rounds: long steps take fewer
YARDSTICKS = [("gpt2-124m", "4x256", 5), ("gpt2-124m", "4x1024", 3), ("smollm2-135m", "4x256", 5), ("smollm2-135m", "2x1024", 3)]
PROFILES = [("gpt2-124m", 4, 256), ("smollm2-135m", 4, 256)]
PRECISIONS = ["fp32", "bf16"]
PYTORCH = {"pytorch": ["--batch", "4x256", "--precision", "fp32", "bf16", "bf16-pure", "--recompute", "off", "on", "--smallest"],
           "pytorch-sizes": ["--batch", "4x64", "4x1024", "2x1024"]}
PYTORCH_QUICK = ["--model", "gpt2-124m", "--batch", "4x64", "--torch", "eager", "--rounds", "1"]
# name: arguments, quick arguments; what bench_NAME prints becomes the section
PRINTED = {"gemm": ([], ["256", "3"]), "attention": ([], ["0.1", "2"]), "kernels": ([], []), "optim": ([], []), "arena": ([], ["1", "2", "1"]),
           "plan": ([], []), "auto": ([], ["quick"]), "alloc": ([], []), "history": ([], ["5"]), "snapshot_read": ([], []), "snapshot_write": (["1000000", "40", "build"], ["1000000", "40", "build"]),
           "report": (["1000000", "build/report.html"], ["1000000", "build/report.html"]), "shapes": ([], ["50000"])}


def run(words):
    print("$", shlex.join(str(word) for word in words), flush=True)
    if OPTIONS.dry_run:
        return ""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(words[0]).name} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    print(done.stdout, flush=True)
    return done.stdout


def write(name, command, body, versions=()):
    if not OPTIONS.dry_run:
        replace_section(name, command, f"{body}\n\n{machine_text(BUILD / 'headroom', versions)}.")


def table_of(output):
    """Header and rows of the table that a program prints last."""
    lines = [line for line in output.splitlines() if line.startswith("|")]
    return lines[:2], lines[2:]


def yardstick():
    header, rows, library = [], [], ""
    for model, batch, rounds in YARDSTICKS[:1] if OPTIONS.quick else YARDSTICKS:
        for precision in PRECISIONS:
            for threads in range(1, min(core_count(), 2) + 1):
                output = run([BUILD / "bench_yardstick", model, batch, precision, threads, 4 if OPTIONS.quick else rounds])
                header, more = table_of(output)
                rows += more
                library = ", ".join(next((line for line in output.splitlines() if " rounds; " in line), "").split(", ")[:2])
    write("yardstick", "./dev bench yardstick MODEL BATCH PRECISION THREADS ROUNDS", "\n".join(header + rows), [library])


def profile_table(trace):
    """Ops of at least 0.5 % of a step, and the rest in one row."""
    lines = ["| op | calls | ms | share | rate | predicted, ms |", "|---|---|---|---|---|---|"]
    rest = trace["step_seconds"]
    for op in trace["ops"]:
        if op["share"] < 0.005:
            continue
        rest -= op["seconds"]
        rate = f"{op['flops'] / op['seconds'] * 1e-9:.0f} GFLOP/s" if op["by_arithmetic"] else f"{op['bytes'] / op['seconds'] * 1e-9:.1f} GB/s"
        lines.append(f"| {op['op']}{' again' if op['recomputed'] else ''} | {op['calls']} | {op['seconds'] * 1e3:.1f} | {op['share'] * 100:.1f} % | {rate} "
                     f"| {op['predicted_seconds'] * 1e3:.1f} |")
    lines.append(f"| everything else | | {rest * 1e3:.1f} | {rest / trace['step_seconds'] * 100:.1f} % | | |")
    lines.append(f"| step | | {trace['step_seconds'] * 1e3:.1f} | 100 % | | {trace['predicted_step_seconds'] * 1e3:.1f} |")
    return lines


def profile():
    parts, library = [], ""
    steps = 4 if OPTIONS.quick else 9
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "text.txt").write_text("A line of text, of which a step reads some thousand bytes.\n" * 4000)
        for model, batch, sequence in PROFILES[:1] if OPTIONS.quick else PROFILES:
            for precision in PRECISIONS:
                out = work / f"{model}-{precision}"
                run([BUILD / "headroom", "train", model, "--data", work / "text.txt", "--out", out, "--micro-batch", batch, "--seq", sequence,
                     "--precision", precision, "--steps", steps, "--quiet", "--profile", work / "trace.json"])
                if OPTIONS.dry_run:
                    continue
                subprocess.run(["rm", "-r", str(out)], check=True)
                trace = json.loads((work / "trace.json").read_text())["otherData"]
                library = f"{trace['libraries']}, {trace['instruction_set']}"
                parts += [f"{model}, {batch} x {sequence}, {precision}, {trace['threads']} threads, medians of {trace['steps']} steps:", "", *profile_table(trace), ""]
    write("profile", f"headroom train MODEL ... --steps {steps} --profile FILE", "\n".join(parts).strip(), [library])


def printed(name):
    words = PRINTED[name][OPTIONS.quick]
    body = run([BUILD / f"bench_{name}", *words]).rstrip()
    write_printed(name, words, body)


def write_printed(name, words, body):
    if not any(line.startswith("|") for line in body.splitlines()):  # else it is Markdown already
        body = f"```text\n{body}\n```"
    write(name, " ".join(["./dev bench", name, *words]), body)


def attention_beside_pytorch():
    words = ["--tokens", "1024", "--rounds", "3"] if OPTIONS.quick else []
    write_printed("attention.py", words, run([sys.executable, ROOT / "bench/attention.py", "--bench", BUILD / "bench_attention", *words]).rstrip())


def python(name, *words):
    """A benchmark that writes its section itself."""
    print("$", shlex.join([f"bench/{name}.py", *words]), flush=True)
    if not OPTIONS.dry_run and subprocess.run([sys.executable, ROOT / f"bench/{name}.py", *words], check=False).returncode != 0:
        raise RuntimeError(f"bench/{name}.py failed")


SECTIONS = {
    "yardstick": yardstick,
    "profile": profile,
    **{name: (lambda name=name: python("pytorch", *(PYTORCH_QUICK if OPTIONS.quick else PYTORCH[name]), "--write", name)) for name in PYTORCH},
    "peft": lambda: python("peft", *(["--quick"] if OPTIONS.quick else []), "--write"),
    "predict": lambda: python("predict", *(["--quick", "--steps", "3"] if OPTIONS.quick else []), "--write"),
    "rates": lambda: python("rates", *(["--quick"] if OPTIONS.quick else []), "--write"),
    "attention.py": attention_beside_pytorch,
    **{name: (lambda name=name: printed(name)) for name in PRINTED},
}


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    OPTIONS = parser.parse_args()
    failed = []
    if not OPTIONS.dry_run and os.getloadavg()[0] > 0.5:
        print(f"bench all: this machine is busy (load {os.getloadavg()[0]:.1f}): the figures will be those of a busy machine", file=sys.stderr)
    for name in OPTIONS.only:
        try:
            SECTIONS[name]()
        except (RuntimeError, OSError) as error:
            failed.append(name)
            print(f"bench all: {name}: {error}", file=sys.stderr)
    if failed:
        raise SystemExit(f"bench all: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
