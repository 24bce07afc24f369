#!/usr/bin/env python3
"""Compares the alerts of `nids` with Suricata's, by rule and flow, over one capture.

    bench/suricata.py CAPTURE RULES... [--thalweg PROGRAM] [--external any] [--rounds 5]

Both inspect the capture with the same rules on one thread. A flow is the two end points in either
order, and the protocol. Prints each difference (rule, flow, alerts on each side), and the CPU time
of both, with --rounds in interleaved rounds and without what they take for a capture of one packet:
loading the rules. Exit status 1 if there is a difference. Needs Suricata 7 (`suricata`).

Rules that ours skips as unsupported are left out of both sets.
"""

import argparse
import collections
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import THALWEG, write_capture

YAML = """%YAML 1.1
---
vars:
  address-groups: {{HOME_NET: "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]", EXTERNAL_NET: "{external}",
    HTTP_SERVERS: "$HOME_NET", SMTP_SERVERS: "$HOME_NET", SQL_SERVERS: "$HOME_NET",
    DNS_SERVERS: "$HOME_NET", TELNET_SERVERS: "$HOME_NET", AIM_SERVERS: "$EXTERNAL_NET",
    DC_SERVERS: "$HOME_NET", DNP3_SERVER: "$HOME_NET", DNP3_CLIENT: "$HOME_NET",
    MODBUS_CLIENT: "$HOME_NET", MODBUS_SERVER: "$HOME_NET", ENIP_CLIENT: "$HOME_NET",
    ENIP_SERVER: "$HOME_NET"}}
  port-groups: {{HTTP_PORTS: "80", SHELLCODE_PORTS: "!80", ORACLE_PORTS: 1521, SSH_PORTS: 22,
    DNP3_PORTS: 20000, MODBUS_PORTS: 502, FILE_DATA_PORTS: "[$HTTP_PORTS,110,143]", FTP_PORTS: 21,
    GENEVE_PORTS: 6081, VXLAN_PORTS: 4789, TEREDO_PORTS: 3544}}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, types: [alert]}}
classification-file: {classification}
pcap-file: {{checksum-checks: yes}}
"""
"""The variables' values are the defaults of both programs' documentation. Checksums are always checked, as by
`nids`: by itself Suricata does not if a tenth of the first 1,000 packets have wrong ones."""


def cpu(command, **options):
    """Runs a command; returns its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def alerts(path):
    """Alerts by rule and flow."""
    found = collections.Counter()
    for line in path.read_text().splitlines() if path.exists() else []:
        event = json.loads(line)
        if event.get("event_type", "alert") != "alert":
            continue
        ends = sorted((event.get(f"{side}_ip", ""), event.get(f"{side}_port", 0)) for side in ("src", "dest"))
        found[event["alert"]["signature_id"], event.get("proto", "").lower(), *map(tuple, ends)] += 1
    return found


def thalweg(program, work, capture, rules, external):
    names = ", ".join(f"'{rule}'" for rule in rules)
    (work / "routes.csv").write_text("*, ingress, ids\n*, ids, egress\n")
    (work / "chain.toml").write_text(
        f"routes = 'routes.csv'\n[classify]\ndecapsulate = 'nested'\n[input.in]\ncapture = '{capture}'\n[output.out]\ndiscard = true\n"
        f"[nf.ids]\nkind = 'nids'\nrules = [{names}]\nalerts = 'alerts.json'\n"
        f"variables = {{ EXTERNAL_NET = '{external}' }}\n")
    seconds = cpu([program, "run", work / "chain.toml", "-q"])
    return alerts(work / "alerts.json"), seconds


def supported(program, work, rules):
    """The rules that ours has, as one file: those of which it warns are left out."""
    lines, kept = [], work / "kept.rules"
    for rule in rules:
        lines += [line for line in Path(rule).read_text(errors="replace").splitlines()
                  if line and not line.startswith("#")]
    kept.write_text("\n".join(lines) + "\n")
    (work / "routes.csv").write_text("*, ingress, ids\n*, ids, egress\n")
    (work / "check.toml").write_text(
        "routes = 'routes.csv'\n[input.in]\ngenerate = {}\n[output.out]\ndiscard = true\n"
        f"[nf.ids]\nkind = 'nids'\nrules = ['{kept}']\nunsupported = 'refuse'\n")
    bad = set()
    while True:
        done = subprocess.run([program, "check", work / "check.toml"], capture_output=True, text=True)
        found = {int(n) for n in re.findall(r"kept\.rules:(\d+)", done.stderr)} - bad
        if done.returncode == 0 or not found:
            break
        bad |= found
        kept.write_text("\n".join("" if n in bad else line for n, line in enumerate(lines, 1)) + "\n")
    return kept, len(lines) - len(bad), len(bad)


def suricata(work, capture, rules, external, classification):
    text = YAML.format(classification=classification, external=external)
    (work / "suricata.yaml").write_text(text)
    folder = work / "suricata"
    folder.mkdir(exist_ok=True)
    (folder / "eve.json").unlink(missing_ok=True)
    command = ["suricata", "-c", work / "suricata.yaml", "-S", rules, "-l", folder,
               "--runmode", "single", "-k", "all", "-r"]
    seconds = cpu([*command, capture])
    return alerts(folder / "eve.json"), seconds


def compare_times(options, work, kept):
    """The CPU time of both without loading, by round."""
    program, external, captures = options.thalweg, options.external, [options.capture.resolve(), work / "one.pcap"]
    write_capture(captures[1], [bytes(60)])
    times = {"ours": [], "Suricata": []}
    for _ in range(options.rounds):
        ours = [thalweg(program, work, capture, [kept], external)[1] for capture in captures]
        theirs = [suricata(work, capture, kept, external, options.classification)[1] for capture in captures]
        times["ours"].append(ours[0] - ours[1])
        times["Suricata"].append(theirs[0] - theirs[1])
    ratio = statistics.median(a / b for a, b in zip(times["ours"], times["Suricata"]))
    ours, theirs = (statistics.median(times[name]) for name in times)
    print(f"CPU without loading, {options.rounds} rounds: ours {ours:.2f} s, Suricata {theirs:.2f} s; ratio {ratio:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path)
    parser.add_argument("rules", nargs="+", type=Path)
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--external", default="!$HOME_NET", help="the variable EXTERNAL_NET")
    parser.add_argument("--rounds", type=int, default=0, help="rounds in which both are timed")
    parser.add_argument("--classification", type=Path, default="/etc/suricata/classification.config")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        kept, taken, left = supported(options.thalweg, work, options.rules)
        ours, our_seconds = thalweg(options.thalweg, work, options.capture.resolve(), [kept], options.external)
        theirs, their_seconds = suricata(work, options.capture.resolve(), kept, options.external, options.classification)
        if options.rounds:
            compare_times(options, work, kept)
    print(f"{taken} rules, {left} unsupported; alerts: ours {ours.total()}, Suricata {theirs.total()}")
    print(f"CPU with loading: ours {our_seconds:.1f} s, Suricata {their_seconds:.1f} s")
    different = sorted(key for key in ours.keys() | theirs.keys() if ours[key] != theirs[key])
    for key in different:
        sid, protocol, (a, a_port), (b, b_port) = key
        print(f"{sid} {protocol} {a}:{a_port} {b}:{b_port}: ours {ours[key]}, Suricata {theirs[key]}")
    print(f"{len(different)} differences by rule and flow")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
