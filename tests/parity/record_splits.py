#!/usr/bin/env python3
"""Records what the tokenizer package does with characters, for splitting and normalizing.

    build/venv/bin/python tests/parity/record_splits.py tables          # src/tokenizer/unicode_tables.c
    build/venv/bin/python tests/parity/record_splits.py splits          # tests/parity/splits/splits.json
    build/venv/bin/python tests/parity/record_splits.py normalizers     # tests/parity/splits/normalizers.json
    build/venv/bin/python tests/parity/record_splits.py sentencepiece   # tests/parity/sentencepiece/*

The tables are measured, not taken from a Unicode database: splitting must agree with the engine inside the package
(`tokenizers`), whatever Unicode versions it was built with. They do not change unless the package does.
"""

import bisect
import itertools
import json
import pathlib
import struct
import sys
import tempfile
import unicodedata
import zlib

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"]
CONTROL_SPACE = len(CATEGORIES)
NFC, NFD, COMPATIBLE = 32, 64, 128  # HRI_UNICODE_NFC ..: beside the category in a byte
BLOCK = 256


# ---- tables ----

def matching(pattern):
    """The code points that a regex for one character matches."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in splitter.pre_tokenize_str("".join(map(chr, POINTS))) for c in piece}


def isolated(splitter):
    return {c for c in POINTS if len(splitter.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def ranges(points):
    found = []
    for c in sorted(points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def categories():
    table = [None] * 0x110000
    for index, name in enumerate(CATEGORIES):
        for c in matching(r"\p{%s}" % name):
            assert table[c] is None, (hex(c), name, table[c])
            table[c] = index
    table[0xD800:0xE000] = [CATEGORIES.index("Cs")] * 0x800
    assert None not in table
    spaces = matching(r"\s")
    zs = {c for c in POINTS if CATEGORIES[table[c]][0] == "Z"}
    assert zs <= spaces and {CATEGORIES[table[c]] for c in spaces - zs} == {"Cc"}
    for c in spaces - zs:
        table[c] = CONTROL_SPACE
    word = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"}
    word = {c for c in POINTS if table[c] < CONTROL_SPACE and CATEGORIES[table[c]] in word}
    # what hri_unicode_is_word and split_regex.c take as \w
    circled = {c for a, b in ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)) for c in range(a, b + 1)}
    # "a" + c + "a" is one piece for the Whitespace splitter only if c is a word character
    whole = {c for c in POINTS if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c) + "a")) == 1}
    assert whole == word | circled | {0x200C, 0x200D}
    assert matching(r"\w") == word | circled | {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}
    digits = isolated(pre_tokenizers.Digits(individual_digits=True))
    numbers = {c for c in POINTS if table[c] < CONTROL_SPACE and CATEGORIES[table[c]][0] == "N"}
    assert digits - numbers == set(range(0x11DE0, 0x11DEA)) | {0x16FF4, 0x16FF5, 0x16FF6} and numbers <= digits
    return table


def combining_classes():
    """Canonical combining classes, found by the order in which NFD leaves two marks."""
    nfd = normalizers.NFD()
    first = {}
    for c in POINTS:
        first.setdefault(unicodedata.combining(chr(c)), c)

    def swaps(left, right):  # 0 < class of right < class of left
        return left != right and nfd.normalize_str("a" + chr(left) + chr(right)) == "a" + chr(right) + chr(left)
    lowest = first[1]
    known = sorted((k, c) for k, c in first.items() if k and (k == 1 or swaps(c, lowest)))  # the package's Unicode is older
    highest = known[-1][1]
    classes = {}
    for c in POINTS:
        if unicodedata.category(chr(c))[0] not in "MC" and unicodedata.combining(chr(c)) == 0:
            continue
        if len(nfd.normalize_str(chr(c))) != 1:
            continue  # U+0344: a mark that decomposes
        if c != highest and not swaps(highest, c):
            # 0, or the highest class itself
            if unicodedata.combining(chr(c)) == known[-1][0]:
                assert swaps(c, known[0][1])
                classes[c] = known[-1][0]
            continue
        lower = [k for k, r in known if swaps(c, r)]
        at = bisect.bisect_right([k for k, _ in known], lower[-1]) if lower else 0
        classes[c] = known[at][0]
    return classes


def decompositions(normalizer):
    found = {}
    for c in POINTS:
        text = normalizer.normalize_str(chr(c))
        if text != chr(c) and not 0xAC00 <= c <= 0xD7A3:
            found[c] = [ord(x) for x in text]
    return found


def compositions(canonical):
    nfc = normalizers.NFC()
    pairs = {}
    for c, parts in canonical.items():
        if nfc.normalize_str(chr(c)) != chr(c) or len(parts) < 2:
            continue
        left = nfc.normalize_str("".join(map(chr, parts[:-1])))
        assert len(left) == 1 and nfc.normalize_str(left + chr(parts[-1])) == chr(c), hex(c)
        pairs[ord(left), parts[-1]] = c
    return pairs


def c_array(name, kind, values, per_line, form="%s"):
    lines = [", ".join(form % v for v in values[i:i + per_line]) for i in range(0, len(values), per_line)]
    return "%s %s[] = {\n  %s};\n" % (kind, name, ",\n  ".join(lines))


def write_tables():
    table = categories()
    canonical, compatible = decompositions(normalizers.NFD()), decompositions(normalizers.NFKD())
    assert all(c in compatible for c in canonical)
    pairs, classes = compositions(canonical), combining_classes()
    jamo = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    nfc = normalizers.NFC()
    for c in {right for _, right in pairs} | jamo | set(classes) | {c for c in POINTS if nfc.normalize_str(chr(c)) != chr(c)}:
        table[c] |= NFC
    for c in set(canonical) | set(classes) | set(range(0xAC00, 0xD7A4)):
        table[c] |= NFD
    for c in compatible:
        if canonical.get(c) != compatible[c]:
            table[c] |= COMPATIBLE
    blocks, index = [], []
    for begin in range(0, 0x110000, BLOCK):
        block = table[begin:begin + BLOCK]
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    assert len(blocks) <= 256
    pool, entries = [], {}
    pool_index = {}

    def pooled(parts):
        key = tuple(parts)
        if key not in pool_index:
            pool_index[key] = len(pool)
            pool.extend(parts)
        return "{0x%X, %d, %d}" % (c, pool_index[key], len(parts))
    for name, parts in (("canonical", canonical), ("compatible", {c: p for c, p in compatible.items() if canonical.get(c) != p})):
        entries[name] = []
        for c in sorted(parts):
            entries[name].append(pooled(parts[c]))
    low = {c: [ord(x) for x in normalizers.Lowercase().normalize_str(chr(c))] for c in POINTS}
    low = {c: l for c, l in low.items() if l != [c]}
    assert [c for c in low if len(low[c]) > 1] == [0x130] and low.pop(0x130) == [0x69, 0x307]
    assert all((table[c] & 31) in map(CATEGORIES.index, ("Lu", "Lt", "Nl", "So", "Cn")) for c in low if c > 127)
    accents = {c for c in POINTS if normalizers.StripAccents().normalize_str(chr(c)) == ""}
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    nonspacing = {c for c in POINTS if bert.normalize_str("a%sb" % chr(c)) == "ab"}
    out = ["""/* Made by tests/parity/record_splits.py (tables) from the package tokenizers %s: do not edit. */
#include "tokenizer/unicode_tables.h"

const uint8_t hri_unicode_blocks[HRI_UNICODE_END >> HRI_UNICODE_BLOCK_BITS] = {
  %s};
const uint8_t hri_unicode_categories[][1 << HRI_UNICODE_BLOCK_BITS] = {
  %s};
""" % (tokenizers.__version__,
       ",\n  ".join(",".join(map(str, index[i:i + 48])) for i in range(0, len(index), 48)),
       ",\n  ".join("{" + ",\n   ".join(",".join(map(str, b[i:i + 48])) for i in range(0, BLOCK, 48)) + "}" for b in blocks))]

    def sized(name, kind, values, per_line, form="%s"):
        out.append(c_array(name, "const " + kind, values, per_line, form))
        out.append("const uint32_t %s_count = %d;\n" % (name, len(values)))
    as_range = lambda points: ["{0x%X, 0x%X}" % tuple(r) for r in ranges(points)]
    sized("hri_unicode_punctuation", "hri_unicode_range", as_range(c for c in isolated(pre_tokenizers.Punctuation("isolated")) if c > 127), 8)
    sized("hri_unicode_accents", "hri_unicode_range", as_range(accents), 8)
    # behind a letter, a character of the same grapheme vanishes with it when the shortest key takes both
    clusters = tokenizers.normalizers.Precompiled(__import__("base64").b64decode(charsmap({"a": "X"})))
    extending = {c for c in POINTS if clusters.normalize_str("a" + chr(c)) == "X"}
    sized("hri_unicode_extending", "hri_unicode_range", as_range(extending), 8)
    sized("hri_unicode_nonspacing", "hri_unicode_range", as_range(nonspacing), 8)
    by_class = [(a, b, k) for k, points in itertools.groupby(sorted(classes, key=lambda c: (classes[c], c)), classes.get)
                for a, b in ranges(points)]
    sized("hri_unicode_combining", "hri_unicode_class_range", ["{0x%X, 0x%X, %d}" % r for r in sorted(by_class)], 8)
    sized("hri_unicode_canonical", "hri_unicode_decomposition", entries["canonical"], 8)
    sized("hri_unicode_compatible", "hri_unicode_decomposition", entries["compatible"], 8)
    out.append(c_array("hri_unicode_decomposed", "const uint32_t", pool, 14, "0x%X"))
    sized("hri_unicode_pairs", "hri_unicode_pair", ["{0x%X, 0x%X, 0x%X}" % (a, b, c) for (a, b), c in sorted(pairs.items())], 5)
    sized("hri_unicode_lower", "hri_unicode_mapping", ["{0x%X, 0x%X}" % (c, low[c][0]) for c in sorted(low)], 8)
    (ROOT / "src/tokenizer/unicode_tables.c").write_text("\n".join(out))
    print("%d blocks, %d canonical, %d compatible, pool %d, %d pairs, %d classes" % (
        len(blocks), len(entries["canonical"]), len(entries["compatible"]), len(pool), len(pairs), len(classes)))


# ---- splits and normalized texts ----
# Few texts are stored with their pieces. Many more are made by the same generator here and in the tests, of which only a
# digest of all results is stored.

ALPHABET = [ord(c) for c in "abstTeErRvVmMlLdDxXZ019'\"!?.,-_/()$+=<>|`~^&@#*[]{}"] + [
    0x20, 0x20, 0x20, 0x27, 0x27, 0x0A, 0x0A, 0x0D, 0x09, 0x0B, 0x0C, 0x1C, 0x1F, 0x01, 0x7F, 0x85, 0xA0, 0x1680, 0x180E, 0x2003,
    0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x200B, 0xFEFF, 0xAD, 0x17F, 0x212A, 0x130, 0x131, 0xDF, 0xE9, 0xC9, 0x1C5, 0x2B0, 0xAA,
    0x300, 0x301, 0x327, 0x323, 0x345, 0x3099, 0xFB01, 0xB2, 0xBD, 0x2167, 0x2460, 0x4E00, 0x3042, 0x30AB, 0xFF76, 0xFF9E, 0xAC00, 0xAC01,
    0x1100, 0x1161, 0x11A8, 0x915, 0x93C, 0x958, 0x94D, 0x9C7, 0x9BE, 0x627, 0x64B, 0x651, 0x660, 0xE01, 0xE38, 0xE48, 0x5D0, 0x5B7,
    0x1FB3, 0x1E9B, 0x1E69, 0x3A3, 0x3C2, 0x1F600, 0x1F44D, 0x1F3FD, 0x200D, 0xFE0F, 0x1D538, 0x10400, 0x1D7CE, 0x378, 0xE000,
    0x10D40, 0x10D50, 0x2EBF0, 0x31350, 0x1C89, 0xA7CB, 0x1E4D0, 0x11F50, 0x338F, 0xFDFA, 0x2126, 0x212B, 0x1D15E, 0x2F800, 0x2581,
    0x2024, 0xFF01, 0x300C, 0x20AC, 0x24B6, 0x203F, 0x16EE, 0xFFFD, 0x10FFFF]
RANDOM_TEXTS = 6000
REPAIR_BYTES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3,
                0xF4, 0xF5, 0xFE, 0xFF]


class Generator:
    """The generator of tests/text/test_split.c."""

    def __init__(self, seed):
        self.state = seed

    def next(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        return (self.state >> 33) % bound

    def text(self):
        points = []
        for _ in range(1 + self.next(32)):
            points.append(points[-1] if points and self.next(4) == 0 else ALPHABET[self.next(len(ALPHABET))])
        return "".join(map(chr, points))


def random_texts(seed):
    generator = Generator(seed)
    return [generator.text() for _ in range(RANDOM_TEXTS)]


def point_texts():
    """Every code point next to a letter, a digit, a blank, an apostrophe and itself; 64 to a text."""
    for begin in range(0, 0x110000, 64):
        if not 0xD800 <= begin < 0xE000:
            yield "".join("%sa%s1%s %s'%s%sA" % ((chr(c),) * 6) for c in range(begin, begin + 64))


class Digest:
    """CRC-32 over bytes and 32-bit numbers."""

    def __init__(self):
        self.value = 0

    def bytes(self, data):
        self.value = zlib.crc32(data, self.value)

    def numbers(self, numbers):
        self.bytes(struct.pack("<%dI" % len(numbers), *numbers))

    def text(self):
        return "%08x" % self.value


def byte_offsets(text):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return at


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
A, B, SHORT = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?" + A + "*" + B + "+" + SHORT + r"|[^\r\n\p{L}\p{N}]?" + A + "+" + B + "*" + SHORT + r"|\p{N}{1,3}" + O200K_REST)
TEKKEN = O200K.replace(SHORT, "").replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+")
# (kind, pattern, behavior, invert, digests over all code points as well)
SPLITS = [
    ("Regex", GPT2, "Isolated", False, True), ("Regex", LLAMA3, "Isolated", False, True), ("Regex", QWEN2, "Isolated", False, True),
    ("Regex", O200K, "Isolated", False, True), ("Regex", TEKKEN, "Isolated", False, True), ("Regex", LLAMA3, "Removed", True, False),
    ("Regex", QWEN2, "Contiguous", False, False), ("Regex", GPT2, "MergedWithPrevious", False, False),
    ("Regex", O200K, "MergedWithNext", True, False),
    # through PCRE2
    ("Regex", DEEPSEEK, "Isolated", False, True), ("Regex", r"\p{N}{1,3}", "Isolated", False, True),
    ("Regex", r"\p{N}{1,3}+", "Isolated", False, False),
    ("Regex", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", "Isolated", False, True),
    ("Regex", " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", "Isolated", False, False),
    ("Regex", r"\w+|[^\w\s]+", "Removed", True, True), ("Regex", r"\s", "Removed", False, True), ("Regex", r"\S+", "Isolated", False, True),
    ("Regex", r"\p{P}", "Isolated", False, True), ("Regex", r"[\p{Lu}\p{Lt}]\p{M}*", "MergedWithNext", False, True),
    ("Regex", r"[^\P{L}\p{Lu}]+", "Isolated", False, True), ("Regex", r"\W+", "Contiguous", False, True), ("Regex", r"[\W\d]+", "Isolated", False, True),
    ("Regex", r"[^\W\d_]+", "Isolated", False, True),
    ("Regex", r"[\p{L}&&[^\p{Lu}x]]+", "Isolated", False, True), ("Regex", r"[[a-m][^0-\x{2fff}]x]+", "Isolated", False, False),
    ("Regex", r"[^[:alpha:][:digit:]\s]+", "Isolated", False, False), ("Regex", r"[[:punct:]]", "Isolated", False, True),
    ("Regex", r"\b", "Isolated", False, True), ("Regex", r"\B", "Isolated", False, False), ("Regex", r"x*", "MergedWithPrevious", False, False),
    ("Regex", r"x*", "MergedWithNext", True, False), ("Regex", r"(?=[A-Z])", "Isolated", False, False),
    ("Regex", r"(?<=\d)(?=[A-Za-z])|\s+", "MergedWithNext", False, False),
    ("Regex", r"^.", "Isolated", False, False), ("Regex", r".$", "Isolated", False, False), ("Regex", r"(?m:.)", "Isolated", False, False),
    ("Regex", r"\A.|.\z|.\Z", "Isolated", False, False), ("Regex", r"l{2}?", "Isolated", False, False), ("Regex", r"l{,2}e", "Isolated", False, False),
    ("Regex", r"a(?i)b|t", "Isolated", False, False), ("Regex", r"(?i)[s-t]+|k", "Isolated", False, False), ("Regex", r"\h+|\v|\u0041", "Isolated", False, False),
    ("Regex", r"(.)\1+", "Isolated", False, False), ("Regex", r"[0-9][0-9][0-9]", "Contiguous", False, False), ("Regex", r"[\]\-a^]+|[a-]", "Isolated", False, False),
    ("Regex", r"(?<a>e)\k<a>|\p{^L}+?(?!\p{Greek})", "Isolated", False, False),
    ("String", " ", "MergedWithPrevious", False, False), ("String", "ll", "MergedWithNext", False, False), ("String", "\u2581", "MergedWithNext", False, False),
    ("String", " ", "Contiguous", True, False), ("String", "\n", "Removed", False, False), ("String", "", "Isolated", False, False),
    ("Digits", True, "", False, True), ("Digits", False, "", False, True), ("Punctuation", "Contiguous", "", False, True), ("WhitespaceSplit", "", "", False, True),
]
BEHAVIORS = {"Removed": "removed", "Isolated": "isolated", "MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next",
             "Contiguous": "contiguous"}
STORED_TEXTS = [
    "", " ", "a", "Hello, world! It's 2024... don't you think?\n\nYes,   we'LL see.\t\tEnd  ", "foo  bar   baz    ", "'s't're've'm'll'd'S'T'RE'VE'M'LL'D",
    "x'\u017f 'll'LL\u00e9t'\u00e9", "1234567 89\u00bd\u0663\u0664\u0665\u0666 \u2167", "   \n  \n   x", "\r\n\r\n \t\n", "a\u00a0b\u3000c\u2028d\u0085e\u180ef",
    "snake_case CamelCase HTTPServer iPhone XMLHttpRequest aB\u02b0C \u02b0ABC \u0301ABC \u0301abc A\u0301b", "//path/to/file.c:12:\n/*x*/",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439", "\U0001f600\U0001f44d\U0001f3fd \u2764\ufe0f\u200d\U0001f525",
    "\u0915\u094d\u0937\u093f \u0e01\u0e38\u0e48 \u05d0\u05b7 \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "if (x==1) {\n\treturn a[i]+b;\n}\n", "...!!!???   ---   ''\"\"", "\u2581\u2581a\u2581b",
]


def make_splitter(kind, pattern, behavior, invert):
    if kind == "Digits":
        return pre_tokenizers.Digits(individual_digits=pattern)
    if kind == "Punctuation":
        return pre_tokenizers.Punctuation(BEHAVIORS[pattern])
    if kind == "WhitespaceSplit":
        return pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Split(Regex(pattern) if kind == "Regex" else pattern, BEHAVIORS[behavior], invert)


def pieces_of(splitter, text):
    at = byte_offsets(text)
    return [at[i] for _, pair in splitter.pre_tokenize_str(text) for i in pair] if text else []


def digest_of(splitter, texts):
    digest = Digest()
    for text in texts:
        digest.numbers(pieces_of(splitter, text))
    return digest.text()


def write_splits():
    cases = []
    for kind, pattern, behavior, invert, points in SPLITS:
        splitter = make_splitter(kind, pattern, behavior, invert)
        case = {"kind": kind, "pattern": pattern, "behavior": behavior, "invert": invert,
                "pieces": [pieces_of(splitter, text) for text in STORED_TEXTS], "random": digest_of(splitter, random_texts(1))}
        if points:
            case["points"] = digest_of(splitter, point_texts())
        cases.append(case)
        print(kind, pattern, flush=True)
    folder = HERE / "splits"
    folder.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    (folder / "splits.json").write_text('{"tokenizers":"%s","alphabet":%s,\n"texts":%s,\n"random_texts":%d,\n"cases":[\n%s\n]}\n' % (
        tokenizers.__version__, json.dumps(ALPHABET, separators=(",", ":")), json.dumps(STORED_TEXTS, separators=(",", ":")), RANDOM_TEXTS, lines))


NORMALIZERS = [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Prepend", "prepend": "\u2581x"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    {"type": "Replace", "pattern": {"Regex": "\\s+|[A-Z]"}, "content": ""}, {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "<>"},
    {"type": "Replace", "pattern": {"String": "'s"}, "content": "\u00e9\u00e9"}, {"type": "Replace", "pattern": {"String": ""}, "content": "-"},
    {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "NFC"}]},
    {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Replace", "pattern": {"Regex": "\\p{L}"}, "content": "\u00c5\u0323"},
                                         {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "NFKC"}]},
    {"type": "Nmt"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": None, "lowercase": False},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": True},
    {"type": "Precompiled", "precompiled_charsmap": "rules"},
    {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "rules"}, {"type": "Strip", "strip_left": False, "strip_right": True},
                                         {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
    {"type": "Sequence", "normalizers": []}, None,
]
# of the Precompiled normalizer: keys of one and more characters, marks, parts of graphemes; some vanish, some grow
CHARSMAP = {"\t": " ", "\r": " ", "\u2026": "...", "\u00ad": "", "\x01": "", "\uff01": "!", "\ufb01": "fi", "e\u0301": "\u00e9", "a": "bb", "x": "", "\u0301": "",
            "\u338f": "kg", "\u4e00": "\u4e8c\u4e09", "\u0e38": "u", "\u0640\u064b": "z", "\u064e": "", "\ud55c": "han", "\U0001f44d": ":+1:", "Z\u0301": "Y", "\u00e9": "\u00c9\u00c8"}


def field(message, wanted):
    """The bytes of a field of a protobuf message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        tag = number()
        if tag & 7 == 2:
            length = number()
            if tag >> 3 == wanted:
                return message[at:at + length]
            at += length
        elif tag & 7 == 0:
            number()
        else:
            at += 4 if tag & 7 == 5 else 8
    raise KeyError(wanted)


def charsmap(rules):
    """A precompiled map of these rules, as a SentencePiece model holds it, in base64."""
    import base64
    import sentencepiece
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "rules.tsv"
        path.write_text("".join("%s\t%s\n" % (" ".join("%X" % ord(c) for c in key), " ".join("%X" % ord(c) for c in value))
                                for key, value in rules.items()))
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["abc def"] * 20), model_prefix=str(pathlib.Path(work) / "m"), vocab_size=10,
                                                 minloglevel=2, hard_vocab_limit=False, normalization_rule_tsv=str(path))
        normalizer = field((pathlib.Path(work) / "m.model").read_bytes(), 3)
        return base64.b64encode(field(normalizer, 2)).decode()


def with_maps(normalizer):
    """The normalizers of the list with their map in its place."""
    text = json.dumps(normalizer)
    return json.loads(text.replace('"rules"', json.dumps(charsmap(CHARSMAP)))) if '"rules"' in text else normalizer


def make_tokenizer(normalizer):
    """One token for each character of the normalized text, so that its offsets can be seen."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"u": 0}, unk_token="u"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(?m:.)"), "isolated")
    spec = json.loads(made.to_str())
    spec["normalizer"] = normalizer
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def normalized(made, text):
    """The bytes of the normalized text, and for each character the bytes of `text` it stands for."""
    after = made.normalizer.normalize_str(text) if made.normalizer else text
    at = byte_offsets(text)
    return after, [at[i] for pair in made.encode(text).offsets for i in pair]


def normal_digest(made, texts):
    digest = Digest()
    for text in texts:
        after, spans = normalized(made, text)
        digest.bytes(after.encode())
        digest.numbers(spans)
    return digest.text()


def write_normalizers():
    cases = []
    for normalizer in map(with_maps, NORMALIZERS):
        made = make_tokenizer(normalizer)
        stored = [normalized(made, text) for text in STORED_TEXTS]
        case = {"normalizer": normalizer, "texts": [text for text, _ in stored], "spans": [spans for _, spans in stored],
                "random": normal_digest(made, random_texts(2))}
        if normalizer and normalizer["type"] not in ("Prepend", "Replace", "Sequence") and normalizer.get("clean_text", True) and normalizer.get("lowercase", True):
            case["points"] = normal_digest(made, point_texts())
        cases.append(case)
        print(normalizer, flush=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    repaired = Digest()  # random bytes; invalid ones become U+FFFD
    generator = Generator(3)
    for _ in range(RANDOM_TEXTS):
        bytes_ = bytes(REPAIR_BYTES[generator.next(len(REPAIR_BYTES))] for _ in range(1 + generator.next(12)))
        repaired.bytes(bytes_.decode("utf-8", "replace").encode())
    (HERE / "splits" / "normalizers.json").write_text('{"tokenizers":"%s","repair_bytes":%s,"repaired":"%s","cases":[\n%s\n]}\n' % (
        tokenizers.__version__, json.dumps(REPAIR_BYTES, separators=(",", ":")), repaired.text(), lines))


# ---- SentencePiece models ----

WORDS = ("the of and to in is was for memory training model tokens hello world don't it's 2024 12 3.14 caf\u00e9 na\u00efve stra\u00dfe \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u4f60\u597d \u4e16\u754c "
         "\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940 foo_bar x=y; (a+b) Hello World THE END \U0001f600 <tag> lower lowest newer wider").split()
# what one sequence becomes: a blank for a tab and for three dots, nothing for a soft hyphen, several characters, a longer key beside a shorter
RULES = {"\t": " ", "\u2026": " . . ", "\u00ad": "", "\uff21": "A", "\ufb01": "fi", "e\u0301": "\u00e9", "ab": "X", "abs": "Y", "\u3000": " ", "\u338f": "kg"}
MODELS = {
    "plain": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True, "vocab_size": 420},
    "rules": {"rules": True, "user_defined_symbols": ["<tag>", "ab ", "  ", "\u3000x", "d'"], "vocab_size": 150},
    "suffix": {"normalization_rule_name": "identity", "treat_whitespace_as_suffix": True, "byte_fallback": True, "vocab_size": 400, "pad_id": 3},
    "bare": {"normalization_rule_name": "identity", "add_dummy_prefix": False, "vocab_size": 130, "bos_id": -1},
    "nmt_nfkc": {"normalization_rule_name": "nmt_nfkc", "vocab_size": 140},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True, "vocab_size": 360},
    "unigram_rules": {"model_type": "unigram", "rules": True, "user_defined_symbols": ["<tag>", "ab ", "  ", "\u3000x", "d'", "wor"], "hard_vocab_limit": False, "vocab_size": 170},
    "unigram_suffix": {"model_type": "unigram", "normalization_rule_name": "identity", "treat_whitespace_as_suffix": True, "hard_vocab_limit": False, "vocab_size": 160, "pad_id": 3},
    "unigram_whole": {"model_type": "unigram", "normalization_rule_name": "identity", "split_by_whitespace": False, "add_dummy_prefix": False,
                      "hard_vocab_limit": False, "vocab_size": 300, "bos_id": -1},
    "unigram_ties": {},  # not trained: ties()
}


def train(name, options, folder):
    import sentencepiece
    generator = Generator(9)
    lines = [" ".join(WORDS[generator.next(len(WORDS))] for _ in range(8)) for _ in range(600)]
    if not options:
        (folder / (name + ".model")).write_bytes(ties())
        return
    options = dict(options)
    with tempfile.TemporaryDirectory() as work:
        if options.pop("rules", False):
            rules = pathlib.Path(work) / "rules.tsv"
            rules.write_text("".join("%s\t%s\n" % (" ".join("%X" % ord(c) for c in key), " ".join("%X" % ord(c) for c in value))
                                     for key, value in RULES.items()))
            options["normalization_rule_tsv"] = str(rules)
        made = pathlib.Path(work) / name
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(made),
                                                 character_coverage=1.0, minloglevel=2, **{"model_type": "bpe", **options})
        (folder / (name + ".model")).write_bytes(pathlib.Path(str(made) + ".model").read_bytes())


def message(number, value):
    """A field of a protobuf message: a number, a float, text or another message."""
    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def ties():
    """A Unigram model whose pairs of letters are worth a thousandth more or less than both alone, so that what a sum was
    rounded to decides in a text of some thousand characters."""
    letters = "abcdefghilmnorstuwy"
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("\u2581", -2.7, 1)]
    alone = {c: -3.1 - 0.37 * i for i, c in enumerate(letters)}
    pieces += [(c, alone[c], 1) for c in letters]
    generator = Generator(13)
    pieces += [(a + b, alone[a] + alone[b] + 0.001 * (generator.next(5) - 2), 1) for a in letters for b in letters if generator.next(2)]
    whole = b"".join(message(1, message(1, text) + message(2, score) + message(3, kind)) for text, score, kind in pieces)
    return whole + message(2, message(3, 1)) + message(3, message(1, "identity") + message(4, 0))


def long_texts():
    """So long that sums of scores grow beyond what the reference lets them grow to, several times: random texts, words
    with and without blanks, one character."""
    generator = Generator(12)
    yield "".join(generator.text() for _ in range(4000))
    for blank in " ", "":
        yield blank.join(WORDS[generator.next(len(WORDS))] for _ in range(30000))
    yield "l" * 100000


def write_sentencepiece():
    import sentencepiece
    folder = HERE / "sentencepiece"
    folder.mkdir(exist_ok=True)
    texts = STORED_TEXTS + [" ".join(WORDS), "  leading and   inner  blanks \t and trailing  ", "\t\u2026x\u00ady\u2026", "absab abs ab  <tag><tag> ad'd'  \u3000x \u3000 ", "\u2581", "\u00ad \u00ad"]
    cases = []
    for name, options in MODELS.items():
        train(name, options, folder)
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / (name + ".model")))

        def one(text):
            after, origins = model.normalize(text, with_offsets=True)
            at = byte_offsets(text)
            return after, [at[i] for i in origins[:len(after)]], model.encode(text)  # offsets are of characters
        normal, ids, long_ids = Digest(), Digest(), Digest()
        for text in long_texts():
            long_ids.numbers(model.encode(text))
        for text in random_texts(4):
            after, _, tokens = one(text)
            normal.bytes(after.encode())
            ids.numbers(tokens)
        stored = [one(text) for text in texts]
        cases.append({"model": name + ".model", "normalized": [a for a, _, _ in stored], "begins": [b for _, b, _ in stored], "ids": [c for _, _, c in stored],
                      "random": normal.text(), "random_ids": ids.text(), "long_ids": long_ids.text()})
        print(name, model.vocab_size(), (folder / (name + ".model")).stat().st_size)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (folder / "expected.json").write_text('{"sentencepiece":"%s","texts":%s,\n"words":%s,\n"cases":[\n%s\n]}\n' % (
        sentencepiece.__version__, json.dumps(texts, separators=(",", ":")), json.dumps(WORDS, separators=(",", ":")), lines))


def main():
    jobs = {"tables": write_tables, "splits": write_splits, "normalizers": write_normalizers, "sentencepiece": write_sentencepiece}
    for word in sys.argv[1:] or jobs:
        jobs[word]()


if __name__ == "__main__":
    main()
