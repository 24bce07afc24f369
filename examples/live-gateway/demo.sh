#!/usr/bin/env bash
# Runs the gateway between two hosts in network namespaces, and shows its effect and its report.
# Needs iproute2, ping, python3, and root or unprivileged user namespaces.
set -euo pipefail
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin:/sbin

if [ "${1:-}" != inside ]; then
    mine=(--net --mount --pid --fork --mount-proc --kill-child)
    [ "$(id -u)" = 0 ] || mine+=(--user --map-root-user)
    exec unshare "${mine[@]}" bash ./demo.sh inside
fi

thalweg=${THALWEG:-../../target/release/thalweg}
mount -t tmpfs none /run
sysctl -qw net.ipv6.conf.default.disable_ipv6=1

# host NAME INTERFACE ADDRESS: a host at the other end of one of our interfaces.
host() {
    ip netns add "$1"
    ip link add "$2" type veth peer name eth0 netns "$1"
    ip link set "$2" up
    ip -n "$1" link set lo up
    ip -n "$1" link set eth0 up
    ip -n "$1" addr add "$3" dev eth0
}
host client inside 10.1.0.2/24
host server outside 203.0.113.2/24
ip -n client route add default via 10.1.0.1

ip netns exec server python3 -c '
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"you are {self.client_address[0]}\n".encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 80), Answer).serve_forever()' &
"$thalweg" run chain.toml >/run/report & gateway=$!
until [ "$(awk 'NR > 1 && $5 > 0' /proc/net/packet | wc -l)" = 4 ]; do sleep 0.1; done
until ip netns exec server bash -c ': < /dev/tcp/127.0.0.1/80' 2>/dev/null; do sleep 0.1; done

echo '== The client pings the server'
ip netns exec client ping -c 3 -i 0.2 203.0.113.2 | grep received
echo
echo '== The client (10.1.0.2) requests its address as the server sees it'
ip netns exec client bash -c '
    exec 3<>/dev/tcp/203.0.113.2/80
    printf "GET / HTTP/1.0\r\n\r\n" >&3
    tail -n 1 <&3'
echo
echo '== The client tries telnet'
ip netns exec client bash -c ': </dev/tcp/203.0.113.2/23' 2>&1 | grep -om 1 'Connection refused' || true
echo
echo '== The gateway'
kill -INT $gateway
wait $gateway
cat /run/report
