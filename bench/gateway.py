#!/usr/bin/env python3
"""How fast does a live gateway forward packets, beside the kernel's own forwarding?

    bench/gateway.py [--rounds 5] [--seconds 4] [--thalweg PROGRAM] [--also PROGRAM]
                     [--poll-us 20 200]

Makes two hosts in network namespaces and a gateway between them, over veth pairs. The gateway is the
kernel (ip_forward) or `examples/live-gateway` (a filter, a nat and a router), in turn. Prints medians of
the throughput of one TCP connection of iperf3, the processor time of the whole machine for each
gigabyte, both hosts included, the packets of 64 bytes (UDP, by sendmmsg) that arrive a second and those
that were sent, and the time of a ping; and how they compare with the kernel. `--also` is a second
program, such as an earlier build; with `--poll-us` the program has another turn with each of these.

It needs root or unprivileged user namespaces, and all processors of the machine: what else runs counts.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import HERE, THALWEG, build_peer, built, cpu_model, need

CHAIN = HERE.parent / "examples/live-gateway/chain.toml"
HOSTS = {"client": ("inside", "10.1.0.2/24", "10.1.0.1"),
         "server": ("outside", "203.0.113.2/24", "203.0.113.1")}
PINGS = 100
# The payload of a packet of 64 bytes with its frame check sequence.
SMALL = 18
# What receives datagrams and reads none: the kernel counts those that arrived.
SINK = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
s.bind(("", 9999))
time.sleep(1e9)
"""


def ip(*command):
    subprocess.run(["ip", *command], check=True)


def in_host(name, *command, **options):
    return subprocess.run(["ip", "netns", "exec", name, *command], check=True, capture_output=True,
                          text=True, **options).stdout


def make_hosts():
    """The client, the server, and the gateway's interfaces to them."""
    for host, (interface, address, gateway) in HOSTS.items():
        ip("netns", "add", host)
        ip("link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", interface, "up")
        ip("-n", host, "link", "set", "lo", "up")
        ip("-n", host, "link", "set", "eth0", "up")
        ip("-n", host, "addr", "add", address, "dev", "eth0")
        ip("-n", host, "route", "add", "default", "via", gateway)


def forward_by_kernel(begin):
    for interface, address, gateway in HOSTS.values():
        del address
        if begin:
            ip("addr", "add", f"{gateway}/24", "dev", interface)
        else:
            ip("addr", "flush", "dev", interface)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1" if begin else "0")


def busy_seconds():
    """Processor time of the machine in use so far."""
    user, nice, system, _idle, _wait, interrupts, softirqs = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + interrupts + softirqs) / os.sysconf("SC_CLK_TCK")


def datagrams():
    """Those that have arrived at the server."""
    names, values = [line.split() for line in in_host("server", "cat", "/proc/net/snmp").splitlines()
                     if line.startswith("Udp:")]
    return sum(int(value) for name, value in zip(names, values)
               if name in ("InDatagrams", "InErrors", "NoPorts"))


def measure(sender, seconds):
    """Gbit/s, processor seconds a gigabyte, millions of small packets received and sent a second, and
    the median of the times of pings in milliseconds."""
    lines = in_host("client", "ping", "-c", str(PINGS), "-i", "0.01", "203.0.113.2").splitlines()
    pings = [float(line.split("time=")[1].split()[0]) for line in lines if "time=" in line]
    server = subprocess.Popen(["ip", "netns", "exec", "server", "iperf3", "-s", "-1"],
                              stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    before = busy_seconds()
    sent = in_host("client", "iperf3", "-c", "203.0.113.2", "-t", str(seconds), "-J")
    busy = busy_seconds() - before
    server.wait()
    received = json.loads(sent)["end"]["sum_received"]
    before = datagrams()
    sent, took = in_host("client", sender, "203.0.113.2", "9999", str(SMALL), str(seconds)).split()
    time.sleep(0.2)
    return {"gbit_s": received["bits_per_second"] / 1e9, "cpu_s_gb": busy / (received["bytes"] / 1e9),
            "mpps": (datagrams() - before) / float(took) / 1e6, "sent": int(sent) / float(took) / 1e6,
            "ping_ms": statistics.median(pings)}


def forward_by(program, chain, sender, seconds):
    """Measures a program with its chain, or the kernel without one."""
    for host in HOSTS:
        # The gateways have different MAC addresses.
        ip("-n", host, "neigh", "flush", "all")
    if program is None:
        forward_by_kernel(True)
        figures = measure(sender, seconds)
        forward_by_kernel(False)
        return figures
    gateway = subprocess.Popen([program, "run", chain, "--quiet", "--json"], stdout=subprocess.DEVNULL)
    # Both interfaces are inputs and outputs.
    while Path("/proc/net/packet").read_text().count("\n") < 5:
        if gateway.poll() is not None:
            sys.exit(f"{program} has ended")
        time.sleep(0.1)
    figures = measure(sender, seconds)
    gateway.send_signal(signal.SIGINT)
    if gateway.wait() != 0:
        sys.exit(f"{program}: exit {gateway.returncode}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--also")
    parser.add_argument("--poll-us", type=int, nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    sender = os.environ.get("THALWEG_BENCH_SENDER")
    if sender is None:
        need("iperf3")
        sender = str(build_peer("udp_send"))
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        os.environ["THALWEG_BENCH_SENDER"] = sender
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc",
                              "--kill-child", *user, sys.executable, *sys.argv])
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    make_hosts()
    sink = subprocess.Popen(["ip", "netns", "exec", "server", sys.executable, "-c", SINK])
    thalweg = str(built(options.thalweg))
    programs = {"kernel": (None, None), "thalweg": (thalweg, CHAIN)}
    if options.also:
        programs["also"] = (str(built(options.also)), CHAIN)
    for poll_us in options.poll_us:
        folder = Path(f"/run/polling-{poll_us}")
        shutil.copytree(CHAIN.parent, folder)
        text, count = re.subn(r"^poll_us = \d+", f"poll_us = {poll_us}", CHAIN.read_text(), flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"{CHAIN}: expected one line with poll_us")
        (folder / CHAIN.name).write_text(text)
        programs[f"thalweg, poll_us = {poll_us}"] = (thalweg, folder / CHAIN.name)
    rounds = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, (program, chain) in programs.items():
            rounds[name].append(forward_by(program, chain, sender, options.seconds))
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds\n")
    sink.kill()
    print("| gateway | TCP, Gbit/s | processor s a GB | 64 bytes, Mpps | sent | ping, ms |\n"
          "| --- | --- | --- | --- | --- | --- |")
    medians = {name: {figure: statistics.median(one[figure] for one in ones) for figure in ones[0]}
               for name, ones in rounds.items()}
    for name, figures in medians.items():
        cells = [f"{value:.3g} ({value / medians['kernel'][figure]:.2f})"
                 for figure, value in figures.items()]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\nIn parentheses: of the kernel's.")


if __name__ == "__main__":
    main()
