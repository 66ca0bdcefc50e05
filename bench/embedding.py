#!/usr/bin/env python3
"""The benchmark `embedding` of bench/run: models with large tables on four ranks in a lab, by method of [embedding.rows] and against PyTorch DDP.

    bench/embedding.py [--minutes M] [--only REGEX] [--stalls]     measures what is missing for so long; bench/run embedding measures the rest, and writes
                                                        the page; MINUTES=0 bench/run embedding writes one of what is there

REGEX is searched in names like `lm/1gbit/laconic: alltoall`. --stalls: instead, what the stages of the ladder wait for, in runs with a trace that are not
timed. A lab needs root, the peer (bench/peers/torch_embedding.py) Debian's python3-torch, samples the
public corpora (docs/data.md). Outcomes are kept in build/embedding.json with the commit of the program, and not measured again while they
are there. What a build does not know (a method, a key) is left out.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import embedding_time
from embedding_data import MODELS, prepare
from embedding_page import LADDER, pages
from embedding_stalls import read_stalls
from tensor import peer_environment
from tensor_grids import Others

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
STATE = ROOT / "build/embedding.json"
PEER = ROOT / "bench/peers/torch_embedding.py"
RANKS, ROUNDS = 4, 2
# By link: steps that do not count and steps that do; where whole tables are summed over slow links, fewer.
LINKS = {"1gbit": (2, 6), "100mbit": (2, 4), "300mbit": (2, 4), "150mbit": (2, 4), "unshaped": (2, 6)}
FEW = (1, 2)
SHORT = (1, 3)  # of models whose other gradients alone are some 50 MB a step, over the slowest link
TRIALS, MOST_OTHERS = 2, 0.15  # while other programs have more of the cores, again

ROWS = {"embedding.rows.optimiser": "lazy_adam", "embedding.rows.clip": "dense"}
ALLTOALL = {**ROWS, "embedding.rows.method": "alltoall"}
# What preset:embrace leaves to measurements. Rates are those that the pre-flight finds.
AUTO = {"embedding.rows.method": "auto", "embedding.rows.split": "auto", "network.preflight": "true"}
BLOCKS = {"train.update": "block"}  # forward of the next step waits block by block
EIGHT, FOUR = "quantise:bits=8,group=row", "quantise:bits=4,group=row"
# All other gradients as factors in 8 bits, each block's by themselves; vectors, the bias of a softmax too, travel whole.
FACTORS = {"dp.gradient.method": "power_sgd", "dp.gradient.rank": 32, "dp.gradient.codec": "quantise:bits=8", "dp.gradient.by_block": "true"}
# What is measured: the way of tables of the peer, or keys.
CONTESTANTS = {
    "PyTorch: dense": "dense",
    "PyTorch: sparse": "sparse",
    "PyTorch: rows by hand": "rows",
    "laconic: allreduce": {"embedding.rows.method": "allreduce"},
    "laconic: allgather": {**ROWS, "embedding.rows.method": "allgather", "embedding.rows.split": "off"},
    "laconic: server": {**ROWS, "embedding.rows.method": "server", "embedding.rows.split": "off"},
    "laconic: alltoall": {**ALLTOALL, "embedding.rows.split": "off"},
    "laconic: alltoall, split": {**ALLTOALL, "embedding.rows.split": "on"},
    "laconic: alltoall, block by block": {**ALLTOALL, **BLOCKS, "embedding.rows.split": "off"},
    "laconic: alltoall, block by block, split": {**ALLTOALL, **BLOCKS, "embedding.rows.split": "on"},
    "laconic: alltoall, block by block, split, early": {**ALLTOALL, **BLOCKS, "embedding.rows.split": "on", "embedding.rows.early": "true"},
    "laconic: auto": {**ROWS, **BLOCKS, **AUTO},
    "laconic: alltoall, block by block, split, 8 bits": {**ALLTOALL, **BLOCKS, "embedding.rows.split": "on", "embedding.rows.codec": EIGHT,
                                                         "embedding.rows.gradient": EIGHT, "dp.gradient.codec": "quantise:bits=8,block=64"},
    "laconic: alltoall, block by block, split, 4 bits": {**ALLTOALL, **BLOCKS, **FACTORS, "embedding.rows.split": "on",
                                                         "embedding.rows.codec": FOUR, "embedding.rows.gradient": FOUR},
}


def run(*words, environment=None):
    done = subprocess.run(list(map(str, words)), check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=900,
                          env={**os.environ, **(environment or {})})
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def is_dense(contestant):
    return contestant in ("PyTorch: dense", "laconic: allreduce")


def steps_of(model, link, name):
    if is_dense(name) and link in ("100mbit", "150mbit", "300mbit"):
        return FEW
    return SHORT if link == "100mbit" and model != "lm" else LINKS[link]


class Bench:
    def __init__(self, folder, facts):
        self.folder, self.environment = folder, peer_environment(facts)
        # What a run takes by itself, unless whoever measures has set another: then both have the same.
        self.kernels = {k: v for k, v in self.environment.items() if k == "OPENBLAS_CORETYPE"}
        self.commit = run(BIN / "laconic", "--version").strip()
        self.state = {"outcomes": {}, "times": {}, "stalls": {}, **(json.loads(STATE.read_text()) if STATE.exists() else {})}
        pathlib.Path(folder, "defaults.toml").write_text("# All defaults: the command line says the rest.\n")
        self.prepared = set()

    def knows(self, keys):
        keys = {"data.train": "any", "mesh.dp": RANKS, "train.clip": 0, **MODELS["lm"]["keys"], **keys}
        words = [BIN / "laconic", "config", "show", f"{self.folder}/defaults.toml", *sets(keys)]
        return subprocess.run(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def contestants(self):
        return {name: what for name, what in CONTESTANTS.items() if isinstance(what, str) or self.knows(what)}

    def in_lab(self, link, *command, environment=None):
        """What rank 0 prints, and the bytes that host 0 sent, starting included."""
        out = run(BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", RANKS, "--rate", link, "--threads", 1, "--json",
                  f"{self.folder}/lab.json", "--", *command, environment=environment)
        return out, json.loads(pathlib.Path(self.folder, "lab.json").read_text())["labs"][0]["hosts"][0]["sent_bytes"]

    def peer(self, model, link, steps, tables):
        warmup, timed = steps
        out, _ = self.in_lab(link, "/usr/bin/python3", PEER, "--model", json.dumps(MODELS[model]["keys"]), "--data", f"{self.folder}/{model}",
                                "--tables", tables, "--batch", MODELS[model]["batch"], "--warmup", warmup, "--steps", timed,
                                environment=self.environment)
        found = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
        return {"seconds": found["seconds"][warmup:], "losses": found["losses"], "sent": found["sent_bytes_per_step"],
                "peak": found["peak_mb"] * 1e6}

    def laconic(self, model, link, steps, keys):
        warmup, timed = steps
        keys = {"run.folder": f"{self.folder}/run", "run.threads": 1, "data.train": f"{self.folder}/{model}", "data.shuffle": "false",
                **MODELS[model]["keys"], "train.batch": MODELS[model]["batch"], "train.steps": warmup + timed, "train.clip": 0,
                "mesh.dp": RANKS, "optimiser.lr": 0.001, "optimiser.schedule": "constant", "optimiser.warmup": 0, "optimiser.weight_decay": 0,
                "report.tensorboard": "false", "checkpoint.at_end": "false", "network.preflight": "false", "network.deadline": 600, **keys}
        _, sent = self.in_lab(link, BIN / "laconic", "train", f"{self.folder}/defaults.toml", "--overwrite", "--json", f"{self.folder}/run.json", *sets(keys),
                              environment=self.kernels)
        rows = [json.loads(line) for line in pathlib.Path(self.folder, "run/log.jsonl").read_text().splitlines()]
        rows = [row for row in rows if "loss" in row]
        summary = json.loads(pathlib.Path(self.folder, "run.json").read_text())
        rank = summary["estimate"]["ranks"][0]
        traffic = {t["class"]: t for t in summary["traffic"]}
        per_step = lambda key: {name: t[key] / len(rows) for name, t in traffic.items() if t["messages"]}
        return {"seconds": [row["seconds"] for row in rows][warmup:], "losses": [row["loss"] for row in rows], "sent": sent / len(rows),
                "exposed": per_step("exposed_seconds"), "active": per_step("active_seconds"), "raw": per_step("raw_bytes"),
                "peak": summary["peak_memory_bytes"], "held": rank["parameters"] + rank["optimiser"]}

    def prepare(self, model):
        if model not in self.prepared:
            prepare(model, self.folder)
            self.prepared.add(model)

    def trace(self, model, link, name):
        self.prepare(model)
        steps = steps_of(model, link, name)
        self.laconic(model, link, steps, {**CONTESTANTS[name], "report.trace": "true"})
        return read_stalls(f"{self.folder}/run/trace.json", sum(steps))

    def trace_all(self, only):
        for model in MODELS:
            for link in LINKS:
                for name in LADDER.values():
                    key = f"{model}/{link}/{name}"
                    if key in self.state["stalls"] or not re.search(only, key):
                        continue
                    self.state["stalls"][key] = self.trace(model, link, name)
                    self.save()
                    print(f"embedding: {key}: {self.state['stalls'][key]}", file=sys.stderr, flush=True)

    def measure(self, model, link, name, what):
        self.prepare(model)
        steps = steps_of(model, link, name)
        for _ in range(TRIALS):
            others = Others()
            found = self.peer(model, link, steps, what) if isinstance(what, str) else self.laconic(model, link, steps, what)
            share = others.share()
            if share <= MOST_OTHERS:
                break
        return {**found, "others": share, "commit": self.commit}

    def save(self):
        STATE.write_text(json.dumps(self.state, indent=1))

    def measure_all(self, minutes, only):
        """Whether everything is there."""
        end = time.monotonic() + 60 * minutes
        if minutes > 0 and re.search(only, "times"):
            embedding_time.measure(self.state["times"], self.save)
        for number in range(ROUNDS):
            for model in MODELS:
                for link in LINKS:
                    for name, what in self.contestants().items():
                        key = f"{model}/{link}/{name} #{number + 1}"
                        if key in self.state["outcomes"] or not re.search(only, key):
                            continue
                        if time.monotonic() > end:
                            return False
                        begin = time.monotonic()
                        try:
                            self.state["outcomes"][key] = self.measure(model, link, name, what)
                        except (RuntimeError, subprocess.TimeoutExpired) as error:
                            print(f"embedding: {key} failed: {error}", file=sys.stderr, flush=True)
                            continue
                        self.save()
                        step = statistics.median(self.state["outcomes"][key]["seconds"])
                        print(f"embedding: {key}: {step:.3f} s a step; took {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        return True


def embedding(facts):
    """Models with large tables on four ranks in a lab, by method of [embedding.rows], against PyTorch DDP over gloo."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, facts)
        bench.measure_all(float(os.environ.get("MINUTES", 1e9)), "")
        return [*pages(bench.state["outcomes"], list(LINKS), list(CONTESTANTS), RANKS, bench.state["stalls"]), *embedding_time.page(bench.state["times"]),
                *embedding_time.copies(), *embedding_time.predictions()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--stalls", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(BIN / "laconic", "doctor", "--json", f"{folder}/doctor.json")
        bench = Bench(folder, json.loads(pathlib.Path(folder, "doctor.json").read_text()))
        if options.stalls:
            bench.trace_all(options.only)
            return
        print("all measured" if bench.measure_all(options.minutes, options.only) else "more to measure")


if __name__ == "__main__":
    main()
