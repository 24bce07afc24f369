#!/usr/bin/env python3
"""Does a capture have one answer, whatever the number of workers?

    bench/one_answer.py CAPTURE [--workers 1 2 3 4 8] [--runs 10] [--rules FILE...] [--chains NAME...]

Runs a chain of each network function, and the long chain of most of them, over the capture, `--runs`
times with each number of workers, and compares what they write byte for byte: packets, alerts,
records, inventories, hits, state, and the report apart from times. Prints a line for each chain;
exits with 1 if an answer differs.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from common import THALWEG, built, work_folder

RULES = """
alert http any any -> any any (msg:"u"; http.uri; content:"/"; sid:1;)
alert tcp any any -> any any (msg:"s"; flags:S; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)
alert dns any any -> any any (msg:"d"; dns.query; content:"."; threshold:type both, track by_dst, count 5, seconds 60; sid:3;)
alert ip any any -> any any (msg:"z"; content:"|00 00 00 00|"; threshold:type limit, track by_rule, count 9, seconds 60; sid:4;)
"""
# Its many rules have nids divided over the workers.
RULES += "".join(f'alert udp any any -> any any (content:"rule number {n}"; sid:{n};)\n' for n in range(1000, 1600))
ROUTES = "0.0.0.0/0 192.0.2.254 out\n10.0.0.0/8 192.0.2.253 out\n::/0 2001:db8::fe out\n"
# For each network function: its section.
SECTIONS = {
    "acl": 'rules = ["deny tcp,tp_dst=23", "permit ip,nw_src=10.0.0.0/9"]\ndefault = "permit"\nhits = "hits.json"\n',
    "assets": 'inventory = "assets.json"\n',
    "defrag": "",
    "filter": 'default = "accept"\nrules = ["reject tcp,tp_dst=25", "drop udp,tp_dst=137", "reject udp,tp_dst=161"]\n',
    "ipsec": """default_policy = "bypass"
[[nf.ipsec.sa]]
name = "out"
direction = "out"
spi = 0x2002
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
source = "192.0.2.1"
destination = "192.0.2.10"
[[nf.ipsec.policy]]
match = "udp"
action = "protect"
sa = "out"
""",
    "l7fw": 'flows = "l7.json"\n[[nf.l7fw.rule]]\naction = "block"\napplication = ["BitTorrent", "DNS"]\n',
    "monitor": 'json = "flows.json"\nipfix = "flows.ipfix"\nidle_timeout_s = 15\n',
    "nat": 'inside = ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"]\nexternal = ["198.51.100.1-198.51.100.8"]\n',
    "nids": 'rules = [@RULES@]\nalerts = "alerts.json"\n',
    "refrag": "",
    "router": """routes = "table.txt"
[nf.router.ports.out]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8::1"
neighbors = { "192.0.2.254" = "02:00:00:00:00:fe", "192.0.2.253" = "02:00:00:00:00:fd", "2001:db8::fe" = "02:00:00:00:00:fe" }
""",
    "tunnel": """[[nf.tunnel.tunnel]]
name = "v"
protocol = "vxlan"
id = 1
local = "192.0.2.2"
remote = "192.0.2.1"
match = "udp"
""",
}
CHAINS = {kind: [kind] for kind in SECTIONS}
CHAINS["long"] = ["defrag", "filter", "nat", "ipsec", "nids", "assets", "monitor", "router"]
TIMES = {"duration_s", "workers", "by_worker", "packets_per_second", "bits_per_second", "cycles_per_packet", "latency_ns"}


def write(name, folder, capture, rules):
    """The chain `name` in `folder`."""
    nfs = CHAINS[name]
    hops = ["ingress", *nfs, "egress"]
    (folder / "routes.csv").write_text("".join(f"*,{a},{b}\n" for a, b in zip(hops, hops[1:])))
    (folder / "table.txt").write_text(ROUTES)
    (folder / "own.rules").write_text(RULES)
    files = rules or [folder / "own.rules"]
    sections = "".join(f'[nf.{kind}]\nkind = "{kind}"\n{SECTIONS[kind]}' for kind in nfs)
    sections = sections.replace("@RULES@", ", ".join(f'"{file}"' for file in files))
    (folder / "chain.toml").write_text(
        f'routes = "routes.csv"\n[run]\nseed = 7\n[input.in]\ncapture = "{capture}"\n'
        f'[output.out]\ncapture = "out.pcapng"\n{sections}')


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(v) for key, v in value.items() if key not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def answer(program, folder, workers):
    """A digest of each thing that a run writes."""
    inputs = {"routes.csv", "table.txt", "own.rules", "chain.toml"}
    for file in folder.iterdir():
        if file.is_file() and file.name not in inputs:
            file.unlink()
    command = [program, "run", "chain.toml", "--json", "--quiet", "--workers", str(workers), "--export-state", "state"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{folder.name} with {workers} workers: {done.stderr}")
    report = without_times(json.loads(done.stdout))
    digests = {"report": hashlib.sha256(json.dumps(report).encode()).hexdigest()}
    files = [f for f in [*folder.iterdir(), *(folder / "state").glob("*.state")] if f.is_file()]
    for file in files:
        if file.name not in inputs:
            digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests, report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path)
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3, 4, 8])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rules", type=Path, nargs="+", default=[])
    parser.add_argument("--chains", nargs="+", choices=list(CHAINS), default=list(CHAINS))
    options = parser.parse_args()
    program, failed = built(options.thalweg), False
    rules = [file.resolve() for file in options.rules]
    for name in options.chains:
        folder = work_folder() / f"one-{name}"
        folder.mkdir(exist_ok=True)
        write(name, folder, options.capture.resolve(), rules)
        first, report = answer(program, folder, options.workers[0])
        differing = {}
        for _ in range(options.runs):
            for workers in options.workers:
                other, _ = answer(program, folder, workers)
                for part in first.keys() | other.keys():
                    if first.get(part) != other.get(part):
                        differing.setdefault(part, set()).add(workers)
        failed |= bool(differing)
        verdict = "one answer" if not differing else "DIFFERS: " + ", ".join(
            f"{part} with {sorted(workers)} workers" for part, workers in sorted(differing.items()))
        print(f"{name:8} {report['packets_in']:9} packets {len(first)} parts: {verdict}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
