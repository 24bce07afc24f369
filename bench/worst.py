#!/usr/bin/env python3
"""What is the dearest traffic? Cycles a packet of inputs that are chosen to be dear, against usual ones.

    bench/worst.py payloads --rules FILE... [--protocol udp] [--size 64 512 1400] [--port 5000] [--rounds 5]
    bench/worst.py search --rules FILE... [--size 64 1400] [--seconds 60] [--seed 1] [--keep FILE]
    bench/worst.py check --rules FILE... --payloads FILE
    bench/worst.py classification [--peer FOLDER] [--rounds 5]

`payloads`: the intrusion detection over UDP, or TCP, of one repeated byte, of two, of text, HTTP, all
literals of the rules one after the other, against random bytes of the same length and to the same port.
`search`: evolves datagrams from contents of the rules, repeated units and random bytes; those that
cost the intrusion detection most, against random bytes of the same length to the same port, survive.
The dearest are kept in FILE, one a line, and `check` measures them again.
`classification`: the whole path over few flows, over random headers, and over headers that part from
each rule at another bit, so that every packet needs a mask of its own, against the rules alone;
with FOLDER as in bench/ovs.py, against Open vSwitch, too.

One core, interleaved rounds, medians.
"""

import argparse
import json
import random
import re
import shutil
import statistics
import struct
import sys
from pathlib import Path

from common import THALWEG, build_bench, built, cpu_model, measure, run, work_folder, write_capture
from packets import frame

PACKETS = 4096
CONNECTIONS = 64
# The loops over a capture take about this long, in packets times bytes.
EFFORT = 60_000_000


def datagram(source, destination, ports, payload):
    """An Ethernet frame of IPv4 and UDP; addresses as numbers."""
    header = struct.pack("!HHHH", *ports, 8 + len(payload), 0)
    return frame(source.to_bytes(4), destination.to_bytes(4), 17, header + payload)


def literals(rules):
    """All contents of the rules, as bytes."""
    found = []
    for path in rules:
        for content in re.findall(r'content:\s*!?"((?:[^"\\]|\\.)*)"', path.read_text(errors="replace")):
            parts = re.split(r"\|([0-9A-Fa-f ]*)\|", content)
            texts = (re.sub(r"\\(.)", r"\1", text).encode() for text in parts[::2])
            codes = [bytes.fromhex(code) for code in parts[1::2]] + [b""]
            found.append(b"".join(text + code for text, code in zip(texts, codes)))
    return found


ENGLISH = (Path(__file__).resolve().parent.parent / "docs/chain-file.md").read_bytes()
REQUEST = (b"GET /index.php?id=1&page=news HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 "
           b"(Windows NT 10.0; Win64; x64) AppleWebKit/537.36\r\nAccept: text/html,application/xhtml+xml\r\n"
           b"Accept-Language: en-US,en;q=0.5\r\nCookie: session=0123456789abcdef\r\nConnection: keep-alive\r\n\r\n")


def payloads(rules):
    """By name: the payload number `n` of a length."""
    chance = random.Random(1)
    every = b"".join(literals(rules))
    stretch = lambda text, size, at: (text[at:] + text * (size // len(text) + 1))[:size]
    kinds = {"random": lambda n, size: chance.randbytes(size)}
    for name, byte in [("zeros", 0), ("blanks", 32), ("'a'", 97), ("'A'", 65), ("0x90", 0x90), ("0xff", 255)]:
        kinds[name] = lambda n, size, byte=byte: bytes([byte]) * size
    for name, pair in [("'ab'", b"ab"), ("'../'", b"../"), ("0 0xff", b"\0\xff"), ("CR LF", b"\r\n"),
                       ("'A' 0", b"A\0"), ("'%u'", b"%u"), ("runs of 0", b"\0" * 61 + b"x"),
                       ("runs of ' '", b" " * 13 + b"x")]:
        kinds[name] = lambda n, size, pair=pair: stretch(pair, size, 0)
    kinds["each byte in turn"] = lambda n, size: bytes([n % 256]) * size
    kinds["English"] = lambda n, size: stretch(ENGLISH, size, 97 * n % len(ENGLISH))
    kinds["HTTP"] = lambda n, size: stretch(REQUEST, size, 0)
    kinds["base64"] = lambda n, size: bytes(chance.choices(b"ABCDEFGHIJKLMNOPabcdefghijklmnop0123456789+/", k=size))
    kinds["all literals"] = lambda n, size: stretch(every, size, size * n % len(every))
    return kinds


def tcp(source, destination, ports, sequence=1, acknowledged=1, flags=0x10, payload=b""):
    """An Ethernet frame of TCP; addresses as bytes, of IPv4 or IPv6."""
    header = struct.pack("!HHIIBBHHH", *ports, sequence, acknowledged, 0x50, flags, 65535, 0, 0)
    return frame(source, destination, 6, header + payload)


# Rules by name: (what is before the fields, [(field, value, bits)]), the first with the best priority.
THREE = [("tcp", [("tp_dst", 80, 16)]), ("tcp", [("tp_src", 12345, 16)]), ("ip", [("nw_src", 0x0A000001, 32)])]
TWENTY = THREE + [
    ("tcp", [("nw_dst", 0xC0A80000, 16), ("tp_dst", 443, 16)]), ("ip", [("nw_dst", 0xC0A80100, 24)]),
    ("tcp", [("nw_src", 0x0A010000, 16), ("tp_src", 53, 16)]), ("ip", [("nw_src", 0x0A020000, 20)]),
    ("tcp", [("nw_src", 0x0A030000, 24), ("nw_dst", 0xC0A80200, 24)]), ("ip", [("nw_dst", 0xAC100000, 12)]),
    ("tcp", [("tp_src", 0x8000, 4), ("nw_dst", 0xAC200000, 28)]), ("tcp", [("tp_dst", 0x1F90, 12)]),
    ("tcp6", [("tp_dst", 80, 16)]), ("tcp6", [("tp_src", 12345, 16)]),
    ("ipv6", [("ipv6_src", 0x20010DB8 << 96, 32)]), ("ipv6", [("ipv6_dst", 0x20010DB8_00010000 << 64, 64)]),
    ("ipv6", [("ipv6_src", (0x20010DB9_00020000 << 64) + 1, 128)]),
    ("tcp6", [("ipv6_dst", 0x20010DB8_00030000 << 64, 48), ("tp_dst", 443, 16)]),
    ("tcp6", [("ipv6_src", 0x20010DBA_00040000 << 64, 56), ("tp_src", 53, 16)]),
    ("ipv6", [("ipv6_dst", 0xFD << 120, 8)]), ("tcp6", [("ipv6_src", 0xFE80 << 112, 10), ("tp_dst", 22, 16)])]


def flow_lines(rules):
    """The rules in the syntax of ovs-ofctl."""
    for number, (kind, fields) in enumerate(rules):
        parts = []
        for field, value, bits in fields:
            if field.startswith("nw"):
                parts.append(f"{field}={'.'.join(map(str, value.to_bytes(4)))}/{bits}")
            elif field.startswith("ipv6"):
                parts.append(f"{field}={value.to_bytes(16).hex(':', 2)}/{bits}")
            else:
                parts.append(f"{field}={value:#x}/{0x10000 - (1 << 16 - bits):#x}")
        yield f"priority={100 - number},{kind},{','.join(parts)}"


WIDTHS = {"nw_src": 32, "nw_dst": 32, "tp_src": 16, "tp_dst": 16, "ipv6_src": 128, "ipv6_dst": 128}


def headers(rules, kind, count=1 << 16):
    """TCP packets of one kind: (source, destination, ports)."""
    chance = random.Random(1)
    sixth = any(field.startswith("ipv6") for _, fields in rules for field, *_ in fields)
    for number in range(count):
        version = number % 2 if sixth else 0
        names = ["ipv6_src", "ipv6_dst"] if version else ["nw_src", "nw_dst"]
        values = {name: chance.getrandbits(WIDTHS[name]) for name in [*names, "tp_src", "tp_dst"]}
        if kind == "few flows":
            values.update({names[0]: 0x0A000000 + number % 64, names[1]: 7, "tp_src": 1024 + number % 50})
            values["tp_dst"] = 80 if number % 3 else 443
        if kind == "a mask a packet":
            for name in values:
                near = [(value, bits) for _, fields in rules for field, value, bits in fields if field == name]
                value, bits = chance.choice(near) if near else (0, 1)
                # Agrees with the rule in some bits, and with nothing after the first that differs.
                below = WIDTHS[name] - 1 - chance.randrange(bits)
                values[name] = (value >> below ^ 1) << below | chance.getrandbits(below)
        ends = [values[name].to_bytes(WIDTHS[name] // 8) for name in names]
        yield *ends, (values["tp_src"], values["tp_dst"])


def write_chain(folder, name, capture, nfs, sections):
    """The chain file of NFs over a capture in memory, with these further sections."""
    hops = ["ingress", *nfs, "egress"]
    routes = folder / f"{'-'.join(['worst', *nfs])}.csv"
    routes.write_text("".join(f"*, {a}, {b}\n" for a, b in zip(hops, hops[1:])))
    path = folder / f"{name}.toml"
    path.write_text(f'routes = "{routes.name}"\n[input.in]\ncapture = "{capture}"\nmemory = true\nloop = 0\n'
                    f'[output.out]\ndiscard = true\n{sections}')
    return path


def classes_chain(folder, name, capture, flows, settings):
    return write_chain(folder, name, capture, [], f'[classify]\n{settings}\n[[class]]\ntype = "matched"\n'
                                                  f'file = "{flows.name}"\n')


def open_vswitch(peer, name, lines, capture, folder):
    """Cycles a packet of Open vSwitch over the same rules and packets; `None` if it fails, as its bench
    does where a second passes without a packet."""
    import ovs
    scenario = peer / "scn" / name
    scenario.mkdir(parents=True, exist_ok=True)
    (scenario / "rules.of").write_text("".join(f"{line},actions=output:2\n" for line in lines))
    shutil.copy(capture, scenario / "traffic.pcap")
    try:
        return min(cycles for cycles, _ in ovs.open_vswitch(peer, name, "0,100", folder).values())
    except SystemExit as failure:
        print(str(failure).splitlines()[-1], file=sys.stderr)
        return None


def compare_headers(options):
    program, folder = built(options.thalweg), work_folder()
    peer = options.peer and options.peer.resolve()
    print(f"{cpu_model()}; TCP of 64 bytes, {options.rounds} interleaved rounds\n")
    print("| rules | headers | cycles a packet | the rules alone | times | masks | Open vSwitch |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for rules in [THREE, TWENTY]:
        lines = list(flow_lines(rules))
        flows = folder / f"worst-{len(rules)}.flows"
        flows.write_text("".join(f"{line}\n" for line in lines))
        for number, kind in enumerate(["few flows", "random", "a mask a packet"]):
            name = f"worst-{len(rules)}-{number}"
            capture = folder / f"{name}.pcap"
            write_capture(capture, (tcp(*header) for header in headers(rules, kind)))
            whole = classes_chain(folder, name, capture, flows, "")
            alone = classes_chain(folder, f"{name}-alone", capture, flows, "emc_entries = 0\nmegaflow_limit = 0")
            rounds, theirs = [], []
            for _ in range(options.rounds):
                reports = [measure(program, chain, options.count) for chain in [whole, alone]]
                rounds.append([report["cycles_per_packet"] for report in reports])
                masks = reports[0]["classification"]["subtables"]
                if peer:
                    theirs.append(open_vswitch(peer, name, lines, capture, folder))
            mine, rule_table = (statistics.median(column) for column in zip(*rounds))
            ratio = statistics.median(a / b for a, b in rounds)
            theirs = [cycles for cycles in theirs if cycles]
            other = f"{statistics.median(theirs):.0f}" if theirs else "none" if peer else ""
            print(f"| {len(rules)} | {kind} | {mine:.0f} | {rule_table:.0f} | {ratio:.2f} | {masks} | {other} |", flush=True)


def ids_chain(folder, name, capture, rules):
    names = ", ".join(f'"{rule.resolve()}"' for rule in rules)
    settings = f'[nf.ids]\nkind = "nids"\nrules = [{names}]\nchecksums = false\n'
    return write_chain(folder, name, capture, ["ids"], settings + '[nf.ids.variables]\nEXTERNAL_NET = "any"\n')


def datagrams(make, size, port):
    """Datagrams of some senders and receivers, to one port."""
    ends = [(0x0A000000 + n % 64, 0xC0A80000 + n % 32, (1024 + n % 997, port)) for n in range(PACKETS)]
    return [datagram(*end, make(n, size)) for n, end in enumerate(ends)]


def segments(make, size, port):
    """Connections side by side: their handshakes, then the data of the clients in order. A stream cannot
    be read again from its beginning, so the capture is as long as the loops over one of datagrams."""
    ends = [((0x0A000000 + n).to_bytes(4), 0xC0A80000.to_bytes(4), (1024 + n, port)) for n in range(CONNECTIONS)]
    back = [(destination, source, ports[::-1]) for source, destination, ports in ends]
    yield from (tcp(*end, 0, 0, 0x02) for end in ends)
    yield from (tcp(*end, 0, 1, 0x12) for end in back)
    yield from (tcp(*end, 1, 1, 0x10) for end in ends)
    for n in range(segments_of(size)):
        payloads_of = [make(n * CONNECTIONS + m, size) for m in range(CONNECTIONS)]
        yield from (tcp(*end, 1 + n * size, 1, 0x18, payload) for end, payload in zip(ends, payloads_of))


def segments_of(size):
    """Segments of each connection."""
    return EFFORT // (size + 200) // CONNECTIONS


def compare_payloads(options):
    program, folder = built(options.thalweg), work_folder()
    protocol = options.protocol.upper()
    print(f"{cpu_model()}; {protocol} to port {options.port}, {options.rounds} interleaved rounds\n")
    print("| payload | bytes | cycles a packet | times random bytes |\n| --- | --- | --- | --- |", flush=True)
    for size in options.size:
        chains = {}
        for name, make in payloads(options.rules).items():
            if options.only and name != "random" and name not in options.only:
                continue
            capture = folder / "worst.pcap"
            packets = datagrams if options.protocol == "udp" else segments
            write_capture(capture, packets(make, size, options.port))
            kept = capture.rename(folder / f"worst-{len(chains)}.pcap")
            chains[name] = ids_chain(folder, f"worst-{len(chains)}", kept, options.rules)
        count = max(PACKETS, EFFORT // (size + 200))
        cycles = {name: [] for name in chains}
        for _ in range(options.rounds):
            for name, chain in chains.items():
                if options.protocol == "tcp":
                    most = CONNECTIONS * (3 + segments_of(size))
                else:
                    most = count if name == "random" else count // 4
                report = json.loads(run(program, "run", chain, "--count", most, "--json", "--quiet"))
                cycles[name].append(report["nfs"][0]["cycles_per_packet"])
        for name, all_rounds in cycles.items():
            ratio = statistics.median(a / b for a, b in zip(all_rounds, cycles["random"]))
            print(f"| {name} | {size} | {statistics.median(all_rounds):.0f} | {ratio:.2f} |", flush=True)


def rows(lines):
    print("| bytes | port | cycles a packet | times random bytes | payload |\n| --- | --- | --- | --- | --- |")
    for line in sorted(map(json.loads, lines), key=lambda row: row["random"] / row["cycles"]):
        payload = bytes.fromhex(line["payload"])
        print(f"| {len(payload)} | {line['port']} | {line['cycles']} | {line['cycles'] / line['random']:.1f} "
              f"| `{payload[:40].hex(' ')}` |", flush=True)


def ports(rules):
    """The single destination ports that rules name."""
    head = re.compile(r"(?m)^alert \S+ \S+ \S+ (?:->|<>) \S+ (\d+) ")
    return {int(port) for path in rules for port in head.findall(path.read_text(errors="replace"))}


def search(options):
    program, found, material = build_bench("worst"), [], work_folder() / "worst-material.json"
    contents = [literal.hex() for literal in literals(options.rules) if literal]
    material.write_text(json.dumps({"literals": contents, "ports": sorted(ports(options.rules) | {5000})}))
    for size in options.size:
        found += run(program, options.seconds, size, options.seed, material, *options.rules).splitlines()
    if options.keep:
        options.keep.write_text("".join(f"{line}\n" for line in found))
    print(f"{cpu_model()}; UDP, {options.seconds} s a size\n")
    rows(found)


def check(options):
    print(f"{cpu_model()}; UDP\n")
    rows(run(build_bench("worst"), "check", options.payloads, *options.rules).splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default=THALWEG)
    kinds = parser.add_subparsers(required=True)
    payload = kinds.add_parser("payloads")
    payload.add_argument("--rules", type=Path, nargs="+", required=True)
    payload.add_argument("--size", type=int, nargs="+", default=[64, 512, 1400])
    payload.add_argument("--port", type=int, default=5000, help="the destination port")
    payload.add_argument("--protocol", choices=["udp", "tcp"], default="udp")
    payload.add_argument("--only", nargs="+", help="only these payloads, beside random bytes")
    payload.add_argument("--rounds", type=int, default=5)
    payload.set_defaults(compare=compare_payloads)
    searched = kinds.add_parser("search")
    searched.add_argument("--size", type=int, nargs="+", default=[64, 1400])
    searched.add_argument("--seconds", type=int, default=60, help="for each size")
    searched.add_argument("--seed", type=int, default=1)
    searched.add_argument("--keep", type=Path, metavar="FILE")
    searched.set_defaults(compare=search)
    checked = kinds.add_parser("check")
    checked.add_argument("--payloads", type=Path, required=True)
    checked.set_defaults(compare=check)
    for parser_of_kind in [searched, checked]:
        parser_of_kind.add_argument("--rules", type=Path, nargs="+", required=True)
    classification = kinds.add_parser("classification")
    classification.add_argument("--peer", type=Path, help="the folder of the programs that run Open vSwitch")
    classification.add_argument("--count", type=int, default=10_000_000, help="packets a run")
    classification.add_argument("--rounds", type=int, default=5)
    classification.set_defaults(compare=compare_headers)
    options = parser.parse_args()
    options.compare(options)


if __name__ == "__main__":
    main()
