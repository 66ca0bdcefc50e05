#!/usr/bin/env python3
"""Predicts every trial of a lab report by `laconic simulate`, and compares.

    bench/simulate.py docs/results/2026-11-15/raw [--program build/bin/laconic] [--page FILE]
    bench/simulate.py --grids bench/results/2026-11-18-tensor-grids-2.md

Only trials of Laconic itself count, and only those that have ended well. Calibrated, from trials with
unshaped links alone: for each part of the report and each method how fast a core computes, so that
the simulated step takes as long as the measured one. Trials without an unshaped one of their kind
take that of the fp32 pipeline. Everything else is what the preset `lab` and the device `core` say.

Of a page of tensor grids every cell is predicted, too. Calibrated is the rate of a core alone: what
the page measured of as many processes at once without a network.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Keys that say nothing about a step, or name files that are gone.
IGNORED = ("checkpoint.", "data.train", "data.valid", "model.start", "network.deadline", "network.preflight",
           "report.", "run.folder")
# The model of the replicas, which began from a folder: honesty.md names its sizes.
REPLICAS = {"model.layers": "6", "model.width": "384", "model.heads": "6", "model.context": "128",
            "model.vocabulary": "8192"}
FASTEST = "100gbit"  # no limit, for all that a core can do


def trials(folder):
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        data = json.loads(path.read_text())
        trial = data["trial"]
        if trial["program"] != "laconic" or data["failure"] or trial["rate"] == "none" or "loss" in trial["part"]:
            continue
        yield path.stem, data


def settings(data):
    """The preset and the keys of the run that was measured."""
    if "settings" in data:
        return data["settings"]
    words = data["command"][data["command"].index("train") + 1:]
    preset = None if words[0].startswith("--") else words[0]
    keys = {}
    for flag, value in zip(words, words[1:]):
        if flag == "--set":
            key, text = value.split("=", 1)
            if not key.startswith(IGNORED):
                keys[key] = text
    if data["trial"]["model"] == "replicas":
        keys.update(REPLICAS)
    keys["data.train"] = "none"
    return preset, keys


def measured(data):
    seconds = [step["seconds"] for step in data["steps"]]
    return statistics.median(seconds[data["trial"]["warmup"]:])


class Predictor:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.known = {}

    def hosts(self, count, rate, flops):
        shaped = FASTEST if rate in ("unshaped", "none") else rate
        path = self.folder / f"hosts-{count}-{rate}-{flops:.6g}.toml"
        if not path.exists():
            path.write_text(f'''[[device]]
name = "measured"
like = "core"
flops = {{ float32 = {flops} }}

[[group]]
name = "lab"
hosts = {count}
cores = 2
device = "measured"
card = {{ rate = "{shaped}", latency = "0.035ms" }}
''')
        return path

    def step(self, data, flops, rate=None, more=()):
        preset, keys = settings(data)
        trial = data["trial"]
        keys = {**keys, **dict(more)}
        name = json.dumps([preset, sorted(keys.items()), trial["hosts"], rate or trial["rate"], flops])
        if name not in self.known:
            out = self.folder / f"{abs(hash(name))}.json"
            config = ROOT / preset if preset and (ROOT / preset).exists() else self.empty()
            command = [self.program, "simulate", str(config), "--hosts",
                       str(self.hosts(trial["hosts"], rate or trial["rate"], flops)), "--json", str(out)]
            for key, value in keys.items():
                command += ["--set", f"{key}={value}"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
            self.known[name] = json.loads(out.read_text())
        return self.known[name]

    def empty(self):
        path = self.folder / "empty.toml"
        path.write_text("")
        return path

    def seconds(self, data, flops, rate=None):
        step = self.step(data, flops, rate)["step_seconds"]
        if "bypass" in data["trial"]["method"]:  # whichever is faster is what the judge comes to
            raw = (("pp.activation.codec", "raw"), ("pp.activation.memory", "none"), ("pp.gradient.codec", "raw"),
                   ("dp.gradient.codec", "raw"), ("embedding.tied.codec", "raw"))
            step = min(step, self.step(data, flops, rate, raw)["step_seconds"])
        return step

    def calibrate(self, data, seconds):
        """Operations per second of a core with which the unshaped step takes so long."""
        low, high = 5e9, 500e9
        for _ in range(18):
            middle = (low * high) ** 0.5
            if self.seconds(data, middle, "unshaped") > seconds:
                low = middle
            else:
                high = middle
        return (low * high) ** 0.5


def kind_of(data):
    return data["trial"]["part"], data["trial"]["method"]


def grids(path, predictor):
    """Measured and predicted seconds of each cell of a page of bench/tensor_grids.py."""
    sizes, rates, ranks, rate, rows = {}, {}, 0, "", []
    for line in pathlib.Path(path).read_text().splitlines():
        if head := re.match(r"### (\w+): (layers .*)", line):
            sizes = {key: value for key, value in re.findall(r"(\w+) (\d+)", head[2])}
        for count, gflops in re.findall(r"of (\d+) processes at once.*?([\d.]+) GFLOP/s", line):
            rates[int(count)] = float(gflops) * int(count) / 2 * 1e9  # of a core: there are two
        if head := re.match(r"#### (\w+), (\d+) ranks, (\w+)", line):
            ranks, rate = int(head[2]), head[3]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 7 or " x " not in cells[1]:
            continue
        keys = {f"model.{key}": value for key, value in sizes.items() if key != "batch"}
        keys |= {"train.batch": sizes["batch"], "mesh.tp": cells[1].replace(" x ", ","),
                 "tensor.method": cells[0].split(",")[0], "data.train": "none"}
        data = {"trial": {"hosts": ranks, "rate": rate, "model": "grid", "part": "grids", "round": 1,
                          "method": f"{cells[0]} {cells[1]}"}, "settings": (None, keys)}
        seconds, before = float(cells[4].split()[0]), float(cells[5])
        predicted = predictor.step(data, rates[ranks])["step_seconds"]
        rows.append((data["trial"], seconds, predicted, predicted / seconds - 1, before / seconds - 1))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", nargs="?")
    parser.add_argument("--grids", help="a page of tensor grids instead")
    parser.add_argument("--program", default=str(ROOT / "build/bin/laconic"))
    parser.add_argument("--page", help="also write a table in Markdown")
    parser.add_argument("--part", default="", help="only trials whose part has this in its name")
    arguments = parser.parse_args()
    if arguments.grids:
        with tempfile.TemporaryDirectory() as folder:
            rows = grids(arguments.grids, Predictor(arguments.program, folder))
        report([row[:4] for row in rows], {}, arguments.page)
        print("as the page has it, by grid_times:")
        report([(row[0], row[1], row[1] * (1 + row[4]), row[4]) for row in rows], {}, None, False)
        return
    chosen = [(name, data) for name, data in trials(arguments.raw) if arguments.part in data["trial"]["part"]]
    reference = [data for _, data in trials(arguments.raw)
                 if kind_of(data) == ("bandwidth", "fp32") and data["trial"]["rate"] == "unshaped"]
    with tempfile.TemporaryDirectory() as folder:
        predictor = Predictor(arguments.program, folder)
        unshaped = {}
        for _, data in chosen:
            if data["trial"]["rate"] == "unshaped":
                unshaped.setdefault(kind_of(data), []).append(data)
        rates = {None: predictor.calibrate(reference[0], statistics.median(map(measured, reference)))}
        for kind, group in unshaped.items():
            rates[kind] = predictor.calibrate(group[0], statistics.median(map(measured, group)))
        rows = []
        for name, data in chosen:
            flops = rates.get(kind_of(data), rates[None])
            seconds, predicted = measured(data), predictor.seconds(data, flops)
            rows.append((data["trial"], seconds, predicted, predicted / seconds - 1))
    report(rows, rates, arguments.page)


def report(rows, rates, page, lists=True):
    shaped = [row for row in rows if row[0]["rate"] != "unshaped"]
    lines = ["| part | rate | method | round | measured s | predicted s | error |", "|---|---|---|--:|--:|--:|--:|"]
    for trial, seconds, predicted, error in rows:
        lines.append(f"| {trial['part']} | {trial['rate']} | {trial['method']} | {trial['round']} | {seconds:.3f} "
                     f"| {predicted:.3f} | {100 * error:+.1f} % |")
    summary = []
    for title, some in (("all", rows), ("shaped links alone", shaped)):
        errors = sorted(abs(row[3]) for row in some)
        if not errors:
            continue
        within = [sum(e <= limit for e in errors) / len(errors) for limit in (0.05, 0.15)]
        summary.append(f"{title}: {len(errors)} trials, median error {100 * statistics.median(errors):.1f} %, "
                       f"{100 * within[0]:.0f} % within 5 %, {100 * within[1]:.0f} % within 15 %, "
                       f"95 % within {100 * errors[int(0.95 * (len(errors) - 1))]:.1f} %")
    if lists:
        print("\n".join(lines))
    for kind, flops in rates.items():
        print(f"calibrated {kind}: {flops / 1e9:.1f} GFLOP/s a core")
    print("\n".join(summary))
    if page:
        pathlib.Path(page).write_text("\n".join(summary) + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
