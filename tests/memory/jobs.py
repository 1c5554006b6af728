#!/usr/bin/env python3
"""The table of recorded training jobs and its split: writes jobs.json.

    tests/memory/jobs.py

Everything is drawn from one seed: first which two model families and which version of transformers are held back, then the jobs, then further
held-back jobs until they are a third. Rules for PyTorch's memory may be learnt from the others only (README.md)."""

import json
import random
from pathlib import Path

SEED = 20261124
NEWEST = "5.23.0"
OLDER = ["4.46.3", "4.49.0", "4.57.3"]

# model: (family, rows x tokens to draw from, first version of transformers that has it)
MODELS = {
    "gpt2-124m": ("gpt2", [(1, 1024), (2, 512), (4, 1024), (8, 256), (8, 1024), (16, 128), (16, 512)], (4, 0)),
    "gpt2-774m": ("gpt2", [(1, 512), (2, 1024), (4, 256), (4, 1024), (8, 512)], (4, 0)),
    "llama3-1b": ("llama", [(1, 512), (1, 4096), (2, 1024), (4, 512), (4, 2048), (8, 1024)], (4, 43)),
    "llama3-8b": ("llama", [(1, 512), (1, 2048), (2, 1024), (1, 4096), (4, 1024)], (4, 43)),
    "mistral-7b": ("mistral", [(1, 512), (1, 2048), (2, 1024), (4, 512), (1, 4096)], (4, 34)),
    "qwen2.5-0.5b": ("qwen2", [(1, 512), (2, 2048), (4, 1024), (8, 512), (3, 777)], (4, 37)),
    "qwen3-0.6b": ("qwen3", [(1, 512), (2, 2048), (4, 1024), (8, 512), (5, 640)], (4, 51)),
    "qwen3-4b": ("qwen3", [(1, 512), (1, 2048), (2, 1024), (4, 512)], (4, 51)),
    "phi3-mini": ("phi3", [(1, 512), (1, 2048), (2, 1024), (4, 512), (1, 4096)], (4, 41)),
    "gemma2-2b": ("gemma2", [(1, 512), (1, 2048), (2, 1024), (4, 512)], (4, 42)),
    "gemma3-1b": ("gemma3", [(1, 256), (1, 512), (1, 2048), (2, 1024), (4, 512)], (4, 50)),
}
# GPT-2 and Llama are what the rules begin with: they are not among the families that can be held back.
CAN_BE_HELD_BACK = ["mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"]

BASE = {"transformers": NEWEST, "capability": "8.0", "precision": "fp32", "optimizer": "adamw", "implementation": "default", "attention": "sdpa",
        "backend": None, "mask": "ones", "checkpointing": None, "accumulation": 1, "loop": "plain", "clip": 1.0, "dropout": None, "lora": None}

LLAMA_TARGETS = ["q_proj", "v_proj"]
LLAMA_ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SMALL = ["gpt2-124m", "gpt2-774m", "llama3-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma3-1b"]
SIXTEEN = ["amp-bf16", "bf16"]
ANY = ["fp32", "amp-bf16", "bf16"]


def settings():
    """(how many jobs, what is set; a list is drawn from). Beside these each model has one job in each precision."""
    yield 7, {"implementation": "loop", "precision": ANY}
    yield 6, {"implementation": "foreach", "precision": ANY}
    yield 8, {"implementation": "fused", "precision": ANY + ["amp-fp16"]}
    yield 6, {"optimizer": "sgd", "precision": ANY}
    yield 6, {"optimizer": "sgd-momentum", "precision": ANY, "implementation": ["default", "fused", "loop"]}
    yield 6, {"optimizer": "adafactor", "precision": ANY}
    yield 6, {"optimizer": "adafactor-torch", "precision": ANY}
    yield 7, {"optimizer": "adamw8bit", "precision": ANY}
    yield 6, {"optimizer": "paged-adamw8bit", "precision": SIXTEEN}
    yield 8, {"precision": "amp-fp16"}
    yield 9, {"checkpointing": "reentrant", "precision": ANY}
    yield 9, {"checkpointing": "non-reentrant", "precision": ANY}
    yield 8, {"accumulation": [2, 4], "precision": ANY}
    yield 6, {"backend": "flash", "precision": SIXTEEN}
    yield 6, {"backend": "efficient", "precision": ANY}
    yield 7, {"backend": "math", "precision": ANY}
    yield 9, {"attention": "eager", "precision": ANY + ["amp-fp16"]}
    yield 7, {"capability": "7.5", "precision": ["fp32", "amp-fp16", "amp-fp16", "amp-bf16"], "models": SMALL}
    yield 6, {"capability": "8.6", "precision": ANY}
    yield 6, {"capability": "8.9", "precision": ANY}
    yield 7, {"capability": "9.0", "precision": ANY}
    yield 6, {"mask": "none", "precision": ANY}
    yield 8, {"mask": "padding", "precision": ANY}
    yield 9, {"lora": [8, 16, 64], "precision": ANY}
    yield 7, {"lora": [8, 16], "precision": ANY, "checkpointing": ["reentrant", "non-reentrant"]}
    yield 6, {"loop": "plain-loss", "precision": ANY}
    yield 5, {"clip": None, "precision": ANY}
    yield 5, {"dropout": 0.0, "precision": ANY, "models": ["gpt2-124m", "gpt2-774m"]}
    yield 7, {"loop": "trainer", "precision": ["fp32", "amp-bf16"]}
    yield 5, {"loop": "trainer", "precision": "amp-fp16"}
    yield 5, {"loop": "trainer", "precision": ["fp32", "amp-bf16"], "accumulation": [2, 4]}
    yield 5, {"loop": "trainer", "precision": "amp-bf16", "checkpointing": ["reentrant", "non-reentrant"]}
    yield 5, {"loop": "trainer", "precision": "amp-bf16", "lora": [8, 16]}
    yield 5, {"loop": "trainer", "precision": "amp-bf16", "optimizer": ["adafactor", "adamw8bit", "paged-adamw8bit"]}
    for version in OLDER:
        yield 9, {"transformers": version, "precision": ANY}
        yield 2, {"transformers": version, "precision": ANY, "attention": "eager"}
        yield 2, {"transformers": version, "precision": "amp-bf16", "checkpointing": ["reentrant", "non-reentrant"]}
        yield 3, {"transformers": version, "precision": ["fp32", "amp-bf16"], "loop": "trainer"}


def allowed(job):
    family, _, first = MODELS[job["model"]]
    version = tuple(int(part) for part in job["transformers"].split(".")[:2])
    if version < first:
        return False
    if family == "gemma2" and (job["backend"] or job["attention"] != "eager"):
        return False  # its soft-cap of scores exists in eager attention only
    if family == "gemma3" and job["backend"] == "flash" and job["seq"] >= 512:
        return False  # an explicit mask for the sliding window
    if job["mask"] == "padding" and job["backend"] == "flash":
        return False
    if family != "gpt2" and job["dropout"] is not None:
        return False
    # Scores of long rows in full, in every layer: more than any card has.
    whole = job["attention"] == "eager" or job["backend"] == "math" or job["capability"] == "7.5" and job["precision"] == "amp-bf16"
    return not (whole and job["seq"] > 2048)


def drawn(rng, setting):
    setting = dict(setting)
    models = setting.pop("models", list(MODELS))
    while True:
        job = dict(BASE)
        for key, value in setting.items():
            job[key] = rng.choice(value) if isinstance(value, list) else value
        job["model"] = rng.choice(models)
        family = MODELS[job["model"]][0]
        job["batch"], job["seq"] = rng.choice(MODELS[job["model"]][1])
        if family == "gemma2" and not job["backend"]:
            job["attention"] = "eager"
        if job["lora"]:
            targets = {"gpt2": ["c_attn"], "phi3": ["qkv_proj", "o_proj"]}.get(family, rng.choice([LLAMA_TARGETS, LLAMA_ALL]))
            job["lora"] = {"rank": job["lora"], "targets": targets, "dropout": rng.choice([0.0, 0.05])}
        if allowed(job):
            return job


def name_of(job):
    parts = [job["model"], f"b{job['batch']}", f"s{job['seq']}", job["precision"]]
    for key, plain in BASE.items():
        value = job[key]
        if key in ("precision",) or value == plain:
            continue
        if key == "lora":
            parts.append(f"lora{value['rank']}" + ("all" if len(value["targets"]) > 2 else "") + ("drop" if value["dropout"] else ""))
        elif key in ("accumulation", "capability", "clip", "dropout", "mask", "backend"):
            parts.append({"accumulation": "acc", "capability": "sm", "clip": "clip", "dropout": "dropout", "mask": "mask", "backend": ""}[key] + str(value).lower())
        else:
            parts.append(str(value))
    return "-".join(part for part in parts if part)


def table():
    rng = random.Random(SEED)
    families = sorted(rng.sample(CAN_BE_HELD_BACK, 2))
    version = rng.choice(OLDER)
    jobs = {}

    def add(setting):
        for _ in range(200):
            job = drawn(rng, setting)
            name = name_of(job)
            if name not in jobs:
                jobs[name] = {"name": name} | job
                return
        raise SystemExit(f"no further job with {setting}")

    for model in MODELS:
        for precision in ANY:
            add({"models": [model], "precision": precision})
    for count, setting in settings():
        for _ in range(count):
            add(setting)
    for job in jobs.values():
        job["held_back"] = MODELS[job["model"]][0] in families or job["transformers"] == version
    rest = [job for job in jobs.values() if not job["held_back"]]
    wanted = (len(jobs) + 2) // 3 - (len(jobs) - len(rest))
    for job in rng.sample(rest, max(0, wanted)):
        job["held_back"] = True
    return {"seed": SEED, "held_back_families": families, "held_back_transformers": version, "jobs": list(jobs.values())}


def quantized(families):
    """QLoRA: a second draw, made after the first table. The first six are those that somebody measured on a card (README.md)."""
    rng = random.Random(SEED + 1)
    jobs = {}

    def add(model, batch, seq, setting, held_back):
        job = BASE | {"quantized": "nf4"} | setting | {"model": model, "batch": batch, "seq": seq}
        name = name_of(job).replace(job["precision"], job["precision"] + "-" + job["quantized"], 1)
        jobs[name] = {"name": name} | job | {"held_back": held_back}

    for model, batch, seq, attention in (("tinyllama-1.1b", 2, 512, "sdpa"), ("tinyllama-1.1b", 2, 512, "eager"), ("tinyllama-1.1b", 2, 1024, "sdpa"),
                                         ("tinyllama-1.1b", 2, 1024, "eager"), ("tinyllama-1.1b", 2, 2048, "sdpa"), ("smollm2-1.7b", 4, 1024, "sdpa")):
        add(model, batch, seq, {"precision": "fp16", "capability": "7.5", "checkpointing": "reentrant", "attention": attention,
                                "lora": {"rank": 32, "targets": LLAMA_TARGETS[:1] + ["k_proj", "v_proj", "o_proj"], "dropout": 0.0}}, False)
    while len(jobs) < 16:
        model = rng.choice(["llama3-1b", "llama3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-4b", "phi3-mini"])
        targets = ["qkv_proj", "o_proj"] if model == "phi3-mini" else rng.choice([LLAMA_TARGETS, LLAMA_ALL])
        batch, seq = rng.choice(MODELS[model][1])
        add(model, batch, seq, {"precision": rng.choice(["bf16", "amp-bf16"]), "checkpointing": rng.choice(["reentrant", "non-reentrant"]),
                                "quantized": rng.choice(["nf4", "nf4-double"]), "optimizer": rng.choice(["adamw", "paged-adamw8bit"]),
                                "lora": {"rank": rng.choice([8, 16]), "targets": targets, "dropout": 0.05}},
            MODELS[model][0] in families or rng.random() < 0.2)
    return list(jobs.values())


def later(families):
    """A third draw, of what the first two have not: QLoRA by the Trainer with bitsandbytes' optimizers, and the Trainer's evaluation behind the
    last step. Of each kind a third is held back."""
    rng = random.Random(SEED + 2)
    jobs = {}

    def add(setting, held_back=None):
        while True:
            model = rng.choice([name for name in MODELS if name not in ("gemma2-2b", "gemma3-1b") and (name[:4] != "gpt2" or "quantized" not in setting)])
            job = BASE | {"loop": "trainer"} | {key: rng.choice(value) if isinstance(value, list) else value for key, value in setting.items()}
            job["model"] = model
            job["batch"], job["seq"] = rng.choice(MODELS[model][1])
            if job.get("quantized"):
                targets = ["qkv_proj", "o_proj"] if model == "phi3-mini" else rng.choice([LLAMA_TARGETS, LLAMA_ALL])
                job["lora"] = {"rank": rng.choice([8, 16, 64]), "targets": targets, "dropout": rng.choice([0.0, 0.05])}
            name = name_of(job)
            if job.get("quantized"):
                name = name.replace(job["precision"], job["precision"] + "-" + job["quantized"], 1)
            if job.get("evaluation"):
                how = job["evaluation"]
                name += f"-eval{how['batch']}x{how['batches']}" + ("-metrics" if how["metrics"] else "") + (f"-to-host{how['to_host']}" if how["to_host"] else "")
            if name not in jobs and allowed(job) and not (job.get("evaluation") and model == "llama3-8b"):
                held = MODELS[model][0] in families or rng.random() < 0.2
                jobs[name] = {"name": name} | job | {"held_back": held}
                return

    for _ in range(20):
        add({"quantized": ["nf4", "nf4-double"], "precision": "amp-bf16", "checkpointing": ["reentrant", "non-reentrant"],
             "optimizer": ["adamw", "adamw8bit", "paged-adamw8bit", "paged-adamw8bit"], "accumulation": [1, 1, 4], "capability": ["8.0", "8.6", "8.9", "9.0"]})
    for _ in range(4):
        add({"quantized": "nf4-double", "precision": "amp-fp16", "capability": "7.5", "checkpointing": "reentrant", "optimizer": ["adamw", "paged-adamw8bit"]})
    for _ in range(4):
        add({"quantized": "nf4-double", "precision": "amp-bf16", "checkpointing": None, "optimizer": "paged-adamw8bit"})
    for to_host, metrics, count in ((None, True, 9), (2, True, 5), (None, False, 8)):
        for _ in range(count):
            add({"precision": ["fp32", "amp-bf16", "amp-bf16", "bf16"],
                 "evaluation": [{"batch": batch, "batches": batches, "metrics": metrics, "to_host": to_host} for batch in (1, 4, 8) for batches in (3, 5)]})
    return list(jobs.values())


def further(families, version):
    """A fourth draw: what the third has not. Of each kind a third is held back."""
    rng = random.Random(SEED + 3)
    jobs = {}

    def add(setting, models, held_back=None):
        while True:
            model = rng.choice(models)
            job = BASE | {key: rng.choice(value) if isinstance(value, list) and key != "frozen" else value for key, value in setting.items()}
            family = MODELS[model][0]
            job["model"] = model
            job["batch"], job["seq"] = rng.choice(MODELS[model][1])
            if family == "gemma2":
                job["attention"] = "eager"
            if "frozen" in job:
                job["frozen"] = rng.choice(FROZEN["gpt2" if family == "gpt2" else "others"])
            if job["lora"]:
                job["lora"] = {"rank": job["lora"], "targets": targets_of(family, rng), "dropout": rng.choice([0.0, 0.05])} | setting.get("peft", {})
                if job["lora"].get("modules_to_save") and family == "gpt2":
                    job["lora"]["modules_to_save"] = ["wte"]
            job.pop("peft", None)
            name = name_of(job)
            if job.get("quantized"):
                name = name.replace(job["precision"], job["precision"] + "-" + job["quantized"], 1)
            name += "".join("-" + word for word in (
                "frozen-" + job["frozen"][0] if "frozen" in job else "", "dora" if (job["lora"] or {}).get("use_dora") else "",
                "saves-whole" if (job["lora"] or {}).get("modules_to_save") else "", "cache" if job.get("use_cache") else "") if word).replace("*", "")
            if how := job.get("evaluation"):
                name += f"-eval{how['batch']}x{how['batches']}" + "".join("-" + word for word in ("metrics", "middle", "predict") if how.get(word))
            name += "-" + job["saving"] if job.get("saving") else ""
            if name not in jobs and allowed(job):
                held = MODELS[model][0] in families or job["transformers"] == version or rng.random() < 0.2
                jobs[name] = {"name": name} | job | {"held_back": held}
                return

    every = [name for name in MODELS if name != "llama3-8b"]
    plain = [name for name in every if MODELS[name][0] not in ("gpt2", "gemma2", "gemma3")]
    for _ in range(9):
        add({"frozen": [], "precision": ANY, "checkpointing": [None, None, "non-reentrant"], "loop": ["plain", "trainer"]}, every)
    for _ in range(9):
        add({"lora": [8, 16, 64], "peft": {"use_dora": True}, "precision": ANY, "checkpointing": [None, "non-reentrant", "reentrant"]}, every)
    for _ in range(9):
        add({"lora": [8, 16], "peft": {"modules_to_save": ["lm_head"]}, "precision": ANY, "checkpointing": [None, "non-reentrant"]},
            [name for name in every if name in ("llama3-8b", "mistral-7b", "phi3-mini", "gpt2-124m", "gpt2-774m")])
    for _ in range(10):
        add({"quantized": "int8", "precision": ["amp-bf16", "amp-fp16", "bf16"], "checkpointing": ["reentrant", "non-reentrant"], "lora": [8, 16, 64],
             "loop": ["plain", "trainer"], "optimizer": ["adamw", "paged-adamw8bit"]}, plain)
    for _ in range(8):
        add({"quantized": ["nf4", "nf4-double"], "precision": ["amp-bf16", "bf16"], "checkpointing": ["reentrant", "non-reentrant"], "lora": [8, 16],
             "loop": ["plain", "trainer"]}, ["gpt2-124m", "gpt2-774m", "gemma2-2b", "gemma3-1b"])
    for _ in range(9):
        add({"use_cache": True, "precision": ANY, "loop": ["plain", "plain", "plain-loss"]}, every)
    for _ in range(5):
        add({"use_cache": True, "precision": ANY, "transformers": OLDER}, ["gpt2-124m", "gpt2-774m", "llama3-1b"])
    for extra in ({"middle": True}, {"predict": True}):
        for _ in range(6):
            add({"loop": "trainer", "precision": ["fp32", "amp-bf16"],
                 "evaluation": [{"batch": batch, "batches": 3, "metrics": metrics, "to_host": None} | extra for batch in (1, 4) for metrics in (False, True)]}, SMALL)
    for saving in ("save", "resume"):
        for _ in range(3):
            add({"loop": "trainer", "precision": ["fp32", "amp-bf16"], "saving": saving, "transformers": [NEWEST, "4.57.3"]}, ["gpt2-124m", "qwen2.5-0.5b"])
        for _ in range(3):
            add({"loop": "trainer", "precision": ["amp-bf16", "bf16"], "saving": saving, "lora": [8, 64]}, SMALL)
    for checkpointing, count in (("non-reentrant", 4), (None, 2)):
        for _ in range(count):
            add({"loop": "trl", "precision": ["fp32", "amp-bf16", "amp-bf16"], "checkpointing": checkpointing}, SMALL)
        for _ in range(count):
            add({"loop": "trl", "precision": "amp-bf16", "checkpointing": checkpointing, "lora": [8, 16]}, SMALL)
    for _ in range(4):
        add({"loop": "trl", "precision": "amp-bf16", "checkpointing": "non-reentrant", "quantized": ["nf4", "nf4-double"], "lora": [8, 16]}, plain)
    return list(jobs.values())


FROZEN = {"gpt2": [["*.wte.*", "*.wpe.*"], ["*.h.[0-5].*"], ["*.ln_*"]],
          "others": [["*.embed_tokens.*"], ["*.layers.[0-9].*"], ["*norm*"]]}


def targets_of(family, rng):
    return {"gpt2": ["c_attn"], "phi3": ["qkv_proj", "o_proj"]}.get(family) or rng.choice([LLAMA_TARGETS, LLAMA_ALL])


def lessons():
    """Models of two layers, one setting each, whose requests are stored one by one."""
    result = []

    def add(model, batch, seq, **setting):
        job = BASE | setting | {"model": model, "batch": batch, "seq": seq, "layers": 2}
        result.append({"name": "lesson-" + name_of(job)} | job)

    for precision in ANY:
        for model in ("gpt2-124m", "llama3-1b"):
            add(model, 2, 256, precision=precision)
    add("gpt2-124m", 8, 512)  # more than 3,072 tokens: the sorting backward of the embedding
    add("llama3-1b", 2, 256, precision="amp-fp16")
    add("llama3-1b", 2, 256, precision="amp-bf16", attention="eager")
    add("llama3-1b", 2, 256, precision="bf16", backend="math")
    add("llama3-1b", 2, 256, precision="bf16", mask="padding")
    add("llama3-1b", 2, 256, precision="amp-bf16", checkpointing="reentrant")
    add("llama3-1b", 2, 256, precision="amp-bf16", checkpointing="non-reentrant")
    add("llama3-1b", 2, 256, precision="amp-bf16", loop="trainer")
    add("llama3-1b", 2, 256, precision="bf16", lora={"rank": 8, "targets": LLAMA_ALL, "dropout": 0.05})
    for optimizer in ("sgd-momentum", "adafactor", "adafactor-torch", "adamw8bit"):
        add("gpt2-124m", 2, 256, optimizer=optimizer)
    add("gpt2-124m", 2, 256, implementation="loop")
    add("gpt2-124m", 2, 256, implementation="fused")
    for model in ("qwen3-0.6b", "phi3-mini", "gemma3-1b"):
        add(model, 2, 256, precision="bf16")
    add("gemma2-2b", 2, 256, precision="bf16", attention="eager")
    add("llama3-1b", 2, 256, precision="bf16", quantized="nf4", checkpointing="reentrant", lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0})
    result[-1]["name"] += "-nf4"
    add("llama3-1b", 2, 256, precision="amp-bf16", quantized="nf4-double", checkpointing="non-reentrant", loop="trainer", optimizer="paged-adamw8bit",
        lora={"rank": 8, "targets": LLAMA_ALL, "dropout": 0.05})
    result[-1]["name"] += "-nf4-double"
    for metrics, to_host in ((False, None), (True, None), (True, 2)):
        add("llama3-1b", 2, 256, precision="amp-bf16", loop="trainer", evaluation={"batch": 4, "batches": 5, "metrics": metrics, "to_host": to_host})
        result[-1]["name"] += "-eval" + ("-metrics" if metrics else "") + ("-to-host" if to_host else "")
    add("llama3-1b", 2, 256, precision="amp-bf16", quantized="int8", checkpointing="non-reentrant", lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0})
    result[-1]["name"] += "-int8"
    add("llama3-1b", 2, 256, precision="bf16", quantized="int8", checkpointing="reentrant", lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0})
    result[-1]["name"] += "-int8"
    for precision in ("bf16", "amp-bf16"):
        add("llama3-1b", 2, 256, precision=precision, lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.05, "use_dora": True})
        result[-1]["name"] += "-dora"
    add("phi3-mini", 2, 256, precision="bf16", lora={"rank": 8, "targets": ["qkv_proj"], "dropout": 0.0, "modules_to_save": ["lm_head"]})
    result[-1]["name"] += "-saves-whole"
    add("gpt2-124m", 2, 256, precision="bf16", quantized="nf4", checkpointing="non-reentrant", lora={"rank": 8, "targets": ["c_attn"], "dropout": 0.0})
    result[-1]["name"] += "-nf4"
    for version in (NEWEST, "4.49.0"):
        add("llama3-1b", 2, 256, precision="bf16", use_cache=True, transformers=version)
        result[-1]["name"] += "-cache"
    for model in ("llama3-1b", "gpt2-124m"):
        add(model, 2, 256, precision="amp-bf16", transformers="4.49.0")
    # After the held-back jobs of these kinds were scored for the first time
    add("gpt2-124m", 2, 256, precision="amp-bf16", lora={"rank": 8, "targets": ["c_attn"], "dropout": 0.05, "use_dora": True})
    result[-1]["name"] += "-dora"
    add("llama3-1b", 2, 256, precision="fp32", checkpointing="non-reentrant", lora={"rank": 64, "targets": LLAMA_ALL, "dropout": 0.0, "use_dora": True})
    result[-1]["name"] += "-dora"
    add("qwen3-0.6b", 2, 256, precision="amp-bf16", use_cache=True)
    result[-1]["name"] += "-cache"
    add("gpt2-124m", 2, 256, precision="bf16", transformers="4.49.0", attention="eager")
    for model, setting in (("gpt2-124m", {"precision": "amp-bf16"}), ("llama3-1b", {"precision": "bf16", "lora": {"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0}})):
        add(model, 2, 256, loop="trainer", saving="resume", **setting)
        result[-1]["name"] += "-resume"
    for precision in ("amp-bf16", "bf16"):
        add("llama3-1b", 2, 256, loop="trl", precision=precision)
    add("llama3-1b", 2, 256, loop="trl", precision="amp-bf16", checkpointing="non-reentrant", lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0})
    add("llama3-1b", 2, 256, loop="trl", precision="amp-bf16", checkpointing="non-reentrant", quantized="nf4", lora={"rank": 8, "targets": LLAMA_TARGETS, "dropout": 0.0})
    result[-1]["name"] += "-nf4"
    return result


def write(name, head, jobs, learnt):
    """A table: what it was drawn by, then a line for each job and each lesson."""
    groups = [f'"{group}": [\n' + ",\n".join(json.dumps(job) for job in some) + "\n]" for group, some in (("jobs", jobs), ("lessons", learnt))]
    Path(__file__).with_name(name).write_text(json.dumps(head)[:-1] + ", " + ",\n".join(groups) + "}\n", encoding="utf-8")


def main():
    result = table()
    families = result["held_back_families"]
    jobs = result.pop("jobs") + quantized(families) + later(families) + further(families, result["held_back_transformers"])
    write("jobs.json", result, jobs, lessons())


if __name__ == "__main__":
    main()
