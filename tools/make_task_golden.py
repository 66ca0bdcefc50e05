#!/usr/bin/env python3
"""Writes tests/golden/task/samples.json: samples of every task, made from their definitions alone.

usage: tools/make_task_golden.py [OUT_DIR]

Shares no code with laconic/data: Philox, keys, masks, sentence pairs, truncation and translation are
written once more, as docs/data.md defines them. Deterministic, and needs nothing but Python.
"""
import json
import math
import pathlib
import random
import sys

NO_TARGET = -100
WORD = 0xFFFFFFFF
DOUBLE = 0xFFFFFFFFFFFFFFFF


# Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and its keys.

def philox(counter, key):
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * x0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * x2, 1 << 32)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return x0, x1, x2, x3


def halves(number):
    return number & WORD, number >> 32


def child(key, a, b=0):
    return philox((*halves(a), *halves(b)), key)[:2]


def named_child(key, name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & DOUBLE
    return child(key, value, len(name))


def word(key, index):
    return philox((*halves(index // 4), 0, 0), key)[index % 4]


def below(key, index, count):
    return word(key, index) * count >> 32


def draws(seed, name, epoch, sample):
    return child(named_child(halves(seed), name), epoch, sample)


# Samples.

def frame(special, first, second, context):
    ids = [special["cls"], *first, special["sep"]]
    types = [0] * len(ids)
    if second is not None:
        ids += [*second, special["sep"]]
        types += [1] * (len(second) + 1)
    length = len(ids)
    ids += [special["pad"]] * (context - length)
    types += [0] * (context - length)
    return ids, types, length


def hide(task, special, ids, text, epoch, sample):
    """Masks the positions in `text`, a list of ranges; returns the targets."""
    key = draws(task["seed"], "mask", 0 if task["by_sample"] else epoch, sample)
    targets = [NO_TARGET] * len(ids)
    seen = list(ids)
    for positions in text:
        head = None
        for i in positions:
            if head is None or not (task["whole_words"] and ids[i] in task["continues"]):
                head = i
            if ids[i] in special.values() or word(key, 4 * head) >= math.floor(task["share"] * 2**32):
                continue  # special tokens are never asked for
            targets[i] = ids[i]
            how = word(key, 4 * i + 1)
            if how < math.floor(0.8 * 2**32):
                seen[i] = special["mask"]
            elif how < math.floor(0.9 * 2**32):
                seen[i] = below(key, 4 * i + 2, task["vocabulary"])
    ids[:] = seen
    return targets


def masked_window(task, special, stream, context, epoch, sample):
    size = context - 2
    window = stream[sample * size:(sample + 1) * size]
    ids, types, length = frame(special, window, None, context)
    targets = hide(task, special, ids, [range(1, 1 + size)], epoch, sample)
    return {"ids": ids, "types": types, "length": [length], "targets": targets}


def list_chunks(documents, room):
    chunks = []
    for d, sentences in enumerate(documents):
        begin = used = 0
        for s, sentence in enumerate(sentences):
            if used + len(sentence) > room:
                if s - begin >= 2:
                    chunks.append((d, begin, s))
                begin, used = s, 0
            used += len(sentence)
        if len(sentences) - begin >= 2:
            chunks.append((d, begin, len(sentences)))
    return chunks


def masked_pair(task, special, documents, context, epoch, sample):
    room = context - 3
    d, begin, end = list_chunks(documents, room)[sample]
    key = draws(task["seed"], "sentences", 0 if task["by_sample"] else epoch, sample)
    split = begin + 1 + below(key, 0, end - begin - 1)
    first = sum(documents[d][begin:split], [])
    follows = word(key, 1) < 2**31
    if follows:
        second = sum(documents[d][split:end], [])
    else:
        others = [o for o in range(len(documents)) if o != d]
        other = documents[others[below(key, 2, len(others))]]
        s = below(key, 3, len(other))
        second = other[s][:room - len(first)]
        for sentence in other[s + 1:]:
            if len(first) + len(second) + len(sentence) > room:
                break
            second = second + sentence
    ids, types, length = frame(special, first, second, context)
    text = [range(1, 1 + len(first)), range(2 + len(first), 2 + len(first) + len(second))]
    targets = hide(task, special, ids, text, epoch, sample)
    return {"ids": ids, "types": types, "length": [length], "targets": targets,
            "next": [0 if follows else 1]}


def keep_longest_first(n, m, room):
    """Takes one token off the longer text at a time until both fit. Where both were cut, what is
    left is dealt out anew: an odd token belongs to the longer text, or to the second of equals."""
    shorter, longer = sorted((n, m))
    while shorter + longer > room:
        longer -= 1
        shorter, longer = sorted((shorter, longer))
    return (longer, shorter) if n > m else (shorter, longer)


def record_frame(special, parts, context, only_second=False):
    if len(parts) == 1:
        return frame(special, parts[0][:context - 2], None, context)
    room = context - 3
    if only_second:
        n = min(len(parts[0]), room)
        m = min(len(parts[1]), room - n)
    else:
        n, m = keep_longest_first(len(parts[0]), len(parts[1]), room)
    return frame(special, parts[0][:n], parts[1][:m], context)


def labelled(special, record, context, field):
    ids, types, length = record_frame(special, record["parts"], context)
    return {"ids": ids, "types": types, "length": [length], field: record["labels"]}


def answer(special, record, context):
    ids, types, length = record_frame(special, record["parts"], context, only_second=True)
    n = min(len(record["parts"][0]), context - 3)
    m = min(len(record["parts"][1]), context - 3 - n)
    first, last = record["labels"]
    if first < 0:
        start = end = 0
    elif last >= m:
        start = end = NO_TARGET
    else:
        start, end = n + 2 + first, n + 2 + last
    return {"ids": ids, "types": types, "length": [length], "start": [start], "end": [end]}


def translated(special, record, context):
    source = record["parts"][0][:context - 1] + [special["eos"]]
    target = record["parts"][1][:context - 1]
    begin = special["bos"] if special["bos"] >= 0 else special["eos"]
    pad = special["pad"] if special["pad"] >= 0 else special["eos"]
    fill = lambda row, value: row + [value] * (context - len(row))
    return {"source": fill(source, pad), "source_length": [len(source)],
            "ids": fill([begin] + target, pad), "targets": fill(target + [special["eos"]], NO_TARGET)}


# Data and cases.

def tokens(rng, least, most):
    return [rng.randrange(10, 200) for _ in range(rng.randint(least, most))]


def make():
    rng = random.Random(20261116)
    special = {"pad": 0, "bos": -1, "eos": -1, "cls": 2, "sep": 3, "mask": 4, "unk": 5}
    base = {"seed": 7, "share": 0.15, "by_sample": False, "vocabulary": 200, "whole_words": False,
            "continues": sorted(rng.sample(range(10, 200), 70))}
    cases = []

    def add(kind, data, task, special, context, samples, read):
        cases.append({"kind": kind, "data": data, "task": task, "special": special,
                      "context": context, "vocabulary": 200, "samples": samples,
                      "expected": [read(at["epoch"], at["sample"]) for at in samples]})

    places = lambda count, epochs: [{"sample": s, "epoch": e} for e in epochs for s in range(count)]
    stream = tokens(rng, 200, 200)
    for change in ({}, {"whole_words": True}, {"by_sample": True, "seed": 2**40 + 3}, {"share": 1.0},
                   {"share": 0.5, "whole_words": True}):
        task = {**base, **change}
        add("masked", {"stream": stream}, task, special, 34, places(6, (0, 1, 2**33)),
            lambda e, s: masked_window(task, special, stream, 34, e, s))
    documents = [[tokens(rng, 1, 14) for _ in range(rng.randint(1, 9))] for _ in range(12)]
    documents[4][0] = tokens(rng, 60, 60)
    for context in (16, 40):
        for change in ({"share": 0.3}, {"share": 0.3, "by_sample": True, "whole_words": True}):
            task = {**base, **change}
            count = len(list_chunks(documents, context - 3))
            add("sentences", {"documents": documents}, task, special, context,
                places(count, (0, 5)),
                lambda e, s: masked_pair(task, special, documents, context, e, s))
    one = [{"parts": [tokens(rng, 0, 30)], "labels": [rng.randrange(3)]} for _ in range(8)]
    two = [{"parts": [tokens(rng, 0, 30), tokens(rng, 0, 30)], "labels": [rng.randrange(3)]}
           for _ in range(20)]
    two += [{"parts": [[10 + i for i in range(n)], [100 + i for i in range(m)]], "labels": [0]}
            for n in (1, 6, 7, 20) for m in (1, 6, 7, 20)]
    for context in (16, 17):
        for records in (one, two):
            add("classify", {"records": records}, {}, special, context, places(len(records), (0,)),
                lambda e, s: labelled(special, records[s], context, "label"))
    scored = [{"parts": r["parts"], "labels": [rng.choice([0.0, -2.5, 3.8, 1e-300, 1 / 3])]} for r in two]
    add("regress", {"records": scored}, {}, special, 24, places(len(scored), (0,)),
        lambda e, s: labelled(special, scored[s], 24, "score"))
    asked = []
    for _ in range(24):
        parts = [tokens(rng, 0, 12), tokens(rng, 1, 40)]
        first = rng.randrange(len(parts[1]))
        labels = [first, rng.randrange(first, len(parts[1]))] if rng.random() < 0.8 else [-1, -1]
        asked.append({"parts": parts, "labels": labels})
    for context in (12, 30):
        add("span", {"records": asked}, {}, special, context, places(len(asked), (0,)),
            lambda e, s: answer(special, asked[s], context))
    pairs = [{"parts": [tokens(rng, 0, 30), tokens(rng, 0, 30)], "labels": []} for _ in range(10)]
    for change in ({"eos": 6, "bos": 7}, {"eos": 6}, {"eos": 6, "pad": -1}):
        translate = {**special, **change}
        add("translate", {"records": pairs}, {}, translate, 20, places(len(pairs), (0,)),
            lambda e, s: translated(translate, pairs[s], 20))
    return cases


def main():
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent.parent / "tests/golden/task")
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in make())
    (folder / "samples.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
