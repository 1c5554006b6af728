#!/usr/bin/env python3
"""Ids of whole vocabularies beside the programs that made them, over some ten thousand texts: ./dev parity --tokenizers [FOLDER].

The vocabularies are too large for this repository. They come out of packages that ship them (the wheel or source archive
in FOLDER, default build/vocabularies; missing ones are fetched with pip): Qwen's ranks (dashscope), Llama 3's and
Llama 4's (llama-models), whisper's (openai-whisper), Tekken and SentencePiece models (mistral-common). Texts are those
of record_tokenizers.py, the lines of this repository's documents and sources, and random mixtures of scripts. For each
vocabulary one line says how many texts differ; any difference fails.
"""
import pathlib
import random
import subprocess
import sys
import tarfile
import zipfile

from record_tokenizers import LLAMA3, O200K, PIECES, QWEN2, GPT2, ROOT, texts as recorded_texts

PACKAGES = ["dashscope", "llama-models", "openai-whisper", "mistral-common"]


def texts():
    """Valid UTF-8 only: what others make of broken bytes is another matter."""
    made = [t.decode() for t in recorded_texts() if t.decode(errors="replace").encode() == t]
    for path in sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("src/tokenizer/*.c")):
        made += [line for line in path.read_text().splitlines(keepends=True) if line.strip()]
    rng = random.Random(7)
    blocks = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x4FF), (0x5D0, 0x6FF), (0x900, 0xDFF), (0xE00, 0xE7F), (0x1100, 0x11FF),
              (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFFEF), (0x1F300, 0x1FAFF)]
    for _ in range(4000):
        block = rng.choice(blocks)
        made.append("".join(chr(rng.randint(*rng.choice([block, block, blocks[0], blocks[2]]))) for _ in range(rng.randint(1, 30))))
    made += ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 40))) for _ in range(1000)]
    return made


def members(folder):
    """All files of the packages: name -> bytes."""
    found = {}
    for package in PACKAGES:
        archives = [p for p in folder.glob("*") if p.name.lower().replace("_", "-").startswith(package)]
        if not archives:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), package], check=True)
            archives = [p for p in folder.glob("*") if p.name.lower().replace("_", "-").startswith(package)]
        if archives[0].suffix == ".whl":
            with zipfile.ZipFile(archives[0]) as archive:
                found.update({f"{package}/{n}": archive.read(n) for n in archive.namelist() if wanted(n)})
        else:
            with tarfile.open(archives[0]) as archive:
                found.update({f"{package}/{m.name}": archive.extractfile(m).read() for m in archive if m.isfile() and wanted(m.name)})
    return found


def wanted(name):
    return name.endswith(".tiktoken") or "tokenizer.model" in name or ".model.v" in name or pathlib.Path(name).name.startswith("tekken_2")


def tiktoken_reference(ranks, pattern, composed=False):
    import tiktoken
    from tokenizers import normalizers  # Python's own tables are older
    normal = normalizers.NFC() if composed else None
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: encoding.encode_ordinary(normal.normalize_str(text) if normal else text)


def reference(data):
    """The ids of a text by the vocabulary's own program; None for kinds that are not compared."""
    import base64
    import json
    if data[:1] == b"{":
        tekken = json.loads(data)
        config = tekken["config"]
        first, count = config["default_num_special_tokens"], config["default_vocab_size"] - config["default_num_special_tokens"]
        plain = tiktoken_reference({base64.b64decode(t["token_bytes"]): t["rank"] for t in tekken["vocab"][:count]}, config["pattern"])
        return lambda text: [first + i for i in plain(text)]
    if data[0] == 10:
        import sentencepiece
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        return model.encode
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in data.splitlines() if line)}
    patterns = {128000: LLAMA3, 200000: O200K, 151643: QWEN2, 50256: GPT2, 50257: GPT2}
    return tiktoken_reference(ranks, patterns[len(ranks)], len(ranks) == 151643)


def ours(program, path, all_texts):
    """Ids with and without offsets must be the same."""
    sent = "".join(t.encode().hex() + "\n" for t in all_texts)
    lines = subprocess.run([program, path, "--ids"], input=sent, capture_output=True, text=True, check=True).stdout.split("\n")
    with_offsets, without = [line.split(";")[0] for line in lines[:-1:2]], lines[1:-1:2]
    if with_offsets != without:
        sys.exit(f"{path}: ids with offsets are others than without")
    return [[int(i) for i in line.split()] for line in without]


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/vocabularies"
    program = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "build/release/bench_tokenizer")
    folder.mkdir(parents=True, exist_ok=True)
    all_texts, failed = texts(), False
    for name, data in sorted(members(folder).items()):
        path = folder / "unpacked" / name.replace("/", "-")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        expected, got = reference(data), ours(program, str(path), all_texts)
        different = [t for t, ids in zip(all_texts, got) if ids != expected(t)]
        print(f"{name}: {len(different)} of {len(all_texts)} texts differ")
        if different:
            failed = True
            print(f"  the first: {different[0]!r}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
