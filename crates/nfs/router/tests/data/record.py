#!/usr/bin/env python3
"""Records the netlink messages of kernel.txt, in namespaces of its own:

    unshare --net --map-root-user python3 record.py > kernel.txt

A line is a comment, `dump KIND HEX` for a datagram of a dump, or `change STEP HEX` for a datagram of
changes that a step has caused. All commands are below.
"""
import socket
import struct
import subprocess
import time

SETUP = """
link add lan type veth peer name lan-peer
link set lan-peer up
link add wan type veth peer name wan-peer
link set wan-peer up
link add mgmt type veth peer name mgmt-peer
link set mgmt-peer up
link set lo up
link set lan up
link set wan up
link set mgmt up
addr add 10.1.0.1/24 dev lan
addr add 10.2.0.1/24 dev wan
addr add 10.3.0.1/24 dev mgmt
addr add fd01::1/64 dev lan nodad
addr add fd02::1/64 dev wan nodad
neigh add 10.2.0.9 lladdr 02:00:00:00:02:09 dev wan nud permanent
neigh add fd02::9 lladdr 02:00:00:00:02:09 dev wan nud permanent
route add default via 10.3.0.9
route add 198.51.100.0/24 via 10.2.0.9
route add 203.0.113.0/24 nexthop via 10.1.0.9 weight 2 nexthop via 10.2.0.9 weight 1
route add blackhole 10.66.0.0/16
route add unreachable 10.67.0.0/16
route add prohibit 10.68.0.0/16
route add throw 10.69.0.0/16
route add 10.71.0.0/16 via inet6 fd02::9 dev wan
route add 10.72.0.0/16 via 172.16.0.9 dev lan onlink
route add 10.73.0.0/16 via 10.1.0.9 metric 50
route add 10.73.0.0/16 via 10.2.0.9 metric 20
route add 10.74.0.0/16 via 10.1.0.9 table 7
route add 10.75.0.0/16 encap ip id 5 dst 10.9.0.1 via 10.1.0.9 dev lan
nexthop add id 1 via 10.1.0.9 dev lan
nexthop add id 2 via 10.2.0.9 dev wan
nexthop add id 10 group 1/2,3
route add 10.76.0.0/16 nhid 10
route add 2001:db8:a::/48 via fd02::9
route add unreachable 2001:db8:b::/48
route add prohibit 2001:db8:c::/48
route add 2001:db8:d::/48 nexthop via fd01::9 nexthop via fd02::9
"""
STEPS = {
    "add": "route add 10.80.0.0/16 via 10.2.0.9",
    "replace": "route replace 10.80.0.0/16 via 10.1.0.9",
    "append": "route append 10.80.0.0/16 via 10.2.0.9",
    "del-first": "route del 10.80.0.0/16 via 10.1.0.9",
    "del-last": "route del 10.80.0.0/16",
    "metric": "route del 10.73.0.0/16 metric 20",
    "v6-append": "route append 2001:db8:a::/48 via fd01::9",
    "v6-del-one": "route del 2001:db8:a::/48 via fd02::9",
    "v6-replace": "route replace 2001:db8:a::/48 nexthop via fd01::9 nexthop via fd02::9",
    "v6-del": "route del 2001:db8:a::/48",
    "nexthop": "nexthop replace id 1 via 10.1.0.8 dev lan",
    "neighbor": "neigh replace 10.1.0.9 lladdr 02:00:00:00:01:09 dev lan nud reachable",
    "neighbor-gone": "neigh del 10.1.0.9 dev lan",
    "address": "addr add 10.9.9.9/32 dev lo",
    "address-gone": "addr del 10.9.9.9/32 dev lo",
    "nexthop-gone": "nexthop del id 10",
    "down": "link set lan down",
    "other-link": "link add other type veth peer name other-peer",
}
DUMPS = {
    "Links": (18, 0, 16),
    "Addresses": (22, 0, 8),
    "Objects": (106, 0, 8),
    "Neighbors": (30, 0, 12),
    "RoutesV4": (26, 2, 12),
    "RoutesV6": (26, 10, 12),
}


def ip(command):
    subprocess.run(["ip", *command.split()], check=True)


def receive(sock):
    while True:
        try:
            yield sock.recv(1 << 16)
        except BlockingIOError:
            return


def dump(name):
    kind, family, size = DUMPS[name]
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    sock.setsockopt(270, 12, 1)  # NETLINK_GET_STRICT_CHK
    body = bytes([family]) + bytes(size - 1)
    if name.startswith("Routes"):
        body += struct.pack("=HHI", 8, 15, 254)
    sock.send(struct.pack("=IHHII", 16 + len(body), kind, 0x301, 1, 0) + body)
    while True:
        data = sock.recv(1 << 16)
        print("dump", name, data.hex())
        at = 0
        while at < len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind in (2, 3):
                return
            at += (length + 3) & ~3


def main():
    for family in ("all", "default"):
        path = f"/proc/sys/net/ipv6/conf/{family}/disable_ipv6"
        open(path, "w").write("0")
    for command in SETUP.strip().splitlines():
        ip(command)
    time.sleep(3)  # until the kernel has finished its own work on the addresses
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    sock.bind((0, 0))
    for group in (1, 3, 5, 7, 9, 11, 32):
        sock.setsockopt(270, 1, group)
    sock.setblocking(False)
    print("# Recorded by record.py from Linux", open("/proc/sys/kernel/osrelease").read().split("-")[0])
    for name in DUMPS:
        dump(name)
    for step, command in STEPS.items():
        list(receive(sock))
        ip(command)
        time.sleep(0.2)
        print(f"# ip {command}")
        for data in receive(sock):
            print("change", step, data.hex())


main()
