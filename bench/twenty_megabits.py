#!/usr/bin/env python3
"""A GPT of 13.8 M parameters on four data-parallel ranks over slow links: seconds a step, by method and rate.

Four hosts of one thread in a lab (docs/lab.md), as root; the model of the lab report's data-parallel part, from random weights, two
samples a rank. Of local updates whole rounds are counted; one round in 16 renews the second moment, as in the long run.

    bench/twenty_megabits.py FOLDER [REGULAR EXPRESSION of trials, such as 20mbit/late]

Outcomes stay in FOLDER, and what is there is not run again.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
MODEL = {"layers": 6, "width": 384, "heads": 6, "context": 128}
ROUND = 4
METHODS = {
    "raw": [],
    "slow-network": ["preset:slow-network"],
    "late": ["preset:slow-network", "dp.gradient.late=1", "dp.gradient.late_after=2"],
    "late, 6 bits": ["preset:slow-network", "dp.gradient.late=1", "dp.gradient.late_after=2",
                     "dp.gradient.codec=quantise:bits=6,block=64,rotate=true"],
    "linear": ["preset:replicas-20mbit", f"local.warmup={ROUND}"],
    "linear, no overlap": ["preset:replicas-20mbit", f"local.warmup={ROUND}", "local.overlap=0"],
}
RATES = ["unshaped", "20mbit", "5mbit"]


def steps_of(method, rate):
    if method.startswith("linear"):
        return 9 * ROUND  # a warm-up and eight rounds
    if method == "raw":
        return 10 if rate == "unshaped" else 3
    return 12


def train(folder, method, rate, binary):
    out = folder / f"{rate}-{method}".replace(", ", "-").replace(" ", "-")
    log = out / "log.jsonl"
    if not (out / "done").exists():
        presets = [word for word in METHODS[method] if word.startswith("preset:")]
        config = folder / f"{method}.toml"
        config.write_text(f'extends = "{presets[0]}"\n' if presets else "# All defaults.\n")
        sets = [f"model.{key}={value}" for key, value in MODEL.items()]
        sets += [f"data.train={folder}/data", "data.shuffle=false", "mesh.dp=4", "train.batch=8",
                 f"train.steps={steps_of(method, rate)}", "optimiser.lr=0.0003", "optimiser.schedule=constant", "optimiser.warmup=0",
                 "network.deadline=600", "network.preflight=false", "checkpoint.at_end=false", "report.tensorboard=false",
                 "run.threads=1", f"run.folder={out}"]
        sets += [word for word in METHODS[method] if not word.startswith("preset:")]
        words = [binary / "laconic", "lab", "run", "--ephemeral", "--hosts", "4", "--rate", rate, "--threads", "1", "--",
                 binary / "laconic", "train", config, "--overwrite"]
        words += [word for one in sets for word in ("--set", one)]
        subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=400)
        (out / "done").write_text("")
    return [json.loads(line) for line in log.read_text().splitlines() if '"seconds"' in line and '"step"' in line]


def seconds_of(method, steps, key="seconds"):
    """A step's in the long run, and whether it is of rounds."""
    values = [step[key] for step in steps]
    if not method.startswith("linear"):
        return statistics.mean(values[3:] if len(values) > 4 else values[1:])
    rounds = [statistics.mean(values[i:i + ROUND]) for i in range(ROUND, len(values), ROUND)]
    renewing, plain = rounds[3], statistics.mean(rounds[4:7])  # rounds 4; 5 to 7
    return (renewing + 15 * plain) / 16


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    binary = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else BIN
    if not (folder / "data.idx").exists():
        subprocess.run([binary / "laconic", "prepare", "--documents", "paragraph", ROOT / "examples/quickstart/corpus", "--train-bpe",
                        "8192", "--out", folder / "data"], check=True, stdout=subprocess.DEVNULL)
    rows = {}
    for method in METHODS:
        for rate in RATES:
            is_there = (folder / f"{rate}-{method}".replace(", ", "-").replace(" ", "-") / "done").exists()
            if not is_there and not wanted.search(f"{rate}/{method}"):
                continue
            steps = train(folder, method, rate, binary)
            rows[method, rate] = (seconds_of(method, steps), seconds_of(method, steps, "exposed_seconds"))
            print(f"{rate} {method}: {rows[method, rate][0]:.3f} s a step, {rows[method, rate][1]:.3f} s of it waited", flush=True)
    print("\n| gradients | " + " | ".join(f"{rate}, s a step (waited)" for rate in RATES) + " | of its unshaped speed |\n|---|" + "--:|" * (len(RATES) + 1))
    for method in METHODS:
        cells = [f"{rows[method, rate][0]:.2f} ({rows[method, rate][1]:.2f})" if (method, rate) in rows else "" for rate in RATES]
        own = rows.get((method, "unshaped"))
        shares = [f"{own[0] / rows[method, rate][0]:.0%} at {rate}" for rate in RATES[1:] if own and (method, rate) in rows]
        if any(cells):
            print(f"| {method} | {' | '.join(cells)} | {', '.join(shares)} |")


if __name__ == "__main__":
    main()
