#!/usr/bin/env python3
"""Holds adapters that the program writes against PEFT, on the cases of record_peft.py.

    build/venv/bin/python tests/parity/check_peft.py            # build/release/headroom, every case
    build/venv/bin/python tests/parity/check_peft.py gpt2

Checks, per case:
  kept      an adapter of PEFT's, loaded and saved without a step: the same tensors byte for byte, the same logits bit for bit
  trained   ten steps by the program: PeftModel.from_pretrained loads RUN/final without a key too many or too few, and its loss over
            all rows is the one that `headroom evaluate` gives, within 1e-6 of it
  recorded  and its logits are those of the recorded final tensors, within 1e-5 of what training changed
  begun     adapters that the program began itself (--lora): PEFT loads them, its loss is `headroom evaluate`'s
Exit status 1 when one fails. The numbers' meaning: README.md.
"""

import argparse
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import record
import record_peft
from checking import Failed, require, run_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSS_TOLERANCE, LOGITS_TOLERANCE = 1e-6, 1e-5


def with_adapter(case, directory):
    """The base with the adapter, as a person loads it; every key of the file must find its place, and none be left out."""
    base = record.load_model(case.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UserWarning)  # PEFT warns of keys that are missing, and that a tied head is untied
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
        model = peft.PeftModel.from_pretrained(base, directory).eval()
    stored = load_file(directory / "adapter_model.safetensors")
    read = {record_peft.stored_name(name): p for name, p in model.named_parameters() if ".original_module." not in name}
    added = {name for name in read if "lora_" in name or name in case.weights}
    require(added == stored.keys(), f"other names than PEFT's: {added ^ stored.keys()}")
    require(all(torch.equal(read[name], stored[name]) for name in stored), "PEFT read other values")
    return model


def logits_of(case, model):
    batch = case.rows(0, case.spec["rows"])
    packed = bool(case.spec.get("packed"))
    mask = record.explicit_mask(model.get_base_model().config, batch["doc_start"], torch.float32) if packed else None
    with torch.no_grad():
        return model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], attention_mask=mask, use_cache=False).logits


def loss_of(case, model):
    labels = case.inputs["labels"]
    logits = logits_of(case, model).double()
    return float(torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100))


def evaluated(program, case, adapter):
    told = run_program([program, "evaluate", case.model, "--adapter", adapter, "--data", case.jsonl, "--seq", case.spec["seq"], "--json"])
    return json.loads(told)["loss"]


def same_loss(program, case, adapter):
    ours, theirs = evaluated(program, case, adapter), loss_of(case, with_adapter(case, adapter))
    require(abs(ours - theirs) <= LOSS_TOLERANCE * theirs, f"{adapter.name}: headroom evaluates to {ours}, PEFT to {theirs}")
    return abs(ours - theirs) / theirs


def train(program, case, out, *options):
    run_program([program, "train", case.model, "--data", case.jsonl, "--seq", case.spec["seq"], "--out", out, "--schedule", "constant", *options])
    return out / "final"


def check_kept(program, case, work):
    final = train(program, case, work / "kept", "--adapter", case.adapter, "--steps", 1, "--lr", 0)
    before, after = load_file(case.adapter / "adapter_model.safetensors"), load_file(final / "adapter_model.safetensors")
    require(before.keys() == after.keys(), f"other names: {before.keys() ^ after.keys()}")
    require(all(torch.equal(before[name], after[name]) for name in before), "tensors changed")
    require(torch.equal(logits_of(case, with_adapter(case, case.adapter)), logits_of(case, with_adapter(case, final))), "logits changed")
    return f"{len(before)} tensors"


def check_trained(program, case, work):
    run = record_peft.RUN
    final = train(program, case, work / "trained", "--adapter", case.adapter, "--steps", run["steps"], "--micro-batch", case.spec["micro_batch"],
                  "--accumulate", case.spec["batch"] // case.spec["micro_batch"], "--lr", run["learning_rate"], "--clip", run["clip"],
                  "--weight-decay", run["weight_decay"], "--betas", ",".join(map(str, run["betas"])), "--eps", run["eps"])
    return f"loss within {same_loss(program, case, final):.1e} of PEFT's"


def check_recorded(_program, case, work):
    stored = load_file(case.directory / "expected.safetensors")
    want = work / "want"
    shutil.copytree(case.adapter, want)
    save_file({name: stored["adamw.final." + name].contiguous() for name in case.weights}, want / "adapter_model.safetensors", metadata={"format": "pt"})
    start, end, ours = (logits_of(case, with_adapter(case, d)).double() for d in (case.adapter, want, work / "trained/final"))
    error = float((ours - end).norm() / (start - end).norm())
    require(error <= LOGITS_TOLERANCE, f"logits are off by {error:.1e} of what training changed")
    return f"logits within {error:.1e} of what training changed"


def check_begun(program, case, work):
    lora = case.own["lora"]
    targets = lora["target_modules"]
    words = [f"r={lora['r']}", f"alpha={lora['lora_alpha']}", "targets=" + (targets if isinstance(targets, str) else ",".join(targets))]
    words += ["rslora"] * lora.get("use_rslora", False) + ["dora"] * lora.get("use_dora", False)
    for key in ("rank_pattern", "alpha_pattern"):
        if lora.get(key):
            words.append(f"{key}=" + ",".join(f"{name}:{value}" for name, value in lora[key].items()))
    words += ["bias=" + lora["bias"]] if "bias" in lora else []
    if lora.get("modules_to_save"):
        words.append("modules_to_save=" + ",".join(lora["modules_to_save"]))
    if layers := lora.get("layers_to_transform"):
        words.append("layers=" + ",".join(map(str, layers)))
    final = train(program, case, work / "begun", "--lora", ",".join(words), "--steps", 6, "--lr", 0.02)
    require(load_file(final / "adapter_model.safetensors").keys() == case.weights.keys(), "other modules than PEFT adapts")
    return f"loss within {same_loss(program, case, final):.1e} of PEFT's"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"which of {', '.join(record_peft.CASES)} (all)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(record_peft.CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program}: no such program; ./dev build makes it")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    failures = 0
    for name in arguments.cases or record_peft.CASES:
        case = record_peft.Case(name, record_peft.DATA / name)
        case.read_start()
        case.jsonl = record.DATA / case.own["base"] / "inputs.jsonl"
        with tempfile.TemporaryDirectory() as temporary:
            for check in ("kept", "trained", "recorded", "begun"):
                try:
                    passed, message = True, globals()["check_" + check](arguments.program.resolve(), case, pathlib.Path(temporary))
                except (Failed, OSError, KeyError, ValueError, RuntimeError, Warning, subprocess.TimeoutExpired) as error:
                    passed, message = False, f"{type(error).__name__}: {error}"
                failures += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {name:13} {check:8} {message}", flush=True)
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
