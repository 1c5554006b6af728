#!/usr/bin/env python3
"""Compares what `headroom explain` says of a collection with its labels (collection.py).

    score.py HEADROOM FOLDER [--half open|closed] [--quiet]

A failure is right when cause, certainty and every figure that the text prints are. The closed half is each second text; it is read
without being shown, so that what is held back stays so."""
import argparse
import collections
import json
import subprocess

import collection


def explain(program, path, text=None):
    """The failure to read first in a file, or in the bytes of a text where `path` is "-"; None when the program finds none."""
    run = subprocess.run([program, "explain", "--json", path], input=text, capture_output=True, check=False)
    if run.returncode == 5:
        return None
    if run.returncode != 0:
        raise SystemExit(f"{path}: {program} explain ended with {run.returncode}: {run.stderr.decode(errors='replace').strip()}")
    answer = json.loads(run.stdout)
    return answer["failures"][answer["primary"]]


def compare_figures(got, want):
    """What differs, in words."""
    values = {name.replace("_bytes", ""): value for name, value in got.items() if value}
    # what follows from printed figures (a sum of processes) counts where the label names it
    read = {name: value for name, value in values.items() if value["state"] == "read" or (value["state"] == "derived" and name in want)}
    differences = []
    for name in sorted(set(read) | set(want)):
        if name not in read:
            differences.append(f"{name} missing, {want[name]:.0f}")
        elif name not in want:
            differences.append(f"{name} {read[name]['bytes']}, not in the text")
        elif abs(read[name]["bytes"] - want[name]) > max(read[name].get("slack_bytes") or 0, want[name] * 1e-6):
            differences.append(f"{name} {read[name]['bytes']}, not {want[name]:.0f}")
    return "; ".join(differences)


def judge(row, got):
    """Right, or the kind of error, and what was said."""
    if not row["failure"]:
        return ("right", "") if got is None else ("false alarm", f"{got['cause']} {got['certainty']} ({got['source']})")
    if got is None:
        return "missed", ""
    said = f"{got['cause']} {got['certainty']} ({got['source']})"
    if got["cause"] != row["cause"]:
        return "cause", said
    if got["certainty"] != row["certainty"]:
        return "certainty", said
    figures = compare_figures(got["figures"], row.get("figures") or {})
    return ("figures", figures) if figures else ("right", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="HEADROOM")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--half", choices=("open", "closed"))
    parser.add_argument("--quiet", action="store_true", help="the sums alone")
    options = parser.parse_args()
    rows = collection.read(options.folder)
    if options.half:
        rows = [row for index, row in enumerate(rows) if (index % 2 == 1) == (options.half == "closed")]
    quiet = options.quiet or options.half == "closed"
    verdicts, table = collections.Counter(), collections.Counter()
    wrong_certain = alarms_certain = 0
    for row in rows:
        got = explain(options.program, row["path"])
        verdict, said = judge(row, got)
        verdicts[row["failure"], verdict] += 1
        table[row["cause"] if row["failure"] else "no failure", got["cause"] if got else "no failure"] += 1
        wrong_certain += verdict == "cause" and got["certainty"] == "certain"
        alarms_certain += verdict == "false alarm" and got["certainty"] == "certain"
        if verdict != "right" and not quiet:
            want = f"{row['cause']} {row['certainty']} {row.get('figures') or ''}" if row["failure"] else "no failure"
            print(f"===== {row['file']}: {verdict}; {said or 'nothing'} for {want}")
            with open(row["path"], encoding="utf-8", errors="replace") as text:
                print(text.read()[:900])
    for (want, got), count in sorted(table.items()):
        print(f"  {want:20} read as {got:20} {count}")
    failures = sum(row["failure"] for row in rows)
    others = len(rows) - failures
    right = verdicts[True, "right"]
    print(", ".join(f"{name} {verdicts[True, name]}" for name in ("missed", "cause", "certainty", "figures")))
    print(f"failures right: {right} of {failures} ({100 * right / max(failures, 1):.1f} %), certain and wrong: {wrong_certain}; "
          f"false alarms: {verdicts[False, 'false alarm']} of {others} ({alarms_certain} certain)")


if __name__ == "__main__":
    main()
