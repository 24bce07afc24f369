#!/usr/bin/env python3
"""How much processor time does a packet take by AF_XDP, beside packet sockets? And what does each port carry?

    bench/xdp.py [--rounds 5] [--seconds 3] [--tables time carry] [--always] [--thalweg PROGRAM]

A gateway passes 64-byte UDP packets from one port to another of the same kind, without NFs: packet sockets
(`interface`), AF_XDP (`xdp`, copied in the driver and in the network stack), `tap` and `memif`. All kinds have
a turn in each round. The sender is a replay from memory on the first processor, by packet sockets
(`sendmmsg`) or by AF_XDP, at the other end of a veth pair in a namespace of its own (on the device itself
for `tap`, by `memif` for `memif`). The gateway is kept on the last processor.

`time`: processor time of the gateway for each packet that it sent. A gateway that is faster than its sender
polls for packets, and its time a packet is then the sender's pace. So the gateway is stopped for two of three
milliseconds, and packets always wait for it; that packets were lost before it shows that they did. It is user
and system time of the process, including what the kernel does in its calls: for a veth, the way through the
network stack of the receiving host, which drops the packets. With `--always`, the gateway is never stopped.

`carry`: packets a second of a gateway that is not stopped, with a sender by AF_XDP (`memif`: by memif, which
also takes the packets back); the share that was lost; for how much of the time the gateway's worker had
packets; and the processors of the sender. If many packets are lost the gateway is the bound, otherwise the
sender.

Prints medians, and for `time` the median, least and largest ratio to packet sockets in the same round. It
needs root, since programs are loaded into the kernel.
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

from common import THALWEG, built, cpu_model, enter_namespaces, work_folder

HOSTS = ["left", "right"]
XDP = ["xdp copy", "xdp generic"]
TIMED = ["interface", *XDP]
CARRYING = [*TIMED, "tap", "memif"]
SENDERS = {"packet sockets": "interface = 'eth0'", "AF_XDP": "xdp = 'eth0'\nmode = 'copy'"}
MEMIF = "memif = '{}.sock'\nrole = '{}'"
# Of memif, the sender also receives what the gateway passes.
BACK = ("[input.back]\n" + MEMIF.format("right", "server") + "\n[output.end]\ndiscard = true\n"
        "[[class]]\ntype = 'back'\nrules = ['in_port=back']\n"
        "[[route]]\ntype = 'back'\npath = ['ingress', 'end']\n")
ROUTE = "[[route]]\npath = ['ingress', '{}']\n"
LAST = os.cpu_count() - 1


def ip(*command):
    subprocess.run(["ip", *command], check=True)


def make_hosts():
    """Hosts whose interfaces `eth0` lead to the gateway's `left` and `right`."""
    for host in HOSTS:
        ip("netns", "add", host)
    connect_hosts(1)


def connect_hosts(queues):
    """Connects the hosts to the gateway, anew if they were, by interfaces with this many queues."""
    many = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
    for host in HOSTS:
        subprocess.run(["ip", "link", "del", host], check=False, stderr=subprocess.DEVNULL)
        ip("link", "add", host, *many, "type", "veth", "peer", "name", "eth0", "netns", host, *many)
        for where in [["-n", host, "link", "set", "eth0"], ["link", "set", host]]:
            ip(*where, "addrgenmode", "none")
            ip(*where, "up")


def port(kind, side):
    """The options of the gateway's port of this kind."""
    if kind.startswith("xdp"):
        return f"xdp = '{side}'\nmode = '{kind.removeprefix('xdp ')}'"
    if kind == "memif":
        return MEMIF.format(side, "client")
    return f"{kind} = '{'tap-' if kind == 'tap' else ''}{side}'"


def write_chains(folder, thalweg):
    subprocess.run([thalweg, "gen", "in.pcap", "--packets", "10000", "--size", "64", "--tcp", "0", "--udp",
                    "1", "--icmp", "0"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for kind in CARRYING:
        chain = f"[input.left]\n{port(kind, 'left')}\n[output.right]\n{port(kind, 'right')}\n"
        (folder / f"{kind}.toml").write_text(chain + ROUTE.format("right"))


def write_sender(folder, out, back=""):
    replay = "[input.i]\ncapture = 'in.pcap'\nmemory = true\nloop = 0\n"
    (folder / "sender.toml").write_text(f"{replay}[output.o]\n{out}\n{back}" + ROUTE.format("o"))


def on(processor, *command):
    return ["taskset", "-c", str(processor), *map(str, command)]


def cores(usage, seconds):
    return (usage.ru_utime + usage.ru_stime) / seconds


def hold_back(gateway, sends):
    """Stops the gateway for two of three milliseconds, until the sender has ended."""
    # To be in time, although others have both processors. Programs started later are scheduled as usual.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    while os.waitid(os.P_PID, sends.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        for what, milliseconds in [(signal.SIGSTOP, 2), (signal.SIGCONT, 1)]:
            gateway.send_signal(what)
            time.sleep(milliseconds / 1e3)


def forward_by(name, folder, thalweg, seconds, sender="packet sockets", stops=False):
    """What a gateway of this kind does with what a sender sends: processor nanoseconds a packet, packets a
    second, the share that was lost, the share of the time in which its worker had packets, and the
    processors of the sender."""
    out, inside = SENDERS[sender], ["ip", "netns", "exec", "left"]
    if name == "tap":
        out, inside = out.replace("eth0", "tap-left"), []
    if name == "memif":
        write_sender(folder, MEMIF.format("left", "server"), BACK)
    else:
        write_sender(folder, out)
    with open(folder / "report.json", "w") as report:
        gateway = subprocess.Popen(on(LAST, thalweg, "run", f"{name}.toml", "--quiet", "--json", "--no-control"),
                                   cwd=folder, stdout=report)
    time.sleep(1)
    if gateway.poll() is not None:
        sys.exit(f"{name}: the gateway has ended")  # It named the reason.
    sends = subprocess.Popen(on(0, *inside, thalweg, "run", "sender.toml", "--quiet", "--json", "--no-control",
                                "--duration", f"{seconds}s"), cwd=folder, stdout=subprocess.PIPE)
    if stops:
        hold_back(gateway, sends)
    sent = json.loads(sends.stdout.read())["outputs"][0]["packets"]
    _pid, ended, sending = os.wait4(sends.pid, 0)
    time.sleep(0.2)
    gateway.send_signal(signal.SIGINT)
    _pid, status, passing = os.wait4(gateway.pid, 0)
    if status or ended:
        sys.exit(f"{name}: exit status {status} and {ended}")
    report = json.loads((folder / "report.json").read_text())
    out = report["packets_out"]
    busy = sum(worker["busy_s"] for worker in report["by_worker"])
    return {"ns a packet": cores(passing, out) * 1e9, "kpps": out / seconds / 1e3, "lost, %": (1 - out / sent) * 100,
            "busy, %": busy / seconds * 100, "processors of the sender": cores(sending, seconds)}


def median(values):
    return statistics.median(list(values))


def show_times(sender, rounds):
    print(f"Sender by {sender}:\n\n| ports | ns a packet | ratio to packet sockets | lost, % |\n" + "| --- " * 4 + "|")
    for kind, ones in rounds.items():
        ratios = [one["ns a packet"] / other["ns a packet"] for one, other in zip(ones, rounds["interface"])]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if kind != "interface" else ""
        print(f"| {kind} | {median(one['ns a packet'] for one in ones):.0f} | {median(ratios):.2f}{spread} | "
              f"{median(one['lost, %'] for one in ones):.0f} |")
    print()


def show_carried(rounds):
    figures = ["lost, %", "busy, %", "processors of the sender"]
    print("| ports | millions of packets a second, best | " + " | ".join(figures) + " |\n" + "| --- " * 5 + "|")
    for kind, ones in rounds.items():
        rates = [one["kpps"] / 1e3 for one in ones]
        cells = [f"{median(one[figure] for one in ones):.3g}" for figure in figures]
        print(f"| {kind} | {median(rates):.2f}, {max(rates):.2f} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", default=THALWEG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--tables", nargs="+", default=["time", "carry"], choices=["time", "carry"])
    options = parser.parse_args()
    thalweg = str(Path(built(options.thalweg)).resolve())
    enter_namespaces()
    folder = work_folder() / "xdp"
    folder.mkdir(exist_ok=True)
    make_hosts()
    write_chains(folder, thalweg)
    timed = {sender: {kind: [] for kind in TIMED} for sender in SENDERS}
    carried = {kind: [] for kind in CARRYING}
    for _ in range(options.rounds):
        if "time" in options.tables:
            for sender, kinds in timed.items():
                for kind, ones in kinds.items():
                    ones.append(forward_by(kind, folder, thalweg, options.seconds, sender, not options.always))
        if "carry" in options.tables:
            for kind, ones in carried.items():
                ones.append(forward_by(kind, folder, thalweg, options.seconds, "AF_XDP"))
    print(f"{cpu_model()}, {os.cpu_count()} processors; medians of {options.rounds} rounds\n")
    if "time" in options.tables:
        for sender, rounds in timed.items():
            show_times(sender, rounds)
    if "carry" in options.tables:
        show_carried(carried)


if __name__ == "__main__":
    main()
