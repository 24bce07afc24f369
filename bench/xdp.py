#!/usr/bin/env python3
"""How much processor time does a packet take by AF_XDP, beside packet sockets?

    bench/xdp.py [--rounds 5] [--seconds 3] [--thalweg PROGRAM]

A gateway passes 64-byte UDP packets from one veth pair to another, without NFs, by packet sockets
(`interface`) and by AF_XDP (`xdp`, copied in the driver and in the network stack), in turn. The sender
is a replay from memory by packet sockets in a network namespace of its own; it sends more than a gateway
takes in. Prints medians of the gateway's processor time for each packet that it sent (user and system
time of the process; what the kernel does for packets in interrupts is not in it), of the packets a
second, and of the share that was lost before it; and how they compare with packet sockets.

It needs root, since programs are loaded into the kernel.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import THALWEG, built, cpu_model, enter_namespaces, work_folder

HOSTS = ["left", "right"]
WAYS = {"interface": "interface = '{}'", "xdp copy": "xdp = '{}'\nmode = 'copy'",
        "xdp generic": "xdp = '{}'\nmode = 'generic'"}
ROUTE = "[[route]]\npath = ['ingress', '{}']\n"


def ip(*command):
    subprocess.run(["ip", *command], check=True)


def make_hosts():
    """Hosts whose interfaces `eth0` lead to the gateway's `left` and `right`."""
    for host in HOSTS:
        ip("netns", "add", host)
    connect_hosts(1)


def connect_hosts(queues):
    """Connects the hosts to the gateway, anew if they were, by interfaces with this many queues."""
    many = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
    for host in HOSTS:
        subprocess.run(["ip", "link", "del", host], check=False, stderr=subprocess.DEVNULL)
        ip("link", "add", host, *many, "type", "veth", "peer", "name", "eth0", "netns", host, *many)
        for where in [["-n", host, "link", "set", "eth0"], ["link", "set", host]]:
            ip(*where, "addrgenmode", "none")
            ip(*where, "up")


def write_chains(folder, thalweg):
    subprocess.run([thalweg, "gen", "in.pcap", "--packets", "10000", "--size", "64", "--tcp", "0", "--udp",
                    "1", "--icmp", "0"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    sender = "[input.i]\ncapture = 'in.pcap'\nmemory = true\nloop = 0\n[output.o]\ninterface = 'eth0'\n"
    (folder / "sender.toml").write_text(sender + ROUTE.format("o"))
    for name, way in WAYS.items():
        chain = f"[input.left]\n{way.format('left')}\n[output.right]\n{way.format('right')}\n"
        (folder / f"{name}.toml").write_text(chain + ROUTE.format("right"))


def forward_by(name, folder, thalweg, seconds):
    """Processor nanoseconds a packet, packets a second and the share that was lost."""
    with open(folder / "report.json", "w") as report:
        gateway = subprocess.Popen([thalweg, "run", f"{name}.toml", "--quiet", "--json", "--no-control"],
                                   cwd=folder, stdout=report)
    time.sleep(1)
    sender = subprocess.Popen(["ip", "netns", "exec", "left", thalweg, "run", "sender.toml", "--quiet",
                               "--json", "--duration", f"{seconds}s"], cwd=folder, stdout=subprocess.PIPE)
    sent = json.loads(sender.communicate()[0])["packets_out"]
    time.sleep(0.2)
    gateway.send_signal(signal.SIGINT)
    _pid, status, usage = os.wait4(gateway.pid, 0)
    if status != 0:
        sys.exit(f"{name}: exit status {status}")
    out = json.loads((folder / "report.json").read_text())["packets_out"]
    return {"ns a packet": (usage.ru_utime + usage.ru_stime) / out * 1e9, "kpps": out / seconds / 1e3,
            "lost, %": (1 - out / sent) * 100}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    options = parser.parse_args()
    thalweg = str(Path(built(options.thalweg)).resolve())
    enter_namespaces()
    folder = work_folder()
    make_hosts()
    write_chains(folder, thalweg)
    rounds = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, figures in rounds.items():
            figures.append(forward_by(name, folder, thalweg, options.seconds))
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds\n")
    medians = {name: {figure: statistics.median(one[figure] for one in ones) for figure in ones[0]}
               for name, ones in rounds.items()}
    print("| ports | " + " | ".join(medians["interface"]) + " |\n| --- | --- | --- | --- |")
    for name, figures in medians.items():
        cells = [f"{value:.3g} ({value / (medians['interface'][figure] or 1):.2f})"
                 for figure, value in figures.items()]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\nIn parentheses: of packet sockets.")


if __name__ == "__main__":
    main()
