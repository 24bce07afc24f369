#!/usr/bin/env python3
"""How many packets a second pass a function on a device, by the way in which they reach it? And a chain?

    bench/gpu.py [--device opencl:0] [--rounds 5] [--seconds 0.5] [--functions all] [--rules FILE...] [--csv FILE]
    bench/gpu.py chain [--device opencl:0] [--rounds 5] [--seconds 2] [--program PROGRAM ...]

Ways: a kernel that stays and shared memory (`resident`), a launch for each batch in shared memory
(`shared`) or with copies to memory of the device and back (`copied`), with batches of 32 and of 1,024
packets; and the function's reference on a core of the processor (`scalar`). Functions: `reflect`, which
swaps two addresses, `esp`, which encrypts and authenticates (AES-128-CBC, HMAC-SHA1-96), and `esp opens`, the
reverse, both with AES by tables, and by planes of bits (`esp_sliced`); `literals`, which looks for the contents
of rules in payloads of UDP with random bytes, long ones in pieces, and `literals whole`, without pieces: those of
the rule files, or 1,000 that are made up; and `hop`, which looks up a destination among 100,000 routes of IPv4.
All ways are measured in turn, in each round; the table has medians. Launches have no pieces.

On PoCL, the device is one thread, so that each way has one core of the device and one of ours.
`thalweg devices` lists what the machine has.

`chain` runs a chain with an NF of kind `ipsec` that seals all packets of a capture in memory: on the processor,
and on the device while the NF prepares more packets (`overlapping`) or waits for each batch (`waiting`: the NF
is `pinned`). With several programs, such as one of an older version, it compares them.
"""

import argparse
import collections
import csv
import json
import os
import statistics
import subprocess
import sys

from common import HERE, THALWEG, cpu_model, need, run, work_folder

PROGRAM = HERE.parent / "target/release/thalweg-bench-gpu"
WAYS = ["resident", "shared 32", "copied 32", "shared 1024", "copied 1024", "scalar"]


def measure(options):
    """Packets a second by function, size and way: a list each."""
    environment = {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_WORK_GROUP_METHOD": "loops", **os.environ}
    arguments = [options.device, options.rounds, options.seconds, options.lanes, options.work_groups,
                 options.functions, *options.rules]
    output = subprocess.run([PROGRAM, *map(str, arguments)], env=environment, check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    rates = collections.defaultdict(list)
    for line in map(json.loads, output.splitlines()):
        key = line["function"], line["size"], line["way"]
        rates[key].append(line["packets"] / line["seconds"])
    return rates


CHAIN = """[run]
workers = {workers}
[input.in]
capture = "clear.pcap"
memory = true
loop = 0
[output.out]
discard = true
[nf.vpn]
kind = "ipsec"
{keys}
[[nf.vpn.sa]]
name = "a"
direction = "out"
spi = 4097
source = "192.0.2.1"
destination = "192.0.2.10"
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
mtu = 9000
[[nf.vpn.policy]]
match = "ip"
action = "protect"
sa = "a"
[[route]]
path = ["ingress", "vpn", "out"]
"""


def chain(options):
    """Packets a second of a chain, by size, place and program: a list each."""
    folder = work_folder() / "gpu"
    folder.mkdir(exist_ok=True)
    on_device = f'at = "{options.device}"\nwork_groups = {options.work_groups}\nfailed_after_ms = 30000'
    keys = {"processor": "", "overlapping": on_device, "waiting": f"{on_device}\npinned = true"}
    environment = {"POCL_MAX_PTHREAD_COUNT": str(options.work_groups), "POCL_WORK_GROUP_METHOD": "loops"}
    rates = collections.defaultdict(list)
    for size in [64, 512, 1472]:
        run(options.program[0], "gen", folder / "clear.pcap", "--seed", 1, "--packets", 20000, "--flows", 100,
            "--size", size)
        for _ in range(options.rounds):
            for place, more in keys.items():
                for program in options.program:
                    file = folder / "chain.toml"
                    file.write_text(CHAIN.format(workers=options.workers, keys=more))
                    report = json.loads(run(program, "run", file, "--json", "--duration", options.seconds,
                                            environment=environment))
                    assert report["conserved"] and not report["failures"], report
                    rates[size, place, program].append(report["packets_per_second"])
    return rates


def show_chain(rates):
    print("million packets a second")
    for (size, place, program), all_rates in rates.items():
        median, low, high = statistics.median(all_rates), min(all_rates), max(all_rates)
        print(f"{size:>5} {place:<12} {median / 1e6:8.3f}  ({low / 1e6:.3f} to {high / 1e6:.3f})  {program}")


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


def write(path, header, rates):
    """Writes all measurements, if there is a file for them."""
    if path:
        with open(path, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(header)
            table.writerows([*key, rate] for key, all_rates in rates.items() for rate in all_rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["functions", "chain"], default="functions")
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of each measurement; 0.5, or 2 of a chain")
    parser.add_argument("--lanes", type=int, default=32, help="work-items of a work-group")
    parser.add_argument("--work-groups", type=int, default=1)
    parser.add_argument("--functions", default="all", help="with commas between them")
    parser.add_argument("--rules", nargs="+", default=[], help="files for literals")
    parser.add_argument("--csv", help="write all measurements here")
    parser.add_argument("--workers", type=int, default=1, help="of a chain")
    parser.add_argument("--program", nargs="+", default=[THALWEG], help="that run a chain")
    options = parser.parse_args()
    options.seconds = options.seconds or (2 if options.what == "chain" else 0.5)
    if options.what == "chain":
        rates = chain(options)
        print(f"{cpu_model()}, device {options.device}, {options.workers} workers, {options.rounds} rounds")
        show_chain(rates)
        write(options.csv, ["size", "place", "program", "packets a second"], rates)
        return
    need("rust")
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", "thalweg-bench-gpu"], check=True,
                   cwd=HERE.parent)
    rates = measure(options)
    print(f"{cpu_model()}, device {options.device}, {options.rounds} rounds")
    show(rates)
    write(options.csv, ["function", "size", "way", "packets a second"], rates)


if __name__ == "__main__":
    sys.exit(main())
