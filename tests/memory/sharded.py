#!/usr/bin/env python3
"""The table of recorded jobs of several ranks and its split: writes sharded.json. Rank 0 of each is recorded (ranks.py).

    tests/memory/sharded.py

As for jobs.json all is drawn from one seed before any rule was written: of each kind of sharding a third is held back, the families that
are held back there among them."""

import json
import random
from pathlib import Path

import jobs

SEED = 20261126
ANY = jobs.ANY
LORA = [{"rank": 8, "targets": jobs.LLAMA_TARGETS, "dropout": 0.0}, {"rank": 16, "targets": jobs.LLAMA_ALL, "dropout": 0.05}]
BUCKETS = {"view": [False, True], "unused": [False, False, True], "mb": None}
CHECKPOINTING = ["reentrant", "non-reentrant"]


def ddp():
    """How accelerate and people set torch.nn.parallel.DistributedDataParallel; `unused` null is what the Trainer chooses."""
    trainer = {"view": False, "unused": None, "mb": None}
    yield 9, {"precision": ANY}, BUCKETS
    yield 5, {"precision": ANY, "checkpointing": CHECKPOINTING}, BUCKETS
    yield 5, {"precision": ANY}, BUCKETS | {"mb": [10, 100]}
    yield 6, {"precision": ANY, "accumulation": [2, 4]}, BUCKETS
    yield 5, {"precision": "amp-fp16"}, BUCKETS
    yield 8, {"precision": ["fp32", "amp-bf16"], "loop": "trainer"}, trainer
    yield 5, {"precision": ["fp32", "amp-bf16"], "loop": "trainer"}, trainer | {"unused": False}
    yield 5, {"precision": "amp-bf16", "loop": "trainer", "checkpointing": CHECKPOINTING}, trainer
    yield 5, {"precision": "amp-bf16", "loop": "trainer", "accumulation": [2, 4]}, trainer
    yield 6, {"precision": "amp-bf16", "loop": "trainer", "lora": LORA}, trainer


def fsdp2():
    """torch.distributed.fsdp.fully_shard. Of a plain loop: each block, then the model, from the device "meta"; `policy` is of a
    MixedPrecisionPolicy: param_dtype and reduce_dtype. Of the Trainer: fsdp=True with its fsdp_config."""
    plain = {"reshard": True, "policy": None, "offload": False}
    mixed = {"policy": ["bf16", "bf16-fp32"]}
    yield 6, {"precision": ["fp32", "bf16"]}, plain
    yield 8, {"precision": "fp32"}, plain | mixed
    yield 5, {"precision": "fp32"}, plain | mixed | {"reshard": False}
    yield 6, {"precision": "fp32", "checkpointing": CHECKPOINTING[1]}, plain | mixed
    yield 5, {"precision": "amp-bf16"}, plain
    yield 5, {"precision": "fp32", "accumulation": [2, 4]}, plain | mixed
    yield 5, {"precision": "fp32"}, plain | mixed | {"offload": True}
    yield 8, {"precision": ["fp32", "amp-bf16", "amp-bf16"], "loop": "trainer"}, plain
    yield 5, {"precision": "amp-bf16", "loop": "trainer"}, plain | {"reshard": False}
    yield 5, {"precision": "amp-bf16", "loop": "trainer", "checkpointing": CHECKPOINTING[1]}, plain
    yield 6, {"precision": "amp-bf16", "loop": "trainer"}, plain | {"wrapped": True}
    yield 5, {"precision": "amp-bf16", "loop": "trainer", "accumulation": [2, 4]}, plain


def fsdp1():
    """FullyShardedDataParallel with one flat parameter for each block and use_orig_params, as accelerate sets it."""
    plain = {"strategy": "full_shard", "policy": None}
    mixed = {"policy": ["bf16", "bf16-fp32"]}
    yield 6, {"precision": ["fp32", "bf16", "amp-bf16"]}, plain
    yield 6, {"precision": "fp32"}, plain | mixed
    yield 5, {"precision": "fp32"}, plain | mixed | {"strategy": "shard_grad_op"}
    yield 5, {"precision": "fp32", "checkpointing": CHECKPOINTING[1]}, plain | mixed


def zero():
    """DeepSpeed's stages with the Trainer's "auto" values, bf16 or fp32; `offload`: what is on the host."""
    plain = {"offload": None, "bucket": None}
    for stage in (1, 2, 3):
        yield 6, {"precision": ["bf16", "bf16", "fp32"]}, plain | {"stage": stage}
        yield 5, {"precision": "bf16", "checkpointing": CHECKPOINTING}, plain | {"stage": stage}
        yield 5, {"precision": "bf16"}, plain | {"stage": stage, "bucket": [20000000, 200000000]}
    yield 5, {"precision": "bf16"}, plain | {"stage": 2, "offload": "optimizer"}
    yield 6, {"precision": "bf16"}, plain | {"stage": 3, "offload": ["optimizer", "all"]}


def zero_by_trainer():
    """A second draw: TrainingArguments(deepspeed=...), whose optimizer is the Trainer's own."""
    plain = {"offload": None, "bucket": None}
    for stage in (1, 2, 3):
        yield 5, {"precision": "bf16", "loop": "trainer"}, plain | {"stage": stage}
        yield 3, {"precision": "bf16", "loop": "trainer", "checkpointing": CHECKPOINTING[1]}, plain | {"stage": stage}


def zero_accumulating():
    """A third draw."""
    plain = {"offload": None, "bucket": None}
    for stage in (1, 2, 3):
        yield 5, {"precision": "bf16", "loop": ["plain", "trainer"], "accumulation": [2, 4]}, plain | {"stage": stage}


KINDS = {"ddp": ddp, "fsdp2": fsdp2, "fsdp1": fsdp1, "zero": zero}


def chosen(rng, setting):
    return {key: rng.choice(value) if isinstance(value, list) else value for key, value in setting.items()}


def name_of(job):
    parts = [jobs.name_of({key: job[key] for key in job if key in jobs.BASE or key in ("model", "batch", "seq")}), f"{job['sharding']['kind']}x{job['ranks']}"]
    for key, value in job["sharding"].items():
        if key != "kind" and value is not None and value is not False:
            parts.append(key if value is True else f"{key}-{value}")
    parts += [f"no-{key}" for key, value in job["sharding"].items() if value is False and key in ("reshard", "unused")]
    return "-".join(parts)


def drawn(rng, kind, setting, sharding):
    while True:
        models = jobs.SMALL if sharding.get("offload") or kind == "zero" else list(jobs.MODELS)  # whose weights the recording host can hold
        job = jobs.BASE | chosen(rng, setting) | {"model": rng.choice(models), "ranks": rng.choice([2, 4, 8, 8, 16])}
        family = jobs.MODELS[job["model"]][0]
        job["batch"], job["seq"] = rng.choice(jobs.MODELS[job["model"]][1])
        if family == "gemma2":
            job["attention"] = "eager"
        if job["lora"] and family in ("gpt2", "phi3"):
            job["lora"] = job["lora"] | {"targets": {"gpt2": ["c_attn"], "phi3": ["qkv_proj", "o_proj"]}[family]}
        job["sharding"] = {"kind": kind} | chosen(rng, sharding)
        if jobs.allowed(job):
            return {"name": name_of(job)} | job


def table():
    found = drawn_table(random.Random(SEED), KINDS, {})
    found = drawn_table(random.Random(SEED + 1), {"zero": zero_by_trainer}, found)
    return list(drawn_table(random.Random(SEED + 2), {"zero": zero_accumulating}, found).values())


def drawn_table(rng, kinds, found):
    first = json.loads(Path(__file__).with_name("jobs.json").read_text(encoding="utf-8"))
    found = dict(found)
    for kind, settings in kinds.items():
        some = {}
        for count, setting, sharding in settings():
            for _ in range(count):
                job = drawn(rng, kind, setting, sharding)
                while job["name"] in found or job["name"] in some:
                    job = drawn(rng, kind, setting, sharding)
                some[job["name"]] = job | {"held_back": jobs.MODELS[job["model"]][0] in first["held_back_families"]}
        rest = [job for job in some.values() if not job["held_back"]]
        for job in rng.sample(rest, max(0, (len(some) + 2) // 3 - (len(some) - len(rest)))):
            job["held_back"] = True
        found |= some
    return found


def lessons():
    """Models of two layers, whose requests are stored one by one."""
    result = []

    def add(model, kind, sharding, **setting):
        job = jobs.BASE | {"model": model, "batch": 2, "seq": 256, "ranks": 4, "layers": 2} | setting | {"sharding": {"kind": kind} | sharding}
        result.append({"name": "lesson-" + name_of(job)} | job)

    buckets = {"view": False, "unused": False, "mb": None}
    for model in ("gpt2-124m", "llama3-1b"):
        add(model, "ddp", buckets)
        add(model, "ddp", buckets | {"view": True}, precision="amp-bf16")
    add("llama3-1b", "ddp", buckets | {"unused": True})
    add("llama3-1b", "ddp", buckets | {"view": True}, precision="bf16", accumulation=2)
    add("llama3-1b", "ddp", buckets | {"unused": None}, precision="amp-bf16", loop="trainer")
    add("llama3-1b", "ddp", buckets | {"unused": None}, precision="amp-bf16", loop="trainer", accumulation=2)
    shards = {"reshard": True, "policy": None, "offload": False}
    for model in ("gpt2-124m", "llama3-1b"):
        add(model, "fsdp2", shards)
        add(model, "fsdp2", shards | {"policy": "bf16-fp32"})
    add("llama3-1b", "fsdp2", shards | {"policy": "bf16", "reshard": False})
    add("llama3-1b", "fsdp2", shards, precision="amp-bf16")
    add("llama3-1b", "fsdp2", shards | {"policy": "bf16-fp32"}, checkpointing="non-reentrant")
    add("llama3-1b", "fsdp2", shards | {"policy": "bf16-fp32"}, accumulation=2)
    add("llama3-1b", "fsdp2", shards | {"policy": "bf16", "offload": True})
    for more in ({}, {"reshard": False}, {"wrapped": True}):
        add("llama3-1b", "fsdp2", shards | more, precision="amp-bf16", loop="trainer")
    add("llama3-1b", "fsdp2", shards, precision="amp-bf16", loop="trainer", checkpointing="non-reentrant")
    add("llama3-1b", "fsdp2", shards, precision="amp-bf16", loop="trainer", accumulation=2)
    add("llama3-1b", "fsdp1", {"strategy": "full_shard", "policy": None})
    add("llama3-1b", "fsdp1", {"strategy": "full_shard", "policy": "bf16"})
    add("llama3-1b", "fsdp1", {"strategy": "shard_grad_op", "policy": "bf16-fp32"})
    for stage in (1, 2, 3):
        add("llama3-1b", "zero", {"offload": None, "bucket": None, "stage": stage}, precision="bf16")
        add("llama3-1b", "zero", {"offload": None, "bucket": 20000000, "stage": stage}, precision="bf16")
        add("llama3-1b", "zero", {"offload": None, "bucket": None, "stage": stage}, precision="bf16", loop="trainer")
        add("llama3-1b", "zero", {"offload": None, "bucket": None, "stage": stage}, precision="bf16", accumulation=2)
    add("llama3-1b", "zero", {"offload": "optimizer", "bucket": None, "stage": 2}, precision="bf16")
    add("llama3-1b", "zero", {"offload": "all", "bucket": None, "stage": 3}, precision="bf16")
    return result


def main():
    jobs.write("sharded.json", {"seed": SEED}, table(), lessons())


if __name__ == "__main__":
    main()
