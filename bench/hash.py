#!/usr/bin/env python3
"""The concurrent cuckoo table against DPDK's rte_hash and hashbrown.

    bench/hash.py [--rounds 3] [--json FILE] [--svg FILE]

Builds bench/hash and bench/peers/rte_hash.c (which needs libdpdk-dev) and runs one
after the other, round by round, over the same keys: 90 % of the places filled, all
lookups find their key, batches of 32, readers that need no lock.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import build_bench, build_dpdk_peer, cpu_model, json_lines, lines_svg, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    ours, peer = build_bench("hash"), build_dpdk_peer("rte_hash")
    eal = ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", 3000]
    ns = {}
    for _ in range(options.rounds):
        for line in json_lines(run(ours) + run(peer, *eal)):
            ns.setdefault((line["key_bytes"], line["entries"]), {}).setdefault(line["table"], []).append(line["ns"])
    rows = []
    for (key_bytes, entries), tables in sorted(ns.items()):
        median = {name: statistics.median(values) for name, values in tables.items()}
        rows.append({"key_bytes": key_bytes, "entries": entries, "ns": median,
                     "to_rte_hash": median["rte_hash"] / median["cuckoo"],
                     "to_hashbrown": median["hashbrown"] / median["cuckoo"]})
    result = {"schema": "thalweg.bench.hash/1", "processor": cpu_model(), "rounds": options.rounds,
              "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.svg:
        small = [r for r in rows if r["key_bytes"] == 16]
        series = {name: [(r["entries"].bit_length() - 1, 1e3 / r["ns"][name]) for r in small]
                  for name in small[0]["ns"]}
        labels = {n: f"2^{n}" for n in range(40)}
        options.svg.write_text(lines_svg("Lookups of 16-byte keys", "places", "million a second",
                                         series, labels))
    print(f"{result['processor']}; {options.rounds} interleaved rounds; ns a lookup\n")
    print("| key | places | cuckoo | single hash | hashbrown | rte_hash | times rte_hash | times hashbrown |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in rows:
        n = r["ns"]
        print(f"| {r['key_bytes']} B | 2^{r['entries'].bit_length() - 1} | {n['cuckoo']:.1f} "
              f"| {n['single hash']:.1f} | {n['hashbrown']:.1f} | {n['rte_hash']:.1f} "
              f"| {r['to_rte_hash']:.2f} | {r['to_hashbrown']:.2f} |")


if __name__ == "__main__":
    main()
