#!/usr/bin/env python3
"""Runs all scripts through the recorder of one PyTorch version and stores what it printed.

    tests/oracle/record.py RECORDER VERSION OUT [NAME...]     e.g. fake/record 2.15 tests/alloc/oracle/2.15; NAME: only these scripts"""

import gzip
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import scripts


def record(recorder, out, name, text):
    done = subprocess.run([recorder, "/dev/stdin", "/dev/null"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: the recorder ended with {done.returncode}: {done.stderr[-500:]}")
    with open(out / f"{name}.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(done.stdout.encode())
    odd = [line for line in done.stdout.splitlines() if "| ?" in line]
    return f"{name}: {done.stdout.count(chr(10))} lines, {done.stdout.count(' !')} failed requests" + "".join("\n   " + o[:300] for o in odd[:3])


def main():
    recorder, version, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    wanted = sys.argv[4:]
    major, minor = (int(part) for part in version.split(".")[:2])
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(name, text) for name, oldest, text in scripts.scripts() if oldest <= 100 * major + minor and (not wanted or name in wanted)]
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda job: record(recorder, out, *job), jobs):
            print(line)


if __name__ == "__main__":
    main()
