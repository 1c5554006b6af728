#!/usr/bin/env python3
"""Steps of LoRA and QLoRA by Headroom beside PyTorch with PEFT and bitsandbytes on this machine: tokens per second and peak memory.

    ./dev bench peft                      # SmolLM2-135M and the shape of Llama 3.2 1B, 1,024 and 2,048 tokens a step; an hour on two cores
    ./dev bench peft --quick              # SmolLM2-135M, one round: five minutes
    ./dev bench peft --write              # also into docs/performance.md
    ./dev bench peft --model llama-3.2-1b --batch 4x256 --small-batch --recompute on --rounds 1

Both sides train adapters of rank 16 on all linear modules of the layers with AdamW, without dropout, from random weights, and clip.

    base   headroom                          PyTorch + PEFT, adapters in fp32; the fastest of these after one round goes on
    fp32   --precision fp32                  fp32 weights
    bf16   --precision bf16                  fp32 weights; the same under autocast to bf16; bf16 weights
    nf4    --precision bf16 --quantize nf4   bitsandbytes: fp32; fp32 under autocast to bf16; bf16

A second table has our QLoRA step over our LoRA step in bf16 by the tokens of a micro-batch, a third how near our steps are to their own
products, each alone (bench/yardstick.c). The sides of a row take turns (support/sides.py); figures of two rows compare less well.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path[0] = str(pathlib.Path(__file__).resolve().parent / "support")  # not this folder, whose peft.py would hide the package
from document import command_text, machine_text, replace_section  # noqa: E402
from sides import WARMUP_STEPS, HeadroomSide, TorchSide, add_common_options, hold_to, make_model, parse_batch, serve, take_turns  # noqa: E402

RANK, ALPHA, BLOCK = 16, 32, 64
OURS = {"fp32": ["--precision", "fp32"], "bf16": ["--precision", "bf16"], "nf4": ["--precision", "bf16", "--quantize", "nf4"]}
# What PyTorch can do with a base, as the processes are named: what the weights are and how they compute
THEIRS = {"fp32": ["fp32"], "bf16": ["fp32", "autocast", "bf16"], "nf4": ["nf4-fp32", "nf4-autocast", "nf4-bf16"]}
SPOKEN = {"fp32": "fp32", "autocast": "fp32, autocast", "bf16": "bf16", "nf4-fp32": "nf4, fp32", "nf4-autocast": "nf4, autocast", "nf4-bf16": "nf4, bf16"}


@dataclasses.dataclass(frozen=True)
class Group:
    """What the sides of a comparison have in common."""

    model: str
    batch: int
    sequence: int
    recompute: bool

    @property
    def tokens(self):
        return self.batch * self.sequence

    def __str__(self):
        return f"{self.model} {self.batch}x{self.sequence}{' recompute' if self.recompute else ''}"


def quantized(model, dtype):
    """The layers' linear modules as bitsandbytes' in nf4, as transformers and PEFT know them; head and embeddings stay."""
    import torch
    from bitsandbytes import nn

    for parent in list(model.model.modules()):
        for name, module in list(parent.named_children()):
            if type(module) is torch.nn.Linear:
                four = nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=dtype, quant_type="nf4", compress_statistics=False)
                four.weight = nn.Params4bit(module.weight.data, requires_grad=False, blocksize=BLOCK, quant_type="nf4", compress_statistics=False,
                                            module=four)
                setattr(parent, name, four.to("cpu"))
    model.is_loaded_in_4bit = True
    return model


def trained_adapters(group, way):
    import peft
    import torch

    dtype = torch.bfloat16 if way in ("bf16", "nf4-bf16") else torch.float32
    model = make_model(group.model, dtype, group.recompute)
    if way.startswith("nf4"):
        model = quantized(model, torch.float32 if way == "nf4-fp32" else torch.bfloat16)
    names = [name.rpartition(".")[2] for name, module in model.model.named_modules() if isinstance(module, torch.nn.Linear)]
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules=sorted(set(names)))
    return peft.get_peft_model(model, config).train()


class PeftStep:
    def __init__(self, group, way):
        import torch

        self.torch, self.group, self.autocast = torch, group, way.endswith("autocast")
        torch.manual_seed(0)
        self.model = trained_adapters(group, way)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-4, weight_decay=0.1, fused=True)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak that follows is of steps, not of the base before it was quantized

    def __call__(self):
        torch, group = self.torch, self.group
        ids = torch.randint(0, 128, (group.batch, group.sequence))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin


def headroom_options(group, base):
    return ["--lora", f"r={RANK},alpha={ALPHA},targets=all-linear", *OURS[base], "--optimizer", "adamw", "--weight-decay", 0.1, "--lr", 1e-4, "--clip", 1.0,
            "--recompute", "block" if group.recompute else "none"]


# ---------------------------------------------------------------------------------------------------------------------
# The comparison


def ours(base):
    return f"headroom {base}"


def fastest(seconds, base):
    """Of PyTorch's ways with this base; None when none worked."""
    return min((way for way in THEIRS[base] if way in seconds), key=seconds.get, default=None)


def slower(bases):
    """The ways that are the fastest of no base."""
    def choose(seconds):
        kept = {fastest(seconds, base) for base in bases}
        return [name for name in seconds if name in SPOKEN and name not in kept]
    return choose


def measure(group, arguments, bases, torch_too=True, rounds=None):
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        work = pathlib.Path(temporary)
        sides = []
        for base in bases if arguments.program else ():
            sides.append(HeadroomSide(ours(base), arguments.program, group, headroom_options(group, base), arguments.steps, arguments.threads, work))
        if torch_too:
            ways = dict.fromkeys(way for base in bases for way in THEIRS[base])
            sides += [TorchSide(way, __file__, group, arguments.threads, work) for way in ways]
        return take_turns(sides, group, group.tokens, rounds or arguments.rounds, arguments.steps, slower(bases))


HEADER = """\
| model | batch | recompute | base | headroom, tokens/s | PyTorch + PEFT | its precision | x | headroom, GiB | PyTorch + PEFT | of it |
|---|---|---|---|---|---|---|---|---|---|---|"""
SMALL_HEADER = """\
| model | micro-batch | tokens | LoRA bf16, ms | QLoRA nf4, ms | QLoRA / LoRA |
|---|---|---|---|---|---|"""


def row_text(group, base, sides):
    mine = sides.get(ours(base))
    way = fastest({name: side["step_seconds"] for name, side in sides.items()}, base)
    theirs = sides.get(way)

    def cell(side, text):
        return text(side) if side else ""

    both = mine and theirs
    return (f"| {group.model} | {group.batch} x {group.sequence} | {'block' if group.recompute else 'none'} | {base} "
            f"| {cell(mine, lambda s: format(s['tokens_per_second'], '.0f'))} | {cell(theirs, lambda s: format(s['tokens_per_second'], '.0f'))} "
            f"| {SPOKEN.get(way, '')} | {cell(both, lambda _: format(theirs['step_seconds'] / mine['step_seconds'], '.2f'))} "
            f"| {cell(mine, lambda s: format(s['peak_bytes'] / 2**30, '.2f'))} | {cell(theirs, lambda s: format(s['peak_bytes'] / 2**30, '.2f'))} "
            f"| {cell(both, lambda _: format(mine['peak_bytes'] / theirs['peak_bytes'], '.2f'))} |")


def small_row_text(group, sides):
    lora, qlora = (sides[ours(base)]["step_seconds"] for base in ("bf16", "nf4"))
    return f"| {group.model} | {group.batch} x {group.sequence} | {group.tokens} | {lora * 1e3:.0f} | {qlora * 1e3:.0f} | {qlora / lora:.2f} |"


def yardsticks(arguments, model, batch, recompute):
    """Header and rows of bench_yardstick for our three bases."""
    lines = []
    for base, options in OURS.items():
        words = [f"{name.removeprefix('--')}={value}" for name, value in zip(options[2::2], options[3::2])]
        command = [arguments.program.parent / "bench_yardstick", model, f"{batch[0]}x{batch[1]}", options[1], arguments.threads, max(2, arguments.rounds),
                   f"lora=r={RANK},alpha={ALPHA},targets=all-linear", f"recompute={'block' if recompute else 'none'}", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"yardstick of {base}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            continue
        header, rule, row = [line for line in done.stdout.splitlines() if line.startswith("|")][-3:]
        lines = lines or ["| base " + header, "|---" + rule]
        lines.append(f"| {base} " + row)
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=("smollm2-135m", "llama-3.2-1b"), default=["smollm2-135m", "llama-3.2-1b"])
    parser.add_argument("--batch", nargs="+", type=parse_batch, default=[(4, 256)], metavar="BxT", help="rows x tokens (4x256)")
    parser.add_argument("--memory-batch", nargs="*", type=parse_batch, default=[(2, 1024)], metavar="BxT", help="one round of these, for the memory (2x1024)")
    parser.add_argument("--small-batch", nargs="*", type=parse_batch, default=[(2, 256), (1, 128), (1, 64)], metavar="BxT",
                        help="our QLoRA beside our LoRA (2x256 1x128 1x64)")
    parser.add_argument("--recompute", nargs="+", choices=("off", "on"), default=["off", "on"])
    parser.add_argument("--base", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help=f"timed steps a round, after {WARMUP_STEPS} to warm up")
    parser.add_argument("--quick", action="store_true", help="SmolLM2-135M, with recompute, one round, one batch for the memory")
    add_common_options(parser, SPOKEN, "peft")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.recompute, arguments.rounds, arguments.steps = ["smollm2-135m"], ["on"], 1, 1
        arguments.memory_batch = []
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program}: no such program; ./dev build makes it")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.child:
        import bitsandbytes
        import peft

        group = Group(**json.loads(arguments.group))
        serve(lambda: PeftStep(group, arguments.child), arguments.threads, (peft, bitsandbytes))
        return
    hold_to(arguments.isa)
    tables, report, versions = [[HEADER], [SMALL_HEADER], []], [], set()

    def compare(group, bases, rows, **how):
        sides, said = measure(group, arguments, bases, **how)
        versions.update(said)
        report.append({"group": dataclasses.asdict(group), "sides": sides})
        for row in rows(sides):
            print(row, flush=True)
            tables[0 if how.get("torch_too", True) else 1].append(row)

    print(HEADER)
    for model in arguments.model:
        for recompute in arguments.recompute:
            for batch in arguments.batch + arguments.memory_batch:
                group = Group(model, *batch, recompute == "on")
                compare(group, arguments.base, lambda sides, group=group: [row_text(group, base, sides) for base in arguments.base],
                        rounds=1 if batch in arguments.memory_batch else None)
    print("\n" + SMALL_HEADER)
    for model in arguments.model:
        for batch in arguments.small_batch:
            group = Group(model, *batch, False)
            compare(group, ("bf16", "nf4"), lambda sides, group=group: [small_row_text(group, sides)], torch_too=False, rounds=max(2, arguments.rounds))
    for model in arguments.model:
        lines = yardsticks(arguments, model, arguments.batch[0], arguments.recompute[0] == "on")
        tables[2] += lines[2:] if tables[2] else lines
    print("\n" + "\n".join(tables[2]))
    about = (f"{machine_text(arguments.program, sorted(versions))}; {arguments.threads} threads, medians of {arguments.rounds} rounds of {arguments.steps} "
             f"steps, the sides in turn.")
    print("\n" + about)
    if arguments.json:
        arguments.json.write_text(json.dumps({"about": about, "rows": report}, indent=1) + "\n")
    if arguments.write:
        replace_section(arguments.write, command_text("peft", sys.argv[1:]), "\n\n".join(["\n".join(table) for table in tables] + [about]))


if __name__ == "__main__":
    main()
