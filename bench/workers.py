#!/usr/bin/env python3
"""What do more workers gain? Packets a second with several workers against one.

    bench/workers.py [--workers 2 4] [--rounds 5] [--capture FILE --rules FILE...]

Runs the chains of bench/path.json from capture files, and, given a capture and rules, `nids` with
those rules over that capture; with one worker and with several, interleaved. Prints the medians of
the ratios, and for each chain the share of its slowest stage, which bounds what workers can gain.
"""

import argparse
import json
import statistics
from pathlib import Path

from common import HERE, THALWEG, built, cpu_model, run, work_folder

PACKETS = 2_000_000


def nids(folder, capture, rules):
    """The chain of `nids` alone."""
    files = ", ".join(f'"{file.resolve()}"' for file in rules)
    path = folder / "workers-nids.toml"
    path.write_text(
        f'[[route]]\npath = ["ingress", "ids", "egress"]\n[input.in]\ncapture = "{capture.resolve()}"\n'
        f'[output.out]\ndiscard = true\n[nf.ids]\nkind = "nids"\nrules = [{files}]\n'
        f'alerts = "{folder}/workers-alerts.json"\nvariables = {{ EXTERNAL_NET = "any" }}\n')
    return path


def chains(program, folder):
    """The chains of bench/path.json, which read their capture again and again from its file."""
    for scenario in json.loads((HERE / "path.json").read_text()):
        capture = folder / f"{scenario['traffic']}.pcap"
        if not capture.exists():
            run(program, "gen", *scenario["gen"], capture)
        text = (HERE / "chains" / scenario["chain"]).read_text()
        text = text.replace("@CAPTURE@", str(capture)).replace("@CHAINS@", str(HERE / "chains"))
        path = folder / f"workers-{scenario['name']}.toml"
        path.write_text(text.replace("memory = true\n", ""))
        yield scenario["name"], path, ["--loop", "0", "--count", str(PACKETS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--capture", type=Path)
    parser.add_argument("--rules", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    program, folder = built(options.thalweg), work_folder()
    all_chains = list(chains(program, folder))
    if options.capture and options.rules:
        all_chains.append(("nids", nids(folder, options.capture, options.rules), []))
    counts = [1, *options.workers]
    print(f"{cpu_model()}; {options.rounds} interleaved rounds\n")
    print("| chain | Mpps with one worker | " + " | ".join(f"{n} workers" for n in options.workers)
          + " | cycles of the slowest NF, of all |")
    print("| --- " * (len(counts) + 2) + "|")
    for name, path, more in all_chains:
        rates, report = {n: [] for n in counts}, None
        for round_number in range(options.rounds):
            for n in counts if round_number % 2 == 0 else reversed(counts):
                report_n = json.loads(run(program, "run", path, "--json", "--quiet", "--workers", str(n), *more))
                rates[n].append(report_n["packets_per_second"])
                report = report_n if n == 1 else report
        ratios = [statistics.median(b / a for a, b in zip(rates[1], rates[n])) for n in options.workers]
        share = lambda nf: nf["cycles_per_packet"] * nf["packets"] / report["packets_in"]
        slowest = max(map(share, report["nfs"]), default=0)
        print(f"| {name} | {statistics.median(rates[1]) / 1e6:.2f} | "
              + " | ".join(f"{ratio:.2f}" for ratio in ratios)
              + f" | {slowest:.0f}, {report['cycles_per_packet']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
