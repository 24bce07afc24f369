//! Chains over devices of DPDK, with Linux hosts, captures or nothing at their other ends.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;
#[path = "support/wires.rs"]
mod wires;

use laboratory::{TABLE, WAY, folder, is_balanced, laboratory, read};
use serde_json::json;
use thalweg_testkit::peer;
use wires::{WIRES, arrived_in_order, between_hosts, port};

const CHAIN: &str = "routes = 'routes.csv'\n[input.left]\ndpdk = 'net_af_packet0,iface=left,qpairs=2'\n\
    queues = 2\n[output.left]\ndpdk = 'net_af_packet0,iface=left,qpairs=2'\nqueues = 2\n\
    [input.right]\ndpdk = 'net_af_packet1,iface=right'\n\
    [output.right]\ndpdk = 'net_af_packet1,iface=right'\n[nf.edge]\nkind = 'router'\n\
    routes = 'table.txt'\n[nf.edge.ports.left]\nmac = '02:00:00:00:00:01'\nip = '10.1.0.1'\n\
    ipv6 = 'fd01::1'\nresolve = true\n[nf.edge.ports.right]\nmac = '02:00:00:00:00:02'\n\
    ip = '10.2.0.1'\nipv6 = 'fd02::1'\nresolve = true\n";

/// Whether the program under test has DPDK.
fn has_dpdk() -> bool {
    let has = cfg!(all(feature = "dpdk", target_os = "linux"));
    if !has {
        peer::missing("DPDK: a build with the feature dpdk");
    }
    has
}

/// The same, and this user may open interfaces.
fn can_use_interfaces() -> bool {
    peer::has_root("devices of DPDK with interfaces") && has_dpdk()
}

/// Pings and downloads between two hosts, in a sandboxed run. The driver of packet sockets cuts
/// super-packets, so that the hosts make none.
#[test]
fn hosts_reach_each_other_by_dpdk() {
    if !can_use_interfaces() {
        return;
    }
    for workers in [1, 2] {
        let files = [("chain.toml", CHAIN), ("table.txt", TABLE), ("routes.csv", WAY)];
        let folder = folder(&files);
        let script = format!(
            "host left 1; host right 2\n\
             for host in left right; do ip -n $host link set eth0 gso_max_segs 1; done\n\
             $THALWEG run chain.toml --workers {workers} --json > report.json & run=$!\n\
             opened 5\n\
             for to in 10.2.0.2 fd02::2; do\n\
                 # The gateway keeps three packets while it resolves an address, which takes longer under load.\n\
                 ip netns exec left ping -q -c 1 -W 5 $to > /dev/null\n\
                 pinged left 50 -i 0.01 -s 1000 $to\n\
             done\n\
             head -c 3000000 /dev/urandom > blob\n\
             ip netns exec right python3 -m http.server --bind :: 8000 > /dev/null 2>&1 & server=$!\n\
             for host in 10.2.0.2 [fd02::2]; do\n\
                 for _ in $(seq 50); do\n\
                     ip netns exec left curl -s -m 20 http://$host:8000/blob > got && break\n\
                     sleep 0.1\n\
                 done\n\
                 cmp blob got && echo same\n\
             done\n\
             kill $server\n\
             $THALWEG ctl ports --json > ports.json\n\
             kill -INT $run\nwait $run\n"
        );
        let Some(told) = laboratory(folder.path(), &script) else { return };
        let report = read(folder.path(), "report.json");
        assert_eq!(told, "50 received\n50 received\nsame\nsame\n", "{report}");
        is_balanced(&report);
        assert!(report["packets_out"].as_u64().unwrap() >= 200, "{report}");
        assert_eq!(report["leaked_frames"].as_u64().unwrap_or(0), 0, "{report}");
        assert_eq!(report["sandbox"]["calls"], true, "{report}");
        let ports = read(folder.path(), "ports.json");
        let ports = ports["ports"].as_array().unwrap();
        for port in ports {
            assert_eq!(port["kind"], "dpdk", "{port}");
            let mode = port["mode"].as_str().unwrap();
            assert!(mode.starts_with("DPDK driver net_af_packet, "), "{mode}");
            assert!(mode.contains("checksums completed"), "{mode}");
            assert_eq!(port["link"]["mtu"], 1500, "{port}");
        }
        assert_eq!(ports.len(), 4);
    }
}

/// Between the hosts 'left' and 'right'.
const BRIDGE: &str = "routes = 'routes.csv'\n[input.left]\ndpdk = 'net_af_packet0,iface=left'\n\
    [output.left]\ndpdk = 'net_af_packet0,iface=left'\n\
    [input.right]\ndpdk = 'net_af_packet1,iface=right'\n\
    [output.right]\ndpdk = 'net_af_packet1,iface=right'\n";

/// What can happen to the interface of a device that goes on, while packets are sent by it.
const CHANGES: &str = r"
ip netns exec left python3 sender.py 4 steady > sent & sender=$!
sleep 0.5
ip link set right mtu 1400
ip link set right mtu 1500
ip link set right name other || { ip link set right down; ip link set right name other; ip link set other up; }
sleep 0.3
ip link set other name right || { ip link set other down; ip link set other name right; ip link set right up; }
ip link set right down
sleep 0.3
ip link set right up
ip -n right link set eth0 down
sleep 0.3
ip -n right link set eth0 up
wait $sender
end
";

/// The interface of a device is removed in the middle of traffic.
const REMOVAL: &str = r"
ip netns exec left python3 sender.py 2 steady > sent & sender=$!
sleep 0.5
ip link del right
wait $run && exit 1
grep -o 'was removed' run.err | head -1
kill $sender $receiver
";

/// Runs a script with packets between two hosts, by one worker or two.
fn bridged(workers: u32, script: &str) -> Option<(tempfile::TempDir, String)> {
    let folder = between_hosts(BRIDGE);
    let told = laboratory(folder.path(), &format!("{WIRES}begin {workers}\n{script}"))?;
    let report = read(folder.path(), "report.json");
    assert!(report["conserved"] == true && report["leaked_frames"] == 0, "{report}");
    assert!(report["packets_out"].as_u64() > Some(0), "{report}");
    Some((folder, told))
}

#[test]
fn devices_go_on_while_their_interfaces_change() {
    if !can_use_interfaces() {
        return;
    }
    for workers in [1, 2] {
        let Some((folder, _)) = bridged(workers, CHANGES) else { return };
        let report = read(folder.path(), "report.json");
        is_balanced(&report);
        arrived_in_order(folder.path(), port(&report, "outputs", "right"));
        for side in ["inputs", "outputs"] {
            let events = &port(&report, side, "right")["link_events"];
            for (event, count) in [("renamed", 2), ("mtu", 2)] {
                assert_eq!(events[event], json!(count), "{event} {side} {events}");
            }
            for event in ["down", "up", "no-carrier", "carrier"] {
                assert!(events[event].as_u64() >= Some(1), "{event} {side} {events}");
            }
        }
    }
}

#[test]
fn a_device_whose_interface_is_removed_ends_the_run() {
    if !can_use_interfaces() {
        return;
    }
    for workers in [1, 2] {
        let Some((folder, told)) = bridged(workers, REMOVAL) else { return };
        assert_eq!(told, "was removed\n");
        let report = read(folder.path(), "report.json");
        let failures = report["failures"].as_array().unwrap();
        assert!(failures.iter().all(|f| f.as_str().unwrap().contains("was removed")), "{report}");
        assert!(!failures.is_empty(), "{report}");
    }
}

/// Files of a driver lie beside the chain file, and the sandbox lets it have them.
#[test]
fn a_capture_passes_by_dpdk_as_it_is() {
    if !has_dpdk() {
        return;
    }
    let chain = "routes = 'routes.csv'\n\
        [input.c]\ndpdk = 'net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap'\n\
        [output.c]\ndpdk = 'net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,c\n")]);
    let packet = |n: u64| {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        bytes.extend((0..46 + n * 7 % 1400).map(|at| (at ^ n) as u8));
        (n * 1000, bytes)
    };
    let packets: Vec<_> = (0..1000).map(packet).collect();
    support::capture(folder.path(), "in.pcap", &packets);
    let arguments = ["run", "chain.toml", "--count", "1000", "--duration", "20s", "--json"];
    let (report, code, error) = support::report(folder.path(), &arguments);
    assert_eq!((code, report["packets_out"].as_u64()), (0, Some(1000)), "{report} {error}");
    is_balanced(&report);
    let counters = |direction: &str| &report[direction][0]["device_counters"];
    assert_eq!(counters("inputs")["rx_good_packets"], 1000, "{report}");
    assert_eq!(counters("outputs")["tx_good_packets"], 1000, "{report}");
    let bytes = |name| {
        let read = std::fs::read(folder.path().join(name)).unwrap();
        // Behind the header of the file, and without the times.
        let (mut packets, mut rest) = (Vec::new(), &read[24..]);
        while rest.len() >= 16 {
            let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            packets.push(rest[16..16 + len].to_vec());
            rest = &rest[16 + len..];
        }
        packets
    };
    let (sent, expected) = (bytes("out.pcap"), bytes("in.pcap"));
    assert_eq!(sent.len(), 1000);
    assert!(sent == expected, "the packets are the same, in their order");
}

/// A reload keeps a device that is the same, and opens another one in place of what has changed.
#[test]
fn a_reload_opens_another_device() {
    if !has_dpdk() {
        return;
    }
    let chain = |number: u8| {
        format!(
            "routes = 'routes.csv'\n[input.n]\ndpdk = 'net_null{number},size=64'\n\
             [output.n]\ndpdk = 'net_null{number},size=64'\n"
        )
    };
    let folder = folder(&[("chain.toml", &chain(0)), ("routes.csv", "*,ingress,n\n")]);
    let script = "$THALWEG run chain.toml --json > report.json & run=$!\n\
        until $THALWEG ctl ports > /dev/null 2>&1; do sleep 0.1; done\n\
        sed -i 's/net_null0/net_null1/' chain.toml\n$THALWEG ctl reload > /dev/null\n\
        $THALWEG ctl ports --json > ports.json\nsleep 0.2\nkill -INT $run\nwait $run\n";
    let Some(_) = laboratory(folder.path(), script) else { return };
    let ports = read(folder.path(), "ports.json");
    assert!(ports.to_string().contains("net_null1,size=64"), "{ports}");
    assert!(!ports.to_string().contains("net_null0"), "{ports}");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["packets_out"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn mistakes_in_sections_are_named() {
    if !has_dpdk() {
        return;
    }
    let chain = "routes = 'routes.csv'\n[input.a]\ndpdk = 'eth1'\nqueues = 0\ndescriptors = 16\n\
        mtu = 20\nidle_sleep_us = 20000\n[input.b]\ndpdk = 'net_ring0'\nfilter = 'tcp'\n\
        [input.c]\ndpdk = 'net_af_xdp0,iface=lo'\n\
        [output.o]\ndpdk = 'net_af_packet0'\n[output.p]\ndpdk = 'net_af_packet0,iface=nowhere0'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,egress\n")]);
    let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{told}");
    for mistake in [
        "'eth1' cannot name a device of DPDK",
        "a PCI address such as 0000:01:00.0, or a virtual device such as net_af_packet0,iface=eth1",
        "'queues' is 0",
        "'descriptors' is 16",
        "32 to 32768",
        "'mtu' is 20",
        "'idle_sleep_us' is 20000",
        "an interface by packet sockets: interface = \"NAME\"",
        "net_af_packet needs an interface",
        "net_af_xdp receives into mbufs of its own",
        "AF_XDP without DPDK: xdp = \"NAME\"",
        "there is no interface 'nowhere0'",
    ] {
        assert!(told.contains(mistake), "{mistake}: {told}");
    }
}

#[test]
fn devices_that_cannot_be_opened_end_the_run_with_one_error() {
    if !has_dpdk() {
        return;
    }
    for (device, expected) in [
        ("net_nosuch0", "DPDK net_nosuch0: DPDK has no driver of this name"),
        ("0000:ff:1f.7", "DPDK 0000:ff:1f.7: there is no such PCI device"),
        ("net_null0,nosuch=1", "DPDK net_null0: its driver refuses it"),
    ] {
        let chain = format!(
            "routes = 'routes.csv'\n[input.a]\ndpdk = '{device}'\n[output.o]\ndiscard = true\n"
        );
        let folder = folder(&[("chain.toml", &chain), ("routes.csv", "*,ingress,egress\n")]);
        let output = support::thalweg(folder.path(), &["run", "chain.toml", "--no-control"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{told}");
        assert!(told.contains(expected), "{told}");
        assert_eq!(told.matches("chain.toml:3:8: ").count(), 1, "{told}");
    }
}

/// A build without DPDK knows the kind, and names what it lacks.
#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_names_the_feature() {
    let chain =
        "routes = 'routes.csv'\n[input.a]\ndpdk = 'net_ring0'\n[output.o]\ndiscard = true\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,egress\n")]);
    let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{told}");
    let expected = "this build has no DPDK: it lacks the feature dpdk (Debian: libdpdk-dev)";
    assert!(told.contains(expected), "{told}");
    assert_eq!(told.matches("error").count(), 1, "{told}");
}
