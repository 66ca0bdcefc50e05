#!/usr/bin/env python3
"""Encodes and decodes by docs/wire-format.md alone and compares with `laconic codec`, bit for bit.

    check_codec.py BINARY

Awkward tensors of every float type go through `laconic codec encode` and `decode` with many specs.
Where the document fixes what an encoder writes (all but low_rank) the payloads must be equal, and
everywhere what is decoded. Needs numpy; without it exits 77, which ctest takes for skipped.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("numpy is not here")
    sys.exit(77)

np.seterr(all="ignore")
F, U32, U64 = np.float32, np.uint32, np.uint64
NAN = np.array([0x7FC00000], U32).view(F)[0]
TINY = F(2.0**-126)


def flushed(x):
    """Denormals are zero, and any NaN is the canonical one."""
    x = np.asarray(x, F)
    x = np.where(np.abs(x) < TINY, np.copysign(F(0), x), x)
    return np.where(np.isnan(x), NAN, x).astype(F)


def bits_of(x):
    return np.ascontiguousarray(x).view({2: np.uint16, 4: U32, 8: U64}[x.itemsize])


# --- dtypes: 1 f32, 2 f16, 3 bf16 (as u16), 4 f64

NAMES = {1: "F32", 2: "F16", 3: "BF16", 4: "F64"}
TYPES = {1: np.float32, 2: np.float16, 3: np.uint16, 4: np.float64}
SIZES = {1: 4, 2: 2, 3: 2, 4: 8}


def narrow(dtype, x):
    """f32 to stored numbers: to nearest, ties to even, one NaN."""
    x = np.asarray(x, F)
    if dtype == 1:
        return np.where(np.isnan(x), NAN, x).astype(F)
    if dtype == 2:
        half = bits_of(x.astype(np.float16))
        return np.where(np.isnan(x), np.uint16(0x7E00), half).astype(np.uint16).view(np.float16)
    if dtype == 3:
        bits = bits_of(x).astype(U64)
        rounded = (bits + 0x7FFF + (bits >> U64(16) & U64(1))) >> U64(16)
        return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)
    wide = np.where(np.abs(x) < TINY, np.copysign(F(0), x), x).astype(np.float64)
    return np.where(np.isnan(x), np.array([0x7FF8 << 48], U64).view(np.float64)[0], wide)


def widen(dtype, stored):
    if dtype == 3:
        x = (stored.astype(U32) << U32(16)).view(F)
    elif dtype == 4:
        tiny = np.abs(stored) < 2.0**-126
        x = np.where(tiny, np.copysign(0.0, stored), stored).astype(F)
    else:
        x = stored.astype(F)
    return np.where(np.isnan(x), NAN, x).astype(F)


# --- random numbers


def philox(counter, key):
    c = [np.asarray(v, U64) for v in counter]
    k0, k1 = key
    for _ in range(10):
        a, b = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        low = U64(0xFFFFFFFF)
        c = [b >> U64(32) ^ c[1] ^ U64(k0), b & low, a >> U64(32) ^ c[3] ^ U64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def words(seed, stream, count):
    """The first words of a stream."""
    zero = np.zeros(1, U64)
    child = philox([zero + U64(stream), zero, zero, zero], (seed & 0xFFFFFFFF, seed >> 32))
    key = int(child[0][0]), int(child[1][0])
    block = np.arange(-(-count // 4), dtype=U64)
    out = philox([block, block * U64(0), block * U64(0), block * U64(0)], key)
    return np.stack(out, 1).reshape(-1)[:count]


# --- bits


def packed(codes, width):
    bits = (np.asarray(codes, U64)[:, None] >> np.arange(width - 1, -1, -1, dtype=U64)) & U64(1)
    return np.packbits(bits.astype(np.uint8).reshape(-1)).tobytes()


def unpacked(data, count, width):
    bits = np.unpackbits(np.frombuffer(data, np.uint8))[: count * width].reshape(count, width)
    return (bits.astype(np.int64) << np.arange(width - 1, -1, -1)).sum(1)


# --- quantise

QUANTISE = ("bits", "group", "scale", "rounding", "grid", "rotate", "block")


def hadamard(x):
    n, h = len(x), 1
    while h < n:
        pairs = x.reshape(-1, 2, h)
        x = flushed(np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)).reshape(-1)
        h *= 2
    return flushed(x * F(2.0 ** (-(n.bit_length() - 1) / 2)))


def by_powers(x, block):
    out = []
    for start in range(0, len(x), block):
        part = x[start : start + block]
        while len(part):
            n = 1 << (len(part).bit_length() - 1)
            out.append(hadamard(part[:n]))
            part = part[n:]
    return np.concatenate(out) if out else x


def sign_flips(seed, n):
    i = np.arange(n)
    return (words(seed, 1, n // 32 + 1)[i // 32] >> (i % 32).astype(U64) & U64(1)).astype(bool)


def groups_of(q, shape, n):
    columns = shape[-1] if shape else 1
    i = np.arange(n)
    if q["group"] == 0:
        return i // q["block"], -(-n // q["block"])
    if n == 0:
        return i, 0
    return (i // columns, n // columns) if q["group"] == 1 else (i % columns, columns)


def f16_up(m):
    h = np.float16(min(m, F(65504)))
    if F(h) < m and m < 65504:
        h = np.nextafter(h, np.float16(np.inf))
    return F(h)


def scale_of(q, x):
    m = F(np.max(np.abs(x)))
    if not np.all(np.isfinite(x)):
        return NAN
    if m < 2.0**-100:
        return F(0)
    if q["grid"] == 2:
        s = F(np.float16(m))
        return NAN if np.isinf(s) else s
    if q["scale"] == 2:
        e = np.ceil(np.log2(np.float64(m)))
        e += 2.0**e < m
        e -= 2.0 ** (e - 1) >= m
        return F(2.0 ** min(e, 125))
    s = min(m, F(2.0**125)) if q["scale"] == 0 else f16_up(m)
    return -s if q["grid"] == 0 and np.any(x == m) else s


def stored_scale(q, s):
    if q["scale"] == 0:
        return struct.pack("<I", 0x7FC00000) if np.isnan(s) else struct.pack("<f", s)
    if q["scale"] == 1:
        return struct.pack("<H", 0x7E00) if np.isnan(s) else np.float16(s).tobytes()
    return bytes([255 if np.isnan(s) else 0 if s == 0 else int(np.log2(s)) + 127])


def powers(level):
    """Zero, and powers of two up to 1."""
    return np.concatenate(([0], 2.0 ** np.arange(2 - level, 1)))


def power_codes(y, level):
    ladder = powers(np.float64(level))
    middles = (ladder[1:] + ladder[:-1]) / 2
    return level + np.sign(y) * np.searchsorted(middles, np.minimum(np.abs(y.astype(np.float64)), 1), side="right")


def codes_of(q, x, s, noise):
    top, level = 2 ** q["bits"] - 1, F(2 ** (q["bits"] - 1))
    if np.isnan(s) or s == 0:
        return np.full(len(x), 0 if q["grid"] == 1 else level)
    if q["grid"] == 1:
        half = F(top) / F(2)
        y = flushed(x * (half / s)) + half
        y = np.floor(y + noise) if q["rounding"] else np.rint(y)
        return np.clip(y, 0, top)
    if q["grid"] == 3:
        return power_codes(flushed(x * (F(1) / s)), level)
    if q["grid"] == 0:
        y = flushed(x * (level / s))
    else:
        y = flushed(flushed(x / F(np.float16(s + F(1e-6)))) * level)
    return np.clip(np.rint(y), -level, level - F(1)) + level


def quantise_encode(q, dtype, shape, x, seed):
    out, n = b"", len(x)
    x = flushed(x)
    if q["rotate"]:
        out = struct.pack("<Q", seed)
        x = by_powers(np.where(sign_flips(seed, n), -x, x), q["block"]) if n else x
    group, count = groups_of(q, shape, n)
    noise = ((words(seed, 2, n) >> U64(8)).astype(F) * F(2.0**-24)) if n else x
    codes = np.zeros(n)
    for g in range(count):
        own = group == g
        s = scale_of(q, x[own])
        out += stored_scale(q, s)
        codes[own] = codes_of(q, x[own], s, noise[own])
    return out + packed(codes.astype(U64), q["bits"])


def quantise_decode(q, dtype, shape, payload, n):
    seed = 0
    if q["rotate"]:
        seed, payload = struct.unpack("<Q", payload[:8])[0], payload[8:]
    group, count = groups_of(q, shape, n)
    cut = count * (4, 2, 1)[q["scale"]]
    if q["scale"] == 2:
        e = np.frombuffer(payload[:cut], np.uint8).astype(np.float64)
        scales = np.where(e == 255, NAN, np.where(e == 0, 0, 2.0 ** (e - 127))).astype(F)
    else:
        scales = widen(1 + q["scale"], np.frombuffer(payload[:cut], TYPES[1 + q["scale"]]))
    codes = unpacked(payload[cut:], n, q["bits"]).astype(F)
    s, level, half = scales[group], F(2 ** (q["bits"] - 1)), F(2 ** q["bits"] - 1) / F(2)
    if q["grid"] == 0:
        out = (codes - level) * (s / level)
    elif q["grid"] == 1:
        out = (codes - half) * (s / half)
    elif q["grid"] == 3:
        k = (codes - level).astype(int)
        out = (np.sign(k) * powers(np.float64(level))[np.abs(k)]).astype(F) * s
    else:
        out = ((codes - level) / level) * s
    out = np.where(np.isnan(s), NAN, np.where(s == 0, F(0), out)).astype(F)
    if q["rotate"] and n:
        out = by_powers(out, q["block"])
        out = np.where(sign_flips(seed, n) & ~np.isnan(out), -out, out)
    return out


# --- the other codecs: encode(p, dtype, shape, x, seed) and decode(p, dtype, shape, payload, n)


def half_encode(p, dtype, shape, x, seed):
    return narrow(p["dtype"], x).tobytes()


def half_decode(p, dtype, shape, payload, n):
    return widen(p["dtype"], np.frombuffer(payload, TYPES[p["dtype"]]))


def huffman_lengths(counts):
    while True:
        heap = [(c, b, (b,)) for b, c in counts.items()]
        lengths, order = dict.fromkeys(counts, 0), 256
        while len(heap) > 1:
            heap.sort()
            (c, _, a), (d, _, b) = heap[:2]
            for byte in a + b:
                lengths[byte] += 1
            heap[:2] = [(c + d, order, a + b)]
            order += 1
        if max(lengths.values()) <= 12:
            return lengths
        counts = {b: -(-c // 2) for b, c in counts.items()}


def huffman_words(lengths):
    words, code, before = {}, 0, 0
    for length, byte in sorted((l, b) for b, l in lengths.items() if l):
        code <<= length - before
        words[byte] = format(code, f"0{length}b")
        code, before = code + 1, length
    return words


def bytes_of_bits(bits):
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def turned_bytes(kind, x):
    values = narrow(kind, x)
    word = {1: U32, 2: np.uint16, 3: np.uint16}[kind]
    size = np.dtype(word).itemsize
    v = np.frombuffer(values.tobytes(), word)
    v = (v << word(1)) | (v >> word(8 * size - 1))
    return values.tobytes(), np.frombuffer(v.astype(word).tobytes(), np.uint8).reshape(-1, size)


def huffman_encode(p, dtype, shape, x, seed):
    if len(x) == 0:
        return b""
    plain, turned = turned_bytes(p["dtype"], x)
    high = turned[:, -1]
    found, counts = np.unique(high, return_counts=True)
    first, last = int(found[0]), int(found[-1])
    out = bytes([1, first, last])
    lengths = huffman_lengths({int(b): int(c) for b, c in zip(found, counts)})
    if first < last:
        out += bytes_of_bits("".join(format(lengths.get(b, 0), "04b") for b in range(first, last + 1)))
    out += turned[:, :-1].tobytes()
    if first < last:
        words, most = huffman_words(lengths), -(-len(x) // 4)
        streams = [bytes_of_bits("".join(words[int(b)] for b in high[s * most : (s + 1) * most])) for s in range(4)]
        out += struct.pack("<3I", *(len(s) for s in streams[:3])) + b"".join(streams)
    return out if len(out) < 1 + len(plain) else b"\0" + plain


def huffman_decode(p, dtype, shape, payload, n):
    kind = p["dtype"]
    if n == 0:
        return np.zeros(0, F)
    if payload[0] == 0:
        return widen(kind, np.frombuffer(payload[1:], TYPES[kind]))
    word = {1: U32, 2: np.uint16, 3: np.uint16}[kind]
    size = np.dtype(word).itemsize
    first, last, at = payload[1], payload[2], 3
    high = [first] * n
    nibbles = ""
    if first < last:
        nibbles = payload[at : at + (last - first + 2) // 2].hex()
        at += len(nibbles) // 2
    rest, at = payload[at : at + n * (size - 1)], at + n * (size - 1)
    if first < last:
        lengths = {first + i: int(c, 16) for i, c in enumerate(nibbles)}
        bytes_of = {w: b for b, w in huffman_words(lengths).items()}
        sizes, at = struct.unpack("<3I", payload[at : at + 12]), at + 12
        most, high = -(-n // 4), []
        for stream in range(4):
            length = sizes[stream] if stream < 3 else len(payload) - at
            bits, at = "".join(format(b, "08b") for b in payload[at : at + length]), at + length
            start = 0
            for _ in range(max(0, min(most, n - stream * most))):
                end = start + 1
                while bits[start:end] not in bytes_of:
                    end += 1
                high.append(bytes_of[bits[start:end]])
                start = end
    turned = np.empty((n, size), np.uint8)
    turned[:, :-1] = np.frombuffer(rest, np.uint8).reshape(n, size - 1)
    turned[:, -1] = high
    v = np.frombuffer(turned.tobytes(), word)
    v = (v >> word(1)) | (v << word(8 * size - 1))
    return widen(kind, np.frombuffer(v.astype(word).tobytes(), TYPES[kind]))


def mean_magnitude(x):
    total = np.float64(0)
    for start in range(0, len(x), 4096):
        piece = np.abs(x[start : start + 4096])
        sums = np.zeros(16, F)
        for i in range(0, len(piece), 16):
            row = np.zeros(16, F)
            row[: len(piece[i : i + 16])] = piece[i : i + 16]
            sums = (sums + row).astype(F)
        for h in (8, 4, 2, 1):
            sums[:h] += sums[h : 2 * h]
        total += np.float64(sums[0])
    mean = total / len(x)
    return NAN if not np.isfinite(mean) else F(0) if mean < 2.0**-126 else F(mean)


def sign_encode(p, dtype, shape, x, seed):
    small = flushed(x)
    out = b"".join(
        narrow(1, mean_magnitude(small[i : i + p["block"]]).reshape(1)).tobytes()
        for i in range(0, len(x), p["block"]))
    return out + np.packbits(np.signbit(x), bitorder="little").tobytes()


def sign_decode(p, dtype, shape, payload, n):
    cut = 4 * -(-n // p["block"])
    scales = np.frombuffer(payload[:cut], U32)[np.arange(n) // p["block"]]
    signs = np.unpackbits(np.frombuffer(payload[cut:], np.uint8), bitorder="little")[:n]
    return (scales | signs.astype(U32) << U32(31)).astype(U32).view(F)


def kept_count(p, n):
    return 0 if n == 0 else max(1, min(n, p["count"] or int(np.ceil(p["fraction"] * n))))


def values_encode(p, dtype, x, seed):
    number, own = p["values"]
    dtype = 1 if dtype == 4 else dtype
    if number == 1:
        return narrow(dtype, x).tobytes()
    return ENCODERS[number](own, dtype, [len(x)], x, seed)


def values_decode(p, dtype, payload, k):
    number, own = p["values"]
    dtype = 1 if dtype == 4 else dtype
    if number == 1:
        return widen(dtype, np.frombuffer(payload, TYPES[dtype]))
    return DECODERS[number](own, dtype, [k], payload, k)


def gap_bits(places, w):
    gaps = np.diff(np.concatenate([[-1], places])) - 1
    return "".join("1" * (int(g) >> w) + "0" + (format(int(g) & (1 << w) - 1, f"0{w}b") if w else "")
                   for g in gaps)


def index_code(places, n):
    bitmap = np.zeros(n, np.uint8)
    bitmap[places] = 1
    width = max(1, (n - 1).bit_length())
    codes = [(0, 0, np.packbits(bitmap, bitorder="little").tobytes()), (1, width, packed(places, width))]
    gaps = np.diff(np.concatenate([[-1], places])) - 1
    lengths = [sum((int(g) >> w) + 1 + w for g in gaps) for w in range(48)]
    w = int(np.argmin(lengths))
    stream = gap_bits(places, w)
    stream += "0" * (-len(stream) % 8)
    codes.append((2, w, int(stream, 2).to_bytes(len(stream) // 8, "big")))
    method, width, code = min(codes, key=lambda c: (len(c[2]), c[0]))
    return bytes([method, width]) + code


def read_places(payload, n, k):
    method, width, data = payload[0], payload[1], payload[2:]
    if k == n:
        return np.arange(n), 2
    if method == 0:
        bits = np.unpackbits(np.frombuffer(data[: -(-n // 8)], np.uint8), bitorder="little")
        return np.flatnonzero(bits), 2 + -(-n // 8)
    if method == 1:
        return unpacked(data, k, width), 2 + -(-k * width // 8)
    stream = "".join(format(b, "08b") for b in data)
    places, at, last = [], 0, -1
    for _ in range(k):
        zero = stream.index("0", at)
        gap = zero - at << width | int(stream[zero + 1 : zero + 1 + width] or "0", 2)
        at, last = zero + 1 + width, last + gap + 1
        places.append(last)
    return np.array(places), 2 + -(-at // 8)


def top_k_encode(p, dtype, shape, x, seed):
    n, k = len(x), kept_count(p, len(x))
    if k == 0:
        return b""
    if k == n:
        return b"\0\0" + values_encode(p, dtype, x, seed)
    key = np.minimum(bits_of(x) & U32(0x7FFFFFFF), U32(0x7F800001)).astype(np.int64)
    key = np.where(key < 0x00800000, 0, key)
    places = np.sort(np.argsort(-key, kind="stable")[:k])
    return index_code(places, n) + values_encode(p, dtype, x[places], seed)


def scattered(n, places, values):
    out = np.zeros(n, F)
    out[places] = values
    return out


def top_k_decode(p, dtype, shape, payload, n):
    k = kept_count(p, n)
    if k == 0:
        return np.zeros(0, F)
    places, used = read_places(payload, n, k)
    return scattered(n, places, values_decode(p, dtype, payload[used:], k))


def chosen(seed, n, k):
    wanted = k if 2 * k <= n else n - k
    draws = (words(seed, 3, 64 * n) * U64(n)) >> U64(32)
    first = list(dict.fromkeys(int(d) for d in draws))[:wanted]
    assert len(first) == wanted
    return np.array(sorted(first if 2 * k <= n else set(range(n)) - set(first)), np.int64)


def random_k_encode(p, dtype, shape, x, seed):
    k = kept_count(p, len(x))
    if k == 0:
        return b""
    return struct.pack("<Q", seed) + values_encode(p, dtype, x[chosen(seed, len(x), k)], seed)


def random_k_decode(p, dtype, shape, payload, n):
    k = kept_count(p, n)
    if k == 0:
        return np.zeros(0, F)
    values = values_decode(p, dtype, payload[8:], k)
    if p["unbiased"]:
        values = flushed(flushed(values) * F(n / k))
    return scattered(n, chosen(struct.unpack("<Q", payload[:8])[0], n, k), values)


def low_rank_decode(p, dtype, shape, payload, n):
    columns = shape[-1] if shape else 1
    if n == 0:
        return np.zeros(0, F)
    rows = n // columns
    r = min(rows, columns, p["rank"])
    factors = flushed(widen(p["dtype"], np.frombuffer(payload, TYPES[p["dtype"]])))
    left, right = factors[: rows * r].reshape(rows, r), factors[rows * r :].reshape(columns, r)
    total = flushed(np.outer(left[:, 0], right[:, 0]))
    for c in range(1, r):
        total = flushed(total + flushed(np.outer(left[:, c], right[:, c])))
    return total.reshape(-1)


ENCODERS = {2: half_encode, 3: quantise_encode, 4: sign_encode, 5: top_k_encode, 6: random_k_encode,
            9: huffman_encode}
DECODERS = {2: half_decode, 3: quantise_decode, 4: sign_decode, 5: top_k_decode, 6: random_k_decode,
            7: low_rank_decode, 9: huffman_decode}


def parameters(codec, p):
    if codec in (2, 9):
        return {"dtype": p[0]}
    if codec == 3:
        return dict(zip(QUANTISE, struct.unpack("<6BI", p)))
    if codec == 4:
        return {"block": struct.unpack("<I", p)[0]}
    if codec == 7:
        return dict(zip(("rank", "dtype"), struct.unpack("<IB", p)))
    if codec == 5:
        (fraction, count), rest = struct.unpack("<dq", p[:16]), p[16:]
        own = {}
    else:
        (fraction, count, unbiased), rest = struct.unpack("<dqB", p[:17]), p[17:]
        own = {"unbiased": unbiased}
    values = (rest[0], None if rest[0] == 1 else parameters(rest[0], rest[1:]))
    return dict(own, fraction=fraction, count=count, values=values)


# --- files


def awkward(rng, n, kind):
    x = rng.standard_normal(n)
    i = np.arange(n)
    if kind == "tiny":
        x *= 1e-7
    if kind == "denormal":
        x = np.where(i % 3 == 0, x * 1e-30, np.where(i % 3 == 1, 1e-40, -(2.0**-126)))
    if kind == "zeros":
        x = np.where(i < n // 2, 0.0, np.where(i % 2 == 0, -0.0, x))
    if kind == "ties":
        x = np.rint(x * 2) / 4
    if kind == "huge":
        x = np.where(i % 5 == 0, np.copysign(3e38, x), x * 65000)
    if kind == "heavy":
        x = x**9
    if kind == "broken" and n:
        x[n // 2] = np.nan
        x[n // 3] = -np.inf
    return x


def make_tensors():
    rng = np.random.default_rng(5)
    tensors = {}
    for dtype in (1, 2, 3, 4):
        for shape in ([], [1], [0], [0, 5], [5, 0], [37, 11], [3, 5, 7], [300, 3], [1, 700]):
            n = int(np.prod(shape, dtype=int))
            for kind in ("plain", "tiny", "denormal", "zeros", "ties", "huge", "heavy", "broken"):
                if n < 2 and kind not in ("plain", "broken"):
                    continue
                if dtype != 1 and (kind in ("tiny", "zeros") or shape not in ([], [0, 5], [37, 11])):
                    continue
                x = awkward(rng, n, kind)
                stored = x if dtype == 4 else narrow(dtype, x.astype(F))
                if dtype == 4 and kind == "huge":
                    stored = x * 10.0
                tensors[f"{dtype}.{kind}.{'x'.join(map(str, shape))}"] = (dtype, shape, stored)
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, stored) in tensors.items():
        begin = len(data)
        data += np.ascontiguousarray(stored).tobytes()
        header[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    return {name: raw[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def frames_of(data):
    at = 0
    while at < len(data):
        codec, dtype, dims, _, p, flags = struct.unpack("<5BH", data[at + 5 : at + 12])
        size = struct.unpack("<Q", data[at + 32 : at + 40])[0]
        shape_at = at + 40 + p
        begin = shape_at + 8 * dims + 8 * (flags & 1)
        shape = list(struct.unpack(f"<{dims}Q", data[shape_at : shape_at + 8 * dims]))
        yield codec, dtype, shape, data[at + 40 : at + 40 + p], data[begin : begin + size]
        at = begin + size + 4


SPECS = """half half:kind=f16 huffman huffman:kind=f16 huffman:kind=f32 sign sign:block=1 sign:block=7 sign:block=5000
quantise quantise:bits=2,block=8 quantise:bits=3,block=7,scale=f16 quantise:bits=5,block=100,scale=pow2
quantise:bits=4,group=row quantise:bits=7,group=channel,scale=f16 quantise:bits=6,group=row,scale=pow2
quantise:bits=1,grid=ends,block=9 quantise:bits=8,grid=ends,scale=f16 quantise:bits=3,grid=ends,scale=pow2
quantise:bits=2,grid=ends,group=channel quantise:bits=4,grid=ends,rounding=stochastic,block=33
quantise:bits=1,grid=ends,rounding=stochastic,group=row,scale=pow2
quantise:bits=2,group=channel,scale=f16,grid=artefact quantise:bits=4,group=channel,scale=f16,grid=artefact
quantise:bits=8,group=channel,scale=f16,grid=artefact
quantise:bits=4,grid=powers quantise:bits=2,grid=powers,block=9 quantise:bits=3,grid=powers,scale=f16,group=row
quantise:bits=5,grid=powers,scale=pow2,group=channel quantise:bits=4,grid=powers,block=64,rotate=true
quantise:bits=4,block=8,rotate=true quantise:bits=3,block=256,rotate=true,scale=f16
quantise:bits=2,block=64,rotate=true,grid=ends,rounding=stochastic
top_k top_k:keep=0.5 top_k:keep=0.1 top_k:keep=1 top_k:count=3+half top_k:keep=0.2+quantise:bits=3,block=10
top_k:keep=0.3+quantise:bits=2,grid=ends,rounding=stochastic,block=16
random_k:keep=0.3 random_k:keep=0.8,unbiased=true random_k:count=2+half:kind=f16
random_k:keep=0.5,unbiased=true+quantise:bits=4 random_k:keep=1
low_rank:rank=1 low_rank:rank=3,factors=f16 low_rank:rank=20,factors=bf16""".split()


def same(dtype, ours, theirs):
    kind = {1: U32, 2: np.uint16, 3: np.uint16, 4: U64}[dtype]
    return np.array_equal(bits_of(ours), np.frombuffer(theirs, kind))


def check_spec(binary, folder, spec, tensors, seed):
    frames_path, back_path = folder / "frames", folder / "back.safetensors"
    given = folder / "in.safetensors"
    for arguments in (["encode", spec, given, "-o", frames_path, "--seed", str(seed)],
                      ["decode", frames_path, "-o", back_path, "--compare", given]):
        subprocess.run([binary, "codec", *arguments, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    back, bad = read_safetensors(back_path), []
    frames = list(frames_of(frames_path.read_bytes()))
    assert len(frames) == len(tensors)
    for i, (name, (codec, dtype, shape, p, payload)) in enumerate(zip(tensors, frames)):
        assert (dtype, shape) == tuple(tensors[name][:2]), name
        x, own = widen(dtype, tensors[name][2].reshape(-1)), parameters(codec, p)
        if codec in ENCODERS and ENCODERS[codec](own, dtype, shape, x, seed + i) != payload:
            bad.append(f"{spec}: {name} is encoded as {payload[:40].hex()}")
        decoded = DECODERS[codec](own, dtype, shape, payload, len(x))
        if not same(dtype, decoded if dtype == 1 else narrow(dtype, decoded), back[name]):
            bad.append(f"{spec}: {name} is decoded to something else")
    return bad


def main():
    tensors, bad = make_tensors(), []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_safetensors(folder / "in.safetensors", tensors)
        for number, spec in enumerate(SPECS):
            bad += check_spec(sys.argv[1], folder, spec, tensors, 1000 * number + (number << 33))
    print("\n".join(bad[:50]) or f"{len(SPECS)} specs of {len(tensors)} tensors")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
