#!/usr/bin/env python3
"""Holds the directories that `headroom convert --quantize` writes against bitsandbytes, as transformers loads them.

    build/venv/bin/python tests/parity/check_bnb.py             # build/release/headroom, the 16-bit models of tests/quant

Of each model and kind: transformers loads our directory, and each weight of it, dequantized by bitsandbytes, is the one that
transformers makes of the 16-bit directory when it quantizes while loading; what is not quantized is equal too. Every bit counts.
Exit status 1 when one differs.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from bitsandbytes import functional, nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ("llama", "gpt2")
KINDS = ("nf4", "fp4", "nf4+dq", "fp4+dq", "int8")


def load(path, **options):
    return AutoModelForCausalLM.from_pretrained(path, device_map="cpu", **options)


def config_of(kind):
    if kind == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind[:3], bnb_4bit_use_double_quant="dq" in kind)


def dequantized(model):
    """Every quantized weight by its name, as values; and the other parameters."""
    found, quantized = {}, set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear4bit):
            found[name + ".weight"] = functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        elif isinstance(module, nn.Linear8bitLt):
            scale = module.weight.SCB if module.weight.SCB is not None else module.state.SCB
            found[name + ".weight"] = module.weight.data.float() * scale.float().view(-1, 1) * (1 / 127)
    quantized.update(found)
    for name, parameter in model.named_parameters():
        if name not in quantized:
            found[name] = parameter.data
    return found, len(quantized)


def check(program, name, kind, folder):
    plain, ours = ROOT / "tests" / "quant" / name, folder / f"{name}-{kind}"
    subprocess.run([program, "convert", plain, ours, "--quantize", kind], check=True, capture_output=True, timeout=60)
    have, count = dequantized(load(ours))
    want, expected = dequantized(load(plain, quantization_config=config_of(kind), dtype=torch.bfloat16))
    different = [key for key in sorted(set(have) | set(want)) if key not in have or key not in want or not torch.equal(have[key], want[key])]
    return count == expected > 0 and not different, f"{count} quantized of {len(want)}" + (f", different: {different[:3]}" if different else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "release" / "headroom")
    program = parser.parse_args().program.resolve()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in MODELS:
            for kind in KINDS:
                passed, message = check(program, name, kind, pathlib.Path(temporary))
                failures += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {name:6} {kind:7} {message}", flush=True)
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
