"""The peer of data-parallel `laconic train`: the GPT of torch_train.py under DistributedDataParallel over gloo.

    torch_ddp.py --steps N [--warmup N] [--hook none|fp16|powersgd] ...    one rank; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT say which
    torch_ddp.py --make-weights FOLDER ...                                 no training: initial weights as a Hugging Face GPT-2 folder

Rank 0 prints one line of JSON. Steps that warm up are not timed: DDP orders its buckets anew after the first,
and PowerSGD begins after --powersgd-start of them. Written as users of DDP write it: backward overlaps with
the all-reduce of finished buckets, gradients are averaged, clipped, and AdamW runs on every rank.

With --data PREFIX (a dataset of `laconic prepare`) sample s is tokens [s T, s T + T] and step i takes samples i B to
(i + 1) B, the r-th part of them on rank r: what `laconic train` does with data.shuffle = false. Without it tokens are
random, and the loss means nothing.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import struct
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from torch_train import TorchGpt, optimiser


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 6), ("width", 384), ("heads", 6), ("context", 128), ("vocabulary", 8192), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2, help="steps before those that are timed")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--hook", choices=["none", "fp16", "powersgd"], default="none")
    parser.add_argument("--rank", type=int, default=16, help="of PowerSGD's factors")
    parser.add_argument("--powersgd-start", type=int, default=2, help="steps before PowerSGD begins")
    parser.add_argument("--bucket-mb", type=float, default=25, help="of gradients that are reduced together; powersgd: all of them")
    parser.add_argument("--data", help="PREFIX of a prepared dataset")
    parser.add_argument("--weights", help="Hugging Face GPT-2 folder to start from")
    parser.add_argument("--make-weights", metavar="FOLDER")
    parser.add_argument("--interface", default="eth0", help="whose counters tell the bytes")
    return parser.parse_args()


def names(model):
    """Hugging Face's name of each parameter, and whether it is stored transposed there."""
    places = {"ln_1": "ln_1", "ln_2": "ln_2", "c_attn": "attn.c_attn", "attn_proj": "attn.c_proj", "c_fc": "mlp.c_fc",
              "mlp_proj": "mlp.c_proj"}
    for name, parameter in model.named_parameters():
        words = name.split(".")
        if words[0] != "layers":
            yield name, parameter, False
        else:
            is_linear = words[2] not in ("ln_1", "ln_2") and words[3] == "weight"
            yield f"h.{words[1]}.{places[words[2]]}.{words[3]}", parameter, is_linear


def write_weights(model, options):
    folder = pathlib.Path(options.make_weights)
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {}, b""
    for name, parameter, is_transposed in names(model):
        tensor = (parameter.detach().t() if is_transposed else parameter.detach()).contiguous()
        bytes_ = tensor.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
        "n_layer": options.layers, "n_embd": options.width, "n_head": options.heads, "n_positions": options.context,
        "n_ctx": options.context, "n_inner": None, "vocab_size": options.vocabulary, "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True}, indent=2))


def read_weights(model, folder):
    file = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + length])
    with torch.no_grad():
        for name, parameter, is_transposed in names(model):
            begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
            tensor = torch.from_numpy(numpy.frombuffer(file[begin:end], dtype="<f4").copy()).view(header[name]["shape"])
            parameter.copy_(tensor.t() if is_transposed else tensor)


def read_tokens(prefix):
    """All tokens; the type is in the index (byte 17), after magic and version."""
    kinds = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
    with open(prefix + ".idx", "rb") as index:
        kind = index.read(18)[17]
    return numpy.memmap(prefix + ".bin", dtype=kinds[kind], mode="r")


def batches(options, rank, ranks):
    """This rank's part of every batch."""
    part, span = options.batch // ranks, options.context
    tokens = read_tokens(options.data) if options.data else None
    generator = torch.Generator().manual_seed(1000 + rank)
    samples = (len(tokens) - 1) // span if options.data else 0
    for step in range(options.warmup + options.steps):
        if tokens is None:
            ids = torch.randint(options.vocabulary, (part, span + 1), generator=generator)
        else:
            first = step * options.batch + rank * part
            rows = [tokens[s % samples * span:][:span + 1] for s in range(first, first + part)]
            ids = torch.from_numpy(numpy.stack(rows).astype("int64"))
        yield ids[:, :-1], ids[:, 1:]


def register_hook(model, options):
    if options.hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif options.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=options.rank,
                                            start_powerSGD_iter=options.powersgd_start)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def counters(interface):
    folder = pathlib.Path("/sys/class/net", interface, "statistics")
    return [int((folder / name).read_text()) for name in ("tx_bytes", "rx_bytes")] if folder.exists() else [0, 0]


def train(model, options, rank, ranks):
    adamw = optimiser(model, True)
    for group in adamw.param_groups:
        group["lr"] = options.lr
    times, losses, before = [], [], counters(options.interface)
    for step, (inputs, targets) in enumerate(batches(options, rank, ranks)):
        if step == options.warmup:
            dist.barrier()
            before = counters(options.interface)
        begin = time.perf_counter()
        loss = model(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    dist.barrier()  # what other ranks still send counts too
    sent, received = (now - then for now, then in zip(counters(options.interface), before))
    mean, of_all = torch.tensor(losses), torch.tensor([float(sent)], dtype=torch.float64)
    dist.all_reduce(mean)
    dist.all_reduce(of_all)
    return times, (mean / ranks).tolist(), sent / options.steps, received / options.steps, of_all.item() / options.steps


def main():
    options = arguments()
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = TorchGpt(options.layers, options.width, options.heads, options.context, options.vocabulary, 0.0)
    if options.make_weights:
        return write_weights(model, options)
    if options.weights:
        read_weights(model, options.weights)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.batch % ranks:
        raise SystemExit(f"a batch of {options.batch} is not divided by {ranks} ranks")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    if options.hook == "powersgd":
        # Its second all-reduce starts when the first has ended, and over gloo ranks that have several buckets under way start
        # them in different orders, which ends the run. One bucket, and so no overlap, is the only way it works.
        options.bucket_mb = 1024
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    masks = [name for name, _ in model.named_buffers()]  # of bools, which gloo cannot send, and the same everywhere
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, masks)
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True)
    register_hook(model, options)
    times, losses, sent, received, sent_by_all = train(model, options, rank, ranks)
    if rank == 0:
        timed = times[options.warmup:]
        step = statistics.median(timed)
        print(json.dumps({"hook": options.hook, "ranks": ranks, "threads": torch.get_num_threads(), "bucket_mb": options.bucket_mb,
                          "step_ms": 1e3 * step, "step_ms_least": 1e3 * min(timed), "step_ms_most": 1e3 * max(timed),
                          "tokens_per_second": options.batch * options.context / step,
                          "loss": losses[-1], "losses": losses, "seconds": times, "sent_bytes_per_step": sent,
                          "received_bytes_per_step": received, "sent_bytes_per_step_all": sent_by_all,
                          "versions": f"PyTorch {torch.__version__}, Python {platform.python_version()}"}), flush=True)
    dist.barrier()
    # All is said. Taking gloo's threads down sometimes aborts the process (PyTorch 1.13: "terminate called without an active
    # exception"), and the run would count as failed.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
