#!/usr/bin/env python3
"""Measures a router that follows a kernel table of a million routes: the time to load it, before the
start and while the router runs, the memory, and the time until a change of a route is used.

    cargo build --release
    bench/kernel_routes.py [--routes 1000000] [--thalweg target/release/thalweg] [--stalls [--changes 100000]]

It runs in namespaces of its own (unshare(1)), as root or where users may make some. A packet is sent
into one veth and received from the other; its destination MAC address identifies its route. The
time of a change is that from the kernel's acknowledgement to the first packet that uses it, the way
through the chain included. With --stalls it measures instead how long a batch of packets holds up the
next one (processor time of the worker's thread), while packets flow: with a burst of changes, and without.
"""
import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHAIN = """
[input.left]
interface = "left"
[input.right]
interface = "right"
[output.left]
interface = "left"
[output.right]
interface = "right"
[[route]]
path = ["ingress", "edge", "egress"]
[nf.edge]
kind = "router"
kernel_table = 254
[nf.edge.ports.left]
mac = "02:00:00:00:00:01"
[nf.edge.ports.right]
mac = "02:00:00:00:00:02"
"""
GATEWAYS = 64
PROBED = "203.0.113.1"


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def gateway(n):
    return f"10.2.0.{n % GATEWAYS + 2}"


def prefix(n):
    first = (16 << 24) + (n << 8)
    return socket.inet_ntoa(first.to_bytes(4, "big")) + "/24"


def set_up():
    run("mount", "-t", "tmpfs", "none", "/run")
    run("ip", "link", "set", "lo", "up")
    run("sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.disable_ipv6=1")
    for n, name in enumerate(("left", "right"), 1):
        run("ip", "link", "add", name, "type", "veth", "peer", "name", name + "-far")
        run("ip", "link", "set", name, "address", f"02:00:00:00:00:0{n}")
        for end in (name, name + "-far"):
            run("ip", "link", "set", end, "up")
        run("ip", "addr", "add", f"10.{n}.0.1/24", "dev", name)
    for n in range(GATEWAYS):
        mac = f"02:00:00:00:01:{n:02x}"
        run("ip", "neigh", "add", gateway(n), "lladdr", mac, "dev", "right", "nud", "permanent")


class Router:
    """The program that is measured."""

    def __init__(self, program, folder, *more, chain=CHAIN):
        self.program, self.folder = program, folder
        (folder / "chain.toml").write_text(chain)
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [program, "run", "chain.toml", "--json", *more], cwd=folder, stdout=open(folder / "report", "w")
        )
        self.wait_for(lambda figures: figures["kernel_dumps"] > 0)
        self.start_s = time.monotonic() - begin

    def figures(self):
        told = subprocess.run(
            [self.program, "ctl", "nfs", "--json"], capture_output=True, text=True, check=False
        )
        if told.returncode:
            return None
        nfs = json.loads(told.stdout)
        nfs = nfs.get("nfs", nfs) if isinstance(nfs, dict) else nfs
        return nfs[0]["figures"]

    def wait_for(self, is_met):
        while True:
            if self.process.poll() is not None:
                sys.exit("the router has ended")
            figures = self.figures()
            if figures and is_met(figures):
                return figures
            time.sleep(0.02)

    def resident_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def end(self):
        self.process.send_signal(2)
        self.process.wait()


class Probe:
    """Packets through the router."""

    def __init__(self):
        self.sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sender.bind(("left-far", 0))
        self.receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.receiver.bind(("right-far", 0x0800))
        self.receiver.settimeout(1)
        self.packet = packet_to(socket.inet_aton(PROBED))

    def gateway(self):
        """The number of the gateway that a packet leaves to, and the seconds that it took."""
        begin = time.monotonic()
        self.sender.send(self.packet)
        packet = self.receiver.recv(2048)
        return packet[5], time.monotonic() - begin


class Routes:
    """Changes of a route by netlink, as `ip route replace` does it."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self.link = socket.if_nametoindex("right")

    def replace(self, to, via):
        def attribute(kind, value):
            return struct.pack("=HH", 4 + len(value), kind) + value

        body = struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 3, 0, 1, 0)
        body += attribute(1, socket.inet_aton(to)) + attribute(5, socket.inet_aton(via))
        body += attribute(4, struct.pack("=I", self.link))
        # NLM_F_REQUEST, ACK, REPLACE, CREATE.
        self.socket.send(struct.pack("=IHHII", 16 + len(body), 24, 0x505, 1, 0) + body)
        error = struct.unpack_from("=i", self.socket.recv(4096), 16)[0]
        if error:
            sys.exit(f"the kernel refuses a route: {os.strerror(-error)}")


def milliseconds(times):
    times = sorted(1000 * t for t in times)
    return f"median {statistics.median(times):.2f}, 99 % {times[len(times) * 99 // 100]:.2f}, " \
           f"longest {times[-1]:.2f} ms"


# Generated packets to the first routes, as fast as they are processed, so that a batch takes no time but
# that of the router.
GENERATED = """
[input.left]
generate = { seed = 5, packets = 1000000000000, flows = 20000, size = 64, protocols = { udp = 1.0 }, clients = ["24.0.0.0/8"], servers = ["16.0.0.0/8"] }
[output.right]
discard = true
[[route]]
path = ["ingress", "edge", "egress"]
[nf.edge]
kind = "router"
kernel_table = 254
[nf.edge.ports.right]
mac = "02:00:00:00:00:02"
interface = "right"
"""


def packet_to(address):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, socket.inet_aton("10.1.0.2"), address)
    words = sum(struct.unpack("!10H", header))
    words = (words & 0xFFFF) + (words >> 16)
    header = header[:10] + struct.pack("!H", ~words & 0xFFFF) + header[12:]
    return bytes.fromhex("020000000001" "020000000099" "0800") + header + struct.pack("!4H", 1, 2, 8, 0)


def batch_times(options, folder, changes):
    """The times of batches during which a file of changes is applied, or as many seconds without."""
    router = Router(options.thalweg, folder, "--stages", "--workers", "1", "--control", chain=GENERATED)
    if changes:
        run("ip", "-batch", str(folder / changes))
    else:
        time.sleep(options.seconds)
    # Until the last change is applied.
    settled = None
    while (now := router.figures()["kernel_changes"]) != settled:
        settled = now
        time.sleep(0.2)
    figures = router.figures()
    router.end()
    report = json.loads((folder / "report").read_text())
    return report["batch_cpu_ns"], figures


def stalls(options):
    set_up()
    folder = Path(tempfile.mkdtemp(dir="/run"))
    write_routes(options, folder)
    run("ip", "-batch", str(folder / "add"))
    for name, shift in (("burst", 1), ("back", 0)):
        with open(folder / name, "w") as file:
            for n in range(options.changes):
                file.write(f"route replace {prefix(n)} via {gateway(n + shift)}\n")
    print(f"{options.routes} routes, {options.changes} changes a burst; microseconds of processor time of the "
          "worker for a batch\n")
    heads = ["", "batches", "median", "99 %", "99.9 %", "99.99 %", "longest", "changes", "lost", "lag, longest"]
    print(f"| {' | '.join(heads)} |\n" + "| --- " * len(heads) + "|")
    for number in range(options.rounds):
        for what, changes in (("without changes", None), ("burst", ("burst", "back")[number % 2])):
            times, figures = batch_times(options, folder, changes)
            shown = [f"{times[name] / 1000:.1f}" for name in ("p50", "p99", "p999", "p9999", "max")]
            cells = [what, str(times["batches"]), *shown, str(figures["kernel_changes"]),
                     str(figures["kernel_lost"]), str(figures["kernel_lag_max_us"])]
            print(f"| {' | '.join(cells)} |", flush=True)


def write_routes(options, folder):
    for verb, shift in (("add", 0), ("replace", 1)):
        with open(folder / verb, "w") as file:
            for n in range(options.routes):
                file.write(f"route {verb} {prefix(n)} via {gateway(n + shift)}\n")


def measure(options):
    set_up()
    folder = Path(tempfile.mkdtemp(dir="/run"))
    write_routes(options, folder)
    begin = time.monotonic()
    run("ip", "-batch", str(folder / "add"))
    print(f"ip -batch adds {options.routes} routes: {time.monotonic() - begin:.1f} s")

    router = Router(options.thalweg, folder)
    figures = router.figures()
    print(f"start with {figures['routes_v4']} routes: {router.start_s:.2f} s, "
          f"{router.resident_mib():.0f} MiB resident")

    probe, routes = Probe(), Routes()
    routes.replace(PROBED, gateway(0))
    router.wait_for(lambda figures: figures["kernel_changes"] > 0)
    print("a packet's way and back:", milliseconds([probe.gateway()[1] for _ in range(2000)]))
    waits = []
    for n in range(1, 501):
        routes.replace(PROBED, gateway(n))
        begin = time.monotonic()
        while probe.gateway()[0] != n % GATEWAYS:
            pass
        waits.append(time.monotonic() - begin)
    print("until a change is used:", milliseconds(waits))

    before = router.figures()
    begin = time.monotonic()
    batch = subprocess.Popen(["ip", "-batch", str(folder / "replace")])
    ways = []
    while batch.poll() is None:
        ways.append(probe.gateway()[1])
    took = time.monotonic() - begin
    routes.replace(PROBED, gateway(7))
    while probe.gateway()[0] != 7:
        pass
    behind = time.monotonic() - begin - took
    print("a packet's way meanwhile:", milliseconds(ways))
    after = router.figures()
    print(f"ip -batch replaces {options.routes} routes: {took:.1f} s, used {behind:.3f} s after the last; "
          f"changes {after['kernel_changes'] - before['kernel_changes']}, "
          f"lost {after['kernel_lost'] - before['kernel_lost']}, "
          f"dumps {after['kernel_dumps'] - before['kernel_dumps']}, "
          f"lag last {after['kernel_lag_us']} us, longest {after['kernel_lag_max_us']} us, "
          f"{router.resident_mib():.0f} MiB resident")
    router.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--routes", type=int, default=1_000_000)
    parser.add_argument("--thalweg", default="target/release/thalweg")
    parser.add_argument("--stalls", action="store_true")
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.thalweg = os.path.abspath(options.thalweg)
    if not options.inside:
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        sys.exit(subprocess.call(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *user,
             sys.executable, __file__, "--inside", "--routes", str(options.routes),
             "--thalweg", options.thalweg, "--changes", str(options.changes), "--seconds", str(options.seconds),
             "--rounds", str(options.rounds), *(["--stalls"] if options.stalls else [])]))
    (stalls if options.stalls else measure)(options)


main()
