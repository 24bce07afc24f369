#!/usr/bin/env python3
"""The lookups that the simulator simulates in a second, on one core.

    bench/sim.py [--rounds 3] [--thalweg PROGRAM] [--json FILE]

Runs `thalweg sim run` by each method twice, with few and with many lookups, and takes
the difference, so that filling tables and caches does not count. 2^17 places, 75 % full.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from common import THALWEG, cpu_model, run

METHODS = ["lock-free", "bulk", "halo-blocking", "halo-non-blocking", "tcam"]
FEW, MANY = 100_000, 1_100_000


def seconds(program, method, lookups):
    start = time.perf_counter()
    report = json.loads(run(program, "sim", "run", "--json", "--method", method, "--set",
                            f"sim.measured_lookups={lookups}", core=0))[0]
    # A run whose interval was too wide has more lookups.
    return time.perf_counter() - start, report["lookups"], report["per_lookup"]["operations"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--thalweg", type=Path, default=THALWEG)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates, operations = {}, {}
    for _ in range(options.rounds):
        for method in METHODS:
            few, fewer, _ = seconds(options.thalweg, method, FEW)
            many, more, operations[method] = seconds(options.thalweg, method, MANY)
            rates.setdefault(method, []).append((more - fewer) / (many - few))
    rows = [{"method": m, "lookups_a_second": statistics.median(rates[m]),
             "operations_a_lookup": operations[m]} for m in METHODS]
    result = {"schema": "thalweg.bench.sim/1", "processor": cpu_model(),
              "rounds": options.rounds, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['processor']}; {options.rounds} rounds\n")
    print("| method | thousand lookups a second | million operations a second |")
    print("| --- | --- | --- |")
    for r in rows:
        rate = r["lookups_a_second"]
        print(f"| {r['method']} | {rate / 1e3:.0f} | {rate * r['operations_a_lookup'] / 1e6:.1f} |")


if __name__ == "__main__":
    main()
