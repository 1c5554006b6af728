#!/usr/bin/env python3
"""Loss curves of the precisions side by side, on real text.

    ./dev bench curves                    # 200 steps each of tiny-llama-bytes on this repository's documents and sources
    ./dev bench curves --steps 1000 --write

All runs have the same seed, data, order of rows and options but --precision; the table shows the mean training loss over
ten steps, and at the end the loss on text that was held back.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import ROOT, command_text, machine_text, replace_section  # noqa: E402

RUNS = [("fp32", []), ("bf16", ["--precision", "bf16"]), ("bf16-pure", ["--precision", "bf16-pure"]),
        ("bf16-pure, bf16 moments", ["--precision", "bf16-pure", "--moments", "bf16"])]
WINDOW = 10


def texts(directory):
    """Every tenth file is held back."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.[ch]"), *ROOT.glob("include/**/*.h")])
    for name, chosen in (("train", [f for k, f in enumerate(files) if k % 10]), ("held-back", files[::10])):
        (directory / name).write_text("\n".join(f.read_text() for f in chosen))
    return directory / "train", directory / "held-back"


def curve(options, more, directory):
    train, held_back = texts(directory)
    words = [options.program, "train", options.model, "--data", train, "--eval-data", held_back, "--out", directory / "run", "--seq", "128",
             "--micro-batch", "8", "--steps", options.steps, "--lr", "1e-3", "--warmup", "20", "--shuffle", "--quiet", *more]
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    losses, evaluation = {}, None
    for line in (directory / "run" / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry:
            losses[entry["step"]] = entry["loss"]
        evaluation = entry.get("eval_loss", evaluation)
    subprocess.run(["rm", "-r", str(directory / "run")], check=True)
    return losses, evaluation


def table(options):
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for label, more in RUNS:
            results[label] = curve(options, more, pathlib.Path(name))
            print(f"{label}: held back {results[label][1]}", file=sys.stderr, flush=True)
    every = max(options.steps // 8, WINDOW)
    lines = ["| steps | " + " | ".join(label for label, _ in RUNS) + " |", "|---" * (len(RUNS) + 1) + "|"]
    for end in range(every, options.steps + 1, every):
        means = [statistics.mean(results[label][0][s] for s in range(end - WINDOW + 1, end + 1)) for label, _ in RUNS]
        lines.append(f"| {end - WINDOW + 1} to {end} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    if all(results[label][1] is not None for label, _ in RUNS):
        lines.append("| held-back text | " + " | ".join(f"{results[label][1]:.4f}" for label, _ in RUNS) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter, epilog=__doc__)
    parser.add_argument("--program", default=str(ROOT / "build/release/headroom"))
    parser.add_argument("--model", default="tiny-llama-bytes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="also put the table into docs/performance.md")
    options = parser.parse_args()
    body = table(options)
    print(body)
    if options.write:
        replace_section("curves", command_text("curves", [a for a in sys.argv[1:] if a != "--write"]), f"{body}\n\n{options.model}, {machine_text(options.program)}.")


if __name__ == "__main__":
    main()
