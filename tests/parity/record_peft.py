#!/usr/bin/env python3
"""Records what PEFT makes of adapters on the recorded models: tests/parity/peft/<case>/ (see README.md).

    build/venv/bin/python tests/parity/record_peft.py            # make all cases again
    build/venv/bin/python tests/parity/record_peft.py llama      # only some
    build/venv/bin/python tests/parity/record_peft.py --verify   # make them elsewhere and compare with the stored ones

Model and rows are those of a case of record.py. Truth is reference.py in double with W + s B A in the place of each
adapted W, whose gradients reach A and B; it is held to PEFT at recording time. Beside each true value stands how far
PEFT is from it, in float32 and in its ways of using a bfloat16 base, as in record.py.
"""

import argparse
import functools
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import record
import reference

DATA = pathlib.Path(__file__).resolve().parent / "peft"
BF16_WAYS = ("outside", "autocast")
CLIP = 0.05  # below every norm of these runs
UPDATE_ERROR_MAX = 0.15  # of PEFT in bfloat16: four times that still tells a trained adapter from another one
# With such an eps an element whose gradient is near zero hardly moves. With 1e-8 each moves by the whole rate one way or the
# other, bfloat16 decides which, and PEFT's own error is half of the update.
RUN = {"optimizer": "adamw", "learning_rate": 0.02, "betas": [0.9, 0.95], "eps": 1e-3, "weight_decay": 0.1, "clip": CLIP,
       "steps": record.STEPS}

CASES = {
    "llama": {  # every linear module; q, k, v and gate, up are one product each in Headroom
        "base": "llama-a", "seed": 401,
        "lora": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    },
    "llama-rslora": {
        "base": "llama-b", "seed": 402,
        "lora": {"r": 5, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"], "use_rslora": True},
    },
    "llama-layers": {  # the first and the last of three; a base that is stored as BF16
        "base": "llama-c", "seed": 403,
        "lora": {"r": 3, "lora_alpha": 4, "target_modules": ["k_proj", "o_proj", "up_proj"], "layers_to_transform": [0, 2]},
    },
    "gpt2": {  # Conv1D: fan_in_fan_out; c_proj is two modules
        "base": "gpt2-a", "seed": 404,
        "lora": {"r": 4, "lora_alpha": 4, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True},
    },
    "phi3": {  # fused modules: one adapter for q, k and v, one for gate and up
        "base": "phi3-short", "seed": 405,
        "lora": {"r": 4, "lora_alpha": 4, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"], "use_rslora": True},
    },
    "llama-dora": {  # of one product two modules with magnitudes and one without
        "base": "llama-b", "seed": 406,
        "lora": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj"], "use_dora": True},
    },
    "gpt2-dora": {  # columns of Conv1D; ranks and factors by pattern
        "base": "gpt2-a", "seed": 407,
        "lora": {"r": 4, "lora_alpha": 6, "target_modules": ["c_attn", "mlp.c_proj", "c_fc"], "fan_in_fan_out": True,
                 "use_dora": True, "rank_pattern": {"h.0.attn.c_attn": 2}, "alpha_pattern": {"c_fc": 3}},
    },
    # A tied head becomes a tensor of its own. PEFT keeps what trains whole in the base's type, so that in bfloat16 it takes
    # steps of its last place or none; masters of Headroom do not, and a bfloat16 run says nothing about them.
    "llama-saved": {
        "base": "llama-b", "seed": 408, "float32_only": True,
        "lora": {"r": 3, "lora_alpha": 4, "target_modules": r".*\.(k|up)_proj", "bias": "all", "modules_to_save": ["lm_head", "norm"]},
    },
    "gpt2-saved": {
        "base": "gpt2-a", "seed": 409, "float32_only": True,
        "lora": {"r": 3, "lora_alpha": 4, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True, "bias": "lora_only",
                 "modules_to_save": ["wte"]},
    },
    # A token's row of the embedding gets s B A more; the head that is tied to it does not.
    "llama-embedding": {
        "base": "llama-b", "seed": 410,
        "lora": {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj", "v_proj"], "rank_pattern": {"embed_tokens": 3}},
    },
    "gpt2-embedding": {
        "base": "gpt2-a", "seed": 411,
        "lora": {"r": 4, "lora_alpha": 6, "target_modules": ["wte", "c_attn"], "fan_in_fan_out": True, "use_rslora": True},
    },
    "gemma3-embedding": {  # whose embedding multiplies what it looks up, adapters included; PEFT in bfloat16 is too far from itself
        "base": "gemma3", "seed": 412, "float32_only": True,
        "lora": {"r": 3, "lora_alpha": 4, "target_modules": ["embed_tokens", "q_proj"]},
    },
}

# ---------------------------------------------------------------------------------------------------------------------
# The start: adapters as PEFT saves them


def lora_config(spec):
    return peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **spec["lora"])


def tidy(directory, base):
    """What the library writes beside the adapter: a page for people, and the path on this machine."""
    for page in directory.glob("README.md"):
        page.unlink()
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text())
    if config["modules_to_save"]:
        config["modules_to_save"].sort()
    config["base_model_name_or_path"] = f"tests/parity/data/{base}/model"
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # the library keeps a set
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (directory / "adapter_model.safetensors").chmod(0o644)


def write_adapter(spec, base, directory):
    """A and B of normal numbers: B at 0, as PEFT begins, would leave A without a gradient in the first step."""
    random = numpy.random.Generator(numpy.random.PCG64(spec["seed"]))
    model = peft.get_peft_model(record.load_model(base.model), lora_config(spec))
    for name, tensor in sorted((name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad):
        values = torch.from_numpy(random.standard_normal(tuple(tensor.shape)))
        if "lora_A" in name or "lora_B" in name or "lora_embedding" in name:
            tensor.data.copy_(values * 0.15)
        elif "magnitude" in name:  # rows of other lengths than those of W + s B A
            tensor.data.mul_(1 + 0.2 * values)
        else:
            tensor.data.add_(0.02 * values)
    model.save_pretrained(directory, save_embedding_layers=False)
    tidy(directory, spec["base"])


# ---------------------------------------------------------------------------------------------------------------------
# The implementations compared: (A and B by their names in the file, function from a batch to the logits)


def stored_name(name):
    """As get_peft_model_state_dict names a parameter."""
    return name.removesuffix(".default").replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector").replace(".modules_to_save.default.", ".").replace(".default.", ".")


def pattern_value(patterns, module, otherwise):
    """peft.utils.get_pattern_key"""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), otherwise)


class Case(record.Case):
    def __init__(self, name, directory):
        self.own = CASES[name]
        super().__init__(self.own["base"], record.DATA / self.own["base"])
        self.name, self.directory = name, directory
        self.adapter = directory / "adapter"

    def read_start(self):
        directory, self.directory = self.directory, record.DATA / self.own["base"]
        super().read_start()
        self.directory = directory
        self.frozen = self.weights
        self.weights = load_file(self.adapter / "adapter_model.safetensors")
        settings = json.loads((self.adapter / "adapter_config.json").read_text())
        self.settings = settings

    def scale(self, module):
        rank = pattern_value(self.settings["rank_pattern"], module, self.settings["r"])
        return pattern_value(self.settings["alpha_pattern"], module, self.settings["lora_alpha"]) / (rank ** 0.5 if self.settings["use_rslora"] else rank)

    def merged(self, dtype):
        """reference.py with s B A added to the weights, rows at the length of the magnitudes, whole tensors in place; Conv1D
        keeps [in, out]."""
        params = {name: tensor.to(dtype).clone().requires_grad_() for name, tensor in self.weights.items()}
        frozen = {name: tensor.to(dtype) for name, tensor in self.frozen.items()}

        def logits(batch):
            whole = dict(frozen)
            if "lm_head.weight" not in frozen:  # a tied head stays what it was when its embedding trains
                whole["lm_head.weight"] = next(tensor for key, tensor in frozen.items() if key.endswith(("wte.weight", "embed_tokens.weight")))
            turned = self.config["model_type"] == "gpt2"
            for name, a in params.items():
                place = name.removeprefix("base_model.model.")
                if "lora_" not in name:
                    whole[place.replace(".base_layer.", ".")] = a
                if name.endswith(".lora_embedding_A"):
                    module = place.removesuffix(".lora_embedding_A")
                    whole[module + ".weight"] = frozen[module + ".weight"] + self.scale(module) * (params[name[:-1] + "B"] @ a).T
                if ".lora_A." not in name:
                    continue
                module = place.removesuffix(".lora_A.weight")
                made = (frozen[module + ".weight"].T if turned else frozen[module + ".weight"]) + self.scale(module) * params[name.replace(".lora_A.", ".lora_B.")] @ a
                magnitude = params.get(name.replace(".lora_A.weight", ".lora_magnitude_vector"))
                if magnitude is not None:  # the length is a constant to the gradient
                    made = made * (magnitude / made.detach().norm(dim=1))[:, None]
                whole[module + ".weight"] = made.T if turned else made
            return reference.forward(self.config, whole, batch["input_ids"], batch["position_ids"], batch["doc_start"], batch.get("longest"))

        return params, logits

    def double(self):
        return self.merged(torch.float64)

    def by_peft(self, attention, dtype=torch.float32, autocast=False):
        """PEFT keeps A and B in float32 beside a bfloat16 base (autocast_adapter_dtype)."""
        base = record.load_model(self.model, attention, dtype)
        packed = bool(self.spec.get("packed"))
        model = peft.PeftModel.from_pretrained(base, self.adapter, is_trainable=True)
        params = {stored_name(name): p for name, p in model.named_parameters() if p.requires_grad}
        assert params.keys() == self.weights.keys(), params.keys() ^ self.weights.keys()
        assert all(p.dtype == torch.float32 and torch.equal(p, self.weights[name]) for name, p in params.items())

        def logits(batch):
            mask = record.explicit_mask(base.config, batch["doc_start"], dtype) if packed else None
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], attention_mask=mask, use_cache=False).logits

        return params, logits

    def float32_runs(self, micro_batch):
        return {
            "eager": (lambda: self.by_peft("eager"), micro_batch),
            "sdpa": (lambda: self.by_peft("sdpa"), micro_batch),
            "by_row": (lambda: self.by_peft("eager"), 1),
            "plain": (lambda: self.merged(torch.float32), micro_batch),
        }

    def bf16_runs(self, micro_batch):
        """outside: a bfloat16 base, called as it is. autocast: the same under torch.autocast, which rounds x, A and B too."""
        if self.own.get("float32_only"):
            return {}
        orders = {"eager": ("eager", micro_batch), "sdpa": ("sdpa", micro_batch), "by_row": ("eager", 1)}
        return {way: {order: (functools.partial(self.by_peft, attention, torch.bfloat16, way == "autocast"), rows)
                      for order, (attention, rows) in orders.items()} for way in BF16_WAYS}

    def no_gradient(self):
        return []


def ways_of(spec):
    return () if spec.get("float32_only") else BF16_WAYS


# ---------------------------------------------------------------------------------------------------------------------
# Recording


def make(name, directory):
    spec = CASES[name]
    case = Case(name, directory)
    write_adapter(spec, case, case.adapter)
    case.read_start()
    tensors = {}
    first, gradient, scalars = record.record_first_batch(case, tensors)
    batch = case.spec["batch"]
    run = {**RUN, "batch": batch, "micro_batch": case.spec["micro_batch"], "accumulate": batch // case.spec["micro_batch"], "final": "adamw"}
    expected = {
        "schema_version": 1, "case": name, "base": spec["base"], "family": case.config["model_type"],
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
        "rows": case.spec["rows"], "seq": case.spec["seq"], "batch": batch, "packed": bool(case.spec.get("packed")),
        "parameter_count": sum(tensor.numel() for tensor in case.weights.values()),
        "first_batch": first, "gradient": gradient, "logits": record.record_logits(case, tensors),
        "runs": {"adamw": record.record_run(case, run, tensors, scalars)},
    }
    errors = {(way, part): entry["bf16_error_" + way] for part, entry in expected["runs"]["adamw"]["tensors"].items() for way in ways_of(spec)}
    worst = max(errors, key=errors.get, default=None)
    assert worst is None or errors[worst] < UPDATE_ERROR_MAX, f"{name}: {worst}: {errors[worst]:.2f}: take another seed"
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    save_file(tensors, directory / "expected.safetensors", metadata={"format": "pt"})
    (directory / "expected.safetensors").chmod(0o644)
    (directory / "expected.json").write_text(record.dump_json(expected) + "\n")
    return expected


def summary(expected, size):
    def worst(tensors, field):
        return max(entry[field] for entry in tensors.values())

    run, gradient = expected["runs"]["adamw"], expected["gradient"]["tensors"]
    ways = "  ".join(f"bf16 {way}: loss {expected['first_batch']['bf16_error_' + way]:.1e}, gradient {worst(gradient, 'bf16_error_' + way):.1e}, "
                     f"update {worst(run['tensors'], 'bf16_error_' + way):.1e}" for way in ways_of(CASES[expected["case"]]))
    return (f"{expected['case']:13} {expected['parameter_count']:6} parameters {size / 1000:5.0f} kB  "
            f"loss {run['losses'][0]:.4f} -> {run['losses'][-1]:.4f}  fp32 error: gradient {worst(gradient, 'fp32_error'):.1e}, "
            f"update {worst(run['tensors'], 'fp32_error'):.1e}  {ways}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"which of {', '.join(CASES)} (all)")
    parser.add_argument("--out", type=pathlib.Path, default=DATA, help="where to write (tests/parity/peft)")
    parser.add_argument("--verify", action="store_true", help="write to a temporary directory and compare with --out")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # "torch_dtype is deprecated", of libraries among themselves
    record.BF16_WAYS = BF16_WAYS
    faults = []
    for name in arguments.cases or CASES:
        with tempfile.TemporaryDirectory() as temporary:
            made = pathlib.Path(temporary) / name
            made.mkdir()
            expected = make(name, made)
            print(summary(expected, record.directory_bytes(made)), flush=True)
            if arguments.verify:
                faults += record.compare(name, made, arguments.out / name)
                continue
            shutil.rmtree(arguments.out / name, ignore_errors=True)
            shutil.copytree(made, arguments.out / name)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
