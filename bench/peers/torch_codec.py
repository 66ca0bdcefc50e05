"""The peer of `laconic codec bench`: the obvious ATen code for each codec, timed the same way.

    torch_codec.py [MEBIBYTES [ROUNDS]]

One thread, eager mode, f32. Each act is written as one would in a gradient hook: a few whole-tensor operations, and
packing by shifts. Prints JSON: times in copies of the tensor, median of rounds that alternate with the copy.
"""

import json
import statistics
import sys
import time

import torch

torch.set_num_threads(1)
MEBIBYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 64
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
BLOCK = 256

x = torch.randn(MEBIBYTES * 1024 * 1024 // 4 // 1024, 1024, generator=torch.Generator().manual_seed(1))
copy = torch.empty_like(x)
rows = []


def seconds(act):
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def copy_seconds():
    return seconds(lambda: copy.copy_(x))


def measure(what, name, act):
    result = act()
    times, multiples = [], []
    for _ in range(ROUNDS):
        before = copy_seconds()
        times.append(seconds(act))
        multiples.append(times[-1] / ((before + copy_seconds()) / 2))
    rows.append({"what": what, "act": name, "copies": statistics.median(multiples), "least": min(multiples),
                 "most": max(multiples), "seconds": statistics.median(times)})
    return result


def quantise(values, bits):
    levels = 2 ** (bits - 1)
    blocks = values.view(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True)
    codes = (blocks / scale * levels).round_().clamp_(-levels, levels - 1).add_(levels).to(torch.uint8).view(-1)
    if bits == 8:
        return codes, scale
    if bits in (4, 2):
        per_byte = 8 // bits
        parts = codes.view(-1, per_byte)
        packed = parts[:, 0] << (8 - bits)
        for i in range(1, per_byte):
            packed = packed | (parts[:, i] << (8 - bits * (i + 1)))
        return packed, scale
    # Any other width: 8 codes into `bits` bytes by way of 64-bit integers.
    parts = codes.view(-1, 8).to(torch.int64)
    word = parts[:, 0]
    for i in range(1, 8):
        word = (word << bits) | parts[:, i]
    return torch.stack([(word >> (8 * (bits - 1 - i))) & 255 for i in range(bits)], 1).to(torch.uint8), scale


def dequantise(packed, scale, bits):
    levels = 2 ** (bits - 1)
    if bits == 8:
        codes = packed
    elif bits in (4, 2):
        codes = torch.stack([(packed >> (8 - bits * (i + 1))) & (2 ** bits - 1) for i in range(8 // bits)], 1).view(-1)
    else:
        word = torch.zeros(packed.shape[0], dtype=torch.int64)
        for i in range(bits):
            word = (word << 8) | packed[:, i].to(torch.int64)
        codes = torch.stack([(word >> (bits * (7 - i))) & (2 ** bits - 1) for i in range(8)], 1).view(-1)
    return ((codes.to(torch.float32).view(-1, BLOCK) - levels) * (scale / levels)).view_as(x)


def hadamard(values):
    y = values.view(-1, BLOCK).clone()
    h = 1
    while h < BLOCK:
        y = y.view(-1, BLOCK // (2 * h), 2, h)
        y = torch.stack((y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]), 2).view(-1, BLOCK)
        h *= 2
    return y * BLOCK ** -0.5


def delta_pack(reference, values):
    packed, scale = quantise(values - reference, 4)
    reference += dequantise(packed, scale, 4)
    return packed, scale


def low_rank(q):
    p, _ = torch.linalg.qr(x @ q)
    return p, x.t() @ p


with torch.no_grad():
    for bits in (8, 6, 4, 3, 2):
        name = "quantise" if bits == 8 else f"quantise:bits={bits}"
        packed, scale = measure(name, "encode", lambda: quantise(x, bits))
        measure(name, "decode", lambda: dequantise(packed, scale, bits))
    measure("half", "encode", lambda: x.to(torch.bfloat16))
    measure("half:kind=f16", "encode", lambda: x.to(torch.float16))
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    measure("sign", "encode", lambda: (((x.view(-1, 8) < 0) * weights).sum(1, dtype=torch.uint8), x.view(-1, BLOCK).abs().mean(1)))
    kept = x.numel() // 100
    measure("top_k", "encode", lambda: x.view(-1)[torch.topk(x.view(-1).abs(), kept, sorted=False).indices])
    measure("random_k", "encode", lambda: x.view(-1)[torch.randint(x.numel(), (kept,)).sort().values])
    signs = torch.randint(0, 2, (BLOCK,)).mul(2).sub(1).float()
    measure("quantise:bits=4,rotate=true", "encode", lambda: quantise(hadamard((x.view(-1, BLOCK) * signs)).view(-1), 4))
    reference, moved, turn = x.clone(), x * 1.01, [0]

    def pack():
        turn[0] ^= 1
        return delta_pack(reference, moved if turn[0] else x)

    packed, scale = measure("delta link, quantise:bits=4", "pack", pack)
    measure("delta link, quantise:bits=4", "unpack", lambda: reference.add_(dequantise(packed, scale, 4)).clone())
    q = torch.randn(1024, 16)
    measure("low_rank", "encode", lambda: low_rank(q))
    p, q2 = low_rank(q)
    measure("low_rank", "decode", lambda: p @ q2.t())

products = []
for size in (1024, 2048, 4096):
    a, b = torch.randn(size, size), torch.randn(size, 16)
    p = torch.linalg.qr(a @ b)[0]
    for what, act in (("A Q", lambda: a @ b), ("A^T P", lambda: a.t() @ p), ("P Q^T", lambda: p @ b.t())):
        act()
        best = statistics.median(seconds(act) for _ in range(15))
        products.append({"size": size, "what": what, "gigaflops": 2 * size * size * 16 / best / 1e9})

print(json.dumps({"bytes": x.numel() * 4, "copy_seconds": statistics.median(copy_seconds() for _ in range(9)),
                  "rows": rows, "products": products}))
