#!/usr/bin/env bash
# Records branch.pcap again, and branch-esp.pcapng from it: real programs communicate over a pair of virtual
# interfaces between two private network namespaces, and dumpcap captures the
# traffic. Needs root and iproute2, dumpcap (Debian: wireshark-common), curl,
# openssl, python3, dnsmasq, ping.
set -euo pipefail
cd "$(dirname "$0")"

work=$(mktemp -d)
cleanup() {
    kill $(jobs -p) 2>/dev/null || true
    ip netns del branch 2>/dev/null || true
    ip netns del server 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

ip netns add branch
ip netns add server
ip link add b0 netns branch type veth peer name s0 netns server
ip -n branch link set b0 address 02:00:00:00:01:0a
ip -n server link set s0 address 02:00:00:00:01:01
ip -n branch addr add 10.1.0.10/24 dev b0
ip -n server addr add 10.1.0.1/24 dev s0
ip -n server addr add 198.51.100.80/32 dev s0
for ns in branch server; do ip -n $ns link set lo up; done
ip -n branch link set b0 up
ip -n server link set s0 up
ip -n branch route add default via 10.1.0.1
# The capture must hold packets as on a wire: no segments larger than the MTU and
# no checksums left to hardware.
for pair in branch:b0 server:s0; do
    ip netns exec "${pair%:*}" ethtool -K "${pair#*:}" tx off rx off tso off gso off gro off >/dev/null 2>&1 || true
done

ip netns exec server dumpcap -q -P -i s0 -w "$work/branch.pcap" 2>/dev/null &
sleep 1

mkdir "$work/www"
printf '<html><body>thalweg</body></html>\n' >"$work/www/index.html"
head -c 6000 /dev/zero | tr '\0' 'x' >"$work/www/report.txt"
(cd "$work/www" && exec ip netns exec server python3 -m http.server --bind 198.51.100.80 80 >/dev/null 2>&1) &
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=example.net \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
ip netns exec server openssl s_server -quiet -accept 198.51.100.80:443 -www \
    -key "$work/key.pem" -cert "$work/cert.pem" >/dev/null 2>&1 &
ip netns exec server dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts \
    --listen-address=198.51.100.80 --bind-interfaces --user=root \
    --address=/example.net/198.51.100.80 >/dev/null 2>&1 &
sleep 2

visit() { ip netns exec branch "$@" >/dev/null 2>&1 || true; }
lookup='import socket,struct,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2)
q=b"".join(bytes([len(p)])+p.encode() for p in sys.argv[1].split("."))+b"\0"
s.sendto(struct.pack(">6H",0x1234,0x0100,1,0,0,0)+q+struct.pack(">2H",1,1),("198.51.100.80",53)); s.recv(512)'
visit ping -c 2 -i 0.2 198.51.100.80
visit python3 -c "$lookup" www.example.net
visit curl -s -A thalweg-demo http://198.51.100.80/index.html
visit curl -s -A thalweg-demo http://198.51.100.80/report.txt
visit curl -s -A thalweg-demo 'http://198.51.100.80/cgi-bin/../../etc/passwd' --path-as-is
visit curl -s -A 'sqlmap/1.7' 'http://198.51.100.80/item?id=1%20UNION%20SELECT%20password'
visit curl -sk https://198.51.100.80/
sleep 1
kill %1
wait %1 2>/dev/null || true
cp "$work/branch.pcap" branch.pcap
"${THALWEG:-../../target/release/thalweg}" run branch-office.toml
cp out/branch-esp.pcapng branch-esp.pcapng
echo "branch.pcap: $(stat -c %s branch.pcap) bytes"
