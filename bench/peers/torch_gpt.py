"""The peer of bench/train_bench.cpp: the same GPT in PyTorch eager mode, timed the same way.

    torch_gpt.py LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS

Written as PyTorch users write it: nn modules, F.cross_entropy, clip_grad_norm_, torch.optim.AdamW
with decay on matrices only, zero_grad(set_to_none=True). AdamW runs with foreach=True where that is
faster: both are timed, and the better one counts.
"""

import json
import math
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width, heads, tokens, dropout):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("future", torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1))

    def attend(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.c_attn(x).split(d, 2))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(d // self.heads))
        p = self.drop(F.softmax(scores.masked_fill(self.future[:t, :t], float("-inf")), -1))
        return self.attn_proj((p @ v).transpose(1, 2).contiguous().view(b, t, d))

    def forward(self, x):
        x = x + self.drop(self.attend(self.ln_1(x)))
        return x + self.drop(self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")))


class TorchGpt(nn.Module):
    def __init__(self, layers, width, heads, tokens, vocabulary, dropout):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(Layer(width, heads, tokens, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def optimiser(model, foreach):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), foreach=foreach)


def measure(arguments, foreach):
    layers, width, heads, tokens, vocabulary, batch = map(int, arguments[:6])
    dropout, steps = float(arguments[6]), int(arguments[7])
    torch.manual_seed(1)
    model = TorchGpt(layers, width, heads, tokens, vocabulary, dropout)
    adamw = optimiser(model, foreach)
    times = []
    for i in range(steps + 2):
        ids = torch.randint(vocabulary, (batch, tokens + 1))
        begin = time.perf_counter()
        model(ids[:, :-1], ids[:, 1:]).backward()
        after_pass = time.perf_counter()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        after_norm = time.perf_counter()
        adamw.step()
        after_update = time.perf_counter()
        adamw.zero_grad(set_to_none=True)
        end = time.perf_counter()
        if i >= 2:
            times.append([after_pass - begin, after_norm - after_pass, after_update - after_norm, end - begin])
    columns = [[1e3 * t for t in column] for column in zip(*times)]
    total = columns[3]
    return {"threads": torch.get_num_threads(), "foreach": foreach,
            "pass_ms": statistics.median(columns[0]), "norm_ms": statistics.median(columns[1]),
            "adamw_ms": statistics.median(columns[2]), "step_ms": statistics.median(total),
            "step_ms_least": min(total), "step_ms_most": max(total),
            "tokens_per_second": 1e3 * batch * tokens / statistics.median(total)}


def main():
    if len(sys.argv) != 9:
        sys.exit(__doc__)
    torch.set_flush_denormal(True)
    plain = measure(sys.argv[1:], False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    best = min(plain, measure(sys.argv[1:], True), key=lambda r: r["step_ms"])
    print(json.dumps({**best, "peak_mb": peak}))


if __name__ == "__main__":
    main()
