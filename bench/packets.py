"""The packets of captures that benches write."""

import struct

ADDRESSES = b"\2\0\0\0\0\1\2\0\0\0\0\2"
# Without the checksum that follows it.
SHORTEST = 60


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def frame(source, destination, protocol, transport, checksum_at=None):
    """An Ethernet frame of IPv4 or IPv6 with a transport header and what follows it; addresses as
    bytes. The checksum of the transport goes to the offset `checksum_at`, if there is one."""
    if checksum_at is not None:
        pseudo = source + destination + struct.pack("!HH", protocol, len(transport))
        at = slice(checksum_at, checksum_at + 2)
        transport = bytearray(transport)
        transport[at] = struct.pack("!H", checksum(pseudo + bytes(transport)))
    if len(source) == 16:
        header = b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(transport), protocol, 64) + source + destination
    else:
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0x4000, 64, protocol, 0) + source + destination
        header = b"\x08\0" + ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return (ADDRESSES + header + bytes(transport)).ljust(SHORTEST, b"\0")
