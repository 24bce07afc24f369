//! Live interfaces with several queues, and Linux hosts at their other ends: several workers receive and
//! send at the same time.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use std::path::Path;

use laboratory::{ROUTER, TABLE, WAY, can_use_xdp, folder, is_balanced, laboratory, read};
use serde_json::Value;

/// Answers TCP connections with what they send, and counts the packets of each UDP flow, with those that
/// are out of order.
const SERVER: &str = r#"
import collections, json, socket, struct, sys, threading
def echo(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)
def listen(server):
    while True:
        threading.Thread(target=echo, args=server.accept()[:1], daemon=True).start()
server = socket.create_server(("::", 7000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
threading.Thread(target=listen, args=(server,), daemon=True).start()
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
udp.bind(("::", 7001))
seen, disorder = collections.defaultdict(lambda: -1), 0
counts = collections.Counter()
print("ready", flush=True)
while True:
    data, peer = udp.recvfrom(2048)
    if data == b"report":
        udp.sendto(json.dumps([sum(counts.values()), len(counts), disorder]).encode(), peer)
        continue
    number, = struct.unpack("!I", data[:4])
    disorder += number <= seen[peer[:2]]
    seen[peer[:2]] = number
    counts[peer[:2]] += 1
"#;

/// TCP connections and 32 UDP flows at once, over both versions of IP. The connections are the only flows of
/// the server's side, and their ports are chance: of 48, one of four queues gets none in 1 of 250,000 runs.
const CLIENT: &str = r#"
import os, socket, struct, threading, time
HOSTS, SIZE, FLOWS, PACKETS = ["10.2.0.2", "fd02::2"], 1_000_000, 32, 400
CONNECTIONS = 48
blob, wrong = os.urandom(SIZE), []
def connect(host):
    for _ in range(100):
        try:
            return socket.create_connection((host, 7000), timeout=20)
        except OSError:
            time.sleep(0.1)
def exchange(host):
    with connect(host) as connection:
        def send():
            connection.sendall(blob)
            connection.shutdown(socket.SHUT_WR)
        sender = threading.Thread(target=send)
        sender.start()
        parts = []
        while data := connection.recv(1 << 16):
            parts.append(data)
        sender.join()
        if b"".join(parts) != blob:
            wrong.append(host)
for host in HOSTS:
    connect(host).close()
threads = [threading.Thread(target=exchange, args=(HOSTS[n % 2],)) for n in range(CONNECTIONS)]
for thread in threads:
    thread.start()
flows = [socket.socket([socket.AF_INET, socket.AF_INET6][n % 2], socket.SOCK_DGRAM) for n in range(FLOWS)]
for number in range(PACKETS):
    for n, flow in enumerate(flows):
        flow.sendto(struct.pack("!I", number) + bytes(18), (HOSTS[n % 2], 7001))
    time.sleep(0.002)
for thread in threads:
    thread.join()
time.sleep(0.2)
flows[0].settimeout(10)
flows[0].sendto(b"report", (HOSTS[0], 7001))
print(flows[0].recv(2048).decode(), len(wrong))
"#;

/// Exchanges traffic of many flows with a chain of packet sockets between the hosts, by two workers; `more`
/// is added to the chain file. Returns its report.
fn exchange(more: &str, ways: &str) -> Option<Value> {
    let (told, report) = exchange_by(&(ROUTER.to_owned() + more), ways, "", "opened 8")?;
    // All arrive, in the order of their flow, and what connections send comes back as it was.
    assert_eq!(told, "[12800, 32, 0] 0\n");
    Some(report)
}

/// The same with any chain between hosts with this number of `queues`; `opened` waits until its ports are
/// open. Returns what the client tells, too.
fn exchange_by(chain: &str, ways: &str, queues: &str, opened: &str) -> Option<(String, Value)> {
    let files = [
        ("chain.toml", chain),
        ("table.txt", TABLE),
        ("routes.csv", ways),
        ("server.py", SERVER),
        ("client.py", CLIENT),
    ];
    let folder = folder(&files);
    let script = format!(
        "host left 1 {queues}; host right 2 {queues}\n\
        $THALWEG run chain.toml --workers 2 --json > report.json & run=$!\n{opened}\n\
        ip netns exec right /usr/bin/python3 server.py > ready & server=$!\n\
        until grep -q ready ready; do sleep 0.05; done\n\
        ip netns exec left timeout 60 /usr/bin/python3 client.py\n\
        kill $server\nkill -INT $run\nwait $run\n"
    );
    let told = laboratory(folder.path(), &script)?;
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    Some((told, report))
}

/// The packets of each queue of a port, which add up to those of the port.
fn queues(port: &Value) -> Vec<u64> {
    let queues = port["queues"].as_array().unwrap_or_else(|| panic!("{port}"));
    let packets: Vec<_> = queues.iter().map(|queue| queue["packets"].as_u64().unwrap()).collect();
    assert_eq!(packets.iter().sum::<u64>(), port["packets"].as_u64().unwrap(), "{port}");
    packets
}

fn uses_two_queues(report: &Value) {
    for port in ["inputs", "outputs"].iter().flat_map(|ports| report[ports].as_array().unwrap()) {
        let packets = queues(port);
        assert!(packets.len() == 2 && packets.iter().all(|n| *n > 50), "{port}");
        assert!(port["mode"].as_str().unwrap().starts_with("2 packet sockets"), "{port}");
    }
    let workers = report["by_worker"].as_array().unwrap();
    assert!(workers.iter().all(|worker| worker["packets"].as_u64() > Some(100)), "{report}");
}

#[test]
fn two_workers_with_two_queues_lose_and_reorder_nothing() {
    if let Some(report) = exchange("", WAY) {
        uses_two_queues(&report);
        assert!(report["inputs"][0]["segments"].is_u64(), "super-packets pass whole");
    }
}

#[test]
fn nor_do_they_in_segments() {
    if let Some(report) = exchange("[memory]\nlarge_frames = 0\n", WAY) {
        uses_two_queues(&report);
    }
}

#[test]
fn nor_do_they_with_a_pinned_nf() {
    let more = "[nf.watch]\nkind = 'monitor'\npinned = true\n";
    if let Some(report) = exchange(more, "*,ingress,watch\n*,watch,edge\n*,edge,egress\n") {
        uses_two_queues(&report);
    }
}

/// Two workers receive from four queues of an interface by AF_XDP, and send by two of another's.
#[test]
fn nor_do_they_by_af_xdp() {
    if !can_use_xdp() {
        return;
    }
    let chain = ROUTER
        .replace("interface = 'left'", "xdp = 'left'\nqueues = 4")
        .replace("interface = 'right'", "xdp = 'right'\nqueues = 4");
    let Some((told, report)) = exchange_by(&chain, WAY, "4", "redirected 2") else { return };
    // What came while a ring was full is lost, and counted; TCP sends it again.
    let (arrived, rest) = told.trim_start_matches('[').split_once(", ").unwrap();
    let dropped = report["packets_dropped"].as_u64().unwrap();
    assert!(arrived.parse::<u64>().unwrap() + dropped >= 12_800, "{told}{report}");
    assert_eq!(rest, "32, 0] 0\n");
    for (ports, count) in [("inputs", 4), ("outputs", 2)] {
        for port in report[ports].as_array().unwrap() {
            let packets = queues(port);
            assert!(packets.len() == count && packets.iter().all(|n| *n > 50), "{port}");
            let mode = format!("queues 0 to {}", count - 1);
            assert!(port["mode"].as_str().unwrap().contains(&mode), "{port}");
        }
    }
    let workers = report["by_worker"].as_array().unwrap();
    assert!(workers.iter().all(|worker| worker["packets"].as_u64() > Some(100)), "{report}");
}

/// A line sends by a queue that it shares.
#[test]
fn outputs_may_have_fewer_queues_than_inputs() {
    let chain = ROUTER.replace("[output.left]\n", "[output.left]\nqueues = 1\n");
    let Some(report) = run_while(
        &chain,
        7,
        // The router keeps three packets while it resolves an address.
        "ip netns exec left ping -q -c 1 -W 5 10.2.0.2 > /dev/null\npinged left 20 -i 0.01 10.2.0.2\n",
        "20 received\n",
    ) else {
        return;
    };
    assert_eq!(report["outputs"][0]["queues"], Value::Null);
    assert_eq!(queues(&report["outputs"][1]).len(), 2);
}

/// Runs a chain with two workers while `script` runs, which prints `printed`; returns its report.
fn run_while(chain: &str, sockets: u32, script: &str, printed: &str) -> Option<Value> {
    let folder = folder(&[("chain.toml", chain), ("table.txt", TABLE), ("routes.csv", WAY)]);
    let script = format!(
        "host left 1; host right 2\n$THALWEG run chain.toml --workers 2 --json > report.json & run=$!\n\
         opened {sockets}\n{script}kill -INT $run\nwait $run\n"
    );
    assert_eq!(laboratory(folder.path(), &script)?, printed);
    Some(report_of(folder.path()))
}

fn report_of(folder: &Path) -> Value {
    let report = read(folder, "report.json");
    is_balanced(&report);
    report
}

/// The kernel takes the sockets of an interface that is down out of their group, and puts them back.
#[test]
fn queues_go_on_after_a_link_was_down() {
    let script = "ip netns exec left ping -q -c 1 -W 5 10.2.0.2 > /dev/null\n\
        pinged left 10 -i 0.01 10.2.0.2\nip link set right down\nsleep 0.2\n\
        ip link set right up\nsleep 0.3\n\
        for _ in $(seq 50); do\n\
            ip netns exec left ping -q -c 1 -W 2 10.2.0.2 > /dev/null && break\n\
        done\n\
        pinged left 20 -i 0.01 10.2.0.2\n\
        for n in 1 2 3 4 5 6 7 8; do ip -n left addr add 10.1.0.1$n/24 dev eth0\n\
        pinged left 3 -i 0.01 -I 10.1.0.1$n 10.2.0.2; done\n";
    let printed = format!("10 received\n20 received\n{}", "3 received\n".repeat(8));
    let Some(report) = run_while(ROUTER, 8, script, &printed) else { return };
    for input in report["inputs"].as_array().unwrap() {
        assert!(queues(input).iter().all(|packets| *packets > 0), "{input}");
    }
}

#[test]
fn an_interface_that_is_removed_ends_the_run_once() {
    let script = "host left 1; host right 2\n\
        $THALWEG run chain.toml --workers 2 --json > report.json & run=$!\nopened 8\n\
        ip link del left\nwait $run && echo ended || echo failed\n";
    let folder = folder(&[("chain.toml", ROUTER), ("table.txt", TABLE), ("routes.csv", WAY)]);
    let Some(told) = laboratory(folder.path(), script) else { return };
    assert_eq!(told, "failed\n");
    let report = read(folder.path(), "report.json");
    assert_eq!(report["failures"], serde_json::json!(["interface left: it was removed"]));
    assert_eq!(report["conserved"], true);
}

#[test]
fn a_wrong_number_of_queues_is_named() {
    for (text, found) in [("0", "'queues' is 0"), ("257", "'queues' is 257")] {
        let chain =
            format!("[input.a]\ninterface = 'lo'\nqueues = {text}\n[output.o]\ndiscard = true\n");
        let folder = folder(&[("chain.toml", &chain)]);
        let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(found) && error.contains("1 to 256"), "{error}");
    }
}
