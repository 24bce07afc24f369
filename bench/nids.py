#!/usr/bin/env python3
"""The intrusion detection against Hyperscan.

    bench/nids.py [--rounds 5] [--rules FILE...] [--patterns 150 3000] [--size 64 256 512 1472]
                  [--protocol udp tcp established] [--connections 256] [--json FILE]

Ours is the whole way of a parsed packet through the NF: finding its connection, putting its
stream together (TCP), looking for all patterns, checking what was found against the rules.
Hyperscan (Debian's libhyperscan-dev), in block mode, looks for the same patterns in the same
payloads and does nothing else. One core; round by round, one after the other; medians. Both have
to find the same (over TCP ours may find some that lie over two segments). Connections of `established` have
had a handshake, timestamps in each segment, and acknowledgements, as most real ones; of `tcp`, a SYN alone.

Patterns are made up (paths, header fields, bytes), or, with --rules, the longest contents of
those rules. Payloads are random bytes, and requests of HTTP; each hundredth has a pattern in it.
"""

import argparse
import json
import random
import re
import statistics
from pathlib import Path

from common import build_bench, build_peer, cpu_model, json_lines, need, run, work_folder

PACKETS = 4096
# What the ratio is to be, by number of patterns and size; for others nothing is asked.
TARGETS = {(150, 64): 1.5, (150, 1472): 0.9, (3000, 64): 1.0, (3000, 256): 1.0, (3000, 512): 1.0}
SYLLABLES = [c + v + e for c in "bcdfghjklmnprstvwz" for v in "aeiou" for e in ["", "n", "r", "s"]]


def word(chance, least=2, most=4):
    return "".join(chance.choice(SYLLABLES) for _ in range(chance.randint(least, most)))


def made_up(chance):
    kind = chance.random()
    if kind < 0.4:
        return f"/{word(chance)}/{word(chance)}.{chance.choice(['php', 'cgi', 'asp'])}".encode()
    if kind < 0.7:
        return f"{word(chance).capitalize()}-{word(chance).capitalize()}: {word(chance)}".encode()
    return chance.randbytes(chance.randint(5, 20))


def of_rules(paths):
    """The longest content of each rule."""
    patterns = []
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            contents = re.findall(r'content:\s*"((?:[^"\\]|\\.)+)"', line)
            found = []
            for text in contents:
                parts, out = text.split("|"), b""
                for n, part in enumerate(parts):
                    out += bytes.fromhex(part) if n % 2 else re.sub(r"\\(.)", r"\1", part).encode()
                found.append(out)
            patterns += [max(found, key=len)] if found and line.startswith("alert") else []
    return [p for p in patterns if len(p) >= 4]


def request(chance, size):
    text = (f"GET /{word(chance)}/{word(chance)}.html?{word(chance)}={chance.randint(0, 9999)} HTTP/1.1\r\n"
            f"Host: www.{word(chance)}.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"
            "Accept: text/html,application/xhtml+xml;q=0.9\r\nAccept-Encoding: gzip, deflate\r\n")
    while len(text) < size:
        text += f"X-{word(chance).capitalize()}: {word(chance, 4, 12)}\r\n"
    return text[:size].encode()


def payloads(chance, kind, size, patterns):
    out = bytearray()
    for n in range(PACKETS):
        payload = bytearray(chance.randbytes(size) if kind == "random" else request(chance, size))
        if n % 100 == 99:
            pattern = chance.choice(patterns)[:size]
            at = chance.randint(0, size - len(pattern))
            payload[at:at + len(pattern)] = pattern
        out += payload
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rules", nargs="+", type=Path, default=[])
    parser.add_argument("--patterns", nargs="+", type=int, default=[150, 3000])
    parser.add_argument("--size", nargs="+", type=int, default=[64, 256, 512, 1472])
    parser.add_argument("--protocol", nargs="+", default=["udp", "tcp"], choices=["udp", "tcp", "established"])
    parser.add_argument("--connections", type=int, default=256, help="that the packets are of, in turn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    need("rust", "hyperscan")
    work, ours, peer = work_folder(), build_bench("nids"), build_peer("hyperscan", "-lhs")
    print(f"{cpu_model()}; {options.rounds} interleaved rounds\n")
    print("| patterns | payload | Hyperscan, ns | " + " | ".join(f"ours, {p}, ns" for p in options.protocol)
          + " | times Hyperscan |")
    print("| --- | --- | --- |" + " --- |" * (len(options.protocol) + 1))
    rows = []
    for count in options.patterns:
        chance = random.Random(count)
        pool = list(dict.fromkeys(of_rules(options.rules) if options.rules else
                                  (made_up(chance) for _ in range(2 * count))))
        patterns = sorted(chance.sample(pool, min(count, len(pool))))
        pattern_file = work / "patterns"
        pattern_file.write_text("".join(f"{p.hex()}\n" for p in patterns))
        for kind in "random", "http":
            for size in options.size:
                payload_file = work / "payloads"
                payload_file.write_bytes(payloads(chance, kind, size, patterns))
                ns, found = {}, {}
                for _ in range(options.rounds):
                    lines = json_lines(run(peer, pattern_file, payload_file, size, core=0))
                    for protocol in options.protocol:
                        lines += json_lines(run(ours, pattern_file, payload_file, size, protocol,
                                                options.connections, core=0))
                    for line in lines:
                        who = line.get("protocol", "hyperscan")
                        ns.setdefault(who, []).append(line["ns"])
                        found[who] = line["matches"]
                if found.get("udp", found["hyperscan"]) != found["hyperscan"]:
                    raise SystemExit(f"{count} patterns, {kind} {size}: found {found}")
                median = {who: statistics.median(values) for who, values in ns.items()}
                ratios = {p: median["hyperscan"] / median[p] for p in options.protocol}
                rows.append({"patterns": count, "payload": kind, "size": size, "ns": median,
                             "ratios": ratios, "matches": found})
                target = TARGETS.get((count, size))
                print(f"| {count} | {kind} {size} | {median['hyperscan']:.0f} | "
                      + " | ".join(f"{median[p]:.0f}" for p in options.protocol) + " | "
                      + ", ".join(f"{r:.2f}" for r in ratios.values())
                      + (f" ({target})" if target else "") + " |", flush=True)
    if options.json:
        result = {"schema": "thalweg.bench.nids/1", "processor": cpu_model(),
                  "rounds": options.rounds, "connections": options.connections, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
