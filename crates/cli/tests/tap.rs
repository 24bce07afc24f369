//! TAP devices, with the host, other hosts and other programs at their ends: each test has its own
//! network namespaces.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;
#[path = "support/wires.rs"]
mod wires;

use laboratory::{WAY, folder, is_balanced, laboratory, read, total};
use serde_json::{Value, json};
use tempfile::TempDir;
use thalweg_testkit::peer;
use wires::{WIRES, arrived_in_order, between_hosts, port};

/// A gateway with one NIC, 'left', that can itself be reached by a TAP device, 'own'.
const GATEWAY: &str = "routes = 'routes.csv'\n[input.left]\ninterface = 'left'\n\
    [input.own]\ntap = 'own'\naddresses = ['10.2.0.2/24']\nmtu = 1400\nmac = '02:00:00:00:00:09'\n\
    queues = QUEUES\n[output.left]\ninterface = 'left'\n[output.own]\ntap = 'own'\nqueues = QUEUES\n\
    [nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n\
    [nf.edge.ports.left]\nmac = '02:00:00:00:00:01'\nip = '10.1.0.1'\nresolve = true\n\
    [nf.edge.ports.own]\nmac = '02:00:00:00:00:02'\nip = '10.2.0.1'\nmtu = 1400\nresolve = true\n";
const TABLE: &str = "10.1.0.0/24 direct left\n10.2.0.0/24 direct own\n";

/// Waits until the device is up.
const MADE: &str = "made() {\nfor _ in $(seq 100); do\n\
    ip link show up $1 2> /dev/null | grep -q . && return\nsleep 0.1\ndone\nreturn 1\n}\n";

/// The left host downloads from the gateway, and the gateway from the left host.
const DOWNLOADS: &str = r#"
ip route add default via 10.2.0.1
ip netns exec left ping -q -c 3 -i 0.1 -W 2 10.2.0.2 | grep -o '3 received'
head -c 20000000 /dev/urandom > blob
cat > get.py <<'END'
import sys, time, urllib.request
for _ in range(50):
    try:
        body = urllib.request.urlopen(sys.argv[1], timeout=20).read()
        break
    except OSError:
        time.sleep(0.1)
print("same" if body == open("blob", "rb").read() else "other")
END
/usr/bin/python3 -m http.server 8000 > /dev/null 2>&1 & server=$!
ip netns exec left /usr/bin/python3 -m http.server 8000 > /dev/null 2>&1 & other=$!
ip netns exec left /usr/bin/python3 get.py http://10.2.0.2:8000/blob
/usr/bin/python3 get.py http://10.1.0.2:8000/blob
kill $server $other
ip -o link show own | grep -o 'mtu 1400'
ip -o link show own | grep -o '02:00:00:00:00:09'
kill -INT $run
wait $run
! ip link show own 2> /dev/null
"#;

/// Packets on the wire, and packets, of all inputs.
fn arrived(report: &Value) -> [u64; 2] {
    let of = |port: &Value| port["segments"].as_u64().or(port["packets"].as_u64()).unwrap();
    let on_wire = report["inputs"].as_array().unwrap().iter().map(of).sum();
    [on_wire, total(report, "inputs", "packets").0]
}

fn reach_the_gateway(workers: u32, more: &str) -> Option<[u64; 2]> {
    let chain = GATEWAY.replace("QUEUES", &workers.to_string()) + more;
    let files = [("chain.toml", &chain[..]), ("table.txt", TABLE), ("routes.csv", WAY)];
    let folder = folder(&files);
    let script = format!(
        "{MADE}host left 1\n\
         $THALWEG run chain.toml --workers {workers} --json > report.json & run=$!\n\
         opened 2\nmade own\n{DOWNLOADS}"
    );
    let out = laboratory(folder.path(), &script)?;
    assert_eq!(out, "3 received\nsame\nsame\nmtu 1400\n02:00:00:00:00:09\n");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let counts = arrived(&report);
    assert!(counts[0] > 40_000_000 / 1400, "{report}");
    Some(counts)
}

#[test]
fn a_gateway_with_one_interface_is_reached_by_a_tap() {
    let Some([on_wire, packets]) = reach_the_gateway(1, "") else { return };
    assert!(packets < on_wire / 2, "super-packets travel whole: {packets} of {on_wire}");
}

#[test]
fn it_is_with_several_workers_and_without_super_packets() {
    let more = "[memory]\nlarge_frames = 0\n";
    let Some([on_wire, packets]) = reach_the_gateway(2, more) else { return };
    assert_eq!(on_wire, packets);
}

/// From one device to another, both of which others made: one of them in another network namespace.
const BETWEEN: &str = "routes = 'routes.csv'\n[input.one]\ntap = 'one'\n[input.two]\ntap = 'two'\n\
    [output.one]\ntap = 'one'\n[output.two]\ntap = 'two'\n";

#[test]
fn given_devices_stay_and_may_be_in_other_namespaces() {
    let files = [("chain.toml", BETWEEN), ("routes.csv", "*,ingress,two\n")];
    let folder = folder(&files);
    // What 'one' sends arrives at 'two', whose host is in another namespace.
    let script = format!(
        "{MADE}ip tuntap add dev one mode tap multi_queue\nip tuntap add dev two mode tap\n\
         ip netns add other\nip link set one up\nip link set two up\n\
         $THALWEG run chain.toml --json > report.json & run=$!\nsleep 1\n\
         ip link set two netns other\nip -n other link set two up\n\
         ip -n other addr add 192.0.2.2/24 dev two\nip addr add 192.0.2.1/24 dev one\n\
         ip neigh add 192.0.2.2 lladdr $(ip -n other -br link show two | awk '{{print $3}}') dev one\n\
         for n in $(seq 50); do echo $n > /dev/udp/192.0.2.2/9; done\nsleep 0.5\n\
         ip netns exec other cat /proc/net/snmp | awk '/^Udp:/ {{ if (seen++) print $3 }}'\n\
         kill -INT $run\nwait $run\nip link show one | grep -o 'one:'\n"
    );
    let Some(out) = laboratory(folder.path(), &script) else { return };
    assert_eq!(out, "50\none:\n");
    is_balanced(&read(folder.path(), "report.json"));
}

#[test]
fn a_device_that_is_removed_ends_the_run() {
    let files = [("chain.toml", BETWEEN), ("routes.csv", "*,ingress,two\n")];
    let folder = folder(&files);
    let script = format!(
        "{MADE}$THALWEG run chain.toml --json > report.json 2> errors & run=$!\nmade one\nmade two\n\
         ip addr add 192.0.2.1/24 dev one\n\
         ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev one\n\
         (for n in $(seq 2000); do echo $n > /dev/udp/192.0.2.2/9; done) 2> /dev/null & \n\
         sleep 0.2\nip link del two\nwait $run && exit 1\ngrep -o 'two: it was removed' errors | head -1\n"
    );
    let Some(out) = laboratory(folder.path(), &script) else { return };
    assert_eq!(out, "two: it was removed\n");
    let report = read(folder.path(), "report.json");
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
}

/// Has a queue of a device with several, without offload headers: the kernel then gives no other queue any.
const WITHOUT_HEADERS: &str = r#"
import fcntl, struct, time
TAP, NO_PI, MULTI_QUEUE, TUNSETIFF = 0x0002, 0x1000, 0x0100, 0x400454CA
device = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"several", TAP | NO_PI | MULTI_QUEUE))
time.sleep(60)
"#;

#[test]
fn what_is_no_tap_or_is_in_use_is_one_error() {
    let several = "routes = 'routes.csv'\n[input.one]\ntap = 'several'\nqueues = 2\n\
        [output.two]\ndiscard = true\n";
    let files = [
        ("chain.toml", BETWEEN),
        ("several.toml", several),
        ("routes.csv", "*,ingress,two\n"),
        ("other.py", WITHOUT_HEADERS),
    ];
    let folder = folder(&files);
    let script = format!(
        "{MADE}ip link add one type veth peer name three\n$THALWEG run chain.toml 2> first && exit 1\n\
         grep -o 'an interface of this name that is no TAP device' first\nip link del one\n\
         $THALWEG run chain.toml > /dev/null & run=$!\nmade two\n\
         $THALWEG run chain.toml 2> second && exit 1\ngrep -o 'no other program has' second\n\
         kill -INT $run\nwait $run\n\
         python3 other.py & other=$!\n\
         for _ in $(seq 100); do ip link show several > /dev/null 2>&1 && break; sleep 0.1; done\n\
         $THALWEG run several.toml 2> third && exit 1\ngrep -o 'no other program has' third\nkill $other\n"
    );
    let Some(out) = laboratory(folder.path(), &script) else { return };
    let busy = "no other program has\n";
    assert_eq!(out, format!("an interface of this name that is no TAP device\n{busy}{busy}"));
}

/// A run that is stopped takes no packets, so that a queue of ten has no room for most of 300.
#[test]
fn packets_that_a_device_has_no_room_for_are_counted() {
    let chain = "routes = 'routes.csv'\n[input.own]\ntap = 'own'\n\
        addresses = ['192.0.2.1/24']\n[output.o]\ndiscard = true\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,o\n")]);
    let script = format!(
        "{MADE}$THALWEG run chain.toml --json > report.json & run=$!\nmade own\nsleep 0.3\n\
         ip link set own txqueuelen 10\n\
         ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:02 dev own\nhalt $run\n\
         for n in $(seq 300); do echo $n > /dev/udp/192.0.2.9/9; done\nkill -CONT $run\nsleep 0.7\n\
         awk '$1 == \"own:\" {{ print $13 }}' /proc/net/dev\nkill -INT $run\nwait $run\n"
    );
    let Some(out) = laboratory(folder.path(), &script) else { return };
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let missed = &report["inputs"][0]["drops"]["receive-ring-full"];
    assert_eq!(missed.to_string(), out.trim(), "{report}");
    assert!(missed.as_u64() > Some(200), "{report}");
}

/// Sends 2^N packets of each flow N of eight, so that the count of a queue tells which flows it has.
const FLOWS: &str = r#"
import socket, sys
near, far, source, target = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for n in range(8):
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flow.bind((near, source + n))
    for _ in range(1 << n):
        flow.sendto(b"one", (far, target + n))
"#;

/// The same queue also as at an interface: what a worker keeps of a flow, both directions find.
#[test]
fn both_directions_of_a_flow_have_the_same_queue() {
    if !peer::has_root("the choice of queues") {
        return;
    }
    let chain = "routes = 'routes.csv'\n[input.left]\ninterface = 'left'\n\
        [input.own]\ntap = 'own'\naddresses = ['10.2.0.2/24']\nqueues = 2\n[output.o]\ndiscard = true\n";
    let files = [("chain.toml", chain), ("routes.csv", "*,ingress,o\n"), ("flows.py", FLOWS)];
    let folder = folder(&files);
    // The host's own stack must not answer what the left host sends.
    let script = format!(
        "{MADE}ip netns add left\nip netns exec left sysctl -qw net.ipv6.conf.default.disable_ipv6=1\n\
         ip link add left type veth peer name eth0 netns left\nsysctl -qw net.ipv4.conf.left.rp_filter=1\n\
         ip link set left up\nip -n left link set eth0 up\nip -n left addr add 10.2.0.9/24 dev eth0\n\
         ip -n left neigh add 10.2.0.2 lladdr 02:00:00:00:00:02 dev eth0\n\
         $THALWEG run chain.toml --workers 2 --json > report.json & run=$!\nmade own\n\
         ip neigh add 10.2.0.9 lladdr 02:00:00:00:00:09 dev own\n\
         until $THALWEG ctl report > early.json; do sleep 0.1; done 2> /dev/null\n\
         python3 flows.py 10.2.0.2 10.2.0.9 2000 3000\n\
         ip netns exec left python3 flows.py 10.2.0.9 10.2.0.2 3000 2000\n\
         sleep 0.5\nkill -INT $run\nwait $run\n"
    );
    if laboratory(folder.path(), &script).is_none() {
        return;
    }
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let flows = |name| {
        let queues = port(&report, "inputs", name)["queues"].as_array().unwrap();
        queues.iter().map(|queue| queue["packets"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let own = flows("own");
    assert!(own.iter().sum::<u64>() == 255 && !own.contains(&0), "{report}");
    assert_eq!(own, flows("left"), "{report}");
    let mode = port(&report, "inputs", "own")["mode"].as_str().unwrap();
    assert!(mode.contains("2 queues") && mode.ends_with(", queues by flow"), "{mode}");
}

/// Between the host itself and one at the interface 'right'.
const OWN: &str = "routes = 'routes.csv'\n[input.left]\ntap = 'left'\nOPTIONS[output.left]\ntap = 'left'\n\
    OPTIONS[input.right]\ninterface = 'right'\n[output.right]\ninterface = 'right'\n";
/// The address of both ends: without ARP a host sends to its own. With it, packets that wait for a neighbour may come
/// after later ones.
const OPTIONS: &str =
    "addresses = ['10.9.0.1/24']\nmac = '02:00:00:00:09:02'\non_removal = 'wait'\n";

/// All that can happen to a device, while packets are sent by it.
const CHANGES: &str = r"
sleep 0.5
ip link set left mtu 1400
ip link set left mtu 1500
ip link set left name other || { ip link set left down; ip link set left name other; ip link set other up; }
sleep 0.3
ip link set other name left || { ip link set other down; ip link set other name left; ip link set left up; }
ip link set left down
sleep 0.3
ip link set left up
sleep 0.3
ip link del left
until_logged 'interface left: it was removed' 1
sleep 0.3
ip tuntap add dev other mode tap multi_queue
ip link set other arp off
ip link set other name left
until_logged 'interface left: it is in use again' 2
made left
wait $sender
end
";

/// A chain with a device of so many queues.
fn between_host_and_right(workers: u32) -> TempDir {
    between_hosts(&OWN.replace("OPTIONS", &format!("{OPTIONS}queues = {workers}\n")))
}

/// Starts a run by so many workers.
fn begun(workers: u32) -> String {
    format!(
        "{MADE}{WIRES}ip netns add right\nwire right 2\n\
         ip -n right neigh replace 10.9.0.1 lladdr 02:00:00:00:09:02 dev eth0 nud permanent\n\
         $THALWEG run chain.toml -v --workers {workers} --json > report.json 2> run.err & run=$!\n\
         made left\nip link set left arp off\n"
    )
}

/// Packets from the host or to it are accounted for, none is out of order, and each event has its count.
fn goes_on_while_the_device_changes(workers: u32, is_from_host: bool) {
    let folder = between_host_and_right(workers);
    let (host, other) = ("env", "ip netns exec right");
    let (from, at, to) = if is_from_host { (host, other, 2) } else { (other, host, 1) };
    let script = format!(
        "{}receive {at}\nsleep 0.5\n{from} python3 sender.py 6 steady 10.9.0.{to} > sent & sender=$!\n{CHANGES}",
        begun(workers)
    );
    if laboratory(folder.path(), &script).is_none() {
        return;
    }
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
    let output = port(&report, "outputs", if is_from_host { "right" } else { "left" });
    arrived_in_order(folder.path(), output);
    // None was read without its offload header.
    assert_eq!(
        port(&report, "inputs", "left")["drops"]["frame-too-small"],
        Value::Null,
        "{report}"
    );
    for side in ["inputs", "outputs"] {
        let events = &port(&report, side, "left")["link_events"];
        for (event, count) in [("removed", 1), ("returned", 1), ("renamed", 2), ("mtu", 2)] {
            assert_eq!(events[event], json!(count), "{event} {side} {events}");
        }
        assert!(events["down"].as_u64() >= Some(1) && events["up"].as_u64() >= Some(1), "{events}");
    }
}

#[test]
fn packets_of_the_host_go_on_while_its_device_changes() {
    goes_on_while_the_device_changes(1, true);
    goes_on_while_the_device_changes(2, true);
}

#[test]
fn packets_to_the_host_go_on_while_its_device_changes() {
    goes_on_while_the_device_changes(2, false);
}

/// Flows in bursts with answers, by which the kernel itself would choose other queues while packets are under way.
/// `DISTURBED_SECONDS` makes it longer: `scripts/long.sh bursts`.
#[test]
fn packets_in_bursts_keep_the_order_of_their_flows() {
    if !peer::has_root("the choice of queues") {
        return;
    }
    let seconds = std::env::var("DISTURBED_SECONDS").map_or(3, |text| text.parse().unwrap());
    let folder = between_host_and_right(2);
    let script = format!(
        "{}receive_with back ip netns exec right\nsleep 0.5\n\
         python3 sender.py {seconds} bursts > sent\nend\n",
        begun(2)
    );
    if laboratory(folder.path(), &script).is_none() {
        return;
    }
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
    arrived_in_order(folder.path(), port(&report, "outputs", "right"));
    assert!(port(&report, "inputs", "right")["packets"].as_u64() > Some(100), "{report}");
}
