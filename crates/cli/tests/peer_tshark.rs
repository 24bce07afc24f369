//! tshark reads our captures without a malformed mark, and finds the same
//! five-tuple in each packet.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use support::{succeeds, write};
use thalweg_io::{CaptureInput, CaptureOutput, Input, Output};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropCounts, FiveTuple, Lanes, ParseStatus, Pool};
use thalweg_testkit::{captures, data_folder, peer};

/// The dissectors of the link, network and transport layers. All others are off:
/// we do not change the payloads, and do not check them.
const PROTOCOLS: &[&str] = &[
    "frame",
    "eth",
    "ethertype",
    "vlan",
    "ieee8021ad",
    "ip",
    "ipv6",
    "ipv6.hopopts",
    "ipv6.routing",
    "ipv6.fraghdr",
    "ipv6.dstopts",
    "ah",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmpv6",
    "arp",
    "mpls",
    "llc",
];

/// The names of all other dissectors of this tshark.
fn other_protocols() -> Vec<String> {
    let output = Command::new("tshark").args(["-G", "protocols"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|l| l.split('\t').nth(2));
    names.filter(|n| !PROTOCOLS.contains(n)).map(str::to_owned).collect()
}

/// One packet as tshark reads it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    malformed: bool,
    tuple: Option<(String, String, u8, u16, u16)>,
}

fn tshark(capture: &Path) -> Vec<Seen> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-n", "-T", "fields"]);
    for protocol in other_protocols() {
        command.args(["--disable-protocol", &protocol]);
    }
    // Each packet by itself, and only the outermost headers.
    command.args(["-E", "occurrence=f", "-E", "separator=;"]);
    for preference in
        ["ip.defragment:false", "ipv6.defragment:false", "tcp.desegment_tcp_streams:false"]
    {
        command.args(["-o", preference]);
    }
    let fields = [
        "_ws.malformed",
        "ip.src",
        "ip.dst",
        "ip.proto",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
    ];
    fields.iter().for_each(|f| {
        command.args(["-e", f]);
    });
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", capture.display());
    String::from_utf8(output.stdout).unwrap().lines().map(seen).collect()
}

fn seen(line: &str) -> Seen {
    let f: Vec<&str> = line.split(';').collect();
    let (ports, protocol) = match (f[6], f[8]) {
        ("", "") => (("0", "0"), f[3]),
        ("", _) => ((f[8], f[9]), "17"),
        _ => ((f[6], f[7]), "6"),
    };
    let (src, dst) = if f[1].is_empty() { (f[4], f[5]) } else { (f[1], f[2]) };
    let port = |p: &str| p.parse().unwrap_or(0);
    let tuple = (!src.is_empty()).then(|| {
        (
            src.to_owned(),
            dst.to_owned(),
            protocol.parse().unwrap_or(0),
            port(ports.0),
            port(ports.1),
        )
    });
    Seen { malformed: !f[0].is_empty(), tuple }
}

/// Compares each packet of a capture that we wrote with tshark: returns how many
/// five-tuples with ports agree, and how many more packets tshark marks as malformed.
fn compare(capture: &Path) -> (usize, usize) {
    let theirs = tshark(capture);
    let pool = Arc::new(Pool::anonymous(64, 10_496).unwrap());
    let mut input = CaptureInput::open(capture, 1).unwrap();
    let (mut batch, mut drops) = (Batch::new(pool), DropCounts::default());
    let (mut number, mut compared, mut malformed) = (0, 0, 0);
    loop {
        let ended = input.receive(&mut batch, BATCH, &mut drops).unwrap().ended;
        batch.parse(Lanes::ALL, Decapsulate::No);
        for lane in batch.lanes() {
            let (headers, their) = (batch.headers(lane), &theirs[number]);
            number += 1;
            let tuple = FiveTuple::from_key(&batch.key(lane));
            let (Some(t), ParseStatus::Complete) = (tuple, headers.status) else { continue };
            // tshark leaves the transport header of a first fragment alone.
            if !matches!(t.protocol, 6 | 17) || headers.l4 == 0 || headers.fragment {
                continue;
            }
            // tshark reads IP options: a source route changes the destination it
            // shows, and after a broken option it finds no ports at all.
            if headers.is_ipv4() && headers.l4 - headers.l3 != 20 {
                continue;
            }
            let without_ports = matches!(their.tuple, Some((.., 0, 0)));
            if their.malformed || without_ports && (t.src_port, t.dst_port) != (0, 0) {
                malformed += 1;
                continue;
            }
            let ours =
                Some((t.src.to_string(), t.dst.to_string(), t.protocol, t.src_port, t.dst_port));
            assert_eq!(ours, their.tuple, "{} packet {number}", capture.display());
            compared += 1;
        }
        batch.release(Lanes::ALL);
        if ended {
            break;
        }
    }
    assert_eq!(number, theirs.len());
    (compared, malformed)
}

#[test]
fn tshark_agrees_on_every_packet_of_our_outputs() {
    if !peer::is_there("tshark", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write(f, "routes.csv", "*, ingress, wall\n*, wall, egress\n");
    for name in ["out.pcap", "out.pcapng", "out.pcapng.gz"] {
        let chain = format!(
            "routes = 'routes.csv'\n[input.a]\ngenerate = {{ packets = 3000, flows = 300, ipv6 = 0.3, \
             vlan_share = 0.3, qinq_share = 0.3 }}\n[output.o]\ncapture = '{name}'\n\
             [nf.wall]\nkind = 'filter'\nrules = ['reject tcp,tp_dst=22', 'reject udp,tp_dst=53']\n"
        );
        write(f, "chain.toml", &chain);
        succeeds(f, &["run", "chain.toml"]);
        let (compared, malformed) = compare(&f.join(name));
        assert!(compared > 2000, "{compared}");
        assert_eq!(malformed, 0, "{name}");
    }
}

#[test]
fn tshark_agrees_on_the_packets_of_all_captures_passed_through() {
    let (Some(data), true) = (data_folder(), peer::is_there("tshark", &["--version"])) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all.pcapng");
    let pool = Arc::new(Pool::anonymous(64, 10_496).unwrap());
    let mut output = CaptureOutput::create(&all).unwrap();
    for path in captures(&data) {
        let Ok(mut input) = CaptureInput::open(&path, 1) else { continue };
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        while let Ok(received) = input.receive(&mut batch, BATCH, &mut drops) {
            output.send(&batch, batch.lanes(), &mut DropCounts::default()).unwrap();
            batch.release(Lanes::ALL);
            if received.ended {
                break;
            }
        }
    }
    output.flush().unwrap();
    let (compared, malformed) = compare(&all);
    println!("{compared} packets agree; tshark gives up on {malformed} more");
    assert!(compared > 15_000 && malformed * 50 < compared, "{compared}, {malformed}");
}
