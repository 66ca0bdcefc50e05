"""Where the processors' time goes while models train over slow links: perf over all of the machine, by what was running.

perf samples both what ranks do and what the kernel does for them, and how long processors have nothing to do. Every setting
runs twice, for a few steps and for many: the difference of their samples is that of the steps between, without starting
and ending. `bench/run profile` needs root, linux-perf, and a machine with nothing else to do.
"""

import collections
import json
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERTZ = 499
FEW, MANY = 8, 24  # steps of the short and the long runs; FEW: beyond the first epoch, where links begin to remember
# Trials of `laconic lab report --size full`, whose commands are run here with other numbers of steps.
TABLES = {
    "A pipeline of four stages": ("bandwidth", ["fp32", "ac-sgd"], ["unshaped", "100mbit"]),
    "Four replicas": ("data-parallel", ["DDP", "laconic, raw", "laconic, 4 bits", "laconic, PowerSGD rank 32, 8 bits"], ["1gbit"]),
}

# The first that fits, of "library symbol"; rows of the table in this order.
KINDS = {
    "nothing to do": r"^idle ",
    "matrix products": r"^libopenblas",
    "the model's other kernels": r"^laconic.* .*(gelu|softmax|log_sum_exp|cross_entropy|layer_norm|dropout|embedding|fused|Stage)",
    "the update": r"^laconic.* .*(adamw|sum_of_squares)",
    # What else there is of kernels is the codecs'.
    "encoding and decoding": r"^laconic.* .*(kernel::|crc32c|payload|encode|decode|scale|residual|Sender|Receiver|DeltaStore|no_exponent)",
    "other tensor work (libtorch)": r"^(libtorch|libc10|libgomp)",
    "the kernel, by name for the network": r"^\[kernel.* .*(softirq|tcp|ip_|ip6|skb|sock|inet|net_|netif|eth|br_|nf_|tbf|qdisc|dev_|iter"
                                           r"|csum|poll|napi|gro|xmit|ack)",
    "the rest of the kernel": r"^\[",
    "the rest": r"",
}
IGNORED = ("perf",)  # the observer


class Failed(Exception):
    pass


class Perf:
    """Samples the whole machine until stopped, which returns how many samples there are of each kind."""

    def __init__(self, file):
        self.file = file
        self.process = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-a", "-o", str(file)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        errors = self.process.communicate()[1]
        if not self.file.exists():
            raise Failed(f"perf wrote nothing: {errors.strip()[:200]}")
        done = subprocess.run(["perf", "report", "-i", str(self.file), "--stdio", "-t", "|", "-n", "--sort", "comm,dso,symbol"],
                              capture_output=True, text=True)
        return counts_of(done.stdout)


def kind_of(command, library, symbol):
    if command == "swapper":
        library = "idle"
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, f"{library} {symbol}"))


def counts_of(report):
    """perf's table: overhead, samples, command, library, symbol."""
    counts = collections.Counter()
    for line in report.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("#") or len(cells) < 5 or not cells[1].isdigit() or cells[2] in IGNORED:
            continue
        counts[kind_of(cells[2], cells[3], cells[4])] += int(cells[1])
    return counts


def shares_between(few, many):
    """Of the processors' time in the steps that the longer run has more."""
    more = {kind: max(0, many[kind] - few[kind]) for kind in KINDS}
    total = sum(more.values())
    if total < 2 * HERTZ:
        raise Failed(f"{total} samples are too few")
    return {kind: count / total for kind, count in more.items()}


def say(text):
    print(f"profile: {text}", file=sys.stderr, flush=True)


def table(title, columns):
    names = list(columns)
    lines = [f"### {title}", "", "| % of the processors' time | " + " | ".join(names) + " |", "|---" + "|--:" * len(names) + "|"]
    for kind in KINDS:
        lines.append(f"| {kind} | " + " | ".join(f"{100 * columns[name][1][kind]:.1f}" for name in names) + " |")
    lines.append("| a step, ms | " + " | ".join(f"{1e3 * columns[name][0]:.0f}" for name in names) + " |")
    busy = [1 - columns[name][1]["nothing to do"] for name in names]
    products = [columns[name][1]["matrix products"] for name in names]
    lines.append("| products, % of what processors did | " + " | ".join(f"{100 * p / b:.0f}" for p, b in zip(products, busy)) + " |")
    return [*lines, ""]


def sampled(folder, work):
    perf = Perf(pathlib.Path(folder, "perf.data"))
    try:
        seconds = work()
    finally:
        counts = perf.stop()
    return seconds, counts


def measured(folder, steps, train):
    """Seconds of a step, and shares. `train` takes a number of steps."""
    _, few = sampled(folder, lambda: train(FEW))
    seconds, many = sampled(folder, lambda: train(steps))
    return seconds, shares_between(few, many)


def commands_of(part, rate, folder):
    """Method to command, by its first round; and the lines that make the data."""
    words = [ROOT / "build/bin/laconic", "lab", "report", "--size", "full", "--commands", "--part", part, "--rate", rate, "--out", folder]
    text = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, cwd=ROOT).stdout
    found = dict(re.findall(rf"^# {re.escape(part)}, {re.escape(rate)}, (.*), round 1\n(.*)$", text, re.MULTILINE))
    return found, text.split(f"# {part}, ")[0]


def with_steps(command, steps):
    """The words of a trial that makes so many steps, the first of them uncounted by DDP."""
    words = [re.sub(r"^train\.steps=.*", f"train.steps={steps}", word) for word in shlex.split(command)]
    for option, value in (("--warmup", "1"), ("--steps", str(steps - 1))):
        if option in words:
            words[words.index(option) + 1] = value
    return words


def train(command, steps):
    """Seconds of a step, beyond the few."""
    words = with_steps(command, steps)
    run = next((pathlib.Path(ROOT, word.split("=", 1)[1]) for word in words if word.startswith("run.folder=")), None)
    if run:
        shutil.rmtree(run, ignore_errors=True)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    if run:
        seconds = [row["seconds"] for row in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in row]
    else:
        seconds = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])["seconds"]
    return statistics.median(seconds[FEW:] or seconds)


def columns_of(part, methods, rates, folder):
    columns = {}
    for rate in rates:
        commands, preparation = commands_of(part, rate, folder)
        subprocess.run(["bash", "-ec", preparation], check=True, cwd=ROOT, capture_output=True)
        for method in methods:
            say(f"{method}, {rate}")
            columns[f"{method}, {rate}"] = measured(folder, MANY, lambda steps: train(commands[method], steps))
    return columns


def profile(_):
    """Where the processors' time goes: 4 hosts in a lab, ranks of one thread."""
    if not shutil.which("perf"):
        return ["Skipped: perf is not installed (package linux-perf).", ""]
    lines = []
    for title, trials in TABLES.items():
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            try:
                lines += table(title, columns_of(*trials, folder))
            except Failed as error:  # the other table may still be measured
                lines += [f"No table of {title}: {error}", ""]
    return lines
