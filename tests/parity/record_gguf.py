#!/usr/bin/env python3
"""Records tests/gguf: what the packages gguf, transformers and tokenizers make of small models.

    build/venv/bin/python tests/parity/record_gguf.py [FAMILY ...]

types.gguf, types.safetensors   random blocks of every type that is decoded, and the values the gguf package gives them
encode.safetensors              values, and what the package makes of them as F16, BF16, Q8_0, Q5_1, Q5_0 and Q4_0
search.safetensors              values of search_values(), and what ggml makes of them as Q4_K, Q5_K and Q6_K; only with --ggml DIRECTORY,
                                a checkout of ggml-org/ggml, whose src/ggml-quants.c is compiled for any x86-64 (no fused
                                multiply-adds) and called
FAMILY/config.json, model.safetensors   a random model as transformers saves it
FAMILY.gguf                     the same model written by the package, with the changes of llama.cpp's converter
tokenizers/NAME.json            small tokenizers, trained on a sentence or two
tokenizers/NAME.gguf, NAME-model.json   vocabularies without merges, and what transformers makes of them
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from gguf import GGMLQuantizationType as T
from gguf import quants
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parents[1] / "gguf"
DECODED = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K, T.Q2_K,
           T.Q3_K, T.IQ4_NL, T.IQ4_XS]


def record_types():
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(HERE / "types.gguf", "none")
    values = {}
    for kind in DECODED:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        elements = 768 if block == 256 else 256
        raw = rng.integers(0, 256, size=(1, elements // block * size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            values[kind.name] = quants.dequantize(raw, kind).reshape(-1)
        writer.add_tensor(kind.name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(values, HERE / "types.safetensors", metadata={"format": "pt"})


def record_encode():
    rng = np.random.default_rng(6)
    source = np.concatenate([
        rng.standard_normal(320), rng.standard_normal(64) * 1e-6, rng.standard_normal(32) * 3e4, np.zeros(32),
        np.linspace(-127.5, 127.5, 96), np.repeat([127, 0.5, -0.5, 1.5, 2.5, -126.5, 0.49999997, 1e-30], 4),
    ]).astype(np.float32)
    tensors = {"source": source}
    for kind in [T.F32, T.F16, T.BF16, T.Q8_0, T.Q5_0, T.Q5_1, T.Q4_0]:
        tensors[kind.name] = np.ascontiguousarray(quants.quantize(source.reshape(1, -1), kind)).view(np.uint8).reshape(-1)
    save_file(tensors, HERE / "encode.safetensors", metadata={"format": "pt"})


def search_values():
    """Blocks of 256: of every size and sign, skew, on a grid, nearly constant, with outliers, zeros and almost zeros."""
    rng = np.random.default_rng(8)
    normal = lambda: rng.standard_normal(256)
    scale = lambda: 10 ** rng.uniform(-6, 2)
    blocks = [normal() * scale() for _ in range(6)]
    blocks += [(normal() + 2) * scale(), np.abs(normal()) * scale(), -np.abs(normal()) * scale(), normal() ** 3 * scale(),
               np.round(normal() * 3) * scale(), np.where(rng.random(256) < 0.03, normal(), 0), np.full(256, 0.37), np.full(256, -0.37),
               np.zeros(256), normal() * 1e-16, np.repeat([0, 1, -1, 3], 64) * normal(),
               normal() * np.repeat(10.0 ** np.arange(-6, 2), 32), normal() * np.tile([1, 1e-3], 128), 1 + normal() * 1e-4]
    coarse = (normal() * 0.05).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)  # as bf16 holds them
    return np.concatenate([np.concatenate(blocks).astype(np.float32), coarse.view(np.float32)])


STUBS = """
#include <stdlib.h>
void ggml_abort(const char *file, int line, const char *format, ...) { (void)file, (void)line, (void)format; abort(); }
size_t ggml_row_size(int type, long count) { (void)type, (void)count; return 0; }
size_t ggml_type_size(int type) { (void)type; return 0; }
const char *ggml_type_name(int type) { (void)type; return ""; }
"""


def record_search(ggml):
    source = search_values()
    tensors = {"source": source}
    with tempfile.TemporaryDirectory() as work:
        stubs, library = pathlib.Path(work) / "stubs.c", pathlib.Path(work) / "quants.so"
        stubs.write_text(STUBS)
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-ffp-contract=off", f"-I{ggml}/include", f"-I{ggml}/src",
                        f"{ggml}/src/ggml-quants.c", stubs, "-o", library, "-lm"], check=True)
        quants = ctypes.CDLL(str(library))
        for kind in [T.Q4_K, T.Q5_K, T.Q6_K]:
            block, size = gguf.GGML_QUANT_SIZES[kind]
            out = np.zeros(len(source) // block * size, np.uint8)
            row = getattr(quants, f"quantize_row_{kind.name.lower()[:3]}K_ref")
            row(source.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(source)))
            tensors[kind.name] = out
    save_file(tensors, HERE / "search.safetensors", metadata={"format": "pt"})


def sizes(**more):
    base = dict(vocab_size=37, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                intermediate_size=32, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return base | more


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 10000.0} | more


FAMILIES = {
    "llama": transformers.LlamaConfig(**sizes()),
    "llama-biases": transformers.LlamaConfig(**sizes(attention_bias=True, mlp_bias=True, head_dim=6, tie_word_embeddings=True)),
    # Pairs of all three kinds: kept, between, divided.
    "llama-llama3": transformers.LlamaConfig(**sizes(hidden_size=48, rope_parameters=rope(
        "llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))),
    "llama-yarn": transformers.LlamaConfig(**sizes(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16))),
    "mistral": transformers.MistralConfig(**sizes(sliding_window=7, head_dim=4)),
    "qwen2": transformers.Qwen2Config(**sizes(tie_word_embeddings=True)),
    "qwen3": transformers.Qwen3Config(**sizes(head_dim=6)),
    "phi3": transformers.Phi3Config(**sizes(sliding_window=9)),
    "phi3-longrope": transformers.Phi3Config(**sizes(
        hidden_size=48, sliding_window=None, original_max_position_embeddings=16,
        rope_parameters=rope("longrope", original_max_position_embeddings=16, short_factor=[1.0, 1.25, 1.5, 2.0],
                             long_factor=[1.0, 2.0, 3.0, 4.25]))),
    "gemma2": transformers.Gemma2Config(**sizes(head_dim=6, sliding_window=5, query_pre_attn_scalar=6)),
    "gemma3": transformers.Gemma3TextConfig(**sizes(num_hidden_layers=6, head_dim=6, sliding_window=5, query_pre_attn_scalar=6)),
    "gemma": transformers.GemmaConfig(**sizes(head_dim=6)),
    "smollm3": transformers.SmolLM3Config(**sizes(num_hidden_layers=4)),
    "granite": transformers.GraniteConfig(**sizes(embedding_multiplier=12.0, residual_multiplier=0.25, attention_multiplier=0.5,
                                                  logits_scaling=8.0)),
    "olmo2": transformers.Olmo2Config(**sizes()),
    "stablelm": transformers.StableLmConfig(**sizes(hidden_size=48, use_qkv_bias=True)),
    "stablelm-parallel": transformers.StableLmConfig(**sizes(hidden_size=48, use_parallel_residual=True)),
    "phi": transformers.PhiConfig(**sizes(num_key_value_heads=6, resid_pdrop=0.0)),
    "gpt2": transformers.GPT2Config(vocab_size=37, n_embd=24, n_layer=2, n_head=6, n_positions=64, n_inner=32, bos_token_id=1,
                                    eos_token_id=2, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0),
}
ARCHITECTURE = {"mistral": "llama", "gemma3_text": "gemma3", "phi": "phi2"}
PERMUTED = ("llama", "smollm3", "granite")


def permute(weight, heads):
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def put_keys(writer, config, architecture):
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    for name, token in [("bos", config.bos_token_id), ("eos", config.eos_token_id), ("pad", config.pad_token_id)]:
        if token is not None:
            getattr(writer, f"add_{name}_token_id")(token)
    if architecture == "gpt2":
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    parameters = config.rope_parameters
    parameters = parameters.get("full_attention", parameters)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    if architecture in ("stablelm", "phi2"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture == "stablelm":
        writer.add_parallel_residual(config.use_parallel_residual)
    if architecture == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    writer.add_rope_freq_base(parameters["rope_theta"])
    writer.add_rope_dimension_count(int(head_size * parameters.get("partial_rotary_factor", 1)))
    if head_size * heads != config.hidden_size or architecture in ("qwen3", "gemma", "gemma2", "gemma3"):
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
    if getattr(config, "sliding_window", None) and architecture != "qwen2":
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
    if parameters["rope_type"] == "longrope":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        scale = config.max_position_embeddings / 16
        writer.add_rope_scaling_attn_factors((1 + np.log(scale) / np.log(16)) ** 0.5)
    if parameters["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(16)


def put_factors(writer, config):
    parameters = getattr(config, "rope_parameters", None) or {}
    if parameters.get("rope_type") == "llama3":
        size = config.hidden_size // config.num_attention_heads
        factors = []
        for frequency in 1 / parameters["rope_theta"] ** (np.arange(0, size, 2) / size):
            wave = 2 * np.pi / frequency
            if wave < 8192 / 4:
                factors.append(1)
            elif wave > 8192:
                factors.append(8)
            else:
                smooth = (8192 / wave - 1) / 3
                factors.append(1 / ((1 - smooth) / 8 + smooth))
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    if parameters.get("rope_type") == "longrope":
        writer.add_tensor("rope_factors_long.weight", np.array(parameters["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(parameters["short_factor"], np.float32))


def put_weights(writer, config, model, architecture):
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = value.float().numpy()
        if architecture in PERMUTED and "q_proj" in name:
            value = permute(value, config.num_attention_heads)
        if architecture in PERMUTED and "k_proj" in name:
            value = permute(value, config.num_key_value_heads)
        if architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            value = value.T
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            value = value + np.float32(1)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(value))


def record_families(wanted=()):
    for name, config in FAMILIES.items():
        if wanted and name not in wanted:
            continue
        directory = HERE / name
        shutil.rmtree(directory, ignore_errors=True)
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.25)
                # Norms of Gemma are stored with 1 added: values of few bits come back exactly.
                if parameter.dim() == 1 and "gemma" in name:
                    parameter.copy_(torch.round(parameter * 64) / 64 + 0.0)  # and no negative zeros
        model.save_pretrained(directory)
        (directory / "generation_config.json").unlink(missing_ok=True)
        architecture = ARCHITECTURE.get(config.model_type, config.model_type)
        writer = gguf.GGUFWriter(HERE / f"{name}.gguf", architecture)
        put_keys(writer, config, architecture)
        put_factors(writer, config)
        put_weights(writer, config, model, architecture)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(**more):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **more)


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level(use_regex=False)])


def trained(corpus, before, normalizer=None, special=(), **model):
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = before
    if normalizer:
        made.normalizer = normalizer
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=330, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def sentencepiece(corpus):
    """As Llama 2: a blank in front, U+2581 for blanks, bytes for what the vocabulary lacks."""
    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made = Tokenizer(models.BPE())
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=450, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)], show_progress=False))
    text = json.loads(made.to_str())
    text["model"] |= {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}
    text["pre_tokenizer"] = None
    text["added_tokens"] = [token for token in text["added_tokens"] if not token["content"].startswith("<0x")]
    made = Tokenizer.from_str(json.dumps(text))
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return made


def record_tokenizers():
    (HERE / "tokenizers").mkdir(exist_ok=True)
    corpus = ["The budget is a promise: memory is known to the byte before anything runs. 12 345 steps, it's done.\n\n\tx = 1\n"] * 9
    chat = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = {
        "gpt2": trained(corpus, byte_level()),
        "smollm": trained(corpus, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]), special=chat),
        "llama3": trained(corpus, split(LLAMA3), ignore_merges=True),
        "qwen2": trained(corpus, split(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")), normalizer=normalizers.NFC()),
        "sentencepiece": sentencepiece(corpus),
    }
    made["llama3"].add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    made["llama3"].add_tokens([AddedToken("<tool>", normalized=False)])
    begin = made["llama3"].token_to_id("<|begin_of_text|>")
    made["llama3"].post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", begin)])])
    made["qwen2"].add_special_tokens(chat)
    for name, tokenizer in made.items():
        (HERE / "tokenizers" / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False))


def record_gemma():
    """A vocabulary as llama.cpp writes it for Gemma, without merges, and the merges that transformers derives from it."""
    from transformers import AutoTokenizer
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<0x0A>", "\n\n", "  ", "   ", "<start_of_turn>",
              "\u2581t", "he", "in", "\u2581the", "\u2581in", "th", "the", "hein", "\u00e9h", *"\u2581theinab\u00e9"]
    kinds = [3, 3, 3, 2, 6, 4, 4, 4, 3] + [1] * (len(pieces) - 9)
    for architecture in ["gemma2", "llama"]:
        path = HERE / "tokenizers" / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_scores([-float(i * 7 % 23) for i in range(len(pieces))])
        writer.add_token_types(kinds)
        writer.add_unk_token_id(3)
        writer.add_bos_token_id(2)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        made = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        text = json.loads(made.backend_tokenizer.to_str())["model"]
        (HERE / "tokenizers" / f"{architecture}-model.json").write_text(json.dumps({"vocab": text["vocab"], "merges": text["merges"]}, ensure_ascii=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml", help="a checkout of ggml-org/ggml: records search.safetensors anew, and nothing else")
    parser.add_argument("families", nargs="*", help="records these families alone")
    ggml, families = parser.parse_args().ggml, parser.parse_args().families
    HERE.mkdir(exist_ok=True)
    if ggml:
        record_search(ggml)
        raise SystemExit
    if families:
        record_families(families)
        raise SystemExit
    record_types()
    record_encode()
    record_families()
    record_tokenizers()
    record_gemma()
    print(f"recorded with gguf, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
