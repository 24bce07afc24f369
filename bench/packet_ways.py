#!/usr/bin/env python3
"""What does each way to receive and to send by packet sockets cost, and which has Thalweg?

    bench/packet_ways.py [--rounds 40] [--turns 5]

Runs bench/peers/packet_ways.c in a namespace with a veth pair: packets of 64 and 1,400 bytes, in bursts of 1,024,
received by rings of TPACKET_V2 and V3 and by recvmmsg, and sent by sendmmsg and by a ring. All ways have a turn in
each of TURNS. Prints medians of the thread's processor time in nanoseconds a packet: of a way to receive with what
the kernel does for it when a packet is sent, and by itself; of a way to send; and how long a receiver that polls takes
to see a packet that comes alone. Then how many packets, sent by each way and not read at once, arrived with the bytes
of later ones. Thalweg receives by TPACKET_V2 and sends by sendmmsg.
"""

import argparse
import statistics
import subprocess
import time
from collections import Counter, defaultdict

from common import build_peer, cpu_model, enter_namespaces, json_lines, run

INTERFACES = ["near", "far"]


def connect():
    subprocess.run(["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"], check=True)
    for name in INTERFACES:
        subprocess.run(["ip", "link", "set", name, "addrgenmode", "none"], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    enter_namespaces()
    program = build_peer("packet_ways")
    connect()
    lines = [line for _ in range(options.turns) for line in json_lines(run(program, options.rounds))]
    costs, delays, wrong = defaultdict(list), defaultdict(list), Counter()
    for line in lines:
        if line["side"] == "latency":
            delays[line["way"]].append(line["us"])
        elif line["side"] == "intact":
            wrong[line["way"]] += line["wrong"]
        else:
            key = line["side"], line["way"], line["bytes"]
            costs[key].append((line["send_ns"], line["receive_ns"]))
    print(f"{cpu_model()}; medians of {options.turns} turns of {options.rounds} bursts; ns a packet\n")
    print("| to | by | bytes | all | in the receiver | us to see one |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (side, way, size), pairs in costs.items():
        whole = statistics.median(sum(pair) for pair in pairs)
        own = f"{statistics.median(pair[1] for pair in pairs):.0f}" if side == "receive" else ""
        delay = f"{statistics.median(delays[way]):.0f}" if side == "receive" else ""
        print(f"| {side} | {way} | {size} | {whole:.0f} | {own} | {delay} |")
    print("\nWith the bytes of later ones: " + ", ".join(f"{count} by {way}" for way, count in wrong.items()))


if __name__ == "__main__":
    main()
