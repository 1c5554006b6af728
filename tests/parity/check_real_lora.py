#!/usr/bin/env python3
"""Holds fine-tuning by adapters against PEFT and bitsandbytes on the real SmolLM2-135M-Instruct.

    ./dev parity --lora                       # build/release/headroom, every check: half an hour on two cores
    ./dev parity --lora --only lora

Checks:
  lora     80 steps from the same A, B = 0, rows and order, without dropout, fp32: the loss of each step is PEFT's
  qlora    the same beside weights in nf4 with nested scales, quantized by bitsandbytes there and by the program here
  loads    PEFT loads both trained adapters, and says of held-out conversations what the program says: loss and greedy text
  merged   `headroom merge` of the first: the logits of PEFT's model, and the weights of PEFT's merge_and_unload
  heldout  the loss of held-out conversations after training all weights, LoRA and QLoRA in bf16, each with the best of one grid of rates
Conversations: examples/chat.jsonl without each sixth; held out are those and examples/chat-held-back.jsonl. Exit status 1 when
one check fails. Each line shows what was measured and what is allowed; the model is that of scripts/real-model.sh.
"""

import functools
import json
import os
import random
import shutil
import statistics
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads spin otherwise, which takes hours where others compute

import peft
import torch
import transformers
from safetensors.torch import load_file

import check_real
from check_real import MODEL, ROOT, THREADS, load_model, relative, require, same_greedy, told_greedy, write_rows

CHECKS = ("lora", "qlora", "loads", "merged", "heldout")
STEPS, BATCH, SEQ, RATE, CLIP = 80, 2, 96, 2e-4, 1.0
LORA, QUANTIZE = "r=16,alpha=32,targets=all-linear", "nf4+dq"
CURVE_TOLERANCE = 0.01  # of a step's loss
LOSS_TOLERANCE = 1e-5  # relative; between transformers and the program without adapters it is 1e-6 (README.md)
LOGITS_TOLERANCE = 1e-4  # of what the adapter changed
WAYS = {"full": ([], None), "lora": (["--lora", LORA], 0.05), "qlora": (["--lora", LORA, "--quantize", QUANTIZE], 0.10)}
RATES = (3e-4, 1e-3, 3e-3)
HELDOUT_JOB = ["--seq", 256, "--micro-batch", 2, "--steps", 120, "--precision", "bf16", "--schedule", "cosine", "--warmup", 0.1, "--shuffle",
               "--seed", 1]


@functools.cache
def conversations(held_out):
    lines = (ROOT / "examples/chat.jsonl").read_text().splitlines(keepends=True)
    held = lines[5::6] + (ROOT / "examples/chat-held-back.jsonl").read_text().splitlines(keepends=True)
    return held if held_out else [line for line in lines if line not in held]


def write_conversations(work, held_out):
    path = work / ("heldout.jsonl" if held_out else "training.jsonl")
    path.write_text("".join(conversations(held_out)))
    return path


@functools.cache
def token_rows(program, work, held_out):
    """Ids and labels as the program makes them of the conversations; check_real.py holds them to transformers."""
    return [(ids[:SEQ], labels[:SEQ]) for ids, labels in program.documents(write_conversations(work, held_out), work)]


def training_rows(program, work):
    """As many as the steps take: every conversation once, then again in another order."""
    rows, shuffle, one = [], random.Random(0), token_rows(program, work, False)
    while len(rows) < STEPS * BATCH:
        rows += shuffle.sample(one, len(one))
    return rows[:STEPS * BATCH]


@functools.cache
def trained(program, work, quantize):
    """The program's steps from an adapter that it began: rows, the beginning, losses, gradient norms, the adapter."""
    rows = training_rows(program, work)
    path = write_rows(work / "rows.jsonl", rows)
    name, options = ("qlora", ["--quantize", QUANTIZE]) if quantize else ("lora", [])
    program.train(path, work / f"{name}-begin", SEQ, "--lora", LORA, "--steps", 1, "--lr", 0, "--no-shuffle", *options)
    begin, out = work / f"{name}-begin/final", work / name
    losses, norms = program.train(path, out, SEQ, "--adapter", begin, "--micro-batch", BATCH, "--steps", STEPS, "--lr", RATE, "--clip", CLIP,
                                  "--precision", "fp32", "--no-shuffle", *options)
    require(len(losses) == STEPS, f"{len(losses)} steps in metrics.jsonl")
    return rows, begin, losses, norms, out / "final"


def with_adapter(adapter, quantize, trainable=False):
    """The base in fp32, or in nf4 as bitsandbytes quantizes it, with the adapter; no key too many or too few."""
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                             bnb_4bit_compute_dtype=torch.float32)
    base = (transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, quantization_config=config, device_map="cpu")
            if quantize else load_model(attention="sdpa"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UserWarning)  # PEFT warns of keys that are missing
        model = peft.PeftModel.from_pretrained(base, adapter, is_trainable=trainable)
    stored = load_file(adapter / "adapter_model.safetensors")
    placed = {name.replace(".default.", "."): value for name, value in model.named_parameters() if "lora_" in name}
    require(placed.keys() == stored.keys(), "other names than PEFT's")
    require(all(torch.equal(placed[name], stored[name]) for name in stored), "PEFT read other values")
    return model


def tensors_of(rows):
    length = max(len(ids) for ids, _ in rows)
    ids, labels = torch.zeros(len(rows), length, dtype=torch.long), torch.full((len(rows), length), -100)
    for i, row in enumerate(rows):
        ids[i, :len(row[0])], labels[i, :len(row[1])] = (torch.tensor(part) for part in row)
    return ids, labels


def peft_steps(begin, rows, quantize):
    model = with_adapter(begin, quantize, trainable=True).train()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    losses, norms = [], []
    for at in range(0, len(rows), BATCH):
        ids, labels = tensors_of(rows[at:at + BATCH])
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights, CLIP)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, norms


def check_curve(program, work, quantize):
    rows, begin, losses, norms, _ = trained(program, work, quantize)
    stored = load_file(begin / "adapter_model.safetensors")
    require(all(bool(value.any()) == ("lora_A" in name) for name, value in stored.items()), "an adapter that begins otherwise than A != 0, B = 0")
    theirs, their_norms = peft_steps(begin, rows, quantize)
    apart = [abs(a - b) for a, b in zip(losses, theirs)]
    yield (f"loss of {STEPS} steps, mean of the first ten {statistics.mean(theirs[:10]):.3f}, of the last {statistics.mean(theirs[-10:]):.3f}: at most "
           f"{max(apart):.1e} from PEFT's, {statistics.mean(apart):.1e} in the mean, {apart[0]:.1e} in the first step (allowed: {CURVE_TOLERANCE})")
    yield f"gradient norms: at most {max(map(relative, norms, their_norms)):.1e} of the value from PEFT's"
    require(max(apart) <= CURVE_TOLERANCE, "a loss is too far off")


def check_lora(program, work):
    yield from check_curve(program, work, False)


def check_qlora(program, work):
    yield from check_curve(program, work, True)


def logits_of(model, rows):
    """Of the rows one by one, without what pads them."""
    with torch.no_grad():
        return [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0] for ids, _ in rows]


def loss_of(logits, rows):
    """The sum in double: check_real.token_losses says why."""
    total = sum(float(torch.nn.functional.cross_entropy(part[:-1].double(), torch.tensor(labels[1:]), ignore_index=-100, reduction="sum"))
                for part, (_, labels) in zip(logits, rows))
    return total / sum(label >= 0 for _, labels in rows for label in labels[1:])


def evaluated(program, rows, *options):
    return json.loads(program.run("evaluate", MODEL, "--data", rows, "--seq", SEQ, "--threads", THREADS, "--json", *options))["loss"]


def check_loads(program, work):
    rows = token_rows(program, work, True)
    path = write_rows(work / "heldout-rows.jsonl", rows)
    failed = False
    for quantize, options in ((False, []), (True, ["--quantize", QUANTIZE])):
        adapter = trained(program, work, quantize)[-1]
        model = with_adapter(adapter, quantize)
        model.train(quantize)  # in evaluation bitsandbytes computes in bf16 where the processor can; the adapter has no dropout
        ours, theirs = evaluated(program, path, "--adapter", adapter, *options), loss_of(logits_of(model, rows), rows)
        plain = evaluated(program, path, *options)
        failed = failed or relative(ours, theirs) > LOSS_TOLERANCE
        yield (f"{'nf4+dq' if quantize else 'fp32'}: loss of {len(rows)} held-out conversations {ours:.7f} ({plain:.3f} without the adapter), PEFT's {theirs:.7f}: "
               f"{relative(ours, theirs):.1e} apart (allowed: {LOSS_TOLERANCE:.0e})")
    require(not failed, "PEFT's model has another loss")
    prompts = [(True, json.loads(line)["messages"][0]["content"]) for line in conversations(True)[-4:]]
    yield "greedy: " + told_greedy(prompts, *same_greedy(program, trained(program, work, False)[-1], prompts))


def check_merged(program, work):
    adapter, out = trained(program, work, False)[-1], work / "merged"
    program.run("merge", MODEL, adapter, "--out", out, "--type", "f32")
    rows = token_rows(program, work, True)
    model = with_adapter(adapter, False).eval()
    theirs, start = logits_of(model, rows), logits_of(load_model(attention="sdpa"), rows)
    ours = logits_of(load_model(out, attention="sdpa"), rows)

    def norm(a, b):
        return sum(float((x - y).double().square().sum()) for x, y in zip(a, b)) ** 0.5

    error = norm(ours, theirs) / norm(theirs, start)
    yield f"logits of {len(rows)} conversations: {error:.1e} of what the adapter changed from PEFT's (allowed: {LOGITS_TOLERANCE:.0e})"
    require(error <= LOGITS_TOLERANCE, "other logits than PEFT's")
    weights, merged = load_file(out / "model.safetensors"), dict(model.merge_and_unload().named_parameters())
    worst = max(float((weights[name] - value).abs().max() / value.abs().max()) for name, value in merged.items())
    yield f"{len(merged)} tensors: at most {worst:.1e} of the largest element from merge_and_unload (allowed: {4 * check_real.UNIT:.1e})"
    require(weights.keys() == merged.keys() and worst <= 4 * check_real.UNIT, "other weights than PEFT's")


def check_heldout(program, work):
    data, held = write_conversations(work, False), write_conversations(work, True)
    best = {}
    for way, (options, _) in WAYS.items():
        found = {}
        for rate in RATES:
            out = work / "heldout"
            program.run("train", MODEL, "--data", data, "--eval-data", held, "--out", out, "--lr", rate, "--threads", THREADS, *HELDOUT_JOB, *options)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            found[rate] = [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
            shutil.rmtree(out)
        best[way] = min(found.values())
        yield f"{way:5} " + ", ".join(f"{loss:.4f} at {rate:g}" for rate, loss in found.items()) + f": {best[way]:.4f}"
    failed = False
    for way, (_, allowed) in WAYS.items():
        if allowed is not None:
            failed = failed or best[way] - best["full"] > allowed
            yield f"{way}: {best[way] - best['full']:+.4f} beside all weights (allowed: +{allowed})"
    require(not failed, "adapters reach less")


if __name__ == "__main__":
    sys.exit(check_real.main(CHECKS, globals(), __doc__.split("\n")[0]))
