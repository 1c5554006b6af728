#!/usr/bin/env python3
"""A training step of Headroom beside PyTorch's on this machine: tokens per second and peak memory, fp32, AdamW.

    ./dev bench pytorch                                   # GPT-2 124M, 4 x 256, eager, 3 rounds
    ./dev bench pytorch --torch eager compile checkpoint --model smollm2-135m --json result.json

Each measurement is a process of its own, and the rounds interleave them (headroom, torch, headroom, torch, ...), because
a shared machine's rate moves within seconds: the medians of one call compare, figures of two calls do not.
Peak memory is the process's high-water mark (VmHWM), programs and libraries included; "above start" leaves out what a
process holds before it makes its model. Without a built program only PyTorch is measured.
"""

import argparse
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
WARMUP_STEPS = 2
GEMMS = ((1024, 768, 3072), (1024, 1024, 1024))  # M, K, N

GPT2_124M = {"model_type": "gpt2"}  # transformers' defaults are this model
SMOLLM2_135M = {
    "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
}
MODELS = {"gpt2-124m": GPT2_124M, "smollm2-135m": SMOLLM2_135M}
TORCH_KINDS = ("eager", "compile", "checkpoint")


# ---------------------------------------------------------------------------------------------------------------------
# Children: they print one JSON object. torch is imported in them only; the parent stays small, because what wait4
# reports as a child's peak is at least what its parent held when it forked.


def peak_bytes():
    """High-water mark of this process's resident memory."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def child_gemm(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    rates = {}
    for m, k, n in GEMMS:
        a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
        seconds = []
        for _ in range(40):
            begin = time.perf_counter()
            torch.mm(a, b, out=c)
            seconds.append(time.perf_counter() - begin)
        rates[f"{m}x{k}x{n}"] = 2e-9 * m * k * n / statistics.median(seconds[10:])
    return {"gemm_gflops": rates, "torch": torch.__version__}


def make_model(name):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    keys = dict(MODELS[name])
    if keys.pop("model_type") == "gpt2":
        config = transformers.GPT2Config(**keys, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    else:
        config = transformers.LlamaConfig(**keys, use_cache=False)
    return lambda: transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()


def child_torch(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    make = make_model(arguments.model)
    start_bytes = peak_bytes()
    model = make()
    parameter_count = sum(p.numel() for p in model.parameters())
    if arguments.child == "checkpoint":
        model.activation_checkpointing_enable()
    step_model = torch.compile(model) if arguments.child == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    seconds = []
    for _ in range(WARMUP_STEPS + arguments.steps):
        ids = torch.randint(0, 128, (arguments.batch, arguments.seq))
        begin = time.perf_counter()
        loss = step_model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return {"step_seconds": seconds[WARMUP_STEPS:], "peak_bytes": peak_bytes(), "start_bytes": start_bytes,
            "parameter_count": parameter_count}


# ---------------------------------------------------------------------------------------------------------------------
# The parent


def run_process(command, **options):
    """(exit status, peak resident bytes as the kernel counts them, seconds)"""
    begin = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024, time.perf_counter() - begin


def run_child(arguments, kind):
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "--child", kind, "--model", arguments.model, "--batch", arguments.batch,
               "--seq", arguments.seq, "--steps", arguments.steps, "--threads", arguments.threads]
    with tempfile.TemporaryFile("w+") as out:
        status, _, _ = run_process(command, stdout=out, env=environment)
        if status != 0:
            raise RuntimeError(f"the torch process '{kind}' ended with {status}")
        out.seek(0)
        return json.loads(out.read().splitlines()[-1])


def headroom_command(arguments, data, out):
    """What this file knows of the command line: change it here."""
    return [arguments.program, "train", arguments.model, "--data", data, "--out", out, "--seq", arguments.seq,
            "--micro-batch", arguments.batch, "--steps", WARMUP_STEPS + arguments.steps, "--threads", arguments.threads,
            "--optimizer", "adamw", "--weight-decay", 0.1, "--lr", 1e-4, "--clip", 1.0,
            *arguments.headroom_options]


def run_headroom(arguments, data, work):
    out = work / f"run-{time.monotonic_ns()}"
    with tempfile.TemporaryFile("w+") as talk:
        status, peak, _ = run_process(headroom_command(arguments, data, out), stdout=talk, stderr=talk)
        if status != 0:
            talk.seek(0)
            raise RuntimeError(f"headroom ended with {status}:\n{talk.read()}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
    tokens = arguments.batch * arguments.seq
    run = json.loads((out / "run.json").read_text()) if (out / "run.json").exists() else {}
    shutil.rmtree(out)  # a checkpoint of 124M parameters is 1.5 GB
    return {"step_seconds": [tokens / rate for rate in rates[WARMUP_STEPS:]],
            "peak_bytes": find_number(run, "process_peak_bytes") or peak, "wait4_peak_bytes": peak,
            "planned_bytes": max((line.get("device_reserved_bytes", 0) for line in lines), default=0)}


def find_number(value, key):
    """The first number called `key` anywhere inside."""
    if isinstance(value, dict):
        if isinstance(value.get(key), (int, float)):
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if (found := find_number(item, key)) is not None:
                return found
    return None


def write_text(path, size):
    """Random printable bytes in short lines: its content costs nothing to learn and nothing to tokenize."""
    source = random.Random(0)
    letters = [chr(code) for code in range(32, 127)]
    with open(path, "w") as file:
        while size > 0:
            line = "".join(source.choices(letters, k=63)) + "\n"
            file.write(line)
            size -= len(line)


def median_of(results, key):
    """Over the rounds of one kind."""
    return statistics.median(result[key] for result in results)


def row_of(kind, results, tokens):
    step_seconds = statistics.median(s for result in results for s in result["step_seconds"])
    row = {"kind": kind, "step_seconds": step_seconds, "tokens_per_second": tokens / step_seconds,
           "round_tokens_per_second": [tokens / statistics.median(result["step_seconds"]) for result in results],
           "peak_bytes": max(result["peak_bytes"] for result in results)}
    if "start_bytes" in results[0]:
        row["above_start_bytes"] = row["peak_bytes"] - int(median_of(results, "start_bytes"))
    if results[0].get("planned_bytes"):
        row["planned_bytes"] = results[0]["planned_bytes"]
    return row


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def markdown(report):
    """The table that a person reads."""
    def gib(row, key):
        return f"{row[key] / 2**30:.2f}" if key in row else ""

    job, rows = report["job"], report["rows"]
    base = next((row for row in rows if row["kind"] == "torch eager"), rows[0])
    lines = [f"{job['model']}, fp32, AdamW, {job['batch']} x {job['seq']}, {job['threads']} threads, "
             f"{job['rounds']} rounds of {job['steps']} steps; {report['cpu']}", "",
             f"| | step s | tokens/s | of {base['kind']} | peak RSS GiB | of {base['kind']} | above start GiB |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        speed, memory = row["tokens_per_second"] / base["tokens_per_second"], row["peak_bytes"] / base["peak_bytes"]
        lines.append(f"| {row['kind']} | {row['step_seconds']:.3f} | {row['tokens_per_second']:.0f} | {speed:.2f} | "
                     f"{gib(row, 'peak_bytes')} | {memory:.2f} | {gib(row, 'above_start_bytes')} |")
    rates = ", ".join(f"{shape}: {rate:.0f}" for shape, rate in report["gemm_gflops"].items())
    return "\n".join([*lines, "", f"fp32 GEMM in PyTorch {report['torch']}, GFLOP/s: {rates}"])


def measure(arguments):
    kinds = [f"torch {kind}" for kind in arguments.torch]
    if os.access(arguments.program, os.X_OK):
        kinds.insert(0, "headroom")
    else:
        print(f"{arguments.program}: no such program; only PyTorch is measured", file=sys.stderr)
    if not kinds:
        raise RuntimeError("nothing to measure")
    results, gemms = {kind: [] for kind in kinds}, []
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        data = work / "text.txt"
        write_text(data, 2 * arguments.batch * (arguments.seq + 1) * (WARMUP_STEPS + arguments.steps))
        for number in range(arguments.rounds):
            gemms.append(run_child(arguments, "gemm"))
            for kind in kinds:
                if kind == "headroom":
                    result = run_headroom(arguments, data, work)
                else:
                    result = run_child(arguments, kind.removeprefix("torch "))
                results[kind].append(result)
                print(f"round {number + 1} {kind}: {statistics.median(result['step_seconds']):.3f} s/step",
                      file=sys.stderr, flush=True)
    tokens = arguments.batch * arguments.seq
    return {"schema_version": 1, "cpu": cpu_name(), "torch": gemms[0]["torch"],
            "job": {key: getattr(arguments, key) for key in ("model", "batch", "seq", "threads", "rounds", "steps")},
            "gemm_gflops": {shape: statistics.median(gemm["gemm_gflops"][shape] for gemm in gemms)
                            for shape in gemms[0]["gemm_gflops"]},
            "rows": [row_of(kind, results[kind], tokens) for kind in kinds]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help=f"timed steps, after {WARMUP_STEPS} to warm up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--torch", nargs="*", choices=TORCH_KINDS, default=["eager"], help="which PyTorch runs (eager)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--json", type=pathlib.Path, help="write the report here instead of after the table")
    parser.add_argument("--child", choices=("gemm", *TORCH_KINDS), help=argparse.SUPPRESS)
    parser.add_argument("headroom_options", nargs="*", help="after --: more options for headroom train")
    arguments = parser.parse_args()
    if arguments.child:
        child = child_gemm if arguments.child == "gemm" else child_torch
        print(json.dumps(child(arguments)))
        return 0
    try:
        report = measure(arguments)
    except RuntimeError as error:
        print(f"bench pytorch: {error}", file=sys.stderr)
        return 1
    print(markdown(report))
    text = json.dumps(report, indent=1)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    else:
        print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
