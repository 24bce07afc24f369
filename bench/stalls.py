#!/usr/bin/env python3
"""How long does a batch of packets hold up the next one, under hostile traffic?

    bench/stalls.py [--seconds 120] [--rounds 2] [--kinds monitor nids ...] [--json FILE]

Sends generated attacks (`thalweg gen --hostile`) through chains of one NF each, one after the other,
each NF with the limits that are its defaults, and prints the processor time of the worker's thread
from the start of each batch to that of the next (`thalweg run --stages`). Interrupts, and on a shared
machine the other guests, lengthen batches at random, while what the program does recurs, as the traffic
is the same: so the least of the rounds counts, by percentile. The chain without an NF shows what is left
of that, and what the generator takes.
"""

import argparse
import json
from pathlib import Path

from common import THALWEG, built, cpu_model, run, work_folder
from soak import KINDS, chain

# Microseconds that 99.99 % of the batches, and all of them, may take.
BARS = {"p9999": 500, "max": 1000}
SHOWN = {"p50": "median", "p99": "99 %", "p999": "99.9 %", "p9999": "99.99 %", "max": "longest"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["empty", *KINDS], choices=["empty", *KINDS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program, work = built(options.thalweg), work_folder()
    print(f"{cpu_model()}; the least of {options.rounds} rounds of {options.seconds:g} seconds; "
          "microseconds of processor time a batch\n")
    print("| NF | batches | " + " | ".join(SHOWN.values()) + " | |\n" + "| --- " * (len(SHOWN) + 3) + "|")
    rows = []
    for kind in options.kinds:
        path = chain(kind, work, hostile=1.0, limited=False)
        command = ["run", path, "--stages", "--json", "--quiet", "--duration", f"{options.seconds}s"]
        rounds = [json.loads(run(program, *command))["batch_cpu_ns"] for _ in range(options.rounds)]
        times = {name: min(times[name] for times in rounds) for name in rounds[0]}
        holds = all(times[name] <= bar * 1000 for name, bar in BARS.items())
        shown = " | ".join(f"{times[name] / 1000:.0f}" for name in SHOWN)
        print(f"| {kind} | {times['batches'] / 1e6:.2f}M | {shown} | {'fine' if holds else 'NOT FINE'} |", flush=True)
        rows.append({"kind": kind, **times, "fine": holds})
    if options.json:
        result = {"schema": "thalweg.bench.stalls/1", "seconds": options.seconds, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
