#!/usr/bin/env python3
"""The benchmark `tensor_grids` of bench/run: every method of tensor parallelism in a lab, against what `laconic layout` predicts.

    bench/tensor_grids.py [MINUTES]      measures what is missing for so long; bench/run tensor_grids measures the rest, and writes the page;
                                         MINUTES=0 bench/run tensor_grids writes one of what is there

A wide and a long model on 4 and 8 ranks, a rank a host, by rate of the links; as root. Outcomes are kept in build/tensor-grids.json
with the commit of the program that they are of, and not measured again while they are there. The prediction gets numbers of the machine that no grid was asked for: what ranks
compute and update without a network, and what exchanges by pairs and by all ranks take. Needs collective_bench (LACONIC_BENCH).
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
STATE = ROOT / "build/tensor-grids.json"
MODELS = {"wide": {"layers": 3, "width": 768, "heads": 8, "context": 16, "vocabulary": 1024},
          "long": {"layers": 4, "width": 128, "heads": 8, "context": 256, "vocabulary": 1024}}
BATCH = 8
RANKS = (4, 8)
LINKS = ("100mbit", "1gbit", "unshaped")
# By method: its grid. Besides the fastest other grid of 3d is measured, as predicted for FREE_LINK.
GRIDS = {4: {"1d": (1, 4, 1), "1d-sequence": (1, 4, 1), "2d": (2, 2, 1), "3d": (2, 2, 1)},
         8: {"1d": (1, 8, 1), "1d-sequence": (1, 8, 1), "2.5d": (2, 2, 2), "3d": (2, 2, 2)}}
FREE_LINK = "100mbit"
RATES = {"100mbit": 1e8, "1gbit": 1e9}
TCP_SHARE = 1448 / 1547  # of a rate, in bytes of messages: `laconic layout` counts with it
ROUNDS, WARMUP, STEPS = 2, 2, 5
TRIALS, MOST_OTHERS = 3, 0.2  # while other programs have more of the cores, again
LARGE_BYTES, SMALL_BYTES = 2 << 20, 4096  # messages of pairs are half as long
LEAST_RING = 64 << 10  # goes_round_a_ring()
LIMIT = 0.15


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=900).stdout


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def model_sets(model):
    return {f"model.{key}": value for key, value in MODELS[model].items()}


def grid_text(grid):
    return " x ".join(map(str, grid))


class Others:
    """Which part of all cores other programs use, kernel threads included."""

    def __init__(self):
        self.begin = self.read()

    @staticmethod
    def read():
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        mine = os.times()
        return time.monotonic(), (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK"), sum(mine[:4])

    def share(self):
        wall, busy, mine = (now - before for now, before in zip(self.read(), self.begin))
        return max(0, busy - mine) / wall / os.cpu_count()


class Study:
    """Outcomes by name, in a file; what is there is not measured again."""

    def __init__(self, folder):
        self.folder = folder
        self.commit = run(BIN / "laconic", "--version").strip()
        self.state = json.loads(STATE.read_text()) if STATE.exists() else {"outcomes": {}}
        pathlib.Path(folder, "defaults.toml").write_text("# All defaults: the command line says the rest.\n")
        run(BIN / "laconic", "prepare", ROOT / "examples/quickstart/corpus", "--documents", "paragraph", "--train-bpe",
            1024, "--out", f"{folder}/data", "--overwrite")

    def outcome(self, name, measure, number=0):
        """Of one round, measured if it is not there; then seconds of all rounds."""
        key = f"{name} #{number + 1}"
        if key not in self.state["outcomes"]:
            print(f"tensor_grids: {key}", file=sys.stderr, flush=True)
            for _ in range(TRIALS):
                others = Others()
                self.state["outcomes"][key] = {**measure(), "others": others.share(), "commit": self.commit}
                if self.state["outcomes"][key]["others"] <= MOST_OTHERS:
                    break
            STATE.write_text(json.dumps(self.state, indent=1))
        return self.found(name)

    def found(self, name):
        rounds = [o for n in range(ROUNDS) if (o := self.state["outcomes"].get(f"{name} #{n + 1}"))]
        if not rounds:
            return None
        return {**rounds[0], "seconds": [s for o in rounds for s in o["seconds"]], "others": [o["others"] for o in rounds if "others" in o],
                "rounds": len(rounds)}

    def train_words(self, name, model, batch, keys):
        keys = {"run.folder": f"{self.folder}/{name}", "run.threads": 1, "data.train": f"{self.folder}/data", "data.shuffle": "false",
                **model_sets(model), "train.batch": batch, "train.steps": WARMUP + STEPS, "optimiser.warmup": 0,
                "report.tensorboard": "false", "checkpoint.at_end": "false", "network.preflight": "false", "network.deadline": 600, **keys}
        return [BIN / "laconic", "train", f"{self.folder}/defaults.toml", "--overwrite", "--json", f"{self.folder}/{name}.json",
                *sets(keys)]

    def seconds(self, name):
        rows = [json.loads(line) for line in pathlib.Path(self.folder, name, "log.jsonl").read_text().splitlines()]
        return [row["seconds"] for row in rows if "loss" in row][WARMUP:]

    def alone(self, model, ranks, batch):
        """As many processes as there are ranks, each with all of the model, without a network."""
        words = [self.train_words(f"alone{n}", model, batch, {}) for n in range(ranks)]
        processes = [subprocess.Popen(list(map(str, w)), stdout=subprocess.DEVNULL, cwd=ROOT) for w in words]
        if any(p.wait(900) for p in processes):
            raise RuntimeError("a process failed")
        return {"seconds": [s for n in range(len(words)) for s in self.seconds(f"alone{n}")]}

    def in_lab(self, ranks, link, *command):
        return run(BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", ranks, "--rate", link, "--threads", 1, "--json",
                   f"{self.folder}/lab.json", "--", *command)

    def exchange(self, ranks, link, group, size):
        """All-gathers of a buffer by groups of so many ranks, all at once, as grids make them: in seconds."""
        way = "ring" if group > 2 and size / group >= LEAST_RING else "direct"
        lines = self.in_lab(ranks, link, BIN / "collective_bench", "--kind", "all_gather", "--bytes", size, "--rounds", 5 if size == LARGE_BYTES else 60,
                            "--group", group, "--algorithm", way, "--codec", "raw").splitlines()
        found = json.loads([line for line in lines if line.startswith("{")][-1])
        return {"seconds": [found["median_s"]], "least": found["least_s"]}

    def grid(self, model, ranks, link, method, grid):
        self.in_lab(ranks, link, *self.train_words("run", model, BATCH, {"mesh.tp": ",".join(map(str, grid)), "tensor.method": method}))
        summary = json.loads(pathlib.Path(self.folder, "run.json").read_text())
        traffic = [t for t in summary["traffic"] if t["class"].startswith("tp.")]
        return {"grid": grid, "seconds": self.seconds("run"), "bytes": sum(t["raw_bytes"] for t in traffic) / ranks / (WARMUP + STEPS),
                "exposed": sum(t["exposed_seconds"] for t in traffic)}

    # --- what the machine can do

    def layout(self, model, *words, batch=BATCH):
        path = f"{self.folder}/layout.json"
        run(BIN / "laconic", "layout", f"{self.folder}/defaults.toml", *sets(model_sets(model)), "--batch", batch, "--json", path, *words)
        return json.loads(pathlib.Path(path).read_text())

    def calibrate(self, model, ranks, number=0):
        """GFLOP/s of a rank in a step of the whole model, everything else that it does included: on a grid it does as much of each. Of two rounds the one
        that took less: others make it longer, never shorter."""
        name = f"{model}/{ranks}/alone"
        self.outcome(name, lambda: self.alone(model, ranks, BATCH), number)
        rounds = (self.state["outcomes"].get(f"{name} #{n + 1}") for n in range(ROUNDS))
        seconds = min(statistics.median(o["seconds"]) for o in rounds if o)
        # Computing takes a second where a rank does 1 GFLOP/s: so many GFLOP are in a step.
        gflop = self.layout(model, "--tp", 1, "--method", "3d", "--rate", "unshaped", "--gflops", 1)["predicted"]["compute_seconds"]
        return {"gflops": gflop / seconds, "seconds": seconds}

    def handling(self, ranks, link, number=0):
        """Of exchanges by pairs and by all ranks: seconds until a small one is done, seconds for each further message of it, and bytes/s of a large one by
        pairs, on this link and on one without a rate."""
        def seconds(where, group, size):
            self.outcome(f"{ranks}/{where}/{group}-{size}", lambda: self.exchange(ranks, where, group, size), number)
            return min(self.found(f"{ranks}/{where}/{group}-{size}")["seconds"])
        pair, everybody = seconds(link, 2, SMALL_BYTES), seconds(link, ranks, SMALL_BYTES)
        message = max(0, everybody - pair) / (ranks - 2)
        def rate(where):  # a lab's links let the first bytes pass sooner
            found = LARGE_BYTES / 2 / (seconds(where, 2, LARGE_BYTES) - seconds(where, 2, SMALL_BYTES))
            return min(found, RATES[where] / 8 * TCP_SHARE) if where in RATES else found
        return {"latency": max(0, pair - message), "message": message, "rate": rate(link), "handled": rate("unshaped")}

    def machine_words(self, model, ranks, link):
        core, hand = self.calibrate(model, ranks), self.handling(ranks, link)
        rate = f"{hand['rate'] * 8 / TCP_SHARE / 1e6:.2f}mbit" if link in RATES else link
        return ["--rate", rate, "--gflops", core["gflops"], "--handling", f"{hand['handled'] * 8 / 1e6:.1f}mbit",
                "--overhead", f"{hand['message'] * 1e6:.0f}us", "--waking", f"{hand['latency'] * 1e6:.0f}us"]

    def predict(self, model, ranks, link, method, grid):
        return self.layout(model, "--tp", ",".join(map(str, grid)), "--method", method, *self.machine_words(model, ranks, link))["predicted"]

    def search(self, model, ranks, link):
        found = self.layout(model, "--search", ranks, *self.machine_words(model, ranks, link))
        return [c for c in found["candidates"] if "predicted" in c]

    def contestants(self, model, ranks):
        """(name, method, grid) of all that are measured."""
        rows = [(name, name, grid) for name, grid in GRIDS[ranks].items()]
        measured = self.found(f"{model}/{ranks}/{FREE_LINK}/3d, free")
        if measured:
            return [*rows, ("3d, free", "3d", tuple(measured["grid"]))]
        grids = (tuple(c["grid"]) for c in self.search(model, ranks, FREE_LINK) if c["method"] == "3d")
        return [*rows, ("3d, free", "3d", next(grid for grid in grids if grid != GRIDS[ranks]["3d"]))]

    def cells(self):
        rows = {(model, ranks): self.contestants(model, ranks) for model in MODELS for ranks in RANKS}
        return [(model, ranks, link, *row) for link in LINKS for (model, ranks), found in rows.items() for row in found]

    def measure(self, minutes):
        """Whether everything is there."""
        end = time.monotonic() + 60 * minutes
        for number in range(ROUNDS):
            for model in MODELS:
                for ranks in RANKS:
                    self.calibrate(model, ranks, number)
            for ranks in RANKS:
                for link in LINKS:
                    self.handling(ranks, link, number)
            for model, ranks, link, name, method, grid in self.cells():
                if time.monotonic() > end:
                    return False
                self.outcome(f"{model}/{ranks}/{link}/{name}", lambda: self.grid(model, ranks, link, method, grid), number)
        return True


def row_of(study, model, ranks, link, name, method, grid):
    found, said = study.found(f"{model}/{ranks}/{link}/{name}"), study.predict(model, ranks, link, method, grid)
    if found is None:
        return None
    middle = statistics.median(found["seconds"])
    return {"name": name, "grid": grid, "measured": middle, "least": min(found["seconds"]), "most": max(found["seconds"]),
            "predicted": said["seconds"], "bytes": found["bytes"], "formula": said["bytes"], "others": found["others"],
            "error": middle / said["seconds"] - 1, "said": said}


def table_of(rows):
    lines = ["| method | grid | MB a rank sends, by meter | by the formula | step s | predicted s | measured against it |",
             "|---|---|--:|--:|--:|--:|--:|"]
    for r in rows:
        same = "the same" if round(r["bytes"]) == round(r["formula"]) else f"**{r['formula'] / 1e6:.3f}**"
        error = f"{100 * r['error']:+.0f} %"
        lines.append(f"| {r['name']} | {grid_text(r['grid'])} | {r['bytes'] / 1e6:.3f} | {same} | {r['measured']:.3f} ({r['least']:.3f}–"
                     f"{r['most']:.3f}) | {r['predicted']:.3f} | {error if abs(r['error']) <= LIMIT else f'**{error}**'} |")
    return lines


def pages(study):
    lines, all_rows, best_said = [], [], []
    for model, shape in MODELS.items():
        cores = {ranks: study.calibrate(model, ranks) for ranks in RANKS}
        lines += [f"### {model}: " + ", ".join(f"{k} {v}" for k, v in shape.items()) + f", batch {BATCH}", "",
                  "Measured: " + "; ".join(f"of {ranks} processes at once without a network each takes {c['seconds']:.3f} s for a step of the whole model, {c['gflops']:.1f} "
                            "GFLOP/s, all operations and the update included" for ranks, c in cores.items()) + ".", ""]
        for ranks in RANKS:
            for link in LINKS:
                rows = [row for row in (row_of(study, model, ranks, link, *c) for c in study.contestants(model, ranks)) if row]
                if not rows:
                    continue
                all_rows += rows
                fastest, chosen = min(rows, key=lambda r: r["measured"]), min(rows, key=lambda r: r["predicted"])
                best_said.append((fastest, chosen))
                best = study.search(model, ranks, link)[0]
                others = [share for r in rows for share in r["others"]]
                lines += [f"#### {model}, {ranks} ranks, {link}", "", *table_of(rows), "",
                          f"Fastest: {fastest['name']} ({grid_text(fastest['grid'])}); predicted: {chosen['name']} ({grid_text(chosen['grid'])})"
                          + ("" if fastest is chosen else f", which takes {100 * (chosen['measured'] / fastest['measured'] - 1):.0f} % longer")
                          + f". Of all grids the prediction has {best['method']} {grid_text(best['grid'])} first, {best['predicted']['seconds']:.3f} s. "
                          + (f"Others had {100 * min(others):.0f} to {100 * max(others):.0f} % of the cores." if others else ""), ""]
    near = sum(abs(r["error"]) <= LIMIT for r in all_rows)
    equal = sum(round(r["bytes"]) == round(r["formula"]) for r in all_rows)
    agreed = sum(a is b for a, b in best_said)
    return [f"**{equal} of {len(all_rows)}** have the bytes of the formula, **{near} of {len(all_rows)}** steps are within {100 * LIMIT:.0f} % of the "
            f"prediction, in **{agreed} of {len(best_said)}** settings the method that is predicted to be fastest is.", "", *lines]


def machine_table(study):
    lines = ["| ranks | link | a small exchange by pairs, ms | each further message, ms | MB/s of a large one by pairs | and without a rate |",
             "|--:|---|--:|--:|--:|--:|"]
    for ranks in RANKS:
        for link in LINKS:
            hand = study.handling(ranks, link)
            lines.append(f"| {ranks} | {link} | {1e3 * (hand['latency'] + hand['message']):.2f} | {1e3 * hand['message']:.2f} | {hand['rate'] / 1e6:.2f} | {hand['handled'] / 1e6:.0f} |")
    return [*lines, ""]


def intro(study):
    return [f"Steps are medians of up to {ROUNDS} runs of {STEPS} steps, after {WARMUP} that do not count, in brackets the least and the most step. float32, "
            "one thread a rank, a rank a host of a lab, AdamW. Bytes are those of the messages' elements (raw, by the meters of all ranks, "
            "divided among them), without frames and headers. *Predicted* is what `laconic layout` says with the link's rate and numbers of the "
            f"machine that no grid was asked for. As many processes as ranks, each with the whole model and no network, tell GFLOP/s of "
            f"a rank on {os.cpu_count()} cores. All-gathers by all ranks at once (`collective_bench`) tell the rest: of {SMALL_BYTES >> 10} KiB, by pairs and by all, what a "
            f"collective and what each further message of it takes (`--waking`, `--overhead`); of {LARGE_BYTES >> 20} MiB by pairs the rate of the link (`--rate`), and "
            "without one what ranks can handle (`--handling`). The less of two rounds counts:", "", *machine_table(study),
            "Measured with " + ", ".join(sorted({o["commit"] for o in study.state["outcomes"].values()})) + ".", ""]


def tensor_grids(_):
    """Methods of tensor parallelism in a lab by model, ranks and rate: bytes and steps, against the prediction."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    with tempfile.TemporaryDirectory() as folder:
        study = Study(folder)
        study.measure(float(os.environ.get("MINUTES", 1e9)))
        return [*intro(study), *pages(study)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print("all measured" if Study(scratch).measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1e9) else "more to measure")
