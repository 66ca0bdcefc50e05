#!/usr/bin/env python3
"""The benchmark `tensor_grids` of bench/run: every method of tensor parallelism in a lab, against what `laconic simulate` predicts, and `laconic layout`.

    bench/tensor_grids.py [MINUTES]      measures what is missing for so long; bench/run tensor_grids measures the rest, and writes the page;
                                         MINUTES=0 bench/run tensor_grids writes one of what is there

A wide and a long model on 4 and 8 ranks, a rank a host, by rate of the links; as root. Outcomes are kept in build/tensor-grids.json
with the commit of the program that they are of, and not measured again while they are there. The prediction gets numbers of the machine that no grid was asked for: what ranks
compute and update without a network, and what exchanges by pairs and by all ranks take, of time and of the processors. Needs collective_bench and ops_bench (LACONIC_BENCH).
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
ROUNDS, WARMUP, STEPS = 3, 2, 5
TRIALS, MOST_OTHERS = 3, 0.2  # while other programs have more of the cores, again
LARGE_BYTES, SMALL_BYTES = 2 << 20, 4096  # messages of pairs are half as long
REPEATS = {SMALL_BYTES: 20, LARGE_BYTES: 2}  # without a barrier between
CORES = os.cpu_count()
FASTEST = "100gbit"  # what has no rate is bound by what handling takes
LEAST_LATENCY = 0.035e-3  # of a lab's link
LEAST_RING = 64 << 10  # goes_round_a_ring()
BURST_SECONDS = 0.004  # of a lab's link
LIMIT = 0.15
FITS = 4  # turns of a fit


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=900).stdout


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def model_sets(model):
    return {f"model.{key}": value for key, value in MODELS[model].items()}


def grid_text(grid):
    return " x ".join(map(str, grid))


def burst_of(link):
    """Bytes that a lab's link lets pass at once after a pause (docs/lab.md)."""
    return BURST_SECONDS * RATES[link] / 8 if link in RATES else 0


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
        self.folder, self.fitted = folder, {}
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
        lines = self.in_lab(ranks, link, BIN / "collective_bench", "--kind", "all_gather", "--bytes", size, "--rounds", 7,
                            "--repeat", REPEATS[size], "--group", group, "--algorithm", way, "--codec", "raw").splitlines()
        found = json.loads([line for line in lines if line.startswith("{")][-1])
        return {"seconds": [found["median_s"]], "least": found["least_s"], "processor": found["processor_s"] / ranks,
                "messages": found["messages"], "bytes": found["wire_bytes_per_round"]}

    def norms(self):
        """As many times as there are cores, at once: seconds of an element of the stream in a norm, with what goes with it."""
        processes = [subprocess.Popen([str(BIN / "ops_bench"), "20"], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                     for _ in range(CORES)]
        found = [json.loads(p.communicate(timeout=300)[0])["stream"] for p in processes]
        return {"seconds": [1e-3 * ms / (2 * 8 * 256 * 384) for ms in found]}

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
        """Seconds of a step of the whole model by each of so many processes, and GFLOP/s of a rank in it, everything else that it does included: on a grid
        it does as much of each. Of two rounds the one that took less: others make it longer, never shorter."""
        seconds = self.alone_seconds(model, ranks, BATCH, number)
        # Computing takes a second where a rank does 1 GFLOP/s: so many GFLOP are in a step.
        return {"gflops": self.work(model)["compute_seconds"] / seconds, "seconds": seconds}

    def alone_seconds(self, model, ranks, batch, number=0):
        name = f"{model}/{ranks}/alone" + ("" if batch == BATCH else f"-{batch}")
        self.outcome(name, lambda: self.alone(model, ranks, batch), number)
        rounds = (self.state["outcomes"].get(f"{name} #{n + 1}") for n in range(ROUNDS))
        return min(statistics.median(o["seconds"]) for o in rounds if o)

    def work(self, model):
        return self.layout(model, "--tp", 1, "--method", "3d", "--rate", "unshaped", "--gflops", 1)["predicted"]

    def core(self, model, ranks, number=0):
        """What a core does while as many processes as ranks share the cores: operations/s of this model, parameters updated, and elements of norms.
        Steps with a whole batch and with one sample tell what is as long for any batch, which is the update."""
        share = CORES / max(ranks, CORES)
        sample, rest = {}, {}
        for name in MODELS:
            many, one = (share * self.alone_seconds(name, ranks, batch, number) for batch in (BATCH, 1))
            sample[name] = (many - one) / (BATCH - 1)
            rest[name] = max(0, one - sample[name])
        largest = max(MODELS, key=lambda name: self.parameters(name))
        self.outcome("norms", self.norms, number)
        element = min(self.found("norms")["seconds"])
        products = sample[model] - element * self.normed_elements(model)
        return {"flops": self.work(model)["compute_seconds"] * 1e9 / BATCH / products, "updates": self.parameters(largest) / rest[largest],
                "elements": 1 / element}

    @staticmethod
    def normed_elements(model):
        """Of a sample."""
        return (2 * MODELS[model]["layers"] + 1) * MODELS[model]["context"] * MODELS[model]["width"]

    @staticmethod
    def parameters(model):
        width = MODELS[model]["width"]
        return MODELS[model]["layers"] * 12 * width * width + (MODELS[model]["vocabulary"] + MODELS[model]["context"]) * width

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

    def messages(self, ranks, link, number=0):
        """What the processors are busy with, by rank: seconds of a collective and of each further message on this link, bytes/s; and what a message is on
        its way besides. Bytes are those of links without a rate: on slow ones processors are woken for every packet, while they wait anyway."""
        self.handling(ranks, link, number)
        def found(group, size):
            rounds = [o for n in range(ROUNDS) if (o := self.state["outcomes"].get(f"{ranks}/{link}/{group}-{size} #{n + 1}"))]
            return min(rounds, key=lambda o: o["processor"])
        pair, everybody = found(2, SMALL_BYTES), found(ranks, SMALL_BYTES)
        message = max(0, everybody["processor"] - pair["processor"]) / (everybody["messages"] - pair["messages"])
        call = max(0, pair["processor"] - message * pair["messages"])
        if link != "unshaped":
            handled = self.messages(ranks, "unshaped", number)["handled"]
        else:
            large = found(2, LARGE_BYTES)
            handled = large["bytes"] / (large["processor"] - call - message * large["messages"])
        busy = max(ranks / CORES, 1) * pair["processor"]  # as long as that takes where cores are shared
        return {"call": call, "message": message, "handled": handled, "latency": max(LEAST_LATENCY, pair["seconds"][0] - busy)}

    def left(self, model, ranks):
        """What is left of all that processors do, where more ranks than cores wake each other all the time: the one number that is fitted, so that half of the
        steps of the *other* models over links without a rate are longer than simulated. What ranks do alone, or while they exchange alone, does not show it."""
        if ranks <= CORES:
            return 1
        if (model, ranks) not in self.fitted:
            left = 1
            for _ in range(FITS):
                ratios = [self.simulate(other, ranks, "unshaped", method, grid, left) / statistics.median(found["seconds"])
                          for other in MODELS if other != model for name, method, grid in self.contestants(other, ranks)
                          if (found := self.found(f"{other}/{ranks}/unshaped/{name}"))]
                left = min(1, left * statistics.median(ratios)) if ratios else 1
            self.fitted[model, ranks] = left
        return self.fitted[model, ranks]

    def hosts_file(self, model, ranks, link, left):
        core, messages, hand = self.core(model, ranks), self.messages(ranks, link), self.handling(ranks, link)
        rate = f"{hand['rate'] * 8 / TCP_SHARE / 1e6:.2f}mbit" if link in RATES else FASTEST
        path = pathlib.Path(self.folder, f"hosts-{model}-{ranks}-{link}.toml")
        path.write_text(f"""[[device]]
name = "measured"
like = "core"
flops = {{ float32 = {left * core['flops']} }}
updates = {left * core['updates']}
elements = {left * core['elements']}
handled = {left * messages['handled']}
message = "{1e3 * messages['message'] / left:.6f}ms"
call = "{1e3 * messages['call'] / left:.6f}ms"

[[group]]
name = "lab"
hosts = {ranks}
cores = {CORES}
device = "measured"
card = {{ rate = "{rate}", latency = "{1e3 * messages['latency']:.6f}ms", burst = "{burst_of(link):.0f}B" }}
""")
        return path

    def simulate(self, model, ranks, link, method, grid, left):
        path = f"{self.folder}/simulate.json"
        keys = {**model_sets(model), "train.batch": BATCH, "mesh.tp": ",".join(map(str, grid)), "tensor.method": method, "data.train": "none"}
        run(BIN / "laconic", "simulate", f"{self.folder}/defaults.toml", "--hosts", self.hosts_file(model, ranks, link, left), "--json", path, *sets(keys))
        return json.loads(pathlib.Path(path).read_text())["step_seconds"]

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
                    self.core(model, ranks, number)
            for ranks in RANKS:
                for link in LINKS:
                    self.messages(ranks, link, number)
            for model, ranks, link, name, method, grid in reversed(self.cells()):
                if time.monotonic() > end:
                    return False
                self.outcome(f"{model}/{ranks}/{link}/{name}", lambda: self.grid(model, ranks, link, method, grid), number)
        return True


def row_of(study, model, ranks, link, name, method, grid):
    found = study.found(f"{model}/{ranks}/{link}/{name}")
    if found is None:
        return None
    said, simulated = study.predict(model, ranks, link, method, grid), study.simulate(model, ranks, link, method, grid, study.left(model, ranks))
    middle = statistics.median(found["seconds"])
    return {"name": name, "grid": grid, "link": link, "measured": middle, "least": min(found["seconds"]), "most": max(found["seconds"]),
            "predicted": simulated, "quick": said["seconds"], "bytes": found["bytes"], "formula": said["bytes"], "others": found["others"],
            "error": middle / simulated - 1, "quick_error": middle / said["seconds"] - 1, "said": said}


def table_of(rows):
    lines = ["| method | grid | MB a rank sends, by meter | by the formula | step s | predicted s | measured against it | `laconic layout` |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        same = "the same" if round(r["bytes"]) == round(r["formula"]) else f"**{r['formula'] / 1e6:.3f}**"
        error = f"{100 * r['error']:+.0f} %"
        lines.append(f"| {r['name']} | {grid_text(r['grid'])} | {r['bytes'] / 1e6:.3f} | {same} | {r['measured']:.3f} ({r['least']:.3f}–"
                     f"{r['most']:.3f}) | {r['predicted']:.3f} | {error if abs(r['error']) <= LIMIT else f'**{error}**'} | {r['quick']:.3f} |")
    return lines


def pages(study):
    lines, all_rows, best_said, best_quick = [], [], [], []
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
                best_quick.append((fastest, min(rows, key=lambda r: r["quick"])))
                best = study.search(model, ranks, link)[0]
                others = [share for r in rows for share in r["others"]]
                lines += [f"#### {model}, {ranks} ranks, {link}", "", *table_of(rows), "",
                          f"Fastest: {fastest['name']} ({grid_text(fastest['grid'])}); predicted: {chosen['name']} ({grid_text(chosen['grid'])})"
                          + ("" if fastest is chosen else f", which takes {100 * (chosen['measured'] / fastest['measured'] - 1):.0f} % longer")
                          + f". Of all grids `laconic layout` has {best['method']} {grid_text(best['grid'])} first, {best['predicted']['seconds']:.3f} s. "
                          + (f"Others had {100 * min(others):.0f} to {100 * max(others):.0f} % of the cores." if others else ""), ""]
    equal = sum(round(r["bytes"]) == round(r["formula"]) for r in all_rows)
    def near(key, rows=all_rows):
        return sum(abs(r[key]) <= LIMIT for r in rows)
    agreed, agreed_quick = (sum(a is b for a, b in best) for best in (best_said, best_quick))
    return [f"**{equal} of {len(all_rows)}** have the bytes of the formula, **{near('error')} of {len(all_rows)}** steps are within {100 * LIMIT:.0f} % of the "
            f"prediction ({near('quick_error')} of that by `laconic layout`), in **{agreed} of {len(best_said)}** settings the method that is predicted to be fastest is "
            f"(by `laconic layout` {agreed_quick}).", "",
            *(f"- {link}: {near('error', some)} of {len(some)}, median error {100 * statistics.median(abs(r['error']) for r in some):.1f} %; by `laconic layout` "
              f"{near('quick_error', some)}, {100 * statistics.median(abs(r['quick_error']) for r in some):.1f} %"
              for link in LINKS if (some := [r for r in all_rows if r["link"] == link])), "", *lines]


def machine_table(study):
    lines = ["| ranks | link | a small exchange by pairs, ms | each further message, ms | MB/s of a large one by pairs | and without a rate | processor: of a collective, ms | "
             "of a message, ms | MB/s handled | on its way, ms |", "|--:|---|" + "--:|" * 8]
    for ranks in RANKS:
        for link in LINKS:
            hand, own = study.handling(ranks, link), study.messages(ranks, link)
            lines.append(f"| {ranks} | {link} | {1e3 * (hand['latency'] + hand['message']):.2f} | {1e3 * hand['message']:.2f} | {hand['rate'] / 1e6:.2f} | {hand['handled'] / 1e6:.0f} | "
                         f"{1e3 * own['call']:.3f} | {1e3 * own['message']:.3f} | {own['handled'] / 1e6:.0f} | {1e3 * own['latency']:.3f} |")
    lines += ["", "| model | ranks | GFLOP/s of a core | million parameters updated by a core in a second | million elements of norms | left of all this on a grid, fitted on the other model |",
              "|---|--:|--:|--:|--:|--:|"]
    for model in MODELS:
        for ranks in RANKS:
            core = study.core(model, ranks)
            lines.append(f"| {model} | {ranks} | {core['flops'] / 1e9:.1f} | {core['updates'] / 1e6:.0f} | {core['elements'] / 1e6:.0f} | {study.left(model, ranks):.2f} |")
    return [*lines, ""]


def intro(study):
    return [f"Steps are medians of up to {ROUNDS} runs of {STEPS} steps, after {WARMUP} that do not count, in brackets the least and the most step. float32, "
            "one thread a rank, a rank a host of a lab, AdamW. Bytes are those of the messages' elements (raw, by the meters of all ranks, "
            "divided among them), without frames and headers. *Predicted* is what `laconic simulate` says with the link's rate and numbers of the "
            f"machine that no grid was asked for, beside it what `laconic layout` does. For both as many processes as ranks, each with the whole model and no network, tell GFLOP/s of "
            f"a rank on {os.cpu_count()} cores. All-gathers by all ranks at once (`collective_bench`) tell the rest: of {SMALL_BYTES >> 10} KiB, by pairs and by all, what a "
            f"collective and what each further message of it takes (`--waking`, `--overhead`); of {LARGE_BYTES >> 20} MiB by pairs the rate of the link (`--rate`), and "
            "without one what ranks can handle (`--handling`); for the simulation what processors were busy with in these exchanges. Steps of one sample beside those of the "
            "whole batch tell what the update takes, `ops_bench` what norms do. One number is fitted, what processors do less where more ranks than cores wake each other: for "
            "each model on the other one's steps over links without a rate, so that no step is predicted with its own model's. The less of up to two rounds counts:", "", *machine_table(study),
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
    for variable in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        del os.environ[variable]  # as bench/run does
    with tempfile.TemporaryDirectory() as scratch:
        print("all measured" if Study(scratch).measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1e9) else "more to measure")
