//! Wireshark reads our captures, and we read Wireshark's.

mod common;

use std::path::Path;
use std::process::Command;

use thalweg_io::generate::{GeneratorInput, Spec};
use thalweg_io::{CaptureInput, CaptureOutput, Output};
use thalweg_packet::DropReason;
use thalweg_testkit::peer;

use common::{Seen, drain};

fn is_there(program: &str) -> bool {
    peer::is_there(program, &["--version"])
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    assert!(!errors.contains("damaged") && !errors.contains("cut short"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes generated packets, some of them longer on the wire than captured.
fn generate(path: &Path, packets: u64) -> Vec<Seen> {
    let spec = Spec { packets, ipv6: 0.3, vlan_share: 0.3, ..Spec::default() };
    let mut generator = GeneratorInput::new(spec).unwrap();
    let mut output = CaptureOutput::create(path).unwrap();
    let mut written = Vec::new();
    while let Some((bytes, timestamp)) = generator.next_packet() {
        let kept = bytes.len().min(700);
        let wire_len = bytes.len() as u32;
        output.write(&bytes[..kept], wire_len, timestamp).unwrap();
        written.push(Seen { bytes: bytes[..kept].to_vec(), wire_len, timestamp });
    }
    output.flush().unwrap();
    written
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn tshark_reads_every_format_as_it_was_written() {
    if !is_there("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz"] {
        let path = folder.path().join(name);
        let written = generate(&path, 500);
        let fields = ["-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len"];
        let output =
            run("tshark", &[&["-n", "-r", text(&path), "-T", "fields"], &fields[..]].concat());
        let expected: Vec<String> = written
            .iter()
            .map(|packet| {
                let (seconds, nanoseconds) = packet.timestamp.split();
                let (len, captured) = (packet.wire_len, packet.bytes.len());
                format!("{seconds}.{nanoseconds:09}\t{len}\t{captured}")
            })
            .collect();
        assert_eq!(output.lines().collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn every_format_that_editcap_writes_is_read() {
    if !is_there("editcap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("a.pcapng");
    let written = generate(&from, 300);
    let microseconds = |packet: &Seen| {
        let mut packet = packet.clone();
        packet.timestamp.0 -= packet.timestamp.0 % 1000;
        packet
    };
    for (format, exact) in
        [("pcap", false), ("modpcap", false), ("nsecpcap", true), ("pcapng", true)]
    {
        let to = folder.path().join(format);
        run("editcap", &["-F", format, text(&from), text(&to)]);
        let found = drain(&mut CaptureInput::open(&to, 1).unwrap());
        assert!(found.error.is_none(), "{format}: {:?}", found.error);
        let expected: Vec<Seen> =
            written.iter().map(|p| if exact { p.clone() } else { microseconds(p) }).collect();
        assert_eq!(found.packets, expected, "{format}");
    }
}

#[test]
fn a_capture_of_several_link_types_is_read_packet_by_packet() {
    if !is_there("mergecap") || !is_there("editcap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ethernet = generate(&path("a.pcap"), 40);
    run("editcap", &["-T", "ppp", text(&path("a.pcap")), text(&path("ppp.pcapng"))]);
    // Without its Ethernet header each untagged packet is raw IP.
    run(
        "editcap",
        &["-C", "14", "-L", "-T", "rawip", text(&path("a.pcap")), text(&path("raw.pcapng"))],
    );
    let parts = ["a.pcap", "ppp.pcapng", "raw.pcapng"].map(path);
    let merged = path("merged.pcapng");
    run(
        "mergecap",
        &["-a", "-w", text(&merged), text(&parts[0]), text(&parts[1]), text(&parts[2])],
    );
    let found = drain(&mut CaptureInput::open(&merged, 1).unwrap());
    assert!(found.error.is_none(), "{:?}", found.error);
    assert_eq!(found.received, 120);
    assert_eq!(found.drops.get(DropReason::UnsupportedLinkType), 40);
    assert_eq!(found.packets.len(), 80);
    assert_eq!(found.packets[..40], ethernet);
    let mut compared = 0;
    for (raw, packet) in found.packets[40..].iter().zip(&ethernet) {
        assert_eq!(raw.bytes[14..], packet.bytes[14..]);
        assert_eq!(raw.wire_len, packet.wire_len);
        if matches!(packet.bytes[12..14], [0x08, 0x00] | [0x86, 0xdd]) {
            assert_eq!(raw.bytes[12..14], packet.bytes[12..14]);
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}
