#!/usr/bin/env python3
"""What does the sandbox of a run cost a packet?

    bench/sandbox.py [--rounds 20] [--seconds 3] [--loops 20] [--thalweg PROGRAM] [--only live,file]

Runs the same chain with its sandbox and with --no-sandbox, in turn, the first of a round being the second
of the next: 64-byte UDP packets between two veth pairs by packet sockets (`live`), from a sender that
sends more than is taken in; and a capture that is filtered into another one (`file`). Prints the
processor time of the process (user and system) for each packet: medians, the middle half of the rounds,
and the median of the ratios of the two runs of a round, with an interval that has the true median in 95 of
100 cases (order statistics; other load on the machine makes it wide). What the process needs to start, to
confine itself and to end is measured by runs without packets, the median of which is subtracted.

It needs root for `live`.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import THALWEG, built, cpu_model, enter_namespaces, work_folder
from xdp import SENDERS, make_hosts, write_chains, write_sender

WAYS = {"confined": [], "--no-sandbox": ["--no-sandbox"]}
# Packets of the capture that is filtered.
PACKETS = 100_000
FILE = """
[input.i]
capture = "mixed.pcap"
loop = {loops}
[output.o]
capture = "out.pcap"
[nf.filter]
kind = "filter"
rules = ["drop tcp,tp_dst=23"]
[[route]]
path = ["ingress", "filter", "o"]
"""


def ended(process, folder, name):
    """Processor nanoseconds, and packets, of a run that ends."""
    _pid, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{name}: exit status {status}")
    packets = json.loads((folder / "report.json").read_text())["packets_in"]
    return (usage.ru_utime + usage.ru_stime) * 1e9, packets


def start(folder, thalweg, chain, more):
    with open(folder / "report.json", "w") as report:
        return subprocess.Popen([thalweg, "run", chain, "--quiet", "--json", "--no-control", *more], cwd=folder,
                                stdout=report)


def live(folder, thalweg, seconds, more):
    gateway = start(folder, thalweg, "interface.toml", more)
    while Path("/proc/net/packet").read_text().count("\n") < 3:
        if gateway.poll() is not None:
            sys.exit("the gateway has ended")
        time.sleep(0.05)
    if seconds:
        subprocess.run(["ip", "netns", "exec", "left", thalweg, "run", "sender.toml", "--quiet", "--json",
                        "--duration", f"{seconds}s"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    time.sleep(0.2)
    gateway.send_signal(signal.SIGINT)
    return ended(gateway, folder, "live")


def file(folder, thalweg, loops, more):
    (folder / "file.toml").write_text(FILE.format(loops=loops or 1))
    return ended(start(folder, thalweg, "file.toml", [*more, *([] if loops else ["--count", "1"])]), folder, "file")


def interval(values):
    """The order statistics that enclose the median of what was sampled in 95 of 100 cases."""
    values, count = sorted(values), len(values)
    outside, lower = 0.0, 0
    while outside + math.comb(count, lower) / 2**count <= 0.025:
        outside += math.comb(count, lower) / 2**count
        lower += 1
    return values[max(lower - 1, 0)], values[min(count - lower, count - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--only", default="live,file")
    options = parser.parse_args()
    thalweg = str(Path(built(options.thalweg)).resolve())
    enter_namespaces()
    folder = work_folder() / "sandbox"
    folder.mkdir(exist_ok=True)
    make_hosts()
    write_chains(folder, thalweg)
    write_sender(folder, SENDERS["packet sockets"])
    subprocess.run([thalweg, "gen", "mixed.pcap", "--packets", str(PACKETS), "--size", "imix"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    print(f"{cpu_model()}, {os.cpu_count()} processors; {options.rounds} rounds; nanoseconds of processor time a "
          "packet\n")
    print("| port | packets a run | start, ms: confined | --no-sandbox | a packet: confined | --no-sandbox | ratio | "
          "95 % |\n" + "| --- " * 8 + "|")
    for name in options.only.split(","):
        measure, much = {"live": (live, options.seconds), "file": (file, options.loops)}[name]
        totals, idle = {way: [] for way in WAYS}, {way: [] for way in WAYS}
        for number in range(options.rounds):
            for way in list(WAYS)[::1 if number % 2 else -1]:
                idle[way].append(measure(folder, thalweg, 0, WAYS[way])[0])
                totals[way].append(measure(folder, thalweg, much, WAYS[way]))
        begin = {way: statistics.median(values) for way, values in idle.items()}
        counts = [packets for values in totals.values() for _, packets in values]
        figures = {way: [(took - begin[way]) / packets for took, packets in values] for way, values in totals.items()}
        cells = [f"{value / 1e6:.1f}" for value in begin.values()]
        for values in figures.values():
            low, _, high = statistics.quantiles(values, n=4)
            cells.append(f"{statistics.median(values):.1f} ({low:.1f} to {high:.1f})")
        ratios = [a / b for a, b in zip(*figures.values())]
        low, high = interval(ratios)
        print(f"| {name} | {statistics.median(counts):.3g} | {' | '.join(cells)} | {statistics.median(ratios):.4f} | "
              f"{low:.4f} to {high:.4f} |", flush=True)


if __name__ == "__main__":
    main()
