#!/usr/bin/env python3
"""What the kernels can reach on a card, from what they take of it and from what they have to move and make: no card is needed.

    bench/gpu/expect.py [--card h100|h200] [--write]     a table; --write puts it into docs/cuda-card.md

Registers and shared memory come from ptxas (build/cuda/kernels.tsv of ./dev build cuda, sm_90), what is launched at which size from
bench_gpu_kernels --dry, bytes and FLOPs from its operands. Time cannot be less than the largest of:

    memory      bytes of operands and results over the stated bandwidth
    tensor      FLOPs that attention's kernels make (7 products backward where 5 would do) over the peak of mma.sync
    shared      bytes that its products read from shared memory over 128 bytes a clock and multiprocessor
    exp         one exponential for each score over 16 a clock and multiprocessor

None of that is a prediction: latency, instructions beside these, and uneven blocks come on top. A kernel with fewer blocks than the card
takes at a time, or few warps on a multiprocessor, will not come near its bound; the table shows both."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
from document import replace_section  # noqa: E402

PAGE = ROOT / "docs/cuda-card.md"
# Of sm_90: CUDA's occupancy tables. Clock: so that 4096 FLOPs of bf16 a clock and multiprocessor are the stated peak.
SMS, REGISTERS, WARPS, BLOCKS, SHARED, RESERVED = 132, 65536, 64, 32, 228 << 10, 1 << 10
PEAK, BANDWIDTH = 989e12, {"h100": 3.35e12, "h200": 4.8e12}
CLOCK = PEAK / SMS / 4096
# mma.sync on Hopper reaches about 5/8 of what wgmma does (published microbenchmarks of the H100 agree on 62 to 65 %).
MMA_SYNC = 0.63


def resources():
    """{kernel: (registers, static shared bytes)} on sm_90."""
    path = ROOT / "build/cuda/kernels.tsv"
    if not path.exists():
        raise SystemExit(f"expect.py: {path} is not there: ./dev build cuda makes it")
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {row[1]: (int(row[3]), int(row[4])) for row in rows if row[2] == "90"}


def cases():
    built = [path for build in ("check", "release", "card") if (path := ROOT / "build" / build / "bench_gpu_kernels").exists()]
    if not built:
        raise SystemExit("expect.py: bench_gpu_kernels is not there: ./dev build check makes it")
    newest = max(built, key=lambda path: path.stat().st_mtime)
    return json.loads(subprocess.run([newest, "--dry"], stdout=subprocess.PIPE, check=True).stdout)["cases"]


def occupancy(registers, shared, threads):
    """(blocks of a multiprocessor, what limits them)"""
    warps = -(-threads // 32)
    limits = {"warps": WARPS // warps, "blocks": BLOCKS, "registers": REGISTERS // (-(-registers * 32 // 256) * 256 * warps),
              "shared": SHARED // (-(-(shared + RESERVED) // 128) * 128)}
    least = min(limits, key=limits.get)
    return limits[least], least


# ---- attention: the sizes of tiles as src/ops/attention/scores.cuh has them, held to what is launched ----


def tiles(columns):
    row = 2 * columns  # bytes, of bf16
    return {"rows": 32 if row >= 1024 else 64, "keys": min(64, 16384 // row), "passing": min(32, 8192 // row)}


def shared_bytes(columns, backward):
    t = tiles(columns)
    return (2 * (t["rows"] + t["passing"]) if backward else t["rows"] + 2 * t["keys"]) * (columns + 8) * 2


def attention_limits(kernels, flops, backward, launches):
    """Seconds by tensor cores, shared memory and exponentials. A step of 16 x 8 x 16 reads its right operand, 256 bytes, and the left one,
    512 bytes, once for all steps that share it: of keys or queries that pass in the products that make scores. In those of sums the left one
    is in registers."""
    columns = 128 if "128>" in kernels else 64
    expected = shared_bytes(columns, backward)
    said = [launch["shared_bytes"] for launch in launches if launch["shared_bytes"]]
    if any(value != expected for value in said):
        raise SystemExit(f"expect.py: attention of {columns} columns launches with {said} bytes of shared memory, not {expected}: "
                         "its tiles have changed, this script has to follow")
    t = tiles(columns)
    scores = flops / ((5 if backward else 2) * 2 * columns)  # that are not masked
    steps = scores * columns / (16 * 8 * 16)  # of one product
    beside = 512 / ((t["passing"] if backward else t["keys"]) / 8)
    made = 7 if backward else 2
    of_scores = 4 if backward else 1
    read = steps * (made * 256 + of_scores * beside)
    return {"tensor": made * 2 * columns * scores / (PEAK * MMA_SYNC), "shared": read / (SMS * 128 * CLOCK),
            "exp": (2 if backward else 1) * scores / (SMS * 16 * CLOCK)}


def row_of(case, found, bandwidth):
    limits = {"memory": case["bytes"] / bandwidth}
    if case["name"].startswith("attention") and "cached" not in case["name"]:
        limits |= attention_limits(case["kernels"], case["flops"], "backward" in case["name"], case["launches"])
    bound = max(limits, key=limits.get)
    seconds = limits[bound]
    by_base = {name.split("<")[0]: name for name in case["kernels"].split(";")}
    parts = []
    for launch in case["launches"]:
        name = by_base.get(launch["kernel"])
        if name not in found:
            raise SystemExit(f"expect.py: {case['name']} launches {launch['kernel']}, and the table of ptxas has no {name} for it")
        registers, static = found[name]
        blocks, limit = occupancy(registers, static + launch["shared_bytes"], launch["threads"])
        warps = blocks * -(-launch["threads"] // 32)
        waves = launch["blocks"] / (blocks * SMS)
        parts.append(f"{launch['kernel'].replace('_kernel', '')}: {registers} registers, {warps} warps ({limit}), "
                     f"{waves:.1f} waves" + (f", {launch['times']} times" if launch["times"] > 1 else ""))
    rate = f"{case['flops'] / seconds / 1e12:.0f} TFLOP/s ({100 * case['flops'] / seconds / PEAK:.0f} %)" if case["flops"] and bound != "memory" else \
        f"{case['bytes'] / seconds / 1e9:.0f} GB/s"
    return [case["name"], case["shape"], f"{seconds * 1e6:.0f}", bound, rate, "; ".join(parts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--card", choices=BANDWIDTH, default="h200")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = resources()
    rows = [row_of(case, found, BANDWIDTH[arguments.card]) for case in cases()]
    head = ["case", "size", "at least us", "bound by", "which is", "kernels: registers, warps of a multiprocessor (limited by), waves of blocks"]
    table = "\n".join("| " + " | ".join(words) + " |" for words in [head, ["---"] * len(head), *rows])
    print(table)
    if arguments.write:
        replace_section("expected", f"bench/gpu/expect.py --card {arguments.card} --write", table, PAGE)


if __name__ == "__main__":
    main()
