#!/usr/bin/env python3
"""The processor of the machine that holds the card: often one that this project never ran on, such as a Xeon with tiles of AMX.

    bench/gpu/host.py OUT [--seconds N]      leaves OUT/host.json; ends with 1 when a test fails
    bench/gpu/host.py OUT --rehearse         the same on this machine, which needs no card

In the order of what is worth most: products and attention against their references, in the tests' short forms, at the level that the processor
has; steps of GPT-2 124M, 4 x 256, on two cores in fp32 and bf16, beside PyTorch eager where it is installed; how near those steps are
to their products (the yardstick); products as shares of the measured peak; the tests at the levels below. What there is no time for is listed as not run."""

import argparse
import json
import os
import pathlib
import subprocess
import time

import card
import torch_side

LEVELS = ["base", "avx2", "avx512", "avx512bf16", "amx"]
TESTS = ["test_gemm", "test_attention"]
MODEL, ROWS, SEQUENCE, STEPS = "gpt2-124m", 4, 256, 4


def processor():
    """What the kernel calls it, and what counts here of its features."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.split("\n\n")[0].splitlines())}
    flags = fields.get("flags", "").split()
    return {"model": fields.get("model name", ""), "features": [flag for flag in flags if flag.startswith(("avx", "amx", "fma"))],
            "processors": os.cpu_count(), "load": os.getloadavg()[0]}


def two_cores():
    """Two processors that are not of one core, where there are such."""
    first, *others = sorted(os.sched_getaffinity(0))
    for other in others:
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list")
        if not siblings.exists() or str(other) not in siblings.read_text().replace("-", ",").strip().split(","):
            return {first, other}
    return {first}


class Host:
    def __init__(self, out, seconds, rehearse):
        self.out, self.end, self.bad = out, time.perf_counter() + seconds, False
        self.document = {"card": None if rehearse else card.need_card(), "processor": processor(), "parts": {}}

    def left(self):
        return self.end - time.perf_counter()

    def keep(self, name, found):
        self.document["parts"][name] = found
        card.write(self.out, "host", self.document)
        card.say(f"host: {name}: " + ("not run" if found is None else found.get("said") or json.dumps(found)[:200]))

    def run(self, name, command, least, **environment):
        """The end of what a command said; None where there is no time for it."""
        if self.left() < least:
            self.keep(name, None)
            return None
        try:
            done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  env={**card.environment(), **environment}, timeout=self.left(), check=False)
        except subprocess.TimeoutExpired:
            self.keep(name, {"said": "stopped: no time was left"})
            return None
        return done

    def level(self):
        """The highest that the processor has."""
        offered = [name for name in LEVELS if self.run("level", [card.ours("headroom"), "plan", "micro-llama-bytes"], 0, HEADROOM_ISA=name).returncode == 0]
        self.keep("level", {"said": offered[-1] if offered else "none of x86-64's"})
        return offered[-1] if offered else "base"

    def test(self, name, level):
        begin = time.perf_counter()
        done = self.run(f"{name} {level}", [card.ours(name)], 5, HEADROOM_ISA=level, HEADROOM_TEST_QUICK="1")
        if done:
            passed = done.returncode == 0
            self.bad |= not passed
            self.keep(f"{name} {level}", {"passed": passed, "seconds": time.perf_counter() - begin,
                                          "said": "passed" if passed else done.stdout[-2000:]})

    def steps(self, precision):
        if self.left() < 20:
            self.keep(f"step {precision}", None)
            return
        options = ["--precision", precision, "--threads", 2, "--no-measure-rates"]
        found = card.steps_of(MODEL, options, STEPS, "cpu", SEQUENCE, ROWS, limit=self.left())
        seconds = found.get("step_seconds", [])[1:]
        found["median_step_seconds"] = card.middle(seconds)
        beside = torch_side.one(f"host-{precision}", "eager", STEPS - 1, "cpu", max(5, min(90, self.left())))
        if seconds and "median_step_seconds" in beside:
            found["said"] = (f"{found['median_step_seconds']:.3f} s, PyTorch {beside['version']} {beside['median_step_seconds']:.3f} s: "
                             f"{beside['median_step_seconds'] / found['median_step_seconds']:.2f} x")
        self.keep(f"step {precision}", {**found, "pytorch": beside})

    def text(self, name, command, least):
        done = self.run(name, command, least)
        if done:
            self.keep(name, {"text": done.stdout, "said": (done.stdout.strip().splitlines() or ["nothing"])[-1]})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    host = Host(arguments.out, arguments.seconds, arguments.rehearse)
    os.sched_setaffinity(0, two_cores())
    level = host.level()
    for name in TESTS:
        host.test(name, level)
    for precision in ("bf16", "fp32"):
        host.steps(precision)
    for precision in ("bf16", "fp32"):
        host.text(f"yardstick {precision}", [card.ours("bench_yardstick"), MODEL, f"{ROWS}x{SEQUENCE}", precision, 2, 3], 15)
    host.text("products", [card.ours("bench_gemm"), 1024, 3, "providers", 1], 30)
    for below in reversed(LEVELS[:LEVELS.index(level)]):
        for name in reversed(TESTS):
            host.test(name, below)
    return 1 if host.bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
