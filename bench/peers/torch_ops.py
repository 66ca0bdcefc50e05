"""The peer of bench/ops_bench.cpp: the same operations in PyTorch eager mode, timed the same way.

    torch_ops.py ROUNDS

Written as PyTorch users write them (Hugging Face's Llama and BERT): masks made once, added or filled in; keys and
values of grouped heads repeated.
"""

import json
import math
import sys
import time

import torch
import torch.nn.functional as F

SAMPLES, TOKENS, WIDTH = 8, 256, 384
ROWS = SAMPLES * TOKENS
LENGTHS = torch.tensor([256, 64, 192, 128, 224, 96, 160, 256])


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def least_ms(rounds, leaves, operation):
    gradient = torch.ones_like(operation())
    times = []
    for i in range(rounds + 3):
        begin = time.perf_counter()
        operation().backward(gradient)
        if i >= 3:
            times.append(1e3 * (time.perf_counter() - begin))
        for x in leaves:
            x.grad = None
    return round(min(times), 3)


def attention(rounds, heads, key_heads, is_causal, lengths=None, dropout=0.0):
    head_width = WIDTH // heads
    q, k, v = leaf(ROWS, WIDTH), leaf(ROWS, key_heads * head_width), leaf(ROWS, key_heads * head_width)
    mask = None
    if is_causal:
        mask = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)
    if lengths is not None:
        mask = (torch.arange(TOKENS) >= lengths[:, None])[:, None, None, :]

    def split(x, count):
        x = x.view(SAMPLES, TOKENS, count, head_width).transpose(1, 2)
        return x if count == heads else x.repeat_interleave(heads // count, 1)

    def operation():
        scores = split(q, heads) @ split(k, key_heads).transpose(-2, -1) / math.sqrt(head_width)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        p = F.softmax(scores, -1)
        if dropout > 0:
            p = F.dropout(p, dropout)
        return (p @ split(v, key_heads)).transpose(1, 2).reshape(ROWS, WIDTH)

    return least_ms(rounds, [q, k, v], operation)


def rms_norm(x, weight):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def stream(x, weight, shift):
    def norm(y):
        return F.layer_norm(y, (WIDTH,), weight, shift)
    x = x + norm(x)
    return x + norm(x)


def rotate(x, cosines, sines):  # tables of the whole head width, as Hugging Face keeps them
    x = x.view(SAMPLES, TOKENS, 6, 64)
    a, b = x[..., :32], x[..., 32:]
    return (x * cosines + torch.cat((-b, a), -1) * sines).view(ROWS, WIDTH)


def main():
    rounds = int(sys.argv[1])
    torch.set_flush_denormal(True)
    times = {
        "threads": torch.get_num_threads(),
        "attention, causal": attention(rounds, 6, 6, True),
        "attention, causal, dropout 0.1": attention(rounds, 6, 6, True, dropout=0.1),
        "attention, bidirectional": attention(rounds, 6, 6, False),
        "attention, bidirectional, padded": attention(rounds, 6, 6, False, LENGTHS),
        "attention, causal, 8 heads, 2 key heads": attention(rounds, 8, 2, True),
        "attention, crossed, padded": attention(rounds, 6, 6, False, LENGTHS),
    }
    x, weight, shift = leaf(ROWS, WIDTH), leaf(WIDTH), leaf(WIDTH)
    times["stream"] = least_ms(rounds, [x, weight, shift], lambda: stream(x, weight, shift))
    times["rms_norm"] = least_ms(rounds, [x, weight], lambda: rms_norm(x, weight))
    angle = torch.outer(torch.arange(TOKENS).float(), torch.randn(32)).repeat(1, 2)[:, None, :]
    cosines, sines = angle.cos(), angle.sin()
    times["rotate"] = least_ms(rounds, [x], lambda: rotate(x, cosines, sines))
    gate, up = leaf(ROWS, 1024), leaf(ROWS, 1024)
    times["swiglu"] = least_ms(rounds, [gate, up], lambda: F.silu(gate) * up)
    hidden = leaf(ROWS, 4 * WIDTH)
    times["exact_gelu"] = least_ms(rounds, [hidden], lambda: F.gelu(hidden))
    head, targets = leaf(8192, WIDTH), torch.randint(8192, (ROWS,))
    times["cross_entropy, smoothed"] = least_ms(
        rounds, [x, head], lambda: F.cross_entropy(F.linear(x, head), targets, label_smoothing=0.1))
    print(json.dumps(times))


main()
