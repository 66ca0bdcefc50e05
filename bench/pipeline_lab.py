"""Pipelines in a lab: runs them, reads what they measured, looks for a rate. For bench/pipeline.py.

`Lab` runs; `DryLab` prints the commands and invents times, which no table may keep.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import network
from network import BIN, ROOT, Failed
from pipeline_settings import config_text, set_words

MODEL = {"layers": 8, "width": 256, "heads": 4, "context": 128}
VOCABULARY = 2048
LEARNING_RATE = 3e-4
# Of what is trained on: 6.5 steps of the batch without replicas, 3.25 of that with two, so that epochs are short.
SAMPLES = 208
DEADLINE = 600
LAB = "pipeline"  # name of the lab
RUN_FOLDER = "RUN_FOLDER"  # in a value: a folder of the run's own, gone afterwards


class Mesh:
    """Hosts of one rank each, and the batch that they share."""

    def __init__(self, pp, dp, microbatch=4, microbatches=8):
        self.pp, self.dp, self.microbatch, self.microbatches = pp, dp, microbatch, microbatches
        self.hosts = pp * dp
        self.batch = microbatch * microbatches * dp

    def __str__(self):
        return f"pp {self.pp} x dp {self.dp}, {self.microbatches} microbatches of {self.microbatch}"

    def sets(self):
        return {"mesh.pp": self.pp, "mesh.dp": self.dp, "train.batch": self.batch, "train.microbatch": self.microbatch}


def say(text):
    print(f"pipeline: {text}", file=sys.stderr, flush=True)


def by_epoch(rows, samples, mesh):
    """Steps of the first epoch but the very first, and steps of later ones; one that has both is in neither.

    Every replica goes through a shard of its own, as many samples of each step as of the others'.
    """
    shard, share = samples // mesh.dp, mesh.batch // mesh.dp
    first = [row for row in rows if 1 < row["step"] and row["step"] * share <= shard]
    later = [row for row in rows if (row["step"] - 1) * share >= shard]
    return first, later


def seconds_of(rows):
    return statistics.median(row["seconds"] for row in rows)


def traffic_of(summary, *classes):
    """Sums over the named traffic classes, all ranks and the whole run."""
    chosen = [t for t in summary["traffic"] if t["class"] in classes]
    return {key: sum(t[key] for t in chosen) for key in ("raw_bytes", "wire_bytes", "messages", "codec_seconds")}


def sent_per_step(summary):
    """Bytes that all ranks together send in a step; not what agreement takes, which is little, and checkpoints, with which it is counted."""
    return sum(t["wire_bytes"] for t in summary["traffic"] if t["class"] not in ("control", "preflight")) / summary["step"]


def computing_per_step(summary, mesh):
    """Seconds a rank computes in a step, forward and backward, by rank."""
    return [mesh.microbatches * (r["forward_seconds"] + r["backward_seconds"]) for r in summary["pipeline"]["ranks"]]


def rate_text(megabits):
    return f"{max(100, round(1000 * megabits))}kbit"


def megabits(rate):
    number, unit = float(rate[:-4]), rate[-4:]
    return number * {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}[unit]


def find_rate(measure, unshaped, times, start, is_enough, tries=8):
    """A rate at which a step takes about `times` as long as unshaped.

    Seconds are about straight over 1 / rate, so the next rate lies on the line through the nearest ones on either side;
    while there is but one side, through `unshaped`. `is_enough` judges the step's seconds / unshaped. Returns the
    rate's text and all that was tried.
    """
    rate, tried, below, above = start, [], None, None
    for _ in range(tries):
        ratio = measure(rate_text(rate)) / unshaped
        tried.append((rate_text(rate), ratio))
        if is_enough(ratio):
            return rate_text(rate), tried
        if ratio < times:
            below = (1 / rate, ratio)
        else:
            above = (1 / rate, ratio)
        rate = 1 / next_inverse(below, above, times)
    raise Failed(f"no rate makes steps {times} times as long: tried " + ", ".join(f"{r}: {x:.2f}" for r, x in tried))


def next_inverse(below, above, times):
    """1 / rate to try next, of those that were too fast and too slow so far, each (1 / rate, ratio)."""
    if below and above:
        return below[0] + (above[0] - below[0]) * (times - below[1]) / (above[1] - below[1])
    inverse, ratio = below or above
    # Where a step is hardly slower, its excess is all noise: then only go on quickly.
    return inverse * min((times - 1) / max(ratio - 1, 0.05), 20)


class Lab:
    """The dataset and the runs on it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "some"
        self.samples = SAMPLES
        self.prepare()

    def prepare(self):
        """The vocabulary is learnt from the whole corpus, the samples are from its beginning."""
        words = [BIN / "laconic", "prepare", "--documents", "paragraph", "--out"]
        corpus = ROOT / "examples/quickstart/corpus"
        self.call(*words, self.folder / "all", "--train-bpe", VOCABULARY, corpus)
        text = "".join(path.read_text() for path in sorted(corpus.glob("*.txt")))
        whole = json.loads((self.folder / "all.json").read_text())
        wanted = (SAMPLES + 0.5) * MODEL["context"] * len(text) / whole["tokens"]
        (self.folder / "some.txt").write_text(text[:int(wanted)])
        self.call(*words, self.data, "--tokeniser", self.folder / "all.tokeniser", self.folder / "some.txt")
        tokens = json.loads((self.folder / "some.json").read_text())["tokens"]
        self.samples = (tokens - 1) // MODEL["context"]

    @staticmethod
    def call(*words):
        subprocess.run(list(map(str, words)), check=True, capture_output=True, cwd=ROOT)

    def command(self, setting, steps, mesh, folder, more):
        sets = {"run.folder": f"{folder}/run", "run.threads": 1, **{f"model.{k}": v for k, v in MODEL.items()},
                "data.train": self.data, "train.steps": steps, **mesh.sets(), "optimiser.lr": LEARNING_RATE,
                "optimiser.schedule": "constant", "optimiser.warmup": 0, "report.tensorboard": "false",
                "network.preflight": "false", "network.deadline": DEADLINE,
                **{key: str(value).replace(RUN_FOLDER, str(folder)) for key, value in {**setting["set"], **more}.items()}}
        return [BIN / "laconic", "train", f"{folder}/mine.toml", *set_words(sets), "--json", f"{folder}/summary.json"]

    def train(self, rate, setting, steps, mesh, more=None):
        """Rows of the log, the summary, and seconds of an update on rank 0 where there is a trace."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            pathlib.Path(folder, "mine.toml").write_text(config_text(setting))
            run_in_lab(rate, self.command(setting, steps, mesh, folder, more or {}), mesh.hosts, folder, steps)
            summary = json.loads(pathlib.Path(folder, "summary.json").read_text())
            log = [json.loads(line) for line in pathlib.Path(folder, "run/log.jsonl").read_text().splitlines()]
            trace = pathlib.Path(folder, "run/trace.json")
            update = update_seconds(json.loads(trace.read_text())) if trace.exists() else None
        rows = [row for row in log if "loss" in row]
        if len(rows) != steps or "pipeline" not in summary:
            raise Failed(f"{len(rows)} of {steps} steps are in the log" if "pipeline" in summary else "this build has no pipeline")
        return {"rows": rows, "summary": summary, "update": update}

    def payload_rate(self, rate, seconds=4):
        """bit/s that TCP carries from each host to the next while it takes as much, by iperf3: pipelines use links both ways at
        once, and acknowledgements then take some of what data could have."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return 1e6 * network.iperf(rate, seconds, folder)["ring"]


def lab(verb, *words, may_fail=False):
    done = subprocess.run([str(BIN / "laconic"), "lab", verb, *words, "--name", LAB], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0 and not may_fail:
        raise Failed(f"lab {verb}: {network.reason_in(done.stderr)[:200]}")


def run_in_lab(rate, command, hosts, folder, steps):
    """Runs it in a lab that is there for this run. Once the last step is in the log, the links are let go: the checkpoint,
    which nobody measures, would take minutes."""
    lab("down", may_fail=True)  # of a benchmark that was killed
    lab("up", "--hosts", str(hosts), "--rate", rate)
    try:
        watch(start_in_lab(command, folder), pathlib.Path(folder, "run/log.jsonl"), steps, rate != "unshaped")
    finally:
        lab("down")


def start_in_lab(command, folder):
    words = [str(BIN / "laconic"), "lab", "run", "--name", LAB, "--threads", "1", "--", *map(str, command)]
    with open(pathlib.Path(folder, "errors.txt"), "w+") as errors:
        return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors), errors.name


def watch(started, log, steps, is_slow):
    process, errors = started
    deadline = time.monotonic() + network.TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        if is_slow and log.exists() and log.read_text().count("\n") >= steps:
            lab("rate", "unshaped", may_fail=True)  # it would only take longer
            is_slow = False
    if process.poll() is None:
        process.terminate()
        process.wait()
        raise Failed(f"not done after {network.TIMEOUT} s")
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}: {network.reason_in(pathlib.Path(errors).read_text())[:200]}")


def update_seconds(trace):
    spans = [e["dur"] * 1e-6 for e in trace["traceEvents"] if e.get("name") == "update" and "dur" in e]
    return statistics.median(spans) if spans else 0.0


class DryLab(Lab):
    """Invents a second of computing a step and bytes that follow from names alone: enough for every table to be made."""

    def prepare(self):
        pass

    def train(self, rate, setting, steps, mesh, more=None):
        print(f"{BIN}/laconic lab up --name {LAB} --hosts {mesh.hosts} --rate {rate}")
        print(" ".join(map(str, [BIN / "laconic", "lab", "run", "--name", LAB, "--threads", 1, "--",
                                 *self.command(setting, steps, mesh, "FOLDER", more or {})])))
        more = more or {}
        has_preset, codec = "preset" in setting, setting["set"].get("pp.activation.codec", "raw")
        shrink = 7 if has_preset or "bits=" in codec else 2 if "half" in codec else 1
        message = mesh.microbatch * MODEL["context"] * MODEL["width"] * 4 / shrink
        count = steps * mesh.microbatches * (mesh.pp - 1) * mesh.dp
        classes = {"pp.activation": count * message, "pp.gradient": count * message, "embedding.tied": steps * 2e6 / shrink}
        waiting = 0 if rate == "unshaped" else 22 * message * 8 / (1e6 * megabits(rate))
        rows = [{"step": s + 1, "loss": 7.0, "seconds": 1 + waiting, "wire_bytes": 8 * message, "exposed_seconds": waiting}
                for s in range(steps)]
        summary = {"step": steps, "traffic": [{"class": name, "raw_bytes": shrink * size, "wire_bytes": size, "messages": count,
                                               "codec_seconds": 0.01 * steps} for name, size in classes.items()],
                   "pipeline": {"reference_wait_seconds": 0.0, "references": 0, "reference_bytes": 0, "repaired": 0,
                                "ranks": [{"forward_seconds": 0.02, "backward_seconds": 0.04, "waiting_seconds": 0.0}] * mesh.hosts}}
        return {"rows": rows, "summary": summary, "update": 0.01}

    def payload_rate(self, rate, seconds=4):
        print(f"iperf3 from every host to the next at {rate}, {seconds} s")
        return 0.936e6 * megabits(rate)
