#!/usr/bin/env python3
"""The IPsec gateway, outbound, against libipsec-mb's jobs and aws-lc-rs.

    bench/ipsec.py [--suite aes128-cbc-hmac-sha1-96] [--rounds 5] [--json FILE] [--size 64 1472]

Ours is the whole path of a packet through the NF, a batch at a time: parse, find the policy, tunnel
and ESP headers, encrypt, authenticate. libipsec-mb (Debian's libipsec-mb-dev) and aws-lc-rs
encrypt and authenticate ESP packets of the same sizes and do nothing else: the first in jobs,
checked and unchecked, the second packet by packet. One core; round by round, one after the other;
medians of the rounds. Sizes are those of the IP packets inside the tunnel.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import build_bench, build_peer, cpu_model, json_lines, need, run

# The target ratios, by peer and size; other sizes have no target.
TARGETS = {("ipsec-mb", 64): 0.85, ("ipsec-mb", 1472): 0.95}
EVERY_SIZE = {"aws-lc-rs": 3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="aes128-cbc-hmac-sha1-96")
    parser.add_argument("--size", nargs="+", type=int, default=[64, 256, 512, 1472])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need("rust", "ipsec-mb")
    ours = build_bench("ipsec", "--features", "aws-lc")
    peer = build_peer("imb_jobs", "-lIPSec_MB")
    ns = {}
    for _ in range(options.rounds):
        for program in ours, peer:
            text = run(program, options.suite, *options.size, core=0)
            for line in json_lines(text):
                ns.setdefault(line["size"], {}).setdefault(line["who"], []).append(line["ns"])
    rows = []
    for size, times in sorted(ns.items()):
        median = {who: statistics.median(values) for who, values in times.items()}
        ratios = {who: median[who] / median["ours"] for who in median if who != "ours"}
        rows.append({"size": size, "ns": median, "ratios": ratios})
    result = {"schema": "thalweg.bench.ipsec/1", "processor": cpu_model(), "suite": options.suite,
              "rounds": options.rounds, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['processor']}; {options.suite}; {options.rounds} interleaved rounds\n")
    print("| bytes of IP | ours, ns a packet | peers | times the peers |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        peers = ", ".join(f"{who} {ns:.0f}" for who, ns in row["ns"].items() if who != "ours")
        ratios = []
        for who, ratio in row["ratios"].items():
            target = TARGETS.get((who, row["size"]), EVERY_SIZE.get(who))
            ratios.append(f"{who} {ratio:.2f}" + (f" ({target})" if target else ""))
        print(f"| {row['size']} | {row['ns']['ours']:.0f} | {peers} | {', '.join(ratios)} |")


if __name__ == "__main__":
    main()
