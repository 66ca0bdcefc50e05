"""The peer of `[embedding.rows]`: models with large tables under DistributedDataParallel over gloo, their tables in one of three ways.

    torch_embedding.py --model JSON --data PREFIX --tables dense|sparse|rows --batch N --steps N    one rank; RANK, WORLD_SIZE, ... say which

JSON is an object of `laconic train`'s keys of [model] and [task], so that both have the same sizes: an lstm with a sampled softmax, a
gnmt, a seq2seq without shared tables, or a bert that finds spans. Rank 0 prints one line of JSON.

    dense    nn.Embedding; DDP sums whole tables, AdamW changes all rows
    sparse   nn.Embedding(sparse=True); DDP gathers coalesced gradients of rows (gloo's sparse all-reduce), SparseAdam changes these
    rows     by hand, as fast as it could be made: rows are looked up once each, their gradients leave during backward in a group of their own,
             ids ahead of them as int32, everybody sums them in one index_add, and an Adam of rows changes them

Everything else is DDP with AdamW. With --data PREFIX step i takes samples i B to (i + 1) B, the r-th part of them on rank r: what `laconic train` does with
data.shuffle = false. Samples are framed, and negatives drawn, before the clock runs. No gradient is clipped.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import struct
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from torch_ddp import counters, read_tokens
from torch_train import BertLayer, TorchGnmt, TorchSeq2Seq

LEARNING_RATE, BETAS, EPSILON = 1e-3, (0.9, 0.95), 1e-8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=json.loads, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tables", choices=["dense", "sparse", "rows"], default="dense")
    parser.add_argument("--batch", type=int, required=True, help="of all ranks")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2, help="steps before those that are timed")
    parser.add_argument("--interface", default="eth0", help="whose counters tell the bytes")
    return parser.parse_args()


# --- tables


class RowTable(nn.Module):
    """A table outside of DDP whose rows are looked up once each, and whose gradients of rows are gathered."""

    def __init__(self, rows, width, group, most):
        super().__init__()
        self.group, self.most = group, most  # ids of one look-up
        self.weight = torch.empty(rows, width).normal_(std=0.02)
        self.moment1, self.moment2 = torch.zeros(rows, width), torch.zeros(rows, width)
        self.count = 0

    def forward(self, ids):
        unique, inverse = torch.unique(ids, return_inverse=True)
        mine = torch.full((self.most,), -1, dtype=torch.int32)
        mine[: len(unique)] = unique
        self.ids = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        self.ids_work = dist.all_gather(self.ids, mine, group=self.group, async_op=True)
        leaf = self.weight.index_select(0, unique).requires_grad_()
        leaf.register_hook(self.send)
        return F.embedding(inverse, leaf)

    def send(self, gradient):
        self.ids_work.wait()
        self.ids = [one[one >= 0].long() for one in self.ids]
        most = max(map(len, self.ids))
        mine = F.pad(gradient, (0, 0, 0, most - len(gradient)))
        self.gradients = [torch.empty_like(mine) for _ in self.ids]
        self.work = dist.all_gather(self.gradients, mine, group=self.group, async_op=True)

    def step(self):
        self.work.wait()
        rows, inverse = torch.unique(torch.cat(self.ids), return_inverse=True)
        g = torch.zeros(len(rows), self.weight.shape[1])
        g.index_add_(0, inverse, torch.cat([one[: len(ids)] for one, ids in zip(self.gradients, self.ids)]), alpha=1 / len(self.ids))
        self.count += 1
        (beta1, beta2), corrected2 = BETAS, 1 - BETAS[1] ** self.count
        m = self.moment1.index_select(0, rows).lerp_(g, 1 - beta1)
        v = self.moment2.index_select(0, rows).mul_(beta2).addcmul_(g, g, value=1 - beta2)
        self.moment1.index_copy_(0, rows, m)
        self.moment2.index_copy_(0, rows, v)
        step = m.div_(v.sqrt().div_(corrected2**0.5).add_(EPSILON))
        self.weight.index_add_(0, rows, step, alpha=-LEARNING_RATE / (1 - beta1**self.count))


def table_maker(options, ranks):
    way, group = options.tables, dist.new_group()
    most = options.batch // ranks * options.model["model.context"] + options.model.get("task.sampled", 0)
    if way == "rows":
        return lambda rows, width: RowTable(rows, width, group, most)
    return lambda rows, width: nn.Embedding(rows, width, sparse=way == "sparse")


# --- models


class LanguageModel(nn.Module):
    """An LSTM with a linear map behind it, and a softmax over targets and drawn words."""

    def __init__(self, of, table):
        super().__init__()
        rows, width, cells = of["model.vocabulary"], of["model.width"], of["model.hidden"]
        self.words = table(rows, width)
        self.body, self.down = nn.LSTM(width, cells, of["model.layers"], batch_first=True), nn.Linear(cells, width)
        self.softmax, self.bias = table(rows, width), table(rows, 1)

    def forward(self, ids, targets, negatives, log_expected):
        x = self.down(self.body(self.words(ids))[0]).flatten(0, 1)
        targets = targets.flatten()
        asked = torch.cat([targets, negatives])
        weight, bias = self.softmax(asked), self.bias(asked).squeeze(1) - log_expected
        count = len(targets)
        true = (x * weight[:count]).sum(1) + bias[:count]
        others = torch.addmm(bias[count:], x, weight[count:].t())
        others = others.masked_fill(targets[:, None] == negatives, float("-inf"))
        return F.cross_entropy(torch.cat([true[:, None], others], 1), torch.zeros(count, dtype=torch.long))


class Gnmt(TorchGnmt):
    def __init__(self, of, table):
        super().__init__(of["model.layers"], of["model.width"], 0, of["model.context"], of["model.vocabulary"], 0.0)
        self.source, self.target = (table(of["model.vocabulary"], of["model.width"]) for _ in range(2))


class Transformer(TorchSeq2Seq):
    def __init__(self, of, table):
        rows, width, layers = of["model.vocabulary"], of["model.width"], of["model.layers"]
        super().__init__(layers, width, of["model.heads"], of["model.context"], 1, 0.0)
        self.body = nn.Transformer(width, of["model.heads"], layers, layers, 4 * width, 0.0, batch_first=True)
        self.source, self.target, self.table = table(rows, width), table(rows, width), None
        self.head = nn.Linear(width, rows, bias=False)

    def place(self, rows):
        return rows * self.width**0.5 + self.positions[: rows.shape[1]]

    def forward(self, source, length, ids, targets):
        padding, t = torch.arange(source.shape[1])[None, :] >= length, ids.shape[1]
        y = self.body(self.place(self.source(source)), self.place(self.target(ids)), tgt_mask=self.future[:t, :t],
                      src_key_padding_mask=padding, memory_key_padding_mask=padding)
        return F.cross_entropy(self.head(y).flatten(0, 1), targets.flatten(), label_smoothing=0.1)


class Bert(nn.Module):
    def __init__(self, of, table):
        super().__init__()
        width = of["model.width"]
        self.words, self.positions, self.types = table(of["model.vocabulary"], width), nn.Embedding(of["model.context"], width), nn.Embedding(2, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(BertLayer(width, of["model.heads"], 0.0) for _ in range(of["model.layers"]))

    def forward(self, ids, types, length, starts, ends):
        t = ids.shape[1]
        x = self.norm(self.words(ids) + self.positions(torch.arange(t)) + self.types(types))
        mask = (torch.arange(t)[None, :] >= length).float().mul(-1e30)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        logits = self.head(x) + mask[:, :, None]
        return (F.cross_entropy(logits[:, :, 0], starts) + F.cross_entropy(logits[:, :, 1], ends)) / 2


MODELS = {"lstm": LanguageModel, "gnmt": Gnmt, "seq2seq": Transformer, "bert": Bert}


# --- samples


def negatives_of(rows, count, targets, generator):
    """Different words by the log-uniform law, and log of how often they and targets are expected among the draws."""
    law = lambda words: numpy.log((words + 2.0) / (words + 1.0)) / numpy.log(rows + 1.0)
    found, draws = {}, 0
    while len(found) < count:
        for word in (numpy.exp(generator.random(count) * numpy.log(rows + 1.0)) - 1).astype("int64").clip(0, rows - 1):
            if len(found) == count:
                break
            draws += 1
            found.setdefault(int(word))
    words = numpy.fromiter(found, dtype="int64")
    asked = numpy.concatenate([targets.numpy().ravel(), words])
    expected = -numpy.expm1(draws * numpy.log1p(-law(asked)))
    return torch.from_numpy(words), torch.from_numpy(numpy.log(expected)).float()


def batches_of_text(options, rank, ranks):
    tokens, span, part = read_tokens(options.data), options.model["model.context"], options.batch // ranks
    generator = numpy.random.default_rng(1000 + rank)
    for step in range(options.warmup + options.steps):
        first = step * options.batch + rank * part
        rows = numpy.stack([tokens[s * span:][: span + 1] for s in range(first, first + part)]).astype("int64")
        ids = torch.from_numpy(rows)
        targets = ids[:, 1:].contiguous()
        yield (ids[:, :-1].contiguous(), targets,
               *negatives_of(options.model["model.vocabulary"], options.model["task.sampled"], targets, generator))


def records_of(prefix):
    """Two texts of every record, labels, and ids of special tokens (docs/data.md)."""
    tokens, index = read_tokens(prefix), pathlib.Path(prefix + ".idx").read_bytes()
    sequences = struct.unpack_from("<Q", index, 18)[0]
    ends = numpy.frombuffer(index, "<i4", sequences, 34).cumsum()
    texts = numpy.split(numpy.asarray(tokens).astype("int64"), ends[:-1])
    labels = pathlib.Path(prefix + ".labels")
    special = json.loads(pathlib.Path(prefix + ".json").read_text())["special"]
    found = numpy.frombuffer(labels.read_bytes(), "<f8").astype("int64").reshape(-1, 2) if labels.exists() else None
    return list(zip(texts[0::2], texts[1::2])), found, special


def padded(rows, filler):
    """At a multiple of 8 tokens, as task.pad = "longest" does."""
    length = -(-max(map(len, rows)) // 8) * 8
    return torch.tensor([list(row) + [filler] * (length - len(row)) for row in rows])


def batches_of_translations(options, rank, ranks):
    texts, _, special = records_of(options.data)
    part, most = options.batch // ranks, options.model["model.context"] - 1
    begin, end, filler = special.get("bos", special.get("cls")), special.get("eos", special.get("sep")), special["pad"]
    for step in range(options.warmup + options.steps):
        first = step * options.batch + rank * part
        some = texts[first: first + part]
        sources = [[*source[:most], end] for source, _ in some]
        yield (padded(sources, filler), torch.tensor([[len(s)] for s in sources]), padded([[begin, *t[:most]] for _, t in some], filler),
               padded([[*t[:most], end] for _, t in some], -100))


def batches_of_spans(options, rank, ranks):
    texts, labels, special = records_of(options.data)
    part, context = options.batch // ranks, options.model["model.context"]
    for step in range(options.warmup + options.steps):
        first = step * options.batch + rank * part
        ids, types, starts, ends = [], [], [], []
        for (question, text), (start, end) in zip(texts[first: first + part], labels[first: first + part]):
            room = context - 3 - len(question)
            ids.append([special["cls"], *question, special["sep"], *text[:room], special["sep"]])
            types.append([0] * (len(question) + 2) + [1] * (len(ids[-1]) - len(question) - 2))
            starts.append(start + len(question) + 2 if end < room else -100)
            ends.append(end + len(question) + 2 if end < room else -100)
        yield (padded(ids, special["pad"]), padded(types, 0), torch.tensor([[len(row)] for row in ids]), torch.tensor(starts), torch.tensor(ends))


BATCHES = {"lstm": batches_of_text, "gnmt": batches_of_translations, "seq2seq": batches_of_translations, "bert": batches_of_spans}


# --- training


def optimisers_of(model):
    """Of what DDP has summed: AdamW, and SparseAdam for tables that are sparse."""
    sparse = [m.weight for m in model.modules() if isinstance(m, nn.Embedding) and m.sparse]
    others = [p for p in model.parameters() if all(p is not s for s in sparse)]
    found = [torch.optim.AdamW(others, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, weight_decay=0.0, foreach=True)]
    return found + ([torch.optim.SparseAdam(sparse, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)] if sparse else [])


def train(model, batches, options):
    optimisers, tables = optimisers_of(model), [m for m in model.modules() if isinstance(m, RowTable)]
    times, losses, before = [], [], counters(options.interface)
    for step, fields in enumerate(batches):
        if step == options.warmup:
            dist.barrier()
            before = counters(options.interface)
        begin = time.perf_counter()
        loss = model(*fields)
        loss.backward()
        for table in tables:
            table.step()
        for one in optimisers:
            one.step()
            one.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    dist.barrier()  # what other ranks still send counts too
    sent, _ = (now - then for now, then in zip(counters(options.interface), before))
    mean = torch.tensor(losses)
    dist.all_reduce(mean)
    return times, (mean / dist.get_world_size()).tolist(), sent / options.steps


def main():
    options = arguments()
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.batch % ranks:
        raise SystemExit(f"a batch of {options.batch} is not divided by {ranks} ranks")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    batches = list(BATCHES[options.model["model.kind"]](options, rank, ranks))
    dist.init_process_group("gloo")
    model = MODELS[options.model["model.kind"]](options.model, table_maker(options, ranks))
    for p in model.parameters():
        if p.dim() >= 2:
            nn.init.normal_(p, std=0.02)
    masks = [name for name, _ in model.named_buffers()]  # the same everywhere
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, masks)
    # All ranks have drawn the same weights: hundreds of megabytes need not be sent before the first step.
    nn.parallel.distributed._sync_module_states = lambda *_, **__: None
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    times, losses, sent = train(parallel, batches, options)
    if rank == 0:
        step = statistics.median(times[options.warmup:])
        print(json.dumps({"tables": options.tables, "step_ms": 1e3 * step, "losses": losses, "seconds": times, "sent_bytes_per_step": sent,
                          "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
                          "versions": f"PyTorch {torch.__version__}, Python {platform.python_version()}"}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # as torch_ddp.py does, for its reason


if __name__ == "__main__":
    main()
