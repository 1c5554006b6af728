#!/usr/bin/env python3
"""The table of recorded jobs with what stands beside ranks that share: adapters, quantized and frozen weights, fp16, reentrant checkpointing,
evaluation, accumulation. Writes beside.json.

    tests/memory/beside.py

As for sharded.json all is drawn from one seed before any rule was written: of each part a third is held back, the families that are held back there
among them. Large models keep their widths and have fewer layers, so that any host can record them."""

import json
import random
from pathlib import Path

import jobs

SEED = 20261130
LAYERS = {"gpt2-774m": 10, "llama3-8b": 6, "mistral-7b": 5, "qwen3-4b": 8, "phi3-mini": 7, "gemma2-2b": 6, "qwen3-0.6b": 10}
MODELS = list(jobs.MODELS)
TO_PARTITION = [model for model in MODELS if model != "llama3-8b"]  # DeepSpeed's copies of weights are real ones of the host
CHECKPOINTING = ["reentrant", "non-reentrant"]
LORA = [8, 16, 64]
BASES = ["bf16", "bf16", "fp32"]
SHARDS = {"kind": "fsdp2", "reshard": True, "policy": None, "offload": False}
FLAT = {"kind": "fsdp1", "strategy": "full_shard", "policy": None}
ZERO = {"kind": "zero", "offload": None, "bucket": None}
DDP = {"kind": "ddp", "view": False, "unused": None, "mb": None}
MIXED = {"policy": ["bf16", "bf16-fp32"]}
STRATEGIES = {"strategy": ["full_shard", "full_shard", "shard_grad_op"]}


def adapters():
    """PEFT under fully_shard, FullyShardedDataParallel and DeepSpeed; `base` is what the frozen weights are loaded in where that is not what `precision` says."""
    lora, mixed = {"lora": LORA}, {"precision": "amp-bf16", "base": BASES}
    trainer = lora | mixed | {"loop": "trainer"}
    yield 4, lora | {"precision": ["fp32", "bf16"]}, SHARDS
    yield 5, lora | {"precision": ["fp32", "bf16"]}, SHARDS | MIXED
    yield 3, lora | {"precision": ["fp32", "bf16"], "checkpointing": "non-reentrant"}, SHARDS | MIXED
    yield 3, lora | mixed, SHARDS
    yield 2, lora | {"precision": ["fp32", "bf16"]}, SHARDS | MIXED | {"offload": True}
    yield 6, trainer, SHARDS
    yield 2, lora | {"precision": "fp32", "loop": "trainer"}, SHARDS
    yield 2, trainer, SHARDS | {"reshard": False}
    yield 3, trainer | {"checkpointing": "non-reentrant"}, SHARDS
    yield 2, trainer, SHARDS | {"wrapped": True}
    yield 2, trainer | {"accumulation": [2, 4]}, SHARDS
    yield 4, trainer, FLAT | STRATEGIES
    yield 2, trainer | {"checkpointing": "non-reentrant"}, FLAT
    for stage, count in ((1, 2), (2, 4), (3, 6)):
        yield count, lora | {"precision": ["bf16", "bf16", "fp32"], "loop": ["plain", "trainer"]}, ZERO | {"stage": stage}
        yield count // 2, lora | {"precision": "bf16", "loop": ["plain", "trainer"], "checkpointing": CHECKPOINTING}, ZERO | {"stage": stage}
    yield 2, lora | {"precision": "bf16", "loop": ["plain", "trainer"]}, ZERO | {"stage": 2, "offload": "optimizer"}
    yield 3, lora | {"precision": "bf16", "loop": ["plain", "trainer"]}, ZERO | {"stage": 3, "offload": ["optimizer", "all"]}


def quantized():
    """QLoRA: every rank has all of the base, or `storage`, in which bitsandbytes' codes are kept, lets fully_shard share it."""
    base = {"lora": LORA, "precision": "amp-bf16", "quantized": ["nf4", "nf4-double"], "models": ["llama3-1b", "llama3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b"]}
    yield 3, base | {"loop": "trainer", "checkpointing": CHECKPOINTING}, DDP
    yield 2, base | {"loop": "trainer"}, DDP
    yield 3, base | {"loop": "trainer", "checkpointing": [None, "non-reentrant"]}, SHARDS
    yield 4, base | {"loop": "trainer", "storage": "bf16", "checkpointing": [None, "non-reentrant"]}, SHARDS
    yield 3, base | {"loop": "trainer", "storage": "bf16", "checkpointing": [None, "non-reentrant"]}, FLAT
    yield 4, base | {"precision": "bf16", "loop": ["plain", "trainer"], "checkpointing": [None, "non-reentrant"]}, ZERO | {"stage": 2}


def settings_beside():
    """Of whole models: FullyShardedDataParallel by the Trainer, reentrant checkpointing, fp16, frozen tensors, accumulation."""
    yield 4, {"precision": ["fp32", "amp-bf16", "amp-bf16"], "loop": "trainer"}, FLAT | STRATEGIES
    yield 2, {"precision": "amp-bf16", "loop": "trainer", "checkpointing": "non-reentrant"}, FLAT
    yield 2, {"precision": "amp-bf16", "loop": "trainer", "accumulation": [2, 4]}, FLAT
    yield 3, {"precision": "fp32", "accumulation": [2, 4]}, FLAT | MIXED | STRATEGIES
    yield 2, {"precision": ["fp32", "bf16"], "accumulation": [2, 4]}, FLAT
    yield 3, {"precision": "fp32", "checkpointing": "reentrant"}, SHARDS | MIXED
    yield 3, {"precision": "amp-bf16", "loop": "trainer", "checkpointing": "reentrant"}, SHARDS
    yield 2, {"precision": "fp32", "checkpointing": "reentrant"}, FLAT | MIXED
    yield 2, {"precision": "amp-fp16"}, SHARDS
    yield 3, {"precision": "amp-fp16", "loop": "trainer"}, SHARDS
    yield 2, {"precision": "amp-fp16", "loop": "trainer"}, FLAT
    for stage in (1, 2, 3):
        yield 2, {"precision": "fp16", "loop": ["plain", "trainer"]}, ZERO | {"stage": stage}
        yield 2, {"precision": "bf16", "loop": ["plain", "trainer"], "accumulation": [2, 4]}, ZERO | {"stage": stage, "offload": "optimizer"}
    yield 2, {"frozen": [], "precision": jobs.ANY, "loop": ["plain", "trainer"]}, DDP | {"unused": [False, True]}
    yield 3, {"frozen": [], "precision": "fp32"}, SHARDS | MIXED
    yield 2, {"frozen": [], "precision": "amp-bf16", "loop": "trainer"}, SHARDS
    for stage in (2, 3):
        yield 3, {"frozen": [], "precision": "bf16", "loop": ["plain", "trainer"]}, ZERO | {"stage": stage}


def evaluations():
    """The Trainer's evaluation behind the last step: logits of all ranks go to each."""
    for batch in (2, 4):
        how = [{"batch": batch, "batches": 3, "metrics": metrics, "to_host": host} for metrics, host in ((True, None), (True, None), (True, 2), (False, None))]
        base = {"precision": ["fp32", "amp-bf16"], "loop": "trainer", "evaluation": how}
        yield 3, base, DDP
        yield 2, base, SHARDS
        yield 2, base | {"precision": "bf16"}, ZERO | {"stage": [2, 3]}


def later():
    """A second draw, when the rules of the first stood: what those had left to be refused."""
    nf4 = {"lora": LORA, "precision": "bf16", "quantized": ["nf4", "nf4-double"], "models": ["llama3-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b"]}
    yield 6, nf4 | {"loop": ["plain", "trainer"], "storage": [None, "bf16"], "checkpointing": [None, "non-reentrant"]}, ZERO | {"stage": 3}
    yield 2, nf4 | {"loop": ["plain", "trainer"]}, ZERO | {"stage": 1}
    yield 3, {"frozen": [], "precision": "fp32"}, FLAT | MIXED
    yield 2, {"frozen": [], "precision": "amp-bf16", "loop": "trainer"}, FLAT
    yield 3, {"lora": LORA, "precision": "fp32"}, FLAT | MIXED
    yield 2, {"precision": "bf16", "loop": "trainer", "accumulation": [1, 2]}, ZERO | {"stage": 1, "offload": "optimizer"}
    how = [{"batch": batch, "batches": 3, "metrics": True, "to_host": None} for batch in (2, 4)]
    yield 3, {"precision": ["fp32", "amp-bf16"], "loop": "trainer", "evaluation": how}, FLAT


PARTS = {"adapters": adapters, "quantized": quantized, "settings": settings_beside, "evaluations": evaluations}


def chosen(rng, setting):
    return {key: rng.choice(value) if isinstance(value, list) and value else value for key, value in setting.items()}


def name_of(job):
    parts = [jobs.name_of({key: job[key] for key in job if key in jobs.BASE or key in ("model", "batch", "seq")})]
    parts += [f"{job['base']}-base" if job.get("base") else "", job.get("quantized"), f"{job['storage']}-storage" if job.get("storage") else ""]
    if job.get("frozen"):
        parts.append("frozen-" + job["frozen"][0].replace("*", ""))
    if how := job.get("evaluation"):
        parts.append(f"eval{how['batch']}x{how['batches']}" + ("-metrics" if how["metrics"] else "") + (f"-host{how['to_host']}" if how["to_host"] else ""))
    parts.append(f"{job['sharding']['kind']}x{job['ranks']}")
    for key, value in job["sharding"].items():
        if key != "kind" and value is not None and value is not False:
            parts.append(key if value is True else f"{key}-{value}")
    parts += [f"no-{key}" for key, value in job["sharding"].items() if value is False and key in ("reshard", "unused")]
    return "-".join(part for part in parts if part)


def drawn(rng, setting, sharding):
    setting = dict(setting)
    models = setting.pop("models", TO_PARTITION if sharding["kind"] == "zero" else MODELS)
    while True:
        job = jobs.BASE | chosen(rng, setting) | {"model": rng.choice(models), "ranks": rng.choice([2, 4, 8, 8, 16])}
        family = jobs.MODELS[job["model"]][0]
        job["batch"], job["seq"] = rng.choice(jobs.MODELS[job["model"]][1])
        if job["model"] in LAYERS:
            job["layers"] = LAYERS[job["model"]]
        if family == "gemma2":
            job["attention"] = "eager"
        if job["lora"]:
            job["lora"] = {"rank": job["lora"], "targets": jobs.targets_of(family, rng), "dropout": rng.choice([0.0, 0.05])}
        if "frozen" in job:
            job["frozen"] = rng.choice(jobs.FROZEN["gpt2" if family == "gpt2" else "others"])
        job["sharding"] = chosen(rng, sharding)
        if jobs.allowed(job):
            return {"name": name_of(job)} | job


def table():
    families = json.loads(Path(__file__).with_name("jobs.json").read_text(encoding="utf-8"))["held_back_families"]
    return list(parts(random.Random(SEED + 1), {"later": later}, families, parts(random.Random(SEED), PARTS, families, {})).values())


def parts(rng, wanted, families, found):
    found = dict(found)
    for part, settings in wanted.items():
        some = {}
        for count, setting, sharding in settings():
            for _ in range(count):
                job = drawn(rng, setting, sharding)
                while job["name"] in found or job["name"] in some:
                    job = drawn(rng, setting, sharding)
                some[job["name"]] = job | {"part": part, "held_back": jobs.MODELS[job["model"]][0] in families}
        rest = [job for job in some.values() if not job["held_back"]]
        for job in rng.sample(rest, max(0, (len(some) + 2) // 3 - (len(some) - len(rest)))):
            job["held_back"] = True
        found |= some
    return found


def lessons():
    """Models of two layers, whose requests are stored one by one."""
    result = []

    def add(model, sharding, **setting):
        job = jobs.BASE | {"model": model, "batch": 2, "seq": 256, "ranks": 4, "layers": 2} | setting | {"sharding": sharding}
        result.append({"name": "lesson-" + name_of(job)} | job)

    lora = {"lora": {"rank": 8, "targets": jobs.LLAMA_ALL, "dropout": 0.05}}
    few = {"lora": {"rank": 8, "targets": jobs.LLAMA_TARGETS, "dropout": 0.0}}
    nf4 = few | {"quantized": "nf4-double", "precision": "amp-bf16", "loop": "trainer"}
    model = "llama3-1b"
    add(model, SHARDS, precision="bf16", **lora)
    add(model, SHARDS | {"policy": "bf16-fp32"}, precision="bf16", **lora)
    add(model, SHARDS | {"policy": "bf16"}, precision="bf16", checkpointing="non-reentrant", **few)
    add(model, SHARDS, precision="amp-bf16", base="bf16", **few)
    add(model, SHARDS | {"policy": "bf16", "offload": True}, precision="bf16", **few)
    add(model, SHARDS, precision="amp-bf16", base="bf16", loop="trainer", **lora)
    add(model, SHARDS, precision="amp-bf16", base="bf16", loop="trainer", accumulation=2, **few)
    add(model, FLAT, precision="amp-bf16", loop="trainer")
    add(model, FLAT, precision="amp-bf16", base="bf16", loop="trainer", **lora)
    add(model, FLAT | {"policy": "bf16"}, accumulation=2)
    add(model, SHARDS | {"policy": "bf16"}, checkpointing="reentrant")
    add(model, FLAT | {"policy": "bf16"}, checkpointing="reentrant")
    add(model, SHARDS, precision="amp-fp16", loop="trainer")
    for stage in (2, 3):
        add(model, ZERO | {"stage": stage}, precision="bf16", **lora)
        add(model, ZERO | {"stage": stage}, precision="bf16", loop="trainer", checkpointing="non-reentrant", **few)
        add(model, ZERO | {"stage": stage}, precision="fp16")
        add(model, ZERO | {"stage": stage, "offload": "optimizer"}, precision="bf16", accumulation=2)
        add(model, ZERO | {"stage": stage}, precision="bf16", frozen=jobs.FROZEN["others"][0])
        add(model, ZERO | {"stage": stage}, precision="bf16", loop="trainer", evaluation={"batch": 2, "batches": 3, "metrics": True, "to_host": None})
    add(model, ZERO | {"stage": 3, "offload": "all"}, precision="bf16", **few)
    add(model, SHARDS | {"policy": "bf16"}, frozen=jobs.FROZEN["others"][0])
    for sharding in (DDP, SHARDS):
        add(model, sharding, precision="amp-bf16", loop="trainer", evaluation={"batch": 2, "batches": 3, "metrics": True, "to_host": None})
        add(model, sharding, **nf4)
    for sharding in (SHARDS, FLAT):
        add(model, sharding, storage="bf16", **nf4)
    for stage in (2, 3):
        add(model, ZERO | {"stage": stage}, **(nf4 | {"precision": "bf16"}))
    add(model, ZERO | {"stage": 3}, storage="bf16", **(nf4 | {"precision": "bf16", "loop": "plain"}))
    add(model, FLAT | {"policy": "bf16"}, frozen=jobs.FROZEN["others"][0])
    add(model, FLAT | {"policy": "bf16-fp32"}, **few)
    return result


def main():
    jobs.write("beside.json", {"seed": SEED}, table(), lessons())


if __name__ == "__main__":
    main()
