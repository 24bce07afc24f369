#!/usr/bin/env python3
"""The flow register against the exact-match cache always on and always off.

    bench/emc.py [--rounds 7] [--json FILE]

For several mixes of flows and masks: no mix may be more than 5 % slower with the
flow register than with the better of both.
"""

import argparse
import json
from pathlib import Path

from common import THALWEG, cpu_model, measure, run, spread, work_folder

PACKETS = 40_000_000
# Flows, masks, skew of the flows' popularity.
MIXES = [(100, 1, None), (1_000, 1, None), (1_000, 20, None), (10_000, 1, None), (10_000, 20, None),
         (100_000, 10, None), (1_000_000, 10, None), (1_000_000, 20, 1.1)]
WAYS = {
    "off": "emc_entries = 0",
    "on": "emc_adaptive = false\nemc_insert_inverse_probability = 1",
    "register": "emc_adaptive = true",
}


def chain(program, mix, way, work):
    flows, masks, zipf = mix
    capture = work / f"emc-{flows}-{masks}-{zipf}.pcap"
    if not capture.exists():
        skew = ["--zipf", zipf] if zipf else []
        servers = [a for m in range(masks) for a in ("--servers", f"198.18.{m}.0/24")]
        run(program, "gen", "--flows", flows, "--packets", max(200_000, 2 * flows), "--size", 64,
            "--icmp", 0, "--clients", "10.0.0.0/16", *servers, *skew, capture)
    (work / "routes.csv").write_text("*, ingress, egress\n")
    rule = lambda m: (f"    'ip,{'' if m < 16 else 'dl_vlan=0xffff,'}nw_src=10.0.0.0/{m % 16 + 1},"
                      f"nw_dst=198.18.{m}.0/24',\n")
    path = work / f"{capture.stem}-{way}.toml"
    path.write_text(f"""routes = "routes.csv"
[classify]
{WAYS[way]}
[[class]]
type = "matched"
rules = [
{''.join(map(rule, range(masks)))}]
[input.replay]
capture = "{capture.name}"
memory = true
loop = 0
[output.out]
discard = true
""")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", type=Path, default=THALWEG)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    work = work_folder()
    cycles = {}
    for _ in range(options.rounds):
        for mix in MIXES:
            for way in WAYS:
                path = chain(options.thalweg, mix, way, work)
                report = measure(options.thalweg, path, PACKETS)
                cycles.setdefault((mix, way), []).append(report["cycles_per_packet"])
    rows = []
    for mix in MIXES:
        ways = {way: spread(cycles[mix, way]) for way in WAYS}
        better = min(ways["on"]["median"], ways["off"]["median"])
        rows.append({"flows": mix[0], "masks": mix[1], "zipf": mix[2], **ways,
                     "ratio_to_the_better": ways["register"]["median"] / better})
    result = {"schema": "thalweg.bench.emc/1", "processor": cpu_model(), "rounds": options.rounds,
              "packets_a_run": PACKETS, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['processor']}; {options.rounds} interleaved rounds of {PACKETS} packets\n")
    print("| flows | masks | cache off | cache on | flow register | to the better |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        hot = f", Zipf {r['zipf']}" if r["zipf"] else ""
        print(f"| {r['flows']}{hot} | {r['masks']} | {r['off']['median']:.0f} | {r['on']['median']:.0f} "
              f"| {r['register']['median']:.0f} | {r['ratio_to_the_better']:.2f} |")


if __name__ == "__main__":
    main()
