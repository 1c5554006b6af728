#!/usr/bin/env python3
"""Records the PyTorch results that the parity test compares Headroom with: tests/parity/data/<case>/ (see README.md).

    build/venv/bin/python tests/parity/record.py            # make all cases again
    build/venv/bin/python tests/parity/record.py llama-a    # only some
    build/venv/bin/python tests/parity/record.py --verify   # make them elsewhere and compare with the stored ones

Truth is a computation in double (reference.py). Beside each true value stands how far plain float32 PyTorch is from it:
the worst of four float32 runs that differ only in the order of their operations. Four times that is the tolerance.
And how far PyTorch in bfloat16 is from it, in three ways of using bfloat16: the tolerance of --precision bf16, bf16-pure.
Random numbers are numpy's PCG64, one thread, no wall clock: two runs on one machine write equal bytes.
"""

import argparse
import functools
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

import reference

DATA = pathlib.Path(__file__).resolve().parent / "data"
CASE_BYTES_MAX = 640_000
TOTAL_BYTES_MAX = 6 << 20
UNIT_ROUNDOFF = 2.0 ** -24  # no float32 result can be asked to be nearer than its own rounding
PROMPT_LENGTH, CONTINUATION_LENGTH = 5, 12
SGD_STEPS, STEPS = 5, 10
ADAM_UPDATE_ERROR_MAX = 2e-5  # of a case whose seed is a good one; see record_run

ADAMW = {"optimizer": "adamw", "learning_rate": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
CLIP = 0.5
BF16_WAYS = ("plain", "masters", "autocast")

CASES = {
    "gpt2-a": {
        "seed": 301, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1,
        "config": {"model_type": "gpt2", "n_embd": 30, "n_head": 3, "n_layer": 2, "vocab_size": 67, "n_positions": 24},
    },
    "llama-a": {  # head_dim is not hidden / heads; prompts masked out of the loss
        "seed": 302, "rows": 30, "seq": 13, "batch": 3, "micro_batch": 1, "masked_prompts": True,
        "config": {"model_type": "llama", "hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 2,
                   "head_dim": 10, "intermediate_size": 50, "num_hidden_layers": 2, "vocab_size": 71,
                   "max_position_embeddings": 29, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    },
    "llama-b": {  # tied, biases everywhere, linear rope scaling; also the SGD runs
        "seed": 103, "rows": 40, "seq": 11, "batch": 4, "micro_batch": 2, "sgd": True,
        "config": {"model_type": "llama", "hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 3,
                   "intermediate_size": 41, "num_hidden_layers": 2, "vocab_size": 61,
                   "max_position_embeddings": 50, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
                   "attention_bias": True, "mlp_bias": True,
                   "rope_parameters": {"rope_type": "linear", "rope_theta": 250.0, "factor": 2.5}},
    },
    "llama-c": {  # llama3 scaling: of 9 wavelengths one is kept, one blended, seven stretched. BF16 weights in 2 shards
        "seed": 104, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "empty_rows": [5], "bf16_shards": 2,
        "config": {"model_type": "llama", "hidden_size": 28, "num_attention_heads": 4, "num_key_value_heads": 1,
                   "head_dim": 18, "intermediate_size": 37, "num_hidden_layers": 3, "vocab_size": 53,
                   "max_position_embeddings": 112, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
                   "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 4.0,
                                       "low_freq_factor": 0.5, "high_freq_factor": 4.0,
                                       "original_max_position_embeddings": 28}},
    },
    "llama-packed": {
        "seed": 105, "rows": 20, "seq": 23, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True,
        "config": {"model_type": "llama", "hidden_size": 28, "num_attention_heads": 2, "num_key_value_heads": 1,
                   "intermediate_size": 45, "num_hidden_layers": 2, "vocab_size": 59,
                   "max_position_embeddings": 37, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    },
    "gpt2-packed": {  # names without "transformer." and with the mask buffers, as in the published gpt2 files
        "seed": 106, "rows": 20, "seq": 22, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True,
        "published_names": True,
        "config": {"model_type": "gpt2", "n_embd": 26, "n_head": 2, "n_inner": 75, "n_layer": 2, "vocab_size": 59,
                   "n_positions": 23},
    },
    "mistral": {  # all layers see 6 tokens
        "seed": 201, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True, "few_runs": True,
        "config": {"model_type": "mistral", "hidden_size": 20, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 6,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-5, "sliding_window": 6, "tie_word_embeddings": False},
    },
    "qwen2-yarn": {  # tied, biases of q, k and v, the last layer slides; of 5 pairs two are kept, two are blended, one is stretched
        "seed": 202, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "qwen2", "hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 1,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 60,
                   "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 7,
                   "max_window_layers": 1,
                   "rope_parameters": {"rope_type": "yarn", "rope_theta": 20.0, "factor": 2.5, "beta_fast": 2.0, "beta_slow": 0.5,
                                       "original_max_position_embeddings": 24}},
    },
    "qwen3-dynamic": {  # norms of q and k; rows are longer than the model's positions
        "seed": 203, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "qwen3", "hidden_size": 20, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 11,
                   "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
                   "rope_parameters": {"rope_type": "dynamic", "rope_theta": 250.0, "factor": 3.0}},
    },
    "phi3-short": {  # fused projections, 6 of 8 of a head are rotated; rows are within the original length
        "seed": 211, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "few_runs": True,
        "config": {"model_type": "phi3", "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 96,
                   "original_max_position_embeddings": 24, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": 7,
                   "pad_token_id": 5,
                   "rope_parameters": {"rope_type": "longrope", "rope_theta": 250.0, "partial_rotary_factor": 0.75,
                                       "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 2.5, 4.0]}},
    },
    "phi3-long": {
        "seed": 205, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "phi3", "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 36,
                   "original_max_position_embeddings": 9, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "pad_token_id": None,
                   "rope_parameters": {"rope_type": "longrope", "rope_theta": 250.0,
                                       "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.5, 4.0, 3.0]}},
    },
    "gemma2": {  # caps that bite, a token without gradient, the first and the last layer see 5 tokens
        "seed": 206, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True, "few_runs": True,
        "config": {"model_type": "gemma2", "hidden_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
                   "intermediate_size": 23, "num_hidden_layers": 3, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-6, "sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0,
                   "final_logit_softcapping": 4.0, "pad_token_id": 5},
    },
    "gemma3": {  # two sets of rotary parameters; linear scaling of the layer that sees all
        "seed": 212, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "few_runs": True,
        "config": {"model_type": "gemma3_text", "hidden_size": 20, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6,
                   "intermediate_size": 23, "num_hidden_layers": 3, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-6, "sliding_window": 4, "query_pre_attn_scalar": 9,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                   "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}},
    },
    "gemma": {  # one key head, a token without gradient; scores by the head size, no caps
        "seed": 213, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True, "few_runs": True,
        "config": {"model_type": "gemma", "hidden_size": 20, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-6, "pad_token_id": 5},
    },
    "llama-gelu": {  # gated by the exact GELU
        "seed": 214, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "gelu"},
    },
    "gpt2-relu": {  # a wide MLP: the jumps of the slope are many, and no one of them decides the error in bf16
        "seed": 218, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "gpt2", "n_embd": 20, "n_head": 2, "n_inner": 96, "n_layer": 2, "vocab_size": 43, "n_positions": 24,
                   "activation_function": "relu"},
    },
    "smollm3": {  # tied; of three layers the second is not rotated
        "seed": 221, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True, "few_runs": True,
        "config": {"model_type": "smollm3", "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 23, "num_hidden_layers": 3, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-6, "no_rope_layer_interval": 2, "pad_token_id": None},
    },
    "granite": {  # factors on embeddings, scores, residuals and logits
        "seed": 242, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "granite", "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "embedding_multiplier": 3.3, "attention_multiplier": 0.3,
                   "residual_multiplier": 0.6, "logits_scaling": 1.5},
    },
    "olmo2": {  # norms behind attention and MLP alone, of all query heads at once and of all key heads
        "seed": 243, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "few_runs": True,
        "config": {"model_type": "olmo2", "hidden_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "rms_norm_eps": 1e-6, "pad_token_id": 5},
    },
    "stablelm": {  # layer norms, biases of q, k and v, 2 of 8 of a head are rotated
        "seed": 224, "rows": 20, "seq": 17, "batch": 2, "micro_batch": 1, "few_runs": True,
        "config": {"model_type": "stablelm", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 23, "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37,
                   "use_qkv_bias": True},
    },
    "phi": {  # attention and MLP side by side, biases everywhere, of the head too; half of a head is rotated
        "seed": 225, "rows": 20, "seq": 19, "batch": 2, "micro_batch": 1, "packed": True, "masked_prompts": True, "few_runs": True,
        "config": {"model_type": "phi", "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 31,
                   "num_hidden_layers": 2, "vocab_size": 43, "max_position_embeddings": 37},
    },
}


# ---------------------------------------------------------------------------------------------------------------------
# Models and inputs


def make_config(case):
    keys = dict(case["config"])
    family = keys.pop("model_type")
    if family == "gpt2":
        return transformers.GPT2Config(**keys, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                                       attn_pdrop=0.0)
    return transformers.AutoConfig.for_model(family, **keys, bos_token_id=1, eos_token_id=2)


def initialise(model, random):
    """Norms about the identity, biases about 0 with noise, matrices wide enough that every gradient is well above noise."""
    identity = 0.0 if model.config.model_type.startswith("gemma") else 1.0
    for name, tensor in sorted(model.named_parameters()):
        noise = random.standard_normal(tuple(tensor.shape))
        if tensor.dim() == 2:
            value = noise * (0.2 if "embed" in name or "wte" in name or "wpe" in name else 0.15)
        elif name.endswith("bias"):
            value = noise * 0.1
        else:
            value = identity + noise * 0.1
        tensor.data.copy_(torch.from_numpy(value))


def write_model(case, directory, random):
    """Writes the HF directory as transformers does (except for published_names)."""
    model = transformers.AutoModelForCausalLM.from_config(make_config(case), dtype=torch.float32)
    initialise(model, random)
    if shards := case.get("bf16_shards"):
        model.to(torch.bfloat16)
        bytes_all = sum(2 * t.numel() for t in model.state_dict().values())
        model.save_pretrained(directory, max_shard_size=int(bytes_all / shards * 1.15))
        assert len(list(directory.glob("model-*.safetensors"))) == shards, "adjust the shard size"
        return
    model.save_pretrained(directory)
    if case.get("published_names"):
        old = load_file(directory / "model.safetensors")
        new = {name.removeprefix("transformer."): tensor for name, tensor in old.items()}
        for layer in range(model.config.n_layer):
            ones = torch.ones(model.config.n_positions, model.config.n_positions)
            new[f"h.{layer}.attn.bias"] = ones.tril()[None, None].contiguous()
        save_file(new, directory / "model.safetensors", metadata={"format": "pt"})


def load_model(directory, attention="eager", dtype=torch.float32):
    if json.loads((directory / "config.json").read_text())["model_type"] == "gemma2":
        attention = "eager"  # sdpa cannot cap scores
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation=attention, output_loading_info=True)
    assert not any(report.values()), report
    return model.train()


def document_lengths(case, row, random):
    """How many tokens each document of a row has. Row 0 holds a one-token document, row 1 is one document."""
    seq = case["seq"]
    if not case.get("packed") or row == 1:
        return [seq]
    if row == 0:
        return [5, 1, 9, seq - 15]
    cuts = sorted(random.choice(numpy.arange(1, seq), size=int(random.integers(1, 5)), replace=False).tolist())
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, seq])]


def make_inputs(case, random):
    """The four [rows,seq] int32 tensors and the document lengths. Tokens follow a noisy rule, so that losses fall."""
    rows, seq, vocab = case["rows"], case["seq"], case["config"]["vocab_size"]
    ids, labels, positions, starts, lengths = [], [], [], [], []
    for row in range(rows):
        lengths.append(document_lengths(case, row, random))
        row_ids, row_labels, row_positions, row_starts = [], [], [], []
        for length in lengths[-1]:
            token = int(random.integers(3, vocab))
            document = []
            for _ in range(length):
                document.append(token)
                token = 3 + (5 * token + int(random.integers(0, 7))) % (vocab - 3)
            label = list(document)
            if case.get("packed"):
                label[0] = -100
            if case.get("masked_prompts"):
                masked = int(random.integers(0, max(1, length - 1)))
                label[:masked] = [-100] * masked
            row_starts += [len(row_ids)] * length
            row_positions += range(length)
            row_labels += label
            row_ids += document
        if row in case.get("empty_rows", []):
            row_labels = [-100] * seq
        ids.append(row_ids), labels.append(row_labels), positions.append(row_positions), starts.append(row_starts)
    columns = {"input_ids": ids, "labels": labels, "position_ids": positions, "doc_start": starts}
    return {name: torch.tensor(value, dtype=torch.int32) for name, value in columns.items()}, lengths


def write_inputs(directory, inputs, lengths):
    save_file(inputs, directory / "inputs.safetensors", metadata={"format": "pt"})
    with open(directory / "inputs.jsonl", "w") as file:
        for row, parts in enumerate(lengths):
            line = {"input_ids": inputs["input_ids"][row].tolist(), "labels": inputs["labels"][row].tolist()}
            if len(parts) > 1:
                line["seq_lengths"] = parts
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


# ---------------------------------------------------------------------------------------------------------------------
# The implementations compared. Each is (parameters by name, function from a batch to the logits); one that keeps float32
# masters of bfloat16 parameters has those as a third member.


def plain(config, weights, dtype):
    params = {name: tensor.to(dtype).clone().requires_grad_() for name, tensor in weights.items()}
    return params, lambda batch: reference.forward(config, params, batch["input_ids"], batch["position_ids"],
                                                   batch["doc_start"], batch.get("longest"))


def explicit_mask(config, doc_start, dtype):
    """0 where allowed, the lowest number elsewhere; one by kind of layer for models that have several."""
    def mask(window):
        allowed = reference.attention_allowed(doc_start, window)
        return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(dtype).min)[:, None].to(dtype)

    window = getattr(config, "sliding_window", None)
    if getattr(config, "layer_types", None):
        return {"full_attention": mask(None), "sliding_attention": mask(window)}
    return mask(window)


def by_transformers(directory, attention, packed, dtype=torch.float32, autocast=False):
    model = load_model(directory, attention, dtype)

    def logits(batch):
        mask = None
        if packed:
            mask = explicit_mask(model.config, batch["doc_start"], dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], attention_mask=mask,
                         use_cache=False).logits

    return dict(model.named_parameters()), logits


class Case:
    """One case's files, and constructors of the implementations that start from its weights."""

    def __init__(self, name, directory):
        self.name, self.spec, self.directory = name, CASES[name], directory
        self.model = directory / "model"

    def write_start(self):
        random = numpy.random.Generator(numpy.random.PCG64(self.spec["seed"]))
        write_model(self.spec, self.model, random)
        inputs, lengths = make_inputs(self.spec, random)
        write_inputs(self.directory, inputs, lengths)

    def read_start(self):
        self.config = json.loads((self.model / "config.json").read_text())
        stored = load_file(self.directory / "inputs.safetensors")
        self.inputs = {name: tensor.long() for name, tensor in stored.items()}
        self.weights = {name: p.detach().clone() for name, p in load_model(self.model).named_parameters()}

    def rows(self, begin, count):
        return {name: tensor[begin:begin + count] for name, tensor in self.inputs.items()}

    def double(self):
        return plain(self.config, self.weights, torch.float64)

    def float32_runs(self, micro_batch):
        """Name -> (implementation, rows per micro-step): plain float32 in four orders of operations."""
        packed = bool(self.spec.get("packed"))
        return {
            "eager": (lambda: by_transformers(self.model, "eager", packed), micro_batch),
            "sdpa": (lambda: by_transformers(self.model, "sdpa", packed), micro_batch),
            "by_row": (lambda: by_transformers(self.model, "eager", packed), 1),
            "plain": (lambda: plain(self.config, self.weights, torch.float32), micro_batch),
        }

    def bf16_runs(self, micro_batch):
        """Way of using bfloat16 -> the same as float32_runs returns.

        plain     all parameters, activations, gradients and optimizer states are bfloat16
        masters   the same model, but the optimizer updates float32 masters, which are rounded to the parameters
        autocast  float32 parameters, gradients and states; torch.autocast rounds the operands of the products
        """
        packed = bool(self.spec.get("packed"))

        def make(attention, way):
            if way == "autocast":
                return by_transformers(self.model, attention, packed, autocast=True)
            params, logits = by_transformers(self.model, attention, packed, torch.bfloat16)
            if way == "plain":
                return params, logits
            return params, logits, {name: tensor.clone().requires_grad_() for name, tensor in self.weights.items()}

        orders = {"eager": ("eager", micro_batch), "sdpa": ("sdpa", micro_batch), "by_row": ("eager", 1)}
        return {way: {order: (functools.partial(make, attention, way), rows)
                      for order, (attention, rows) in orders.items()} for way in BF16_WAYS}

    def grows(self):
        """Whether transformers changes its rotary frequencies while it generates; Headroom decides once, by the context."""
        length = PROMPT_LENGTH + CONTINUATION_LENGTH
        rope = self.config.get("rope_parameters", {})
        return (rope.get("rope_type") == "dynamic" and length > self.config["max_position_embeddings"] or
                rope.get("rope_type") == "longrope" and length > rope["original_max_position_embeddings"])

    def no_gradient(self):
        """Elements whose gradient is zero in exact arithmetic: key biases shift all scores of a query alike, but for what RoPE turns."""
        if self.config["model_type"] != "gpt2":
            return self.unrotated_biases()
        size = self.config["n_embd"]
        return [{"name": f"transformer.h.{layer}.attn.c_attn.bias", "begin": size, "end": 2 * size}
                for layer in range(self.config["n_layer"])]

    def unrotated_biases(self):
        config = self.config
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        rotated = int(dim * config["rope_parameters"].get("partial_rotary_factor", 1))
        names = [f"model.layers.{layer}.self_attn.k_proj.bias" for layer in range(config["num_hidden_layers"])]
        return [{"name": name, "begin": head * dim + rotated, "end": (head + 1) * dim}
                for name in names if name in self.weights and rotated < dim for head in range(config["num_key_value_heads"])]


# ---------------------------------------------------------------------------------------------------------------------
# One step and several


def accumulate_gradients(params, logits, batch, micro_batch):
    """Leaves the gradient of the mean loss over the whole batch in .grad and returns that loss."""
    for tensor in params.values():
        tensor.grad = None
    count = reference.counted_labels(batch["labels"])
    total = 0.0
    for begin in range(0, len(batch["labels"]), micro_batch):
        part = {name: tensor[begin:begin + micro_batch] for name, tensor in batch.items()}
        out = logits(part)
        if out.dtype == torch.bfloat16:  # as transformers does
            out = out.float()
        if out.dtype == torch.float32:
            loss = torch.nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), part["labels"][:, 1:].flatten(),
                                                     ignore_index=-100, reduction="sum") / count
        else:
            loss = reference.sum_of_losses(out, part["labels"]) / count
        loss.backward()
        total += float(loss.detach())
    return total


def gradient_norm(params):
    return float(torch.linalg.vector_norm(torch.stack(
        [torch.linalg.vector_norm(tensor.grad.double()) for tensor in params.values()])))


def make_optimizer(params, run):
    if run["optimizer"] not in ("adamw", "adafactor"):
        return torch.optim.SGD(params.values(), lr=run["learning_rate"], momentum=run["momentum"], foreach=False)
    groups = [{"params": [p for p in params.values() if p.dim() == 2], "weight_decay": run["weight_decay"]},
              {"params": [p for p in params.values() if p.dim() != 2], "weight_decay": 0.0}]
    if run["optimizer"] == "adafactor":  # its default epsilon is that of the type
        eps = torch.finfo(torch.float32).eps, 1e-3
        return torch.optim.Adafactor(groups, lr=run["learning_rate"], eps=eps, foreach=False)
    return torch.optim.AdamW(groups, lr=run["learning_rate"], betas=run["betas"], eps=run["eps"], foreach=False)


def train(case, implementation, run, micro_batch):
    """(losses, gradient norms before the clip, final parameters)"""
    params, logits, *masters = implementation
    updated = masters[0] if masters else params
    optimizer = make_optimizer(updated, run)
    losses, norms = [], []
    for step in range(run["steps"]):
        batch = case.rows(step * run["batch"], run["batch"])
        losses.append(accumulate_gradients(params, logits, batch, micro_batch))
        if masters:
            for name, tensor in params.items():
                updated[name].grad = tensor.grad.float()
        if run["clip"] is None:
            norms.append(gradient_norm(updated))
        else:
            norms.append(float(torch.nn.utils.clip_grad_norm_(updated.values(), run["clip"], foreach=False)))
        optimizer.step()
        if masters:
            for name, tensor in params.items():
                tensor.data.copy_(updated[name].detach())
    return losses, norms, {name: tensor.detach().clone() for name, tensor in updated.items()}


def runs_of(case):
    """Run name -> settings. `final` names the run whose stored weights are the truth for this one too."""
    spec = case.spec
    batch = spec["batch"]
    runs = {}
    for name, clip in (("adamw", None), ("adamw_clip", CLIP))[spec.get("few_runs", False):]:
        whole = {**ADAMW, "clip": clip, "steps": STEPS, "batch": batch, "micro_batch": batch, "accumulate": 1,
                 "final": name}
        runs[name] = whole
        runs[name + "_accumulate"] = {**whole, "micro_batch": spec["micro_batch"],
                                      "accumulate": batch // spec["micro_batch"]}
    if spec.get("sgd"):
        for name, momentum in (("sgd", 0.0), ("momentum", 0.9)):
            runs[name] = {"optimizer": name, "learning_rate": 0.1, "momentum": momentum, "weight_decay": 0.0,
                          "clip": None, "steps": SGD_STEPS, "batch": batch, "micro_batch": batch, "accumulate": 1,
                          "final": name}
    return runs


# ---------------------------------------------------------------------------------------------------------------------
# Errors and recording


def relative_error(value, truth):
    """|value - truth| / |truth| of two numbers, at least the unit round-off."""
    return max(abs(value - truth) / abs(truth), UNIT_ROUNDOFF)


def relative_l2(value, truth, scale=None):
    scale = truth if scale is None else scale
    return float(torch.linalg.vector_norm(value.double() - truth.double()) / torch.linalg.vector_norm(scale.double()))


def with_worst(errors, bf16_errors):
    """Errors by float32 run, and by way of using bfloat16 and run -> the json fields for them."""
    return {"fp32_error": short(max(errors.values())), "fp32_error_eager": short(errors["eager"]),
            **{"bf16_error_" + way: short(max(of_way.values())) for way, of_way in bf16_errors.items()}}


def short(number):
    """Four significant digits: enough for an error, and a file that can be read."""
    return float(f"{number:.3e}")


def running_worst(lists, start=0.0):
    """Element-wise worst over the runs, never falling from one step to the next, nor below `start`."""
    worst = numpy.maximum.accumulate(numpy.max(numpy.array(lists), axis=0))
    return [short(max(error, start)) for error in worst]


def at_least_median(tensor_errors):
    """Errors by name and run; where all of a tensor's are below the median tensor's, that one is added.

    In bfloat16 some elements of every model have a gradient within noise of zero, and Adam moves them either way. A
    small tensor without such an element says only that this run had luck.
    """
    median = float(numpy.median([max(errors.values()) for errors in tensor_errors.values()]))
    return {name: {**errors, "median": median} for name, errors in tensor_errors.items()}


def scalar_errors(case, runs):
    """The worst errors of loss and gradient norm over all batches of the case and all runs, with the initial weights.

    A sum of many roundings may vanish by luck. In float32 one may floor that by the rounding of the sum itself; in
    bfloat16 the sum is a float32, and the worst of some batches takes the floor's place.
    """
    size = case.spec["batch"]
    params, logits = case.double()
    batches = [case.rows(begin, size) for begin in range(0, case.spec["rows"], size)]
    truths = [(accumulate_gradients(params, logits, batch, size), gradient_norm(params)) for batch in batches]
    loss_error = norm_error = 0.0
    for make, micro_batch in runs.values():
        made, made_logits = make()
        for batch, (loss, norm) in zip(batches, truths):
            loss_error = max(loss_error, relative_error(accumulate_gradients(made, made_logits, batch, micro_batch), loss))
            norm_error = max(norm_error, relative_error(gradient_norm(made), norm))
    return loss_error, norm_error


def record_first_batch(case, tensors):
    """Loss and gradients of the first batch. (The gradients of `masters` are those of `plain`.)"""
    batch = case.rows(0, case.spec["batch"])
    params, logits = case.double()
    loss = accumulate_gradients(params, logits, batch, case.spec["batch"])
    truth = {name: tensor.grad.clone() for name, tensor in params.items()}
    norm = gradient_norm(params)
    tensors.update({"grad." + name: tensor for name, tensor in truth.items()})

    def errors_of(runs):
        """(loss by run, errors of loss and norm by run, errors of gradients by name and run)"""
        losses, loss_errors, norm_errors, tensor_errors = {}, {}, {}, {name: {} for name in truth}
        for variant, (make, micro_batch) in runs.items():
            made, made_logits = make()
            losses[variant] = accumulate_gradients(made, made_logits, batch, micro_batch)
            loss_errors[variant] = relative_error(losses[variant], loss)
            norm_errors[variant] = relative_error(gradient_norm(made), norm)
            for name, tensor in made.items():
                tensor_errors[name][variant] = relative_l2(tensor.grad, truth[name])
        return losses, loss_errors, norm_errors, tensor_errors

    losses, loss_errors, norm_errors, tensor_errors = errors_of(case.float32_runs(case.spec["batch"]))
    bf16_runs = {way: runs for way, runs in case.bf16_runs(case.spec["batch"]).items() if way != "masters"}
    scalars = {way: scalar_errors(case, runs) for way, runs in bf16_runs.items()}
    bf16 = {way: errors_of(runs)[3] for way, runs in bf16_runs.items()}
    assert max(loss_errors.values()) < 2e-6, loss_errors
    assert max(max(e.values()) for e in tensor_errors.values()) < 2e-5, tensor_errors
    first = {"rows": [0, case.spec["batch"]], "counted_labels": reference.counted_labels(batch["labels"]),
             "loss": loss, "loss_fp32": losses["eager"],
             **with_worst(loss_errors, {way: {"batches": made[0]} for way, made in scalars.items()})}
    gradient = {"norm": norm, **with_worst(norm_errors, {way: {"batches": made[1]} for way, made in scalars.items()}),
                "tensors": {name: {"norm": float(torch.linalg.vector_norm(truth[name])),
                                   **with_worst(errors, {way: made[name] for way, made in bf16.items()})}
                            for name, errors in tensor_errors.items()}}
    if "plain" in scalars:
        scalars["masters"] = scalars["plain"]
    return first, gradient, scalars


def record_run(case, run, tensors, scalars):
    """Trains in double, float32 and bfloat16; stores the double final weights once per `final`. `scalars`: the errors of
    loss and norm by way of using bfloat16 that are counted as the run's own.

    Adam divides a gradient by its own size, so an element whose gradient is within noise of zero takes a step of
    arbitrary sign, and that one step then decides the error of everything after it. Which numbers meet such an element
    is a matter of the seed; the seeds of CASES are ones that do not, and this holds them to it.
    """
    losses, norms, final = train(case, case.double(), run, run["micro_batch"])
    if run["clip"] is not None:
        assert min(norms) > run["clip"], "every step of a clipped run should clip"
    key = run["final"] + ".final."
    stored = {name: tensors.setdefault(key + name, tensor.float()) for name, tensor in final.items()}
    for name, tensor in final.items():  # accumulation is the large batch
        assert relative_l2(tensor, stored[name]) < 1e-6, name

    update = {name: stored[name].double() - case.weights[name].double() for name in final}
    kept = {name: torch.ones_like(tensor, dtype=torch.bool) for name, tensor in final.items()}
    for part in case.no_gradient():
        kept[part["name"]].flatten()[part["begin"]:part["end"]] = False

    def errors_of(runs, start=(0.0, 0.0)):
        """(worst errors of loss and norm by step, errors of final weights by name and run)"""
        loss_errors, norm_errors, tensor_errors = [], [], {name: {} for name in final}
        for variant, (make, micro_batch) in runs.items():
            made_losses, made_norms, made_final = train(case, make(), run, micro_batch)
            loss_errors.append([relative_error(a, b) for a, b in zip(made_losses, losses)])
            norm_errors.append([relative_error(a, b) for a, b in zip(made_norms, norms)])
            for name, tensor in made_final.items():
                keep = kept[name]
                tensor_errors[name][variant] = relative_l2(tensor[keep], stored[name][keep], update[name][keep])
        return running_worst(loss_errors, start[0]), running_worst(norm_errors, start[1]), tensor_errors

    loss_errors, norm_errors, tensor_errors = errors_of(case.float32_runs(run["micro_batch"]))
    bf16 = {way: errors_of(runs, scalars[way]) for way, runs in case.bf16_runs(run["micro_batch"]).items()}
    bf16_tensors = {way: made[2] for way, made in bf16.items()}
    if run["optimizer"] == "adamw":
        bf16_tensors = {way: at_least_median(errors) for way, errors in bf16_tensors.items()}
        worst = max((max(errors.values()), name) for name, errors in tensor_errors.items())
        assert worst[0] < ADAM_UPDATE_ERROR_MAX, f"{case.name}: {worst}: take another seed"
    return {**run, "losses": losses, "loss_fp32_error": loss_errors,
            **{f"loss_bf16_error_{way}": made[0] for way, made in bf16.items()},
            "grad_norms": norms, "grad_norm_fp32_error": norm_errors,
            **{f"grad_norm_bf16_error_{way}": made[1] for way, made in bf16.items()},
            "tensors": {name: {"update_norm": float(torch.linalg.vector_norm(update[name][kept[name]])),
                               **with_worst(errors, {way: made[name] for way, made in bf16_tensors.items()})}
                        for name, errors in tensor_errors.items()}}


def record_logits(case, tensors):
    """Double logits of row 0."""
    batch = case.rows(0, 1)
    params, logits = case.double()
    with torch.no_grad():
        truth = logits(batch)[0]
        tensors["logits.0"] = truth.clone()

        def errors_of(runs):
            return {variant: relative_l2(make()[1](batch)[0], truth) for variant, (make, _) in runs.items()}

        errors = errors_of(case.float32_runs(1))
        bf16 = {way: errors_of(runs) for way, runs in case.bf16_runs(1).items() if way != "masters"}
    assert max(errors.values()) < 3e-6, errors
    return {"row": 0, **with_worst(errors, bf16)}


def record_greedy(case):
    """Greedy continuation in double of the first tokens of a row: the first row in which it never meets the end token."""
    _, logits = case.double()
    ends = [case.config["eos_token_id"]]
    for row in range(case.spec["rows"]):
        ids = case.inputs["input_ids"][row, :PROMPT_LENGTH].tolist()
        margins = []
        for _ in range(CONTINUATION_LENGTH):
            one = torch.tensor([ids])
            with torch.no_grad():
                last = logits({"input_ids": one, "position_ids": torch.arange(len(ids))[None], "doc_start": torch.zeros_like(one),
                               "longest": PROMPT_LENGTH + CONTINUATION_LENGTH})[0, -1]
            best = last.topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
        if not set(ids) & set(ends) and min(margins) > 1e-3:
            if case.grows():
                return {"prompt": ids[:PROMPT_LENGTH], "continuation": ids[PROMPT_LENGTH:], "margin": min(margins)}
            model = load_model(case.model).eval()
            told = model.generate(torch.tensor([ids[:PROMPT_LENGTH]]), max_new_tokens=CONTINUATION_LENGTH,
                                  do_sample=False)
            assert told[0].tolist() == ids, "transformers.generate disagrees"
            return {"prompt": ids[:PROMPT_LENGTH], "continuation": ids[PROMPT_LENGTH:], "margin": min(margins)}
    raise AssertionError("no row gives a clear continuation")


def check_documents(case):
    """A packed row must give each document the logits it has alone, in transformers and in double."""
    batch = case.rows(0, 2)
    packed = {"transformers": by_transformers(case.model, "eager", True)[1], "double": case.double()[1]}
    alone = {"transformers": by_transformers(case.model, "eager", False)[1], "double": case.double()[1]}
    for kind in packed:
        with torch.no_grad():
            together = packed[kind](batch)
            for row in range(2):
                for start in sorted(set(batch["doc_start"][row].tolist())):
                    inside = batch["doc_start"][row] == start
                    ids = batch["input_ids"][row][inside][None]
                    one = {"input_ids": ids, "position_ids": torch.arange(ids.shape[1])[None],
                           "doc_start": torch.zeros_like(ids)}
                    error = relative_l2(together[row][inside], alone[kind](one)[0])
                    assert error < (1e-12 if kind == "double" else 1e-6), (kind, row, start, error)


def check_transformers_loss(case, first):
    """transformers' own loss (shift and mean inside the model) is the loss recorded here, where it takes no mask."""
    if case.spec.get("packed"):
        return
    batch = case.rows(0, case.spec["batch"])
    own = float(load_model(case.model)(input_ids=batch["input_ids"], labels=batch["labels"]).loss.detach())
    assert abs(own - first["loss_fp32"]) < 1e-6 * own, (own, first["loss_fp32"])


def dump_json(value, indent=0):
    """Like json.dumps, with every list or object that holds only plain values on one line."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(item, (dict, list)) for item in items):
        return json.dumps(value)
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        inner = ",\n".join(f"{pad}{json.dumps(key)}: {dump_json(item, indent + 1)}" for key, item in value.items())
        return "{\n" + inner + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + dump_json(item, indent + 1) for item in value) + "\n" + " " * indent + "]"


def record(name, directory):
    case = Case(name, directory)
    case.write_start()
    case.read_start()
    if case.spec.get("packed"):
        check_documents(case)
    tensors = {}
    first, gradient, scalars = record_first_batch(case, tensors)
    check_transformers_loss(case, first)
    expected = {
        "schema_version": 1, "case": name, "family": case.config["model_type"],
        "torch": torch.__version__, "transformers": transformers.__version__,
        "rows": case.spec["rows"], "seq": case.spec["seq"], "batch": case.spec["batch"],
        "packed": bool(case.spec.get("packed")),
        "parameter_count": sum(tensor.numel() for tensor in case.weights.values()),
        "no_gradient": case.no_gradient(),
        "first_batch": first, "gradient": gradient,
        "logits": record_logits(case, tensors), "greedy": record_greedy(case),
        "runs": {run_name: record_run(case, run, tensors, scalars) for run_name, run in runs_of(case).items()},
    }
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    save_file(tensors, directory / "expected.safetensors", metadata={"format": "pt"})
    (directory / "expected.json").write_text(dump_json(expected) + "\n")
    for path in directory.rglob("*.safetensors"):
        path.chmod(0o644)  # they come private from the library
    return expected


def directory_bytes(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def summary(expected, size):
    """One line for a person."""
    def worst(tensors, field="fp32_error"):
        return max((entry[field], name) for name, entry in tensors.items())

    run = next(iter(expected["runs"].values()))
    grad_error, grad_name = worst(expected["gradient"]["tensors"])
    update_error, update_name = worst(run["tensors"])
    return (f"{expected['case']:13} {expected['parameter_count']:6} parameters {size / 1000:5.0f} kB  "
            f"loss {expected['first_batch']['loss']:.4f} -> {run['losses'][-1]:.4f}  "
            f"fp32 error: loss {expected['first_batch']['fp32_error']:.1e} .. "
            f"{run['loss_fp32_error'][-1]:.1e}, "
            f"gradient {grad_error:.1e} ({grad_name}), update {update_error:.1e} ({update_name})  "
            f"bf16 plain: gradient {worst(expected['gradient']['tensors'], 'bf16_error_plain')[0]:.1e}, "
            f"update {worst(run['tensors'], 'bf16_error_plain')[0]:.1e}")


def compare(name, made, stored):
    """Differences of a fresh recording from the stored one that matter: starts bit for bit, truths to 1e-9."""
    faults = []
    for path in sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file()):
        if not (stored / path).exists():
            faults.append(f"{name}/{path}: not stored")
        elif path.name.startswith("expected."):
            continue
        elif (made / path).read_bytes() != (stored / path).read_bytes():
            faults.append(f"{name}/{path}: bytes differ")
    new, old = load_file(made / "expected.safetensors"), load_file(stored / "expected.safetensors")
    if new.keys() != old.keys():
        return faults + [f"{name}: other tensor names"]
    for key in new:
        bound = 1e-9 if new[key].dtype == torch.float64 else 1e-6
        scale = max(float(torch.linalg.vector_norm(old[key].double())), 1e-12)
        error = float(torch.linalg.vector_norm(new[key].double() - old[key].double())) / scale
        if error > bound:
            faults.append(f"{name}: {key} differs by {error:.1e}")
    new, old = (json.loads((d / "expected.json").read_text()) for d in (made, stored))
    for run in new["runs"]:
        pairs = zip(new["runs"][run]["losses"], old["runs"][run]["losses"])
        if any(abs(a - b) > 1e-9 for a, b in pairs):
            faults.append(f"{name}: losses of {run} differ")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"which of {', '.join(CASES)} (all)")
    parser.add_argument("--out", type=pathlib.Path, default=DATA, help="where to write (tests/parity/data)")
    parser.add_argument("--verify", action="store_true", help="write to a temporary directory and compare with --out")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}")

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)

    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.cases or CASES:
            made = pathlib.Path(temporary) / name
            made.mkdir()
            expected = record(name, made)
            size = directory_bytes(made)
            print(summary(expected, size), flush=True)
            if size > CASE_BYTES_MAX:
                faults.append(f"{name}: {size} bytes, more than {CASE_BYTES_MAX}")
            if arguments.verify:
                faults += compare(name, made, arguments.out / name)
                continue
            shutil.rmtree(arguments.out / name, ignore_errors=True)
            shutil.copytree(made, arguments.out / name)
    if (total := directory_bytes(arguments.out)) > TOTAL_BYTES_MAX:
        faults.append(f"{total} bytes in all, more than {TOTAL_BYTES_MAX}")
    print(f"{arguments.out}: {total / 1000:.0f} kB")
    for fault in faults:
        print("FAULT", fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
