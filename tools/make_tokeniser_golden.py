#!/usr/bin/env python3
"""Writes tests/golden/tokeniser/*.json with Hugging Face's tokenizers.

usage: tools/make_tokeniser_golden.py VOCAB MERGES OUT_DIR

VOCAB and MERGES are GPT-2's (vocab.json and merges.txt, or encoder.json and vocab.bpe).
Texts are stored as base64 of UTF-8, so that no editor can alter them.
"""
import base64
import json
import pathlib
import sys

try:
    from tokenizers import ByteLevelBPETokenizer, __version__
except ImportError:
    sys.exit("make_tokeniser_golden: needs Hugging Face's library: pip install tokenizers")

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


def packed(text):
    return base64.b64encode(text.encode()).decode()


def write(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=True) + "\n")
    print(path)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    vocab, merges, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    made_by = f"tokenizers {__version__}"

    gpt2 = ByteLevelBPETokenizer(vocab, merges, add_prefix_space=False)
    vectors = [
        {"name": name, "text": packed(text), "ids": gpt2.encode(text).ids} for name, text in TEXTS.items()
    ]
    write(out / "texts.json", {"made_by": made_by, "vectors": vectors})

    for size in (300, 512):
        trained = ByteLevelBPETokenizer(add_prefix_space=False)
        trained.train_from_iterator(
            [TRAINING_TEXT], vocab_size=size, min_frequency=2, show_progress=False,
            special_tokens=["<|endoftext|>"],
        )
        learned = json.loads(trained._tokenizer.to_str())["model"]["merges"]
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in learned]
        write(out / f"train-{size}.json", {
            "made_by": made_by, "vocabulary": size, "text": packed(TRAINING_TEXT), "merges": pairs,
        })


if __name__ == "__main__":
    main()
