"""The peer of tensor-parallel `laconic train`: the GPT of torch_train.py cut as Megatron-LM cuts it (1-D), over gloo.

    torch_tensor.py --steps N [--warmup N] ...    one rank; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT say which
    torch_tensor.py --make-weights FOLDER ...     no training: initial weights as a Hugging Face GPT-2 folder

Rank 0 prints one line of JSON. A rank has some heads and a part of each feed-forward net: maps into a branch are cut by outputs, maps
out of it by inputs, and their outputs are all-reduced, in place (g). Backward all-reduces the gradient of a branch's
input (f), while the gradient of the map's weights is computed, as Megatron-LM does. The table is cut by tokens: look-ups are all-reduced, and the
loss needs the largest logit, the sum of exponentials and the logit of the target from all ranks, the last two at once. The norm of the gradient
counts what all ranks hold once. AdamW runs with foreach.

Weights and batches are those of torch_ddp.py, which all ranks read alike: with --weights and --data losses can be compared
with those of `laconic train` with data.shuffle = false.
"""

import json
import math
import os
import platform
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function

import torch_ddp
from torch_train import TorchGpt, optimiser


class ColumnMap(Function):
    """y = x w^T + b of this rank's outputs. Backward sums the gradient of x over ranks (f)."""

    @staticmethod
    def forward(context, x, weight, bias):
        context.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        d_x = gradient.mm(weight)
        under_way = dist.all_reduce(d_x, async_op=True)
        d_weight, d_bias = gradient.t().mm(x), gradient.sum(0)
        under_way.wait()
        return d_x, d_weight, d_bias


class SumOverRanks(Function):
    """The sum of all ranks' parts (g); each part has the gradient of the sum."""

    @staticmethod
    def forward(context, part):
        context.mark_dirty(part)
        dist.all_reduce(part)
        return part

    @staticmethod
    def backward(context, gradient):
        return gradient


class VocabularyLoss(Function):
    """Mean cross entropy of x and this rank's rows of the table, from `first` on."""

    @staticmethod
    def forward(context, x, table, targets, first):
        logits = x.mm(table.t())
        largest = logits.amax(1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits.sub_(largest[:, None])
        local = targets - first
        is_here = (local >= 0) & (local < table.shape[0])
        rows = torch.arange(len(targets))
        local = torch.where(is_here, local, 0)
        sums = torch.stack((torch.where(is_here, logits[rows, local], 0.0), torch.zeros(len(targets))))
        logits.exp_()
        torch.sum(logits, 1, out=sums[1])
        dist.all_reduce(sums)
        logits.div_(sums[1, :, None])  # probabilities
        context.save_for_backward(x, table, logits, local, is_here)
        return (sums[1].log() - sums[0]).mean()

    @staticmethod
    def backward(context, gradient):
        x, table, d_logits, local, is_here = context.saved_tensors
        d_logits[torch.arange(len(local)), local] -= is_here.to(d_logits.dtype)
        d_logits.mul_(gradient / len(local))
        d_x = d_logits.mm(table)
        under_way = dist.all_reduce(d_x, async_op=True)
        d_table = d_logits.t().mm(x)
        under_way.wait()
        return d_x, d_table, None, None


def parameter(tensor):
    return nn.Parameter(tensor.detach().clone())


def part(tensor, dim, rank, ranks):
    return tensor.chunk(ranks, dim)[rank]


class TensorLayer(nn.Module):
    def __init__(self, whole, rank, ranks):
        super().__init__()
        self.heads = whole.heads // ranks
        self.ln_1, self.ln_2 = whole.ln_1, whole.ln_2
        # Of queries, keys and values the same heads each.
        of_heads = lambda x: torch.cat([part(y, 0, rank, ranks) for y in x.chunk(3, 0)])
        self.qkv_weight, self.qkv_bias = (parameter(of_heads(x)) for x in (whole.c_attn.weight, whole.c_attn.bias))
        self.attn_weight = parameter(part(whole.attn_proj.weight, 1, rank, ranks))
        self.attn_bias = parameter(whole.attn_proj.bias)
        self.fc_weight, self.fc_bias = (parameter(part(x, 0, rank, ranks)) for x in (whole.c_fc.weight, whole.c_fc.bias))
        self.mlp_weight = parameter(part(whole.mlp_proj.weight, 1, rank, ranks))
        self.mlp_bias = parameter(whole.mlp_proj.bias)
        self.register_buffer("future", whole.future)

    def attend(self, x, samples):
        tokens, width = x.shape[0] // samples, self.qkv_bias.shape[0] // 3
        qkv = ColumnMap.apply(x, self.qkv_weight, self.qkv_bias).view(samples, tokens, 3 * width)
        q, k, v = (y.view(samples, tokens, self.heads, width // self.heads).transpose(1, 2) for y in qkv.split(width, 2))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(width // self.heads))
        p = F.softmax(scores.masked_fill(self.future[:tokens, :tokens], float("-inf")), -1)
        return (p @ v).transpose(1, 2).reshape(samples * tokens, width)

    def forward(self, x, samples):
        y = self.attend(self.ln_1(x), samples)
        x = x + SumOverRanks.apply(y.mm(self.attn_weight.t())) + self.attn_bias
        y = F.gelu(ColumnMap.apply(self.ln_2(x), self.fc_weight, self.fc_bias), approximate="tanh")
        return x + SumOverRanks.apply(y.mm(self.mlp_weight.t())) + self.mlp_bias


class TensorGpt(nn.Module):
    def __init__(self, whole, rank, ranks):
        super().__init__()
        self.wte = parameter(part(whole.wte.weight, 0, rank, ranks))
        self.first = rank * self.wte.shape[0]
        self.wpe, self.ln_f = whole.wpe, whole.ln_f
        self.layers = nn.ModuleList(TensorLayer(layer, rank, ranks) for layer in whole.layers)

    def embed(self, ids):
        local = ids.reshape(-1) - self.first
        is_elsewhere = (local < 0) | (local >= self.wte.shape[0])
        rows = F.embedding(local.masked_fill(is_elsewhere, 0), self.wte).masked_fill(is_elsewhere[:, None], 0.0)
        return SumOverRanks.apply(rows)

    def forward(self, ids, targets):
        samples, tokens = ids.shape
        x = self.embed(ids).view(samples, tokens, -1) + self.wpe(torch.arange(tokens))
        x = x.view(samples * tokens, -1)
        for layer in self.layers:
            x = layer(x, samples)
        return VocabularyLoss.apply(self.ln_f(x), self.wte, targets.reshape(-1), self.first)

    def is_cut(self, name):
        return name == "wte" or name.endswith(("qkv_weight", "qkv_bias", "attn_weight", "fc_weight", "fc_bias", "mlp_weight"))


def clip(model, cut, whole, limit):
    """Scales gradients so that their norm, that of the model as one, is at most `limit`."""
    norm = lambda ps: torch.stack(torch._foreach_norm([p.grad for p in ps])).square().sum()
    square = norm(cut)
    dist.all_reduce(square)
    scale = limit / ((square + norm(whole)).sqrt() + 1e-6)
    if scale < 1:
        torch._foreach_mul_([p.grad for p in cut + whole], scale.item())


def train(model, options):
    adamw = optimiser(model, True)
    for group in adamw.param_groups:
        group["lr"] = options.lr
    cut = [p for name, p in model.named_parameters() if model.is_cut(name)]
    whole = [p for name, p in model.named_parameters() if not model.is_cut(name)]
    times, losses, before = [], [], torch_ddp.counters(options.interface)
    for step, (inputs, targets) in enumerate(torch_ddp.batches(options, 0, 1)):  # every rank has all samples
        if step == options.warmup:
            dist.barrier()
            before = torch_ddp.counters(options.interface)
        begin = time.perf_counter()
        loss = model(inputs, targets)
        loss.backward()
        clip(model, cut, whole, options.clip)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    dist.barrier()  # what other ranks still send counts too
    sent, received = (now - then for now, then in zip(torch_ddp.counters(options.interface), before))
    return times, losses, sent / options.steps, received / options.steps


def main():
    options = torch_ddp.arguments()
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    whole = TorchGpt(options.layers, options.width, options.heads, options.context, options.vocabulary, 0.0)
    if options.make_weights:
        for p in whole.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)
        return torch_ddp.write_weights(whole, options)
    if options.weights:
        torch_ddp.read_weights(whole, options.weights)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in ("heads", "vocabulary"):
        if getattr(options, name) % ranks:
            raise SystemExit(f"{name} = {getattr(options, name)} is not divided by {ranks} ranks")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    model = TensorGpt(whole, rank, ranks)
    times, losses, sent, received = train(model, options)
    if rank == 0:
        timed = times[options.warmup:]
        step = statistics.median(timed)
        print(json.dumps({"ranks": ranks, "threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in model.parameters()),
                          "step_ms": 1e3 * step, "step_ms_least": 1e3 * min(timed), "step_ms_most": 1e3 * max(timed),
                          "tokens_per_second": options.batch * options.context / step, "loss": losses[-1], "losses": losses,
                          "seconds": times, "sent_bytes_per_step": sent, "received_bytes_per_step": received,
                          "versions": f"PyTorch {torch.__version__}, Python {platform.python_version()}"}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # as torch_ddp.py does, for its reason


if __name__ == "__main__":
    main()
