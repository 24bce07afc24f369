#!/usr/bin/env python3
"""How many packets a second pass a function on a device, by the way in which they reach it?

    bench/gpu.py [--device opencl:0] [--rounds 5] [--seconds 0.5] [--rules FILE...] [--csv FILE]

Ways: a kernel that stays and shared memory (`resident`), a launch for each batch in shared memory
(`shared`) or with copies to memory of the device and back (`copied`), with batches of 32 and of 1,024
packets; and the function's reference on a core of the processor (`scalar`). Functions: `reflect`, which
swaps two addresses, `esp`, which encrypts and authenticates (AES-128-CBC, HMAC-SHA1-96), and `literals`, which
looks for the contents of rules in payloads of UDP with random bytes: those of the rule files, or 1,000 that are
made up; and `hop`, which looks up a destination among 100,000 routes of IPv4. All ways are measured in turn, in each round; the table has medians.

On PoCL, the device is one thread, so that each way has one core of the device and one of ours.
`thalweg devices` lists what the machine has.
"""

import argparse
import collections
import csv
import json
import os
import statistics
import subprocess
import sys

from common import HERE, cpu_model, need

PROGRAM = HERE.parent / "target/release/thalweg-bench-gpu"
WAYS = ["resident", "shared 32", "copied 32", "shared 1024", "copied 1024", "scalar"]


def measure(options):
    """Packets a second by function, size and way: a list each."""
    environment = {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_WORK_GROUP_METHOD": "loops", **os.environ}
    arguments = [options.device, options.rounds, options.seconds, options.lanes, options.work_groups,
                 *options.rules]
    output = subprocess.run([PROGRAM, *map(str, arguments)], env=environment, check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    rates = collections.defaultdict(list)
    for line in map(json.loads, output.splitlines()):
        key = line["function"], line["size"], line["way"]
        rates[key].append(line["packets"] / line["seconds"])
    return rates


def show(rates):
    for function in dict.fromkeys(function for function, _, _ in rates):
        print(f"\n{function}: million packets a second; resident against a launch with copies of 32 and of 1,024")
        print(f"{'size':>5}" + "".join(f"{way:>13}" for way in WAYS) + f"{'x 32':>8}{'x 1024':>8}")
        for size in sorted({size for name, size, _ in rates if name == function}):
            median = {way: statistics.median(rates[function, size, way]) for way in WAYS
                      if (function, size, way) in rates}
            cells = "".join(f"{median[way] / 1e6:13.3f}" if way in median else f"{'-':>13}" for way in WAYS)
            ratios = "".join(f"{median['resident'] / median[way]:8.2f}" if way in median else f"{'-':>8}"
                             for way in ["copied 32", "copied 1024"])
            print(f"{size:>5}{cells}{ratios}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--lanes", type=int, default=32, help="work-items of a work-group")
    parser.add_argument("--work-groups", type=int, default=1)
    parser.add_argument("--rules", nargs="+", default=[], help="files for literals")
    parser.add_argument("--csv", help="write all measurements here")
    options = parser.parse_args()
    need("rust")
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", "thalweg-bench-gpu"], check=True,
                   cwd=HERE.parent)
    rates = measure(options)
    print(f"{cpu_model()}, device {options.device}, {options.rounds} rounds")
    show(rates)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["function", "size", "way", "packets a second"])
            table.writerows([*key, rate] for key, all_rates in rates.items() for rate in all_rates)


if __name__ == "__main__":
    sys.exit(main())
