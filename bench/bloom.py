#!/usr/bin/env python3
"""Bloom filters: our variants, the split-block filter, and those of other projects.

    bench/bloom.py [--rounds 3] [--json FILE] [--svg FOLDER] [SIZE...]

Builds bench/bloom and bench/peers/rte_member.c (which needs libdpdk-dev) and runs one
after the other, round by round, over the same million random keys: 3 hash functions,
10 bits a key, filters of SIZE bytes (default: 16 KiB to 256 MiB). The pictures are
after figures 5, 6 and 7 of Li, Han and Han (APNet 2020): by size, by unrolling, by
the part of the keys that are in the filter.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import build_bench, build_dpdk_peer, cpu_model, json_lines, lines_svg, need, run

SIZES = [16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20]
BASELINE = "avx2 u2"
EAL = ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", 1500]


def name_of(size):
    return f"{size >> 20} MB" if size >> 20 else f"{size >> 10} KB"


def pictures(folder, speeds, sizes, hit_percents):
    folder.mkdir(parents=True, exist_ok=True)
    labels = {n: name_of(size) for n, size in enumerate(sizes)}
    by_size = lambda name: [(n, speeds[name][size, 0]) for n, size in enumerate(sizes)]
    shown = ["scalar", BASELINE, "avx512 u4", "chosen", "split-block", "sbbf-rs", "rte_member"]
    (folder / "bloom-size.svg").write_text(lines_svg(
        "Bloom filters, no key inside (figure 5)", "filter", "million keys a second",
        {name: by_size(name) for name in shown}, labels))
    unrolls = [1, 2, 4, 8]
    (folder / "bloom-unroll.svg").write_text(lines_svg(
        "Unrolling, AVX-512 with expand-load, no key inside (figure 6)", "partitions",
        "million keys a second",
        {name_of(size): [(n, speeds[f"avx512 u{u}"][size, 0]) for n, u in enumerate(unrolls)]
         for size in sizes}, dict(enumerate(unrolls))))
    (folder / "bloom-hits.svg").write_text(lines_svg(
        f"Keys that are inside, filter of {name_of(sizes[0])} (figure 7)", "percent inside",
        "million keys a second",
        {name: [(hits, speeds[name][sizes[0], hits]) for hits in hit_percents] for name in shown}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, metavar="SIZE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    need("rust", "dpdk")
    ours, peer = build_bench("bloom"), build_dpdk_peer("rte_member")
    found, rates = {}, {}
    for _ in range(options.rounds):
        for size in options.sizes:
            for line in json_lines(run(ours, size) + run(peer, *EAL, "--", size)):
                if "rate" in line:
                    rates.setdefault(line["filter"], {})[size] = line
                    continue
                of = found.setdefault(line["filter"], {})
                of.setdefault((size, line["hit_percent"]), []).append(line["keys_per_us"])
    speeds = {name: {at: statistics.median(all_) for at, all_ in of.items()}
              for name, of in found.items()}
    hit_percents = sorted({hits for _, hits in speeds[BASELINE]})
    if options.json:
        rows = [{"filter": name, "bytes": size, "hit_percent": hits, "keys_per_us": speed,
                 "to_baseline": speed / speeds[BASELINE][size, hits]}
                for name, of in speeds.items() for (size, hits), speed in of.items()]
        result = {"schema": "thalweg.bench.bloom/1", "processor": cpu_model(),
                  "rounds": options.rounds, "baseline": BASELINE, "rows": rows,
                  "rates": [line for of in rates.values() for line in of.values()]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.svg:
        pictures(options.svg, speeds, options.sizes, hit_percents)
    table(options, speeds, hit_percents)
    print("\nFalse positives, percent (theory in brackets)\n")
    print("| filter |" + "".join(f" {name_of(size)} |" for size in options.sizes))
    print("| --- |" + " --- |" * len(options.sizes))
    for name, of in rates.items():
        cells = (f" {100 * of[s]['rate']:.3f}" + (f" ({100 * of[s]['theory']:.3f})" if of[s].get("theory") else "")
                 for s in options.sizes)
        print(f"| {name} |" + " |".join(cells) + " |")


def table(options, speeds, hit_percents):
    print(f"{cpu_model()}; {options.rounds} interleaved rounds; million keys a second, and times "
          f"{BASELINE} of the same hits\n")
    print("| filter | hits |" + "".join(f" {name_of(size)} |" for size in options.sizes))
    print("| --- | --- |" + " --- |" * len(options.sizes))
    for name, of in speeds.items():
        for hits in hit_percents:
            cells = (f" {of[size, hits]:.0f} ({of[size, hits] / speeds[BASELINE][size, hits]:.2f})"
                     for size in options.sizes)
            print(f"| {name} | {hits} % |" + " |".join(cells) + " |")
    print("\nsplit-block over sbbf-rs: " + "; ".join(
        f"{name_of(size)} " + " ".join(
            f"{speeds['split-block'][size, hits] / speeds['sbbf-rs'][size, hits]:.2f}"
            for hits in hit_percents) for size in options.sizes))


if __name__ == "__main__":
    main()
