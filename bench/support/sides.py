"""The sides of a comparison with PyTorch: each a process of its own, of which only one computes at a time.

A round lets every side make some steps in turn while the others wait, because a shared machine's rate moves within seconds.
PyTorch's processes are kept for the next round where memory allows it (compiling takes a minute). Peak memory is the process's
high-water mark (VmHWM), libraries included; warm-up steps count for it. --isa holds all sides to an instruction set.

A benchmark's own file is the program of its PyTorch processes: `FILE --child NAME --group JSON --threads N` calls serve().
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

from document import ROOT, available_bytes, core_count, find, total_bytes

WARMUP_STEPS = 2
# As transformers' configurations; the program has presets of the same names.
GPT2_124M = {"model_type": "gpt2"}  # transformers' defaults are this model
SMOLLM2_135M = {
    "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
}
LLAMA32_1B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                                                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}
MODELS = {"gpt2-124m": GPT2_124M, "smollm2-135m": SMOLLM2_135M, "llama-3.2-1b": LLAMA32_1B}
# What holds both sides to an instruction set that the processor has and would not choose: our own variable, those of PyTorch's
# kernels (which torch.compile follows), of oneDNN and of MKL.
INSTRUCTION_SETS = {
    "base": {"HEADROOM_ISA": "base", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"HEADROOM_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"HEADROOM_ISA": "avx512", "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


# ---------------------------------------------------------------------------------------------------------------------
# In PyTorch's processes. torch is imported in them only; the parent stays small.


def peak_bytes():
    """High-water mark of this process's resident memory."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def make_model(name, dtype, recompute):
    """Of random weights, to be trained."""
    import transformers

    keys = dict(MODELS[name])
    if keys.pop("model_type") == "gpt2":
        config = transformers.GPT2Config(**keys, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    else:
        config = transformers.LlamaConfig(**keys, use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def serve(make_step, threads, packages=()):
    """Warms up, then makes as many steps as each line of standard input says; a line of JSON answers each.

    make_step() gives the function that makes a step and returns its seconds; `packages` are modules whose versions are told."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    step = make_step()
    for _ in range(WARMUP_STEPS):
        step()
    versions = [f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()})",
                *(f"{module.__name__} {module.__version__}" for module in (transformers, *packages))]
    print(json.dumps({"versions": ", ".join(versions)}), flush=True)
    for line in sys.stdin:
        step()  # what waited has cold caches
        seconds = [step() for _ in range(int(line))]
        print(json.dumps({"step_seconds": seconds, "peak_bytes": peak_bytes()}), flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# The sides, and their turns


class TorchSide:
    """One PyTorch process, started when it is first needed."""

    def __init__(self, name, script, group, threads, work):
        self.name = name
        self.versions = None
        self.command = [sys.executable, script, "--child", name, "--group", json.dumps(dataclasses.asdict(group)), "--threads", str(threads)]
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1",
                            "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "50",
                            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
        self.errors = work / f"{name}.err"
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


class HeadroomSide:
    """A run of the program for each round: it starts in a second or two."""

    def __init__(self, name, program, group, options, steps, threads, work):
        """`group` has model, batch and sequence; `options` are the rest of the job."""
        self.name = name
        self.versions = None
        self.out = work / f"run-{name}"
        count = WARMUP_STEPS + steps
        data = work / f"text-{name}.txt"
        write_text(data, 2 * group.batch * (group.sequence + 1) * count)
        self.command = [program, "train", group.model, "--data", data, "--out", self.out, "--quiet", "--seq", group.sequence,
                        "--micro-batch", group.batch, "--steps", count, "--threads", threads, *options]

    def round(self, _steps):
        done = subprocess.run([str(word) for word in self.command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"headroom ended with {done.returncode}:\n{done.stderr}")
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        seconds = [line["step_seconds"] for line in lines if "step_seconds" in line]
        run = json.loads((self.out / "run.json").read_text())
        self.versions = f"{find(run, 'libraries', str)}, {find(run, 'instruction_set', str)}"
        shutil.rmtree(self.out)  # a checkpoint of 124M parameters is 1.5 GB
        return {"step_seconds": seconds[WARMUP_STEPS:], "peak_bytes": find(run, "process_peak_bytes", int)}

    def stop(self):
        pass


def write_text(path, size):
    """Random printable bytes in short lines: its content costs nothing to learn and nothing to tokenize."""
    source = random.Random(0)
    letters = [chr(code) for code in range(32, 127)]
    with open(path, "w") as file:
        while size > 0:
            line = "".join(source.choices(letters, k=63)) + "\n"
            file.write(line)
            size -= len(line)


def take_turns(sides, what, tokens, rounds, steps, choose=None):
    """{name: step_seconds, tokens_per_second, round_step_seconds, peak_bytes}, and what the sides say of their versions.

    `what` is said of each round. A side that fails is left out, and the others go on. choose(results) names, after the first
    round, the sides that need no more of them."""
    results, versions, sides = {}, set(), list(sides)
    try:
        for number in range(rounds):
            for side in list(sides):
                try:
                    result = side.round(steps)
                except RuntimeError as error:  # the table shows a gap
                    print(f"{what}, {side.name}: {error}", file=sys.stderr)
                    side.stop()
                    sides.remove(side)
                    results.pop(side.name, None)
                    continue
                results.setdefault(side.name, []).append(result)
                versions |= {side.versions} - {None}
                print(f"{what}, round {number + 1}, {side.name}: {statistics.median(result['step_seconds']):.3f} s/step, "
                      f"{result['peak_bytes'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)
            if number == 0 and choose:
                done = choose({name: statistics.median(found[0]["step_seconds"]) for name, found in results.items()})
                for side in [side for side in sides if side.name in done]:
                    side.stop()
                    sides.remove(side)
    finally:
        for side in sides:
            side.stop()
    summary = {}
    for name, found in results.items():
        seconds = statistics.median(s for result in found for s in result["step_seconds"])
        summary[name] = {"step_seconds": seconds, "tokens_per_second": tokens / seconds,
                         "round_step_seconds": [statistics.median(result["step_seconds"]) for result in found],
                         "peak_bytes": max(result["peak_bytes"] for result in found)}
    return summary, versions


def hold_to(instruction_set):
    """Of all processes that this one starts; None: whatever each side chooses."""
    os.environ.update(INSTRUCTION_SETS.get(instruction_set, {}))


def parse_batch(text):
    batch, _, sequence = text.partition("x")
    if not (batch.isdigit() and sequence.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not BATCHxSEQUENCE, such as 4x256")
    return int(batch), int(sequence)


def add_common_options(parser, children, section):
    """What every such benchmark takes; `children` are the names of its PyTorch processes."""
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--isa", choices=INSTRUCTION_SETS, help="hold both sides to this instruction set; the versions below the table say what they used")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--scratch", type=pathlib.Path, help="where runs are written (TMPDIR)")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures here")
    parser.add_argument("--write", nargs="?", const=section, metavar="SECTION", help=f"also put the table into this section of docs/performance.md ({section})")
    parser.add_argument("--child", choices=children, help="one PyTorch process, as this benchmark starts it")
    parser.add_argument("--group", help="of --child")
