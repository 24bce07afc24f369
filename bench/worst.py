#!/usr/bin/env python3
"""What is the dearest traffic? Cycles a packet of inputs that are chosen to be dear, against usual ones.

    bench/worst.py payloads --rules FILE... [--size 64 512 1400] [--rounds 5]

`payloads`: the intrusion detection over UDP of one repeated byte, of two, of text, HTTP, all literals
of the rules one after the other, against random bytes of the same length.

One core, interleaved rounds, medians.
"""

import argparse
import json
import random
import re
import statistics
import struct
from pathlib import Path

from common import THALWEG, built, cpu_model, run, work_folder, write_capture

PACKETS = 4096
# The loops over a capture take about this long, in packets times bytes.
EFFORT = 60_000_000


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def datagram(source, destination, ports, payload):
    """An Ethernet frame of IPv4 and UDP; addresses as numbers."""
    transport = struct.pack("!HHHH", *ports, 8 + len(payload), 0)
    length = 20 + len(transport) + len(payload)
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 17, 0, source, destination)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + b"\x08\0" + ip + transport + payload


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


def ids_chain(folder, name, capture, rules):
    names = ", ".join(f'"{rule.resolve()}"' for rule in rules)
    (folder / "worst-ids.csv").write_text("*, ingress, ids\n*, ids, egress\n")
    path = folder / f"{name}.toml"
    path.write_text(f'routes = "worst-ids.csv"\n[input.in]\ncapture = "{capture}"\nmemory = true\n'
                    f'[output.out]\ndiscard = true\n[nf.ids]\nkind = "nids"\nrules = [{names}]\n'
                    f'[nf.ids.variables]\nEXTERNAL_NET = "any"\n')
    return path


def compare_payloads(options):
    program, folder = built(options.thalweg), work_folder()
    print(f"{cpu_model()}; UDP, {options.rounds} interleaved rounds\n")
    print("| payload | bytes | cycles a packet | times random bytes |\n| --- | --- | --- | --- |", flush=True)
    for size in options.size:
        chains = {}
        for name, make in payloads(options.rules).items():
            if options.only and name != "random" and name not in options.only:
                continue
            capture = folder / "worst.pcap"
            ends = [(0x0A000000 + n % 64, 0xC0A80000 + n % 32, (1024 + n % 997, 5000 + n % 7)) for n in range(PACKETS)]
            write_capture(capture, (datagram(*end, make(n, size)) for n, end in enumerate(ends)))
            kept = capture.rename(folder / f"worst-{len(chains)}.pcap")
            chains[name] = ids_chain(folder, f"worst-{len(chains)}", kept, options.rules)
        count = max(PACKETS, EFFORT // (size + 200))
        cycles = {name: [] for name in chains}
        for _ in range(options.rounds):
            for name, chain in chains.items():
                most = count if name == "random" else count // 4
                report = json.loads(run(program, "run", chain, "--loop", 0, "--count", most, "--json", "--quiet"))
                cycles[name].append(report["nfs"][0]["cycles_per_packet"])
        for name, all_rounds in cycles.items():
            ratio = statistics.median(a / b for a, b in zip(all_rounds, cycles["random"]))
            print(f"| {name} | {size} | {statistics.median(all_rounds):.0f} | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", default=THALWEG)
    kinds = parser.add_subparsers(required=True)
    payload = kinds.add_parser("payloads")
    payload.add_argument("--rules", type=Path, nargs="+", required=True)
    payload.add_argument("--size", type=int, nargs="+", default=[64, 512, 1400])
    payload.add_argument("--only", nargs="+", help="only these payloads, beside random bytes")
    payload.add_argument("--rounds", type=int, default=5)
    payload.set_defaults(compare=compare_payloads)
    options = parser.parse_args()
    options.compare(options)


if __name__ == "__main__":
    main()
