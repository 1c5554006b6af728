#!/usr/bin/env python3
"""Records tokenizers and what the reference package makes of many texts: tests/tokenizer/*.json.

Each NAME.json is a small tokenizer in the style of a model family, trained here on the licence of this repository and
some lines of other scripts. texts.json holds the texts (hexadecimal: some are not UTF-8), NAME.vectors.json for each of
them an array of
  ids      the ids with special tokens added (HR_ENCODE_SPECIAL)
  offsets  hash of the (begin, end) pairs of these ids, in bytes of the text
  decoded, skipped  hashes of the decoded text, all and without special tokens
  plain    the ids with special tokens taken as text (HR_ENCODE_PLAIN), where they differ
The hash is 32-bit FNV-1a over little-endian 32-bit numbers, or over bytes of text.

usage: record_tokenizers.py [OUT [FAMILY ...]]      (OUT: default tests/tokenizer beside this script's directory)
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARK = "\u2581"


def corpus():
    """Some English that does not change, and other scripts."""
    texts = [(ROOT / "LICENSE").read_text()]
    texts += ["Grüße aus Köln, naïve café, voilà!", "Привет, мир! Как дела?", "東京都の天気は晴れです。", "안녕하세요 세계", "مرحبا بالعالم",
              "नमस्ते दुनिया", "🙂🙃👍🏽👩‍👩‍👧‍👦🇩🇪", "1234567890 3.14159 2,718", "def f(x):\n\treturn x ** 2\n\n\n"] * 20
    return texts


def byte_level_trainer(size, special=()):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus(), byte_level_trainer(700, ["<|endoftext|>"]))
    return t


def roberta():
    """add_prefix_space, trimmed offsets, a mask token that takes blanks along, words that must stand alone."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    t.train_from_iterator(corpus(), byte_level_trainer(500, ["<s>", "</s>"]))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<r>", rstrip=True, special=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("Ab", normalized=False), AddedToken("<lr>", lstrip=True, rstrip=True)])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(600))
    t.add_special_tokens([AddedToken(c, special=True) for c in ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"]])
    bos = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    return t


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus(), byte_level_trainer(600))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens(["<tool_call>", "</tool_call>"])
    return t


def o200k():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "removed", invert=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(600, ["<|endoftext|>"]))
    return t


def smollm():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(600, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    return t


def falcon():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                               pre_tokenizers.Digits(individual_digits=False),
                                               pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(500, [">>TITLE<<", "<|endoftext|>"]))
    t.add_tokens([AddedToken(">>ABSTRACT<<")])
    return t


def byte_normalizer():
    """The byte alphabet as a normalizer, so that splits and added tokens see it."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    t.pre_tokenizer = pre_tokenizers.Split(Regex("\u0120?\\p{L}+|\u0120?[0-9]+|."), "isolated")
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(450))
    t.add_special_tokens(["<|sep|>"])
    t.add_tokens([AddedToken(" new"), AddedToken("zwei Worte")])
    return t


def piece_model(size, special, pre=None):
    """A character model with bytes, as if converted from SentencePiece."""
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    t.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")  # training alone: merges stay inside words
    fallback = ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special + fallback, show_progress=False, limit_alphabet=90)
    t.train_from_iterator(corpus(), trainer)
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in special]
    state["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(state))
    if pre:
        t.normalizer = None
        t.pre_tokenizer = pre
    return t


def llama2():
    t = piece_model(800, ["<unk>", "<s>", "</s>"])
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def mistral():
    """Metaspace that prepends at the beginning only."""
    t = piece_model(700, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def gemma():
    t = piece_model(700, ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"])
    t.normalizer = normalizers.Replace(" ", MARK)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_tokens([AddedToken(c, normalized=False) for c in ["\n\n", "\n\n\n", MARK * 2, MARK * 3, "<h1>"]])
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", t.token_to_id("<bos>"))])
    return t


def metaspace():
    """Metaspace in each piece, no bytes: unknown characters, one token each."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False, limit_alphabet=80))
    return t


def clip():
    """Lower case, ends of words, unknown characters."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=350, special_tokens=["<unk>", "<|start|>"], show_progress=False,
                                                        end_of_word_suffix="</w>", limit_alphabet=60))
    t.add_tokens([AddedToken("Größe"), AddedToken("two words", single_word=True)])
    return t


def prefixed():
    """Continuing prefix, no unknown token: unknown characters vanish."""
    t = Tokenizer(models.BPE(continuing_subword_prefix="##"))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=400, show_progress=False, continuing_subword_prefix="##", limit_alphabet=60))
    t.add_special_tokens(["[CLS]"])
    return t


def clip_bytes():
    """Byte level with ends of words."""
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex("\\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, show_progress=False, end_of_word_suffix="</w>",
                                                        special_tokens=["<|startoftext|>", "<|endoftext|>"],
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def behaviors():
    """Every behavior of Split, one after the other, and delimiters."""
    t = Tokenizer(models.BPE(unk_token="?", fuse_unk=False))
    s = pre_tokenizers.Split
    t.pre_tokenizer = pre_tokenizers.Sequence([s("-", "merged_with_previous"), s("+", "merged_with_next"), s(Regex("[a-c]+"), "contiguous"),
                                               s(Regex("x|xy"), "isolated"), s("#", "removed"), pre_tokenizers.CharDelimiterSplit("|"),
                                               s(Regex("[^!]+"), "merged_with_previous", invert=True), pre_tokenizers.Punctuation("merged_with_next")])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=250, special_tokens=["?"], show_progress=False, limit_alphabet=100))
    return t


def unigram(special, size, normalizer, pre, decoder, byte_fallback=False, **model):
    """A Unigram model; with byte fallback its bytes get low scores, as SentencePiece gives them none."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace()  # training alone
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False))
    state = json.loads(t.to_str())
    vocab = state["model"]["vocab"]
    if byte_fallback:
        vocab = [v for v in vocab if ord(v[0][0]) < 0x400 or v[0][0] == MARK]
        vocab += [["<0x%02X>" % b, -30.5] for b in range(256)]
    state["model"] = {"type": "Unigram", "unk_id": [v[0] for v in vocab].index("<unk>"), "vocab": vocab, "byte_fallback": byte_fallback, **model}
    t = Tokenizer.from_str(json.dumps(state))
    t.pre_tokenizer = pre
    t.decoder = decoder
    return t


def t5():
    """A charsmap, words with their blanks, an end of text."""
    import record_splits
    t = unigram(["<pad>", "</s>", "<unk>"], 500, None, pre_tokenizers.Metaspace(), decoders.Metaspace())
    state = json.loads(t.to_str())
    state["normalizer"] = {"type": "Sequence", "normalizers": [record_splits.with_maps({"type": "Precompiled", "precompiled_charsmap": "rules"}),
                                                               {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    t = Tokenizer.from_str(json.dumps(state))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    t.add_special_tokens(["<extra_id_0>"])
    return t


def xlmr():
    """Not split at all, bytes for what is unknown; a blank at the very beginning only."""
    t = unigram(["<s>", "<pad>", "</s>", "<unk>"], 400, normalizers.Nmt(), pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]), byte_fallback=True)
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return t


def albert():
    """Lower case without accents, blanks at neither end."""
    t = unigram(["<unk>", "[CLS]", "[SEP]"], 350, normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                                                       normalizers.Lowercase(), normalizers.Strip()]),
                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]), decoders.Metaspace())
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def ties():
    """Scores that are equal or add up to the same, so that the order of sums decides; tokens that reach across blanks."""
    state = json.loads(Tokenizer(models.Unigram()).to_str())
    vocab = [["<unk>", 0.0]] + [[c, -3.3] for c in "abcdefghijklmnopqrstuvwxyz '-.,!1234567890#" + MARK] + [
        ["aa", -6.6], ["ab", -6.6], ["ba", -6.6], ["aaa", -9.9], ["the", -5.1], ["he", -4.2], ["th", -4.2], ["in", -6.6], ["ing", -7.7], ["er", -6.6],
        [MARK + "the", -4.9], [MARK + "t", -3.4], ["s" + MARK, -4.4], [MARK + MARK, -6.6], ["x", -1.1], ["xx", -2.2], ["xxx", -3.3], ["--", -6.6], ["e" + MARK + "l", -7.9]]
    seen, unique = set(), []
    for token, score in vocab:
        if token not in seen:
            unique.append([token, score])
        seen.add(token)
    state["model"] = {"type": "Unigram", "unk_id": 0, "vocab": unique, "byte_fallback": False}
    t = Tokenizer.from_str(json.dumps(state))
    t.normalizer = normalizers.Replace(" ", MARK)
    return t


def wordpiece(size, normalizer, **model):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=size, show_progress=False, limit_alphabet=90,
                                                              special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    state = json.loads(t.to_str())
    state["model"].update(model)
    return Tokenizer.from_str(json.dumps(state))


def bert():
    t = wordpiece(500, normalizers.BertNormalizer())
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert_cased():
    """Case and accents stay; short words only; offsets trimmed as Roberta's."""
    t = wordpiece(400, normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False), max_input_chars_per_word=9)
    t.decoder = decoders.WordPiece(cleanup=False)
    t.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2), trim_offsets=True, add_prefix_space=False)
    t.add_tokens([AddedToken("Größe"), AddedToken("two words", single_word=True)])
    return t


def no_prefix():
    """WordPiece over white space alone, without a prefix for what goes on."""
    t = wordpiece(450, normalizers.Lowercase(), continuing_subword_prefix="")
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return t


def blanks():
    """Tokens of white space beside tokens that take white space along, and a template around the tokens of another processor."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), byte_level_trainer(300, ["<s>", "</s>", "<|sep|>"]))
    t.add_special_tokens([AddedToken("<r>", rstrip=True, special=True), AddedToken("<lr>", lstrip=True, rstrip=True, special=True)])
    t.add_tokens([AddedToken("\n\n"), AddedToken("  ", lstrip=True, rstrip=True, normalized=False), AddedToken("\t", rstrip=True, normalized=False),
                  AddedToken("\n", rstrip=True, normalized=False), AddedToken("\u3000", normalized=False)])
    t.post_processor = processors.Sequence([processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing("<|sep|> <s> $A <|sep|>", special_tokens=[("<|sep|>", 2), ("<s>", 0)])])
    return t


FAMILIES = {f.__name__: f for f in (gpt2, roberta, llama3, qwen2, o200k, smollm, falcon, byte_normalizer, llama2, mistral, gemma, metaspace,
                                    clip, prefixed, clip_bytes, behaviors, t5, xlmr, albert, ties, bert, bert_cased, no_prefix, blanks)}

SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<mask>", "<r>", "<lr>", "word", "Ab", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>",
           "<|im_end|>", "<tool_call>", "[INST]", "[/INST]", "<bos>", "<start_of_turn>", "\n\n", "\n\n\n", MARK * 2, "<h1>", ">>TITLE<<",
           ">>ABSTRACT<<", "<|sep|>", " new", "zwei Worte", "Größe", "two words", "[CLS]", "<|start|>", "<|endoftext", "<0x41>", MARK]
PIECES = ["Hello", "hello", "world", " the", "The ", "don't", "I'LL", "we've", "HTTPServer", "camelCase", "snake_case", "x", "xy", "abc", "a-b", "+1",
          "#", "|", "!", "--", "++", "3", "42", "123456", "3.14", "1,000", "½", "٣٤", "²", "Ⅳ", " ", "  ", "    ", "\t", "\n", "\r\n", "\n \n", "\u00a0",
          "\u2003", "\u3000", "\u200b", "\u2028", "\u180e", "\ufeff", "\u0000", "\u0007", "\u001c", "\u0085", "\u007f", "é", "e\u0301", "ﬁ", "ſ", "K", "İ",
          "ß", "Ǆ", "ǆ", "Å", "A\u030a", "ô\u0323", "가", "\u1100\u1161", "東京", "日本語", "中文字", "Привет", "мир", "Ω", "مرحبا", "नमस्ते", "ไทย",
          "🙂", "👍🏽", "👩‍👩‍👧", "🇩🇪", "\U0001f9ff", "\U00010400", "\U0001d400", "…", "—", "“q”", "$", "€", "^", "`", "~", "<", ">", "<|", "|>", "{}", "//", "'",
          "''", "'s", "'S", "'ſ", "\ue000", "\U000e0001", "ａ", "①", "word", "words", "Ġ", "Ċ", "Â", "</w>", "##"]


def texts():
    """The texts, as bytes: handmade ones, every piece alone and between words, and random mixtures."""
    made = ["", " ", "  ", "a", "Hello, world!", " leading", "trailing ", "  two  spaces  ", "\n", "\n\n\n\n", "a\n\nb", "tab\tbed", "x" * 100,
            "ab" * 70, " " * 50, "a" * 33 + "b" * 31, "0123456789" * 7, "naïve café — voilà", "The quick brown fox jumps over the lazy dog.",
            "for (int i = 0; i < n; i++) {\n    sum += x[i] * y[i];\n}\n", "https://example.org/a?b=c&d=%20e", "Zażółć gęślą jaźń",
            "안녕하세요, 세계! 你好，世界！ こんにちは世界", "👩‍👩‍👧‍👦 family 👍🏽 thumbs 🇩🇪🇫🇷 flags", "e\u0301" * 20, "\u0301\u0301 alone", "\u1100\u1161\u11a8",
            "supercalifragilisticexpialidocious antidisestablishmentarianism", "don't can't we'll they've I'M YOU'RE", "١٢٣ ４５６ ½ ²³ Ⅷ"]
    made += SPECIAL + [f"a{s}b" for s in SPECIAL] + [f" x {s} y " for s in SPECIAL] + [s + s for s in SPECIAL]
    rng = random.Random(20)
    made += ["".join(rng.choice(PIECES) for _ in range(rng.randint(2, 12))) for _ in range(90)]
    made += [" ".join(rng.choice(PIECES + SPECIAL) for _ in range(rng.randint(2, 8))) for _ in range(60)]
    made += ["".join(chr(rng.choice([rng.randint(0, 0x24F), rng.randint(0, 0xD7FF), rng.randint(0xE000, 0x1FFFF)])) for _ in range(12)) for _ in range(40)]
    broken = [b"\xff", b"a\x80b", b"\xe2\x82", b"\xf0\x9f\x99 x", b"\xc0\xaf", b"\xed\xa0\x80", b"ok \xf5\x90\x80\x80 <s> \xe2", b"\xc3(", b"\xf0\x9f\x91\x8d\xf0\x9f"]
    return [m.encode() for m in made] + broken


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def repaired(data):
    """The text that the reference sees, and for each of its characters the bytes of `data` that it stands for."""
    text, spans, at = "", [], 0
    while at < len(data):
        for width in (1, 2, 3, 4):
            try:
                text += data[at:at + width].decode()
                break
            except UnicodeDecodeError as bad:
                if bad.reason != "unexpected end of data" or at + width >= len(data):
                    width = max(1, bad.end - bad.start if bad.reason != "invalid start byte" else 1)
                    text += "\ufffd"
                    break
        spans.append((at, at + width))
        at += width
    assert text == data.decode(errors="replace"), data
    return text, spans


def byte_offsets(offsets, spans, total):
    """From characters to bytes of the text as it was given."""
    out = []
    for begin, end in offsets:
        first = spans[begin][0] if begin < len(spans) else total
        out.append((first, spans[end - 1][1] if end > begin else first))
    return out


def vector(t, data):
    text, spans = repaired(data)
    t.encode_special_tokens = False
    e = t.encode(text)
    offsets = byte_offsets(e.offsets, spans, len(data))
    numbers = b"".join(n.to_bytes(4, "little") for pair in offsets for n in pair)
    t.encode_special_tokens = True
    plain = t.encode(text).ids
    t.encode_special_tokens = False
    made = [e.ids, fnv(numbers), fnv(t.decode(e.ids, skip_special_tokens=False).encode()), fnv(t.decode(e.ids).encode())]
    return made + [plain] if plain != e.ids else made


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "tokenizer"
    out.mkdir(parents=True, exist_ok=True)
    all_texts = texts()
    (out / "texts.json").write_text(json.dumps([t.hex() for t in all_texts], separators=(",", ":")).replace(",", ",\n") + "\n")
    for name, make in FAMILIES.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        t = make()
        (out / f"{name}.json").write_text(t.to_str() + "\n")
        lines = [json.dumps(vector(t, data), separators=(",", ":")) for data in all_texts]
        (out / f"{name}.vectors.json").write_text("[" + ",\n".join(lines) + "]\n")
        print(name, t.get_vocab_size(), "tokens")


if __name__ == "__main__":
    main()
