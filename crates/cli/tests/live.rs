//! Live interfaces, with Linux hosts at their other ends: each test has its own network
//! namespaces.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use laboratory::{
    ROUTER, TABLE, WAY, can_make_namespaces, folder, is_balanced, laboratory, read, total,
};
use serde_json::Value;
use thalweg_io::{CaptureInput, Input};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Pool};

fn packets(folder: &Path, capture: &str) -> Vec<Vec<u8>> {
    let mut input = CaptureInput::open(&folder.join(capture), 1).unwrap();
    let mut batch = Batch::new(Arc::new(Pool::anonymous(BATCH, 16 * 1024).unwrap()));
    let mut packets = Vec::new();
    loop {
        let received = input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
        packets.extend(batch.lanes().into_iter().map(|lane| batch.bytes(lane).to_vec()));
        batch.release(Lanes::ALL);
        if received.ended {
            return packets;
        }
    }
}

/// Downloads of 20 MB from the right host to the left one, in segments that the kernel leaves to
/// hardware that does not exist, after pings.
const DOWNLOADS: &str = r#"
ip netns exec left ping -q -c 3 -i 0.1 -W 2 10.2.0.2 | grep -o '3 received'
ip netns exec left ping -q -c 3 -i 0.1 -W 2 fd02::2 | grep -o '3 received'
head -c 20000000 /dev/urandom > blob
ip netns exec right /usr/bin/python3 -m http.server --bind :: 8000 > /dev/null 2>&1 & server=$!
for host in 10.2.0.2 [fd02::2]; do
    ip netns exec left /usr/bin/python3 - http://$host:8000/blob <<'END'
import sys, time, urllib.request
for _ in range(50):
    try:
        body = urllib.request.urlopen(sys.argv[1], timeout=20).read()
        break
    except OSError:
        time.sleep(0.1)
print("same" if body == open("blob", "rb").read() else "other")
END
done
kill $server
kill -INT $run
wait $run
"#;

/// `more` is added to the chain file, and `ways` are its routes. Returns the packets on the wire that
/// inputs and outputs had, and their packets.
fn route_between_hosts(workers: u32, more: &str, ways: &str) -> Option<[u64; 4]> {
    let chain = ROUTER.to_owned() + more;
    let files = [("chain.toml", &chain[..]), ("table.txt", TABLE), ("routes.csv", ways)];
    let folder = folder(&files);
    let script = format!(
        "host left 1; host right 2\n$THALWEG run chain.toml --workers {workers} --json > report.json & run=$!\nopened 4\n\
         {DOWNLOADS}"
    );
    let told = laboratory(folder.path(), &script)?;
    assert_eq!(told, "3 received\n3 received\nsame\nsame\n");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let figures = &report["nfs"][0]["figures"];
    // Both hosts by both protocols; each has a packet that waited for it.
    assert_eq!(figures["neighbors"], 4, "{report}");
    assert!(figures["neighbor_requests"].as_u64().unwrap() >= 2, "{report}");
    assert!(figures["resumed"].as_u64().unwrap() >= 2, "{report}");
    let on_wire = |parts: &str| {
        let of = |port: &Value| port["segments"].as_u64().or(port["packets"].as_u64()).unwrap();
        report[parts].as_array().unwrap().iter().map(of).sum()
    };
    let packets = |parts| total(&report, parts, "packets").0;
    let counts = [on_wire("inputs"), packets("inputs"), on_wire("outputs"), packets("outputs")];
    // 40 MB in packets of 1514 bytes at most.
    assert!(counts[0] > 40_000_000 / 1500, "{report}");
    Some(counts)
}

#[test]
fn hosts_reach_each_other_through_a_router_that_asks_for_them() {
    let Some([arrived, packets, left, _]) = route_between_hosts(1, "", WAY) else { return };
    assert!(packets < arrived / 2, "super-packets travel whole: {packets} of {arrived}");
    assert!(left > 40_000_000 / 1500);
}

#[test]
fn they_do_with_several_workers_and_segments() {
    let more = "[memory]\nlarge_frames = 0\n";
    let Some([arrived, packets, left, sent]) = route_between_hosts(2, more, WAY) else { return };
    assert_eq!((arrived, left), (packets, sent));
}

/// IPsec has no packets to protect, but sees all.
#[test]
fn an_nf_that_takes_no_super_packets_gets_segments() {
    let more = "[nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n[[nf.vpn.sa]]\nname = 'a'\n\
        direction = 'out'\nspi = 4097\nsource = '192.0.2.1'\ndestination = '192.0.2.10'\n\
        suite = 'aes128-gcm16'\nencryption_key = '1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11'\n\
        [[nf.vpn.policy]]\nmatch = 'udp,tp_dst=9'\naction = 'protect'\nsa = 'a'\n";
    let ways = "*,ingress,vpn\n*,vpn,edge\n*,edge,egress\n";
    for workers in [1, 2] {
        let Some([arrived, packets, left, sent]) = route_between_hosts(workers, more, ways) else {
            return;
        };
        assert!(packets < arrived / 2, "{packets} of {arrived}");
        assert_eq!(left, sent);
        assert!(sent > 40_000_000 / 1500, "{sent}");
    }
}

/// Each host fragments its packets itself, and reassembles those it receives: with and without
/// "don't fragment" of IPv4, and over IPv6, whose routers do not fragment.
#[test]
fn what_hosts_cut_is_put_together_and_cut_again() {
    let chain = ROUTER.to_owned() + "[nf.whole]\nkind = 'defrag'\n[nf.again]\nkind = 'refrag'\n";
    let files = [
        ("chain.toml", &chain[..]),
        ("table.txt", TABLE),
        ("routes.csv", "*,ingress,whole\n*,whole,again\n*,again,edge\n*,edge,egress\n"),
    ];
    let folder = folder(&files);
    let script = "host left 1; host right 2\n\
        $THALWEG run chain.toml --workers 2 --json > report.json & run=$!\nopened 4\n\
        for to in 10.2.0.2 fd02::2; do\n\
        ip netns exec left ping -q -c 3 -i 0.1 -W 2 $to > neighbors || cat neighbors\ndone\n\
        for how in '-M dont 10.2.0.2' '-M want 10.2.0.2' 'fd02::2'; do\n\
        ip netns exec left ping -q -c 5 -i 0.1 -W 2 -s 5000 $how | grep -o '5 received'\ndone\n\
        kill -INT $run\nwait $run\n";
    let Some(told) = laboratory(folder.path(), script) else { return };
    assert_eq!(told, "5 received\n5 received\n5 received\n");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let figure = |nf: &str, name: &str| {
        let of = |nfs: &Value| nfs["figures"][name].as_u64();
        let nfs = report["nfs"].as_array().unwrap();
        nfs.iter().find(|found| found["name"] == nf).and_then(of).unwrap()
    };
    // Requests and answers, each in four fragments.
    assert_eq!((figure("whole", "whole"), figure("again", "packets")), (30, 30), "{report}");
    assert_eq!((figure("whole", "fragments"), figure("again", "fragments")), (120, 120));
}

/// From a capture to an interface, and from its other end to a capture.
const TO_WIRE: &str = "routes = 'routes.csv'\n[input.i]\ncapture = 'in.pcapng'\n\
    [output.o]\ninterface = 'near'\n";
const FROM_WIRE: &str = "routes = 'routes.csv'\n[input.i]\ninterface = 'far'\n\
    [output.o]\ncapture = 'out.pcapng'\n";
const BETWEEN: &str = "ip link add near type veth peer name far\n\
    ip link set near up\nip link set far up\n";

/// Sends 20,000 packets from one end to the other, whose run is stopped meanwhile or not. All
/// arrive or are counted; returns how many our ring had no room for.
fn over_a_wire(pause: bool) -> Option<u64> {
    let files =
        [("to.toml", TO_WIRE), ("from.toml", FROM_WIRE), ("routes.csv", "*,ingress,egress\n")];
    let folder = folder(&files);
    let generate = ["gen", "in.pcapng", "--packets", "20000", "--vlan-share", "0.3"];
    let more = ["--ipv6", "0.3", "--malformed", "0.1", "--qinq-share", "0.5", "--sctp", "5"];
    support::succeeds(folder.path(), &[&generate[..], &more].concat());
    let [before, behind] = if pause { ["halt $run", "kill -CONT $run"] } else { [":", ":"] };
    let script = format!(
        "{BETWEEN}\n$THALWEG run from.toml --json > from.json & run=$!\nopened 1\n{before}\n\
         $THALWEG run to.toml --json > to.json\n{behind}\n\
         ip -s -j link show dev near > near.json\nsize=-\n\
         until [ $size = $(stat -c %s out.pcapng) ]; do\n\
             size=$(stat -c %s out.pcapng)\nsleep 1\n\
         done\nkill -INT $run\nwait $run\n"
    );
    laboratory(folder.path(), &script)?;
    let reports = ["to.json", "from.json"].map(|name| read(folder.path(), name));
    reports.iter().for_each(is_balanced);
    let [sent, received] = ["in.pcapng", "out.pcapng"].map(|name| packets(folder.path(), name));
    // No interface accepts a packet without a whole Ethernet header.
    let (whole, short): (Vec<_>, Vec<_>) = sent.into_iter().partition(|packet| packet.len() >= 14);
    assert_eq!(reports[0]["outputs"][0]["drops"], serde_json::json!({ "malformed": short.len() }));
    // The kernel strips outer tags from received packets, and drops packets that end within a tag
    // or the EtherType after it.
    let is_tagged = |packet: &Vec<u8>| matches!(packet[12..14], [0x81, 0x00] | [0x88, 0xa8]);
    let is_kept = |packet: &Vec<u8>| !is_tagged(packet) || packet.len() >= 20;
    let kept: Vec<_> = whole.into_iter().filter(is_kept).collect();
    assert!(received.iter().filter(|packet| is_tagged(packet)).count() > received.len() / 4);
    // The kernel's queue between both ends holds a thousand packets, which may be too few while
    // other processes run, and counts its losses.
    let between = read(folder.path(), "near.json");
    let lost = between[0]["stats64"]["tx"]["dropped"].as_u64().unwrap();
    let missed = reports[1]["inputs"][0]["drops"]["receive-ring-full"].as_u64().unwrap_or(0);
    assert_eq!(received.len() as u64 + lost + missed, kept.len() as u64);
    let mut sent = kept.iter();
    assert!(received.iter().all(|packet| sent.any(|other| other == packet)), "packets differ");
    Some(missed)
}

#[test]
fn what_one_end_sends_the_other_receives_byte_for_byte() {
    over_a_wire(false);
}

#[test]
fn what_the_ring_has_no_room_for_is_counted() {
    if let Some(missed) = over_a_wire(true) {
        assert!(missed > 5000, "the ring holds 8192 of 20000: {missed}");
    }
}

/// The kernel leaves out what a filter of the capture that was sent leaves out, too. It has packets
/// without their outer tags, so that only a filter that names tags distinguishes those.
#[cfg(feature = "libpcap")]
#[test]
fn a_filter_selects_the_same_packets_of_an_interface_and_of_a_capture() {
    let files = [("to.toml", TO_WIRE), ("routes.csv", "*,ingress,egress\n")];
    for (filter, tagged) in [
        ("tcp port 80", "0"),
        ("greater 600", "0"),
        ("vlan 10 and udp", "0.5"),
        ("ip6 and not vlan", "0.5"),
    ] {
        let folder = folder(&files);
        let path = folder.path();
        let traffic = ["--packets", "2000", "--vlan-share", tagged, "--ipv6", "0.5"];
        support::succeeds(path, &[&["gen", "in.pcapng"], &traffic[..]].concat());
        let from = FROM_WIRE.replace("'far'", &format!("'far'\nfilter = '{filter}'"));
        support::write(path, "from.toml", &from);
        let script = format!(
            "{BETWEEN}\n$THALWEG run from.toml --json > from.json & run=$!\nopened 1\nsleep 0.5\n\
             $THALWEG run to.toml --json > to.json\nsize=-\n\
             until [ $size = $(stat -c %s out.pcapng) ]; do\n\
                 size=$(stat -c %s out.pcapng)\nsleep 1\n\
             done\nkill -INT $run\nwait $run\n"
        );
        if laboratory(path, &script).is_none() {
            return;
        }
        let by_kernel = packets(path, "out.pcapng");
        let offline = TO_WIRE.replace("interface = 'near'", "capture = 'out.pcapng'");
        support::write(path, "offline.toml", &offline);
        support::succeeds(path, &["run", "offline.toml", "--filter", filter]);
        let expected = packets(path, "out.pcapng");
        assert!((50..1950).contains(&expected.len()), "{filter}: {}", expected.len());
        assert_eq!(by_kernel.len(), expected.len(), "{filter}");
        assert!(by_kernel == expected, "{filter}");
        is_balanced(&read(path, "from.json"));
    }
}

#[test]
fn an_interface_that_goes_down_comes_back_and_one_that_is_gone_ends_the_run() {
    let files =
        [("to.toml", TO_WIRE), ("from.toml", FROM_WIRE), ("routes.csv", "*,ingress,egress\n")];
    let folder = folder(&files);
    support::succeeds(folder.path(), &["gen", "in.pcapng", "--packets", "100"]);
    // While the far end is down the near one accepts packets and loses them.
    let script = format!(
        "{BETWEEN}\n$THALWEG run from.toml --json > from.json 2> from.err & run=$!\nopened 1\n\
         ip link set far down\n$THALWEG run to.toml --json > lost.json\n\
         ip link set far up\nuntil ip link show near | grep -q 'state UP'; do sleep 0.2; done\n\
         sleep 0.2\n$THALWEG run to.toml --json > to.json\n\
         sleep 0.5\nip link del far\nwait $run || echo ended with $?\n\
         $THALWEG run to.toml || echo ended with $?\n"
    );
    let Some(told) = laboratory(folder.path(), &script) else { return };
    assert_eq!(told, "ended with 1\nended with 78\n");
    let report = read(folder.path(), "from.json");
    assert_eq!(report["inputs"][0]["packets"], 100, "{report}");
    let failure = "interface far: it was removed";
    assert_eq!(report["failures"], serde_json::json!([failure]));
    let told = std::fs::read_to_string(folder.path().join("from.err")).unwrap();
    assert!(told.contains("interface far: it is down"), "{told}");
    let lost = read(folder.path(), "lost.json");
    assert_eq!(lost["inputs"][0]["packets"], 100, "{lost}");
    is_balanced(&lost);
}

/// The kernel reports an interface's removal only while it is up.
#[test]
fn so_does_one_that_was_down_when_it_went() {
    let files = [("from.toml", FROM_WIRE), ("routes.csv", "*,ingress,egress\n")];
    let folder = folder(&files);
    let script = format!(
        "{BETWEEN}\n$THALWEG run from.toml --json > from.json 2> from.err & run=$!\nopened 1\n\
         ip link set far down\nuntil grep -q 'far: it is down' from.err; do sleep 0.1; done\n\
         ip link del far\nwait $run || echo ended with $?\n"
    );
    let Some(told) = laboratory(folder.path(), &script) else { return };
    assert_eq!(told, "ended with 1\n");
    let failure = "interface far: it was removed";
    assert_eq!(read(folder.path(), "from.json")["failures"], serde_json::json!([failure]));
}

/// Also if the other inputs still have packets, and if the interface is an output that no packet is
/// for.
#[test]
fn one_of_several_that_is_removed_ends_the_run() {
    let chain = "routes = 'routes.csv'\n[input.i]\ninterface = 'left'\n\
        [input.j]\ninterface = 'right'\n[output.o]\ninterface = 'right'\n";
    let output = "routes = 'routes.csv'\n[input.i]\ninterface = 'left'\n\
        [output.o]\ninterface = 'right'\n";
    let endless = "routes = 'routes.csv'\n[input.i]\ninterface = 'right'\n\
        [input.j]\ncapture = 'in.pcapng'\nloop = 0\n[output.o]\ndiscard = true\n";
    let files = [
        ("both.toml", chain),
        ("output.toml", output),
        ("endless.toml", endless),
        ("routes.csv", "*,ingress,egress\n"),
    ];
    let folder = folder(&files);
    support::succeeds(folder.path(), &["gen", "in.pcapng", "--packets", "100"]);
    for (chain, sockets) in [("both", 3), ("output", 2), ("endless", 1)] {
        for workers in [1, 2] {
            // If all inputs are live, each port has as many as there are workers.
            let sockets = if chain == "endless" { sockets } else { sockets * workers };
            let script = format!(
                "host left 1; host right 2\n\
                 timeout 10 $THALWEG run {chain}.toml --json --workers {workers} > report.json &\n\
                 run=$!\nopened {sockets}\nip link del right\n\
                 wait $run || echo ended with $?\n"
            );
            let Some(told) = laboratory(folder.path(), &script) else { return };
            assert_eq!(told, "ended with 1\n", "{chain}");
            let report = read(folder.path(), "report.json");
            let failures = report["failures"].as_array().unwrap();
            assert!(failures.iter().all(|f| f == "interface right: it was removed"), "{report}");
            assert!(!failures.is_empty() && report["conserved"] == true, "{report}");
        }
    }
}

/// Without CAP_NET_ADMIN the buffer grows to the system's maximum rather than not at all.
#[test]
fn a_receive_buffer_is_as_large_as_the_system_permits() {
    let files = [("from.toml", FROM_WIRE), ("routes.csv", "*,ingress,egress\n")];
    let folder = folder(&files);
    let script = format!(
        "{BETWEEN}\n\
         setpriv --bounding-set=-net_admin --inh-caps=-net_admin \
         $THALWEG run from.toml > /dev/null & run=$!\nopened 1\n\
         ss --packet --memory | grep -o 'rb[0-9]*'\ncat /proc/sys/net/core/rmem_max\n\
         kill -INT $run\nwait $run\n"
    );
    let Some(told) = laboratory(folder.path(), &script) else { return };
    let numbers: Vec<u64> =
        told.lines().map(|line| line.trim_start_matches("rb").parse().unwrap()).collect();
    // The kernel doubles what is requested, for its own use.
    assert!(numbers[0] >= 2 * numbers[1].min(32 << 20), "{told}");
}

#[test]
fn what_an_interface_cannot_take_is_lost_by_name() {
    let files = [("to.toml", TO_WIRE), ("routes.csv", "*,ingress,egress\n")];
    let folder = folder(&files);
    support::succeeds(folder.path(), &["gen", "in.pcapng", "--packets", "100", "--size", "1400"]);
    let script = format!(
        "{BETWEEN}\nip link set near mtu 1300\n$THALWEG run to.toml --json > long.json\n\
         ip link set near down\n$THALWEG run to.toml --json > down.json 2> down.err\n\
         ip link set near up\n\
         setpriv --bounding-set=-all --inh-caps=-all $THALWEG run to.toml 2> right.err ||\n\
         echo ended with $?\n\
         ip tuntap add mode tun tunnel\nsed s/near/tunnel/ to.toml > tunnel.toml\n\
         $THALWEG run tunnel.toml 2> tunnel.err || echo ended with $?\n"
    );
    let Some(told) = laboratory(folder.path(), &script) else { return };
    assert_eq!(told, "ended with 78\nended with 78\n");
    let drops = |name| {
        let report = read(folder.path(), name);
        is_balanced(&report);
        report["outputs"][0]["drops"].clone()
    };
    let is_long = |packet: &&Vec<u8>| packet.len() > 1300 + 14;
    let long = packets(folder.path(), "in.pcapng").iter().filter(is_long).count();
    assert!(long > 10, "{long}");
    assert_eq!(drops("long.json"), serde_json::json!({ "too-big": long }));
    assert_eq!(drops("down.json"), serde_json::json!({ "output-failed": 100 }));
    let told = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(told("down.err").contains("interface near accepts no packets: Network is down"));
    assert!(
        told("right.err").contains("run as root or with the capability CAP_NET_RAW"),
        "{}",
        told("right.err")
    );
    assert!(told("tunnel.err").contains("its link is not Ethernet"), "{}", told("tunnel.err"));
}

#[test]
fn the_example_shows_a_gateway_at_work() {
    if !can_make_namespaces() {
        return;
    }
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/live-gateway/demo.sh");
    let output = Command::new(demo)
        .env("THALWEG", env!("CARGO_BIN_EXE_thalweg"))
        .env("NO_COLOR", "1")
        .output()
        .expect("the example starts");
    let (told, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{error}");
    for line in ["3 received", "you are 203.0.113.1\n", "Connection refused\n", "filter-reject 1"] {
        assert!(told.contains(line), "{line}: {told}{error}");
    }
}

#[test]
fn mistakes_about_interfaces_are_named() {
    let chain = "routes = 'routes.csv'\n[input.a]\ninterface = 'nowhere0'\nloop = 2\n\
        [input.b]\ncapture = 'in.pcap'\npromiscuous = true\n\
        [output.o]\ninterface = 'nowhere1'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,egress\n")]);
    support::succeeds(folder.path(), &["gen", "in.pcap", "--packets", "1"]);
    let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{told}");
    for mistake in [
        "there is no interface 'nowhere0'",
        "'loop' does not apply to an interface",
        "'promiscuous' does not apply to a capture",
        "there is no interface 'nowhere1'",
        "one of lo",
    ] {
        assert!(told.contains(mistake), "{mistake}: {told}");
    }
}

/// With a live interface a run listens without being asked, as ctl finds it.
#[test]
fn a_live_run_has_a_control_socket() {
    let chain = "[input.lan]\ninterface = 'lan'\n[output.o]\ndiscard = true\n\
        [[route]]\npath = ['ingress', 'egress']\n";
    let folder = folder(&[("edge.toml", chain)]);
    let script = r"
mount -t sysfs none /sys || true
host lan 1
$THALWEG run edge.toml --json > report.json &
opened 1
ip netns exec lan ping -nqc 3 -i 0.2 -W 1 10.1.0.1 > ping.txt || true
for _ in $(seq 50); do
    $THALWEG ctl ports --json > ports.json && break
    sleep 0.1
done
stat -c '%a %n' /run/thalweg/*
$THALWEG ctl -s edge stop
wait %1
ls /run/thalweg
$THALWEG run edge.toml --no-control --json > second.json &
sleep 0.5
ls /run/thalweg
kill -INT %1
wait %1
$THALWEG flows -q -i lan > flows.txt &
opened 1
for _ in $(seq 50); do
    $THALWEG ctl -s flows stop && break
    sleep 0.1
done
wait %1
ls /run/thalweg
";
    let Some(output) = laboratory(folder.path(), script) else { return };
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..2], ["600 /run/thalweg/edge.sock", "600 /run/thalweg/edge.sock.pid"]);
    assert!(lines[2].starts_with("run 'edge' (process ") && lines.len() == 4, "{output}");
    assert!(lines[3].starts_with("run 'flows' (process "), "{output}");
    let ports = read(folder.path(), "ports.json");
    assert_eq!(
        [&ports["ports"][0]["kind"], &ports["ports"][0]["what"]],
        ["interface", "interface lan"]
    );
    let mode = ports["ports"][0]["mode"].as_str().unwrap();
    assert_eq!(mode, "packet socket, TPACKET_V2 ring with 8192 slots, promiscuous");
    // Unknown where the file system of another network namespace cannot be replaced.
    let link = &ports["ports"][0]["link"];
    assert!(link.is_null() || (link["up"] == true && link["mtu"] == 1500), "{link}");
    let report = read(folder.path(), "report.json");
    assert!(report["packets_in"].as_u64() > Some(0) && report["conserved"] == true, "{report}");
}
