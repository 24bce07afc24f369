#!/usr/bin/env python3
"""What does a second queue gain, with a worker and a core for each? By kind of port.

    bench/queues.py [--rounds 5] [--seconds 3] [--kinds interface xdp tap memif] [--rules 900]

A gateway passes UDP packets of 1,400 bytes, 200 flows, with one queue and one worker and with two, in turn.
An NF of kind `nids` examines each: RULES rules whose first content is in every packet and whose second is
in none, and 1,000 for another port, with which it is divided among workers. So most of the work is the
gateway's, and the sender leaves it nearly two cores of two. The sender is a replay from memory, paced to
2.2 times what one worker can do without ports. What two cores of this machine can gain at all, two programs
of one worker each show that share nothing: they have the same packets and NF, from memory and without
ports, and run at the same time or one alone. A program of two workers without ports is measured like that,
and beside the sender, which takes a part of its cores and of their caches: the row of no port.

Prints medians of the packets a second that the gateway took with one queue and with two, of their ratio,
of the cores that the gateway and the sender had with two queues, and of the smaller queue's share.

It needs root, since it makes network namespaces and devices.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import xdp
from common import THALWEG, built, cpu_model, enter_namespaces, work_folder

NO_PORT = "none, from memory, beside the sender"
KINDS = ["interface", "xdp", "tap", "memif"]
NF = "[nf.ids]\nkind = 'nids'\nrules = ['queues.rules']\n"
# Only one run at a time can have it.
ALERTS = "alerts = 'alerts.json'\n"
ROUTE = "[[route]]\npath = ['ingress', {}]\n"
MEMIF = "memif = 'queues.sock'\nrole = '{}'\nqueues = {}\n"
# An NF with few rules is not divided.
MORE = 1000
# More than one worker can do.
OFFERED = 2.2


def ports(kind, queues):
    """The inputs and outputs of the gateway, and the name of the output."""
    if kind == "interface":
        return (f"[input.left]\ninterface = 'left'\nqueues = {queues}\n"
                f"[output.right]\ninterface = 'right'\nqueues = {queues}\n")
    if kind == "xdp":
        return (f"[input.left]\nxdp = 'left'\nqueues = {queues}\n"
                f"[output.right]\nxdp = 'right'\nqueues = {queues}\n")
    if kind == "tap":
        return (f"[input.tapl]\ntap = 'tapl'\nqueues = {queues}\n"
                f"[output.right]\ntap = 'tapr'\nqueues = {queues}\n")
    return f"[input.peer]\n{MEMIF.format('client', queues)}[output.right]\ndiscard = true\n"


def write_files(folder, thalweg, rules):
    """The rules, and the chains of all gateways; returns the packets a second of one worker without ports."""
    rule = ('alert udp any any -> any any (msg:"second content"; content:"HTTP"; fast_pattern; '
            'content:"absent {0}"; distance:0; sid:{0};)\n')
    other = 'alert udp any any -> any 9 (msg:"another port"; content:"other {0}"; sid:{0};)\n'
    text = [rule.format(n + 1) for n in range(rules)] + [other.format(n + 1) for n in range(rules, rules + MORE)]
    (folder / "queues.rules").write_text("".join(text))
    generate(folder, thalweg, 100_000)
    route = ROUTE.format("'ids', 'right'")
    for kind in KINDS:
        for queues in [1, 2]:
            text = f"[run]\nworkers = {queues}\n{ports(kind, queues)}{NF}{ALERTS}{route}"
            (folder / f"{kind}-{queues}.toml").write_text(text)
    alone = f"[input.i]\ncapture = 'queues.pcap'\nmemory = true\nloop = 0\n[output.right]\ndiscard = true\n"
    (folder / "alone.toml").write_text(alone + NF + route)
    return without_ports(folder, thalweg, 1, 1, 2)[0]


def generate(folder, thalweg, rate):
    subprocess.run([thalweg, "gen", "queues.pcap", "--packets", "10000", "--size", "1400", "--tcp", "0", "--udp",
                    "1", "--icmp", "0", "--flows", "200", "--payload", "http", "--rate", str(int(rate))],
                   cwd=folder, check=True, stdout=subprocess.DEVNULL)


def sender(kind, folder):
    """The command that sends to a gateway of this kind."""
    port = {"tap": "interface = 'tapl'\n", "memif": MEMIF.format("server", 2)}.get(kind, "interface = 'eth0'\n")
    (folder / "sender.toml").write_text(
        "[input.i]\ncapture = 'queues.pcap'\nmemory = true\nloop = 0\npace = 1.0\n"
        f"[output.o]\n{port}" + ROUTE.format("'o'"))
    return ["ip", "netns", "exec", "left"] if kind in ("interface", "xdp") else []


def pass_by(kind, queues, folder, thalweg, seconds):
    """Packets a second, the cores that the gateway and the sender had, the share of the smaller queue."""
    if kind in ("interface", "xdp"):
        xdp.connect_hosts(queues)
    with open(folder / "report.json", "w") as report:
        gateway = subprocess.Popen([thalweg, "run", f"{kind}-{queues}.toml", "--quiet", "--json", "--no-control"],
                                   cwd=folder, stdout=report)
    prefix = sender(kind, folder)
    time.sleep(1)
    sends = subprocess.Popen([*prefix, thalweg, "run", "sender.toml", "--quiet", "--json", "--no-control",
                              "--duration", f"{seconds}s"], cwd=folder, stdout=subprocess.PIPE)
    sends.stdout.read()
    _pid, status, sending = os.wait4(sends.pid, 0)
    gateway.send_signal(signal.SIGINT)
    _pid, ended, passing = os.wait4(gateway.pid, 0)
    if status or ended:
        sys.exit(f"{kind}: exit status {status} and {ended}")
    result = json.loads((folder / "report.json").read_text())
    queues_of = [queue for port in result["inputs"] for queue in port.get("queues") or [port]]
    # Packets that found no room are received packets in a report.
    passed = [queue["packets"] - sum(queue["drops"].values()) for queue in queues_of]
    cores = lambda usage: (usage.ru_utime + usage.ru_stime) / seconds
    return {"pps": sum(passed) / seconds, "gateway": cores(passing), "sender": cores(sending),
            "share": min(passed) / max(sum(passed), 1)}


def without_ports(folder, thalweg, programs, workers, seconds):
    """Packets a second of programs that run at the same time, and the cores that they had."""
    command = [thalweg, "run", "alone.toml", "--quiet", "--json", "--no-control", "--duration", f"{seconds}s",
               "--workers", str(workers)]
    runs = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) for _ in range(programs)]
    pps, cores = 0, 0
    for run in runs:
        report = run.stdout.read()
        _pid, status, usage = os.wait4(run.pid, 0)
        if status:
            sys.exit(f"alone.toml: exit status {status}")
        pps += json.loads(report)["packets_per_second"]
        cores += (usage.ru_utime + usage.ru_stime) / seconds
    return pps, cores


def beside_the_sender(workers, folder, thalweg, seconds):
    """The same of one program, while the sender sends and the kernel drops."""
    xdp.connect_hosts(2)
    prefix, began = sender("interface", folder), time.monotonic()
    sends = subprocess.Popen([*prefix, thalweg, "run", "sender.toml", "--quiet", "--no-control"], cwd=folder,
                             stdout=subprocess.DEVNULL)
    time.sleep(0.7)
    pps, cores = without_ports(folder, thalweg, 1, workers, seconds)
    sends.send_signal(signal.SIGINT)
    _pid, _status, sending = os.wait4(sends.pid, 0)
    share = (sending.ru_utime + sending.ru_stime) / (time.monotonic() - began)
    return {"pps": pps, "gateway": cores, "sender": share, "share": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--rules", type=int, default=900)
    options = parser.parse_args()
    thalweg = str(Path(built(options.thalweg)).resolve())
    enter_namespaces()
    folder = work_folder() / "queues"
    folder.mkdir(exist_ok=True)
    xdp.make_hosts()
    pace = write_files(folder, thalweg, options.rules)
    generate(folder, thalweg, OFFERED * pace)
    rounds = {NO_PORT: [], **{kind: [] for kind in options.kinds}}
    programs, workers = [], []
    for _ in range(options.rounds):
        one, two, both = (without_ports(folder, thalweg, *how, options.seconds)[0]
                          for how in [(1, 1), (2, 1), (1, 2)])
        programs.append(two / one)
        workers.append(both / one)
        for kind, figures in rounds.items():
            how = (folder, thalweg, options.seconds)
            figures.append([beside_the_sender(queues, *how) if kind == NO_PORT else pass_by(kind, queues, *how)
                            for queues in [1, 2]])
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds; "
          f"one worker without ports: {pace / 1e3:.3g} kpps; two programs: "
          f"{statistics.median(programs):.2f} times one ({min(programs):.2f} to {max(programs):.2f}); "
          f"two workers: {statistics.median(workers):.2f} ({min(workers):.2f} to {max(workers):.2f})\n")
    print("| port | one queue or worker, kpps | two, kpps | ratio | cores of the gateway | of the sender | "
          "smaller queue, % |\n" + "| --- " * 7 + "|")
    for kind, figures in rounds.items():
        median = lambda of: statistics.median(of(one, two) for one, two in figures)
        cells = [f"{median(lambda one, _: one['pps']) / 1e3:.3g}", f"{median(lambda _, two: two['pps']) / 1e3:.3g}",
                 f"{median(lambda one, two: two['pps'] / one['pps']):.2f}"]
        cells += [f"{median(lambda _, two: two[of]):.2f}" for of in ["gateway", "sender"]]
        share = "" if kind == NO_PORT else f"{100 * median(lambda _, two: two['share']):.0f}"
        print(f"| {kind} | {' | '.join(cells)} | {share} |")


if __name__ == "__main__":
    main()
