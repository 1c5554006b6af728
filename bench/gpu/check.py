#!/usr/bin/env python3
"""Every kernel of ours against its CPU reference, on a card; then the same under compute-sanitizer, where that is.

    bench/gpu/check.py OUT [--seconds N]     leaves OUT/check.json; ends with 1 when a test fails or something is found

The programs are the tests of the GPU in software, built for the card (pack.sh). The sanitizer's tools come one after the other, the
most telling first; what there is no time for is listed as not run."""

import argparse
import shutil
import subprocess
import time

import card

TESTS = ["kernels", "attention", "columns", "decode", "optim", "quant"]
TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]


def run(command, limit):
    """(passed, seconds, the end of what was said)"""
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=card.environment(),
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, time.perf_counter() - begin, f"not done in {limit:.0f} s"
    return done.returncode == 0, time.perf_counter() - begin, done.stdout[-2000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=540)
    arguments = parser.parse_args()
    document = {"card": card.need_card(), "tests": {}, "sanitizer": {}}
    programs = {name: card.ours(f"card_cuda_{name}") for name in TESTS}
    end = time.perf_counter() + arguments.seconds
    bad = []
    for name, program in programs.items():
        passed, seconds, said = run([program], max(1, end - time.perf_counter()))
        document["tests"][name] = {"passed": passed, "seconds": seconds, "said": "" if passed else said}
        card.say(f"{name}: {'passed' if passed else 'FAILED'} in {seconds:.1f} s")
        if not passed:
            bad.append(name)
            print(said)
        card.write(arguments.out, "check", document)
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not sanitizer:
        document["sanitizer"] = "not run: compute-sanitizer is not installed"
        card.say(document["sanitizer"])
    for tool in TOOLS if sanitizer else []:
        for name, program in programs.items():
            left, what = end - time.perf_counter(), f"{tool} {name}"
            if left < 10:
                document["sanitizer"][what] = {"passed": None, "said": "not run: no time was left"}
                continue
            passed, seconds, said = run([sanitizer, "--tool", tool, "--error-exitcode", "99", program], min(left, 150))
            if "Device not supported" in said or "LibraryNotLoaded" in said:
                document["sanitizer"][what] = {"passed": None, "said": f"not run: {said[-300:]}"}
                end = 0
                continue
            document["sanitizer"][what] = {"passed": passed, "seconds": seconds, "said": "" if passed else said}
            card.say(f"{what}: {'nothing found' if passed else 'not done' if passed is None else 'FOUND SOMETHING'} in {seconds:.1f} s")
            if passed is False:
                bad.append(what)
                print(said)
            card.write(arguments.out, "check", document)
    card.write(arguments.out, "check", {**document, "bad": bad})
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
