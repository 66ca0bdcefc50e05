#!/usr/bin/env python3
"""What encoding at stage boundaries does to the loss: a small GPT on WikiText-2, several settings and seeds.

    bench/run quality [options]        or python3 bench/quality.py [options]
    ... --device cuda --jobs 6 --out runs/quality --minutes 9     as much as nine minutes allow; again: the rest
    ... --out runs/quality --report                               bench/results/DATE-quality.md and its drawings
    ... --dry                                                     the commands alone

Ranks are threads of one process (network.transport = in_process), so that neither root nor a network is needed. A run
that is done is not done again; one that the time ended goes on from its checkpoint. FOLDER/results.json is whole at any time.

The corpus is looked for in $LACONIC_DATA, then in ../shared/data.
"""

import argparse
import json
import lzma
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

import pipeline_settings as settings

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 32
EPOCHS, SEEDS = 4, (1, 2, 3)
EVALUATIONS = 2  # an epoch
VALIDATION_SAMPLES = 256
SMOOTHED = 20  # steps that one point of a curve of training losses is the mean of
SMALL = {"layers": 4, "width": 256, "heads": 4, "context": 128}
TINY = {"layers": 3, "width": 64, "heads": 4, "context": 32}
# "scratch": on the whole corpus. "fine-tune": on its second half, from a model trained on the first. "low-rank": many
# microbatches a step, over whose gradients lost parts are carried, and a model that two cores can train meanwhile.
STUDIES = {"scratch": {"model": SMALL, "vocabulary": 8192, "microbatches": 4,
                       "set": {"optimiser.lr": 1e-3, "optimiser.min_lr": 1e-4, "optimiser.warmup": 100}},
           "fine-tune": {"model": SMALL, "vocabulary": 8192, "microbatches": 4,
                         "set": {"optimiser.lr": 1e-4, "optimiser.min_lr": 1e-5, "optimiser.warmup": 50}},
           "low-rank": {"model": TINY, "vocabulary": 512, "microbatches": 16,
                        "set": {"optimiser.lr": 1e-3, "optimiser.min_lr": 1e-5, "optimiser.warmup": 100}}}
BITS = ((2, 4), (3, 6), (4, 6), (4, 8))
STAGES, REPLICAS = (4, 1), (4, 2)

BY_SAMPLE = {
    "uncompressed": (STAGES, settings.whole()),
    **{f"ac-sgd fw{f} bw{b}": (STAGES, settings.delta(f, b)) for f, b in BITS},
    **{f"DirectQ fw{f} bw{b}": (STAGES, settings.direct(f, b)) for f, b in BITS},
    "rotated fw4 bw8": (STAGES, settings.rotated()),
    "uncompressed, dp 2": (REPLICAS, settings.whole()),
    "end-to-end, dp 2": (REPLICAS, settings.end_to_end()),
}
LOW_RANK = {
    "uncompressed": (STAGES, settings.whole()),
    "CB rank 8, always, no feedback": (STAGES, settings.low_rank(8, "none", "always")),
    "CB rank 8, always, feedback within a step": (STAGES, settings.low_rank(8, "feedback", "always", reset=True)),
    "CB rank 8, always, feedback for ever": (STAGES, settings.low_rank(8, "feedback", "always")),
    "CB rank 8, epilogue, feedback for ever": (STAGES, settings.low_rank(8, "feedback", "epilogue")),
    "uncompressed, dp 2": (REPLICAS, settings.whole()),
    "optimus-cc, dp 2": (REPLICAS, settings.optimus()),
}
SETTINGS = {"scratch": BY_SAMPLE, "fine-tune": BY_SAMPLE, "low-rank": LOW_RANK}


def baseline_of(name):
    return "uncompressed, dp 2" if name.endswith("dp 2") else "uncompressed"


def say(text):
    print(f"quality: {text}", file=sys.stderr, flush=True)


def key_of(study, name, seed):
    return f"{study}/{name}/{seed}"


def folder_of(out, study, name, seed):
    letters = "".join(c if c.isalnum() else "-" for c in name)
    return out / "runs" / f"{study}-{letters}-{seed}"


def corpus():
    """Folder of the three compressed texts."""
    places = [pathlib.Path(p) for p in [os.environ.get("LACONIC_DATA"), ROOT.parent / "shared/data", ROOT / "shared/data"] if p]
    found = [p / "wikitext-2" for p in places if (p / "wikitext-2/train.txt.xz").exists()]
    if not found:
        sys.exit(f"no wikitext-2/train.txt.xz in {', '.join(map(str, places))}: set LACONIC_DATA")
    return found[0]


def halves(text):
    """Cut at a line's end near the middle."""
    middle = text.index("\n", len(text) // 2) + 1
    return text[:middle], text[middle:]


def beginning(text, share):
    """So much of it, up to a line's end."""
    return text if share >= 1 else text[:text.index("\n", int(share * len(text))) + 1]


def prepare(out, laconic, vocabulary, share):
    """Prefixes of the datasets: train, valid, and the two halves of train. Made once."""
    data = out / "data"
    prefixes = {name: data / name for name in ("train", "valid", "before", "after")}
    if all(prefix.with_suffix(".json").exists() for prefix in prefixes.values()):
        return prefixes
    source = corpus()
    data.mkdir(parents=True, exist_ok=True)
    texts = {name: lzma.open(source / f"{name}.txt.xz", "rt", encoding="utf-8").read() for name in ("train", "valid")}
    texts["train"] = beginning(texts["train"], share)
    texts["before"], texts["after"] = halves(texts["train"])
    for name, text in texts.items():
        (data / f"{name}.txt").write_text(text, encoding="utf-8")
        words = ["--train-bpe", vocabulary] if name == "train" else ["--tokeniser", data / "train.tokeniser"]
        subprocess.run(list(map(str, [laconic, "prepare", data / f"{name}.txt", "--out", prefixes[name], "--overwrite", *words])),
                       check=True, capture_output=True)
    return prefixes


def samples_of(prefix, context):
    return (json.loads(prefix.with_suffix(".json").read_text())["tokens"] - 1) // context


def steps_of(samples, epochs):
    """Whole epochs, and what is left of the last batch."""
    return -(-epochs * samples // BATCH)


class Run:
    """One training: what to start, and what came of it."""

    def __init__(self, options, study, name, seed, prefixes, samples):
        self.options, self.study, self.name, self.seed, self.samples = options, study, name, seed, samples
        self.mesh, self.setting = SETTINGS[study][name]
        self.model = STUDIES[study]["model"]
        self.prefixes = prefixes
        self.key = key_of(study, name, seed)
        self.folder = folder_of(options.out, study, name, seed)
        self.steps = steps_of(samples, options.epochs)
        self.process = None

    def reference_bytes(self):
        """What both ends of all boundaries remember, in memory and once more in the last checkpoint."""
        if self.setting.get("preset") != "ac-sgd":
            return 0
        return self.samples * self.model["context"] * self.model["width"] * 2 * 2 * (self.mesh[0] - 1)

    def sets(self):
        pp, dp = self.mesh
        train = self.prefixes["after" if self.study == "fine-tune" else "train"]
        start = {} if self.study != "fine-tune" else {"model.start": newest_checkpoint(base_folder(self.options.out))}
        return {"run.folder": self.folder / "run", "run.seed": self.seed, "run.device": self.options.device, "run.threads": 1,
                **{f"model.{key}": value for key, value in self.model.items()}, **start,
                "data.train": train, "data.valid": self.prefixes["valid"], "train.steps": self.steps, "train.batch": BATCH,
                "train.microbatch": BATCH // dp // STUDIES[self.study]["microbatches"], **STUDIES[self.study]["set"],
                "optimiser.warmup": min(STUDIES[self.study]["set"]["optimiser.warmup"], self.steps // 10), "mesh.pp": pp, "mesh.dp": dp,
                "evaluate.every": max(1, self.samples // BATCH // EVALUATIONS), "evaluate.samples": VALIDATION_SAMPLES,
                "checkpoint.keep": 1, "report.tensorboard": "false", "network.transport": "in_process", "network.deadline": 600,
                **self.setting["set"]}

    def command(self):
        can_resume = newest_checkpoint(self.folder / "run") is not None
        return list(map(str, [self.options.laconic, "train", self.folder / "mine.toml", *settings.set_words(self.sets()),
                              *(["--resume", "auto"] if can_resume else ["--overwrite"]), "--json", self.folder / "summary.json"]))

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "mine.toml").write_text(settings.config_text(self.setting))
        (self.folder / "summary.json").unlink(missing_ok=True)
        self.process = start(self.command(), self.folder / "output.txt")
        self.began = time.monotonic()

    def result(self):
        """A row for results.json. Only what is done stays out of later rounds."""
        row = {"study": self.study, "setting": self.name, "seed": self.seed, "mesh": list(self.mesh), "steps": self.steps,
               "samples": self.samples, "batch": BATCH, "wall_seconds": time.monotonic() - self.began}
        try:
            summary = json.loads((self.folder / "summary.json").read_text())
        except (OSError, ValueError):
            return {**row, "state": "failed", "reason": last_words(self.folder / "output.txt", self.process.returncode)}
        if summary["step"] < summary["steps"]:
            return {**row, "state": "interrupted", "step": summary["step"]}
        return {**row, "state": "done", "resumed_at": summary["first_step"], "validation_loss": summary["validation_loss"],
                "train_seconds": summary["train_seconds"], "links": links_of(summary["config"]), "traffic": summary["traffic"], "pipeline": summary.get("pipeline", {}),
                **curves((self.folder / "run/log.jsonl").read_text(), summary["first_step"])}

    def clear(self):
        """Checkpoints hold all references; only the log is of use."""
        shutil.rmtree(self.folder / "run/checkpoints", ignore_errors=True)


def start(command, output):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=open(output, "w"),
                            stderr=subprocess.STDOUT)


def last_words(path, code):
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return f"exit code {code}: {(lines or ['nothing was said'])[-1][:300]}"


def newest_checkpoint(run_folder):
    found = sorted((run_folder / "checkpoints").glob("step-*"))
    return found[-1] if found else None


def curves(log, first_step):
    """Of log.jsonl: validation losses by step, and training losses, each the mean of some steps.

    Traffic is counted since `first_step`, where the run was taken up again, and so are samples of evaluations.
    """
    rows = [json.loads(line) for line in log.splitlines()]
    losses = [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None]
    groups = [losses[i:i + SMOOTHED] for i in range(0, len(losses), SMOOTHED)]
    evaluations = [row for row in rows if "validation_loss" in row]
    return {"validation": [[row["step"], row["validation_loss"]] for row in evaluations],
            "validated_samples": sum(row["validation_samples"] for row in evaluations if row["step"] > first_step),
            "loss": [[group[-1][0], sum(loss for _, loss in group) / len(group)] for group in groups]}


def links_of(toml):
    """What travels between stages, of a resolved configuration: "pp.activation.codec" and its like to a text."""
    values, section = {}, ""
    for line in toml.splitlines():
        if line.startswith("["):
            section = line.strip().strip("[]")
        elif section.startswith("pp.") and "=" in line:
            key, value = line.split("=", 1)
            values[f"{section}.{key.strip()}"] = value.split("  #")[0].strip().strip('"')
    return values


def base_folder(out):
    return out / "runs" / "base"


def make_base(options, prefixes, deadline):
    """The model that `fine-tune` begins from: one rank, the first half of the corpus. False: not done in time."""
    folder, samples = base_folder(options.out), samples_of(prefixes["before"], SMALL["context"])
    sets = {"run.folder": folder, "run.device": options.device, **{f"model.{key}": value for key, value in SMALL.items()},
            "data.train": prefixes["before"], "data.valid": prefixes["valid"], "train.batch": BATCH,
            "train.steps": steps_of(samples, options.epochs), **STUDIES["scratch"]["set"], "evaluate.samples": VALIDATION_SAMPLES,
            "checkpoint.keep": 1, "report.tensorboard": "false"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.toml").write_text("")
    summary = folder / "summary.json"
    if is_finished(summary):
        return True
    words = [options.laconic, "train", folder / "mine.toml", *settings.set_words(sets), "--resume", "auto", "--json", summary]
    if options.dry:
        print(" ".join(map(str, words)))
        return True
    say("the model that fine-tuning begins from")
    process = start(list(map(str, words)), folder / "output.txt")
    wait_until(deadline, lambda: process.poll() is not None)
    stop([process], options.grace)
    if process.returncode not in (0, 128 + signal.SIGTERM):
        sys.exit(last_words(folder / "output.txt", process.returncode))
    return is_finished(summary)


def is_finished(summary):
    if not summary.exists():
        return False
    facts = json.loads(summary.read_text())
    return facts["step"] >= facts["steps"]


def wait_until(deadline, is_over):
    while not is_over() and time.monotonic() < deadline:
        time.sleep(0.2)


def stop(processes, grace):
    """Lets them save; kills what takes too long."""
    alive = [p for p in processes if p.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGTERM)
    wait_until(time.monotonic() + grace, lambda: all(p.poll() is not None for p in alive))
    for process in alive:
        if process.poll() is None:
            process.kill()
        process.wait()


class Results:
    """results.json, whole at any time."""

    def __init__(self, path, about):
        self.path = path
        self.facts = json.loads(path.read_text()) if path.exists() else {"runs": {}}
        self.facts["about"] = {**self.facts.get("about", {}), **about}

    def is_done(self, key, retry):
        state = self.facts["runs"].get(key, {}).get("state")
        return state == "done" or (state == "failed" and not retry)

    def add(self, key, row):
        self.facts["runs"][key] = row
        self.write()

    def write(self):
        beside = self.path.with_suffix(".json.tmp")
        beside.write_text(json.dumps(self.facts))
        beside.replace(self.path)


def room(out):
    """Bytes that references may take, in memory and on the disk."""
    meminfo = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return 0.8 * min(1024 * int(meminfo["MemAvailable"].split()[0]), shutil.disk_usage(out).free)


def next_run(queue, running, available):
    """The first that fits beside those that run; alone, anything fits."""
    taken = sum(run.reference_bytes() for run in running)
    fitting = (run for run in queue if not running or taken + run.reference_bytes() <= available)
    return next(fitting, None)


def work(options, queue, results, deadline):
    """Runs all of the queue that time allows; `jobs` at once."""
    running, available = [], room(options.out)
    while (queue or running) and time.monotonic() < deadline:
        while len(running) < options.jobs and (run := next_run(queue, running, available)):
            queue.remove(run)
            run.start()
            running.append(run)
            say(f"{run.key}: {run.steps} steps; {len(queue)} wait")
        time.sleep(0.2)
        for run in [r for r in running if r.process.poll() is not None]:
            running.remove(run)
            finish(run, results)
    stop([run.process for run in running], options.grace)
    for run in running:
        finish(run, results)
    return not queue and not running


def finish(run, results):
    row = run.result()
    results.add(run.key, row)
    if row["state"] != "interrupted":
        run.clear()
    shown = {"done": f"validation loss {row.get('validation_loss', 0):.4f}", "interrupted": f"at step {row.get('step')} of {row['steps']}"}
    say(f"{run.key}: {row['state']}, {shown.get(row['state'], row.get('reason'))}, {row['wall_seconds']:.0f} s")


def about(options):
    def answer(*words):
        try:
            return subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""
    graphics = answer("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") if options.device == "cuda" else ""
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    version = answer(options.laconic, "--version")
    commit = re.search(r"\(commit ([^,)]+)", version)  # that the program was built from
    facts = {"machine": f"{cpu}, {os.cpu_count()} threads; {platform.platform()}", "graphics": graphics, "device": options.device,
             "jobs": options.jobs, "epochs": options.epochs, "share": options.share, "version": version,
             "commit": options.commit or (commit.group(1) if commit else "")}
    return {key: value for key, value in facts.items() if value}


def chosen(names, words):
    """In their own order; a word that is a name means that one alone."""
    return [name for name in names if not words or name in words or any(word in name for word in words if word not in names)]


def runs_of(options, prefixes):
    """Seeds outermost: what is there after a while has all settings."""
    samples = samples_of(prefixes["after" if options.study == "fine-tune" else "train"], STUDIES[options.study]["model"]["context"])
    return [Run(options, options.study, name, seed, prefixes, samples)
            for seed in options.seeds for name in chosen(SETTINGS[options.study], options.only)]


def parse(words):
    parser = argparse.ArgumentParser(prog="bench/run quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "runs/quality", help="where everything goes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each on one thread a rank")
    parser.add_argument("--minutes", type=float, default=1e6, help="end by itself before so many have passed")
    parser.add_argument("--grace", type=float, default=45, help="seconds of them for saving what is not done")
    parser.add_argument("--study", choices=STUDIES, default="scratch")
    parser.add_argument("--share", type=float, default=1, help="train on this much of the corpus, from its beginning")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=list(SEEDS), help="as 1,2,3")
    parser.add_argument("--only", action="append", default=[], help="the setting of this name, or those whose name contains it; may be repeated")
    parser.add_argument("--retry", action="store_true", help="also what failed before")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", help="folder of the program")
    parser.add_argument("--commit", default="", help="to be noted, where the program was built without git")
    parser.add_argument("--dry", action="store_true", help="print the commands and run none")
    parser.add_argument("--report", action="store_true", help="make the report of what is in --out, and run nothing")
    parser.add_argument("--links", default="10mbit,100mbit", help="report: link rates of the composed curves over seconds")
    parser.add_argument("--forward", type=float, help="report: seconds of a stage's forward of a microbatch; default: as the runs measured")
    parser.add_argument("--backward", type=float, help="report: the same of backward")
    parser.add_argument("--steps", type=pathlib.Path, help="report: JSON of measured seconds a step, by rate and setting, "
                                                           "instead of estimates (bench/run pipeline prints one)")
    options = parser.parse_args(words)
    options.out = options.out.resolve()
    options.laconic = options.bin.resolve() / "laconic"
    return options


def main(words):
    began = time.monotonic()
    options = parse(words)
    if options.report:
        import quality_report
        return quality_report.report(options)
    deadline = began + 60 * options.minutes - options.grace
    options.out.mkdir(parents=True, exist_ok=True)
    prefixes = prepare(options.out, options.laconic, STUDIES[options.study]["vocabulary"], options.share)
    if options.study == "fine-tune" and not make_base(options, prefixes, deadline):
        say("the time is over before the model that fine-tuning begins from is done; start again")
        return 0
    results = Results(options.out / "results.json", {} if options.dry else about(options))
    queue = [run for run in runs_of(options, prefixes) if not results.is_done(run.key, options.retry)]
    if options.dry:
        print("\n".join(" ".join(run.command()) for run in queue))
        return 0
    is_all = work(options, queue, results, deadline)
    failed = sum(row["state"] == "failed" for row in results.facts["runs"].values())
    say(("no run is left" if is_all else "the time is over; start again for the rest") + (f"; {failed} have failed" if failed else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
