#!/usr/bin/env python3
"""The router's table against DPDK's rte_lpm, rte_fib and rte_fib6.

    bench/route.py PREFIXES [--rounds 3] [--json FILE] [--burst 32 256]

PREFIXES has one prefix a line (IPv4 and IPv6), plain or gzipped, as routing/prefixes-2024.txt.gz of
the test data: a full Internet table. Builds bench/route and bench/peers/rte_route.c (which needs
libdpdk-dev) and runs one after the other, round by round: a million addresses, --burst of them at a
time, on one core. Random: of IPv4 anywhere, of IPv6 within prefixes drawn at random; zipf: within
prefixes drawn by Zipf's law (exponent 1). The fibs use AVX-512, where the processor has it, and the
smallest entries that hold the table (2 bytes; rte_fib6 needs 4). All sums of next hops must agree.
DPDK gets huge pages if there are enough in /proc/sys/vm/nr_hugepages, as ours requests transparent
ones.
"""

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path

from common import build_bench, build_dpdk_peer, cpu_model, huge_pages, json_lines, need, run, work_folder

# The limits of DPDK's tables.
MEMORY_MB = 3000
# The target ratios, by peer.
TARGETS = {"rte_lpm": 1.3, "rte_fib": 1.2, "rte_fib6": 1.2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefixes", type=Path)
    parser.add_argument("--burst", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need("rust", "dpdk")
    ours, peer = build_bench("route"), build_dpdk_peer("rte_route")
    on_huge_pages, pages = huge_pages(MEMORY_MB)
    eal = [pages, "--no-shconf", "--no-pci", "--no-telemetry", "-m", MEMORY_MB,
           "--force-max-simd-bitwidth=512"]
    folder = work_folder() / "route"
    folder.mkdir(exist_ok=True)
    data = options.prefixes.read_bytes()
    (folder / "prefixes").write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    run(ours, "make", folder / "prefixes", folder)
    ns, sums, vectors = {}, {}, False
    for _ in range(options.rounds):
        text = run(ours, "run", folder, *options.burst, core=0)
        text += run(peer, *eal, "--", folder, *options.burst, core=0)
        for line in json_lines(text):
            vectors |= line.get("vectors", False)
            at = (line["version"], line["addresses"], line["burst"])
            ns.setdefault(at, {}).setdefault(line["table"], []).append(line["ns"])
            if sums.setdefault(at[:2], line["sum"]) != line["sum"]:
                sys.exit(f"{line['table']} and our table find different next hops: {line}")
    rows = []
    for (version, addresses, burst), tables in sorted(ns.items()):
        median = {name: statistics.median(values) for name, values in tables.items()}
        ratios = {name: median[name] / median["ours"] for name in median if name != "ours"}
        rows.append({"version": version, "addresses": addresses, "burst": burst, "ns": median,
                     "ratios": ratios})
    result = {"schema": "thalweg.bench.route/1", "processor": cpu_model(),
              "rounds": options.rounds, "huge_pages_for_dpdk": on_huge_pages,
              "avx512_of_fibs": vectors, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['processor']}; {options.rounds} interleaved rounds; ns a lookup; DPDK on "
          f"{'huge' if on_huge_pages else 'ordinary'} pages, fibs with{'' if vectors else 'out'} AVX-512\n")
    print("| IP | addresses | at a time | ours | peers | times the peers |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        peers = ", ".join(f"{name} {ns:.2f}" for name, ns in r["ns"].items() if name != "ours")
        ratios = ", ".join(f"{ratio:.2f} ({TARGETS[name]})" for name, ratio in r["ratios"].items())
        print(f"| v{r['version']} | {r['addresses']} | {r['burst']} | {r['ns']['ours']:.2f} "
              f"| {peers} | {ratios} |")


if __name__ == "__main__":
    main()
