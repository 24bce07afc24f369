#!/usr/bin/env python3
"""How long does a batch of packets hold up the next one, under hostile traffic?

    bench/stalls.py [--seconds 120] [--rounds 2] [--kinds monitor nids ...] [--json FILE]

Sends generated attacks (`thalweg gen --hostile`) through chains of one NF each, one after the other,
each NF with the limits that are its defaults, and prints the processor time of the worker's thread
from the start of each batch to that of the next (`thalweg run --stages`): of each percentile the least
of all rounds. The chain without an NF shows what the generator takes.

Interrupts, and on a shared machine the other guests, lengthen batches at random, while what the program
does recurs, as the traffic and the seeds of the tables are the same. So the last columns are about the
least time of each batch in all rounds. Of batches that are not among the slowest of each round, only the
most that it may be is known.
"""

import argparse
import json
from pathlib import Path

from common import THALWEG, built, cpu_model, run, work_folder
from soak import KINDS, chain

# Microseconds that 99.99 % of the batches, and all of them, may take.
BARS = {"p9999": 500, "max": 1000}
SHOWN = {"p50": "median", "p99": "99 %", "p999": "99.9 %", "p9999": "99.99 %", "max": "longest"}

# Of the tables, so that they grow with the same packets.
SEED = {"THALWEG_TABLE_SEED": "1"}


def recurring(rounds):
    """99.99 % and the longest of the least times of the batches, which is at most the least time that each
    round knows where it does not know them."""
    count = min(times["batches"] for times in rounds)
    known = [{slow["batch"]: slow["cpu_ns"] for slow in times["slowest"]} for times in rounds]
    most = max(min(times.values()) for times in known)
    least = [min(times[batch] for times in known) for batch in set.intersection(*map(set, known))]
    least = sorted((time for time in least if time > most), reverse=True)
    above = least[count // 10_000:] or [most]
    # What recurs is no more than what one round saw.
    p9999 = min(above[0], *(times["p9999"] for times in rounds))
    return {"p9999": p9999, "max": (least or [most])[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["empty", *KINDS], choices=["empty", *KINDS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program, work = built(options.thalweg), work_folder()
    print(f"{cpu_model()}; {options.rounds} rounds of {options.seconds:g} seconds; "
          "microseconds of processor time a batch\n")
    heads = ["NF", "batches", *SHOWN.values(), "99.99 % recurring", "longest recurring", ""]
    print(f"| {' | '.join(heads)} |\n" + "| --- " * len(heads) + "|")
    rows = []
    for kind in options.kinds:
        path = chain(kind, work, hostile=1.0, limited=False)
        command = ["run", path, "--stages", "--json", "--quiet", "--duration", f"{options.seconds}s"]
        rounds = [json.loads(run(program, *command, environment=SEED))["batch_cpu_ns"]
                  for _ in range(options.rounds)]
        times = {name: min(times[name] for times in rounds) for name in ["batches", *SHOWN]}
        recur = recurring(rounds)
        holds = all(recur[name] <= bar * 1000 for name, bar in BARS.items())
        shown = [f"{time / 1000:.0f}" for time in [*(times[name] for name in SHOWN), *recur.values()]]
        cells = [kind, f"{times['batches'] / 1e6:.2f}M", *shown, "fine" if holds else "NOT FINE"]
        print(f"| {' | '.join(cells)} |", flush=True)
        rows.append({"kind": kind, **times, "recurring": recur, "fine": holds})
    if options.json:
        result = {"schema": "thalweg.bench.stalls/2", "seconds": options.seconds, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
