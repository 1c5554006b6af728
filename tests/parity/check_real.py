#!/usr/bin/env python3
"""Holds the program against transformers on the real SmolLM2-135M-Instruct: its tokens, chats, losses, texts and training.

    build/venv/bin/python tests/parity/check_real.py                # build/release/headroom, every check
    build/venv/bin/python tests/parity/check_real.py --only loss --only greedy

Checks:
  tokens  ids of varied strings and the text that ids stand for, as the tokenizers package reads the same tokenizer.json
  chat    ids of conversations and which of them count, as apply_chat_template renders them
  loss    mean loss of a fixed text, fp32 and bf16
  greedy  the most likely 40 tokens after six prompts, fp32
  train   ten full fine-tuning steps, fp32: losses, gradient norms and the weights' updates
  saved   the trained directory loads in transformers and continues as the program continues it
Exit status 1 when one fails, 2 when the program is missing. Each line shows what was measured and what is allowed; why
that much is allowed: README.md. The model is that of scripts/real-model.sh, which fetches and converts it when missing.
"""

import argparse
import functools
import json
import logging
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tokenizers
import torch
import transformers
from safetensors.torch import load_file

import reference
from checking import Failed, require

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "build/real-model/SmolLM2-135M-Instruct"
CHECKS = ("tokens", "chat", "loss", "greedy", "train", "saved")
THREADS = 2
TIMES = 4  # what is allowed, in units of the error of plain PyTorch
UNIT = 2.0 ** -24  # the rounding of a float32
LOSS_TOLERANCE, NORM_TOLERANCE = 1e-4, 1e-3  # relative, of a step
MARGIN = 1e-4  # logits nearer than this are a tie that rounding decides
STEPS, BATCH, SEQ, RATE, CLIP = 10, 2, 96, 1e-4, 1.0
NEW_TOKENS = 40

STRINGS = [
    # plain, and where blanks go
    "", " ", "  ", "a", " a", "a ", "Hello, world!", " Hello,  world! ", "  two before", "three   between   words", "trailing   ",
    "\t", "\t\tindented\twith\ttabs", "\n", "\n\n\n", "line\nline\r\nline\rline", " \n \n ", "mixed \t \n\t  run", "a" + " " * 33 + "b",
    "\u00a0no-break\u00a0blank\u2003em\u3000ideographic\u200bzero", "\u2028line\u2029paragraph\u0085next",
    # digits: each is a token of its own
    "7", "42", "1234567890", "3.14159 and 1,000,000", "a1b22c333", "2024-02-29T23:59:60Z", "x²+y³=½", "١٢٣ ४५६ 七八九 １２３", "Ⅷ ④ 𝟘𝟙𝟚",
    # contractions, capitals, punctuation
    "I'm you're he'd we'll they've isn't John's", "I'M YOU'RE HE'D WE'LL", "it’s curly ‘quotes’ “double”", "...!!!???---___***", "(a)[b]{c}<d>/e\\f|g",
    "CamelCaseAndSNAKE_CASE and kebab-case", "e.g. Ph.D., U.S.A.; \"quoted\" 'text' #tag @name $5 50% & more",
    # scripts
    "Grüße aus Köln, Straße, ÄÖÜ", "Cafe\u0301 and Café", "Ελληνικά Σίσυφος", "Русский текст, ёлка", "עברית עם נִקּוּד", "العربية وَالتَّشْكِيل", "हिन्दी में क्षत्रिय",
    "ไทยไม่มีช่องว่าง", "中文没有空格，标点。", "日本語とカタカナ ひらがな", "한국어 조합 \u1112\u1161\u11ab", "Z\u0351\u036b\u0343a\u0363l\u0368g\u0361o",
    # emoji, other planes, controls
    "😀😃😄", "👩‍👩‍👧‍👦 family 🏳️‍🌈", "👍🏽 👎🏿 🇩🇪🇫🇷", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff \ue000", "nul\x00 bell\x07 esc\x1b[0m del\x7f", "\ufeffmark", "soft\u00adhyphen\u202eoverride",
    # code
    "def f(x):\n    return x**2  # squared\n\n\nprint(f(3))\n", "for (int i = 0; i < n; ++i) { a[i] += 0x1F; }\n", "{\"key\": [1, 2.5e-3, null], \"é\": \"\\u00e9\"}",
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x';", "https://example.org/a/b?c=d&e=%20#f", "$ ls -la | grep '^d' && echo \"done\"",
    # special tokens, with and without blanks, whole and broken
    "<|im_start|>", "<|im_start|>user\nHi<|im_end|>\n", " <|im_start|> user <|im_end|> ", "a<|endoftext|>b", "x  <|im_end|>  <|im_end|>\n\n<|im_end|>",
    "<|im_start|><|im_start|><|im_end|>", "<|im_start|", "<|IM_START|> <|im_start |> < |im_end|>", "<repo_name>a/b<file_sep>1<filename>", "<reponame><gh_stars>100<issue_start>",
    "7<jupyter_code>8<empty_output>9",
    # no UTF-8: each broken sequence is read as U+FFFD
    b"ab\xffcd\xc3", b"\xf0\x9f\x98 \xed\xa0\x80 \xe2\x82", b"\x80<|im_end|>\xc0\xaf",
    # longer than the words that a splitter can keep
    "x" * 1000, "ab" * 500, "=" * 200 + "\n" + "-" * 77, "word " * 300, "0" * 300,
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


CONVERSATIONS = [
    [user("What is Headroom?"), assistant("One program.")],
    [system("Be brief."), user("Hi"), assistant("Hello!")],
    [system(""), user("Hi"), assistant("Hello!")],
    [user("1 + 1?"), assistant("2"), user("And 12 * 12?"), assistant("144"), user("Minus 100?"), assistant("44")],
    [user("Grüße 😀"), assistant("日本語 ΣΑΣ ß é e\u0301"), user("👩‍👩‍👧"), assistant("ok 🇩🇪")],
    [user("  blanks  "), assistant("  at both ends  "), user("\n\nlines\n\n"), assistant("\tand tabs\n")],
    [user("Write a loop."), assistant("```python\nfor i in range(10):\n    print(i)\n```\nThat is all.")],
    [user("The token <|im_end|> and <|im_start|>user are special."), assistant("Yes, <|endoftext|> too.")],
    [user("first"), user("second"), assistant("both seen")],
    [user("A question"), assistant("an answer"), user("without one")],
    [system("S1"), user("u"), system("S2"), user("v"), assistant("w")],
    [user("{{ 7 * 7 }} {% if x %} \\n \"quotes\" 'single' </s> [INST]"), assistant("{# no #} as it stands")],
    [{"role": "tool", "content": "{\"t\": 21.5}"}, user("?"), assistant("21.5 °C")],
]
UNANSWERED = [  # only for --loss all: what an answer is cannot be seen
    [user("no answer")],
    [assistant("May I help?"), user("Yes."), assistant("With what?")],
]

# Written for this file, so that it never changes.
TEXT = """A river does not hurry, and yet it is never late. In the hills it is a thread of cold water between stones, so narrow that \
a child can step over it; forty miles further down, barges pass each other on it with room to spare. Nobody can point to the place \
where the brook became a river. The people of the valley have three names for it, and they use all of them.

In the spring of 1893 the water rose 14 feet in two days. The mill at Arden lost its wheel, the bridge lost its middle, and a church \
bell that had been waiting on a cart for a better road was carried 600 yards and set down, unharmed, in a field of beans. "It rang \
twice on the way," said the miller's daughter, who was nine years old at the time and told the story until she was ninety. Most of \
what she told was true: the mark of the flood can still be seen on the wall of the inn, above the second window.

Engineers came afterwards with chains and levels. They drew a line on a map, and the line said how high the next flood might be. They \
built a wall to hold it, and a gate in the wall, and a small house beside the gate for a man who would close it. For seventy-one years \
there was nothing for him to do. He grew onions, painted the gate green every fourth summer, and wrote the height of the water in a \
book each morning: 3.2, 3.2, 3.1, 3.4. When the flood did come, in the night, he was the only person in the valley who was not \
surprised. He had seen the numbers begin to climb two days earlier; he closed the gate, made tea, and waited for the bell."""

PROMPTS = [  # (chat, text)
    (True, "What is the capital of France?"),
    (True, "Explain in two sentences why the sky is blue."),
    (True, "Write a Python function that adds two numbers."),
    (False, "The three most common elements in the crust of the Earth are"),
    (False, "def fibonacci(n):\n    "),
    (False, "1, 2, 3, 4, 5, 6,"),
]

# ---------------------------------------------------------------------------------------------------------------------
# What this file knows of the program: change it here.


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, *words, stdin=b""):
        command = [str(word) for word in (self.path, *words)]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=3600)
        require(done.returncode == 0, f"exit {done.returncode}: {' '.join(command)}\n{done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def encode(self, raw):
        return json.loads(self.run("tokenize", MODEL, "-", "--json", stdin=raw))["ids"]

    def decode(self, ids, *options):
        return self.run("tokenize", MODEL, "-", "--decode", *options, stdin=" ".join(map(str, ids)).encode())

    def documents(self, path, work, *options):
        """[(ids, labels)] of a data file, as they are trained on: from the cache of tokenized data."""
        store = pathlib.Path(tempfile.mkdtemp(dir=work))
        self.run("data", path, "--model", MODEL, "--data-cache", store, "--json", "--examples", 0, *options)
        (entry,) = store.iterdir()
        raw = entry.read_bytes()
        magic, version, _, found, kind, sources, tokens, labels, documents = struct.unpack_from("<8s8Q", raw)
        require(magic == b"HRTOKENS" and version == 2, f"{entry.name}: another version of the cache")
        at = 72 + found + kind * sources
        ids = struct.unpack_from(f"<{tokens // 4}i", raw, at)
        marks = struct.unpack_from(f"<{labels // 4}I", raw, at + tokens)  # 0: the label is the id, 1: none; nothing: all count
        require(set(marks) <= {0, 1}, "labels that are not the ids")
        targets = [-100 if mark else label for label, mark in zip(ids, marks or [0] * len(ids))]
        rows = struct.iter_unpack("<QQIIQ", raw[at + tokens + labels:at + tokens + labels + documents])
        return [(list(ids[place:place + length]), targets[place:place + length]) for place, length, *_ in rows]

    def generate(self, model, prompt, chat):
        """(tokens of the prompt, new ids without the end token)"""
        result = json.loads(self.run("generate", model, "--prompt-file", "-", *(["--chat"] if chat else []), "--max-tokens", NEW_TOKENS,
                                     "--temperature", 0, "--precision", "fp32", "--threads", THREADS, "--json", stdin=prompt.encode()))
        return result["prompt_tokens"], result["tokens"]

    def evaluate(self, rows, seq):
        return json.loads(self.run("evaluate", MODEL, "--data", rows, "--seq", seq, "--threads", THREADS, "--json"))["loss"]

    def train(self, rows, out, seq, *options):
        """(losses, gradient norms) of the steps; the weights are then in out/final."""
        self.run("train", MODEL, "--data", rows, "--out", out, "--seq", seq, "--packing", "off", "--schedule", "constant",
                 "--weight-decay", 0, "--threads", THREADS, *options)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "grad_norm" in line]
        return [line["loss"] for line in steps], [line["grad_norm"] for line in steps]


# ---------------------------------------------------------------------------------------------------------------------


def load_model(directory=MODEL, attention="eager", dtype=torch.float32):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation=attention,
                                                                      output_loading_info=True)
    require(not any(report.values()), f"transformers reports {report}")
    return model.eval()


def write_rows(path, rows):
    path.write_text("".join(json.dumps({"input_ids": ids, "labels": labels}) + "\n" for ids, labels in rows))
    return path


def relative(value, truth):
    return abs(value - truth) / abs(truth)


def check_tokens(program, _work):
    auto = transformers.AutoTokenizer.from_pretrained(MODEL)
    plain = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    wrong, count, skipped = [], 0, 0
    for string in STRINGS:
        raw = string if isinstance(string, bytes) else string.encode()
        text = raw.decode(errors="replace")
        ids = program.encode(raw)
        count += len(ids)
        if not ids == auto.encode(text) == plain.encode(text).ids:
            wrong.append(f"{text[:40]!r}: {ids[:12]}, not {auto.encode(text)[:12]}")
        if program.decode(ids) != text.encode():
            wrong.append(f"{text[:40]!r}: does not come back")
        if "<" in text:
            skipped += 1
            if program.decode(ids, "--no-special").decode() != auto.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False):
                wrong.append(f"{text[:40]!r}: other text without special tokens")
    # Ids in an order that no text gives: what they stand for may be no UTF-8.
    jumble = [(7919 * i) % plain.get_vocab_size() for i in range(3000)]
    pieces = [jumble[i:i + 500] for i in range(0, len(jumble), 500)]
    for piece in pieces:
        if program.decode(piece).decode(errors="replace") != auto.decode(piece, clean_up_tokenization_spaces=False):
            wrong.append(f"ids {piece[:4]}...: other text")
    require(not wrong, f"{len(wrong)} differ: " + "; ".join(wrong[:8]))
    yield f"{len(STRINGS)} strings, {count} ids and back, {skipped} also without special tokens; {len(jumble)} jumbled ids to text: 0 differ (allowed: 0)"


def rendered(tokenizer, messages, ask=False):
    return tokenizer.apply_chat_template(messages, add_generation_prompt=ask, return_dict=False)


def answers_labelled(tokenizer, messages):
    """Ids of the template, and -100 for those outside answers. An answer ends with its end token, without the line feed."""
    ids = rendered(tokenizer, messages)
    labels = [-100] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            begin = len(rendered(tokenizer, messages[:i], ask=True))
            end = len(rendered(tokenizer, messages[:i + 1])) - len(tokenizer.encode("\n"))
            labels[begin:end] = ids[begin:end]
    return ids, labels


def check_chat(program, work):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    wrong, count, counted = [], 0, 0
    for name, conversations, options in (("answers", CONVERSATIONS, ()), ("all", CONVERSATIONS + UNANSWERED, ("--loss", "all"))):
        path = work / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))
        got = program.documents(path, work, *options)
        require(len(got) == len(conversations), f"{len(got)} documents")
        for messages, (ids, labels) in zip(conversations, got):
            want = answers_labelled(tokenizer, messages) if not options else (rendered(tokenizer, messages),) * 2
            if ids != want[0]:
                wrong.append(f"{messages}: {tokenizer.decode(ids)!r}")
            elif labels != want[1]:
                wrong.append(f"{messages}: counts {tokenizer.decode([i for i in labels if i >= 0])!r}")
            count, counted = count + len(ids), counted + sum(label >= 0 for label in labels)
    require(not wrong, f"{len(wrong)} differ: " + "; ".join(wrong[:4]))
    yield (f"{len(CONVERSATIONS) + len(UNANSWERED)} conversations, by answers and with --loss all: {count} ids, {counted} counted: "
           "0 differ (allowed: 0)")


def token_losses(logits, ids):
    """Of every token but the first. In double whatever the logits are: in float32 PyTorch's own sum over the vocabulary is
    further off (-9e-6 in each token's loss) than the whole model."""
    return torch.nn.functional.cross_entropy(logits[0, :-1].double(), ids[0, 1:], reduction="none")


def means(losses):
    """Of the whole and of its quarters."""
    return [float(part.mean()) for part in (losses, *losses.chunk(4))]


def check_loss(program, work):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    ids = torch.tensor([tokenizer.encode(TEXT)])
    rows = write_rows(work / "text.jsonl", [(ids[0].tolist(), ids[0].tolist())])
    length = ids.shape[1]
    places = torch.arange(length)[None], torch.zeros(1, length, dtype=torch.long)
    with torch.no_grad():
        model = load_model()
        config = model.config.to_dict()
        single = dict(model.state_dict())
        single.pop("lm_head.weight")  # tied
        orders = {"eager": means(token_losses(model(ids).logits, ids)),
                  "reference": means(token_losses(reference.forward(config, single, ids, *places), ids)),
                  "sdpa": means(token_losses(load_model(attention="sdpa")(ids).logits, ids))}
        double = {name: value.double() for name, value in single.items()}
        truth = means(token_losses(reference.forward(config, double, ids, *places), ids))
        del double, single, model
        halves = {attention: means(token_losses(load_model(attention=attention, dtype=torch.bfloat16)(ids).logits, ids))
                  for attention in ("eager", "sdpa")}
    values = {"fp32": (program.evaluate(rows, length), orders),
              "bf16": (program.train(rows, work / "loss-bf16", length, "--precision", "bf16", "--lr", 0, "--steps", 1)[0][0], halves)}
    failed = False
    for precision, (value, yardsticks) in values.items():
        plain = max(UNIT, *(relative(mean, true) for run in yardsticks.values() for mean, true in zip(run, truth)))
        error = relative(value, truth[0])
        failed = failed or error > TIMES * plain
        yield (f"{precision} {length} tokens: {value:.7f}, in double {truth[0]:.7f}: error {error:.1e} "
               f"(allowed: {TIMES * plain:.1e}, {TIMES} x that of PyTorch in {precision})")
    require(not failed, "a loss is too far off")


def same_greedy(program, directory, prompts):
    """Compares continuations; returns (tokens compared, smallest margin, ties at which a comparison ended)."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(directory), load_model(directory)
    compared, smallest, ties = 0, float("inf"), []
    for chat, prompt in prompts:
        ids = rendered(tokenizer, [user(prompt)], ask=True) if chat else tokenizer.encode(prompt)
        asked, got = program.generate(directory, prompt, chat)
        require(asked == len(ids), f"{prompt!r}: a prompt of {asked} tokens, not {len(ids)}")
        prompt_ids = torch.tensor([ids])
        done = model.generate(prompt_ids, attention_mask=torch.ones_like(prompt_ids), do_sample=False, max_new_tokens=NEW_TOKENS,
                              return_dict_in_generate=True, output_logits=True)
        want = done.sequences[0, len(ids):].tolist()
        best = [logits[0].float().topk(2) for logits in done.logits]
        margins = [float(b.values[0] - b.values[1]) for b in best]
        smallest = min(smallest, *margins)
        if got and got[-1] != want[-1] and want[-1] == tokenizer.eos_token_id and len(got) == len(want) - 1:
            want.pop()  # the end token is not printed
        if got == want:
            compared += len(want)
            continue
        first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        require(first < len(margins) and margins[first] < MARGIN,
                f"{prompt!r}: token {first + 1} differs, at a margin of {margins[min(first, len(margins) - 1)]:.1e}: "
                f"{tokenizer.decode(got)!r}, not {tokenizer.decode(want)!r}")
        compared += first
        ties.append(f"{prompt[:20]!r} stopped at a tie ({margins[first]:.1e}) after {first} tokens")
    return compared, smallest, ties


def told_greedy(prompts, compared, smallest, ties):
    return (f"{len(prompts)} prompts, {compared} tokens: 0 differ (allowed: 0 where the two best logits are {MARGIN} apart; "
            f"least distance {smallest:.1e})" + "".join("; " + tie for tie in ties))


def check_greedy(program, _work):
    yield told_greedy(PROMPTS, *same_greedy(program, MODEL, PROMPTS))


def train_rows(program, work):
    """The first conversations of examples/chat.jsonl as they are masked, none longer than a row."""
    documents = program.documents(ROOT / "examples/chat.jsonl", work)[:STEPS * BATCH]
    return [(ids[:SEQ], labels[:SEQ]) for ids, labels in documents]


@functools.cache
def trained(program, work):
    """The program's ten steps, of the rows in their order as torch_steps takes them: rows, losses, gradient norms, directory."""
    rows = train_rows(program, work)
    out = work / "trained"
    losses, norms = program.train(write_rows(work / "train.jsonl", rows), out, SEQ, "--micro-batch", BATCH, "--steps", STEPS, "--lr", RATE,
                                  "--clip", CLIP, "--optimizer", "adamw", "--precision", "fp32", "--save-dtype", "f32", "--no-shuffle")
    require(len(losses) == STEPS, f"{len(losses)} steps in metrics.jsonl")
    return rows, losses, norms, out / "final"


def torch_steps(rows, dtype):
    """(losses, gradient norms, weights) of ten steps: of transformers' model, or in double of the reference."""
    model = load_model()
    weights = {name: value.detach().to(dtype).requires_grad_() for name, value in model.named_parameters()}
    if dtype == torch.float64:
        config, places = model.config.to_dict(), (torch.arange(SEQ).expand(BATCH, -1), torch.zeros(BATCH, SEQ, dtype=torch.long))
    else:
        weights = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    ids, labels = torch.zeros(len(rows), SEQ, dtype=torch.long), torch.full((len(rows), SEQ), -100)
    for i, row in enumerate(rows):
        ids[i, :len(row[0])], labels[i, :len(row[1])] = (torch.tensor(part) for part in row)
    losses, norms = [], []
    for x, y in zip(ids.split(BATCH), labels.split(BATCH)):
        if dtype == torch.float64:
            loss = reference.sum_of_losses(reference.forward(config, weights, x, *places), y) / reference.counted_labels(y)
        else:
            loss = model(x, labels=y, use_cache=False).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)))
        losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, {name: value.detach() for name, value in weights.items()}


def update_errors(start, truth, weights):
    """Name -> distance of the weights from the true ones, relative to how far those went."""
    return {name: float((weights[name] - truth[name]).double().norm() / (truth[name] - start[name]).double().norm()) for name in truth}


def check_train(program, work):
    rows, losses, norms, directory = trained(program, work)
    their_losses, their_norms, theirs = torch_steps(rows, torch.float32)
    true_losses, true_norms, truth = torch_steps(rows, torch.float64)
    start = {name: value.detach() for name, value in load_model().named_parameters()}
    weights = load_file(directory / "model.safetensors")
    require(weights.keys() == truth.keys(), f"other names: {sorted(weights.keys() ^ truth.keys())}")
    results = []
    for what, got, their, true, allowed in (("loss", losses, their_losses, true_losses, LOSS_TOLERANCE),
                                            ("gradient norm", norms, their_norms, true_norms, NORM_TOLERANCE)):
        apart, off, theirs_off = (max(map(relative, *pair)) for pair in ((got, their), (got, true), (their, true)))
        results.append(max(apart, off) <= allowed)
        yield (f"{what} of {STEPS} steps, {true[0]:.4f} to {true[-1]:.4f}: at most {apart:.1e} from transformers, {off:.1e} from double "
               f"(allowed: {allowed:.0e}; transformers from double: {theirs_off:.1e})")
    errors, plain = update_errors(start, truth, weights), update_errors(start, truth, theirs)
    apart = update_errors(start, theirs, weights)
    for what, choose in (("median", statistics.median), ("worst", max)):
        error, allowed = choose(errors.values()), TIMES * choose(plain.values())
        results.append(error <= allowed)
        where = f" ({max(errors, key=errors.get)})" if what == "worst" else ""
        yield (f"update of {len(errors)} tensors, {what}: {error:.1e} from double{where} (allowed: {allowed:.1e}, {TIMES} x that of "
               f"transformers), {choose(apart.values()):.1e} from transformers")
    require(all(results), "training differs")


def check_saved(program, work):
    _rows, _losses, _norms, directory = trained(program, work)
    before, after = (transformers.AutoTokenizer.from_pretrained(d) for d in (MODEL, directory))
    require(before.get_vocab() == after.get_vocab() and before.chat_template == after.chat_template, "another tokenizer or template")
    prompts = [(True, "What is Headroom?"), (False, "The memory of a computer")]
    yield "of the trained directory: " + told_greedy(prompts, *same_greedy(program, directory, prompts))


def main(checks, functions, description):
    """Runs check_NAME of `functions` for each of the names; check_real_lora.py has checks of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--only", choices=checks, action="append", help="only this check; may be repeated")
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program}: no such program; ./dev build makes it")
    environment = {**os.environ, "HEADROOM": str(arguments.program.resolve())}
    if subprocess.run(["bash", ROOT / "scripts/real-model.sh", "--fetch"], env=environment).returncode:
        print("FAIL the model could not be fetched and converted")
        return 1

    torch.set_num_threads(THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    program = Program(arguments.program.resolve())
    failures, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(dir=MODEL.parent, prefix="check-") as temporary:
        for check in checks:
            if check not in (arguments.only or checks):
                continue
            since = time.monotonic()
            try:
                for message in functions["check_" + check](program, pathlib.Path(temporary)):
                    print(f"     {check:7} {message}", flush=True)
                verdict, reason = "ok  ", ""
            except (Failed, OSError, KeyError, ValueError, RuntimeError, subprocess.TimeoutExpired) as error:
                verdict, reason = "FAIL", str(error) if type(error) is Failed else f"{type(error).__name__}: {error}"
                failures += 1
            print(f"{verdict} {check:7} {reason or f'{time.monotonic() - since:.0f} s'}", flush=True)
    print((f"{failures} failed" if failures else "all passed") + f" in {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(CHECKS, globals(), __doc__.split("\n")[0]))
