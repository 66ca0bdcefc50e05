#!/usr/bin/env python3
"""A GPT on four data-parallel ranks, updated step by step and block by block (train.update), by rate and codec.

Four hosts of one thread in a lab (docs/lab.md), as root; the model of the lab report's data-parallel part, from random weights. Times
are those of the steps behind the second but for the last, which also waits for what it has left. Losses must be equal, bit
for bit.

    bench/block_update.py [ROUNDS] [REGULAR EXPRESSION of trials, such as 1gbit/raw]
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LACONIC = ROOT / "build/bin/laconic"
MODEL = {"layers": 6, "width": 384, "heads": 6, "context": 128}
CODECS = {"raw": ["dp.gradient.codec=raw"], "8 bits": ["dp.gradient.codec=quantise:bits=8"]}
STEPS = {("100mbit", "raw"): 5, ("100mbit", "8 bits"): 10, ("1gbit", "raw"): 15, ("1gbit", "8 bits"): 15}


def train(folder, rate, codec, update):
    out = pathlib.Path(folder, f"{rate}-{codec}-{update}")
    sets = [f"model.{key}={value}" for key, value in MODEL.items()]
    sets += [f"data.train={folder}/data", "data.shuffle=false", "mesh.dp=4", "train.batch=8", "train.clip=0",
             f"train.steps={STEPS[rate, codec]}", f"train.update={update}", "optimiser.lr=0.0003", "optimiser.schedule=constant",
             "optimiser.warmup=0", "network.deadline=600", "network.preflight=false", "checkpoint.at_end=false",
             "report.tensorboard=false", "run.threads=1", f"run.folder={out}", *CODECS[codec]]
    words = [LACONIC, "lab", "run", "--ephemeral", "--hosts", "4", "--rate", rate, "--threads", "1", "--", LACONIC, "train",
             f"{folder}/defaults.toml", "--overwrite"]
    words += [word for one in sets for word in ("--set", one)]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=300)
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    wanted = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "defaults.toml").write_text("# All defaults: the command line says the rest.\n")
        subprocess.run([LACONIC, "prepare", "--documents", "paragraph", ROOT / "examples/quickstart/corpus", "--train-bpe", "8192",
                        "--out", f"{folder}/data"], check=True, stdout=subprocess.DEVNULL)
        for number in range(rounds):
            for rate, codec in STEPS:
                if not wanted.search(f"{rate}/{codec}"):
                    continue
                losses = []
                for update in ("step", "block"):
                    steps = train(folder, rate, codec, update)
                    losses.append([step["loss"] for step in steps])
                    timed = steps[2:-1]
                    one = {key: statistics.mean(step[key] for step in timed) * 1e3 for key in ("seconds", "comm_seconds", "exposed_seconds")}
                    times.setdefault((rate, codec, update), []).append(one)
                    print(f"round {number + 1} {rate} {codec} {update}: " + ", ".join(f"{k} {v:.0f} ms" for k, v in one.items()), flush=True)
                assert losses[0] == losses[1], f"losses differ: {losses}"
    print("\n| links | gradients | step by step ms | of it waited | block by block ms | of it waited | time |\n|---|---|--:|--:|--:|--:|--:|")
    for rate, codec in STEPS:
        if (rate, codec, "step") not in times:
            continue
        cells, means = [], []
        for update in ("step", "block"):
            runs = times[rate, codec, update]
            for key in ("seconds", "exposed_seconds"):
                values = [run[key] for run in runs]
                cells.append(f"{statistics.mean(values):.0f} ({min(values):.0f}–{max(values):.0f})")
            means.append(statistics.mean(run["seconds"] for run in runs))
        print(f"| {rate} | {codec} | {' | '.join(cells)} | {means[1] / means[0] - 1:+.1%} |")


if __name__ == "__main__":
    main()
