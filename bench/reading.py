#!/usr/bin/env python3
"""What does reading a capture cost by itself, and which part of it can several workers do at once?

    bench/reading.py CAPTURE [--rounds 40]

Builds bench/reading, which reads the capture on one thread: as a run with one worker receives it, as one with
several workers claims it, and as an input with `zero_copy` receives it. Prints for each the cycles a packet of each
part; the cost of each burst of 128 packets is the least over the rounds.
"""

import argparse
from pathlib import Path

from common import build_bench, cpu_model, json_lines, need, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    need("rust")
    program = build_bench("reading")
    ways = json_lines(run(program, options.capture, options.rounds))
    print(f"{cpu_model()}; {ways[0]['packets']} packets, {options.rounds} rounds; cycles a packet\n")
    print("| way | in the input, one worker at a time | copy | read ahead | all |")
    print("| --- | --- | --- | --- | --- |")
    for costs in ways:
        parts = [costs["input"], costs["copy"], costs["read"]]
        print(f"| {costs['way']} | " + " | ".join(f"{cycles:.0f}" for cycles in [*parts, sum(parts)]) + " |")


if __name__ == "__main__":
    main()
