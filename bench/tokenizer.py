#!/usr/bin/env python3
"""Tokenizing speed against the `tokenizers` package, one thread each, in turn.

    ./dev bench tokenizer                                    # a GPT-2 style tokenizer trained on the text itself
    ./dev bench tokenizer --model DIR/tokenizer.json --text FILE

Both get the same documents of at most --chunk bytes and nothing else to do than ids. Figures are MB per second of processor
time, the median of --rounds; the ids of both are compared first. Needs the Python package `tokenizers`.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))

from document import ROOT  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402


def default_text():
    files = sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("src/**/*.[ch]")) + [ROOT / "LICENSE"]
    return "".join(path.read_text() for path in files)


def trained(text, path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=16000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save(str(path))


def documents(data, chunk):
    """As bench_tokenizer cuts them: whole lines, as many as fit."""
    at, out = 0, []
    while at < len(data):
        end = min(at + chunk, len(data))
        if end < len(data):
            end = data.rfind(b"\n", at, end) + 1 or end
        out.append(data[at:end].decode(errors="replace"))
        at = end
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="a tokenizer.json")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text, model = options.text, options.model
        if not text:
            text = pathlib.Path(folder) / "text"
            text.write_text(default_text())
        data = text.read_bytes()
        if not model:
            model = pathlib.Path(folder) / "tokenizer.json"
            trained(data.decode(errors="replace"), model)
        compare(options, model, text, documents(data, options.chunk), len(data))


def compare(options, model, text, docs, count):
    package = Tokenizer.from_file(str(model))
    tokens = sum(len(package.encode(d, add_special_tokens=False).ids) for d in docs)
    ours, theirs, said = [], [], ""
    for _ in range(options.rounds):
        said = subprocess.run([str(options.build / "bench_tokenizer"), str(model), str(text), "3", str(options.chunk)], capture_output=True,
                              text=True, check=True).stdout
        ours.append(float(re.search(r"median ([0-9.]+) MB/s", said).group(1)))
        begin = time.process_time()
        package.encode_batch_fast(docs, add_special_tokens=False)
        theirs.append(1e-6 * count / (time.process_time() - begin))
    if int(re.search(r"(\d+) tokens, [0-9.]+ bytes per token", said).group(1)) != tokens:
        sys.exit("the two make different numbers of tokens")
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{said.splitlines()[0]}; {count / 1e6:.1f} MB in {len(docs)} documents, {count / tokens:.2f} bytes per token\n")
    print("| | MB/s, one thread |\n|---|---|")
    print(f"| headroom | {a:.1f} |\n| tokenizers {__import__('tokenizers').__version__} | {b:.1f} |\n\nratio {a / b:.1f}")


if __name__ == "__main__":
    main()
