"""The benchmarks `collective` and `grid-link` of bench/run: what links of a lab carry, how fast an all-reduce of 16 MiB is on
them, and how much of them gathers and sums of a tensor grid use.

Four hosts in a lab (docs/lab.md), as root, with iperf3. Training over such links is what `laconic lab report` measures.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/bin"
HOSTS = 4
# name of the rate: rounds, seconds of iperf3
RATES = {"20mbit": (1, 5), "100mbit": (2, 5), "1gbit": (2, 3), "unshaped": (2, 3)}
BYTES = 16 << 20
COLLECTIVES = {"plain": ["--codec", "raw"], "native": ["--codec", "raw", "--algorithm", "native"],
               "half": ["--codec", "half"], "quantise:bits=4": ["--codec", "quantise:bits=4"]}
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


def in_lab(rate, *command):
    """What rank 0 prints."""
    words = [BIN / "laconic", "lab", "run", "--ephemeral", "--hosts", HOSTS, "--rate", rate, "--threads", "1", "--", *command]
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=600).stdout


def iperf(rate, seconds):
    """Mbit/s of payload: one pair alone, and the least of a full ring."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("alone", "ring"):
            in_lab(rate, "bash", "-c", IPERF, "iperf", kind, seconds, folder)
            files = pathlib.Path(folder).glob(f"{kind}.*.json")
            results[kind] = min(json.loads(f.read_text())["end"]["sum_received"]["bits_per_second"] / 1e6 for f in files)
    return results


def seconds_of(rate, words):
    lines = in_lab(rate, BIN / "collective_bench", "--bytes", BYTES, "--rounds", 5, *words).splitlines()
    return json.loads([line for line in lines if line.startswith("{")][-1])["median_s"]


def collective(_):
    """Links of 4 hosts in a lab, and an all-reduce of 16 MiB over them."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    lines = ["| rate | iperf3, one pair, Mbit/s | iperf3, ring of 4, slowest | all-reduce | ms | of the link's limit | against plain |",
             "|---|--:|--:|---|--:|--:|--:|"]
    for rate, (rounds, seconds) in RATES.items():
        print(f"collective: {rate}", file=sys.stderr, flush=True)
        link = iperf(rate, seconds)
        times = {name: [] for name in COLLECTIVES}
        for _ in range(rounds):
            for name, words in COLLECTIVES.items():
                times[name].append(seconds_of(rate, words))
        limit = 2 * (HOSTS - 1) / HOSTS * BYTES * 8 / (1e6 * link["alone"])
        plain = statistics.median(times["plain"])
        for name in COLLECTIVES:
            middle = statistics.median(times[name])
            share = f"{100 * limit / middle:.0f} %" if name in ("plain", "native") else ""
            lines.append(f"| {rate} | {link['alone']:.1f} | {link['ring']:.1f} | {name} | {1e3 * middle:.1f} | {share} | "
                         f"{plain / middle:.2f}x |")
    return [*lines, ""]


# name of the rate: rounds, seconds of iperf3
GRID_RATES = {"100mbit": (2, 5), "1gbit": (3, 3)}
# collective: what a rank sends, in (n - 1) / n of the buffer, and buffers in MiB
GRID_KINDS = {"all_gather": (1, (4, 16)), "reduce_scatter": (1, (4, 16)), "all_reduce": (2, (4,))}
GRID_EXCHANGES = 5
GRID_ALGORITHMS = ("ring", "direct")


def grid_link(_):
    """All-gathers, reduce-scatters and all-reduces of a tensor grid, raw, over the links of 4 hosts in a lab."""
    if os.geteuid() != 0:
        return ["Skipped: a lab needs root.", ""]
    lines = ["A share is the payload that a rank must send, (n - 1) / n of the buffer and twice that of an all-reduce, at the rate that "
             "iperf3 reaches between one pair, by the time of the slowest rank. Each round is a lab of its own: the median of "
             f"{GRID_EXCHANGES} exchanges after 2 for warming up. Medians of the rounds; in brackets the least and the most. A grid takes the ring for these sizes.", "",
             "| rate | iperf3, one pair, Mbit/s | collective | buffer | algorithm | ms | of the link |",
             "|---|--:|---|--:|---|--:|--:|"]
    for rate, (rounds, seconds) in GRID_RATES.items():
        print(f"grid-link: {rate}", file=sys.stderr, flush=True)
        link = iperf(rate, seconds)["alone"]
        for kind, (times, sizes) in GRID_KINDS.items():
            for mebibytes in sizes:
                size = mebibytes << 20
                measured = {name: [] for name in GRID_ALGORITHMS}
                for _ in range(rounds):
                    for name in GRID_ALGORITHMS:
                        out = in_lab(rate, BIN / "collective_bench", "--kind", kind, "--algorithm", name, "--bytes", size, "--rounds",
                                     GRID_EXCHANGES)
                        measured[name].append(json.loads([x for x in out.splitlines() if x.startswith("{")][-1])["median_s"])
                limit = times * (HOSTS - 1) / HOSTS * size * 8 / (1e6 * link)
                for name, values in measured.items():
                    shares = sorted(100 * limit / value for value in values)
                    lines.append(f"| {rate} | {link:.1f} | {kind} | {mebibytes} MiB | {name} | {1e3 * statistics.median(values):.1f} | "
                                 f"**{statistics.median(shares):.1f} %** ({shares[0]:.1f}–{shares[-1]:.1f}) |")
    return [*lines, ""]
