#!/usr/bin/env python3
"""Writes the small models of this directory with transformers, as its users would: shards with an index, 16-bit floats.

    build/venv/bin/python tests/weights/record.py

tests/unit/test_load.c loads each and saves it again: every file must come out byte for byte.
"""

import os
import pathlib
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent


def llama(**fields):
    return LlamaForCausalLM(LlamaConfig(vocab_size=61, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
                                        num_key_value_heads=1, head_dim=4, max_position_embeddings=32, eos_token_id=[2, 7], **fields))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=32, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0))


def write(name, model, dtype, **options):
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    model.to(dtype).save_pretrained(target, **options)
    (target / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}\n')
    (target / "ranks.tiktoken").write_bytes(b"IQ== 0\n\x00\xff")
    return target


def main():
    torch.manual_seed(20)
    write("llama-bf16-shards", llama(tie_word_embeddings=True), torch.bfloat16, max_shard_size="2KB")
    write("gpt2-f16-shards", gpt2(), torch.float16, max_shard_size="3KB")
    mixed = write("llama-mixed", llama(), torch.bfloat16) / "model.safetensors"
    tensors = {name: value.float() if "norm" in name else value for name, value in load_file(mixed).items()}
    save_file(tensors, mixed, metadata={"format": "pt", "note": "norms are F32"})


if __name__ == "__main__":
    main()
