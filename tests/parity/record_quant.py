#!/usr/bin/env python3
"""Records tests/quant: what bitsandbytes' CPU quantizer makes of small weights.

    build/venv/bin/python tests/parity/record_quant.py

cases.safetensors, held.safetensors   weights "NAME.w" (BF16, F16, F32) of every awkward shape and value; of each kind K
                     (nf4, fp4, nf4+dq, fp4+dq, int8) "NAME.K.codes", "NAME.K.absmax", with dq "NAME.K.nested" and
                     "NAME.K.offset", and "NAME.K.w", what it stands for again in fp32. "held" was not looked at while the
                     kernels were written
maps.safetensors     the value tables by code, the dynamic map, and means of generated sequences of many lengths
MODEL, MODEL-KIND    small models as transformers saves them, in 16 bit and quantized by bitsandbytes (gpt2's with its bytes
                     stored as bf16); tests/unit/test_bnb.c makes the one of the other, byte for byte

One thread: torch splits a long mean over its threads, and its last bit depends on their number.
"""
import os
import pathlib
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from bitsandbytes import functional as F
from bitsandbytes.backends.default import ops as default_ops
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parents[1] / "quant"
torch.set_num_threads(1)


def normal(shape, seed, scale=1.0, tail=False):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g) * scale
    return x * torch.exp(torch.randn((shape[0], 1), generator=g)) if tail else x


def midpoints(kind):
    """Blocks whose largest is 1, so that scaled values are these: each bound, and its neighbours in fp32."""
    bounds, _ = default_ops._get_4bit_quantize_bounds(kind, torch.device("cpu"))
    bounds = bounds.numpy()
    near = [np.nextafter(bounds, np.float32(d)) for d in (-9, 9)]
    values = np.concatenate([bounds, *near, [0.0, -0.0, 1e-30, -1e-30, -1.0]]).astype(np.float32)
    rows = np.zeros((len(values) // 63 + 1, 64), np.float32)
    rows[:, 0] = 1
    for i, v in enumerate(values):
        rows[i // 63, 1 + i % 63] = v
    return torch.from_numpy(rows)


def with_zeros(shape, seed):
    x = normal(shape, seed).flatten()
    x[64:128] = 0
    x[-(x.numel() % 64) or x.numel():] = 0
    return x.reshape(shape)


def quantized(w, kind):
    """The tensors of a kind."""
    if kind == "int8":
        half = w.to(torch.float16)
        codes, scb, _ = F.int8_vectorwise_quant(half)
        return {"codes": codes, "absmax": scb, "w": F.int8_vectorwise_dequant(codes, scb)}
    name, double = kind.split("+")[0], kind.endswith("+dq")
    codes, state = F.quantize_4bit(w, blocksize=64, compress_statistics=double, quant_type=name)
    absmax, out = state.absmax, {"codes": codes.flatten(), "absmax": state.absmax}
    if double:
        out |= {"nested": state.state2.absmax, "offset": state.offset.reshape(1)}
        absmax = F.dequantize_blockwise(state.absmax, state.state2) + state.offset
    # Not dequantize_4bit: 0.50's AVX-512 way takes the wrong scales for rows that are no multiple of 64.
    compute = default_ops._dequantize_4bit_compute
    compute = getattr(compute, "__wrapped__", compute)
    return out | {"w": compute(out["codes"], absmax, state.code, 64, w.shape, torch.float32)}


def record(file, cases):
    tensors = {}
    for name, w in cases.items():
        tensors[f"{name}.w"] = w.contiguous()
        for kind in ("nf4", "fp4", "nf4+dq", "fp4+dq", "int8"):
            if kind == "int8" and not bool(torch.isfinite(w.to(torch.float16)).all()):
                continue
            for what, t in quantized(w, kind).items():
                if what != "w" or w.numel() < 5000:
                    tensors[f"{name}.{kind}.{what}"] = t.contiguous()
    save_file(tensors, HERE / file)


def sequence(n):
    """Positive values that any language can make again."""
    return ((np.arange(n, dtype=np.uint64) * 2654435761 % 2**32) >> 8).astype(np.float32) * np.float32(2**-24) + np.float32(0.01)


def models():
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=31, hidden_size=36, intermediate_size=50, num_hidden_layers=1, num_attention_heads=6,
                                         num_key_value_heads=2, head_dim=10, max_position_embeddings=32))
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=36, n_layer=1, n_head=6, bos_token_id=0, eos_token_id=0))
    four = {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.bfloat16}
    return {
        "llama": (llama, {"nf4+dq": {**four, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
                          "fp4": {**four, "bnb_4bit_quant_type": "fp4"}, "int8": {"load_in_8bit": True}}),
        "gpt2": (gpt2, {"nf4": {**four, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": torch.bfloat16},
                        "int8": {"load_in_8bit": True}}),
    }


def record_models():
    torch.manual_seed(3)
    for name, (model, kinds) in models().items():
        model = model.to(torch.bfloat16)
        for folder, loaded in [(name, None), *((f"{name}-{kind}", options) for kind, options in kinds.items())]:
            shutil.rmtree(HERE / folder, ignore_errors=True)
            if loaded is not None:
                model = AutoModelForCausalLM.from_pretrained(HERE / name, quantization_config=BitsAndBytesConfig(**loaded), device_map="cpu",
                                                             dtype=torch.bfloat16)
            model.save_pretrained(HERE / folder)
            (HERE / folder / "generation_config.json").unlink()


def main():
    HERE.mkdir(exist_ok=True)
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32
    record("cases.safetensors", {
        "whole": normal((3, 128), 1).to(bf16),
        "whole_f32": normal((3, 128), 2, 0.02),
        "whole_f16": normal((3, 128), 3, 0.02).to(f16),
        "rows": normal((7, 50), 4, 0.02).to(bf16),
        "odd": normal((5, 13), 5).to(bf16),
        "one": normal((1, 1), 6).to(bf16),
        "three": normal((1, 3), 7),
        "zeros": with_zeros((5, 70), 8).to(bf16),
        "nothing": torch.zeros((2, 33), dtype=bf16),
        "subnormal": normal((3, 50), 9, 1e-41),
        "small": normal((3, 70), 10, 2e-38),
        "large": normal((2, 90), 11, 1e37),
        "ties_nf4": midpoints("nf4"),
        "ties_fp4": midpoints("fp4"),
        "nested": normal((17, 1100), 12, 0.02, tail=True).to(bf16),
        "halves": torch.linspace(65400, 65519, 90).reshape(3, 30) * torch.tensor([[1.0], [1e-3], [1e-10]]),
    })
    record("held.safetensors", {
        "whole": normal((4, 192), 21, 0.05, tail=True).to(bf16),
        "rows_f32": normal((11, 37), 22, 3.0),
        "rows_f16": normal((9, 91), 23, 0.01).to(f16),
        "odd": normal((3, 43), 24).to(bf16),
        "zeros": with_zeros((3, 75), 25),
        "tiny": normal((2, 65), 26, 3e-39),
        "steps": (torch.arange(40 * 64).reshape(40, 64) % 97 / 96.0).to(bf16),
        "nested": normal((31, 1203), 27, 0.02, tail=True).to(bf16),
        "half_steps": torch.arange(-127, 128).reshape(1, -1) * 0.5,
    })
    record_models()
    counts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 24, 31, 32, 33, 100, 511, 512, 513, 1000, 4096, 8191, 8192, 32767, 65536, 100001, 131072 * 8 + 77]
    save_file({
        "nf4": F.get_4bit_type("nf4", device="cpu"), "fp4": F.get_4bit_type("fp4", device="cpu"),
        "nf4.bounds": default_ops._get_4bit_quantize_bounds("nf4", torch.device("cpu"))[0],
        "fp4.bounds": default_ops._get_4bit_quantize_bounds("fp4", torch.device("cpu"))[0],
        "dynamic": F.create_dynamic_map(),
        "counts": torch.tensor(counts),
        "means": torch.stack([torch.from_numpy(sequence(n)).mean() for n in counts]),
    }, HERE / "maps.safetensors")


if __name__ == "__main__":
    sys.exit(main())
