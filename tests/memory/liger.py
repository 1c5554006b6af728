#!/usr/bin/env python3
"""The table of recorded jobs with Liger's kernels (use_liger_kernel) and its split: writes liger.json.

    tests/memory/liger.py

As for jobs.json all is drawn from one seed before any rule was written, and a third held back. Large models keep their widths and have fewer layers,
so that any host can record them."""

import random

import jobs

SEED = 20261127
LAYERS = {"mistral-7b": 3, "phi3-mini": 4, "gemma2-2b": 5}
MODELS = ["llama3-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "phi3-mini", "gemma2-2b", "gemma3-1b"]


def settings():
    """(how many jobs, what is set). Beside these each model has one job."""
    yield 3, {"precision": jobs.ANY, "checkpointing": ["reentrant", "non-reentrant"]}
    yield 2, {"precision": jobs.ANY, "accumulation": [2, 4]}
    yield 3, {"precision": ["fp32", "amp-bf16"], "loop": "trainer"}
    yield 3, {"precision": ["amp-bf16", "bf16"], "lora": [8, 16]}
    yield 1, {"precision": "amp-fp16", "capability": "7.5"}
    yield 2, {"precision": "amp-bf16", "loop": "trainer", "evaluation": [{"batch": 4, "batches": 3, "metrics": metrics, "to_host": None} for metrics in (False, True)]}
    yield 1, {"precision": jobs.ANY, "mask": "padding"}


def beside():
    """A second draw, when the rules of the first stood: what stands beside Liger's kernels in no job of the first."""
    nf4 = {"quantized": ["nf4", "nf4-double"], "precision": ["amp-bf16", "bf16"], "lora": [8, 16], "checkpointing": ["reentrant", "non-reentrant"]}
    yield 2, nf4 | {"loop": "plain"}
    yield 2, nf4 | {"loop": "trainer", "optimizer": ["adamw", "paged-adamw8bit"]}
    yield 2, nf4 | {"quantized": "int8", "loop": ["plain", "trainer"]}
    yield 3, {"frozen": [], "precision": jobs.ANY, "loop": ["plain", "trainer"]}
    yield 2, {"lora": [8, 16], "peft": {"use_dora": True}, "precision": ["amp-bf16", "bf16"]}
    yield 2, {"use_cache": True, "precision": jobs.ANY}
    yield 2, {"loop": "trainer", "precision": ["fp32", "amp-bf16"], "saving": "resume"}


def shared():
    """A third draw: DistributedDataParallel, and the Trainer's evaluation without logits and with those of predict()."""
    plain = {"kind": "ddp", "view": False, "unused": False, "mb": None}
    yield 3, {"precision": jobs.ANY, "sharding": [plain, plain | {"view": True}, plain | {"unused": True}]}
    yield 2, {"precision": ["fp32", "amp-bf16"], "loop": "trainer", "sharding": [plain | {"unused": None}]}
    yield 1, {"precision": "amp-bf16", "loop": "trainer", "lora": [8, 16], "sharding": [plain | {"unused": None}]}
    yield 3, {"precision": ["fp32", "amp-bf16"], "loop": "trainer", "evaluation": [{"batch": batch, "batches": 3, "metrics": False, "to_host": None} for batch in (8, 16, 32)]}


def finished(rng, model, setting):
    job = jobs.BASE | {key: rng.choice(value) if isinstance(value, list) and value else value for key, value in setting.items()} | {"model": model, "liger": True}
    more = job.pop("peft", {})
    if "sharding" in job:
        job["ranks"] = rng.choice([2, 8])
    if "frozen" in job:
        job["frozen"] = rng.choice(jobs.FROZEN["others"])
    job["batch"], job["seq"] = rng.choice(jobs.MODELS[model][1])
    if model in LAYERS:
        job["layers"] = LAYERS[model]
    if jobs.MODELS[model][0] == "gemma2":
        job["attention"] = "eager"
    if job["lora"]:
        job["lora"] = {"rank": job["lora"], "targets": jobs.targets_of(jobs.MODELS[model][0], rng), "dropout": rng.choice([0.0, 0.05])} | more
    name = jobs.name_of(job) + "-liger"
    if how := job.get("evaluation"):
        name += f"-eval{how['batch']}x{how['batches']}" + ("-metrics" if how["metrics"] else "")
    name += "".join("-" + word for word in (
        job.get("quantized"), "frozen-" + job["frozen"][0].replace("*", "") if job.get("frozen") else "", "dora" if more else "", "cache" if job.get("use_cache") else "",
        job.get("saving"), f"ddpx{job['ranks']}" if "sharding" in job else "") if word)
    name += "".join("-" + key for key in ("view", "unused") if job.get("sharding", {}).get(key))
    return {"name": name} | job


def table():
    rng = random.Random(SEED)
    found = {}

    def add(models, setting, rng=rng):
        while True:
            job = finished(rng, rng.choice(models), setting)
            if job["name"] not in found and jobs.allowed(job):
                found[job["name"]] = job | {"held_back": False}
                return

    for model in MODELS:
        add([model], {"precision": jobs.ANY, "loop": ["plain", "trainer"] if model != "gemma2-2b" else "plain"})
    for count, setting in settings():
        for _ in range(count):
            add(MODELS, setting)
    for name in rng.sample(list(found), (len(found) + 2) // 3):
        found[name]["held_back"] = True
    for number, some in enumerate((beside, shared), 1):
        first, later = set(found), random.Random(SEED + number)
        for count, setting in some():
            for _ in range(count):
                add([model for model in MODELS if setting.get("quantized") != "int8" or "gemma" not in model], setting, later)
        more = [name for name in found if name not in first]
        for name in later.sample(more, (len(more) + 2) // 3):
            found[name]["held_back"] = True
    return list(found.values())


def lessons():
    """Models of two layers, whose requests are stored one by one."""
    result = []
    for model, setting in (("llama3-1b", {"precision": "bf16"}), ("llama3-1b", {"precision": "amp-bf16", "loop": "trainer"}), ("phi3-mini", {"precision": "fp32"}),
                           ("gemma3-1b", {"precision": "amp-bf16", "checkpointing": "non-reentrant"})):
        job = jobs.BASE | setting | {"model": model, "batch": 2, "seq": 256, "layers": 2, "liger": True}
        result.append({"name": f"lesson-{jobs.name_of(job)}-liger"} | job)
    return result


def main():
    jobs.write("liger.json", {"seed": SEED}, table(), lessons())


if __name__ == "__main__":
    main()
