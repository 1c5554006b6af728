#!/usr/bin/env python3
"""Training steps of Headroom beside PyTorch's on this machine: tokens per second and peak memory.

    ./dev bench pytorch                                         # GPT-2 124M and SmolLM2-135M, 4 x 256, fp32 and bf16
    ./dev bench pytorch --model gpt2-124m --batch 4x64 --precision fp32 --recompute off --torch eager --rounds 2
    ./dev bench pytorch --batch 4x256 4x1024 --write            # also into docs/performance.md

Every row of the table is a group: Headroom, PyTorch eager and torch.compile with the same model, batch, AdamW (fused),
clipping, precision and recomputation.

    precision   headroom                PyTorch
    fp32        --precision fp32        fp32
    bf16        --precision bf16        fp32 weights, autocast to bf16
    bf16-pure   --precision bf16-pure   everything in bf16, AdamW's moments too
                --moments bf16
    recompute   --recompute block       gradient checkpointing of each block

Each side is a process of its own and only one of them computes at a time: a round lets each make some steps in turn
while the others wait, because a shared machine's rate moves within seconds. The medians of one row compare; figures of
two rows less so. PyTorch's processes are kept for the next round where memory allows it (compiling takes a minute).
Peak memory is the process's high-water mark (VmHWM), libraries included; both sides' warm-up steps count for it.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import ROOT, available_bytes, command_text, core_count, find, machine_text, replace_section, total_bytes  # noqa: E402

WARMUP_STEPS = 2
GPT2_124M = {"model_type": "gpt2"}  # transformers' defaults are this model
SMOLLM2_135M = {
    "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
}
MODELS = {"gpt2-124m": GPT2_124M, "smollm2-135m": SMOLLM2_135M}
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


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch's processes. torch is imported in them only; the parent stays small.


def peak_bytes():
    """High-water mark of this process's resident memory."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def make_model(group):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    keys = dict(MODELS[group.model])
    if keys.pop("model_type") == "gpt2":
        config = transformers.GPT2Config(**keys, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    else:
        config = transformers.LlamaConfig(**keys, use_cache=False)
    dtype = torch.bfloat16 if group.precision == "bf16-pure" else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    if group.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


class TorchStep:
    def __init__(self, group, mode):
        import torch

        self.torch, self.group = torch, group
        torch.manual_seed(0)
        self.model = make_model(group)
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


def torch_main(group, mode, threads):
    """Warms up, then makes as many steps as each line of standard input says; a line of JSON answers each."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    step = TorchStep(group, mode)
    for _ in range(WARMUP_STEPS):
        step()
    print(json.dumps({"versions": f"PyTorch {torch.__version__}, transformers {transformers.__version__}"}), flush=True)
    for line in sys.stdin:
        step()  # what waited has cold caches
        seconds = [step() for _ in range(int(line))]
        print(json.dumps({"step_seconds": seconds, "peak_bytes": peak_bytes()}), flush=True)


class TorchSide:
    """One PyTorch process, started when it is first needed."""

    def __init__(self, group, mode, arguments, work):
        self.name = mode
        self.versions = None
        self.command = [sys.executable, __file__, "--child", mode, "--group", json.dumps(dataclasses.asdict(group)),
                        "--threads", str(arguments.threads)]
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1",
                            "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "50",
                            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
        self.errors = work / f"{mode}.err"
        self.process = None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            tail = "\n".join(self.errors.read_text(errors="replace").splitlines()[-5:])
            raise RuntimeError(f"torch {self.name} ended with {self.process.wait()}:\n{tail}")
        return json.loads(line)

    def round(self, steps):
        if self.process is None:
            self.process = subprocess.Popen(self.command, env=self.environment, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=self.errors.open("w"))
            self.versions = self.answer()["versions"]
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        result = self.answer()
        if available_bytes() < total_bytes() // 2:  # the next side needs the memory
            self.stop()
        return result

    def stop(self):
        if self.process is None:
            return
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.process = None


# ---------------------------------------------------------------------------------------------------------------------
# Headroom's


class HeadroomSide:
    """A run of the program for each round: it starts in a second or two."""

    name = "headroom"

    def __init__(self, group, arguments, work):
        self.versions = None
        self.data, self.out = work / "text.txt", work / "run"
        steps = WARMUP_STEPS + arguments.steps
        write_text(self.data, 2 * group.batch * (group.sequence + 1) * steps)
        self.command = [arguments.program, "train", group.model, "--data", self.data, "--out", self.out, "--quiet",
                        "--seq", group.sequence, "--micro-batch", group.batch, "--steps", steps,
                        "--threads", arguments.threads, "--optimizer", "adamw", "--weight-decay", 0.1, "--lr", 1e-4,
                        *precision_option(group.precision)]
        if group.smallest:
            self.command += SMALLEST
        else:
            self.command += ["--clip", 1.0, "--recompute", "block" if group.recompute else "none"]

    def round(self, steps):
        done = subprocess.run([str(word) for word in self.command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"headroom ended with {done.returncode}:\n{done.stderr}")
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        seconds = [line["step_seconds"] for line in lines if "step_seconds" in line]
        run = json.loads((self.out / "run.json").read_text())
        self.versions = find(run, "libraries", str)
        shutil.rmtree(self.out)  # a checkpoint of 124M parameters is 1.5 GB
        return {"step_seconds": seconds[WARMUP_STEPS:], "peak_bytes": find(run, "process_peak_bytes", int)}

    def stop(self):
        pass


def precision_option(precision):
    """Nothing for fp32, so that programs without the option can be measured."""
    return {"fp32": [], "bf16": ["--precision", "bf16"], "bf16-pure": ["--precision", "bf16-pure", "--moments", "bf16"]}[precision]


def write_text(path, size):
    """Random printable bytes in short lines: its content costs nothing to learn and nothing to tokenize."""
    source = random.Random(0)
    letters = [chr(code) for code in range(32, 127)]
    with open(path, "w") as file:
        while size > 0:
            line = "".join(source.choices(letters, k=63)) + "\n"
            file.write(line)
            size -= len(line)


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
    results, versions = {}, set()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        work = pathlib.Path(temporary)
        sides = [HeadroomSide(group, arguments, work)] if arguments.program else []
        if not group.smallest:
            sides += [TorchSide(group, mode, arguments, work) for mode in arguments.torch]
        try:
            for number in range(arguments.rounds):
                for side in list(sides):
                    try:
                        result = side.round(arguments.steps)
                    except RuntimeError as error:  # the table shows a gap; the others go on
                        print(f"{group} {side.name}: {error}", file=sys.stderr)
                        sides.remove(side)
                        results.pop(side.name, None)
                        continue
                    results.setdefault(side.name, []).append(result)
                    versions |= {side.versions} - {None}
                    print(f"{group.model} {group.batch}x{group.sequence} {group.precision}"
                          f"{' recompute' if group.recompute else ''}{' smallest' if group.smallest else ''}, round {number + 1}, "
                          f"{side.name}: {statistics.median(result['step_seconds']):.3f} s/step, {result['peak_bytes'] / 2**30:.2f} GiB",
                          file=sys.stderr, flush=True)
        finally:
            for side in sides:
                side.stop()
    summary = {}
    for name, rounds in results.items():
        seconds = statistics.median(s for result in rounds for s in result["step_seconds"])
        summary[name] = {"step_seconds": seconds, "tokens_per_second": group.tokens / seconds,
                         "round_step_seconds": [statistics.median(result["step_seconds"]) for result in rounds],
                         "peak_bytes": max(result["peak_bytes"] for result in rounds)}
    return summary, versions


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


def parse_batch(text):
    batch, _, sequence = text.partition("x")
    if not (batch.isdigit() and sequence.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not BATCHxSEQUENCE, such as 4x256")
    return int(batch), int(sequence)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batch", nargs="+", type=parse_batch, default=[(4, 256)], metavar="BxT", help="rows x tokens (4x256)")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["fp32", "bf16"])
    parser.add_argument("--recompute", nargs="+", choices=("off", "on"), default=["off"])
    parser.add_argument("--smallest", action="store_true", help="also Headroom with " + " ".join(SMALLEST))
    parser.add_argument("--torch", nargs="*", choices=("eager", "compile"), default=["eager", "compile"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help=f"timed steps a round, after {WARMUP_STEPS} to warm up")
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--scratch", type=pathlib.Path, help="where runs are written (TMPDIR)")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures here")
    parser.add_argument("--write", nargs="?", const="pytorch", metavar="SECTION", help="also put the table into this section of docs/performance.md (pytorch)")
    parser.add_argument("--child", choices=("eager", "compile"), help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        print(f"{arguments.program}: no such program; only PyTorch is measured", file=sys.stderr)
        arguments.program = None
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.child:
        torch_main(Group(**json.loads(arguments.group)), arguments.child, arguments.threads)
        return
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
