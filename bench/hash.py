#!/usr/bin/env python3
"""The concurrent cuckoo table against DPDK's rte_hash and hashbrown.

    bench/hash.py [--rounds 3] [--json FILE] [--svg FILE] [BITS...]

Builds bench/hash and bench/peers/rte_hash.c (which needs libdpdk-dev) and runs one
after the other, round by round, over the same keys: 90 % of the places filled, all
lookups find their key, batches of 32, readers that need no lock. Tables have 2^BITS
places. DPDK gets huge pages if there are enough in /proc/sys/vm/nr_hugepages (as ours
requests transparent ones), else ordinary ones; the output names the kind.

Ours has two calls: `get_step` looks up 32 keys, `get_many` as many as there are (here
1024), and overlaps steps where the table is far from the core. The ratios are those
of the faster one; both are printed.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import build_bench, build_dpdk_peer, cpu_model, huge_pages, json_lines, lines_svg, need, run


# The most entries of DPDK's tables.
MEMORY_MB = 6000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bits", nargs="*", type=int, default=[10, 14, 17, 20, 22, 24], metavar="BITS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    need("rust", "dpdk")
    ours, peer = build_bench("hash"), build_dpdk_peer("rte_hash")
    on_huge_pages, pages = huge_pages(MEMORY_MB)
    eal = [pages, "--no-shconf", "--no-pci", "--no-telemetry", "-m", MEMORY_MB]
    ns = {}
    for _ in range(options.rounds):
        for bits in options.bits:
            for line in json_lines(run(ours, bits) + run(peer, *eal, "--", bits)):
                of = ns.setdefault((line["key_bytes"], line["entries"]), {})
                of.setdefault(line["table"], []).append(line["ns"])
    rows = []
    for (key_bytes, entries), tables in sorted(ns.items()):
        median = {name: statistics.median(values) for name, values in tables.items()}
        ours_ns = min(median["get_step"], median["get_many"])
        rows.append({"key_bytes": key_bytes, "entries": entries, "ns": median,
                     "to_rte_hash": median["rte_hash"] / ours_ns,
                     "to_hashbrown": median["hashbrown"] / ours_ns})
    result = {"schema": "thalweg.bench.hash/1", "processor": cpu_model(), "rounds": options.rounds,
              "huge_pages_for_dpdk": on_huge_pages, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.svg:
        small = [r for r in rows if r["key_bytes"] == 16]
        series = {name: [(r["entries"].bit_length() - 1, 1e3 / r["ns"][name]) for r in small]
                  for name in small[0]["ns"]}
        labels = {n: f"2^{n}" for n in range(40)}
        options.svg.write_text(lines_svg("Lookups of 16-byte keys", "places", "million a second",
                                         series, labels))
    print(f"{result['processor']}; {options.rounds} interleaved rounds; ns a lookup; DPDK on "
          f"{'huge' if on_huge_pages else 'ordinary'} pages\n")
    print("| key | places | get_step | get_many | single hash | hashbrown | rte_hash "
          "| times rte_hash | times hashbrown |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in rows:
        n = r["ns"]
        print(f"| {r['key_bytes']} B | 2^{r['entries'].bit_length() - 1} | {n['get_step']:.1f} | {n['get_many']:.1f} "
              f"| {n['single hash']:.1f} | {n['hashbrown']:.1f} | {n['rte_hash']:.1f} "
              f"| {r['to_rte_hash']:.2f} | {r['to_hashbrown']:.2f} |")


if __name__ == "__main__":
    main()
