#!/usr/bin/env python3
"""The simulator's predictions for this machine, next to the measured times of lookups.

    bench/calibrate.py [--core bench/machines/zen5.toml] [--rounds 3] [--thalweg PROGRAM]
                       [--json FILE] [BITS...]

Calibrates clock and caches by a pointer chase (`thalweg sim calibrate`), measures DPDK's
rte_hash (bench/peers/rte_lookup.c, which needs libdpdk-dev) one by one, dependent and in
bulk, and our own cuckoo table (`thalweg sim predict`) one by one, dependent and in steps of
32, round by round, and simulates the same. The simulator knows nothing else of the
machine but the chase and the sizes of its queues in the file of `--core`. The least time counts:
other load on the machine only makes times longer.
"""

import argparse
import json
from pathlib import Path

from common import THALWEG, build_dpdk_peer, cpu_model, huge_pages, json_lines, need, run, work_folder

# The most entries of DPDK's tables.
MEMORY_MB = 2000


def predicted(program, host, entries, stream):
    """Nanoseconds of a lookup on the machine of `host`."""
    method, stream = ("bulk", "independent") if stream == "bulk" else ("lock-free", stream)
    report = json.loads(run(program, "sim", "run", host, "--json", "--method", method,
                            "--set", f"workload.entries={entries}",
                            "--set", f"workload.stream={stream}"))[0]
    return report["cycles"]["mean"] / report["config"]["core"]["ghz"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bits", nargs="*", type=int, default=[6, 10, 14, 17, 20], metavar="BITS")
    parser.add_argument("--core", type=Path, help="the documented parameters of the core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--thalweg", type=Path, default=THALWEG)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need("dpdk")
    host, peer = work_folder() / "host.toml", build_dpdk_peer("rte_lookup")
    on_huge_pages, pages = huge_pages(MEMORY_MB)
    eal = [pages, "--no-shconf", "--no-pci", "--no-telemetry", "-m", MEMORY_MB]
    base = [options.core] if options.core else []
    run(options.thalweg, "--quiet", "sim", "calibrate", *base, "--out", host, core=0)
    least, own = {}, {}
    for _ in range(options.rounds):
        for line in json_lines(run(peer, *eal, "--", *options.bits, core=0)):
            at = (line["entries"], line["stream"])
            least[at] = min(least.get(at, line["ns"]), line["ns"])
        for row in json.loads(run(options.thalweg, "sim", "predict", host, "--json", "--places",
                                  ",".join(map(str, options.bits)), core=0))["rows"]:
            before = own.setdefault((row["places"], row["lookups"]), row)
            before["measured_ns"] = min(before["measured_ns"], row["measured_ns"])
    rows = [{"table": "rte_hash", "entries": entries, "lookups": stream, "measured_ns": ns,
             "predicted_ns": predicted(options.thalweg, host, entries, stream)}
            for (entries, stream), ns in least.items()]
    rows += [{"table": "ours", "entries": entries, "lookups": lookups,
              "measured_ns": row["measured_ns"], "predicted_ns": row["predicted_ns"]}
             for (entries, lookups), row in own.items()]
    result = {"schema": "thalweg.bench.calibrate/2", "processor": cpu_model(),
              "rounds": options.rounds, "huge_pages_for_dpdk": on_huge_pages,
              "machine": host.read_text(), "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['processor']}; {options.rounds} rounds; ns a lookup; DPDK on "
          f"{'huge' if on_huge_pages else 'ordinary'} pages\n")
    print("| table | places | lookups | measured | predicted | off |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        off = r["predicted_ns"] / r["measured_ns"] - 1
        print(f"| {r['table']} | 2^{r['entries'].bit_length() - 1} | {r['lookups']} "
              f"| {r['measured_ns']:.1f} | {r['predicted_ns']:.1f} | {off:+.0%} |")


if __name__ == "__main__":
    main()
