#!/usr/bin/env python3
"""How many packets a second pass a function on a device, by the way in which they reach it? And a chain?

    bench/gpu.py [--device opencl:0] [--rounds 5] [--seconds 0.5] [--functions NAME...] [--rules FILE...] [--csv FILE]
    bench/gpu.py chain [--device opencl:0] [--nf vpn] [--rounds 5] [--seconds 2] [--program PROGRAM ...]
    bench/gpu.py figures --out FOLDER [--device opencl:0] [--rounds 3] [--seconds 0.5] [--only 3 overhead ...] [--quick]

Ways: a kernel that stays and shared memory (`resident`), a launch for each batch in shared memory
(`shared`) or with copies to memory of the device and back (`copied`), with batches of 32 and of 1,024
packets; and the function's reference on a core of the processor (`scalar`). Functions: `reflect`, which
swaps two addresses, `esp`, which encrypts and authenticates (AES-128-CBC, HMAC-SHA1-96), and `esp opens`, the
reverse, both with AES by tables, and by planes of bits (`esp_sliced`); `literals`, which looks for the contents
of rules in payloads of UDP with random bytes, long ones in pieces, and `literals whole`, without pieces: those of
the rule files, or 1,000 that are made up; and `hop`, which looks up a destination among 100,000 routes of IPv4.
All ways are measured in turn, in each round; the table has medians. Launches have no pieces.

On PoCL, the device is one thread, so that each way has one core of the device and one of ours. `--device cuda:0`
has no launches, and OpenCL devices that run no kernels that stay have launches with copies only.
`thalweg devices` lists what the machine has.

`chain` runs a chain with an NF of kind `ipsec` that seals all packets of a capture in memory (`--nf ids`, `edge`: one
of kind `nids`, `router`): on the processor, and on the device while the NF prepares more packets (`overlapping`) or
waits for each batch (`waiting`: the NF is `pinned`); and on the device in launches of both forms. With several programs, such as one of an older version, it compares them.

`figures` draws what figures 3 to 8 of the Hummingbird paper show, on the device at hand, and the overhead of
the syncers: an SVG and a CSV each, with the paper's values where they are known, and tables on the terminal.
docs/gpu-figures.md describes them. Points are medians of interleaved rounds, with the least and the most.
"""

import argparse
import collections
import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import gpu_chains
import gpu_figures
import gpu_ways
from common import THALWEG, built, cpu_model, need, run
from gpu_ways import FUNCTIONS, OTHERS, WAYS

FIGURES = ["3", "4", "5", "6", "7", "8", "overhead"]
# The Python of scripts/setup.sh for packages from PyPI.
TOOLS = Path.home() / ".cache/thalweg/tools/bin/python3"


def chain(options):
    """Packets a second of a chain, by size, place and program: a list each."""
    gpu_chains.prepare()
    groups = options.work_groups
    places = {"processor": (0, "", "never"), "overlapping": (groups, "", "never"),
              "waiting": (groups, "pinned = true", "never")}
    if options.device.startswith("opencl:"):
        places |= {"launches over shared memory": (groups, "", "shared"),
                   "launches with copies": (groups, "", "copied")}
    rates = collections.defaultdict(list)
    for size in [64, 512, 1472]:
        gpu_chains.generate(options.program[0], size)
        for _ in range(options.rounds):
            for place, (work_groups, more, launches) in places.items():
                for program in options.program:
                    file = gpu_chains.write(options, {options.nf: work_groups}, workers=options.workers, more=more,
                                            launches=launches)
                    one = argparse.Namespace(**{**vars(options), "program": [program]})
                    rates[size, place, program].append(gpu_chains.measure(one, file, options.work_groups)["rate"])
    return rates


def show_chain(rates):
    print("million packets a second")
    for (size, place, program), all_rates in rates.items():
        median, low, high = statistics.median(all_rates), min(all_rates), max(all_rates)
        print(f"{size:>5} {place:<27} {median / 1e6:8.3f}  ({low / 1e6:.3f} to {high / 1e6:.3f})  {program}")


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


def machine(options):
    """The device, the processor and the versions, in words."""
    devices = json.loads(run(options.program[0], "devices", "--json"))
    found = [device for device in devices["devices"] if device["place"] == options.device]
    if not found or found[0]["can"] != "resident-kernels":
        why = devices.get("without_opencl") or "thalweg devices lists what there is"
        sys.exit(f"no device {options.device} with resident kernels: {why}")
    options.kind = found[0]["kind"]
    version = run(options.program[0], "--version").strip()
    return (f"{options.device}: {found[0]['name']}, {found[0]['platform']}, {found[0]['version']}; "
            f"{cpu_model()}, {os.cpu_count()} processors; {version}; {options.rounds} rounds")


def python_with_matplotlib():
    """A Python that can draw; installs what it lacks."""
    need("matplotlib")
    for python in [sys.executable, "/usr/bin/python3", TOOLS]:
        try:
            subprocess.run([python, "-c", "import matplotlib"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    sys.exit("no Python here has matplotlib")


def write_points(figure, path):
    """Writes all points of a figure."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["panel", "series", "x", "unit", "median", "least", "most", "paper"])
        for panel in figure["panels"]:
            for name, points in panel["series"].items():
                for x, *values in points:
                    table.writerow([panel["title"], name, x, panel["y"], *(f"{value:.6g}" for value in values),
                                    figure["paper"]])


def show_figure(figure):
    print(f"\n{figure['name']}: {figure['title']}\nthe paper: {figure['paper']}")
    for panel in figure["panels"]:
        print(f"\n  {panel['title']}: {panel['y']}, median (least to most), by {panel['x']}")
        for name, points in panel["series"].items():
            print(f"    {name}")
            for x, median, least, most in points:
                print(f"      {x:<20} {median:10.4g}  ({least:.4g} to {most:.4g})")
    for note in figure["notes"]:
        print(f"  {note}")


def figures(options):
    built(options.program[0])
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.2)
    python = python_with_matplotlib()
    options.out.mkdir(parents=True, exist_ok=True)
    about = machine(options)
    print(about)
    (options.out / "machine.txt").write_text(about + "\n")
    all_figures = gpu_figures.all_of(options)
    for figure in all_figures:
        write_points(figure, options.out / f"{figure['name']}.csv")
        show_figure(figure)
    points = options.out / "points.json"
    points.write_text(json.dumps({"machine": about, "figures": all_figures}))
    subprocess.run([python, Path(__file__).with_name("gpu_draw.py"), points, options.out], check=True)
    points.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["functions", "chain", "figures"], default="functions")
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--rounds", type=int, help="5, or 3 of figures")
    parser.add_argument("--seconds", type=float, help="of each measurement; 0.5, or 2 of a chain")
    parser.add_argument("--lanes", type=int, default=32, help="work-items of a work-group")
    parser.add_argument("--work-groups", type=int, default=1)
    parser.add_argument("--functions", nargs="+", default=FUNCTIONS + OTHERS, choices=FUNCTIONS + OTHERS)
    parser.add_argument("--rules", nargs="+", type=Path, default=[], help="files for literals and nids")
    parser.add_argument("--csv", help="write all measurements here")
    parser.add_argument("--workers", type=int, default=1, help="of a chain")
    parser.add_argument("--nf", choices=["vpn", "ids", "edge"], default="vpn", help="of a chain")
    parser.add_argument("--program", nargs="+", default=[THALWEG], help="that run a chain")
    parser.add_argument("--out", type=Path, help="folder of figures")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES, help="these figures")
    parser.add_argument("--quick", action="store_true", help="one short round, to try figures out")
    options = parser.parse_args()
    options.rules = [rules.resolve() for rules in options.rules]
    options.seconds = options.seconds or (2 if options.what == "chain" else 0.5)
    options.rounds = options.rounds or (3 if options.what == "figures" else 5)
    if options.what == "figures":
        if options.out is None:
            parser.error("figures need --out FOLDER")
        return figures(options)
    if options.what == "chain":
        rates = chain(options)
        print(f"{cpu_model()}, device {options.device}, {options.workers} workers, {options.rounds} rounds")
        show_chain(rates)
        return write(options.csv, ["size", "place", "program", "packets a second"], rates)
    gpu_ways.build()
    times = gpu_ways.measure(options, functions=options.functions, work_groups=options.work_groups)
    rates = {key: [1 / seconds for seconds in values] for key, values in times.items()}
    print(f"{cpu_model()}, device {options.device}, {options.rounds} rounds")
    show(rates)
    write(options.csv, ["function", "size", "way", "packets a second"], rates)


if __name__ == "__main__":
    sys.exit(main())
