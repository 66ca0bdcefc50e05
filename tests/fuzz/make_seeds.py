#!/usr/bin/env python3
"""Writes the seed corpora beside this file. Each seed is named for what it proves."""

import gzip
import json
import lzma
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def put(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    raw = text.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    one = {"a": tensor("F32", [2], 0, 8)}
    two = {"__metadata__": {"format": "pt"}, "w": tensor("BF16", [2, 3], 0, 12), "b": tensor("I64", [], 12, 20)}
    yield "valid-empty", safetensors({})
    yield "valid-one", safetensors(one, bytes(8))
    yield "valid-two", safetensors(two, bytes(20))
    yield "valid-padded", safetensors(json.dumps(one) + "      ", bytes(8))
    yield "valid-empty-tensor", safetensors({"e": tensor("U8", [0, 7], 0, 0), "a": tensor("U8", [3], 0, 3)}, bytes(3))
    yield "invalid-short", b"\x02\x00\x00"
    yield "invalid-length-beyond-file", safetensors(one, bytes(8), length=4000)
    yield "invalid-length-huge", safetensors(one, bytes(8), length=2**64 - 1)
    yield "invalid-not-an-object", safetensors("[1,2,3]")
    yield "invalid-deep", safetensors('{"a":' + "[" * 2000)
    yield "invalid-key-twice", safetensors('{"a":%s,"a":%s}' % ((json.dumps(one["a"]),) * 2), bytes(8))
    yield "invalid-overflow", safetensors({"a": tensor("F32", [2**62, 4], 0, 0)})
    yield "invalid-size-beyond-int64", safetensors({"a": tensor("F32", [2**63], 0, 0)})
    yield "invalid-negative", safetensors({"a": tensor("F32", [-1], 0, 0)})
    yield "invalid-fraction", safetensors({"a": tensor("F32", [1.5], 0, 6)}, bytes(6))
    yield "invalid-overlap", safetensors({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, bytes(6))
    yield "invalid-hole", safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 4, 6)}, bytes(6))
    yield "invalid-rest", safetensors(one, bytes(9))
    yield "invalid-backwards", safetensors({"a": tensor("U8", [0], 4, 0)}, bytes(4))
    yield "invalid-three-offsets", safetensors('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1,1]}}', bytes(1))
    yield "invalid-metadata-number", safetensors({"__metadata__": {"epoch": 3}})
    yield "invalid-utf8", struct.pack("<Q", 7) + b'{"\xff":1}'


def weight_map_seeds():
    yield "valid", b'{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"x"}}'
    yield "invalid-outside", b'{"weight_map":{"a":"../secret"}}'
    yield "invalid-twice", b'{"weight_map":{"a":"x","a":"y"}}'
    yield "invalid-deep", b'{"weight_map":' + b"[" * 500
    yield "invalid-number", b'{"weight_map":{"a":1e999}}'


def jsonl_seeds():
    yield "valid", b'{"event":"start"}\n{"step":9,"loss":2.5}\n{"step":10}\n{"step":1e999}\n'
    yield "valid-torn", b'{"step":1}\n{"st'
    yield "valid-zeros-at-the-end", b'{"step":1}\n' + bytes(16)
    yield "invalid-middle", b'{}\nnonsense\n{}\n'
    yield "invalid-deep", b"[" * 1000


def toml_seeds():
    yield "valid", b'# a comment\n[model]\nlayers = 12\nwidth = 0x300\nrate = 3e-4\nnames = ["a", \'b\']\n[[data]]\npath = "x"\n'
    yield "valid-strings", 'a = """\\u00e9\\n"""\nb = \'\'\'x\'\'\'\n"\u00e9".c = 1979-05-27T07:32:00Z\n'.encode()
    yield "invalid-deep", b"a = " + b"[" * 1000
    yield "invalid-deep-tables", b"a = " + b"{b=" * 300
    yield "invalid-time", b"a = 1979-05-27Tp7:32:00Z\n"
    yield "invalid-twice", b"a = 1\na = 2\n"
    yield "invalid-utf8", b'a = "\xff"\n'
    yield "valid-run", (b'[run]\nfolder = "x\\ny"\nseed = 7\ndtype = "float64"\n[model]\nheads = 5\ndropout = 0.1\n'
                        b'recompute = true\n[optimiser]\nlr = 1\nepsilon = 1e-300\nmin_lr = inf\nbeta1 = nan\n')
    yield "invalid-types", b'run = 3\n[model]\nlayers = "six"\n[[data]]\n[train]\nsteps = [1]\nstepz = 1\n'


def idx(dtype, lengths, pointers, marks, bin_bytes, version=1, magic=b"MMIDIDX\0\0", counts=None):
    sequences, documents = counts or (len(lengths), len(marks))
    return (struct.pack("<H", bin_bytes) + magic + struct.pack("<QBQQ", version, dtype, sequences, documents)
            + struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(marks)}q", *lengths, *pointers, *marks))


def idx_seeds():
    yield "valid", idx(8, [3, 2], [0, 6], [0, 1, 2], 10)
    yield "valid-empty", idx(8, [], [], [0], 0)
    yield "valid-int32", idx(4, [1, 0, 2], [0, 4, 4], [0, 3], 12)
    yield "valid-modes", idx(8, [3, 2], [0, 6], [0, 1, 2], 10) + b"\0\1"
    yield "invalid-magic", idx(8, [1], [0], [0, 1], 2, magic=b"MMIDIDX\1\0")
    yield "invalid-version", idx(8, [1], [0], [0, 1], 2, version=2)
    yield "invalid-dtype", idx(9, [1], [0], [0, 1], 2)
    yield "invalid-counts", idx(8, [1], [0], [0, 1], 2, counts=(2**61, 2**61))
    yield "invalid-length", idx(8, [-1], [0], [0, 1], 2)
    yield "invalid-pointer", idx(8, [1, 1], [0, 2**62], [0, 2], 4)
    yield "invalid-mark", idx(8, [1, 1], [0, 2], [0, 9], 4)
    yield "invalid-short", b"\0\0MMIDIDX"


def frame_seeds():
    golden = pathlib.Path(__file__).parent.parent / "golden"
    for kind, folder in (("valid", "wire"), ("invalid", "invalid")):
        for path in sorted((golden / folder).glob("*.bin")):
            yield f"{kind}-{path.stem}", path.read_bytes()
    several = ("raw-2x3", "top_k-gaps", "sign-two-blocks")
    yield "valid-three-frames", b"".join((golden / f"wire/{name}.bin").read_bytes() for name in several)


PAYLOAD_CASES = 37  # kCases of payload_fuzz.cpp


def payload_seeds():
    data = struct.pack("<16f", *[(-1) ** i * (i + 1) / 8 for i in range(16)])
    for case in range(PAYLOAD_CASES):
        yield f"payload-{case:02}", bytes([case, 0]) + data
        yield f"tensor-{case:02}", bytes([case, 1]) + data
        yield f"change-{case:02}", bytes([case, 2]) + data
    special = struct.pack("<8f", float("nan"), float("inf"), -0.0, 1e-40, 3e38, -1e-30, 65520.0, 1.0)
    for case in range(PAYLOAD_CASES):
        yield f"special-{case:02}", bytes([case, 1]) + special


MESSAGE_CASES = 12  # kCases of message_fuzz.cpp


def message_seeds():
    """Moves of message_fuzz.cpp: a genuine message is 0, number, [keys], bytes of x, x, whether x is finite."""
    commit, abandon = b"\5", b"\6"
    for case in range(MESSAGE_CASES):
        keys = case < 6

        def x(step, finite=1):
            numbers = struct.pack("<3f", 0.5 + step, -1.25, 3.0 * step)
            return bytes([len(numbers)]) + numbers + bytes([finite])

        def words(*more):
            return b"\0" + (bytes([0x24]) if keys else b"") + b"".join(more)

        def begin(step):
            return b"\7" + bytes([step])

        visits = b"".join(begin(s) + b"\0" + words(x(s)) + commit for s in range(5))
        head = bytes([case])
        yield f"visits-{case:02}", head + visits
        yield f"not-finite-{case:02}", head + visits + begin(6) + b"\0" + words(b"\4\0\0\xc0\x7f\0") + abandon + visits
        change = b"\2" + words(x(9), b"\2", b"\x10\0\1", b"\x40\0\x80", b"\1")
        yield f"changed-{case:02}", head + visits + begin(6) + change + b"\4\x24" + b"\0" + words(x(7)) + commit + visits
        yield f"evaluation-{case:02}", head + begin(0) + b"\1\2" + words(x(1)) + b"\1\1" + words(x(2)) + visits
    frame = (pathlib.Path(__file__).parent.parent / "golden/wire/raw-2x3.bin").read_bytes()
    yield "bytes", b"\0\3\x24" + bytes([len(frame)]) + frame


def segment_seeds():
    def segment(slice, flags, place, magic=0x3147534C):
        body = slice + struct.pack("<IIQ", magic, flags, place)
        return struct.pack("<H", len(body)) + body

    yield "empty-message", segment(b"", 3, 0)
    yield "one-segment", segment(b"abc", 3, 3)
    yield "three-segments", segment(b"abc", 1, 7) + segment(b"def", 0, 3) + segment(b"g", 2, 6)
    yield "two-messages", segment(b"a", 3, 1) + segment(b"bc", 1, 3) + segment(b"d", 2, 2)
    yield "gap", segment(b"abc", 1, 7) + segment(b"g", 2, 6)
    yield "longer-than-promised", segment(b"abc", 1, 4) + segment(b"def", 2, 3)
    yield "promises-much", segment(b"abc", 1, 2**63) + segment(b"d", 0, 3)
    yield "begins-twice", segment(b"abc", 1, 7) + segment(b"abc", 1, 7)
    yield "begins-in-the-middle", segment(b"abc", 2, 4)
    yield "other-magic", segment(b"abc", 3, 3, magic=0x3247534C)
    yield "flag-of-the-future", segment(b"abc", 7, 3)
    yield "without-trailer", struct.pack("<H", 3) + b"abc"


def flight_seeds():
    record = {"id": 4, "kind": "recv", "state": "posted", "peer": 1, "tag": 1 << 56, "name": "", "bytes": 0, "posted_ns": 5,
              "finished_ns": 0}
    flight = {"rank": 2, "host": "a", "doing": "step 3", "error": "lost", "taken_ns": 9, "is_cause": False, "records": [record]}
    yield "one-record", json.dumps(flight).encode()
    yield "cause", json.dumps({**flight, "is_cause": True, "records": []}).encode()
    for name, change in {"peer-beyond-int": {"peer": 2**40}, "peer-outside": {"peer": 99}, "negative-peer": {"peer": -1},
                         "unknown-kind": {"kind": "put"}, "tag-of-no-class": {"tag": 2**64 - 1}}.items():
        yield name, json.dumps({**flight, "records": [{**record, **change}]}).encode()
    yield "rank-outside", json.dumps({**flight, "rank": 7}).encode()
    yield "records-are-no-list", json.dumps({**flight, "records": {}}).encode()
    yield "no-json", b"{"


def schedule_seeds():
    yield "valid", b"# 1F1B\nrank 0:  F0 F1 B0 B1\nrank 1:  F0 B0 F1 B1\n"
    yield "valid-messages", b"rank 0:  F0 >a0 P <g0 B0 R\nrank 1:  <a0 F0 P B0 >g0 R\n"
    yield "valid-chunks", b"rank 0: 0F0 0>a0 2<a0 2F0 2B0 2>g0 0<g0 0B0\nrank 1: 1<a0 1F0 1>a0 1<g0 1B0 1>g0\n"
    yield "valid-halves", b"rank 0: F0 F1 I0 W0 I1 W1\r\nrank 1: F0 I0 F1 I1 W0 W1\r\n"
    yield "valid-ranks-in-any-order", b"rank 1: F0 B0\n\n\trank 0 :F0\tB0"
    yield "fault-cycle", b"rank 0: <g0 F0 >a0 B0\nrank 1: <a0 F0 B0 >g0\n"
    yield "fault-order", b"rank 0: F0 F1 B0 B1\nrank 1: F1 F0 B0 B1\n"
    yield "fault-missing", b"rank 0: F0 R B0 F99999 W7 P P\n"
    yield "fault-astray", b"rank 0: 1F0 1>a0 0<a0\nrank 1: 0B0 3F0 3P\n"
    yield "valid-placement", b"placement:  0 1 1 0\nrank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 2F0 2B0 1B0\n"
    yield "valid-placement-round", b"placement: 0 1 0 1\nrank 0: 0F0\nrank 1: 1F0\n"
    yield "fault-placement", b"placement: 0 0 3 0\nrank 0: 0F0 7F0 0>a0\nrank 1: 1F0 1<g0\n"
    yield "fault-placement-unnamed", b"placement: 1 0\nrank 0: F0 B0\nrank 1: F0 B0\n"
    yield "invalid-placement", b"placement: 0 x -1 1000\nplacement:\nrank 0: F0\n"
    yield "invalid-words", b"rank 0: F 2 >b0 R0 F0x 1F1F1 \xff\0 F18446744073709551616\n"
    yield "invalid-lines", b"rank : F0\nrank -1: F0\nrank 0 F0\nrank 7: F0\nrank 7: F0\n:\n"
    yield "invalid-stages", b"rank 0: 0F0 F1\nrank 1: 2F0\n"


def record_seeds():
    """Two bytes choose format, layout, task, header and what is asked; see record_fuzz.cpp."""
    text, jsonl, tsv, csv = range(4)
    masked, classify, regress, span, translate = range(5)
    squad = {"question": "Wo?", "context": "Im fr\u00fchen Berlin", "answers": {"text": ["Berlin"], "answer_start": [10]}}
    yield "valid-sentences", bytes([text, masked]) + b"One.\nTwo.\n\nThree.\r\nFour.\n"
    yield "valid-jsonl", bytes([jsonl, classify]) + b'{"text": "good", "label": 1}\n{"text": "bad", "label": "no"}\n'
    yield "valid-span", bytes([jsonl, span]) + json.dumps(squad, ensure_ascii=False).encode() + b"\n"
    yield "valid-no-answer", bytes([jsonl, span]) + b'{"question": "a", "context": "b"}\n'
    yield "valid-tsv", bytes([tsv, classify]) + b'\xef\xbb\xbftext\tlabel\nquote " here\t0\r\n\nb\t1\n'
    yield "valid-csv", bytes([csv, classify]) + b'label,text\n1,"a, ""b""\nc"\r\n0,plain\n'
    yield "valid-sts-b", bytes([tsv + 4 * 6, regress]) + b"g\tf\ty\t1\t3.8\ta\tb\ng\tf\ty\t2\t1\ta\tb\tx\tz\n"
    yield "valid-translate", bytes([csv, translate]) + b"source,target\nhello,hallo\n"
    as_csv, as_tsv, as_pairs = 40, 41, 60
    yield "valid-csv-rows", bytes([0, as_csv]) + b'a,"b, ""c""\nd"\r\n\n,\n"",x'
    yield "valid-tsv-rows", bytes([0, as_tsv]) + b'\xef\xbb\xbfa\t"b\n\t\r\nc'
    yield "invalid-csv-rows", bytes([0, as_csv]) + b'a,"b'
    yield "valid-line-pairs", bytes([0, as_pairs]) + b"One.\r\n\n \nTwo."
    yield "invalid-ragged", bytes([tsv, classify]) + b"text\tlabel\nno label\n"
    yield "invalid-column", bytes([tsv, classify]) + b"words\tlabel\na\t1\n"
    yield "invalid-label", bytes([tsv, classify + 10]) + b"text\tlabel\na\t2\n"
    yield "invalid-score", bytes([jsonl, regress]) + b'{"text": "a", "label": "nan"}\n'
    yield "invalid-empty-text", bytes([csv, classify]) + b'text,label\n" ",1\n'
    yield "invalid-open-quote", bytes([csv, classify]) + b'text,label\n"a,1\n'
    yield "invalid-behind-quote", bytes([csv, classify]) + b'text,label\n"a"b,1\n'
    yield "invalid-quote-inside", bytes([csv, classify]) + b'text,label\na"b",1\n'
    yield "invalid-answer", bytes([jsonl, span]) + b'{"question": "a", "context": "b", "answer": "c", "answer_start": 9}\n'


def decompress_seeds():
    text = b"hello hello hello" * 40
    compressed = {
        "gzip": gzip.compress(text, mtime=0),
        "xz": lzma.compress(text),
        # what `printf 'hello hello hello' | zstd -c --check` prints
        "zstd": bytes.fromhex("28b52ffd04586500003068656c6c6f200100314a11a2ed1e0c"),
    }
    yield "plain", text
    yield "plain-empty", b""
    yield "plain-magic-alone", b"\x1f\x8b"
    for name, content in compressed.items():
        yield f"valid-{name}", content
        yield f"valid-{name}-twice", content + content
        yield f"invalid-{name}-truncated", content[:-3]
        yield f"invalid-{name}-flipped", content[:12] + bytes([content[12] ^ 0x10]) + content[13:]
        yield f"invalid-{name}-tail", content + b"tail"
    yield "invalid-zstd-long-window", bytes.fromhex("28b52ffd04a89e00003068657c6c6f20010031fc4a11a2ed1e0c")
    yield "valid-zstd-skippable", b"\x50\x2a\x4d\x18\x03\0\0\0abc" + compressed["zstd"]


def tokenizer_json_seeds():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    end = {"id": 259, "content": "<e>", "special": True}

    def bpe(**changes):
        model = {"type": "BPE", "vocab": {"@": 0, "ab": 256, "abc": 257, "xyz": 258}, "merges": ["a b", ["ab", "c"]]}
        whole = {"added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level, "decoder": byte_level, "model": model}
        for key, value in changes.items():
            (model if key in ("ignore_merges", "vocab", "merges", "dropout", "byte_fallback") else whole)[key] = value
        return json.dumps(whole, separators=(",", ":")).encode()

    def steps(*steps):
        return {"type": "Sequence", "pretokenizers": [*steps, byte_level]}

    def split(pattern, kind="Regex", behavior="Isolated"):
        return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}

    word = {"added_tokens": [{"id": 1, "content": "[SEP]", "special": True}],
            "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 9, "vocab": {"[UNK]": 0, "[SEP]": 1, "p": 2, "##e": 3, '"': 4}}}
    yield "valid-bytes", bpe()
    yield "valid-regex", bpe(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False})
    yield "valid-ignore-merges", bpe(ignore_merges=True)
    yield "valid-nfc", bpe(normalizer={"type": "NFC"})
    yield "valid-digits", bpe(pre_tokenizer=steps({"type": "Digits", "individual_digits": True}))
    yield "valid-split", bpe(pre_tokenizer=steps(split(r" ?[^\s\p{L}\p{N}]+[\r\n]*|\p{N}{1,3}|\s+(?!\S)|(?i:'s)|\s+")))
    yield "valid-literal", bpe(pre_tokenizer=steps(split("a.", "String"), split(r"\p{Han}|[\u0041-\x{5a}]")))
    yield "valid-added", bpe(added_tokens=[end, {"id": 260, "content": "add", "special": False, "normalized": True}])
    yield "valid-wordpiece", json.dumps(word, separators=(",", ":")).encode()
    yield "invalid-slow-pattern", bpe(pre_tokenizer=steps(split("(?:a*)*b")))
    yield "invalid-pattern", bpe(pre_tokenizer=steps(split(r"[\w&&[^a]]")))
    yield "invalid-hole", bpe(vocab={"@": 0, "ab": 300})
    yield "invalid-merge", bpe(merges=["a q"])
    yield "invalid-special-merge", bpe(added_tokens=[{"id": 256, "content": "ab", "special": True}, dict(end, id=259)])
    yield "invalid-model", b'{"model":{"type":"Unigram","vocab":[["a",-1.5]]}}'
    yield "invalid-many", bpe(normalizer={"type": "Lowercase"}, decoder=None, dropout=0.5, byte_fallback=True)
    yield "invalid-deep", b'{"model":' * 100


def wordpiece_seeds():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##bc", "\u4e2d", "'", "##\u0301"]
    file = "\n".join(tokens).encode()
    yield "valid", file + b"\0abc ab'c [CLS] \xe4\xb8\xad"
    yield "valid-crlf", file.replace(b"\n", b"\r\n") + b"\0A\xc3\x89b"
    yield "valid-marks", file + "\0a\u302e\u034f\U0001d165\u0301 \u0130\ud55c\u226e".encode()
    yield "valid-broken-text", file + b"\0a\xff\xe4\xb8b\0\x85\xc2\x85"
    yield "valid-doubles", file + b"\n\n\na\na\0a"
    yield "valid-long-word", file + b"\0" + b"ab" * 51
    yield "invalid-utf8", b"[UNK]\n[SEP]\n\xc3"
    yield "invalid-no-unknown", b"[SEP]\na"
    yield "invalid-empty", b""


SEEDS = {
    "record": record_seeds,
    "tokenizer_json": tokenizer_json_seeds,
    "wordpiece": wordpiece_seeds,
    "decompress": decompress_seeds,
    "schedule": schedule_seeds,
    "flight": flight_seeds,
    "segment": segment_seeds,
    "frame": frame_seeds,
    "message": message_seeds,
    "payload": payload_seeds,
    "safetensors": safetensors_seeds,
    "weight_map": weight_map_seeds,
    "jsonl": jsonl_seeds,
    "toml": toml_seeds,
    "idx": idx_seeds,
}
for target, seeds in SEEDS.items():
    for seed in seeds():
        put(target, *seed)
