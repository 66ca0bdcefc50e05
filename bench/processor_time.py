"""Where the processors' time goes while models train over slow links: perf over all of the machine, by what was running.

perf samples both what ranks do and what the kernel does for them, and how long processors have nothing to do. Every setting
runs twice, for a few steps and for many: the difference of their samples is that of the steps between, without starting
and ending. `bench/run profile` needs root, linux-perf, and a machine with nothing else to do.
"""

import collections
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import network
import pipeline_settings as settings
from network import Failed, Work
from pipeline_lab import Lab, Mesh

HERTZ = 499
PIPELINE = {"fp32": settings.whole(), "ac-sgd": settings.end_to_end()}
FEW = 8  # steps of the short runs: beyond the first epoch, where links begin to remember
PIPELINE_RATES = {"unshaped": 24, "100mbit": 24}  # steps of the long runs
REPLICAS = ["laconic, raw", "laconic, 4 bits", "laconic, power_sgd rank 32, 8 bits"]
REPLICA_RATES = {"1gbit": 24}

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


def pipelines(folder, _):
    lab, mesh, columns = Lab(folder), Mesh(4, 1), {}
    for rate, steps in PIPELINE_RATES.items():
        for name, setting in PIPELINE.items():
            def train(count):
                rows = lab.train(rate, setting, count, mesh, {"checkpoint.at_end": "false"})["rows"]
                return statistics.median(row["seconds"] for row in rows[FEW:] or rows)
            say(f"pipeline, {name}, {rate}")
            columns[f"{name}, {rate}"] = measured(folder, steps, train)
    return table("A pipeline of four stages, 8 layers of width 256", columns)


def replicas(folder, facts):
    work, columns = Work(folder, facts), {}
    for rate, steps in REPLICA_RATES.items():
        say(f"DDP, {rate}")
        columns[f"DDP, {rate}"] = measured(folder, steps, lambda count: work.peer(rate, [], 1, count - 1)["seconds"])
        for name in REPLICAS:
            policy = network.POLICIES[name]
            policy = {**policy, "set": {**policy["set"], "checkpoint.at_end": "false"}}
            say(f"{name}, {rate}")
            columns[f"{name}, {rate}"] = measured(folder, steps, lambda count: work.ours(rate, policy, 1, count - 1)["seconds"])
    return table("Four replicas, 6 layers of width 384, 8192 words", columns)


def profile(facts):
    """Where the processors' time goes: 4 hosts in a lab, ranks of one thread."""
    if not shutil.which("perf"):
        return ["Skipped: perf is not installed (package linux-perf).", ""]
    lines = []
    for part in (pipelines, replicas):
        with tempfile.TemporaryDirectory(dir=network.ROOT / "build") as folder:
            try:
                lines += part(folder, facts)
            except Failed as error:  # the other part may still be measured
                lines += [f"No table of {part.__name__}: {error}", ""]
    return lines
