#!/usr/bin/env python3
"""How much processor time does a packet take by DPDK, compared with packet sockets?

    bench/dpdk.py [--rounds 5] [--seconds 3] [--thalweg PROGRAM]

First, the gateway of bench/xdp.py passes 64-byte UDP packets from one veth pair to another, by packet
sockets (`interface`) and by DPDK's driver of packet sockets (`net_af_packet`), in turn. Both sleep while
no packets come. Prints medians, as bench/xdp.py does.

Then a device without any medium (`net_null`) hands out packets of 64 bytes as fast as they are taken,
and takes them back: what the port itself, and a chain without NFs, can do on one core. Prints the
median of millions of packets a second and of processor time a packet, next to those of generated packets
that an output discards.

It needs root, and a build with the feature dpdk.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
from pathlib import Path

import xdp
from common import THALWEG, built, cpu_model, enter_namespaces, work_folder

PORTS = {"interface": ("interface = 'left'", "interface = 'right'"),
         "dpdk net_af_packet": ("dpdk = 'net_af_packet0,iface=left'", "dpdk = 'net_af_packet1,iface=right'")}
NULL = "dpdk = 'net_null0,size=64'"
ALONE = {"dpdk net_null": f"[input.i]\n{NULL}\n[output.o]\n{NULL}\n",
         "generate, discard": "[input.i]\ngenerate = { size = 64, packets = 4000000000 }\n[output.o]\ndiscard = true\n"}


def write_chains(folder, thalweg):
    xdp.write_chains(folder, thalweg)
    for name, (left, right) in PORTS.items():
        chain = f"[input.left]\n{left}\n[output.right]\n{right}\n" + xdp.ROUTE.format("right")
        (folder / f"{name}.toml").write_text(chain)
    for name, chain in ALONE.items():
        (folder / f"{name}.toml").write_text(chain + xdp.ROUTE.format("o"))


def alone(name, folder, thalweg, seconds):
    """Millions of packets a second, and processor nanoseconds a packet."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([thalweg, "run", f"{name}.toml", "--quiet", "--json", "--no-control", "--workers", "1",
                           "--duration", f"{seconds}s"], cwd=folder, check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = json.loads(done.stdout)["packets_out"]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"Mpps": out / seconds / 1e6, "ns a packet": used / out * 1e9}


def table(heading, rounds):
    """Prints the medians, and how they compare with those that are not by DPDK."""
    medians = {name: {figure: statistics.median(one[figure] for one in ones) for figure in ones[0]}
               for name, ones in rounds.items()}
    other = next(figures for name, figures in medians.items() if not name.startswith("dpdk"))
    print(f"| {heading} | " + " | ".join(other) + " |\n|" + " --- |" * (len(other) + 1))
    for name, figures in medians.items():
        cells = [f"{value:.3g} ({value / (other[figure] or 1):.2f})" for figure, value in figures.items()]
        print(f"| {name} | {' | '.join(cells)} |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    options = parser.parse_args()
    thalweg = str(Path(built(options.thalweg)).resolve())
    enter_namespaces()
    folder = work_folder()
    xdp.make_hosts()
    write_chains(folder, thalweg)
    rounds, of_alone = {name: [] for name in PORTS}, {name: [] for name in ALONE}
    for _ in range(options.rounds):
        for name, figures in rounds.items():
            figures.append(xdp.forward_by(name, folder, thalweg, options.seconds))
        for name, figures in of_alone.items():
            figures.append(alone(name, folder, thalweg, options.seconds))
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds\n")
    table("between veth pairs", rounds)
    table("without a medium", of_alone)
    print("In parentheses: of packet sockets, and of generated packets.")


if __name__ == "__main__":
    main()
