#!/usr/bin/env python3
"""What carries a text, or stands above it, must not change what is read of it.

    carried.py PROGRAM FOLDER ...

Each text of the FOLDERs, collections with labels (collection.py), is read as it is, as a log or a page holds it, broken at 80 columns, and
below what people paste before a message. Says each time how many failures are right by cause, certainty and figures, and how many of the
other texts give a false alarm. The project's own cases are tested so by tests/mem/test_explain_carriers.c."""
import argparse
import concurrent.futures
import html
import json
import os

import collection
import score

WAYS = {
    "as it is": lambda text: text,
    "syslog": lambda text: each_line(text, lambda line: "May  1 10:11:12 host7 train[4242]: " + line),
    "a container's runtime": lambda text: each_line(text, lambda line: "2024-05-01T10:11:12.123456789Z stderr F " + line),
    "a container's objects": lambda text: each_line(
        text, lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}, separators=(",", ":"), ensure_ascii=False)
    ),
    "a runner of jobs": lambda text: each_line(text, lambda line: "2024-05-01T10:11:12.1234567Z " + line),
    "a page's source": lambda text: f"<pre><code>{html.escape(text, quote=False)}</code></pre>\n",
    "80 columns": lambda text: each_line(text, lambda line: "\n".join(line[at : at + 80] for at in range(0, max(1, len(line)), 80))),
    "a greeting": lambda text: "Hi,\n\n" + text,
    "settings": lambda text: "export CUDA_VISIBLE_DEVICES=0\nexport OMP_NUM_THREADS=4\n" + text,
    "code": lambda text: "My code:\n```python\nmodel = Model()\nfor x in loader:\n    loss = model(x)\n```\nThe error:\n" + text,
}


def each_line(text, form):
    return "".join(form(line) + "\n" for line in text.rstrip("\n").split("\n"))


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as text:
        return text.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    options = parser.parse_args()
    rows = [row for folder in options.folders for row in collection.read(folder)]
    texts = [read(row["path"]) for row in rows]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, way in WAYS.items():
            answers = pool.map(lambda text, way=way: score.explain(options.program, "-", way(text).encode("utf-8", "surrogateescape")), texts)
            kinds = [(row["failure"], score.judge(row, answer)[0]) for row, answer in zip(rows, answers)]
            right = sum(failure and kind == "right" for failure, kind in kinds)
            alarms = sum(not failure and kind != "right" for failure, kind in kinds)
            failures = sum(failure for failure, _ in kinds)
            print(f"{name:24} failures right: {right} of {failures}; false alarms: {alarms} of {len(kinds) - failures}")


if __name__ == "__main__":
    main()
