#!/usr/bin/env python3
"""Predicts steps of 64 tensor-parallel ranks by method and grid: bench/tensor_64.py > bench/results/DATE-tensor-64.md

Nothing is measured: all numbers are what `laconic layout --search 64` says. Takes seconds, and needs neither ranks nor libtorch.
"""

import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LACONIC = ROOT / "build/bin/laconic"
RANKS = 64
WIDTHS = (3072, 4096, 6144, 8192)
MODEL = {"layers": 24, "heads": 64, "context": 512, "vocabulary": 1024}
BATCHES = (64, 16)
RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}
GFLOPS, LATENCY = 10000, "100us"
METHODS = ("1d", "1d-sequence", "2d", "2.5d", "3d")
SHOWN = {("1d", (1, 64, 1)), ("1d-sequence", (1, 64, 1)), ("2d", (8, 8, 1)), ("2.5d", (4, 4, 4)), ("3d", (4, 4, 4))}


def search(folder, width, batch, rate):
    """(method, grid): what is predicted, or None; the fastest first."""
    keys = {**{f"model.{k}": v for k, v in MODEL.items()}, "model.width": width}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([str(LACONIC), "layout", f"{folder}/defaults.toml", *map(str, words), "--batch", str(batch), "--search", str(RANKS), "--rate",
                    rate, "--latency", LATENCY, "--gflops", str(GFLOPS), "--json", f"{folder}/out.json"], check=True, stdout=subprocess.DEVNULL)
    found = json.loads(pathlib.Path(folder, "out.json").read_text())["candidates"]
    return {(c["method"], tuple(c["grid"])): c.get("predicted") for c in found}


def seconds(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def row(name, by_rate, best):
    method, grid = name
    said = {rate: found[name] for rate, found in by_rate.items()}
    one = next(iter(said.values()))
    if one is None:
        return f"| {method} | {' x '.join(map(str, grid))} | cannot be: too few samples | | | | | |"
    times = [f"**{seconds(said[rate]['seconds'])}**" if best[rate] == name else seconds(said[rate]["seconds"]) for rate in RATES]
    return (f"| {method} | {' x '.join(map(str, grid))} | {one['bytes'] / 1e9:.2f} | {one['collectives']:.0f} | {one['memory']['total'] / 1e9:.2f} | "
            f"{' | '.join(times)} |")


def section(folder, width, batch):
    by_rate = {rate: search(folder, width, batch, rate) for rate in RATES}
    best = {rate: next(iter(found)) for rate, found in by_rate.items()}
    names = sorted(SHOWN | set(best.values()), key=lambda name: (METHODS.index(name[0]), name[1]))
    fastest = "; ".join(f"at {RATES[rate]} {method} on {' x '.join(map(str, grid))}" for rate, (method, grid) in best.items())
    return [f"### hidden {width}, {batch} samples", "",
            "| method | grid | GB a rank receives | collectives | GB of memory | " + " | ".join(f"s at {text}" for text in RATES.values()) + " |",
            "|---|---|--:|--:|--:|--:|--:|--:|", *(row(name, by_rate, best) for name in names), "", f"Fastest: {fastest}.", ""]


def main():
    lines = ["# 64 tensor-parallel ranks: predicted", "",
             "**All numbers on this page are predicted, none is measured.** `bench/tensor_64.py` makes it from the plans that ranks would walk "
             "(`laconic layout --search 64`; [how](../../docs/tensor.md#predicted-steps)).", "",
             f"A step of one microbatch, forward, backward, without the update: GPT with {MODEL['layers']} layers, {MODEL['heads']} heads, "
             f"{MODEL['context']} tokens, a vocabulary of {MODEL['vocabulary']} so that layers are what counts, float32, AdamW, nothing recomputed. "
             f"Each rank is assumed to reach {GFLOPS / 1000:.0f} TFLOP/s whatever its matrices are, and to have a full-duplex link of its own of the rate "
             f"given, of which TCP leaves 93.6 %, with a latency of {LATENCY.replace('us', ' us')}. Hidden sizes are those of the papers; their batches, "
             "sequences and machines are not known here and certainly others, so these are no reproductions of their tables. Bold: the "
             "fastest of all methods and grids at that rate. Memory is without the program.", ""]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "defaults.toml").write_text("")
        for batch in BATCHES:
            tokens = batch * MODEL["context"]
            lines += [f"## {batch} samples: {tokens:,} tokens, {tokens / WIDTHS[-1]:.1f} to {tokens / WIDTHS[0]:.1f} times the hidden size", ""]
            for width in WIDTHS:
                lines += section(folder, width, batch)
    print("\n".join(lines), end="")


if __name__ == "__main__":
    main()
