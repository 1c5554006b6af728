#!/usr/bin/env python3
"""The table of recorded jobs by torchtune's recipes and its split: writes tune.json.

    tests/memory/tune.py

As for jobs.json all is drawn from one seed before any rule was written: a family and a third of all jobs are held back. Models of 7 and 8 B keep
their widths and have fewer layers, so that any host can record them."""

import random

import jobs

SEED = 20261128
# model: (family, layers or None for all, rows x tokens to draw from)
MODELS = {
    "llama3-1b": ("llama", None, [(1, 512), (1, 4096), (2, 1024), (4, 512), (4, 2048), (3, 777)]),
    "llama3-8b": ("llama", 3, [(1, 512), (1, 2048), (2, 1024), (4, 1024)]),
    "llama3.1-8b": ("llama", 4, [(1, 512), (1, 2048), (2, 1024), (2, 4096)]),
    "llama2-7b": ("llama", 5, [(1, 512), (1, 4096), (2, 1024), (4, 512)]),
    "mistral-7b": ("mistral", 3, [(1, 512), (1, 2048), (2, 1024), (4, 512)]),
    "qwen2.5-0.5b": ("qwen2", None, [(1, 512), (2, 2048), (4, 1024), (8, 512), (3, 777)]),
    "qwen2.5-7b": ("qwen2", 3, [(1, 512), (1, 2048), (2, 1024), (4, 512)]),
    "phi3-mini": ("phi3", 4, [(1, 512), (1, 2048), (2, 1024), (4, 512), (1, 4096)]),
    "gemma2-2b": ("gemma2", 6, [(1, 512), (1, 2048), (2, 1024), (4, 512)]),
}
LATER = {"gemma-2b": ("gemma", 5, [(1, 512), (1, 2048), (2, 1024), (4, 512)])}  # of the third draw alone
CAN_BE_HELD_BACK = ["mistral", "qwen2", "phi3", "gemma2"]
BASE = {"transformers": jobs.NEWEST, "loop": "torchtune", "capability": "8.0", "precision": "bf16", "optimizer": "adamw", "implementation": "fused",
        "in_backward": False, "mask": "none", "checkpointing": None, "accumulation": 1, "clip": None, "chunks": 8, "lora": None}
TARGETS = [["q_proj", "v_proj"], ["q_proj", "v_proj", "output_proj"], ["q_proj", "v_proj", "output_proj", "mlp"],
           ["q_proj", "k_proj", "v_proj", "output_proj", "mlp"]]
BOTH = ["bf16", "bf16", "fp32"]
ON = "non-reentrant"


def settings():
    """(how many jobs, what is set; a list is drawn from). Beside these each model has one job of its own."""
    paged = {"optimizer": "paged-adamw8bit", "implementation": "default"}
    yield 4, paged | {"in_backward": True, "checkpointing": ON}
    yield 3, paged | {"precision": BOTH}
    yield 3, {"optimizer": "adamw8bit", "implementation": "default", "in_backward": [True, False]}
    yield 4, {"in_backward": True, "implementation": ["fused", "default"], "precision": BOTH}
    yield 6, {"checkpointing": ON, "precision": BOTH}
    yield 5, {"accumulation": [2, 4], "precision": BOTH, "checkpointing": [None, ON]}
    yield 4, {"clip": 1.0, "precision": BOTH}
    yield 4, {"chunks": 0, "precision": BOTH}
    yield 3, {"chunks": [2, 4, 16]}
    yield 4, {"implementation": ["default", "default", "loop"], "precision": BOTH}
    yield 2, {"optimizer": "sgd", "implementation": "default", "in_backward": [True, False]}
    yield 2, {"capability": "7.5", "precision": "fp32"}
    yield 4, {"capability": ["8.6", "8.9", "9.0"], "precision": BOTH}
    yield 10, {"lora": [8, 16, 64], "precision": BOTH}
    yield 6, {"lora": [8, 64], "checkpointing": ON}
    yield 4, {"lora": [8, 64], "accumulation": [2, 8], "clip": [None, 1.0]}
    yield 3, {"lora": [8, 64], "chunks": [0, 4]}
    yield 3, {"lora": [8, 64], **paged}


def finished(rng, model, setting):
    job = BASE | {key: rng.choice(value) if isinstance(value, list) and value else value for key, value in setting.items()} | {"model": model}
    _, layers, sizes = (MODELS | LATER)[model]
    job["batch"], job["seq"] = rng.choice(sizes)
    if layers:
        job["layers"] = layers
    if job["lora"]:
        job["lora"] = {"rank": job["lora"], "targets": rng.choice(TARGETS), "dropout": rng.choice([0.0, 0.0, 0.05])}
    parts = [model, f"b{job['batch']}", f"s{job['seq']}", job["precision"], "tune"]
    for key, plain in BASE.items():
        value = job[key]
        if key == "precision" or value == plain:
            continue
        if key == "lora":
            parts.append(f"lora{value['rank']}x{len(value['targets'])}" + ("drop" if value["dropout"] else ""))
        elif key in ("accumulation", "capability", "clip", "chunks"):
            parts.append({"accumulation": "acc", "capability": "sm", "clip": "clip", "chunks": "chunks"}[key] + str(value))
        elif key == "in_backward":
            parts.append("inbwd")
        else:
            parts.append(str(value))
    return {"name": "-".join(parts)} | job


def table():
    rng = random.Random(SEED)
    family = rng.choice(CAN_BE_HELD_BACK)
    found = {}

    def add(models, setting):
        for _ in range(200):
            job = finished(rng, rng.choice(models), setting)
            if job["name"] not in found:
                found[job["name"]] = job
                return
        raise SystemExit(f"no further job with {setting}")

    for model in MODELS:
        add([model], {"precision": BOTH})
    for count, setting in settings():
        for _ in range(count):
            add(list(MODELS), setting)
    for job in found.values():
        job["held_back"] = MODELS[job["model"]][0] == family
    rest = [job for job in found.values() if not job["held_back"]]
    wanted = (len(found) + 2) // 3 - (len(found) - len(rest))
    for job in rng.sample(rest, max(0, wanted)):
        job["held_back"] = True
    return family, list(found.values())


def quantized(found, family):
    """A second draw, before there was a rule for it: QLoRA, whose weights are torchao's NF4Tensor. Of qwen2 torchtune has none."""
    rng = random.Random(SEED + 1)
    models = [model for model in MODELS if MODELS[model][0] != "qwen2"]
    later = {}
    while len(later) < 15:
        job = finished(rng, rng.choice(models), {"lora": [8, 16, 64], "checkpointing": [ON, ON, None], "capability": ["8.0", "8.0", "8.9"]}) | {"quantized": "nf4"}
        job["name"] += "-nf4"
        if job["name"] not in found and job["batch"] * job["seq"] <= 4096:
            later[job["name"]] = job | {"held_back": MODELS[job["model"]][0] == family}
    rest = [job for job in later.values() if not job["held_back"]]
    for job in rng.sample(rest, max(0, 5 - (len(later) - len(rest)))):
        job["held_back"] = True
    return list(later.values())


def beside(found, family):
    """A third draw, when the rules of the others stood and before there was one for it: the first Gemma, and DoRA. A third of each is held back."""
    rng = random.Random(SEED + 2)
    later = {}

    def add(models, setting, more=None):
        while True:
            job = finished(rng, rng.choice(models), setting)
            for key, value in (more or {}).items():
                if key == "use_dora":
                    job["lora"]["use_dora"] = value
                    job["name"] += "-dora"
                else:
                    job[key] = value
                    job["name"] += f"-{value}"
            if job["name"] not in found and job["name"] not in later:
                later[job["name"]] = job | {"held_back": False}
                return

    for setting in ({"precision": "bf16"}, {"precision": "fp32"}, {"checkpointing": ON}, {"in_backward": True, "checkpointing": ON}, {"lora": [8, 64]},
                    {"lora": [8, 64], "precision": "fp32", "checkpointing": ON}):
        add(list(LATER), setting)
    add(list(LATER), {"lora": 8, "checkpointing": ON}, {"quantized": "nf4"})
    dora = [model for model in MODELS if MODELS[model][0] != family]
    for _ in range(6):
        add(dora, {"lora": [8, 16, 64], "precision": BOTH, "checkpointing": [None, ON]}, {"use_dora": True})
    for _ in range(2):
        add([model for model in dora if "qwen" not in model], {"lora": [8, 16], "checkpointing": ON}, {"quantized": "nf4", "use_dora": True})
    for kind in ("gemma-2b", "dora"):
        some = [name for name in later if kind in name]
        for name in rng.sample(some, (len(some) + 2) // 3):
            later[name]["held_back"] = True
    return list(later.values())


def packed():
    """A fourth draw, before there was a rule for it: dataset.packed, whose attention is compiled. Gemma 2's takes no such masks."""
    rng = random.Random(SEED + 3)
    later = {}
    for setting in ({}, {}, {"precision": "fp32"}, {"checkpointing": ON}, {"checkpointing": ON, "in_backward": True}, {"accumulation": 2}, {"lora": [8, 64]}, {"lora": [8, 64]},
                    {"lora": [8, 64], "checkpointing": ON}):
        while True:
            job = finished(rng, rng.choice([model for model in MODELS | LATER if model != "gemma2-2b"]), setting) | {"packed": True}
            job["name"] += "-packed"
            if job["name"] not in later:
                later[job["name"]] = job | {"held_back": False}
                break
    for name in rng.sample(list(later), 3):
        later[name]["held_back"] = True
    return list(later.values())


def lessons():
    """Models of two layers, whose requests are stored one by one. Those of the family that is held back were recorded when it had been scored."""
    result = []
    nf4 = {"lora": 8, "quantized": "nf4", "checkpointing": ON}
    for model, setting in (("llama3-1b", {}), ("llama3-1b", {"precision": "fp32", "checkpointing": ON}), ("llama3-8b", {"lora": 8}),
                           ("qwen2.5-0.5b", {"in_backward": True}), ("phi3-mini", {}), ("llama3-1b", nf4), ("gemma2-2b", {}),
                           ("gemma2-2b", {"precision": "fp32"}), ("llama3-1b", {"lora": 8, "dora": True}), ("llama3-1b", {"packed": True}),
                           ("qwen2.5-0.5b", {"packed": True, "checkpointing": ON}), ("gemma-2b", {"checkpointing": ON})):
        rng = random.Random(1)
        setting = dict(setting)
        dora = setting.pop("dora", False)
        job = finished(rng, model, setting) | {"batch": 2, "seq": 256, "layers": 2}
        if job["lora"]:
            job["lora"] = {"rank": 8, "targets": TARGETS[2], "dropout": 0.05} | ({"use_dora": True} if dora else {})
        words = [job["precision"]] + [word for word in (job.get("quantized"), "packed" if job.get("packed") else "", "dora" if dora else "lora" if job["lora"] else "", "checkpointed" if job["checkpointing"] else "",
                                                        "inbwd" if job["in_backward"] else "") if word]
        result.append(job | {"name": f"lesson-{model}-b2-s256-{'-'.join(words)}-tune"})
    return result


def main():
    family, some = table()
    some += quantized([job["name"] for job in some], family)
    some += beside([job["name"] for job in some], family)
    some += packed()
    jobs.write("tune.json", {"seed": SEED, "held_back_families": [family]}, some, lessons())


if __name__ == "__main__":
    main()
