#!/usr/bin/env python3
"""Holds the program against transformers on the recorded cases: what it saves is what it loaded, and trains as recorded.

    build/venv/bin/python tests/parity/check.py                     # build/release/headroom, every case, every check
    build/venv/bin/python tests/parity/check.py --only train llama-a

Checks, per case:
  tensors   load and save without a step: the same tensors, byte for byte
  config    the saved config.json means the same model to transformers
  logits    transformers gives the same logits, bit for bit, from the saved directory as from the original one
  train     ten AdamW steps from the command line: losses, gradient norms and weights within four times the float32 error
  trained   the trained directory loads in transformers, and is recognisably that run's result
  files     written by transformers in three dtypes, whole and in shards: load and save gives back every file byte for byte
  adafactor ten steps beside torch.optim.Adafactor in float64: losses and weights within four times the float32 error
  written   started from the config.json alone: the one that the program then writes itself means the same model to transformers
Exit status 1 when one fails, 2 when the program is missing. The numbers' meaning: README.md.
"""

import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import record
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

from checking import Failed, require, run_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/parity/data"
CHECKS = ("tensors", "config", "logits", "train", "trained", "files", "written", "adafactor")
TOLERANCE = 4  # times the error of plain float32

# ---------------------------------------------------------------------------------------------------------------------
# What this file knows of the command line and of the run directory: change it here.


def train_command(program, case, expected, out, run=None, model=None):
    """The arguments that train `run` of expected.json, or (None) load and save with a step that changes nothing."""
    command = [program, "train", model or case / "model", "--data", case / "inputs.jsonl", "--out", out,
               "--seq", expected["seq"], "--device", "cpu", "--no-shuffle"]
    if run is None:
        return [*command, "--micro-batch", 1, "--steps", 1, "--lr", 0]  # a rate of 0 changes no bit
    command += ["--micro-batch", run["micro_batch"], "--accumulate", run["accumulate"], "--steps", run["steps"],
                "--optimizer", run["optimizer"], "--lr", run["learning_rate"], "--schedule", "constant",
                "--weight-decay", run["weight_decay"]]
    if run["optimizer"] == "adamw":
        command += ["--betas", ",".join(map(str, run["betas"])), "--eps", run["eps"]]
    if run["optimizer"] == "momentum":
        command += ["--momentum", run["momentum"]]
    return [*command, "--clip", 0 if run["clip"] is None else run["clip"]]  # 0: none


def final_directory(out):
    return out / "final"


def read_metrics(out):
    """(losses, gradient norms), one per step."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    return [line["loss"] for line in steps], [line.get("grad_norm") for line in steps]


# ---------------------------------------------------------------------------------------------------------------------


def stored_tensors(directory):
    """Name -> (dtype as the file says, shape, bytes) over all shards, under the names of transformers' parameters.

    Published GPT-2 files leave out "transformer." and hold the causal mask as "attn.bias"; neither is a weight.
    """
    family = json.loads((directory / "config.json").read_text())["model_type"]
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        loaded = load_file(path)
        with safe_open(path, "pt") as file:
            for name in file.keys():
                if name.endswith((".attn.bias", ".attn.masked_bias")):
                    continue
                long = "transformer." + name if family == "gpt2" and not name.startswith("transformer.") else name
                require(long not in tensors, f"{directory.name}: {long} is stored twice")
                part = file.get_slice(name)
                raw = loaded[name].flatten().view(torch.uint8).numpy().tobytes()
                tensors[long] = part.get_dtype(), part.get_shape(), raw
    return tensors


def check_tensors(case, _expected, saved, _trained):
    before, after = stored_tensors(case / "model"), stored_tensors(saved)
    require(before.keys() == after.keys(), f"other names: {sorted(before.keys() ^ after.keys())}")
    for name, (dtype, shape, raw) in before.items():
        require(after[name][:2] == (dtype, shape), f"{name}: {dtype} {shape} became {after[name][:2]}")
        require(after[name][2] == raw, f"{name}: bytes differ")
    return f"{len(before)} tensors"


def check_config(case, _expected, saved, _trained):
    before, after = (transformers.AutoConfig.from_pretrained(d).to_dict() for d in (case / "model", saved))
    ignored = {"transformers_version", "_name_or_path"}
    other = [f"{key}: {before.get(key)!r} became {after.get(key)!r}" for key in sorted(before.keys() | after.keys())
             if key not in ignored and before.get(key) != after.get(key)]
    require(not other, "; ".join(other))
    return f"{len(before)} fields"


def load_model(directory):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    require(not any(report.values()), f"transformers reports {report}")
    return model.eval()


def logits_of(model, case):
    inputs = load_file(case / "inputs.safetensors")
    with torch.no_grad():
        return model(input_ids=inputs["input_ids"].long()).logits


def check_logits(case, _expected, saved, _trained):
    before, after = (logits_of(load_model(d), case) for d in (case / "model", saved))
    worst = float((before - after).abs().max())
    require(torch.equal(before, after), f"logits differ by up to {worst:.1e}")
    return f"{before.numel()} logits"


def check_train(case, expected, _saved, trained):
    run = expected["runs"]["adamw_clip_accumulate"]
    losses, norms = read_metrics(trained)
    require(len(losses) == run["steps"], f"{len(losses)} steps in metrics.jsonl")
    worst = 0.0  # in units of the float32 error
    for step in range(run["steps"]):
        for what, value, truth, error in (("loss", losses[step], run["losses"], run["loss_fp32_error"]),
                                          ("grad_norm", norms[step], run["grad_norms"], run["grad_norm_fp32_error"])):
            ratio = abs(value - truth[step]) / abs(truth[step]) / error[step]
            require(ratio <= TOLERANCE, f"step {step + 1}: {what} {value}, not {truth[step]}: {ratio:.1f} x fp32")
            worst = max(worst, ratio)

    final = stored_tensors(final_directory(trained))
    start, truth = load_model(case / "model").state_dict(), recorded_final(case, run)
    compared = 0
    for name, reference in truth.items():
        dtype, shape, raw = final[name]
        require(shape == list(reference.shape), f"{name}: shape {shape}")
        if dtype != "F32":
            continue
        value = torch.frombuffer(bytearray(raw), dtype=torch.float32).view(reference.shape).double()
        keep = torch.ones(reference.shape, dtype=torch.bool)
        for part in expected["no_gradient"]:
            if part["name"] == name:
                keep.flatten()[part["begin"]:part["end"]] = False
        error = (value - reference)[keep].norm() / (reference - start[name].double())[keep].norm()
        ratio = float(error) / run["tensors"][name]["fp32_error"]
        require(ratio <= TOLERANCE, f"{name}: update error {float(error):.1e} is {ratio:.1f} x fp32")
        worst, compared = max(worst, ratio), compared + 1
    if not compared:
        return f"worst {worst:.2f} x fp32; the weights are not stored as F32 and were not compared"
    return f"worst {worst:.2f} x fp32"


def recorded_final(case, run):
    prefix = run["final"] + ".final."
    stored = load_file(case / "expected.safetensors")
    return {key.removeprefix(prefix): value.double() for key, value in stored.items() if key.startswith(prefix)}


def check_trained(case, expected, _saved, trained):
    """Is this the trained model at all? How exactly it is, whatever the stored dtype rounds off, is check_train's."""
    model = load_model(case / "model")
    start = logits_of(model, case)
    for name, value in recorded_final(case, expected["runs"]["adamw_clip_accumulate"]).items():
        model.get_parameter(name).data.copy_(value)
    want, got = logits_of(model, case), logits_of(load_model(final_directory(trained)), case)
    error = float((got - want).norm() / (start - want).norm())
    require(error < 0.1, f"logits are off by {error:.1e} of what training changed")
    return f"logits within {error:.1e} of what training changed"


def same_files(before, after):
    names = {path.name for path in before.iterdir()}
    require(names == {path.name for path in after.iterdir()}, f"{before.name}: other files: {sorted(names ^ {p.name for p in after.iterdir()})}")
    for name in sorted(names):
        require((before / name).read_bytes() == (after / name).read_bytes(), f"{before.name}: {name} differs")
    return len(names)


def check_files(program, case, expected, work):
    files = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = transformers.AutoModelForCausalLM.from_pretrained(case / "model", dtype=dtype)
        for shards in ("5GB", "20KB"):
            copy = work / f"{case.name}-{str(dtype).removeprefix('torch.')}-{shards}"
            model.save_pretrained(copy / "model", max_shard_size=shards)
            (copy / "model/special_tokens_map.json").write_text("{}")
            (copy / "inputs.jsonl").write_bytes((case / "inputs.jsonl").read_bytes())
            run_program(train_command(program, copy, expected, copy / "run"))
            files += same_files(copy / "model", final_directory(copy / "run"))
    return f"{files} files"


def check_written(program, case, expected, work):
    out = work / f"{case.name}-written"
    run_program(train_command(program, case, expected, out, model=case / "model/config.json"))
    directories = case / "model", final_directory(out)
    require((directories[0] / "config.json").read_text() != (directories[1] / "config.json").read_text(), "the file was copied")
    # what follows from other keys may be said or not; the rotary parameters are compared by what comes of them
    loose = {"transformers_version", "_name_or_path", "max_window_layers", "head_dim", "dtype", "_sliding_window_pattern", "rope_parameters",
             "partial_rotary_factor", "rope_theta", "rope_scaling", "rope_local_base_freq"}
    before, after = (transformers.AutoConfig.from_pretrained(d).to_dict() for d in directories)
    other = [f"{key}: {before.get(key)!r} became {after.get(key)!r}" for key in sorted(before.keys() | after.keys())
             if key not in loose and before.get(key) != after.get(key)]
    require(not other, "; ".join(other))
    models = [transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(d)) for d in directories]
    positions = torch.arange(expected["seq"])[None]
    rotary = [getattr(model.base_model, "rotary_emb", None) for model in models]
    if rotary[0] is not None:
        for kind in getattr(rotary[0], "layer_types", None) or [None]:
            turns = [emb(torch.zeros(1, 1), positions, *([kind] if kind else [])) for emb in rotary]
            require(all(torch.equal(a, b) for a, b in zip(*turns)), f"cosines and sines of {kind} differ")
    load_model(final_directory(out))  # names and shapes
    return f"{len(before)} fields"


def final_weights(out):
    """Name -> float64 tensor of a run whose weights are saved as F32, which those of all cases are when one asks for it."""
    return {name: torch.frombuffer(bytearray(raw), dtype=torch.float32).view(shape).double()
            for name, (_, shape, raw) in stored_tensors(final_directory(out)).items()}


def check_adafactor(program, case, expected, work):
    """Parts of fused weights have rows and columns of their own: transformers has q, k and v apart."""
    like = expected["runs"]["adamw_clip_accumulate"]
    run = {**like, "optimizer": "adafactor", "learning_rate": 0.05}
    out, start = work / f"{case.name}-adafactor", record.Case(case.name, case)
    run_program([*train_command(program, case, expected, out, run), "--save-dtype", "f32"])
    start.read_start()
    batches = run["micro_batch"]
    truth_losses, _, truth = record.train(start, start.double(), run, batches)
    plain = [record.train(start, make(), run, rows) for make, rows in start.float32_runs(batches).values()]
    worst = 0.0
    for step, (loss, wanted) in enumerate(zip(read_metrics(out)[0], truth_losses)):
        error = max(record.relative_error(losses[step], wanted) for losses, _, _ in plain)
        ratio = abs(loss - wanted) / abs(wanted) / error
        require(ratio <= TOLERANCE, f"step {step + 1}: loss {loss}, not {wanted}: {ratio:.1f} x fp32")
        worst = max(worst, ratio)
    final = final_weights(out)
    for name, reference in truth.items():
        keep = torch.ones(reference.shape, dtype=torch.bool)
        for part in expected["no_gradient"]:
            if part["name"] == name:
                keep.flatten()[part["begin"]:part["end"]] = False
        update = (reference - start.weights[name].double())[keep].norm()
        error = max((made[name].double() - reference)[keep].norm() / update for _, _, made in plain)
        ratio = float((final[name] - reference)[keep].norm() / update / error)
        require(ratio <= TOLERANCE, f"{name}: update is {ratio:.1f} x as far off as in fp32 ({float(error):.1e})")
        worst = max(worst, ratio)
    return f"worst {worst:.2f} x fp32"


def check_case(program, name, checks, work):
    """Runs the program once or twice and yields (check, passed, message)."""
    case = DATA / name
    expected = json.loads((case / "expected.json").read_text())
    saved, trained = work / f"{name}-saved", work / f"{name}-trained"
    needed = [(saved, None, {"tensors", "config", "logits"}),
              (trained, expected["runs"]["adamw_clip_accumulate"], {"train", "trained"})]
    for out, run, users in needed:
        wanted = [check for check in checks if check in users]
        if not wanted:
            continue
        try:
            run_program(train_command(program, case, expected, out, run))
        except (Failed, subprocess.TimeoutExpired) as error:
            yield from ((check, False, str(error)) for check in wanted[:1])
            continue
        for check in wanted:
            try:
                yield check, True, globals()["check_" + check](case, expected, final_directory(saved), trained)
            except (Failed, OSError, KeyError, ValueError, RuntimeError) as error:
                yield check, False, f"{type(error).__name__}: {error}" if type(error) is not Failed else str(error)
    for check, function in (("files", check_files), ("written", check_written), ("adafactor", check_adafactor)):
        if check not in checks:
            continue
        try:
            yield check, True, function(program, case, expected, work)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            yield check, False, str(error)


def main():
    names = sorted(path.name for path in DATA.iterdir() if path.is_dir())
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"which of {', '.join(names)} (all)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--only", choices=CHECKS, action="append", help="only this check; may be repeated")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the run directories here (must not exist)")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(names):
        parser.error(f"unknown case {', '.join(sorted(unknown))}")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program}: no such program; ./dev build makes it")

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    checks = [check for check in CHECKS if check in (arguments.only or CHECKS)]
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or pathlib.Path(temporary)
        if arguments.keep:
            work.mkdir(parents=True)
        for name in arguments.cases or names:
            for check, passed, message in check_case(arguments.program.resolve(), name, checks, work):
                failures += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {name:13} {check:8} {message}", flush=True)
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
