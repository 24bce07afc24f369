#!/usr/bin/env python3
"""The whole path against Open vSwitch's userspace datapath, on the same captures.

    bench/ovs.py --peer FOLDER [--rounds 5] [--json FILE] [--svg FILE] [--only NAME]

FOLDER holds the programs that run the peer (build.sh, gen_all.sh, ovsbench.py),
built, in a writable place; the peer needs root and huge pages. Both
programs receive from memory, parse, classify, count and send nowhere, one after
the other on core 1, round by round. Open vSwitch's figure is the tenth percentile
of its slices of 1,024 packets with no miss among them; ours is the mean of the
run, misses included.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from common import THALWEG, built, cpu_model, lines_svg, measure, need, spread, work_folder

CORE = 1
# What lies in the peer's folder, and where it comes from.
PEER_FILES = {"ovsbench.py": "copy the programs that run the peer there",
              "replay/librte_net_replay.so": "run build.sh there, as root",
              "scn": "run gen_all.sh there"}
PACKETS = 40_000_000
# Name, settings of Open vSwitch's exact-match cache (the best of them counts), and
# the target ratio.
SUBTABLES = [(f"l2_s{n}_r2000", n, target) for n, target in
             [(1, 0.52), (5, 0.25), (10, None), (20, 0.155), (30, 0.155), (59, 0.155)]]
FLOWS = [(f"emc_{name}", name, target) for name, target in
         [("1", 0.71), ("1k", 0.67), ("10k", 0.51), ("100k", 0.50), ("1m", 0.59)]]


def flows(peer, name, work):
    """The scenario's rules in one table. The peer's first table only sends each
    source network to a table of its own, whose rules name that network again."""
    path = work / f"{name}.flows"
    with path.open("w") as out:
        for line in (peer / "scn" / name / "rules.of").read_text().splitlines():
            if "goto_table" not in line:
                match = re.sub(r"^table=\d+,", "", line).replace(",actions=output:2", "")
                out.write(match.replace("in_port=1", "in_port=replay") + "\n")
    return path


def chain(peer, name, work, emc_entries):
    (work / "routes.csv").write_text("*, ingress, egress\n")
    path = work / f"{name}-{emc_entries}.toml"
    path.write_text(f"""routes = "routes.csv"
[classify]
emc_entries = {emc_entries}
[[class]]
type = "matched"
file = "{flows(peer, name, work).name}"
[input.replay]
capture = "{peer / 'scn' / name / 'traffic.pcap'}"
memory = true
loop = 0
[output.out]
discard = true
""")
    return path


def open_vswitch(peer, name, cache, work):
    """Cycles a packet of Debian's Open vSwitch, by setting of its cache."""
    out = work / "ovs.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, "ovsbench.py", name, "--bin", "debian", "--emc", cache,
               "--reps", "1", "--windows", "3", "--out", str(out)]
    done = subprocess.run(command, cwd=peer, capture_output=True, text=True)
    if done.returncode != 0 or not out.exists():
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {row["emc"]: (row["cpp_median"], row["lookups"]) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--thalweg", type=Path, default=THALWEG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="run only this scenario, such as l2_s20_r2000 (repeatable)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    peer, work = options.peer.resolve(), work_folder()
    for path, maker in PEER_FILES.items():
        if not (peer / path).exists():
            sys.exit(f"{options.peer}: no {path}; {maker}")
    need("ovs")
    built(options.thalweg)
    scenarios = [(*s, "0", 0) for s in SUBTABLES] + [(*s, "0,1,100", 8192) for s in FLOWS]
    scenarios = [s for s in scenarios if not options.only or s[0] in options.only]
    ours = {name: [] for name, *_ in scenarios}
    theirs = {name: {} for name, *_ in scenarios}
    lookups, subtables = {}, {}
    for round_number in range(options.rounds):
        for name, _, _, cache, emc_entries in scenarios:
            print(f"round {round_number + 1} of {options.rounds}: {name}", file=sys.stderr)
            for setting, (cycles, n) in open_vswitch(peer, name, cache, work).items():
                theirs[name].setdefault(setting, []).append(cycles)
                lookups[name] = n
            report = measure(options.thalweg, chain(peer, name, work, emc_entries), PACKETS, CORE)
            ours[name].append(report["cycles_per_packet"])
            subtables[name] = report["classification"]["subtables"]
            isa = report["isa"]

    rows = []
    for name, label, target, *_ in scenarios:
        best = min((spread(values) | {"emc": setting} for setting, values in theirs[name].items()),
                   key=lambda s: s["median"])
        mine = spread(ours[name])
        rows.append({"scenario": name, "of": label, "ours": mine, "open_vswitch": best,
                     "ratio": mine["median"] / best["median"], "target": target,
                     "open_vswitch_lookups": lookups[name], "our_subtables": subtables[name]})
    result = {"schema": "thalweg.bench.ovs/1", "processor": cpu_model(), "isa": isa,
              "rounds": options.rounds, "packets_a_run": PACKETS, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.svg:
        of = [r for r in rows if r["scenario"].startswith("l2_")]
        series = {"Thalweg": [(r["of"], r["ours"]["median"]) for r in of],
                  "Open vSwitch": [(r["of"], r["open_vswitch"]["median"]) for r in of]}
        title = "Whole path by number of subtables, 2,000 rules each"
        options.svg.write_text(lines_svg(title, "subtables", "cycles a packet", series))
    print(f"{result['processor']}, {isa}; {options.rounds} interleaved rounds, core {CORE}\n")
    print("| scenario | ours (least - most) | Open vSwitch (least - most) | ratio | target |")
    print("| --- | --- | --- | --- | --- |")
    for r in rows:
        o, t = r["ours"], r["open_vswitch"]
        print(f"| {r['scenario']} | {o['median']:.0f} ({o['least']:.0f} - {o['most']:.0f}) "
              f"| {t['median']:.0f} ({t['least']:.0f} - {t['most']:.0f}) | {r['ratio']:.3f} "
              f"| {r['target'] or ''} |")


if __name__ == "__main__":
    main()
