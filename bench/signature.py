#!/usr/bin/env python3
"""The signatures of a batch under one mask, by level of instructions.

    bench/signature.py [--rounds 5] [--json FILE] [--svg FILE]

Runs bench/signature round by round: NH of the five-tuple of 1 to 32
packets, on the transposed batch. The picture is after figure 8 of Li, Han and Han
(APNet 2020). With fewer than three packets all levels hash one by one.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import build_bench, cpu_model, json_lines, lines_svg, need, run

SHOWN = [1, 2, 3, 4, 8, 16, 24, 32]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    need("rust")
    program = build_bench("signature")
    cycles, halves = {}, 0
    for _ in range(options.rounds):
        for line in json_lines(run(program)):
            cycles.setdefault((line["isa"], line["packets"]), []).append(line["cycles"])
            halves = line["halves"]
    median = {key: statistics.median(values) for key, values in cycles.items()}
    levels = list(dict.fromkeys(isa for isa, _ in median))
    result = {"schema": "thalweg.bench.signature/1", "processor": cpu_model(),
              "rounds": options.rounds, "halves": halves,
              "rows": [{"isa": isa, "packets": packets, "cycles": value}
                       for (isa, packets), value in median.items()]}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.svg:
        series = {isa: [(n, median[isa, n]) for n in range(1, 33)] for isa in levels}
        labels = {n: n if n in SHOWN else "" for n in range(1, 33)}
        options.svg.write_text(lines_svg("Signatures of a batch under one mask (figure 8)",
                                         "packets", "cycles a batch", series, labels))
    print(f"{result['processor']}; {options.rounds} rounds; {halves} halves of words; "
          "cycles a batch\n")
    print(f"| packets | {' | '.join(map(str, SHOWN))} |")
    print("| --- " * (len(SHOWN) + 1) + "|")
    for isa in levels:
        print(f"| {isa} | {' | '.join(f'{median[isa, n]:.0f}' for n in SHOWN)} |")


if __name__ == "__main__":
    main()
