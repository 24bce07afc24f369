"""Chains with NFs on a device, for bench/gpu.py: what is in them, and runs that are measured."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from common import built, run, work_folder
from gpu_ways import pocl

FOLDER = work_folder() / "gpu"
PACKETS, FLOWS = 20_000, 256
# In 128ths, by the lowest bits of the source port: the flows of type `two`.
ALL, HALF, FEW, MOST = 0, 64, 9, 119

SETTINGS = """default_type = "one"
routes = "routes.csv"
[run]
workers = {workers}
[input.in]
capture = "clear.pcap"
memory = true
loop = 0
[output.out]
discard = true
[memory]
launches = "{launches}"
[[class]]
type = "two"
rules = [{two}]
"""
VPN = """
[nf.vpn]
kind = "ipsec"
{place}
[[nf.vpn.sa]]
name = "a"
direction = "out"
spi = 4097
source = "192.0.2.1"
destination = "192.0.2.10"
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
mtu = 9000
[[nf.vpn.policy]]
match = "ip"
action = "protect"
sa = "a"
"""
IDS = """
[nf.ids]
kind = "nids"
rules = {rules}
{place}
"""
EDGE = """
[nf.edge]
kind = "router"
routes = "table.txt"
{place}
[nf.edge.ports.out]
mac = "02:00:00:00:00:01"
ip = "203.0.113.2"
mtu = 9000
default_mac = "02:00:00:00:00:02"
"""


def made_up_rules(path):
    """1,000 rules with contents of 4 to 19 random bytes, of the same form as those of thalweg-bench-gpu."""
    chance = random.Random(1)
    contents = (chance.randbytes(4 + number % 16).hex(" ") for number in range(1000))
    rules = (f'alert udp any any -> any any (msg:"made up"; content:"|{content}|"; sid:{number};)\n'
             for number, content in enumerate(contents, 1))
    path.write_text("".join(rules))


def made_up_routes(path):
    """100,000 routes to random prefixes of 16 to 24 bits, and a default."""
    chance = random.Random(3)
    routes = {"0.0.0.0/0"}
    while len(routes) < 100_001:
        bits = chance.randint(16, 24)
        address = chance.getrandbits(bits) << (32 - bits)
        routes.add(".".join(str(byte) for byte in address.to_bytes(4, "big")) + f"/{bits}")
    path.write_text("".join(f"{prefix} 203.0.113.1 out\n" for prefix in sorted(routes)))


def prepare():
    """Writes the files that all chains read."""
    FOLDER.mkdir(exist_ok=True)
    made_up_rules(FOLDER / "made-up.rules")
    made_up_routes(FOLDER / "table.txt")


def generate(program, size):
    """Writes the packets that chains receive: UDP, so that nothing depends on streams that repeat."""
    run(program, "gen", FOLDER / "clear.pcap", "--seed", 1, "--packets", PACKETS, "--flows", FLOWS, "--size",
        size, "--tcp", 0, "--icmp", 0)


def write(options, nfs, workers=1, ways=None, share=ALL, more="", launches="never"):
    """Writes a chain with these NFs, each with its work-groups on the device, or 0 on the processor; packets
    of types `one` and `two` take these ways, by default through all NFs in their order. The flows of type
    `two` are `share` 128ths. NFs on the device have `more` keys, and are
    there in kernels that stay or in `launches`."""
    two = ", ".join(f"'udp,tp_src={port}/0x7f'" for port in range(share)) or "'arp'"
    texts = {"vpn": VPN, "ids": IDS, "edge": EDGE}
    rules = [str(rules) for rules in options.rules] or ["made-up.rules"]
    chain = SETTINGS.format(workers=workers, two=two, launches=launches)
    for nf, work_groups in nfs.items():
        place = (f'at = "{options.device}"\nwork_groups = {work_groups}\nfailed_after_ms = 30000\n{more}'
                 if work_groups else "")
        chain += texts[nf].format(place=place, rules=json.dumps(rules))
    table = ["packet type, current NF, next NF"]
    for name, way in (ways or {"*": list(nfs)}).items():
        # The router chooses the output.
        steps = ["ingress", *way, "egress" if way[-1] == "edge" else "out"]
        table += [f"{name}, {here}, {there}" for here, there in zip(steps, steps[1:])]
    (FOLDER / "routes.csv").write_text("\n".join(table) + "\n")
    (FOLDER / "chain.toml").write_text(chain)
    return FOLDER / "chain.toml"


def processor_seconds(process):
    """What all threads of a process have used so far, those that have ended included."""
    # As clock_getcpuclockid(3) names the clock of a process.
    return time.clock_gettime((~process << 3) | 2)


def measure(options, chain, work_groups, cost=False):
    """Of a run of a chain: packets a second, and the share of dummies by NF on the device; with `cost`, also
    packets for each second of processor time of all threads. For that, neither the first interval counts, in
    which tables fill, nor the last one, in which threads end."""
    command = [str(built(options.program[0])), "run", str(chain), "--json", "--quiet", "--duration",
               f"{options.seconds}"]
    if cost:
        command += ["--stats", f"{options.seconds / 7}", "--stats-format", "json"]
    process = subprocess.Popen(command, env=pocl(max(work_groups, 1)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    packets, times, other = [], [], []
    for line in process.stderr:
        if not line.startswith("{"):
            other.append(line)
        elif not (counts := json.loads(line))["last"]:
            packets.append(counts["packets_in"])
            times.append(processor_seconds(process.pid))
    text = process.stdout.read()
    if process.wait() != 0:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{''.join(other)}")
    report = json.loads(text)
    # Each packet is to pass all NFs of its way.
    if not report["conserved"] or report["failures"] or report["packets_dropped"] > report["packets_in"] / 100:
        sys.exit(f"{chain}: conserved: {report['conserved']}, {report['failures']}, {report['drops']}")
    share = lambda counts: counts["dummies"] / max(counts["slots"], 1)
    measured = {"rate": report["packets_per_second"],
                "dummies": {nf["name"]: share(nf["device"]) for nf in report["nfs"] if "device" in nf}}
    # A run that is too short for a busy machine has too few intervals, and no costs.
    if len(times) >= 3:
        measured["per_core"] = sum(packets[1:-1]) / (times[-2] - times[0])
    return measured


def place(options, sizes, samples, milliseconds):
    """What `thalweg place --measure` has measured."""
    generate(options.program[0], "imix")
    chain = write(options, {"ids": 1, "vpn": 1, "edge": 1})
    text = run(options.program[0], "place", "--measure", chain, "--json", "--quiet", "--samples", samples,
               "--time", milliseconds, "--packets", PACKETS, "--sizes", *sizes, environment=pocl(1))
    return json.loads(text)

