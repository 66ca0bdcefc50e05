#!/usr/bin/env python3
"""Writes tests/golden/tokeniser: texts, and the tokens that others make of them.

usage: tools/make_tokeniser_golden.py [--out DIR] [--gpt2 VOCAB MERGES] [--definition] [--sentencepiece]

Without options: wordpiece.json and byte_level.json, with Hugging Face's `tokenizers` (and, where it is
there, `transformers`), which needs nothing but this repository and takes seconds. Where `tokenizers` is
missing, or with --definition, the same files are made by plain Python written from the definitions
(needs the package `regex`); made_by in each file says which it was.

--gpt2 adds texts.json and train-*.json; VOCAB and MERGES are GPT-2's (vocab.json and merges.txt, or
encoder.json and vocab.bpe). --sentencepiece trains the small models and adds sentencepiece.json (Debian's
python3-sentencepiece). Texts are stored as base64 of UTF-8, so that no editor can alter them.
"""
import argparse
import base64
import json
import pathlib
import re
import sys
import unicodedata
import zlib

try:
    import tokenizers
except ImportError:
    tokenizers = None

ROOT = pathlib.Path(__file__).resolve().parent.parent

TEXTS = {
    "empty": "",
    "one space": " ",
    "hello": "Hello world",
    "sentence": "Hello, I'm a language model,",
    "contractions": "I'm you're he's she'd we'll they've don't 'tis rock'n'roll I'M YOU'RE DON'T 's't're",
    "curly apostrophe": "I\u2019m don\u2019t we\u2019ll",
    "many spaces": "a  b   c    d     e      f          g",
    "trailing spaces": "text   ",
    "leading spaces": "    indented",
    "blank before newline": "a \n b \n\n  c\n",
    "newlines": "a\n\n\nb\n\n",
    "crlf": "one\r\ntwo\r\n\r\nthree\r",
    "tabs": "\tif x:\n\t\treturn\t1",
    "spaces then tab": "a  \tb \t c",
    "nbsp": "a\u00a0b \u00a0 c\u00a0\u00a0d",
    "unicode spaces": "a\u2000b\u2003c\u2009d\u202fe\u205ff\u3000g\u1680h\u2028i\u2029j\u0085k",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f",
    "U+180E is no space": "a\u180eb \u180e c\u180e\u180ed",
    "separators 1C-1F": "a\x1cb\x1dc\x1ed\x1fe \x1c f",
    "control characters": "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(0x80, 0xa0))),
    "ascii": "".join(map(chr, range(128))),
    "latin 1": "".join(map(chr, range(0xa0, 0x100))),
    "nul": "a\0b\0\0c",
    "emoji": "I \u2764\ufe0f \U0001f600\U0001f680 you\U0001f44d\U0001f3fd",
    "zwj family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308",
    "flags": "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "combining marks": "e\u0301 o\u0308\u0304 n\u0303a\u0300\u0301\u0302 \u0301alone",
    "composed and decomposed": "\u00e9 e\u0301 \u212b \u00c5 A\u030a \ufb01 fi",
    "zalgo": "Z\u0351\u036b\u0343a\u0348\u0332l\u034e\u0321g\u0310\u036co\u031b",
    "chinese": "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5 123",
    "japanese": "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8\u3002\u30ab\u30bf\u30ab\u30ca\u30fc\u3072\u3089\u304c\u306a",
    "korean": "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab",
    "arabic": "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663 \u0640\u0640",
    "hebrew": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u200f\u200e",
    "devanagari": "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969",
    "thai": "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e51\u0e52\u0e53",
    "cyrillic": "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u0436\u0438\u043a",
    "greek": "\u0393\u03b5\u03b9\u03b1 \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5 \u03c2\u03c3",
    "turkish": "\u0130stanbul \u0131\u015f\u0131k i\u0307",
    "other numbers": "\u00bd \u00b2 \u2460 \u2167 \u3007 \u4e00\u4e8c\u4e09 \u0be7 \U0001d7d9 \u2189 x\u00b2y",
    "digits": "0 1 12 123 1234 12345 3.14159 1,000,000 1e-9 0x1F abc123def",
    "punctuation": "!!! ... ?!? --- ___ *** (a) [b] {c} <d> \u201cq\u201d \u2026 \u2013 \u2014",
    "code": "for (int i = 0; i < n; ++i) {\n    x[i] += y[i] * 2.5f;  // sum\n}\n",
    "url": "https://example.org/a_b?c=d&e=%20#f",
    "mathematics": "\u2200x\u2208\u211d: \u221ax\u00b2=|x| \U0001d49c \u222b\u2080\u00b9 \u2260 \u221e",
    "private use": "\ue000 \uf8ff \U000f0000 \U0010fffd",
    "noncharacters": "\ufffe \uffff \U0001fffe \U0010ffff",
    "replacement": "\ufffd\ufffd a\ufffdb",
    "unassigned": "\u0378 \u0379 \u2fe0",
    "interlinear": "\u02b0\u02bc\u02d0 \u1d2c \u2071",
    "modifier apostrophe": "don\u02bct",
    "titlecase": "\u01c5 \u01c8 \u1f88",
    "long word": "a" * 100 + " " + "Donaudampfschifffahrtsgesellschaftskapit\u00e4n" * 3,
    "long blank": " " * 200 + "x" + "\n" * 100 + " y",
    "repeats": "abab" * 40 + " " + "the" * 30,
    "mixed scripts": "abc\u0434\u0435\u0444\u4e2d\u6587123\u0661\u0662\u0663!?\u3002 x",
}

# Repeats, ties, several scripts and blanks: enough pairs for 512 tokens.
TRAINING_TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season "
    "of Light, it was the season of Darkness, it was the spring of hope, it was the winter of "
    "despair, we had everything before us, we had nothing before us, we were all going direct to "
    "Heaven, we were all going direct the other way\u2014in short, the period was so far like the "
    "present period, that some of its noisiest authorities insisted on its being received, for good "
    "or for evil, in the superlative degree of comparison only.\n\n"
    "There were a king with a large jaw and a queen with a plain face, on the throne of England; "
    "there were a king with a large jaw and a queen with a fair face, on the throne of France. In "
    "both countries it was clearer than crystal to the lords of the State preserves of loaves and "
    "fishes, that things in general were settled for ever.\n\n"
    "aaaa aaaaaaa aaa abababab babababa abcabcabc bcabcabca 1212121 33333 \t\t\t   \n\n\n"
    "\u4f60\u597d\u4f60\u597d\u4f60\u597d \u041f\u0440\u0438\u0432\u0435\u0442 \u041f\u0440\u0438\u0432\u0435\u0442 "
    "\U0001f600\U0001f600\U0001f601\U0001f600 don't won't can't they'll we'll\n"
) + 2 * "\n".join(TEXTS.values())

# For WordPiece and byte-level BPE beyond GPT-2's.
NASTY = {
    "accents": "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m \u1ec7 e\u0323\u0302 e\u0302\u0323 \u0130stanbul I\u0307 \u0131 \u00df \u1e9e \u0149",
    "capitals": "HELLO World \u00c9COLE \u0394\u03a3 \u041c\u041e\u0421\u041a\u0412\u0410 \u01c4 \u01c5 \u2160 \u24b6 \uff21 \u10a0 \u13a0 \uab70 \U00010400",
    "long s after an apostrophe": "it'\u017f IT'S we'LL We'Ll 'RE 'vE\u017f \u212a'd",
    "marks that stay": "\u0915\u093f \u0e33 \u302e\u302f \U0001d165\U0001d16d \U0001d15e \u1b44\u0f71 \u0903",
    "marks in the wrong order": "a\u0301\u0323 a\u0323\u0301 q\u0307\u0323 \u05d0\u05b7\u05bc \u0f71\u0f74\u0f72 a\U0001d165\u0301\u302e\U0001d16d",
    "decomposes to punctuation": "a\u037eb \u226e \u1fef \u2260 \u2262 \u0340\u0341 \u0387",
    "cjk": "\u4e2da\u6587 \uf900\ufa0e \U00020000\U0002a6df\U0002b820\U0002b91f\U0002b920 \u3007\u30abna \u2f00 \U0002f800",
    "hangul": "\ud55c\uad6d\uc5b4 \uac00\uac01 \u1100\u1161 \u3131",
    "to be removed": "a\x00b\ufffdc\u200bd\u00ade\ue000f\u2028g\x85h\x1bi\ufeffj\u0600k\U000e0041l\U000f0000m\U0010fffdn\x7f",
    "blanks": "a\tb\nc\rd\x0be\x0cf\u00a0g\u1680h\u2003i\u2029j\u3000k\u180el",
    "punctuation of many scripts": "\u00bfque? \u00a7 \u00b6 \u2026 \u3002\u300c\uff01 \u061f \u0964 \u2e3a \u2e43 \u166d $+<=>^`|~ \u20ac \u00a9 \u2122",
    "newer than Unicode 8": "\U0001f92f \U0001fae0 \u08e2 \u1885 \u2e4f \U0001e944 \u09fe",
    "ninety-nine to one hundred and one": " ".join("x" * n for n in (99, 100, 101)) + " " + "\u00e9" * 100 + " " + "e\u0301" * 101,
    "a long unknown": "\u0e01" * 30 + "\U0001f92f" + " ok",
    "hashes": "##ing #a ## a##b",
    "special by name": "[CLS] [SEP] [MASK] [UNK] [PAD] <|endoftext|> <|begin_of_text|> <|end_of_text|> a[MASK]b",
    "added tokens": "<tool_call>x</tool_call> <tool_call <<tool_call>> <tool_calls> Caf\u00e9 Cafe\u0301 a<|fim|>b <|fim|>",
    "numbers": "1 12 123 1234 12345678 \u0661\u0662\u0663\u0664 \u00bd\u2167 3.14 v2",
    "newlines and punctuation": "a!\n\nb?\r\n c...\n  d \n e\n\n\nf  \n",
    "blanks at the end": "a  \n\t ", "only blanks": "   \u3000\n ", "dashes": "well-known - --x-- -",
    "heaven": "Heaven heaven noisiest Darkness\nDarkness superlatively",
}

LINES = dict(TEXTS, **NASTY)


def packed(text):
    return base64.b64encode(text.encode()).decode()


def write(path, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    path.write_text(text.replace('{"name"', '\n{"name"') + "\n")
    print(path)


def origin(definition):
    if definition:
        return f"the definition, in Python {sys.version.split()[0]} with Unicode {unicodedata.unidata_version}"
    return f"tokenizers {tokenizers.__version__}"


# --- WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Case and decompositions that are newer than the libraries on either side: not compared.
UNSETTLED = [(0x1C89, 0x1C8A), (0xA7CB, 0xA7F1), (0x105C0, 0x105FF), (0x10D40, 0x10D8F), (0x11380, 0x113FF),
             (0x11938, 0x11938), (0x16D40, 0x16D7F), (0x16EA0, 0x16EDF), (0x11080, 0x110FF), (0x1E5D0, 0x1E6FF)]
BLOCK = 0x400


def ranges_of_unicode_8(name):
    text = (ROOT / "laconic/data/unicode_8.inc").read_text()
    body = re.search(name + r"\[\] = \{(.*?)\};", text, re.S)[1]
    return {code for a, b in re.findall(r"\{(0x\w+), (0x\w+)\}", body) for code in range(int(a, 16), int(b, 16) + 1)}


class WordPieceByDefinition:
    """BERT's tokens, one rule after the other."""

    def __init__(self, vocabulary, uncased):
        self.ids = {token: i for i, token in enumerate(vocabulary)}
        self.tokens = vocabulary
        assert len(self.ids) == len(vocabulary)
        self.uncased = uncased
        self.marks, self.punctuation, self.format = map(ranges_of_unicode_8, ("kMarks8", "kPunctuation8", "kFormat8"))

    def goes(self, char):
        code = ord(char)
        if char in "\t\n\r":
            return False
        return code in (0, 0xFFFD) or unicodedata.category(char) in ("Cc", "Co") or code in self.format

    @staticmethod
    def is_blank(char):
        return char.isspace() and not 0x1C <= ord(char) <= 0x1F

    @staticmethod
    def is_cjk(char):
        code = ord(char)
        return any(a <= code <= b for a, b in (
            (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
            (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))

    def words(self, text):
        text = "".join(" " if self.is_blank(c) else c for c in text if not self.goes(c))
        text = "".join(f" {c} " if self.is_cjk(c) else c for c in text)
        if self.uncased:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if ord(c) not in self.marks)
            text = "".join(c.lower() for c in text)
        words, word = [], ""
        for char in text + " ":
            is_alone = ord(char) in self.punctuation or 33 <= ord(char) <= 126 and not char.isalnum()
            if is_alone or self.is_blank(char):
                words += [word] if word else []
                words += [char] if is_alone else []
                word = ""
            else:
                word += char
        return words

    def encode(self, text):
        ids = []
        for word in self.words(text):
            found, begin = [], 0
            while begin < len(word) <= 100:
                for end in range(len(word), begin, -1):
                    token = ("##" if begin else "") + word[begin:end]
                    if token in self.ids:
                        found.append(self.ids[token])
                        break
                else:
                    found = []
                    break
                begin = end
            ids += found or [self.ids["[UNK]"]]
        return ids

    def text(self):
        return json.dumps({
            "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": self.uncased},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": self.ids}}, ensure_ascii=False)

    def decode(self, ids):
        text = ""
        for place, token in enumerate(self.tokens[i] for i in ids):
            token = token if place == 0 else token[2:] if token.startswith("##") else " " + token
            for mark in (" .", " ?", " !", " ,"):
                token = token.replace(mark, mark[1:])
            token = token.replace(" ' ", "'").replace(" n't", "n't").replace(" 'm", "'m").replace(" do not", " don't")
            text += token.replace(" 's", "'s").replace(" 've", "'ve").replace(" 're", "'re")
        return text


class WordPieceOfLibrary:
    def __init__(self, vocabulary, uncased):
        from tokenizers import decoders, models, normalizers, pre_tokenizers
        ids = {token: i for i, token in enumerate(vocabulary)}
        self.made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
        self.made.normalizer = normalizers.BertNormalizer(lowercase=uncased)
        self.made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self.made.decoder = decoders.WordPiece(prefix="##")

    def words(self, text):
        text = self.made.normalizer.normalize_str(text)
        return [word for word, _ in self.made.pre_tokenizer.pre_tokenize_str(text)]

    def encode(self, text):
        return self.made.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.made.decode(ids, skip_special_tokens=False)

    def text(self):
        return self.made.to_str()


def bert_vocabulary(uncased):
    """Tokens for the texts: every character that cleaning may leave, some words, and parts of words."""
    characters = set()
    for text in LINES.values():
        for form in (text, unicodedata.normalize("NFD", text)):
            characters |= set(form) | {c for char in form for c in char.lower()}
    characters -= set("\U0001f92f\u180e")  # unknown to the vocabulary
    visible = sorted(c for c in characters if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cs"))
    words = ["hello", "world", "the", "caf", "cafe", "Hello", "World", "HE", "naive", "don", "ing", "unaffable", "x" * 10]
    pieces = ["##ello", "##fe", "##ive", "##ing", "##able", "##LLO", "##orld", "##xxx", "##\u0301", "##ab", "##abab"]
    if uncased:
        words, visible = [w for w in words if w == w.lower()], [c for c in visible if c == c.lower()]
        pieces = [p for p in pieces if p == p.lower()]
    return list(dict.fromkeys(SPECIAL + visible + ["##" + c for c in visible] + words + pieces))


def sweep_text(first):
    """Every character of a block between two letters."""
    codes = (c for c in range(first, first + BLOCK)
             if not 0xD800 <= c <= 0xDFFF and not any(a <= c <= b for a, b in UNSETTLED))
    return " ".join(f"a{chr(c)}B" for c in codes)


def wordpiece_golden(definition):
    rows = []
    for uncased in (True, False):
        vocabulary = bert_vocabulary(uncased)
        maker = (WordPieceByDefinition if definition else WordPieceOfLibrary)(vocabulary, uncased)
        vectors = []
        for name, text in LINES.items():
            ids = maker.encode(text)
            vectors.append({"name": name, "text": packed(text), "ids": ids, "decoded": packed(maker.decode(ids))})
        sums = [zlib.crc32("\n".join(maker.words(sweep_text(first))).encode()) for first in range(0, 0x110000, BLOCK)]
        rows.append({"name": "uncased" if uncased else "cased", "vocabulary": packed("\n".join(vocabulary) + "\n"),
                     "tokenizer_json": packed(maker.text()), "vectors": vectors,
                     "block": BLOCK, "unsettled": UNSETTLED, "sums": sums})
        if not definition:
            compare_with_transformers(maker, vocabulary, uncased)
    return {"made_by": origin(definition), "tokenisers": rows}


def compare_with_transformers(maker, vocabulary, uncased):
    try:
        from transformers import BertTokenizerFast
    except ImportError:
        print("transformers is not here: BertTokenizerFast not compared")
        return
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocab.txt"
        path.write_text("\n".join(vocabulary) + "\n", encoding="utf-8", newline="\n")
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": uncased}
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        try:  # its constructor changes between versions
            fast = BertTokenizerFast.from_pretrained(folder)
            if fast.vocab_size != len(vocabulary):
                fast = BertTokenizerFast(vocab={token: i for i, token in enumerate(vocabulary)}, do_lower_case=uncased)
        except Exception as error:
            print(f"BertTokenizerFast could not be made ({error}): not compared")
            return
        for name, text in LINES.items():
            if name == "special by name":
                continue  # it finds special tokens in text, which training data must not contain
            ids = fast.encode(text, add_special_tokens=False)
            if ids != maker.encode(text):
                sys.exit(f"BertTokenizerFast differs on {name!r}: {ids} and {maker.encode(text)}")
    print("BertTokenizerFast agrees,", "uncased" if uncased else "cased")


# --- byte-level BPE

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace("{1,3}", "")
SCRIPTS = r"""\p{Han}+|\p{Lu}\p{Ll}*|[\u0400-\u04ff]+|\d+(?=\.)|(?<=\s)x|[^\s\p{P}]+"""


def byte_symbols():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}


SYMBOLS = byte_symbols()


def to_symbols(text):
    return "".join(SYMBOLS[byte] for byte in text.encode())


def learned_merges():
    return json.loads((ROOT / "tests/golden/tokeniser/train-512.json").read_text())["merges"]


def byte_level(add_prefix_space=False, use_regex=True):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def split(pattern, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def tokenizer_files():
    merges = learned_merges()
    base = sorted(SYMBOLS.values()) + [a + b for a, b in merges]

    def file(pre_tokenizer, added=(), words=(), normalizer=None, ignore_merges=False, as_lists=False):
        vocabulary = {token: i for i, token in enumerate(base + [to_symbols(word) for word in words])}
        tokens = []
        for content, special, normalized in added:
            tokens.append({"id": len(vocabulary) + len(tokens), "content": content, "single_word": False, "lstrip": False,
                           "rstrip": False, "normalized": normalized, "special": special})
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer, "post_processor": byte_level(), "decoder": byte_level(),
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                          "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                          "ignore_merges": ignore_merges, "vocab": vocabulary,
                          "merges": merges if as_lists else [f"{a} {b}" for a, b in merges]}}

    end = ("<|endoftext|>", True, False)
    words = [" Heaven", " heaven", "noisiest", "Darkness", " superlative", "<|end_of_text|>", "[MASK]"]
    yield "gpt2", file(byte_level(), [end])
    yield "llama3", file(sequence(split(LLAMA3), byte_level(use_regex=False)),
                         [("<|begin_of_text|>", True, False), ("<|finetune|>", True, False), ("</s>", True, False)],
                         words, ignore_merges=True, as_lists=True)
    yield "qwen2", file(sequence(split(QWEN2), byte_level(use_regex=False)),
                        [end, ("<tool_call>", False, False), ("<|fim|>", False, False), ("<tool_call>>", False, False),
                         ("Cafe\u0301", False, True)], normalizer={"type": "NFC"}, as_lists=True)
    yield "smollm", file(sequence({"type": "Digits", "individual_digits": True}, byte_level()), [end])
    yield "numbers", file(sequence({"type": "Digits", "individual_digits": False}, byte_level(use_regex=False)), [end])
    yield "dashes", file(sequence(split("-", "String"), split("a.b", "String"), byte_level()), [end])
    yield "scripts", file(sequence(split(SCRIPTS), byte_level(use_regex=False)), [end])


class BpeByDefinition:
    def __init__(self, file):
        import regex
        self.file, self.regex, model = file, regex, file["model"]
        self.ids = model["vocab"]
        self.ranks = {tuple(pair if isinstance(pair, list) else pair.split(" ")): i for i, pair in enumerate(model["merges"])}
        steps = file["pre_tokenizer"].get("pretokenizers", [file["pre_tokenizer"]])
        self.patterns = [pattern for step in steps for pattern in self.pattern(step)]
        self.content = {token["id"]: token["content"] for token in file["added_tokens"]}
        self.tokens = {i: token for token, i in self.ids.items()}

    def pattern(self, step):
        if step["type"] == "Digits":
            return [self.regex.compile(r"\p{N}" if step["individual_digits"] else r"\p{N}+")]
        if step["type"] == "ByteLevel":
            text = GPT2 if step["use_regex"] else ""
        else:
            text = step["pattern"].get("Regex") or re.escape(step["pattern"]["String"])
        blank = r"\t-\r\x85\p{Z}"
        text = text.replace(r"[^\s", "[^" + blank).replace(r"(?!\S)", f"(?![^{blank}])").replace(r"\s", f"[{blank}]")
        return [self.regex.compile(text)] if text else []

    def find(self, text, normalised):
        """Splits off the added tokens to be found in text: the leftmost, of these the longest."""
        found = [t for t in self.file["added_tokens"] if not t["special"] and t["normalized"] == normalised]
        content = {unicodedata.normalize("NFC", t["content"]) if normalised else t["content"]: t["id"] for t in found}
        if not content:
            return [text]
        by_length = sorted(content, key=len, reverse=True)
        return [content.get(part, part) for part in re.split("(" + "|".join(map(re.escape, by_length)) + ")", text) if part]

    def encode(self, text):
        ids = []
        for part in self.find(text, False):
            if isinstance(part, int):
                ids.append(part)
                continue
            if self.file["normalizer"]:
                part = unicodedata.normalize("NFC", part)
            for last in self.find(part, True):
                ids += [last] if isinstance(last, int) else [i for piece in self.pieces(last) for i in self.merge(piece)]
        return ids

    def pieces(self, text):
        pieces = [text]
        for pattern in self.patterns:
            split = []
            for piece in pieces:
                at = 0
                for match in pattern.finditer(piece):
                    split += [piece[at:match.start()], match[0]]
                    at = match.end()
                split.append(piece[at:])
            pieces = [piece for piece in split if piece]
        return pieces

    def merge(self, piece):
        symbols = to_symbols(piece)
        if self.file["model"]["ignore_merges"] and symbols in self.ids:
            return [self.ids[symbols]]
        parts = list(symbols)
        while len(parts) > 1:
            rank, at = min((self.ranks.get(pair, 10**9), i) for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == 10**9:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return [self.ids[part] for part in parts]


def byte_level_golden(definition):
    rows = []
    for name, file in tokenizer_files():
        if definition:
            maker, text = BpeByDefinition(file), json.dumps(file, ensure_ascii=False)
            encode = maker.encode
        else:
            library = tokenizers.Tokenizer.from_str(json.dumps(file))
            library.encode_special_tokens = True  # special tokens in text are text
            # As the library writes it, unless it is to be read in the old spelling of merges.
            text = json.dumps(file, ensure_ascii=False) if name == "gpt2" else library.to_str()
            encode = lambda line: library.encode(line, add_special_tokens=False).ids
        rows.append({"name": name, "tokenizer_json": packed(text),
                     "vectors": [{"name": key, "text": packed(line), "ids": encode(line)} for key, line in LINES.items()]})
    return {"made_by": origin(definition), "tokenisers": rows}


# --- SentencePiece

def sentencepiece_golden(out):
    import io
    import sentencepiece
    rows = []
    lines = [line for line in TRAINING_TEXT.split("\n") if line.strip()]
    for name, options in {
            "unigram": dict(model_type="unigram", vocab_size=400, normalization_rule_name="nmt_nfkc", pad_id=3),
            "bpe": dict(model_type="bpe", vocab_size=760, normalization_rule_name="identity", byte_fallback=True,
                        remove_extra_whitespaces=False, split_digits=True, user_defined_symbols=["<tool>"])}.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2,
                                                 character_coverage=0.99, **options)
        (out / f"sentencepiece-{name}.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        vectors = []
        for key, line in dict(LINES, **{"a user's symbol": "a<tool>b <tool> </s><s>"}).items():
            ids = processor.encode(line)
            vectors.append({"name": key, "text": packed(line), "ids": ids, "decoded": packed(processor.decode(ids))})
        rows.append({"name": name, "pad": processor.pad_id(), "bos": processor.bos_id(), "eos": processor.eos_id(),
                     "unk": processor.unk_id(), "size": processor.get_piece_size(), "vectors": vectors})
    return {"made_by": f"sentencepiece {sentencepiece.__version__}", "tokenisers": rows}


# --- GPT-2

def gpt2_golden(vocab, merges, out):
    made_by = f"tokenizers {tokenizers.__version__}"
    gpt2 = tokenizers.ByteLevelBPETokenizer(vocab, merges, add_prefix_space=False)
    vectors = [{"name": name, "text": packed(text), "ids": gpt2.encode(text).ids} for name, text in TEXTS.items()]
    write(out / "texts.json", {"made_by": made_by, "vectors": vectors})
    for size in (300, 512):
        trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
        trained.train_from_iterator(
            [TRAINING_TEXT], vocab_size=size, min_frequency=2, show_progress=False,
            special_tokens=["<|endoftext|>"],
        )
        learned = json.loads(trained._tokenizer.to_str())["model"]["merges"]
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in learned]
        write(out / f"train-{size}.json", {
            "made_by": made_by, "vocabulary": size, "text": packed(TRAINING_TEXT), "merges": pairs,
        })


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/tokeniser")
    parser.add_argument("--gpt2", nargs=2)
    parser.add_argument("--definition", action="store_true")
    parser.add_argument("--sentencepiece", action="store_true")
    options = parser.parse_args()
    definition = options.definition or tokenizers is None
    options.out.mkdir(parents=True, exist_ok=True)
    if options.gpt2:
        gpt2_golden(*options.gpt2, options.out)
    if options.sentencepiece:
        write(options.out / "sentencepiece.json", sentencepiece_golden(options.out))
    write(options.out / "wordpiece.json", wordpiece_golden(definition))
    write(options.out / "byte_level.json", byte_level_golden(definition))
    print("OK: made by", origin(definition))


if __name__ == "__main__":
    main()
