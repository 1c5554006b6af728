#!/usr/bin/env python3
"""Tokenizing speed against the `tokenizers` package, one thread each, in turn.

    ./dev bench tokenizer                                    # a GPT-2 style tokenizer trained on the text itself
    ./dev bench tokenizer --style all                        # one of each way to split, and of each model
    ./dev bench tokenizer --model DIR/tokenizer.json --text FILE

The text, unless one is named: documents and sources of this repository. Both get the same documents of at most --chunk bytes and nothing else to do than ids. Figures are MB per second of processor
time, the median of --rounds (with --style the best of them, in turns over the styles: other work on the machine only slows);
the ids of both are compared first. Needs the Python package `tokenizers`; the styles sentencepiece-* are trained and read by `sentencepiece`.
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
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402


def default_text():
    files = sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("src/**/*.[ch]")) + [ROOT / "LICENSE"]
    return "".join(path.read_text() for path in files)


SIZE = 16000
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PREFIX, UPPER, LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LETTERS = PREFIX + r"\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# How models of these names split, by the tokenizer.json that comes with each; and variants of known ones.
SPLITS = {
    "llama3": [CONTRACTIONS + "|" + LETTERS + r"|\p{N}{1,3}|" + REST],
    "llama3-two-digits": [CONTRACTIONS + "|" + LETTERS + r"|\p{N}{1,2}|" + REST],
    "o200k-two-digits": [PREFIX + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + PREFIX + UPPER + "+" + LOWER + "*" + CONTRACTIONS +
                         r"?|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "qwen3.5": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                 r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bloom": [" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"],
}


def byte_level(text, path, splits):
    t = Tokenizer(models.BPE())
    stages = [pre_tokenizers.Split(Regex(split), "isolated") for split in splits]
    stages.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits))
    t.pre_tokenizer = pre_tokenizers.Sequence(stages)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=SIZE, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save(str(path))


def unigram(text, path):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(text.splitlines(), trainers.UnigramTrainer(vocab_size=SIZE, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    t.save(str(path))


def wordpiece(text, path):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=["[UNK]"], show_progress=False))
    t.save(str(path))


def of_sentencepiece(text, path, kind):
    import sentencepiece
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text.splitlines()), model_writer=file, vocab_size=SIZE, model_type=kind,
                                                 byte_fallback=True, minloglevel=2)


# name: (what makes the file, its name)
STYLES = {name: (lambda text, path, splits=splits: byte_level(text, path, splits), "tokenizer.json") for name, splits in {"gpt2": [], **SPLITS}.items()}
STYLES["unigram"] = (unigram, "tokenizer.json")
STYLES["wordpiece"] = (wordpiece, "tokenizer.json")
STYLES["sentencepiece-unigram"] = (lambda text, path: of_sentencepiece(text, path, "unigram"), "tokenizer.model")
STYLES["sentencepiece-bpe"] = (lambda text, path: of_sentencepiece(text, path, "bpe"), "tokenizer.model")


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
    parser.add_argument("--style", help="all, or names with commas: " + " ".join(STYLES))
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    options = parser.parse_args()
    styles = list(STYLES) if options.style == "all" else (options.style or "gpt2").split(",")
    unknown = [style for style in styles if style not in STYLES]
    if unknown:
        parser.error(f"no style {unknown[0]}: there are {' '.join(STYLES)}")
    with tempfile.TemporaryDirectory() as folder:
        text, model = options.text, options.model
        if not text:
            text = pathlib.Path(folder) / "text"
            text.write_text(default_text())
        data = text.read_bytes()
        docs = documents(data, options.chunk)
        if options.style:
            compare_styles(options, styles, pathlib.Path(folder), text, data, docs)
            return
        if not model:
            model = pathlib.Path(folder) / "tokenizer.json"
            STYLES["gpt2"][0](data.decode(errors="replace"), model)
        compare(options, model, text, docs, len(data))


class Package:
    """The reference of a model file."""

    def __init__(self, path):
        if path.suffix == ".json":
            self.tokenizer = Tokenizer.from_file(str(path))
            self.tokenizer.encode_special_tokens = True  # "<unk>" in a text is text, as for bench_tokenizer --ids
            self.name = "tokenizers " + __import__("tokenizers").__version__
            self.encode = lambda docs: [e.ids for e in self.tokenizer.encode_batch_fast(docs, add_special_tokens=False)]
        else:
            import sentencepiece
            self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self.name = "sentencepiece " + sentencepiece.__version__
            self.encode = lambda docs: self.tokenizer.encode(docs, num_threads=1)


def ours(options, model, text):
    """What bench_tokenizer says, and its median and best MB/s."""
    said = subprocess.run([str(options.build / "bench_tokenizer"), str(model), str(text), "3", str(options.chunk)], capture_output=True,
                          text=True, check=True).stdout
    return said, float(re.search(r"median ([0-9.]+) MB/s", said).group(1)), float(re.search(r"best ([0-9.]+) MB/s", said).group(1))


def check_ids(options, model, package, docs):
    """Every document gets the same ids from both."""
    lines = "\n".join(doc.encode().hex() for doc in docs) + "\n"
    said = subprocess.run([str(options.build / "bench_tokenizer"), str(model), "--ids"], input=lines, capture_output=True, text=True,
                          check=True).stdout.splitlines()
    for i, (line, ids) in enumerate(zip(said[1::2], package.encode(docs), strict=True)):
        if [int(word) for word in line.split()] != list(ids):
            sys.exit(f"{model}: the two make different ids of document {i}")


def theirs(package, docs, count):
    begin = time.process_time()
    package.encode(docs)
    return 1e-6 * count / (time.process_time() - begin)


def compare_styles(options, styles, folder, text, data, docs):
    models_of, packages, best = {}, {}, {style: [0.0, 0.0] for style in styles}
    for style in styles:
        make, name = STYLES[style]
        (folder / style).mkdir()
        models_of[style] = folder / style / name
        make(data.decode(errors="replace"), models_of[style])
        packages[style] = Package(models_of[style])
        check_ids(options, models_of[style], packages[style], docs)
        best[style][1] = theirs(packages[style], docs, len(data))
    for _ in range(options.rounds):
        for style in styles:
            best[style][0] = max(best[style][0], ours(options, models_of[style], text)[2])
    print(f"{len(data) / 1e6:.1f} MB in {len(docs)} documents, vocabularies of {SIZE} trained on them; the same ids\n")
    print("| style | headroom, MB/s | reference, MB/s | |\n|---|---|---|---|")
    for style in styles:
        print(f"| {style} | {best[style][0]:.1f} | {best[style][1]:.1f} | {packages[style].name} |")


def compare(options, model, text, docs, count):
    package = Package(model)
    check_ids(options, model, package, docs)
    mine, other, said = [], [], ""
    for _ in range(options.rounds):
        said, median, _ = ours(options, model, text)
        mine.append(median)
        other.append(theirs(package, docs, count))
    tokens = int(re.search(r"(\d+) tokens, [0-9.]+ bytes per token", said).group(1))
    a, b = statistics.median(mine), statistics.median(other)
    print(f"{said.splitlines()[0]}; {count / 1e6:.1f} MB in {len(docs)} documents, {count / tokens:.2f} bytes per token\n")
    print("| | MB/s, one thread |\n|---|---|")
    print(f"| headroom | {a:.1f} |\n| {package.name} | {b:.1f} |\n\nratio {a / b:.1f}")


if __name__ == "__main__":
    main()
