//! Interfaces that change, go and return while traffic flows, and peers that send in bursts: each test
//! has its own network namespaces.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;
#[path = "support/wires.rs"]
mod wires;

use laboratory::{can_use_xdp, folder, is_balanced, laboratory, read};
use serde_json::{Value, json};
use thalweg_testkit::peer;
use wires::{WIRES, arrived_in_order, between_hosts, port};

/// A bridge between both hosts, whose ports have `kind` and these options. Root becomes another user.
fn bridge(kind: &str, options: &str) -> String {
    let port =
        |section: &str, name: &str| format!("[{section}.{name}]\n{kind} = '{name}'\n{options}\n");
    let ports = ["input", "output"].map(|side| port(side, "left") + &port(side, "right"));
    let user = if peer::is_root() { "[run]\nuser = 'nobody'\n" } else { "" };
    format!("routes = 'routes.csv'\n{user}{}", ports.concat())
}

/// Runs a script with a bridge whose ports have these options; returns what it prints.
fn run(kind: &str, options: &str, script: &str) -> Option<(tempfile::TempDir, String)> {
    let chain = bridge(kind, options);
    let folder = between_hosts(&chain);
    let printed = laboratory(folder.path(), &format!("{WIRES}{script}"))?;
    Some((folder, printed))
}

/// All that can happen to an interface, while packets are sent by it. It is taken again twice: when the
/// output is removed, and when the input is.
const CHANGES: &str = r"
ip netns exec left python3 sender.py 6 steady > sent & sender=$!
sleep 0.5
ip link set right mtu 1400
ip link set right mtu 1500
ip link set right name other || { ip link set right down; ip link set right name other; ip link set other up; }
sleep 0.3
ip link set other mtu 1450
ip link set other allmulticast on
ip link set other name right || { ip link set other down; ip link set other name right; ip link set right up; }
ip link set right down
sleep 0.3
ip link set right up
sleep 0.3
ip link del right
sleep 0.3
wire right 2
until_logged 'interface right: it is in use again' 2
sleep 0.3
ip link del left
sleep 0.3
wire left 1
until_logged 'interface left: it is in use again' 2
wait $sender
end
";

/// Checks what is left of a bridge by `kind` whose interfaces change. Packets are accounted for, none is
/// out of order, and each event has its count.
fn goes_on_while_interfaces_change(kind: &str, options: &str, workers: u32) {
    let options = format!("on_removal = 'wait'\n{options}");
    let script = format!("begin {workers}\n{CHANGES}");
    let Some((folder, printed)) = run(kind, &options, &script) else { return };
    assert_eq!(printed, "");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
    let output = port(&report, "outputs", "right");
    arrived_in_order(folder.path(), output);
    assert!(output["drops"]["output-failed"].as_u64() > Some(0), "{output}");
    for side in ["inputs", "outputs"] {
        let events = &port(&report, side, "right")["link_events"];
        for (event, count) in [("removed", 1), ("returned", 1), ("renamed", 2), ("mtu", 3)] {
            assert_eq!(events[event], count, "{event} {side} {events}");
        }
        assert!(events["down"].as_u64() >= Some(1) && events["up"].as_u64() >= Some(1), "{events}");
        assert_eq!(events["all-multicast"], 1, "{events}");
        let events = &port(&report, side, "left")["link_events"];
        assert_eq!((&events["removed"], &events["returned"]), (&json!(1), &json!(1)), "{events}");
    }
    let log = std::fs::read_to_string(folder.path().join("run.err")).unwrap();
    for line in [
        "interface right: its MTU is 1400, and was 1500",
        "interface other: it was right, and is followed",
        "interface other: its MTU is 1450, and was 1500",
        "interface right: it was removed",
        "interface right: it has returned",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
}

#[test]
fn packet_sockets_go_on_while_interfaces_change() {
    goes_on_while_interfaces_change("interface", "", 1);
}

#[test]
fn several_queues_go_on_while_interfaces_change() {
    goes_on_while_interfaces_change("interface", "", 2);
}

#[test]
fn af_xdp_goes_on_while_interfaces_change() {
    if can_use_xdp() {
        goes_on_while_interfaces_change("xdp", "mode = 'copy'", 1);
        goes_on_while_interfaces_change("xdp", "mode = 'generic'", 2);
    }
}

/// The peer sends in bursts of up to 8,000 packets, and pauses for up to 0.2 s. `DISTURBED_SECONDS` makes
/// it longer: `scripts/long.sh bursts`.
fn a_disturbed_peer(kind: &str, workers: u32) {
    let seconds = std::env::var("DISTURBED_SECONDS").map_or(3, |text| text.parse().unwrap());
    let script =
        format!("begin {workers}\nip netns exec left python3 sender.py {seconds} bursts\nend\n");
    let Some((folder, sent)) = run(kind, "", &script) else { return };
    let sent: u64 = sent.trim().parse().unwrap();
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
    let received = read(folder.path(), "received.json");
    assert_eq!((&received["flows"], &received["disorder"]), (&json!(8), &json!(0)), "{received}");
    let of = |count: &Value| count.as_u64().unwrap_or(0);
    let input = port(&report, "inputs", "left");
    // The kernel may lose packets before the input has them; what the input has, it counts.
    assert!(of(&input["packets"]) > sent * 9 / 10, "{input} of {sent}");
    let dropped = of(&report["packets_dropped"]);
    assert!(of(&received["packets"]) + dropped > sent * 9 / 10, "{received} of {sent}: {report}");
    let events = &port(&report, "outputs", "right")["link_events"];
    assert_eq!(events, &Value::Null);
}

#[test]
fn a_peer_that_sends_in_bursts_loses_no_frames_and_no_order() {
    a_disturbed_peer("interface", 1);
    a_disturbed_peer("interface", 2);
    if can_use_xdp() {
        a_disturbed_peer("xdp", 2);
    }
}

/// The interface of the default route is refused to outputs and AF_XDP, and not to inputs.
#[test]
fn the_interface_by_which_the_host_is_reached_needs_force() {
    let chain = |section: &str| {
        let other = if section.starts_with("[input") {
            "[output.o]\ndiscard = true\n"
        } else {
            "[input.i]\ngenerate = { packets = 10 }\n"
        };
        format!("routes = 'routes.csv'\n{other}{section}\n")
    };
    let sections = [
        ("reads", "[input.i]\ninterface = 'near'"),
        ("sends", "[output.o]\ninterface = 'near'"),
        ("forced", "[output.o]\ninterface = 'near'\nforce = true"),
        ("xdp", "[input.i]\nxdp = 'near'"),
        ("tap", "[output.o]\ntap = 'given'"),
        ("served", "[output.o]\ntap = 'served'"),
        ("serving", "[input.i]\ntap = 'served'"),
    ];
    let chains = sections.map(|(name, section)| (format!("{name}.toml"), chain(section)));
    let mut files: Vec<_> = chains.iter().map(|(name, text)| (&**name, &**text)).collect();
    files.push(("routes.csv", "*,ingress,egress\n"));
    let folder = folder(&files);
    let script = "ip link add near type veth peer name far\nip link set near up\nip link set far up\n\
        ip addr add 192.0.2.1/24 dev near\nip route add default via 192.0.2.2\n\
        try() { $THALWEG run $1.toml --duration 200ms > /dev/null 2> $1.err && echo $1 runs || echo $1 fails; }\n\
        try reads\ntry sends\ntry forced\n\
        SSH_CONNECTION='192.0.2.9 1 192.0.2.1 2222' try sends\n\
        ip route del default\ntry sends\n\
        SSH_CONNECTION='192.0.2.9 1 192.0.2.1 2222' try sends\ngrep -o 'a session of SSH' sends.err\n\
        ip tuntap add dev given mode tap multi_queue\nip link set given up\n\
        ip addr add 192.0.3.1/24 dev given\nip route add default via 192.0.3.2\ntry tap\n\
        ip route del default\nip tuntap add dev served mode tap multi_queue\nip link set served up\n\
        ip addr add 192.0.4.1/24 dev served\nip route add default via 192.0.4.2\n\
        $THALWEG run serving.toml > /dev/null 2>&1 & other=$!\n\
        for _ in $(seq 100); do ip link show served | grep -q LOWER_UP && break; sleep 0.05; done\n\
        try served\nkill -INT $other\nwait $other\ntry served\n";
    let Some(printed) = laboratory(folder.path(), script) else { return };
    assert_eq!(
        printed,
        "reads runs\nsends fails\nforced runs\nsends fails\nsends runs\nsends fails\n\
        a session of SSH\ntap runs\nserved fails\nserved runs\n"
    );
}

/// Serves at a port as a server of SSH does, until it is terminated.
const SERVER: &str = r#"
import socket, sys, time
open("/proc/self/comm", "w").write("sshd")
server = socket.create_server(("198.51.100.1", int(sys.argv[1])))
open("serving", "w").close()
peers = []
while True:
    peers.append(server.accept())
"#;

/// Default routes of several next hops, of next-hop objects, of other tables, and in two halves; sessions
/// of SSH at a server's other port, and those that only the environment of a parent names. Their local
/// address is on the loopback, or on a VLAN over a bridge over the interface.
#[test]
fn other_routes_and_sessions_need_force_as_well() {
    let chain = "routes = 'routes.csv'\n[input.i]\ngenerate = { packets = 10 }\n\
        [output.o]\ninterface = 'far'\n";
    let files = [("far.toml", chain), ("routes.csv", "*,ingress,egress\n"), ("server.py", SERVER)];
    let folder = folder(&files);
    let script = r#"
ip netns add other
ip link add near type veth peer name x
ip link set near up
ip link add far type veth peer name eth0 netns other
ip link set far up
ip -n other link set eth0 up
sysctl -qw net.ipv6.conf.far.disable_ipv6=0
ip addr add 192.0.2.1/24 dev far
ip -n other addr add 192.0.2.9/24 dev eth0
try() {
    $THALWEG run far.toml --duration 100ms > /dev/null 2> err && echo $1 runs && return
    echo $1 $(grep -oE 'a session of SSH|default route(, by [a-z0-9.]*)?' err)
}
try plain
ip route add default nexthop dev near nexthop via 192.0.2.2
try second-hop
ip route del default
ip nexthop add id 1 via 192.0.2.2 dev far
ip nexthop add id 2 group 1
sysctl -qw net.ipv4.nexthop_compat_mode=0
ip route add default nhid 2
try object
ip route del default
ip route add default via 192.0.2.2 table 1000
try no-rule
ip rule add from 192.0.2.1 lookup 1000
try rule
ip rule del lookup 1000
ip route add 0.0.0.0/1 via 192.0.2.2
ip route add 128.0.0.0/1 via 192.0.2.2
try halves
ip route del 0.0.0.0/1
ip route del 128.0.0.0/1
ip -6 route add 8000::/1 dev far
try ipv6-half
ip -6 route del 8000::/1
try plain
ip addr add 198.51.100.1/32 dev lo
ip -n other route add 198.51.100.1 via 192.0.2.1
SSH_CONNECTION='192.0.2.9 1 198.51.100.1 22' try loopback
SSH_CONNECTION='192.0.2.9 1 198.51.100.77 22' try elsewhere
export -f try
SSH_CONNECTION='192.0.2.9 1 198.51.100.1 22' bash -c 'unset SSH_CONNECTION; try parent; true'
python3 server.py 2022 & server=$!
for _ in $(seq 100); do [ -e serving ] && break; sleep 0.05; done
try listening
ip netns exec other python3 -c '
import socket, time
peer = socket.create_connection(("198.51.100.1", 2022))
open("connected", "w").close()
time.sleep(60)' & client=$!
for _ in $(seq 100); do [ -e connected ] && break; sleep 0.05; done
try other-port
kill $client $server
ip link add br0 type bridge
ip link set far master br0
ip link set br0 up
stacked=br0
ip link add link br0 name br0.7 type vlan id 7 2> /dev/null && stacked=br0.7
ip link set $stacked up
ip route add default dev $stacked
try stacked
"#;
    let Some(printed) = laboratory(folder.path(), script) else { return };
    // Kernels without VLANs have the bridge alone.
    assert_eq!(
        printed.replace("br0.7", "br0"),
        "plain runs\nsecond-hop default route\nobject default route\nno-rule runs\n\
        rule default route\nhalves default route\nipv6-half default route\nplain runs\n\
        loopback a session of SSH\nelsewhere runs\nparent a session of SSH\nlistening runs\n\
        other-port a session of SSH\nstacked default route, by br0\n"
    );
}

/// What the host sends by 'one' arrives at 'two'. Both were made by others, and 'one' is made anew.
#[test]
fn a_tap_device_is_taken_again_when_it_is_made_anew() {
    let chain = "routes = 'routes.csv'\n[input.one]\ntap = 'one'\non_removal = 'wait'\n\
        [output.two]\ntap = 'two'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,two\n")]);
    let script = format!(
        "{WIRES}make() {{\n\
            ip tuntap add dev one mode tap\nip link set one up\nip addr add 192.0.2.1/24 dev one\n\
            ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev one\n}}\n\
        send() {{ for n in $(seq 50); do echo $n > /dev/udp/192.0.2.2/9; done; }}\n\
        make\nip tuntap add dev two mode tap\nip link set two up\n\
        $THALWEG run chain.toml -v --json > report.json 2> run.err & run=$!\n\
        for _ in $(seq 100); do ip link show one | grep -q LOWER_UP && break; sleep 0.05; done\n\
        sleep 0.3\nsend\nsleep 0.3\nip link del one\n\
        until_logged 'interface one: it was removed' 1\nsleep 0.3\nmake\n\
        until_logged 'interface one: it is in use again' 1\nsleep 0.3\nsend\nsleep 0.3\n\
        kill -INT $run\nwait $run\n"
    );
    if laboratory(folder.path(), &script).is_none() {
        return;
    }
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let input = port(&report, "inputs", "one");
    assert!(input["packets"].as_u64() >= Some(100), "{report}");
    assert_eq!(
        (&input["link_events"]["removed"], &input["link_events"]["returned"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(report["leaked_frames"], 0);
}

/// By the stream of events of the control socket, by the metrics, and by the report as text.
#[test]
fn what_happens_to_interfaces_is_streamed_and_measured() {
    let chain = "routes = 'routes.csv'\n[input.left]\ninterface = 'left'\npromiscuous = false\n\
        [output.right]\ninterface = 'right'\n";
    let folder = folder(&[("edge.toml", chain), ("routes.csv", "*,ingress,right\n")]);
    let script = format!(
        "{WIRES}ip netns add left\nip netns add right\nwire left 1\nwire right 2\n\
        get() {{ curl -sN --unix-socket /run/thalweg/edge.sock http://run/$1; }}\n\
        $THALWEG run edge.toml > report.txt & run=$!\nopened 2\n\
        for _ in $(seq 100); do [ -S /run/thalweg/edge.sock ] && break; sleep 0.05; done\nsleep 0.3\n\
        get v1/events?every=60 > events & events=$!\nsleep 0.3\n\
        ip -n right link set eth0 down\nsleep 0.2\nip -n right link set eth0 up\n\
        ip link set left promisc on\nip link set left mtu 1400\nsleep 0.4\n\
        get metrics > metrics\nkill -INT $run\nwait $run\nwait $events || true\n"
    );
    if laboratory(folder.path(), &script).is_none() {
        return;
    }
    let text = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (events, metrics, report) = (text("events"), text("metrics"), text("report.txt"));
    let links: Vec<Value> = events
        .split("\n\n")
        .filter(|event| event.contains("event: link"))
        .map(|event| {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            serde_json::from_str(data).unwrap()
        })
        .collect();
    let shown: Vec<_> = links
        .iter()
        .map(|link| {
            ["port", "direction", "interface", "change"].map(|key| link[key].as_str().unwrap())
        })
        .collect();
    let expected = [
        ["right", "out", "right", "no-carrier"],
        ["right", "out", "right", "carrier"],
        ["left", "in", "left", "promiscuous"],
        ["left", "in", "left", "mtu"],
    ];
    assert_eq!(shown, expected, "{events}");
    assert_eq!(links[3]["text"], "its MTU is 1400, and was 1500");
    for (direction, port, event) in [
        ("output", "right", "no-carrier"),
        ("input", "left", "mtu"),
        ("input", "left", "promiscuous"),
    ] {
        let line = format!(
            "thalweg_port_link_events_total{{direction=\"{direction}\",port=\"{port}\",event=\"{event}\"}} 1"
        );
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert!(report.contains("events of input left: mtu 1, promiscuous 1"), "{report}");
    assert!(report.contains("events of output right: carrier 1, no-carrier 1"), "{report}");
}

/// A section whose `on_removal` is wrong is named with what was expected.
#[test]
fn a_wrong_policy_is_named() {
    for kind in ["interface", "xdp", "tap"] {
        let chain =
            format!("[input.a]\n{kind} = 'lo'\non_removal = 'stay'\n[output.o]\ndiscard = true\n");
        let folder = folder(&[("chain.toml", &chain)]);
        let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("stay") && error.contains("wait"), "{error}");
    }
}

/// The default route leads to the host's bridge, of which the interface is a port.
#[test]
fn an_interface_under_the_host_s_bridge_needs_force_too() {
    let chain = "routes = 'routes.csv'\n[input.i]\ngenerate = { packets = 10 }\n\
        [output.o]\ninterface = 'near'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,egress\n")]);
    let script = "mount -t sysfs none /sys 2> /dev/null || { echo no sysfs; exit 0; }\n\
        ip link add near type veth peer name far\nip link set near up\nip link set far up\n\
        ip link add bridge type bridge\nip link set near master bridge\nip link set bridge up\n\
        ip addr add 192.0.2.1/24 dev bridge\nip route add default via 192.0.2.2\n\
        $THALWEG run chain.toml > /dev/null 2> errors && exit 1\n\
        grep -o 'near: it has .*' errors | head -1\n\
        ip route del default\n$THALWEG run chain.toml > /dev/null\n";
    let Some(printed) = laboratory(folder.path(), script) else { return };
    if printed != "no sysfs\n" {
        assert_eq!(printed, "near: it has the host's default route, by bridge\n");
    }
}
