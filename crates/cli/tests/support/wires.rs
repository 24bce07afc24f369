//! Hosts that exchange numbered packets of several flows by wires that change, and what arrives of them.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::laboratory::{folder, read};

/// Sends numbered packets of eight flows for a time, steadily or in bursts with pauses, to 10.9.0.2 or another
/// host; prints how many.
const SENDER: &str = r#"
import random, socket, struct, sys, time
seconds, bursts = float(sys.argv[1]), sys.argv[2] == "bursts"
to = sys.argv[3] if len(sys.argv) > 3 else "10.9.0.2"
flows = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
for n, flow in enumerate(flows):
    flow.bind(("", 20000 + n))
numbers, end = [0] * len(flows), time.time() + seconds
while time.time() < end:
    for _ in range(random.choice([1, 10, 100, 1000]) if bursts else 1):
        for n, flow in enumerate(flows):
            try:
                flow.sendto(struct.pack("!II", n, numbers[n]) + bytes(50), (to, 7001))
                numbers[n] += 1
            except OSError:
                time.sleep(0.001)
    time.sleep(random.choice([0, 0.001, 0.01, 0.2]) if bursts else 0.001)
print(sum(numbers))
"#;

/// Counts the packets of all flows, and those that are out of order, until it is terminated. With an argument it sends
/// each back.
const RECEIVER: &str = r#"
import json, signal, socket, struct, sys
counts, last, disorder = [0] * 8, [-1] * 8, 0
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
udp.bind(("", 7001))
def end(*_):
    print(json.dumps({"packets": sum(counts), "flows": sum(n > 0 for n in counts), "disorder": disorder}))
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
while True:
    packet, sender = udp.recvfrom(2048)
    if sys.argv[1:]:
        udp.sendto(packet, sender)
    flow, number = struct.unpack("!II", packet[:8])
    disorder += number <= last[flow]
    counts[flow], last[flow] = counts[flow] + 1, number
"#;

/// `wire NAME NUMBER` leads from an interface NAME to a host NAME with the address 10.9.0.NUMBER, which
/// knows the other: before it has a route, since a host may send packets that wait for a neighbour after later
/// ones. `until_logged WORDS COUNT` waits until the run has logged them as often. `begin WORKERS` starts a run
/// between both and a receiver at the right one, and `end` ends them; `receive PREFIX` starts a receiver by a command
/// that begins like that, and `receive_with ARGUMENT PREFIX` one with an argument.
pub const WIRES: &str = r#"
wire() {
    ip link add $1 type veth peer name eth0 netns $1 address 02:00:00:00:09:0$2
    ip link set $1 up
    ip -n $1 link set eth0 up
    ip -n $1 neigh replace 10.9.0.$((3 - $2)) lladdr 02:00:00:00:09:0$((3 - $2)) dev eth0 nud permanent
    ip -n $1 addr add 10.9.0.$2/24 dev eth0
}
count() { grep -c "$1" run.err || true; }
until_logged() {
    for _ in $(seq 100); do
        [ $(count "$1") -lt $2 ] || return 0
        sleep 0.05
    done
    echo "not logged: $1" >&2
    cat run.err >&2
    return 1
}
begin() {
    ip netns add left
    ip netns add right
    wire left 1
    wire right 2
    $THALWEG run chain.toml -v --workers $1 --json > report.json 2> run.err & run=$!
    receive ip netns exec right
    sleep 0.5
}
receive() { receive_with '' "$@"; }
receive_with() {
    local argument=$1
    shift
    "$@" python3 receiver.py $argument > received.json & receiver=$!
    for _ in $(seq 100); do [ -e ready ] && break; sleep 0.05; done
}
end() {
    sleep 0.5
    kill $receiver
    wait $receiver
    kill -INT $run
    wait $run
}
"#;

/// A folder with a chain between the ports 'left' and 'right', and the programs of hosts that send and receive.
pub fn between_hosts(chain: &str) -> TempDir {
    folder(&[
        ("chain.toml", chain),
        ("routes.csv", "*,left,right\n*,right,left\n"),
        ("sender.py", SENDER),
        ("receiver.py", RECEIVER),
    ])
}

/// What a report has of a port.
pub fn port<'a>(report: &'a Value, side: &str, name: &str) -> &'a Value {
    let ports = report[side].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).unwrap()
}

/// Checks what has arrived of packets that `output` sent while interfaces changed: at least a third, of all flows, and
/// none out of order.
pub fn arrived_in_order(folder: &Path, output: &Value) {
    let received = read(folder, "received.json");
    assert_eq!((&received["flows"], &received["disorder"]), (&json!(8), &json!(0)), "{received}");
    let sent: u64 = std::fs::read_to_string(folder.join("sent")).unwrap().trim().parse().unwrap();
    let arrived = received["packets"].as_u64();
    // While an interface is gone or down, packets are lost; after it has returned, they pass.
    assert!(arrived > Some(sent / 3), "{received} of {sent}: {output}");
    assert!(arrived <= output["packets"].as_u64(), "{received} {output}");
}
