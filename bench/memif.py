#!/usr/bin/env python3
"""How many packets a second pass by shared memory (memif), one way, between two programs on two cores?

    bench/memif.py [--rounds 3] [--seconds 1] [--sizes 64,512,1514,9000] [--only WORD] [--thalweg PROGRAM]

A sender on the first core, a receiver on the second: Thalweg, which replays a capture from memory and
classifies each packet, or discards what it has classified; and dpdk-testpmd, which sends the same packet
(txonly) or counts (rxonly). Each is the client, which makes the memory, or the server; `zero copy` is a
client of ours whose buffers are its packet memory. Prints the millions of packets a second that the
receiver counts while both run: medians over the rounds, how they compare with testpmd at both ends in the
same roles, and the best round, in which other load on the machine disturbed least. All pairs have a turn
in each round. With --only, those whose names have WORD.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import THALWEG, built, cpu_model, need, work_folder

# Sender and receiver: program, role, and whether it has zero copy.
OURS, PEER = "thalweg", "testpmd"
PAIRS = [
    ((PEER, "client", False), (PEER, "server", False)),
    ((OURS, "client", False), (OURS, "server", False)),
    ((OURS, "client", True), (OURS, "server", False)),
    ((OURS, "client", False), (PEER, "server", False)),
    ((OURS, "client", True), (PEER, "server", False)),
    ((PEER, "client", False), (OURS, "server", False)),
    ((PEER, "server", False), (PEER, "client", False)),
    ((OURS, "server", False), (OURS, "client", False)),
    ((OURS, "server", False), (OURS, "client", True)),
    ((OURS, "server", False), (PEER, "client", False)),
    ((PEER, "server", False), (OURS, "client", False)),
    ((PEER, "server", False), (OURS, "client", True)),
]
PACKETS = 2000
# From the start of both until what they do is steady.
STEADY = 1.2


def name_of(pair):
    return " -> ".join(f"{program} {role}{' (zero copy)' if zero else ''}" for program, role, zero in pair)


class Thalweg:
    """A run that sends to a socket or receives from it."""

    def __init__(self, options, end, sends, size, core):
        _, role, zero = end
        port = f"memif = 'memif.sock'\nrole = '{role}'\n" + ("zero_copy = true\n" if zero else "")
        if sends:
            chain = f"[input.i]\ncapture = 'in{size}.pcap'\nmemory = true\nloop = 0\n[output.o]\n{port}"
        else:
            chain = f"[input.i]\n{port}[output.o]\ndiscard = true\n"
        frame = "" if size < 1800 else "[memory]\nframe_size = 9600\n"
        file = options.folder / f"{'sender' if sends else 'receiver'}.toml"
        file.write_text(f"{chain}{frame}[[route]]\npath = ['ingress', 'o']\n")
        self.lines = options.folder / f"{file.stem}.stats"
        with open(self.lines, "w") as stats:
            self.run = subprocess.Popen(
                ["taskset", "-c", str(core), options.thalweg, "run", file.name, "--no-control", "--json",
                 "--stats", "100ms", "--stats-format", "json"],
                cwd=options.folder, stdout=subprocess.PIPE, stderr=stats)

    def measure(self, seconds):
        """The packets received a second."""
        # Also what the last line lacks.
        time.sleep(seconds + 0.2)
        stats = [json.loads(line) for line in self.lines.read_text().splitlines() if line.startswith("{")]
        last = [one for one in stats if one["end_s"] > stats[-1]["end_s"] - seconds]
        return sum(one["packets_in"] for one in last) / (last[-1]["end_s"] - last[0]["start_s"])

    def end(self):
        self.run.terminate()
        report = json.loads(self.run.communicate()[0])
        if not report["conserved"] or report["leaked_frames"] or report["failures"]:
            sys.exit(f"thalweg: {report['failures']}, leaked frames: {report['leaked_frames']}")


class Testpmd:
    """A testpmd that sends or receives."""

    def __init__(self, options, end, sends, size, core):
        _, role, _ = end
        socket = options.folder / "memif.sock"
        mode = ["--forward-mode=txonly", f"--txpkts={size}"] if sends else ["--forward-mode=rxonly"]
        # A packet in one buffer: a client overfills its rings with packets of three and more.
        buffers = ",bsize=9216" if role == "client" and size > 2048 else ""
        self.log = options.folder / f"testpmd-{'sender' if sends else 'receiver'}.log"
        with open(self.log, "w") as log:
            self.run = subprocess.Popen(
                ["stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry",
                 f"--file-prefix=memif-{os.getpid()}-{sends}", "--lcores", f"0@{core},1@{core}",
                 f"--vdev=net_memif0,role={role},socket={socket},socket-abstract=no{buffers}", "--", "-i",
                 "--no-flush-rx", "--no-mlockall", "--total-num-mbufs=8192", "--mbuf-size=9728", *mode],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
        self.say("start")

    def say(self, command):
        self.run.stdin.write(f"{command}\n")
        self.run.stdin.flush()

    def count(self):
        """The packets received so far, and the time."""
        before = self.log.stat().st_size
        self.say("show port stats 0")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            now = time.monotonic()
            found = re.search(r"RX-packets: (\d+)", self.log.read_text(errors="replace")[before:])
            if found:
                return int(found[1]), now
            time.sleep(0.001)
        sys.exit(f"testpmd does not answer; see {self.log}")

    def measure(self, seconds):
        packets, began = self.count()
        time.sleep(seconds)
        later, ended = self.count()
        return (later - packets) / (ended - began)

    def end(self):
        self.say("quit")
        try:
            self.run.wait(10)
        except subprocess.TimeoutExpired:
            self.run.kill()
            self.run.wait()


def measure(options, pair, size):
    """Millions of packets a second from the first of a pair to the second."""
    start = {OURS: Thalweg, PEER: Testpmd}
    socket = options.folder / "memif.sock"
    socket.unlink(missing_ok=True)
    ends = [None, None]
    # The server first, since a testpmd that is the client looks for it once.
    for at in sorted((0, 1), key=lambda at: pair[at][1] == "client"):
        core = 0 if at == 0 else os.cpu_count() - 1
        ends[at] = start[pair[at][0]](options, pair[at], at == 0, size, core)
        until = time.monotonic() + 10
        while not socket.exists():
            if time.monotonic() > until:
                sys.exit(f"{name_of(pair)}: the server does not listen")
            time.sleep(0.01)
    sends, receives = ends
    time.sleep(STEADY)
    rate = receives.measure(options.seconds) / 1e6
    sends.end()
    receives.end()
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--sizes", default="64,512,1514,9000")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    need("testpmd")
    options.thalweg = str(Path(built(options.thalweg)).resolve())
    options.folder = work_folder() / "memif"
    options.folder.mkdir(exist_ok=True)
    sizes = [int(size) for size in options.sizes.split(",")]
    for size in sizes:
        subprocess.run([options.thalweg, "gen", f"in{size}.pcap", "--packets", str(PACKETS), "--size", str(size),
                        "--tcp", "0", "--udp", "1", "--icmp", "0"],
                       cwd=options.folder, check=True, stdout=subprocess.DEVNULL)
    pairs = [pair for pair in PAIRS if options.only in name_of(pair)]
    rates = {(pair, size): [] for pair in pairs for size in sizes}
    for _ in range(options.rounds):
        for (pair, size), values in rates.items():
            values.append(measure(options, pair, size))
    medians = {key: statistics.median(values) for key, values in rates.items()}
    print(f"{cpu_model()}, {os.cpu_count()} processors; {options.rounds} rounds; millions of packets a second\n")
    print("| sender -> receiver | " + " | ".join(f"{size} bytes" for size in sizes) + " |")
    print("| --- |" + " --- |" * len(sizes))
    for pair in pairs:
        cells = []
        for size in sizes:
            peers = tuple((PEER, role, False) for _, role, _ in pair)
            base = medians.get((peers, size))
            ratio = f" ({medians[pair, size] / base:.2f})" if base and pair != peers else ""
            cells.append(f"{medians[pair, size]:.2f}{ratio}, best {max(rates[pair, size]):.2f}")
        print(f"| {name_of(pair)} | {' | '.join(cells)} |")
    print("\nIn parentheses: of testpmd at both ends, in the same roles.")


if __name__ == "__main__":
    main()
