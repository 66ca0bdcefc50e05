"""The benchmark `network` of bench/run: four hosts in a lab, one thread each, at several rates.

    bench/run network [RATE ...]     default: 20mbit 100mbit 1gbit unshaped; as root

What is not built, is refused or fails gets a note in place of its row. Numbers of a machine that does something
else at the same time are worthless: ranks outnumber cores here, and every rank waits for the slowest.
"""

import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
PYTHON = "/usr/bin/python3"
HOSTS = 4
# name of the rate: rounds, timed steps of a round, seconds of iperf3
RATES = {"20mbit": (1, 2, 5), "100mbit": (2, 3, 5), "1gbit": (2, 6, 3), "unshaped": (2, 8, 3)}
WARMUP = 1  # steps before the timed ones, unless a contestant needs more
LOSS_STEPS = 60  # of the comparison of losses, which does not depend on the rate and runs unshaped
TIMEOUT = 1800

MODEL = {"layers": 6, "width": 384, "heads": 6, "context": 128, "vocabulary": 8192, "batch": 8}
LEARNING_RATE = 3e-4

# What `laconic train` does with gradients: the table to change. "mean": a step of this policy is not like the next, so that
# the mean over the timed steps counts, and they are made a multiple of the period. "warmup": steps before the timed
# ones, where more are needed. "loss": what else is set where losses are compared. "rates": not at the others.
POLICIES = {
    "laconic, raw": {"set": {"dp.gradient.codec": "raw"}},
    "laconic, raw, no overlap": {"set": {"dp.gradient.codec": "raw", "dp.gradient.overlap": "false"}, "rates": ["1gbit"]},
    "laconic, 4 bits": {"set": {"dp.gradient.codec": "quantise:bits=4"}},
    "laconic, 3 bits": {"set": {"dp.gradient.codec": "quantise:bits=3"}},
    "laconic, power_sgd rank 32, 8 bits": {"set": {"dp.gradient.method": "power_sgd", "dp.gradient.rank": "32",
                                                   "dp.gradient.codec": "quantise:bits=8", "dp.gradient.by_block": "true"}},
    "laconic, compressed_adam, sign": {"set": {"dp.gradient.method": "compressed_adam", "dp.gradient.codec": "sign",
                                               "dp.gradient.warmup": "1"}, "loss": {"dp.gradient.warmup": "10"}},
}
# DDP's PowerSGD needs two plain steps first.
PEERS = {"DDP": {"words": []}, "DDP, fp16 hook": {"words": ["--hook", "fp16"]},
         "DDP, PowerSGD hook rank 32": {"words": ["--hook", "powersgd", "--rank", "32"], "warmup": 3}}
COLLECTIVES = {"plain": ["--codec", "raw"], "native": ["--codec", "raw", "--algorithm", "native"],
               "quantise:bits=4": ["--codec", "quantise:bits=4"]}


class Failed(Exception):
    pass


def in_lab(rate, command, environment, hosts=HOSTS):
    """What rank 0 prints."""
    words = [BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", hosts, "--rate", rate, "--threads", "1", "--", *command]
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=ROOT, timeout=TIMEOUT,
                              env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {TIMEOUT} s")
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {reason_in(done.stderr)[:200]}")
    return done.stdout


def reason_in(errors):
    """The last line that is neither about who ended how nor from a rank that only lost another."""
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith(("laconic: rank", "  rank", "laconic: how"))]
    own = [line for line in lines if " is lost: " not in line and "records of" not in line]
    return (own or lines or ["no reason was given"])[-1].strip()


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


class Work:
    """The dataset, the initial weights and the environments that all contestants share."""

    def __init__(self, folder, facts):
        self.folder = pathlib.Path(folder)
        advised = {s["name"]: s["advised"] for s in facts["environment"]}
        blas = glob.glob("/usr/lib/*/openblas-openmp")
        # Threads are the lab's business; allocator settings are Laconic's own advantage, which bench/run train measures.
        self.peer_environment = {k: v for k, v in advised.items() if not k.startswith(("MALLOC", "GLIBC", "GOMP"))
                                 and not k.endswith("_NUM_THREADS")}
        self.peer_environment["LD_LIBRARY_PATH"] = blas[0] if blas else ""
        self.data, self.weights = self.folder / "data", self.folder / "weights"
        run = lambda *words: subprocess.run(list(map(str, words)), check=True, capture_output=True, cwd=ROOT)
        run(BIN / "laconic", "prepare", ROOT / "examples/quickstart/corpus", "--documents", "paragraph", "--train-bpe",
            MODEL["vocabulary"], "--out", self.data)
        run(PYTHON, ROOT / "bench/peers/torch_ddp.py", *self.model_words(), "--make-weights", self.weights)

    @staticmethod
    def model_words():
        return [word for key, value in MODEL.items() for word in (f"--{key}", str(value))]

    def peer(self, rate, words, warmup, steps):
        command = [PYTHON, ROOT / "bench/peers/torch_ddp.py", *self.model_words(), "--data", self.data, "--weights", self.weights,
                   "--lr", LEARNING_RATE, "--warmup", warmup, "--steps", steps, *words]
        row = last_json(in_lab(rate, command, self.peer_environment))
        return {"seconds": row["step_ms"] / 1e3, "wire": row["sent_bytes_per_step"], "losses": row["losses"]}

    def ours(self, rate, policy, warmup, steps):
        if not (BIN / "laconic-worker").exists():
            raise Failed("laconic-worker is not built")
        period = policy.get("mean", 1)
        warmup, steps = -(-warmup // period) * period, -(-steps // period) * period
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            sets = {"run.folder": f"{folder}/run", "run.threads": 1, "mesh.dp": HOSTS, "model.start": self.weights,
                    "data.train": self.data, "data.shuffle": "false", "train.batch": MODEL["batch"],
                    "train.steps": warmup + steps, "optimiser.lr": LEARNING_RATE, "optimiser.schedule": "constant",
                    "optimiser.warmup": 0, "report.tensorboard": "false", "network.preflight": "false",
                    "network.deadline": 600, **policy["set"]}
            words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
            pathlib.Path(folder, "empty.toml").write_text("")
            in_lab(rate, [BIN / "laconic", "train", f"{folder}/empty.toml", *words], {})
            log = [json.loads(line) for line in pathlib.Path(folder, "run/log.jsonl").read_text().splitlines()]
        rows = [row for row in log if "loss" in row]
        timed = rows[warmup:]
        if len(timed) != steps or "wire_bytes" not in rows[-1]:
            raise Failed("this build does not train on several ranks")
        middle = statistics.mean if period > 1 else statistics.median
        return {"seconds": middle(row["seconds"] for row in timed), "wire": statistics.mean(row["wire_bytes"] for row in timed),
                "exposed": statistics.mean(row["exposed_seconds"] for row in timed), "losses": [row["loss"] for row in rows]}

    def contestants(self):
        """Name, what its table says, and what runs it."""
        for name, peer in PEERS.items():
            yield name, peer, lambda rate, warmup, steps, peer=peer: self.peer(rate, peer["words"], warmup, steps)
        for name, policy in POLICIES.items():
            yield name, policy, lambda rate, warmup, steps, policy=policy: self.ours(rate, policy, warmup, steps)


def say(text):
    print(f"network: {text}", file=sys.stderr, flush=True)


# Every host sends to the next one; or host 1 alone to host 0. Words: which, seconds, folder for the results.
IPERF = """
if [ $1 = alone ] && [ $RANK -gt 1 ]; then exit 0; fi
to=$(( (RANK + 1) % WORLD_SIZE + 1 ))
if [ $1 = alone ]; then to=1; fi
if [ $1 = ring ] || [ $RANK = 0 ]; then iperf3 -s -1 >/dev/null 2>&1 & fi
sleep 1
if [ $1 = ring ] || [ $RANK = 1 ]; then iperf3 -c 10.77.0.$to -t $2 -J > $3/$1.$RANK.json; fi
wait
"""


def iperf(rate, seconds, folder):
    """Mbit/s of payload: one pair alone, and the least of a full ring."""
    results = {}
    for kind in ("alone", "ring"):
        in_lab(rate, ["bash", "-c", IPERF, "iperf", kind, seconds, folder], {})
        files = pathlib.Path(folder).glob(f"{kind}.*.json")
        results[kind] = min(json.loads(f.read_text())["end"]["sum_received"]["bits_per_second"] / 1e6 for f in files)
    return results


def links(rates, folder):
    lines = ["### Links", "", "| rate | iperf3, one pair, Mbit/s | iperf3, ring of 4, slowest, Mbit/s |", "|---|--:|--:|"]
    measured = {}
    for rate in rates:
        say(f"{rate}, iperf3")
        try:
            measured[rate] = iperf(rate, RATES[rate][2], folder)
            lines.append(f"| {rate} | {measured[rate]['alone']:.1f} | {measured[rate]['ring']:.1f} |")
        except (Failed, ValueError, KeyError) as error:
            lines.append(f"| {rate} | {error} | |")
    return [*lines, ""], measured


def collectives(rates, measured):
    lines = ["### All-reduce of 16 MiB", ""]
    if not (BIN / "collective_bench").exists():
        return [*lines, "Skipped: collective_bench is not built.", ""]
    lines += ["| rate | what | ms | of the link's limit | against plain |", "|---|---|--:|--:|--:|"]
    size = 16 << 20
    for rate in rates:
        seconds = {}
        for _ in range(RATES[rate][0]):
            for name, words in COLLECTIVES.items():
                say(f"{rate}, all-reduce, {name}")
                try:
                    row = last_json(in_lab(rate, [BIN / "collective_bench", "--bytes", size, "--rounds", 5, *words], {}))
                    seconds.setdefault(name, []).append(row["median_s"])
                except Failed as error:
                    say(f"{name}: {error}")
        limit = 2 * (HOSTS - 1) / HOSTS * size * 8 / (1e6 * measured[rate]["alone"]) if rate in measured else None
        for name, times in seconds.items():
            middle = statistics.median(times)
            share = f"{100 * limit / middle:.0f} %" if limit and "quantise" not in name else ""
            speed = f"{statistics.median(seconds['plain']) / middle:.2f}x" if "plain" in seconds else ""
            lines.append(f"| {rate} | {name} | {1e3 * middle:.1f} | {share} | {speed} |")
    return [*lines, ""]


def training(rates, work):
    """tokens/s of every contestant at every rate; rounds alternate."""
    rows, notes = {}, {}
    for rate in rates:
        rounds, steps, _ = RATES[rate]
        for number in range(rounds):
            for name, facts, run in work.contestants():
                if name in notes or rate not in facts.get("rates", rates):
                    continue
                say(f"{rate}, round {number + 1} of {rounds}, {name}")
                try:
                    row = run(rate, facts.get("warmup", WARMUP), steps)
                    rows.setdefault((rate, name), []).append(row)
                except Failed as error:
                    say(f"{name}: {error}")
                    notes[name] = f"{rate}: {error}"
    return rows, notes


def training_table(rate, rows):
    tokens = MODEL["batch"] * MODEL["context"]
    middle = lambda at, name, key: statistics.median(row[key] for row in rows[at, name] if key in row)
    lines = [f"### Training at {rate}", "", "| | step ms | tokens/s | against DDP | of its own unshaped speed | sent MB a step | exposed ms |",
             "|---|--:|--:|--:|--:|--:|--:|"]
    for at, name in rows:
        if at != rate:
            continue
        times = [1e3 * row["seconds"] for row in rows[at, name]]
        seconds = middle(rate, name, "seconds")
        against = f"{middle(rate, 'DDP', 'seconds') / seconds:.2f}x" if (rate, "DDP") in rows else ""
        own = f"{100 * middle('unshaped', name, 'seconds') / seconds:.0f} %" if ("unshaped", name) in rows else ""
        exposed = f"{1e3 * middle(rate, name, 'exposed'):.0f}" if "exposed" in rows[at, name][0] else ""
        lines.append(f"| {name} | {statistics.median(times):.0f} ({min(times):.0f}–{max(times):.0f}) | {tokens / seconds:.0f} | {against} | {own} | "
                     f"{middle(rate, name, 'wire') / 1e6:.2f} | {exposed} |")
    return [*lines, ""]


def losses(work, notes):
    lines = [f"### Loss after {LOSS_STEPS} steps", "", "Unshaped; same initial weights, same samples in the same order, same optimiser. "
             "Mean of the last five steps.", "", "| | loss | against DDP |", "|---|--:|--:|"]
    reference = None
    for name, facts, _ in work.contestants():
        if name in notes or "rates" in facts:
            continue
        say(f"loss, {name}")
        try:
            if "words" in facts:
                found = work.peer("unshaped", facts["words"], 0, LOSS_STEPS)
            else:
                found = work.ours("unshaped", {**facts, "set": {**facts["set"], **facts.get("loss", {})}}, 0, LOSS_STEPS)
            loss = statistics.mean(found["losses"][-5:])
        except Failed as error:
            notes[name] = f"loss: {error}"
            continue
        reference = reference or loss
        lines.append(f"| {name} | {loss:.4f} | {100 * (loss / reference - 1):+.2f} % |")
    return [*lines, ""]


def network(facts):
    """Data-parallel training over slow links: 4 hosts in a lab, 4 ranks of one thread, against PyTorch DDP over gloo."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    rates = sys.argv[2:] or list(RATES)
    if set(rates) - set(RATES):
        return [f"Skipped: of {', '.join(rates)} only these rates are known: {', '.join(RATES)}.", ""]
    with tempfile.TemporaryDirectory() as folder:
        lines, measured = links(rates, folder)
        lines += collectives(rates, measured)
        work = Work(folder, facts)
        rows, notes = training(rates, work)
        for rate in rates:
            lines += training_table(rate, rows)
        lines += losses(work, notes)
    if notes:
        lines += ["### Rows that are missing", "", *(f"- {name}: {note}" for name, note in notes.items()), ""]
    return lines
