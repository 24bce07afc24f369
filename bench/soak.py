#!/usr/bin/env python3
"""Each network function under hostile traffic: does its memory stay within its bounds?

    bench/soak.py [--minutes 10] [--kinds nids nat ...] [--leaks] [--json FILE]

Sends generated attacks (`thalweg gen --hostile`) with some ordinary traffic between them through
chains of one NF each, all at once, and samples each program's resident memory every second. It
must stay below what the NF's configuration allows, must not grow in the second half,
and every packet must be accounted for. With --leaks the program is first built with the leak
sanitizer (LeakSanitizer of the compiler in use), which fails a run that leaked memory.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import HERE, SETUP, THALWEG, built, cpu_model, setup, work_folder

TRAFFIC = """
[input.world]
generate = { seed = 5, packets = 1000000000000, flows = 20000, hostile = @HOSTILE@, malformed = 0.05, ipv6 = 0.2, payload = "http", clients = ["10.0.0.0/8", "2001:db8:a::/64"], servers = ["198.51.100.0/24", "2001:db8:b::/64"] }
[output.out]
discard = true
"""
RULES = """
alert http any any -> any any (msg:"u"; http.uri; content:"/a"; sid:1;)
alert http any any -> any any (msg:"f"; file_data; content:"nothing like it"; sid:2;)
alert dns any any -> any any (msg:"d"; dns.query; content:"x"; sid:3;)
alert tcp any any -> any any (msg:"r"; content:"needle"; content:"stack"; distance:0; sid:4;)
alert ip any any -> any any (msg:"l"; content:"zz"; threshold:type limit, track by_src, count 1, seconds 60; sid:5;)
"""
# The clients are on the router's own link, and none of them answers.
ROUTES = """
0.0.0.0/0 192.0.2.254 out
10.0.0.0/8 direct out
::/0 2001:db8::fe out
2001:db8:a::/64 direct out
"""
# For each kind: its section without limits; its limits; and the MiB it may take: what these allow,
# given the sizes of its entries, plus room for the allocator.
KINDS = {
    "router": ("""routes = "@WORK@/soak.routes"
[nf.it.ports.out]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8::1"
resolve = true
neighbors = { "192.0.2.254" = "02:00:00:00:00:fe", "2001:db8::fe" = "02:00:00:00:00:fe" }
""", "", 96),
    "filter": ("""default = "reject"
rules = ["accept tcp,tp_dst=80", "reject udp", "drop icmp"]
""", "", 32),
    "acl": ("""rules = ["deny tcp,tp_dst=23", "permit ip,nw_src=10.0.0.0/9"]
default = "permit"
""", "", 32),
    "monitor": ("", "max_flows = 100000\nidle_timeout_s = 30\n", 96),
    "assets": ("", """max_hosts = 100000
memory_mib = 64
max_conversations = 200000
""", 192),
    "l7fw": ("""
[[nf.it.rule]]
action = "block"
application = ["BitTorrent"]
""", "max_flows = 65536\n", 256),
    "nat": ("""inside = ["10.0.0.0/8"]
external = ["192.0.2.1-192.0.2.8"]
""", """max_mappings = 100000
max_sessions = 200000
""", 192),
    "nids": ("""rules = ["@WORK@/soak.rules"]
midstream = true
""", """max_flows = 100000
stream_memory_mib = 64
""", 256),
    "ipsec": ("""default_policy = "bypass"
[[nf.it.sa]]
name = "in"
direction = "in"
spi = 0x2001
suite = "aes128-gcm16"
encryption_key = "1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11"
source = "192.0.2.1"
destination = "192.0.2.10"
[[nf.it.sa]]
name = "out"
direction = "out"
spi = 0x2002
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
source = "192.0.2.1"
destination = "192.0.2.10"
[[nf.it.policy]]
match = "udp"
action = "protect"
sa = "out"
""", "", 32),
    "defrag": ("", "", 32),
    "tunnel": ("""[[nf.it.tunnel]]
name = "v"
protocol = "vxlan"
id = 1
local = "192.0.2.2"
remote = "192.0.2.1"
match = "udp"
""", "", 32),
}


def leak_checked():
    """Builds the program with the leak sanitizer and returns its path."""
    setup("build")
    target = work_folder() / "leaks"
    environment = {**os.environ, "RUSTFLAGS": "-Zsanitizer=leak", "RUSTC_BOOTSTRAP": "1",
                   "CARGO_TARGET_DIR": str(target)}
    triple = "x86_64-unknown-linux-gnu"
    features = subprocess.check_output([SETUP, "features"], text=True).strip()
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", "thalweg-cli", "--target", triple,
                    "--features", features], cwd=HERE.parent, env=environment, check=True)
    return target / triple / "release/thalweg"


def chain(kind, work, hostile=0.8, limited=True):
    """The path of a chain of one NF of `kind`, or of none if that is "empty": `hostile` is the share
    of the packets that are attacks; without `limited`, the NF has the limits that are its defaults."""
    (work / "soak.rules").write_text(RULES)
    (work / "soak.routes").write_text(ROUTES)
    hops, nf = "*, ingress, out\n", ""
    if kind != "empty":
        section, limits, _ = KINDS[kind]
        # Packets that the NF does not drop go from the ingress through it to the output.
        hops = "*, ingress, it\n*, it, out\n"
        # Limits first: what follows a table within the section would belong to that.
        nf = f'[nf.it]\nkind = "{kind}"\n{limits if limited else ""}{section.replace("@WORK@", str(work))}'
    (work / f"soak-{kind}.csv").write_text(hops)
    path = work / f"soak-{kind}.toml"
    path.write_text(f'routes = "{work}/soak-{kind}.csv"\n{TRAFFIC.replace("@HOSTILE@", str(hostile))}{nf}')
    return path


def resident_mib(pid):
    try:
        fields = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return None
    kib = [line.split()[1] for line in fields.splitlines() if line.startswith("VmRSS")]
    return int(kib[0]) / 1024 if kib else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program = leak_checked() if options.leaks else built(options.thalweg)
    work = work_folder()
    seconds = options.minutes * 60
    running = {}
    for kind in ["empty", *options.kinds]:
        path = chain(kind, work)
        report, errors = open(work / f"soak-{kind}.json", "w+"), open(work / f"soak-{kind}.err", "w+")
        process = subprocess.Popen([str(program), "run", str(path), "--json", "--quiet"], stdout=report, stderr=errors)
        running[kind] = {"process": process, "report": report, "errors": errors, "rss": []}
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        time.sleep(1)
        for run in running.values():
            rss = resident_mib(run["process"].pid)
            if rss is not None:
                run["rss"].append(rss)
    failed, rows = False, []
    for kind, run in running.items():
        run["process"].send_signal(signal.SIGINT)
    for kind, run in running.items():
        code = run["process"].wait()
        run["report"].seek(0)
        run["errors"].seek(0)
        text, errors = run["report"].read(), run["errors"].read()
        if code != 0 or not text:
            print(f"{kind}: exit {code}\n{errors}", file=sys.stderr)
            failed = True
            continue
        report, rss = json.loads(text), run["rss"]
        empty = max(running["empty"]["rss"])
        taken, half = max(rss) - (0 if kind == "empty" else empty), len(rss) // 2
        bound = None if kind == "empty" else KINDS[kind][2]
        # The memory that the allocator retains varies; a leak of one byte per packet would still show.
        growth = max(rss[half:]) - max(rss[:half])
        fine = report["conserved"] and (bound is None or taken <= bound) and growth <= max(4, 0.05 * max(rss))
        failed |= not fine
        rows.append({"kind": kind, "packets": report["packets_in"], "most_mib": max(rss), "beyond_empty_mib": taken,
                     "bound_mib": bound, "growth_second_half_mib": growth, "conserved": report["conserved"], "fine": fine})
    print(f"{cpu_model()}; {options.minutes:g} minutes, all at once{', leak-checked' if options.leaks else ''}\n")
    print("| NF | packets | peak MiB | above no NF | allowed | growth in the second half | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['kind']} | {row['packets'] / 1e6:.0f}M | {row['most_mib']:.0f} | {row['beyond_empty_mib']:.0f} | "
              f"{row['bound_mib'] or '-'} | {row['growth_second_half_mib']:.1f} | {'fine' if row['fine'] else 'NOT FINE'} |")
    if options.json:
        result = {"schema": "thalweg.bench.soak/1", "minutes": options.minutes, "leaks": options.leaks, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
