"""The peer of bench/gpu_bench.cpp: the same models in PyTorch on a GPU, timed the same way.

    torch_gpu.py FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH PRECISION eager|compiled STEPS

FAMILY is gpt, llama (a quarter of the heads have keys) or bert (with two classes). Written as PyTorch users write it:
float32 parameters, autocast to bfloat16, scaled_dot_product_attention, F.cross_entropy, clip_grad_norm_, fused AdamW with decay
on matrices only. The loss of every step is read, as a trainer's log does, when the next one has been asked for.
"""

import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class GptLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(y, self.heads) for y in self.qkv(self.norm_1(x)).split(x.shape[2], 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, tokens, vocabulary):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(GptLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    @staticmethod
    def batch(batch, tokens, vocabulary):
        ids = torch.randint(vocabulary, (batch, tokens + 1), device="cuda")
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def rotated(x, cosines, sines):
    half = x.shape[-1] // 2
    return x * cosines + torch.cat((-x[..., half:], x[..., :half]), -1) * sines


class LlamaLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, keys = heads, width // 4
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v = (nn.Linear(width, n, bias=False) for n in (width, keys, keys))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cosines, sines):
        a = self.norm_1(x)
        q = rotated(heads_of(self.q(a), self.heads), cosines, sines)
        k = rotated(heads_of(self.k(a), self.heads // 4), cosines, sines)
        v = heads_of(self.v(a), self.heads // 4)
        mixed = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        m = self.norm_2(x)
        return x + self.down(F.silu(self.gate(m)) * self.up(m))


class Llama(nn.Module):
    batch = staticmethod(Gpt.batch)

    def __init__(self, layers, width, heads, tokens, vocabulary):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)
        h = width // heads
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** (-torch.arange(0, h, 2).float() / h))
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin())

    def forward(self, ids, targets):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, mask):
        q, k, v = (heads_of(m(x), self.heads) for m in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm_1(x + self.out(mixed.transpose(1, 2).reshape(x.shape)))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, tokens, vocabulary):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, width) for n in (vocabulary, tokens, 2))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids, types, length, label):
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(positions) + self.types(types))
        mask = (positions[None, :] < length)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return F.cross_entropy(self.head(torch.tanh(self.pooler(x[:, 0]))), label)

    @staticmethod
    def batch(batch, tokens, vocabulary):
        ids = torch.randint(vocabulary, (batch, tokens), device="cuda")
        return (ids, torch.zeros_like(ids), torch.randint(tokens // 2, tokens + 1, (batch, 1), device="cuda"),
                torch.randint(2, (batch,), device="cuda"))


MODELS = {"gpt": Gpt, "llama": Llama, "bert": Bert}
WARM_UP = 10


def main():
    if len(sys.argv) != 11 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    layers, width, heads, tokens, vocabulary, batch = map(int, sys.argv[2:8])
    precision, mode, steps = sys.argv[8], sys.argv[9], int(sys.argv[10])
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    model = MODELS[sys.argv[1]](layers, width, heads, tokens, vocabulary).cuda()
    for p in model.parameters():
        if p.dim() >= 2:
            nn.init.normal_(p, std=0.02)
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    fields = model.batch(batch, tokens, vocabulary)
    forward = torch.compile(model) if mode == "compiled" else model
    is_short = precision == "bfloat16"

    waiting = []  # losses that nobody has read

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=is_short):
            loss = forward(*fields)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        waiting.append(loss.detach())
        return waiting.pop(0).item() if len(waiting) > 1 else None

    first = loss = None
    for _ in range(WARM_UP):
        loss = step()
        first = loss if first is None else first
    torch.cuda.synchronize()
    begin, times = time.perf_counter(), []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        times.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    mean = 1e3 * (time.perf_counter() - begin) / steps
    print(json.dumps({"step_ms": mean, "step_ms_median": statistics.median(times),
                      "tokens_per_second": 1e3 * batch * tokens / mean, "samples_per_second": 1e3 * batch / mean,
                      "peak_mb": torch.cuda.max_memory_allocated() / 1e6,
                      "reserved_mb": torch.cuda.max_memory_reserved() / 1e6, "first_loss": first, "last_loss": loss}))


if __name__ == "__main__":
    main()
