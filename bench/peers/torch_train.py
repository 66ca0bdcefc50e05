"""The peer of bench/train_bench.cpp: the same model in PyTorch eager mode, timed the same way.

    torch_train.py FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS

FAMILY is gpt, llama (two heads of keys), bert, bert-hidden-rows, seq2seq, lstm or gnmt. Written as PyTorch users write it: nn modules,
F.cross_entropy, clip_grad_norm_, torch.optim.AdamW with decay on matrices only, zero_grad(set_to_none=True); the encoder-decoder is
torch.nn.Transformer, an lstm one torch.nn.LSTM with proj_size. A bert computes the logits of all tokens, as Hugging Face's does; bert-hidden-rows those of hidden
tokens alone, as ours does. AdamW runs with foreach=True where that is faster: both are timed, and the better one counts.
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

    def forward(self, ids, targets):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    @staticmethod
    def batch(batch, tokens, vocabulary):
        ids = torch.randint(vocabulary, (batch, tokens + 1))
        return ids[:, :-1], ids[:, 1:]


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotated(x, cosines, sines):
    half = x.shape[-1] // 2
    return x * cosines + torch.cat((-x[..., half:], x[..., :half]), -1) * sines


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, key_heads, hidden, tokens, dropout):
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        keys = width // heads * key_heads
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n, bias=False) for n in (width, keys, keys))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("future", torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1))

    def attend(self, x, cosines, sines):
        b, t, d = x.shape
        h = d // self.heads
        q = rotated(self.q(x).view(b, t, self.heads, h).transpose(1, 2), cosines, sines)
        k = rotated(self.k(x).view(b, t, self.key_heads, h).transpose(1, 2), cosines, sines)
        v = self.v(x).view(b, t, self.key_heads, h).transpose(1, 2)
        k, v = (y.repeat_interleave(self.heads // self.key_heads, 1) for y in (k, v))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(h))
        p = self.drop(F.softmax(scores.masked_fill(self.future[:t, :t], float("-inf")), -1))
        return self.o((p @ v).transpose(1, 2).contiguous().view(b, t, d))

    def forward(self, x, cosines, sines):
        x = x + self.drop(self.attend(self.norm_1(x), cosines, sines))
        y = self.norm_2(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class TorchLlama(nn.Module):
    batch = staticmethod(TorchGpt.batch)

    def __init__(self, layers, width, heads, tokens, vocabulary, dropout):
        super().__init__()
        hidden = (8 * width // 3 + 63) // 64 * 64
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, 2, hidden, tokens, dropout) for _ in range(layers))
        self.norm, self.head, self.drop = RmsNorm(width), nn.Linear(width, vocabulary, bias=False), nn.Dropout(dropout)
        h = width // heads
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** (-torch.arange(0, h, 2).float() / h))
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin())

    def forward(self, ids, targets):
        x = self.drop(self.embed(ids))
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class BertLayer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (m(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for m in (self.q, self.k, self.v))
        p = self.drop(F.softmax(q @ k.transpose(-2, -1) * (1 / math.sqrt(d // self.heads)) + mask, -1))
        x = self.norm_1(x + self.drop(self.o((p @ v).transpose(1, 2).contiguous().view(b, t, d))))
        return self.norm_2(x + self.drop(self.down(F.gelu(self.up(x)))))


class TorchBert(nn.Module):
    only_hidden = False

    def __init__(self, layers, width, heads, tokens, vocabulary, dropout):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, width) for n in (vocabulary, tokens, 2))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, heads, dropout) for _ in range(layers))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, ids, types, length, targets):
        t = ids.shape[1]
        x = self.drop(self.norm(self.words(ids) + self.positions(torch.arange(t)) + self.types(types)))
        mask = (torch.arange(t)[None, :] >= length).float().mul(-1e30)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        if self.only_hidden:
            hidden = targets != -100
            x, targets = x[hidden], targets[hidden]
        logits = F.linear(self.transform_norm(F.gelu(self.transform(x))), self.words.weight, self.bias)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    @staticmethod
    def batch(batch, tokens, vocabulary):
        """Samples of half the context and more, 15 % of their tokens hidden."""
        ids = torch.randint(vocabulary, (batch, tokens))
        length = torch.randint(tokens // 2, tokens + 1, (batch, 1))
        hidden = (torch.rand(batch, tokens) < 0.15) & (torch.arange(tokens)[None, :] < length)
        return ids, torch.zeros_like(ids), length, torch.where(hidden, ids, torch.tensor(-100))


class TorchBertOfHiddenRows(TorchBert):
    only_hidden = True


class TorchSeq2Seq(nn.Module):
    def __init__(self, layers, width, heads, tokens, vocabulary, dropout):
        super().__init__()
        self.table, self.drop, self.width = nn.Embedding(vocabulary, width), nn.Dropout(dropout), width
        self.body = nn.Transformer(width, heads, layers, layers, 4 * width, dropout, batch_first=True, norm_first=True)
        pair = torch.arange(0, width, 2).float()
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** (-pair / width))
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).view(tokens, width))
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(tokens))

    def embed(self, ids):
        return self.drop(self.table(ids) * math.sqrt(self.width) + self.positions[: ids.shape[1]])

    def forward(self, source, length, ids, targets):
        padding = torch.arange(source.shape[1])[None, :] >= length
        y = self.body(self.embed(source), self.embed(ids), tgt_mask=self.future, src_key_padding_mask=padding,
                      memory_key_padding_mask=padding)
        logits = F.linear(y, self.table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), label_smoothing=0.1)

    @staticmethod
    def batch(batch, tokens, vocabulary):
        draw = lambda: torch.randint(vocabulary, (batch, tokens))
        return draw(), torch.randint(tokens // 2, tokens + 1, (batch, 1)), draw(), draw()


class TorchLstm(nn.Module):
    batch = staticmethod(TorchGpt.batch)

    def __init__(self, layers, width, cells, tokens, vocabulary, dropout):
        super().__init__()
        self.table, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(dropout)
        self.body = nn.LSTM(width, cells, layers, batch_first=True, dropout=dropout, proj_size=width if cells > width else 0)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids, targets):
        logits = self.head(self.drop(self.body(self.drop(self.table(ids)))[0]))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class TorchGnmt(nn.Module):
    batch = staticmethod(TorchSeq2Seq.batch)

    def __init__(self, layers, width, _, tokens, vocabulary, dropout):
        super().__init__()
        layer = lambda inputs, both=False: nn.LSTM(inputs, width, batch_first=True, bidirectional=both)
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList([layer(width, True), layer(2 * width)] + [layer(width) for _ in range(layers - 2)])
        self.decoder = nn.ModuleList([layer(width)] + [layer(2 * width) for _ in range(layers - 1)])
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.vector, self.length, self.bias = (nn.Parameter(torch.ones(n)) for n in (width, 1, width))
        self.head, self.drop = nn.Linear(width, vocabulary), nn.Dropout(dropout)

    def forward(self, source, length, ids, targets):
        x, lengths = self.source(source), length.flatten()
        for i, lstm in enumerate(self.encoder):
            packed = nn.utils.rnn.pack_padded_sequence(self.drop(x), lengths, batch_first=True, enforce_sorted=False)
            h, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=source.shape[1])
            x = x + h if i >= 2 else h
        y = self.decoder[0](self.drop(self.target(ids)))[0]
        sums = self.q(y)[:, :, None, :] + self.k(x)[:, None, :, :] + self.bias
        scores = torch.tanh(sums).matmul(self.vector / self.vector.norm() * self.length)
        padding = torch.arange(source.shape[1])[None, :] >= length
        found = torch.softmax(scores.masked_fill(padding[:, None, :], float("-inf")), -1).bmm(x)
        for i, lstm in enumerate(self.decoder[1:], 1):
            h = lstm(self.drop(torch.cat([y, found], 2)))[0]
            y = y + h if i >= 2 else h
        logits = self.head(y)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), label_smoothing=0.1)


MODELS = {"gpt": TorchGpt, "llama": TorchLlama, "bert": TorchBert, "bert-hidden-rows": TorchBertOfHiddenRows,
          "seq2seq": TorchSeq2Seq, "lstm": TorchLstm, "gnmt": TorchGnmt}


def optimiser(model, foreach):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), foreach=foreach)


def measure(arguments, foreach):
    layers, width, heads, tokens, vocabulary, batch = map(int, arguments[1:7])
    dropout, steps = float(arguments[7]), int(arguments[8])
    torch.manual_seed(1)
    model = MODELS[arguments[0]](layers, width, heads, tokens, vocabulary, dropout)
    for p in model.parameters():
        if p.dim() >= 2:
            nn.init.normal_(p, std=0.02)
    adamw = optimiser(model, foreach)
    times = []
    for i in range(steps + 2):
        fields = model.batch(batch, tokens, vocabulary)
        begin = time.perf_counter()
        model(*fields).backward()
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
    if len(sys.argv) != 10 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    torch.set_flush_denormal(True)
    plain = measure(sys.argv[1:], False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    best = min(plain, measure(sys.argv[1:], True), key=lambda r: r["step_ms"])
    print(json.dumps({**best, "peak_mb": peak}))


if __name__ == "__main__":
    main()
