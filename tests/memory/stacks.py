#!/usr/bin/env python3
"""The table of recorded jobs of axolotl and of LLaMA-Factory and its split: writes stacks.json. How they are run stands in frameworks.py.

    tests/memory/stacks.py

As for jobs.json all is drawn from one seed before any rule was written and before any result was there, and a third is held back. Large models keep
their widths and have fewer layers, since LLaMA-Factory makes the weights of a full fine-tune fp32 on the host."""

import random

import jobs

SEED = 20261128
LAYERS = {"llama3-8b": 2, "mistral-7b": 3, "phi3-mini": 4, "gemma2-2b": 5, "qwen3-4b": 4}
MODELS = ["llama3-1b", "llama3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-4b", "phi3-mini", "gemma2-2b", "gemma3-1b"]
SEPARATE = [name for name in MODELS if name != "phi3-mini"]  # q, k and v are modules of their own
CHECKPOINTING = [None, "reentrant", "non-reentrant"]


def axolotl():
    """`kernels` false: lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel, lora_embedding_kernel false; without it axolotl turns them on beside adapters."""
    lora = {"lora": [8, 16, 32], "precision": "amp-bf16", "checkpointing": CHECKPOINTING}
    four = lora | {"quantized": "nf4-double", "checkpointing": ["reentrant", "reentrant", "non-reentrant", None], "optimizer": ["adamw", "adamw8bit", "paged-adamw8bit"]}
    yield 4, MODELS, {"precision": "amp-bf16", "checkpointing": CHECKPOINTING, "optimizer": ["adamw", "adamw", "adamw8bit", "paged-adamw8bit"]}
    yield 1, MODELS, {"precision": "fp32", "checkpointing": CHECKPOINTING}
    yield 2, MODELS, {"precision": "bf16", "checkpointing": CHECKPOINTING}
    yield 1, MODELS, {"precision": "amp-bf16", "accumulation": [2, 4]}
    yield 1, MODELS, {"precision": "amp-bf16", "attention": "eager"}
    yield 3, MODELS, lora | {"kernels": False}
    yield 5, SEPARATE, lora
    yield 2, MODELS, four | {"kernels": False}
    yield 4, SEPARATE, four
    yield 1, SEPARATE, four | {"quantized": "nf4"}
    yield 2, ["llama3-1b", "llama3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b"], lora | {"quantized": "int8"}
    yield 1, ["llama3-1b", "qwen2.5-0.5b"], four | {"precision": "amp-fp16", "capability": "7.5"}
    yield 2, MODELS, {"precision": "amp-bf16", "liger": True, "checkpointing": CHECKPOINTING}
    yield 1, SEPARATE, lora | {"liger": True}
    yield 1, ["llama3-1b", "llama3-8b", "qwen2.5-0.5b", "qwen3-0.6b"], {"precision": "amp-bf16", "sample_packing": True, "checkpointing": CHECKPOINTING}
    yield 2, ["llama3-1b", "llama3-8b", "qwen2.5-0.5b", "qwen3-0.6b"], lora | {"sample_packing": True}


def llama_factory():
    """`quantized`: quantization_bit, nf4 with double_quantization false; `frozen_but`: finetuning_type freeze, so many last layers train."""
    full = {"precision": "amp-bf16", "checkpointing": ["reentrant", "reentrant", None]}
    lora = full | {"lora": [8, 16, 32]}
    four = lora | {"quantized": "nf4-double", "optimizer": ["adamw", "adamw8bit", "paged-adamw8bit"]}
    yield 4, MODELS, full | {"optimizer": ["adamw", "adamw", "adamw8bit", "adafactor"]}
    yield 1, MODELS, full | {"precision": "fp32"}
    yield 3, MODELS, full | {"precision": "bf16"}
    yield 1, MODELS, full | {"accumulation": [2, 4]}
    yield 1, MODELS, full | {"checkpointing": "non-reentrant"}
    yield 1, MODELS, full | {"upcast_layernorm": True}
    yield 1, MODELS, full | {"attention": "eager"}
    yield 2, MODELS, full | {"liger": True}
    yield 2, ["llama3-1b", "qwen2.5-0.5b", "qwen3-0.6b"], full | {"frozen_but": [1, 2, 4]}
    yield 4, MODELS, lora
    yield 2, MODELS, lora | {"precision": "bf16"}
    yield 1, MODELS, lora | {"upcast_layernorm": True}
    yield 1, MODELS, lora | {"liger": True}
    yield 1, MODELS, lora | {"peft": {"use_dora": True}}
    yield 3, MODELS, four
    yield 1, MODELS, four | {"quantized": "nf4"}
    yield 1, MODELS, four | {"upcast_layernorm": True}
    yield 2, ["llama3-1b", "llama3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b"], lora | {"quantized": "int8"}
    yield 1, ["llama3-1b", "qwen2.5-0.5b"], four | {"precision": "amp-fp16", "capability": "7.5", "quantized": "nf4-double"}


def finished(rng, stack, model, setting):
    job = jobs.BASE | {key: rng.choice(value) if isinstance(value, list) else value for key, value in setting.items()} | {"model": model, "loop": stack}
    more = job.pop("peft", {})
    job["batch"], job["seq"] = rng.choice([shape for shape in jobs.MODELS[model][1] if shape[1] % 64 == 0])  # both pad to a multiple
    if model in LAYERS:
        job["layers"] = LAYERS[model]
    if jobs.MODELS[model][0] == "gemma2":
        job["attention"] = "eager"
    if job["lora"]:
        job["lora"] = {"rank": job["lora"], "targets": jobs.targets_of(jobs.MODELS[model][0], rng), "dropout": rng.choice([0.0, 0.05])} | more
    name = jobs.name_of(job)
    name += "".join("-" + word for word in (
        job.get("quantized"), "dora" if more else "", "no-kernels" if "kernels" in job else "", "liger" if job.get("liger") else "",
        "packing" if job.get("sample_packing") else "", "upcast" if job.get("upcast_layernorm") else "",
        f"last{job['frozen_but']}" if "frozen_but" in job else "") if word)
    return {"name": name} | job


def table():
    rng = random.Random(SEED)
    found = {}
    for stack, kinds in (("axolotl", axolotl), ("llama-factory", llama_factory)):
        names = []
        for count, models, setting in kinds():
            for _ in range(count):
                while (job := finished(rng, stack, rng.choice(models), setting))["name"] in found or not jobs.allowed(job):
                    pass
                found[job["name"]] = job | {"held_back": False}
                names.append(job["name"])
        for name in rng.sample(names, (len(names) + 2) // 3):
            found[name]["held_back"] = True
    return list(found.values())


def lessons():
    """Models of two layers, whose requests are stored one by one."""
    result = []

    def add(stack, suffix, **setting):
        job = jobs.BASE | {"precision": "amp-bf16", "model": "llama3-1b", "batch": 2, "seq": 256, "layers": 2, "loop": stack} | setting
        result.append({"name": f"lesson-{jobs.name_of(job)}{suffix}"} | job)

    some = {"rank": 8, "targets": jobs.LLAMA_ALL, "dropout": 0.0}
    add("axolotl", "", checkpointing="reentrant")
    add("axolotl", "-no-kernels", lora=some, kernels=False)
    add("axolotl", "", lora=some)
    add("axolotl", "", lora=some | {"dropout": 0.05})
    add("axolotl", "-nf4-double", lora=some, quantized="nf4-double", checkpointing="reentrant")
    add("axolotl", "-packing", sample_packing=True)
    add("axolotl", "-packing", sample_packing=True, lora=some)
    add("llama-factory", "", checkpointing="reentrant")
    add("llama-factory", "", precision="bf16")
    add("llama-factory", "-upcast", lora=some, upcast_layernorm=True)
    add("llama-factory", "", lora=some, checkpointing="reentrant")
    add("llama-factory", "-nf4-double", lora=some, quantized="nf4-double", checkpointing="reentrant")
    return result


def main():
    jobs.write("stacks.json", {"seed": SEED}, table(), lessons())


if __name__ == "__main__":
    main()
