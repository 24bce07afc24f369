#!/usr/bin/env python3
"""How fast does a live gateway end a tunnel of the kernel?

    bench/tunnel.py [--rounds 5] [--seconds 4] [--thalweg PROGRAM] [--also PROGRAM]

A client reaches a server through a tunnel device of its kernel (VXLAN or GRE) that ends in a gateway between
them, over veth pairs: a `tunnel` and a `router`, or the kernel with a tunnel device of its own. Prints
medians of the throughput of one TCP connection of iperf3 in each direction, the processor time of the whole
machine for each gigabyte, both hosts included, and that of the gateway's process. `--also` is a second program,
such as an earlier build, in turn with the first.

It needs root, and all processors of the machine: what else runs counts.
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

from common import THALWEG, built, cpu_model, enter_namespaces, need, work_folder
from gateway import busy_seconds, in_host, ip

INNER = {"vxlan": ("10.9.0.2", "10.9.0.1"), "gre": ("10.8.0.2", "10.8.0.1")}
ROUTER_MAC = {"left": "02:00:00:00:00:01", "right": "02:00:00:00:00:02"}
TUNNEL = {"vxlan": "protocol = 'vxlan'\nid = 7", "gre": "protocol = 'gre'\nid = 9"}


def chain(folder, name):
    ports = "".join(f"[nf.edge.ports.{side}]\nmac = '{mac}'\nip = '10.{n}.0.1'\nresolve = true\n"
                    for n, (side, mac) in enumerate(ROUTER_MAC.items(), 1))
    inputs = "".join(f"[input.{side}]\ninterface = '{side}'\n[output.{side}]\ninterface = '{side}'\n" for side in ROUTER_MAC)
    (folder / "table.txt").write_text("10.1.0.0/24 direct left\n10.2.0.0/24 direct right\n")
    (folder / f"{name}.toml").write_text(
        f"{inputs}[nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n{ports}[nf.overlay]\nkind = 'tunnel'\n"
        f"[[nf.overlay.tunnel]]\nname = 't'\n{TUNNEL[name]}\nlocal = '10.1.0.1'\nremote = '10.1.0.2'\n"
        f"match = 'ip,nw_dst={INNER[name][0]}'\n[[route]]\npath = ['ingress', 'overlay', 'edge', 'egress']\n")
    return folder / f"{name}.toml"


def make_hosts():
    for n, (host, interface) in enumerate((("client", "left"), ("server", "right")), 1):
        ip("netns", "add", host)
        ip("link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", interface, "up")
        ip("-n", host, "link", "set", "lo", "up")
        ip("-n", host, "link", "set", "eth0", "up")
        ip("-n", host, "addr", "add", f"10.{n}.0.2/24", "dev", "eth0")
    ip("-n", "server", "route", "add", "default", "via", "10.2.0.1")


def tunnel_device(where, name, local, remote, inner):
    """The tunnel device of a kernel."""
    if name == "vxlan":
        # The router's MAC address, to which the server sends: the gateway encapsulates it as it is.
        ip(*where, "link", "add", "tun", "address", ROUTER_MAC["right"] if where else "02:00:00:00:00:09", "type",
           "vxlan", "id", "7", "local", local, "remote", remote, "dstport", "4789")
    else:
        ip(*where, "link", "add", "tun", "type", "gre", "local", local, "remote", remote, "key", "9")
    ip(*where, "addr", "add", f"{inner}/24", "dev", "tun")
    ip(*where, "link", "set", "tun", "up")


def has_device(name):
    """Whether the kernel has such a tunnel device."""
    kind = {"vxlan": ["vxlan", "id", "7", "dstport", "4789"], "gre": ["gre"]}[name]
    more = ["local", "10.1.0.2", "remote", "10.1.0.1"]
    has_it = subprocess.run(["ip", "-n", "client", "link", "add", "tun", "type", *kind, *more], capture_output=True)
    if has_it.returncode == 0:
        ip("-n", "client", "link", "del", "tun")
    else:
        print(f"{name}: left out: {has_it.stderr.decode().strip()}")
    return has_it.returncode == 0


def measure(program, path, name, seconds):
    """Gbit/s and processor seconds a gigabyte in each direction, and those of the gateway."""
    client, gateway = INNER[name]
    tunnel_device(["-n", "client"], name, "10.1.0.2", "10.1.0.1", client)
    if name == "vxlan":
        ip("-n", "client", "neigh", "add", gateway, "lladdr", "02:00:00:00:00:09", "dev", "tun")
    ip("-n", "client", "route", "add", "10.2.0.0/24", "via", gateway, "dev", "tun", "onlink")
    for host in ("client", "server"):
        ip("-n", host, "neigh", "flush", "dev", "eth0")
    process = None
    if program is None:
        for n, side in enumerate(ROUTER_MAC, 1):
            ip("addr", "add", f"10.{n}.0.1/24", "dev", side)
        tunnel_device([], name, "10.1.0.1", "10.1.0.2", gateway)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    else:
        process = subprocess.Popen([program, "run", path, "--quiet", "--json", "--no-control"], stdout=subprocess.DEVNULL)
        while Path("/proc/net/packet").read_text().count("\n") < 5:
            if process.poll() is not None:
                sys.exit(f"{program} has ended")
            time.sleep(0.1)
    figures = {}
    for direction, more in (("to the server", []), ("to the client", ["-R"])):
        server = subprocess.Popen(["ip", "netns", "exec", "server", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        before = busy_seconds()
        sent = in_host("client", "iperf3", "-c", "10.2.0.2", "-t", str(seconds), "-J", *more)
        busy = busy_seconds() - before
        server.wait()
        received = json.loads(sent)["end"]["sum_received"]
        figures[f"Gbit/s {direction}"] = received["bits_per_second"] / 1e9
        figures[f"s a GB {direction}"] = busy / (received["bytes"] / 1e9)
    if process:
        process.send_signal(signal.SIGINT)
        if process.wait() != 0:
            sys.exit(f"{program}: exit {process.returncode}")
    else:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
        ip("link", "del", "tun")
        for side in ROUTER_MAC:
            ip("addr", "flush", "dev", side)
    ip("-n", "client", "link", "del", "tun")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--also")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    need("iperf3")
    programs = {"kernel": None, "thalweg": str(Path(built(options.thalweg)).resolve())}
    if options.also:
        programs["also"] = str(Path(built(options.also)).resolve())
    enter_namespaces()
    folder = work_folder()
    make_hosts()
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds\n")
    kinds = [name for name in INNER if has_device(name)]
    for at, name in enumerate(kinds):
        path = chain(folder, name)
        rounds = {who: [] for who in programs}
        for _ in range(options.rounds):
            for who, program in programs.items():
                rounds[who].append(measure(program, path, name, options.seconds))
        heads = list(rounds["kernel"][0])
        if at == 0:
            print(f"| tunnel | gateway | {' | '.join(heads)} |\n" + "| --- " * (len(heads) + 2) + "|")
        for who, ones in rounds.items():
            cells = [f"{statistics.median(one[head] for one in ones):.2f}" for head in heads]
            print(f"| {name} | {who} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
