#!/usr/bin/env python3
"""Other estimators of training memory beside Headroom, on the recorded jobs of tests/memory: what PyTorch's allocator really had at its peak.

    ./dev bench estimators            # the table, a minute
    ./dev bench estimators --write    # also into docs/pytorch.md
    ./dev bench estimators --list     # and every job with every figure
    ./dev bench estimators --program FILE

Each tool is run as its documentation says, on the jobs that it can express, and Headroom on the same jobs, by its command line. The figure
of a tool is what it calls the tensors' or the allocator's bytes, without what it adds for the context. They come from PyPI: fitcheck-llm and
vramcalc are installed into build/estimators; of DeepSpeed's source package, which wants PyTorch to be installed, the two functions
estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs are taken as they stand. What cannot be had is named.
"""

import argparse
import ast
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "bench/support")
from document import command_text, replace_section  # noqa: E402

FOLDER = ROOT / "build/estimators"
FITCHECK, VRAMCALC, DEEPSPEED = "fitcheck-llm==0.3.1", "vramcalc==0.1.2", "deepspeed==0.19.6"
PROGRAM = ROOT / "build/release/headroom"

PRESETS = {"gpt2-124m": "gpt2-124m", "gpt2-774m": "gpt2-774m", "llama3-1b": "llama-3.2-1b", "llama3-8b": "llama-3-8b", "mistral-7b": "mistral-7b",
           "qwen2.5-0.5b": "qwen2.5-0.5b", "qwen3-0.6b": "qwen3-0.6b", "qwen3-4b": "qwen3-4b", "phi3-mini": "phi-3-mini", "gemma2-2b": "gemma-2-2b",
           "gemma3-1b": "gemma-3-1b", "smollm2-1.7b": "smollm2-1.7b",
           "tinyllama-1.1b": "custom:family=llama,layers=22,hidden=2048,heads=32,kv-heads=4,mlp=5632,vocab=32000"}
DEVICES = {"7.5": "t4", "8.0": "a100-80", "8.6": "rtx-3090", "8.9": "rtx-4090", "9.0": "h100"}
GATED = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "gemma2": "gemma2"}


# ---- the jobs ----

def recorded():
    """(job, peak of the allocator in bytes, parameters) of all recorded jobs: loading, two steps and what is evaluated."""
    table = {job["name"]: job for job in json.loads((ROOT / "tests/memory/jobs.json").read_text(encoding="utf-8"))["jobs"]}
    for name in ("recorded.json.gz", "held_back.json.gz"):
        with gzip.open(ROOT / "tests/memory" / name, "rt", encoding="utf-8") as file:
            data = json.load(file)
        columns = data["columns"]
        step, phase, peak = (columns.index(key) for key in ("step", "phase", "allocated_peak"))
        for result in data["results"]:
            rows = [row for row in result["phases"] if row[step] <= 2 or row[phase] == "evaluate"]
            yield table[result["name"]], max(row[peak] for row in rows), result["parameters"]


def shapes():
    """MODELS of tests/memory/training.py: (family, the configuration's fields) by name, without importing PyTorch."""
    tree = ast.parse((ROOT / "tests/memory/training.py").read_text(encoding="utf-8"))
    value = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "MODELS")
    return eval(compile(ast.Expression(value), "training.py", "eval"), {"dict": dict})  # pylint: disable=eval-used


# ---- Headroom ----

def settings_of(job):
    """--engine-conf; None where an option has no counterpart."""
    conf = [f"transformers={job['transformers']}"]
    optims = {"adamw": {"default": None, "foreach": "adamw_torch", "fused": "adamw_torch_fused"}, "adamw8bit": {"default": "adamw_bnb_8bit"},
              "paged-adamw8bit": {"default": "paged_adamw_8bit"}, "adafactor": {"default": "adafactor"}, "adafactor-torch": {"default": "adafactor_torch"},
              "sgd": {"default": None}, "sgd-momentum": {"default": None}}
    if job["implementation"] not in optims[job["optimizer"]]:
        return None
    if optims[job["optimizer"]][job["implementation"]]:
        conf.append("optim=" + optims[job["optimizer"]][job["implementation"]])
    if job["checkpointing"]:
        conf.append("use_reentrant=" + ("true" if job["checkpointing"] == "reentrant" else "false"))
    if job.get("use_cache"):
        conf.append("use_cache=true")
    if job.get("saving") == "resume":
        conf.append("resume_from_checkpoint=true")
    if job["backend"]:
        conf.append("sdpa_kernel=" + {"flash": "flash_attention", "efficient": "efficient_attention", "math": "math"}[job["backend"]])
    if how := job.get("evaluation"):
        conf += [f"eval_batches={how['batches']}", f"per_device_eval_batch_size={how['batch']}"]
        conf += ["compute_metrics=true"] * how["metrics"] + [f"eval_accumulation_steps={how['to_host']}"] * bool(how["to_host"])
        conf += ["predict=true"] * how.get("predict", False) + ["eval_strategy=steps"] * how.get("middle", False)
    return ",".join(conf)


def headroom_words(job):
    precision = {"fp32": "fp32", "amp-bf16": "bf16", "amp-fp16": "fp16", "bf16": "bf16-pure", "fp16": None}[job["precision"]]
    conf = settings_of(job)
    adapters_beside_fp32 = job["lora"] and not job.get("quantized") and job["precision"].startswith("amp")
    if (job["lora"] or {}).get("use_dora") and job["lora"]["dropout"]:
        return None
    if not precision or not conf or job["loop"] == "plain-loss" or job["mask"] == "none" or job["dropout"] == 0.0 or adapters_beside_fp32:
        return None
    words = [PRESETS[job["model"]], "--device", DEVICES[job["capability"]], "--seq", job["seq"], "--micro-batch", job["batch"], "--accumulate",
             job["accumulation"], "--precision", precision, "--clip", job["clip"] or 0, "--recompute", "block" if job["checkpointing"] else "none",
             "--attention", "materialized" if job["attention"] == "eager" else "flash", "--optimizer",
             {"sgd": "sgd", "sgd-momentum": "momentum", "adafactor": "adafactor", "adafactor-torch": "adafactor"}.get(job["optimizer"], "adamw"), "--packing", "off" if job["mask"] == "padding" else "pack",
             "--engine", {"trainer": "pytorch:trainer", "trl": "pytorch:trl"}.get(job["loop"], "pytorch:plain"), "--engine-conf", conf]
    if lora := job["lora"]:
        saved = "".join(f",modules_to_save={name}" for name in lora.get("modules_to_save", ()))
        words += ["--lora", f"r={lora['rank']},targets={','.join(lora['targets'])},dropout={lora.get('dropout', 0.0)}" + ",dora" * lora.get("use_dora", False) + saved]
    if job.get("quantized"):
        words += ["--quantize", {"nf4-double": "nf4+dq"}.get(job["quantized"], job["quantized"])]
    if job.get("frozen"):
        words += ["--freeze", ",".join(job["frozen"])]
    return [str(word) for word in words]


def headroom(job, program):
    """Allocated bytes, or None: the job has a setting that no option stands for."""
    words = headroom_words(job)
    if not words:
        return None
    done = subprocess.run([program, "plan", *words, "--json", "--no-fixes"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{job['name']}: {done.stderr}")
    return json.loads(done.stdout)["engines"]["pytorch"]["allocated_bytes"]


# ---- the others: a figure in bytes, or None where the job is out of their scope ----

def plain_program(job):
    """What none of them can say: older versions and other ways change figures that they do not have."""
    return not (job["backend"] or job["mask"] == "padding" or job.get("evaluation") or job.get("frozen") or job.get("use_cache") or
                job["loop"] == "trl" or job["capability"] == "7.5" or (job["lora"] or {}).get("use_dora") or (job["lora"] or {}).get("modules_to_save"))


def vramcalc_of(job, family, shape, _parameters, tool):
    precision = {"fp32": ("fp32", "pure"), "amp-bf16": ("bf16", "amp"), "amp-fp16": ("fp16", "amp"), "bf16": ("bf16", "pure")}.get(job["precision"])
    targets = set(job["lora"]["targets"]) if job["lora"] else None
    if family not in GATED or not precision or job.get("quantized") or job["optimizer"] not in ("adamw", "sgd") or not plain_program(job):
        return None
    if targets and targets != {"q_proj", "k_proj", "v_proj", "o_proj"}:
        return None
    return tool(dict(shape, model_type=family), mode="train", dtype=precision[0], precision=precision[1], batch=job["batch"], seq_len=job["seq"],
                lora_rank=job["lora"]["rank"] if job["lora"] else None, grad_checkpoint=bool(job["checkpointing"]), optimizer=job["optimizer"],
                attn_impl=job["attention"]).total


def fitcheck_of(job, family, shape, parameters, tool):
    precision = {"fp32": "fp32", "amp-bf16": "bf16", "amp-fp16": "fp16", "bf16": "bf16", "fp16": "fp16"}[job["precision"]]
    optimizer = {"adamw": "adamw", "adamw8bit": "adamw8bit", "sgd": "sgd", "sgd-momentum": "sgd-momentum"}.get(job["optimizer"])
    if family == "gpt2" or not optimizer or not plain_program(job) and job["capability"] != "7.5":
        return None
    if job["lora"] and not set(job["lora"]["targets"]) <= {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}:
        return None
    model, training, components = tool
    heads = shape["num_attention_heads"]
    base = parameters if not job.get("quantized") else whole_parameters(family, shape)
    config = model(name=job["model"], num_params=base, hidden_size=shape["hidden_size"], num_layers=shape["num_hidden_layers"],
                   num_attention_heads=heads, num_kv_heads=shape["num_key_value_heads"], intermediate_size=shape["intermediate_size"],
                   vocab_size=shape["vocab_size"], head_dim=shape.get("head_dim", shape["hidden_size"] // heads), tie_word_embeddings=shape["tie_word_embeddings"])
    how = training(precision=precision, quantization=(job.get("quantized") or "none").split("-")[0], double_quant=job.get("quantized") == "nf4-double",
                   optimizer=optimizer, optimizer_dtype="fp32", batch_size=job["batch"], seq_len=job["seq"], lora_rank=job["lora"]["rank"] if job["lora"] else None,
                   lora_targets=job["lora"]["targets"] if job["lora"] else ["q_proj"], grad_checkpoint=bool(job["checkpointing"]),
                   flash_attn=job["attention"] != "eager", grad_accum_steps=job["accumulation"])
    parts = components(config, how)
    return round((parts.total_mib - parts.overhead_mib) * (1 << 20))


def whole_parameters(_family, shape):
    """Of a decoder with gated MLPs: the recorded count of a quantized model is of its packed codes."""
    h, f, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    width = shape.get("head_dim", h // shape["num_attention_heads"])
    q, kv = shape["num_attention_heads"] * width, shape["num_key_value_heads"] * width
    return shape["vocab_size"] * h * (1 if shape["tie_word_embeddings"] else 2) + layers * (2 * h * q + 2 * h * kv + 3 * h * f + 2 * h) + h


def deepspeed_of(stage):
    def figure(job, _family, shape, parameters, tool):
        """One GPU, nothing offloaded: 16-bit parameters and gradients, fp32 copies and two moments. Activations are not its subject."""
        if job["lora"] or job.get("quantized") or job["optimizer"] != "adamw" or not job["precision"].startswith("amp") or job["loop"] == "trl" or job.get("evaluation") or job.get("frozen"):
            return None
        if stage == 2:
            return tool(parameters, num_gpus_per_node=1, num_nodes=1, cpu_offload=False)[1]
        largest = shape["vocab_size"] * shape.get("hidden_size", shape.get("n_embd"))
        return tool(parameters, largest, num_gpus_per_node=1, num_nodes=1, cpu_offload=False, cpu_offload_params=False)[1]
    return figure


def functions_of(archive, path, name):
    """A function of a source package, as it stands."""
    with tarfile.open(archive) as package:
        member = next(member for member in package.getmembers() if member.name.endswith(path))
        tree = ast.parse(package.extractfile(member).read())
    node = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    space = {}
    exec(compile(ast.Module([node], []), path, "exec"), space)  # pylint: disable=exec-used
    return space[name]


def install():
    """(tools by name, what could not be had)."""
    tools, missing = {}, []
    python = FOLDER / "bin/python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    for name in (FITCHECK, VRAMCALC):
        if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", name], check=False).returncode:
            missing.append(name)
    archive = next(FOLDER.glob("deepspeed-*.tar.gz"), None)
    if not archive:
        subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", FOLDER, DEEPSPEED], check=False)
        archive = next(FOLDER.glob("deepspeed-*.tar.gz"), None)
    if archive:
        zero = "deepspeed/runtime/zero/"
        tools["DeepSpeed 0.19.6, ZeRO-2"] = (deepspeed_of(2), functions_of(archive, zero + "stage_1_and_2.py", "estimate_zero2_model_states_mem_needs"))
        tools["DeepSpeed 0.19.6, ZeRO-3"] = (deepspeed_of(3), functions_of(archive, zero + "stage3.py", "estimate_zero3_model_states_mem_needs"))
    else:
        missing.append(DEEPSPEED)
    sys.path += [str(path) for path in FOLDER.glob("lib/python*/site-packages")]
    if FITCHECK not in missing:
        from fitcheck.config_parser import ModelConfig
        from fitcheck.estimator import TrainingConfig, _compute_components
        tools["fitcheck-llm 0.3.1"] = (fitcheck_of, (ModelConfig, TrainingConfig, _compute_components))
    if VRAMCALC not in missing:
        from vramcalc import estimate
        tools["vramcalc 0.1.2"] = (vramcalc_of, estimate)
    return tools, missing


# ---- the table ----

def summary(errors):
    worst = max(errors, key=abs)
    return f"{len(errors)} | {statistics.median(errors):+.1f} % | {worst:+.1f} % | {100 * sum(abs(e) <= 3 for e in errors) / len(errors):.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--program", default=str(PROGRAM))
    options = parser.parse_args()
    tools, missing = install()
    models = shapes()
    own, errors = [], {name: ([], []) for name in tools}
    for job, truth, parameters in recorded():
        ours = headroom(job, options.program)
        if ours is None:
            continue
        own.append(100 * (ours / truth - 1))
        row = [f"{own[-1]:+.2f}"]
        for name, (figure, tool) in tools.items():
            theirs = figure(job, *models[job["model"]], parameters, tool)
            row.append("-" if theirs is None else f"{100 * (theirs / truth - 1):+.1f}")
            if theirs is not None:
                errors[name][0].append(100 * (theirs / truth - 1))
                errors[name][1].append(own[-1])
        if options.list:
            print(job["name"], *row)
    lines = ["| | jobs | median error | worst | within 3 % |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(errors):
        theirs, ours = errors[name]
        lines += [f"| {name} | {summary(theirs)} |", f"| Headroom, the same jobs | {summary(ours)} |"]
    lines.append(f"| Headroom, all that its options can say | {summary(own)} |")
    text = "\n".join(lines)
    for name in missing:
        text += f"\n\n{name} could not be had."
    print(text)
    if options.write:
        replace_section("estimators", command_text("estimators", ["--write"]), text, ROOT / "docs/pytorch.md")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
