#!/usr/bin/env python3
"""What is read of whole projects' files: source and documents that speak of memory running out, and of which hardly one reports it.

    sources.py PROGRAM REPOSITORY ... [--most N] [--show]

Of each git repository's newest commit (with or without a work tree) the files are taken that hold such words, up to N of a kind, shuffled
in the same way each time. Says how many were read as failures, by certainty; --show names them with the line. Sources report nothing by
the definitions (docs/explain.md); documents may, so theirs have to be looked at."""
import argparse
import collections
import json
import random
import subprocess

WORDS = "out of memory|out-of-memory|OutOfMemory|OOM|bad_alloc|MemoryError|ENOMEM|cannot allocate|exit code 137"
KINDS = {
    "sources": "py pyx c cc cpp hpp h cu cuh rs go java js ts jl R sh kt swift scala rb php cs lua m mm groovy".split(),
    "documents": "md rst adoc tex html yaml yml toml cfg ini tf xml proto cmake dockerfile bat ps1".split(),
}
LONGEST = 400_000


def git(repository, *words):
    return subprocess.run(["git", "-C", repository, *words], capture_output=True, check=False).stdout


def files_of(repository, endings, most):
    found = git(repository, "grep", "-l", "-I", "-E", WORDS, "HEAD", "--", *[f"*.{ending}" for ending in endings])
    paths = [line.split(":", 1)[1] for line in found.decode("utf-8", "replace").splitlines() if ":" in line]
    random.Random(1).shuffle(paths)
    return paths[:most]


def failure_in(program, text):
    """The failure that is explained first, or None."""
    run = subprocess.run([program, "explain", "-", "--json"], input=text, capture_output=True, check=False)
    if run.returncode not in (0, 5):
        raise SystemExit(f"{program}: exit {run.returncode}: {run.stderr.decode('utf-8', 'replace')}")
    if run.returncode == 5:
        return None
    found = json.loads(run.stdout)
    return found["failures"][found["primary"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("repositories", nargs="+")
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    for kind, endings in KINDS.items():
        tally = collections.Counter()
        for repository in options.repositories:
            for path in files_of(repository, endings, options.most):
                text = git(repository, "show", f"HEAD:{path}")
                if len(text) > LONGEST:
                    continue
                failure = failure_in(options.program, text)
                tally["files"] += 1
                if failure is None:
                    continue
                tally[failure["certainty"]] += 1
                if options.show:
                    line = text.decode("utf-8", "replace").splitlines()[failure["line"] - 1].strip()[:160]
                    print(f"{repository} {path}:{failure['line']} {failure['cause']} {failure['certainty']}: {line}")
        read = tally.total() - tally["files"]
        print(f"{kind}: {read} of {tally['files']} read as failures {dict(tally)}")


if __name__ == "__main__":
    main()
