#!/usr/bin/env python3
"""Messages behind the beginnings of other texts: what stands before a message must not hide it.

    context.py PROGRAM FOLDER ... [--seed N]

A FOLDER is a collection of texts with labels (collection.py). Of each text with one failure the lines before its message are taken, up
to 25; behind them goes a line of another text that is certain by itself (with --figures a PyTorch message with all its figures). Says
for how many the message's cause is still found, and shows the others."""
import argparse
import json
import random
import re
import subprocess
import sys

import collection

REACH = 25


def failures(program, text):
    run = subprocess.run([program, "explain", "--json", "-"], input=text, capture_output=True, text=True, errors="replace", check=False)
    return json.loads(run.stdout)["failures"] if run.returncode == 0 else []


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as text:
        return text.read().split("\n")


def is_whole(failure, line):
    """A message of PyTorch's with its figures, on one line."""
    return failure["source"].startswith("pytorch-") and len(re.findall(r"[\d.]+ [GMK]iB", line)) >= 4


def gather(program, folders, figures):
    """Beginnings as (path, text), messages as (line, cause)."""
    beginnings, messages = [], []
    for folder in folders:
        for row in collection.read(folder):
            if not row["failure"]:
                continue
            lines = lines_of(row["path"])
            found = failures(program, "\n".join(lines))
            if len(found) == 1 and found[0]["line"] > 2:
                beginnings.append((row["path"], "\n".join(lines[max(0, found[0]["line"] - 1 - REACH):found[0]["line"] - 1])))
            for line in {found[0]["line"]} if found else ():
                alone = lines[line - 1].strip()
                told = failures(program, alone + "\n") if 30 < len(alone) < 1200 else []
                if len(told) == 1 and (is_whole(told[0], alone) if figures else told[0]["certainty"] == "certain"):
                    messages.append((alone, told[0]["cause"]))
    return beginnings, messages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    beginnings, messages = gather(options.program, options.folders, options.figures)
    if not beginnings or not messages:
        sys.exit("no beginnings or no messages in these folders")
    chance, lost = random.Random(options.seed), 0
    for path, beginning in beginnings:
        message, cause = chance.choice(messages)
        found = failures(options.program, beginning + "\n" + message + "\n")
        if not any(failure["cause"] == cause for failure in found):
            lost += 1
            print(f"===== {path}: {cause} is lost\n{beginning[-400:]}\n>>> {message[:160]}")
    print(f"{len(messages)} messages behind {len(beginnings)} beginnings: {lost} lost")


if __name__ == "__main__":
    main()
