#!/usr/bin/env python3
"""A capture of an everyday mix: pages over HTTP, TLS, DNS, bulk transfers.

    bench/everyday.py OUT.pcap [--rounds 60] [--seed 1]

A round is, interleaved: 40 connections of HTTP with up to eight requests each (pages of this
repository's documents, half of them compressed, a third of those in chunks; forms; pictures of random
bytes), 40 of TLS 1.3 with real handshakes (Python's ssl), 80 queries of DNS and their answers, one
transfer of 2 MB of random bytes. TCP has handshakes, segments of up to 1,448 bytes, an acknowledgment
for two of them, and ends; checksums are right. For bench/suricata.py, beside the capture of many
protocols.
"""

import argparse
import gzip
import random
import ssl
import struct
import subprocess
import tempfile
from pathlib import Path

import packets
from common import write_capture

SEGMENT = 1448
PAGES = [path.read_bytes() for path in sorted((Path(__file__).resolve().parent.parent / "docs").rglob("*.md"))]
AGENTS = [b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", b"curl/8.5.0",
          b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36"]
CLIENT, SERVER = 0, 1
SYN, ACK, PSH, FIN = 2, 16, 8, 1


def frame(ends, sender, protocol, transport, checksum_at):
    """An Ethernet frame between two (address, port), sent by one of them."""
    return packets.frame(ends[sender][0], ends[1 - sender][0], protocol, transport, checksum_at)


def udp(ends, sender, payload):
    header = struct.pack("!HHHH", ends[sender][1], ends[1 - sender][1], 8 + len(payload), 0)
    return frame(ends, sender, 17, header + payload, 6)


def connection(ends, exchange, chance):
    """The frames of a TCP connection in which `exchange`, (sender, bytes), is said in turn."""
    next_ = [chance.getrandbits(32), chance.getrandbits(32)]

    def segment(sender, flags, payload=b""):
        acknowledged = next_[1 - sender] if flags & ACK else 0
        header = struct.pack("!HHIIBBHHH", ends[sender][1], ends[1 - sender][1], next_[sender], acknowledged,
                             0x50, flags, 65000, 0, 0)
        next_[sender] = (next_[sender] + len(payload) + bool(flags & (SYN | FIN))) % 2**32
        return frame(ends, sender, 6, header + payload, 16)

    yield segment(CLIENT, SYN)
    yield segment(SERVER, SYN | ACK)
    yield segment(CLIENT, ACK)
    for sender, text in exchange:
        for number, at in enumerate(range(0, len(text), SEGMENT)):
            last = at + SEGMENT >= len(text)
            yield segment(sender, ACK | (PSH if last else 0), text[at:at + SEGMENT])
            if last or number % 2:
                yield segment(1 - sender, ACK)
    yield segment(CLIENT, ACK | FIN)
    yield segment(SERVER, ACK | FIN)
    yield segment(CLIENT, ACK)


def http(chance):
    agent, host = chance.choice(AGENTS), b"www%d.example.org" % chance.randrange(50)
    for _ in range(chance.randint(1, 8)):
        kind, path = chance.random(), b"/%x/page-%d" % (chance.getrandbits(32), chance.randrange(1000))
        head = b"HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n" % (host, agent)
        if kind < 0.15:
            form = b"&".join(b"field%d=%x" % (n, chance.getrandbits(64)) for n in range(chance.randint(2, 60)))
            yield CLIENT, b"POST %s %sContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s" % (
                path, head, len(form), form)
        else:
            yield CLIENT, b"GET %s?q=%x %sCookie: id=%x\r\n\r\n" % (path, chance.getrandbits(40), head, chance.getrandbits(128))
        begin = chance.choice(PAGES)
        body = chance.randbytes(chance.randint(500, 40_000)) if kind > 0.8 else begin[:chance.randint(300, 30_000)]
        answer = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: %s\r\n" % (
            b"image/png" if kind > 0.8 else b"text/html; charset=utf-8")
        if kind <= 0.8 and chance.random() < 0.5:
            body, answer = gzip.compress(body, 6), answer + b"Content-Encoding: gzip\r\n"
            if chance.random() < 1 / 3:
                parts = [body[at:at + 4096] for at in range(0, len(body), 4096)]
                chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
                yield SERVER, answer + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n"
                continue
        yield SERVER, answer + b"Content-Length: %d\r\n\r\n" % len(body) + body


def contexts(folder):
    """TLS contexts of a client and of a server with a certificate of its own."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=www.example.org", "-keyout", f"{folder}/key", "-out", f"{folder}/certificate"],
                   check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(f"{folder}/certificate", f"{folder}/key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return client, server


def tls(chance, both):
    """What both sides of a connection send: a handshake, then a few requests and answers."""
    streams = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in both]
    name = f"www{chance.randrange(50)}.example.org"
    sides = [both[CLIENT].wrap_bio(*streams[CLIENT], server_hostname=name),
             both[SERVER].wrap_bio(*streams[SERVER], server_side=True)]

    def carry(sender):
        sent = streams[sender][1].read()
        streams[1 - sender][0].write(sent)
        return [(sender, sent)] if sent else []

    shaken = [False, False]
    while not all(shaken):
        for side in (CLIENT, SERVER):
            try:
                sides[side].do_handshake()
                shaken[side] = True
            except ssl.SSLWantReadError:
                pass
            yield from carry(side)
    for _ in range(chance.randint(1, 5)):
        for side, size in ((CLIENT, chance.randint(100, 900)), (SERVER, chance.randint(300, 60_000))):
            sides[side].write(chance.randbytes(size))
            yield from carry(side)


def name_of(chance):
    labels = [b"www%d" % chance.randrange(1000), chance.choice([b"example", b"test", b"invalid"]), b"org"]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def queries(chance, ends):
    number, name = chance.getrandbits(16), name_of(chance)
    question = name + struct.pack("!HH", chance.choice([1, 1, 28, 15]), 1)
    yield udp(ends, CLIENT, struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question)
    answers = [b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 300, 4) + chance.randbytes(4) for _ in range(chance.randint(1, 4))]
    yield udp(ends, SERVER, struct.pack("!6H", number, 0x8180, 1, len(answers), 0, 0) + question + b"".join(answers))


def interleaved(flows, chance):
    """The frames of all flows, a few of one after a few of another."""
    flows = list(flows)
    while flows:
        at = chance.randrange(len(flows))
        for _ in range(chance.randint(1, 8)):
            packet = next(flows[at], None)
            if packet is None:
                flows[at] = flows[-1]
                flows.pop()
                break
            yield packet


def frames(rounds, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        both = contexts(folder)
        for _ in range(rounds):
            client = lambda: (bytes([192, 168, chance.randrange(8), chance.randrange(2, 250)]), chance.randrange(32768, 61000))
            ends = lambda port: (client(), (bytes([198, 51, 100, chance.randrange(1, 250)]), port))
            flows = [connection(ends(80), http(chance), chance) for _ in range(40)]
            flows += [connection(ends(443), tls(chance, both), chance) for _ in range(40)]
            flows += [queries(chance, ends(53)) for _ in range(80)]
            flows.append(connection(ends(8443), [(SERVER, chance.randbytes(2_000_000))], chance))
            yield from interleaved(flows, chance)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write_capture(options.out, frames(options.rounds, options.seed))


if __name__ == "__main__":
    main()
