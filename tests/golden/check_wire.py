#!/usr/bin/env python3
"""Reads the golden frames by docs/wire-format.md alone, with no code of Laconic.

Every frame of wire/ must decode to the numbers of wire/decoded.txt, and every file of invalid/ whose
fault is before the payload must be refused. (That a payload is one which an encoder makes is not
checked here.)
"""

import math
import pathlib
import struct
import sys

FOLDER = pathlib.Path(__file__).parent
DTYPES = {1: "f", 2: "e", 3: "bf16", 4: "d", 5: "q", 6: "i", 7: "h", 8: "b", 9: "B", 10: "B"}
LIMIT = 1 << 48


class Refused(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Refused(what)


def f32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def size_of(dtype):
    return 2 if dtype == 3 else struct.calcsize(DTYPES[dtype])


def numbers(dtype, data):
    if dtype == 3:
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack("<%d%s" % (len(data) // size_of(dtype), DTYPES[dtype]), data))


def rounded(dtype, values):
    """What is left of f32 numbers in a tensor of this type."""
    if dtype == 2:
        return [x if math.isnan(x) or math.isinf(x) else struct.unpack("<e", struct.pack("<e", x))[0] for x in values]
    if dtype == 3:
        out = []
        for x in values:
            bits = struct.unpack("<I", struct.pack("<f", x))[0]
            if not math.isnan(x):
                bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
            out.append(struct.unpack("<f", struct.pack("<I", bits))[0])
        return out
    return values


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# --- random numbers


def philox(counter, key):
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def word(seed, stream, i):
    child = philox([stream, 0, 0, 0], (seed & 0xFFFFFFFF, seed >> 32))
    return philox([i // 4 & 0xFFFFFFFF, i // 4 >> 32, 0, 0], (child[0], child[1]))[i % 4]


# --- codecs: decode(parameters, dtype, shape, payload) -> f32 numbers


def bits_of(data):
    return "".join(format(byte, "08b") for byte in data)


def rows_and_columns(shape):
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def decode_half(p, dtype, shape, payload):
    return numbers(p[0], payload)


def hadamard(x):
    n, h = len(x), 1
    while h < n:
        for start in range(0, n, 2 * h):
            for i in range(start, start + h):
                x[i], x[i + h] = f32(x[i] + x[i + h]), f32(x[i] - x[i + h])
        h *= 2
    factor = f32(2.0 ** (-(n.bit_length() - 1) / 2))
    return [f32(v * factor) for v in x]


def unrotate(x, seed, block):
    out = []
    for start in range(0, len(x), block):
        part = x[start : start + block]
        while part:
            n = 1 << (len(part).bit_length() - 1)
            out += hadamard(part[:n])
            part = part[n:]
    return [-v if word(seed, 1, i // 32) >> i % 32 & 1 else v for i, v in enumerate(out)]


def scales_of(kind, data):
    if kind == 0:
        return numbers(1, data)
    if kind == 1:
        return numbers(2, data)
    return [0.0 if e == 0 else math.nan if e == 255 else 2.0 ** (e - 127) for e in data]


def decode_quantise(p, dtype, shape, payload):
    bits, group, scale, _, grid, rotate, block = struct.unpack("<6BI", p)
    need(1 <= bits <= 8, "bits")
    n = math.prod(shape)
    rows, columns = rows_and_columns(shape)
    seed = 0
    if rotate:
        seed, payload = struct.unpack("<Q", payload[:8])[0], payload[8:]
    count = 0 if n == 0 else [-(-n // block) if block else 0, rows, columns][group]
    cut = count * [4, 2, 1][scale]
    scales, stream = scales_of(scale, payload[:cut]), bits_of(payload[cut:])
    out = []
    for i in range(n):
        code = int(stream[i * bits : (i + 1) * bits], 2)
        s = scales[[i // block if block else 0, i // columns, i % columns][group]]
        half, level = (2**bits - 1) / 2, 2 ** (bits - 1)
        if math.isnan(s) or s == 0:
            out.append(s)
        elif grid == 0:
            out.append(f32((code - level) * f32(s / level)))
        elif grid == 1:
            out.append(f32((code - half) * f32(s / half)))
        else:
            out.append(f32(f32((code - level) / level) * s))
    return unrotate(out, seed, block) if rotate else out


def decode_sign(p, dtype, shape, payload):
    (block,) = struct.unpack("<I", p)
    n = math.prod(shape)
    cut = 4 * -(-n // block)
    scales = numbers(1, payload[:cut])
    return [-scales[i // block] if payload[cut + i // 8] >> i % 8 & 1 else scales[i // block] for i in range(n)]


def kept_count(fraction, count, n):
    return min(n, max(1, count or math.ceil(fraction * n))) if n else 0


def decode_values(p, dtype, k, payload):
    dtype = 1 if dtype == 4 else dtype
    return CODECS[p[0]](p[1:], dtype, [k], payload)


def scatter(n, places, values):
    out = [0.0] * n
    for i, v in zip(places, values):
        out[i] = v
    return out


def read_places(method, width, n, k, data):
    """The indices, and how many bytes they took."""
    if method == 0:
        places = [i for i in range(n) if data[i // 8] >> i % 8 & 1] if k < n else list(range(n))
        return places, -(-n // 8) if k < n else 0
    stream, at, places = bits_of(data), 0, []
    for _ in range(k):
        high = 0
        while method == 2 and stream[at] == "1":
            high, at = high + 1, at + 1
        at += method == 2
        low = int(stream[at : at + width] or "0", 2)
        at += width
        before = places[-1] if places else -1
        places.append(low if method == 1 else before + 1 + (high << width) + low)
    return places, -(-at // 8)


def decode_top_k(p, dtype, shape, payload):
    fraction, count = struct.unpack("<dq", p[:16])
    n = math.prod(shape)
    k = kept_count(fraction, count, n)
    if k == 0:
        return []
    places, used = read_places(payload[0], payload[1], n, k, payload[2:])
    return scatter(n, places, decode_values(p[16:], dtype, k, payload[2 + used :]))


def decode_random_k(p, dtype, shape, payload):
    fraction, count, unbiased = struct.unpack("<dqB", p[:17])
    n = math.prod(shape)
    k = kept_count(fraction, count, n)
    if k == 0:
        return []
    seed = struct.unpack("<Q", payload[:8])[0]
    wanted, drawn, j = min(k, n - k) if 2 * k > n else k, set(), 0
    while len(drawn) < wanted:
        drawn.add(word(seed, 3, j) * n >> 32)
        j += 1
    places = sorted(drawn) if 2 * k <= n else [i for i in range(n) if i not in drawn]
    values = decode_values(p[17:], dtype, k, payload[8:])
    if unbiased:
        values = [f32(v * f32(n / k)) for v in values]
    return scatter(n, places, values)


def product(p, q, n, m, r):
    """P Q^T, every product and every sum rounded."""
    out = []
    for i in range(n):
        for j in range(m):
            total = f32(p[i * r] * q[j * r])
            for c in range(1, r):
                total = f32(total + f32(p[i * r + c] * q[j * r + c]))
            out.append(total)
    return out


def decode_low_rank(p, dtype, shape, payload):
    rank, kind = struct.unpack("<IB", p)
    n, m = rows_and_columns(shape)
    r = min(n, m, rank)
    factors = numbers(kind, payload)
    return product(factors[: n * r], factors[n * r :], n, m, r)


def decode_auto_encoder(p, dtype, shape, payload):
    """With the maps of the golden frames: the code is the first numbers of a row."""
    code, kind = struct.unpack("<IB", p)
    n, m = rows_and_columns(shape)
    back = [1.0 if j == c else 0.0 for j in range(m) for c in range(code)]
    return product(numbers(kind, payload), back, n, m, code)


def decode_huffman(p, dtype, shape, payload):
    kind, n = p[0], math.prod(shape)
    size = size_of(kind)
    if n == 0:
        need(not payload, "nothing")
        return []
    need(payload and payload[0] in (0, 1), "form")
    if payload[0] == 0:
        need(len(payload) == 1 + n * size, "payload bytes")
        return numbers(kind, payload[1:])
    first, last, at = payload[1], payload[2], 3
    need(first <= last and len(payload) < 1 + n * size, "first and last")
    words = {}
    if first < last:
        nibbles = payload[at : at + (last - first + 2) // 2].hex()
        at += len(nibbles) // 2
        need(len(nibbles) == last - first + 1 or nibbles[-1] == "0", "padding of lengths")
        lengths = [int(c, 16) for c in nibbles[: last - first + 1]]
        need(max(lengths) <= 12 and sum(2.0**-l for l in lengths if l) == 1, "lengths")
        need(lengths[0] and lengths[-1], "ends of lengths")
        code = 0
        for length in range(1, 13):
            code *= 2
            for i, its_length in enumerate(lengths):
                if its_length == length:
                    words[format(code, "0%db" % length)] = first + i
                    code += 1
    rest, at = payload[at : at + n * (size - 1)], at + n * (size - 1)
    high = []
    if first < last:
        sizes, at = list(struct.unpack("<3I", payload[at : at + 12])), at + 12
        need(sum(sizes) <= len(payload) - at, "stream bytes")
        sizes.append(len(payload) - at - sum(sizes))
        most = -(-n // 4)
        for stream, length in enumerate(sizes):
            bits, at, word, read = bits_of(payload[at : at + length]), at + length, "", 0
            wanted, done = max(0, min(most, n - stream * most)), 0
            while done < wanted:
                need(read < len(bits), "stream")
                word, read = word + bits[read], read + 1
                if word in words:
                    high.append(words[word])
                    word, done = "", done + 1
            need(len(bits) - read < 8 and "1" not in bits[read:], "padding of a stream")
    else:
        high = [first] * n
    need(at == len(payload), "end")
    data = b""
    for i, byte in enumerate(high):
        turned = int.from_bytes(rest[i * (size - 1) : (i + 1) * (size - 1)] + bytes([byte]), "little")
        data += (turned >> 1 | (turned & 1) << 8 * size - 1).to_bytes(size, "little")
    return numbers(kind, data)


def decode_transform(p, dtype, shape, payload):
    """With the basis of the golden frames: columns 0, 1 and 2 of five, in 4, 2 and 1 bits."""
    bits, span, refresh, scale = struct.unpack("<BIIB", p)
    n, m = rows_and_columns(shape)
    if n * m == 0:
        need(not payload, "nothing")
        return []
    quantise = lambda b, group, block: struct.pack("<6BI", b, group, scale, 0, 0, 0, block)
    need(payload and payload[0] in (0, 1), "form")
    if payload[0] == 0:
        return decode_quantise(quantise(8, 0, 64), 1, shape, payload[1:])
    counts = struct.unpack("<8H", payload[5:21])
    need(0 < sum(counts) <= m, "counts")
    at, out, column, whole = 21, [0.0] * (n * m), 0, n // span * span
    for b in range(8, 0, -1):
        count = counts[b - 1]
        for row, rows, length in ((0, whole, span), (whole, n - whole, n - whole)):
            if count == 0 or rows == 0:
                continue
            lines, codes = count * rows // length, -(-count * rows * b // 8)
            if b == 1:
                size = 4 * lines + codes
                values = decode_sign(struct.pack("<I", length), 1, [lines, length], payload[at : at + size])
            else:
                size = {0: 4, 1: 2, 2: 1}[scale] * lines + codes
                values = decode_quantise(quantise(b, 1, 0), 1, [lines, length], payload[at : at + size])
            at += size
            for d in range(count):
                for r in range(rows):
                    out[(row + r) * m + column + d] = values[d * rows + r]
        column += count
    need(at == len(payload), "payload bytes")
    return out


def decode_raw(p, dtype, shape, payload):
    return numbers(dtype, payload)


CODECS = {1: decode_raw, 2: decode_half, 3: decode_quantise, 4: decode_sign, 5: decode_top_k,
          6: decode_random_k, 7: decode_low_rank, 8: decode_auto_encoder, 9: decode_huffman,
          10: decode_transform}
PARAMETER_BYTES = {1: 0, 2: 1, 3: 10, 4: 4, 7: 5, 8: 5, 9: 1, 10: 10}


def parameter_bytes(codec, p):
    if codec in (5, 6):
        own = 16 if codec == 5 else 17
        need(len(p) > own and p[own] in (1, 2, 3), "values")
        return own + 1 + PARAMETER_BYTES[p[own]]
    return PARAMETER_BYTES[codec]


# --- frames


def payload_at(frame):
    return 40 + frame[9] + 8 * frame[7] + 8 * (frame[10] & 1)


def read(frame):
    need(len(frame) >= 44, "short")
    magic, version, codec, dtype, dims, visit, p, flags, visits, _, key, payload_bytes = struct.unpack(
        "<4s6BHIQQQ", frame[:40])
    need(magic == b"LCNF" and version == 1 and dims <= 8, "start")
    hash_at = 40 + p + 8 * dims
    start = payload_at(frame)
    need(len(frame) == start + payload_bytes + 4, "length")
    need(struct.unpack("<I", frame[-4:])[0] == crc32c(frame[:-4]), "check sum")
    need(codec in CODECS and dtype in DTYPES and visit <= 2 and flags <= 1, "numbers")
    parameters = frame[40 : 40 + p]
    need(p == parameter_bytes(codec, parameters), "parameters")
    need(codec == 1 or dtype <= 4, "a lossy codec of integers")
    need(visit == 0 or dtype <= 4, "visits of integers")
    need((visits != 0) == (visit == 2) and (visit or key == 0) and (visit == 2 or not flags), "visit")
    shape = list(struct.unpack("<%dQ" % dims, frame[40 + p : hash_at]))
    need(all(size <= LIMIT for size in shape) and math.prod(shape) <= LIMIT, "shape")
    payload = frame[start:-4]
    if codec == 1:
        need(len(payload) == math.prod(shape) * size_of(dtype), "payload bytes")
    values = CODECS[codec](parameters, dtype, shape, payload)
    return values if codec == 1 else rounded(dtype, values)


def same(a, b):
    return math.isnan(a) and math.isnan(b) or a == b


def main():
    expected = {}
    for line in (FOLDER / "wire/decoded.txt").read_text().splitlines():
        name, _, rest = line.partition(":")
        expected[name] = [f32(float(x)) for x in rest.split()]
    bad = [f"{name}: no such frame" for name in expected if not (FOLDER / f"wire/{name}.bin").exists()]
    for path in sorted((FOLDER / "wire").glob("*.bin")):
        values = [f32(x) for x in read(path.read_bytes())]
        if len(values) != len(expected[path.stem]) or not all(map(same, values, expected[path.stem])):
            bad.append(f"{path.stem}: {values[:20]} instead of {expected[path.stem][:20]}")
    refused = 0
    for line in (FOLDER / "invalid/expected.txt").read_text().splitlines():
        name, offset = line.split()[:2]
        frame = (FOLDER / f"invalid/{name}.bin").read_bytes()
        try:
            read(frame)
            if int(offset) < payload_at(frame):
                bad.append(f"{name}: accepted")
        except Refused:
            refused += 1
        except IndexError:  # an index beyond the end
            pass
    print("\n".join(bad) or f"{len(expected)} frames read, {refused} refused")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
