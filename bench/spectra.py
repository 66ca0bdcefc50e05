#!/usr/bin/env python3
"""Spectra of what crosses stage boundaries: how much could transform coding save?

    laconic prepare train.txt.xz --train-bpe 2048 --out wiki
    bench/spectra.py wiki.bin --seconds 150 > spectra.md

Trains a GPT of 8 layers (pre-norm, learned positions, tied head: the shape of studies/lab-report.toml's pipeline) without
compression, on one thread. At each visit some held-out samples go through it, forward and backward, and behind every second
layer the covariances are taken of

    x          the activation
    x - anchor without the token's and the position's rows, as the first stage has them
    delta      x less what the receiver remembers of the sample: its last visit and 4-bit differences since (AC-SGD)
    gradient   of the loss by x

Two questions about each. How many directions hold 90, 99 and 99.9 % of the energy; and how many bits an element would take a
code that rotates by the eigenvectors and gives direction i  max(0, b + log2(l_i / mean l) / 2)  bits, for the mean square
error of b bits everywhere: by the formula, and measured, with whole bits and a scale for each direction and 128 tokens,
against blocks of 64 elements along the row, scales included.
"""
import argparse
import array
import math
import pathlib
import time

import torch
import torch.nn.functional as F

LAYERS, HEADS, CONTEXT, VOCABULARY = 8, 4, 128, 2048
SPAN = 128  # tokens that share a direction's scale


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        for w in (self.qkv, self.up):
            torch.nn.init.normal_(w.weight, std=0.02)
        for w in (self.out, self.down):
            torch.nn.init.normal_(w.weight, std=0.02 / math.sqrt(2 * LAYERS))
        for w in (self.qkv, self.out, self.up, self.down):
            torch.nn.init.zeros_(w.bias)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, HEADS, d // HEADS).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(d, dim=2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(d // HEADS)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        a = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tokens = torch.nn.Parameter(torch.randn(VOCABULARY, width) * 0.02)
        self.positions = torch.nn.Parameter(torch.randn(CONTEXT, width) * 0.01)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(width)

    def loss(self, ids, boundaries=None):
        x = F.embedding(ids[:, :-1], self.tokens) + self.positions
        for i, block in enumerate(self.blocks):
            x = block(x)
            if boundaries is not None and i % 2 == 1 and i + 1 < LAYERS:
                x.retain_grad()
                boundaries.append(x)
        logits = self.norm(x) @ self.tokens.T
        return F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))


def quantised(x, bits, dim):
    """Levels k / L of the largest magnitude along dim, k = -L ... L - 1; one bit: signs and the mean magnitude."""
    if bits == 1:
        return x.sign() * x.abs().mean(dim, keepdim=True)
    top = x.gather(dim, x.abs().argmax(dim, keepdim=True))
    half = 2 ** (bits - 1)
    scale = torch.where(top == 0, torch.ones_like(top), -top)
    return (x / scale * half).round().clamp(-half, half - 1) / half * scale


def plain(x, bits, block=64):
    return quantised(x.reshape(-1, block), bits, 1).reshape(x.shape)


def transformed(x, basis, energies, bits):
    """Rows of x in that basis by so many bits a direction on average, and what they cost: bits an element with scales."""
    share = (bits + 0.5 * torch.log2(energies / energies.mean())).clamp(0, 8).round()
    c = (x @ basis).reshape(-1, SPAN, x.shape[1])
    out = torch.zeros_like(c)
    for b in share.unique().tolist():
        if b > 0:
            out[:, :, share == b] = quantised(c[:, :, share == b], int(b), 1)
    cost = share.mean().item() + (share > 0).float().mean().item() * 16 / SPAN
    return out.reshape(x.shape) @ basis.T, cost


def equal_bits(x, fit, bits):
    """What rows of x cost by a basis of the rows `fit`, for the error that `bits` bits in blocks have."""
    wanted = (plain(x, bits) - x).square().mean().item()
    energies, basis = torch.linalg.eigh(fit.T @ fit / len(fit))
    energies = energies.clamp_min(1e-30)
    low, high = 0.0, 9.0
    for _ in range(12):
        middle = (low + high) / 2
        coded, cost = transformed(x, basis, energies, middle)
        low, high = (low, middle) if (coded - x).square().mean().item() < wanted else (middle, high)
    return transformed(x, basis, energies, high)[1]


def line(step, boundary, name, x, earlier):
    """`earlier`: rows of another time, for a basis that is not fresh."""
    energies = torch.linalg.eigvalsh((x.T @ x / len(x)).double()).flip(0).clamp_min(1e-30)
    held = energies.cumsum(0) / energies.sum()
    ranks = [int((held < share).sum()) + 1 for share in (0.9, 0.99, 0.999)]
    formula = [(b + 0.5 * torch.log2(energies / energies.mean())).clamp_min(0).mean().item() for b in (4, 6)]
    fit, test = x[: len(x) // 2], x[len(x) // 2:]
    fresh = [equal_bits(test, fit, b) for b in (4, 6)]
    stale = [equal_bits(test, earlier, b) for b in (4, 6)] if earlier is not None else [float("nan")] * 2
    print(f"| {step} | {boundary} | {name} | {ranks[0]} | {ranks[1]} | {ranks[2]} | {formula[0]:.2f} | {formula[1]:.2f} |"
          f" {fresh[0]:.2f} | {fresh[1]:.2f} | {stale[0]:.2f} | {stale[1]:.2f} |", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tokens")
    options.add_argument("--width", type=int, default=256)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--seconds", type=float, default=150, help="of training; visits come on top")
    options.add_argument("--visits", type=int, default=3)
    options.add_argument("--samples", type=int, default=48)
    o = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rows = torch.tensor(array.array("H", pathlib.Path(o.tokens).read_bytes()))
    rows = rows[: len(rows) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    probes, rows = rows[: o.samples], rows[o.samples:]
    model = Gpt(o.width)
    optimiser = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    references, before = {}, {}
    print("| step | boundary | what | 90 % | 99 % | 99.9 % | bits for 4 | for 6 | measured 4 | 6 | older basis 4 | 6 |")
    print("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    spent, step, visit, losses = 0.0, 0, 0, []
    while visit < o.visits:
        if spent >= (visit + 1) * o.seconds / o.visits:
            visit += 1
            boundaries = []
            model.loss(probes, boundaries).backward()
            for i, tensor in enumerate(boundaries):
                x = tensor.detach().reshape(-1, o.width)
                anchor = (F.embedding(probes[:, :-1], model.tokens) + model.positions).detach().reshape(-1, o.width)
                rest = {"x": x, "x - anchor": x - anchor, "gradient": tensor.grad.reshape(-1, o.width)}
                if i in references:
                    rest["delta"] = x - references[i]
                references[i] = plain(x, 8) if i not in references else references[i] + plain(rest["delta"], 4)
                for name, values in rest.items():
                    line(step, i, name, values, before.get((i, name)))
                    before[i, name] = values
            model.zero_grad()
        begin = time.time()
        ids = rows[torch.randint(len(rows), (o.batch,))]
        for group in optimiser.param_groups:
            group["lr"] = 6e-4 * min(1, (step + 1) / 20)
        loss = model.loss(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
        step += 1
        spent += time.time() - begin
    print(f"\n{step} steps of {o.batch} samples, width {o.width}; loss {losses[0]:.3f} at first, {sum(losses[-20:]) / len(losses[-20:]):.3f} at the end")


if __name__ == "__main__":
    main()
