#!/usr/bin/env python3
"""Training steps of Headroom beside PyTorch's on this machine: tokens per second and peak memory.

    ./dev bench pytorch                                         # GPT-2 124M and SmolLM2-135M, 4 x 256, fp32 and bf16
    ./dev bench pytorch --model gpt2-124m --batch 4x64 --precision fp32 --recompute off --torch eager --rounds 2
    ./dev bench pytorch --batch 4x256 4x1024 --write            # also into docs/performance.md
    ./dev bench pytorch --isa avx2                              # both sides as on a processor with AVX2 alone

Every row of the table is a group: Headroom, PyTorch eager and torch.compile with the same model, batch, AdamW (fused),
clipping, precision and recomputation.

    precision   headroom                PyTorch
    fp32        --precision fp32        fp32
    bf16        --precision bf16        fp32 weights, autocast to bf16
    bf16-pure   --precision bf16-pure   everything in bf16, AdamW's moments too
                --moments bf16
    recompute   --recompute block       gradient checkpointing of each block

The sides take turns (support/sides.py). The medians of one row compare; figures of two rows less so.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import command_text, machine_text, replace_section  # noqa: E402
from sides import MODELS, WARMUP_STEPS, HeadroomSide, TorchSide, add_common_options, hold_to, make_model, parse_batch, serve, take_turns  # noqa: E402

PRECISIONS = ("fp32", "bf16", "bf16-pure")
SMALLEST = ["--update", "in-backward", "--recompute", "block", "--clip", "0"]


@dataclasses.dataclass(frozen=True)
class Group:
    """What both sides of a comparison have in common."""

    model: str
    batch: int
    sequence: int
    precision: str
    recompute: bool
    smallest: bool = False  # of Headroom alone: what it can do without

    @property
    def tokens(self):
        return self.batch * self.sequence


class TorchStep:
    def __init__(self, group, mode):
        import torch

        self.torch, self.group = torch, group
        torch.manual_seed(0)
        self.model = make_model(group.model, torch.bfloat16 if group.precision == "bf16-pure" else torch.float32, group.recompute)
        self.forward = torch.compile(self.model) if mode == "compile" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def __call__(self):
        torch, group = self.torch, self.group
        ids = torch.randint(0, 128, (group.batch, group.sequence))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=group.precision == "bf16"):
            loss = self.forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin


# ---------------------------------------------------------------------------------------------------------------------
# Headroom's


def headroom_options(group):
    options = ["--optimizer", "adamw", "--weight-decay", 0.1, "--lr", 1e-4, *precision_option(group.precision)]
    if group.smallest:
        return options + SMALLEST
    return options + ["--clip", 1.0, "--recompute", "block" if group.recompute else "none"]


def precision_option(precision):
    """Nothing for fp32, so that programs without the option can be measured."""
    return {"fp32": [], "bf16": ["--precision", "bf16"], "bf16-pure": ["--precision", "bf16-pure", "--moments", "bf16"]}[precision]


# ---------------------------------------------------------------------------------------------------------------------
# The comparison


def groups_of(arguments):
    for model in arguments.model:
        for batch, sequence in arguments.batch:
            for precision in arguments.precision:
                for recompute in arguments.recompute:
                    yield Group(model, batch, sequence, precision, recompute == "on")
                if arguments.smallest:
                    yield Group(model, batch, sequence, precision, True, smallest=True)


def measure(group, arguments):
    """{side: {"tokens_per_second", "peak_bytes"}}, and what the sides say of their versions."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        work = pathlib.Path(temporary)
        sides = []
        if arguments.program:
            sides.append(HeadroomSide("headroom", arguments.program, group, headroom_options(group), arguments.steps, arguments.threads, work))
        if not group.smallest:
            sides += [TorchSide(mode, __file__, group, arguments.threads, work) for mode in arguments.torch]
        what = (f"{group.model} {group.batch}x{group.sequence} {group.precision}"
                f"{' recompute' if group.recompute else ''}{' smallest' if group.smallest else ''}")
        return take_turns(sides, what, group.tokens, arguments.rounds, arguments.steps)


HEADER = """\
| model | batch | precision | recompute | headroom, tokens/s | eager | compile | x eager | x compile | headroom, GiB | eager | compile | of eager |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def row_text(group, sides, eager_bytes):
    """One line of the table. `eager_bytes`: of the plain group, for the row that PyTorch has no like of."""
    ours, eager, compiled = (sides.get(name) for name in ("headroom", "eager", "compile"))

    def rate(side):
        return f"{side['tokens_per_second']:.0f}" if side else ""

    def gib(side):
        return f"{side['peak_bytes'] / 2**30:.2f}" if side else ""

    def times(side):
        return f"{ours['tokens_per_second'] / side['tokens_per_second']:.2f}" if ours and side else ""

    against = eager["peak_bytes"] if eager else eager_bytes
    share = f"{ours['peak_bytes'] / against:.2f}" if ours and against else ""
    how = "block, update in the backward, no clip" if group.smallest else "block" if group.recompute else "none"
    return (f"| {group.model} | {group.batch} x {group.sequence} | {group.precision} | {how} | {rate(ours)} | {rate(eager)} | {rate(compiled)} "
            f"| {times(eager)} | {times(compiled)} | {gib(ours)} | {gib(eager)} | {gib(compiled)} | {share} |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["gpt2-124m", "smollm2-135m"])
    parser.add_argument("--batch", nargs="+", type=parse_batch, default=[(4, 256)], metavar="BxT", help="rows x tokens (4x256)")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["fp32", "bf16"])
    parser.add_argument("--recompute", nargs="+", choices=("off", "on"), default=["off"])
    parser.add_argument("--smallest", action="store_true", help="also Headroom with " + " ".join(SMALLEST))
    parser.add_argument("--torch", nargs="*", choices=("eager", "compile"), default=["eager", "compile"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help=f"timed steps a round, after {WARMUP_STEPS} to warm up")
    add_common_options(parser, ("eager", "compile"), "pytorch")
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        print(f"{arguments.program}: no such program; only PyTorch is measured", file=sys.stderr)
        arguments.program = None
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.child:
        group = Group(**json.loads(arguments.group))
        serve(lambda: TorchStep(group, arguments.child), arguments.threads)
        return
    hold_to(arguments.isa)
    rows, report, versions, eager_bytes = [], [], set(), {}
    print(HEADER)
    for group in groups_of(arguments):
        sides, said = measure(group, arguments)
        versions |= said
        key = (group.model, group.batch, group.sequence, group.precision)
        if "eager" in sides and not group.recompute:
            eager_bytes[key] = sides["eager"]["peak_bytes"]
        rows.append(row_text(group, sides, eager_bytes.get(key)))
        report.append({"group": dataclasses.asdict(group), "sides": sides})
        print(rows[-1], flush=True)
    about = (f"{machine_text(arguments.program or 'headroom', sorted(versions))}; {arguments.threads} threads, medians of {arguments.rounds} rounds of "
             f"{arguments.steps} steps, the sides in turn.")
    print("\n" + about)
    if arguments.json:
        arguments.json.write_text(json.dumps({"about": about, "rows": report}, indent=1) + "\n")
    if arguments.write:
        replace_section(arguments.write, command_text("pytorch", sys.argv[1:]), "\n".join([HEADER, *rows, "", about]))


if __name__ == "__main__":
    main()
