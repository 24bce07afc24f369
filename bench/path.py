#!/usr/bin/env python3
"""Whole path per packet: cycles of `thalweg run` on one worker, from memory.

Runs several chains over the same traffic, interleaved, so that a noisy machine
disturbs all of them equally, and prints medians and ratios. Packets are replayed from
memory (receive is a copy into a frame) and discarded at the end.

    bench/path.py [--thalweg PROGRAM] [--rounds 9] [--json FILE]
"""

import argparse
import json
import statistics
from pathlib import Path

from common import HERE, THALWEG, cpu_model, measure, run, work_folder

PACKETS = 2_000_000


def make_traffic(program, folder, scenario):
    capture = folder / f"{scenario['traffic']}.pcap"
    if not capture.exists():
        run(program, "gen", *scenario["gen"], capture)
    return capture


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scenarios = json.loads((HERE / "path.json").read_text())
    folder = HERE / "chains"
    work = work_folder()

    chains = {}
    for scenario in scenarios:
        capture = make_traffic(options.thalweg, work, scenario)
        text = (folder / scenario["chain"]).read_text()
        # The chain's other files are named relative to its own folder.
        text = text.replace("@CAPTURE@", str(capture)).replace("@CHAINS@", str(folder))
        path = work / f"{scenario['name']}.toml"
        path.write_text(text)
        chains[scenario["name"]] = path

    cycles = {name: [] for name in chains}
    mpps = {name: [] for name in chains}
    for _ in range(options.rounds):
        for name, path in chains.items():
            report = measure(options.thalweg, path, PACKETS)
            cycles[name].append(report["cycles_per_packet"])
            mpps[name].append(report["packets_per_second"] / 1e6)

    base = scenarios[0]["name"]
    base_median = statistics.median(cycles[base])
    rows = []
    for scenario in scenarios:
        name = scenario["name"]
        values = sorted(cycles[name])
        median = statistics.median(values)
        rows.append({
            "chain": name,
            "what": scenario["what"],
            "cycles_per_packet": {"median": median, "least": values[0], "most": values[-1]},
            "million_packets_per_second": statistics.median(mpps[name]),
            f"ratio_to_{base}": median / base_median,
        })
    result = {
        "schema": "thalweg.bench.path/1",
        "processor": cpu_model(),
        "rounds": options.rounds,
        "packets_a_run": PACKETS,
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")

    print(f"{result['processor']}; {options.rounds} interleaved rounds of {PACKETS} packets, one worker")
    print()
    print(f"| chain | cycles a packet (least - most) | Mpps | times `{base}` |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        c = row["cycles_per_packet"]
        print(f"| {row['what']} | {c['median']:.0f} ({c['least']:.0f} - {c['most']:.0f}) "
              f"| {row['million_packets_per_second']:.2f} | {row[f'ratio_to_{base}']:.2f} |")


if __name__ == "__main__":
    main()
