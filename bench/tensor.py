"""The benchmark `tensor` of bench/run: a GPT on four tensor-parallel ranks against the same in PyTorch, by rate of the links.

Four hosts in a lab (docs/lab.md), as root. The peer is bench/peers/torch_tensor.py, Megatron-LM's method over gloo. Both start
from the same weights and take the same samples, so losses compare, too. A part of it: BENCH_LINKS=100mbit in the
environment has these links alone, BENCH_ONLY='1d, raw' the peer and what this regular expression finds, without losses, and
BENCH_ROUNDS=5 so many rounds of each link.
"""

import glob
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
PEER = ROOT / "bench/peers/torch_tensor.py"
RANKS = 4
MODEL = {"layers": 6, "width": 384, "heads": 8, "context": 128, "vocabulary": 8192}
BATCH = 8
RATE = "0.0003"  # of learning
# name of the rate: rounds, timed steps
LINKS = {"unshaped": (2, 6), "1gbit": (2, 6), "100mbit": (2, 3)}
if os.environ.get("BENCH_LINKS"):
    LINKS = {link: LINKS[link] for link in os.environ["BENCH_LINKS"].split(",")}
if os.environ.get("BENCH_ROUNDS"):
    LINKS = {link: (int(os.environ["BENCH_ROUNDS"]), steps) for link, (_, steps) in LINKS.items()}
ONLY = os.environ.get("BENCH_ONLY", "")
WARMUP = 2
LOSS_STEPS, LOSS_MEAN = 60, 10  # the loss is the mean of so many last steps
EIGHT_BITS = {"tensor.method": "1d", "tp.activation.codec": "quantise:bits=8,block=64", "tp.gradient.codec": "quantise:bits=8,block=64"}


def run(*words, environment=None):
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=900,
                          env={**os.environ, **(environment or {})}).stdout


def elements_of(grid, folder):
    """What a rank receives for a microbatch, by `laconic layout`; None where the grid cannot be."""
    sets = [word for key, value in MODEL.items() for word in ("--set", f"model.{key}={value}")]
    words = [BIN / "laconic", "layout", "preset:gpt-small", "--tp", ",".join(map(str, grid)), "--batch", BATCH, *sets,
             "--json", f"{folder}/layout.json"]
    if subprocess.run(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        return None
    blocks = json.loads(pathlib.Path(folder, "layout.json").read_text())["blocks"]
    return sum(block["blocks"] * block["elements"] for block in blocks)


def best_grid(folder):
    """Of the grids that cut weights and activations, the one that moves least in `3d`."""
    grids = [g for g in itertools.product(range(1, RANKS + 1), repeat=3) if g[0] * g[1] * g[2] == RANKS and max(g) < RANKS]
    counted = {grid: elements_of(grid, folder) for grid in grids}
    return min((grid for grid in grids if counted[grid]), key=lambda grid: counted[grid])


def peer_environment(facts):
    """Our BLAS and our allocator's settings, which do it good; threads are the lab's business."""
    advised = {s["name"]: s["advised"] for s in facts["environment"]}
    blas = glob.glob("/usr/lib/*/openblas-openmp")
    return {**{k: v for k, v in advised.items() if k != "GOMP_SPINCOUNT" and not k.endswith("_NUM_THREADS")},
            "LD_LIBRARY_PATH": blas[0] if blas else ""}


class Bench:
    def __init__(self, folder, facts):
        self.folder, self.environment = folder, peer_environment(facts)
        pathlib.Path(folder, "defaults.toml").write_text("# All defaults: the command line says the rest.\n")
        run(BIN / "laconic", "prepare", ROOT / "examples/quickstart/corpus", "--documents", "paragraph", "--train-bpe",
            MODEL["vocabulary"], "--out", f"{folder}/data", "--overwrite")
        self.shape = [word for key, value in {**MODEL, "batch": BATCH}.items() for word in (f"--{key}", value)]
        run("/usr/bin/python3", PEER, "--make-weights", f"{folder}/weights", *self.shape, environment=self.environment)

    def in_lab(self, link, steps, *command, environment=None):
        """What rank 0 prints, and the bytes that host 0 sent in a step, starting included."""
        out = run(BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", RANKS, "--rate", link, "--threads", 1, "--json",
                  f"{self.folder}/lab.json", "--", *command, environment=environment)
        return out, json.loads(pathlib.Path(self.folder, "lab.json").read_text())["labs"][0]["hosts"][0]["sent_bytes"] / steps

    def peer(self, link, steps):
        out, sent = self.in_lab(link, WARMUP + steps, "/usr/bin/python3", PEER, *self.shape, "--data", f"{self.folder}/data",
                                "--weights", f"{self.folder}/weights", "--lr", RATE, "--warmup", WARMUP, "--steps", steps,
                                environment=self.environment)
        found = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
        return {"seconds": found["seconds"][WARMUP:], "losses": found["losses"], "sent": sent}

    def laconic(self, link, steps, keys):
        folder = f"{self.folder}/run"
        keys = {"run.folder": folder, "run.threads": 1, "data.train": f"{self.folder}/data", "data.shuffle": "false",
                "model.start": f"{self.folder}/weights", "train.batch": BATCH, "train.steps": WARMUP + steps, "mesh.tp": RANKS,
                "optimiser.lr": RATE, "optimiser.min_lr": RATE, "optimiser.schedule": "constant", "optimiser.warmup": 0,
                "report.tensorboard": "false", "checkpoint.at_end": "false", "network.preflight": "false",
                "network.deadline": 600, **keys}
        words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        _, sent = self.in_lab(link, WARMUP + steps, BIN / "laconic", "train", f"{self.folder}/defaults.toml", "--overwrite", *words)
        rows = [json.loads(line) for line in pathlib.Path(folder, "log.jsonl").read_text().splitlines()]
        rows = [row for row in rows if "loss" in row]
        return {"seconds": [row["seconds"] for row in rows][WARMUP:], "losses": [row["loss"] for row in rows], "sent": sent}


def speed(outcome):
    return BATCH * MODEL["context"] / statistics.median(outcome["seconds"])


def of_rate(bench, link, contestants):
    rounds, steps = LINKS[link]
    outcomes = {name: [] for name in contestants}
    for number in range(rounds):
        for name, keys in contestants.items():
            print(f"tensor: {link}, round {number + 1} of {rounds}, {name}", file=sys.stderr, flush=True)
            outcomes[name].append(bench.peer(link, steps) if keys is None else bench.laconic(link, steps, keys))
    theirs = [speed(o) for o in next(iter(outcomes.values()))]
    lines = []
    for name, found in outcomes.items():
        speeds = [speed(o) for o in found]
        turns = [mine / peer for mine, peer in zip(speeds, theirs)]
        sent = statistics.median(o["sent"] for o in found)
        lines.append(f"| {link} | {name} | {statistics.median(speeds):.0f} ({min(speeds):.0f}–{max(speeds):.0f}) | {sent / 1e6:.1f} | "
                     f"**{statistics.median(speeds) / statistics.median(theirs):.2f}x** ({min(turns):.2f}–{max(turns):.2f}) |")
    print("\n".join(lines), file=sys.stderr, flush=True)
    return lines


def losses(bench, contestants):
    """Losses of the same steps, over links of any rate."""
    lines = [f"The mean loss of steps {LOSS_STEPS - LOSS_MEAN + 1} to {LOSS_STEPS}, same weights and samples, constant learning rate {RATE}:", "",
             "| | loss | against the peer |", "|---|--:|--:|"]
    peer = None
    for name, keys in contestants.items():
        print(f"tensor: losses, {name}", file=sys.stderr, flush=True)
        steps = LOSS_STEPS - WARMUP
        found = bench.peer("unshaped", steps) if keys is None else bench.laconic("unshaped", steps, keys)
        loss = statistics.mean(found["losses"][-LOSS_MEAN:])
        peer = peer or loss
        lines.append(f"| {name} | {loss:.4f} | {100 * (loss / peer - 1):+.2f} % |")
    return [*lines, ""]


def tensor(facts):
    """A GPT on 4 tensor-parallel ranks in a lab, against Megatron-LM's method in PyTorch over gloo, by rate of the links."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    with tempfile.TemporaryDirectory() as folder:
        bench, grid = Bench(folder, facts), best_grid(folder)
        contestants = {"PyTorch, 1-D, raw": None, "1d, raw": {"tensor.method": "1d"}, "1d-sequence, raw": {"tensor.method": "1d-sequence"},
                       "2d, raw": {"tensor.method": "2d"},
                       f"3d, {' x '.join(map(str, grid))}, raw": {"tensor.method": "3d", "mesh.tp": ",".join(map(str, grid))},
                       f"3d, {' x '.join(map(str, grid))}, raw, without prefetch":
                           {"tensor.method": "3d", "mesh.tp": ",".join(map(str, grid)), "tensor.prefetch": "false"},
                       "1d, 8 bits": EIGHT_BITS}
        contestants = {name: keys for name, keys in contestants.items() if keys is None or re.search(ONLY, name)}
        busy = os.getloadavg()
        rows = [line for link in LINKS for line in of_rate(bench, link, contestants)]
        compared = {name: contestants[name] for name in ("PyTorch, 1-D, raw", "1d, raw", "1d, 8 bits") if name in contestants}
        model = ", ".join(f"{name} {value}" for name, value in MODEL.items())
        return [f"GPT: {model}; batch {BATCH}, float32, {RANKS} ranks with a thread each, a rank a host. The peer has our BLAS and our allocator's "
                "settings. Rounds in turns: " + ", ".join(f"{r} of {s} steps {link}" for link, (r, s) in LINKS.items()) +
                f", after {WARMUP} that do not count. Speeds are medians over rounds of medians over steps, in brackets the least and the "
                "most round; ratios those of the medians, in brackets of one turn. Bytes are what host 0 sent, by its interface, "
                f"with headers, and with starting divided among the steps. {os.cpu_count()} processors, load average {busy[0]:.1f} before and "
                f"{os.getloadavg()[0]:.1f} after.", "",
                "| link | | tokens/s | MB sent in a step | against the peer |", "|---|---|--:|--:|--:|", *rows, "",
                *([] if ONLY else losses(bench, compared))]
