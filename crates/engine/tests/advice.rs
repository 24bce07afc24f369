//! Warnings at the end of a run about packets that other settings would have kept.

mod common;

use common::Folder;
use thalweg_engine::{Control, Report, RunOptions, run};

/// Packets as a capture holds them: their bytes, and the length that they had on the wire.
type Captured = (Vec<u8>, usize);

/// A folder with a chain and a capture of `packets` of a link type.
fn folder(link: u32, packets: &[Captured]) -> Folder {
    let folder = Folder::new();
    let words = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 262_144, link];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (number, (packet, wire_len)) in packets.iter().enumerate() {
        let head = [1, number as u32, packet.len() as u32, *wire_len as u32];
        bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(packet);
    }
    std::fs::write(folder.path("in.pcap"), bytes).unwrap();
    folder.write("routes.csv", "*,ingress,egress\n");
    folder
}

fn chain(input: &str, more: &str) -> String {
    format!(
        "routes = 'routes.csv'\n[input.jumbo]\ncapture = 'in.pcap'\n{input}\n[output.o]\n\
         discard = true\n{more}"
    )
}

/// Packets of these lengths, whole.
fn whole(lengths: impl IntoIterator<Item = usize>) -> Vec<Captured> {
    lengths.into_iter().map(|len| (vec![2; len], len)).collect()
}

fn report(folder: &Folder, chain: &str, workers: usize) -> Report {
    folder.write("chain.toml", chain);
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    run(folder.load().unwrap(), &options, &Control::default()).unwrap()
}

/// The warnings of a run on one worker, streamed and from memory, which must be the same.
fn warnings(folder: &Folder, more: &str) -> Vec<String> {
    let [streamed, loaded, shared] = [("", 1), ("memory = true", 1), ("", 2)]
        .map(|(input, workers)| report(folder, &chain(input, more), workers).warnings);
    assert_eq!(streamed, loaded);
    assert_eq!(streamed, shared);
    streamed
}

#[test]
fn frames_that_are_too_small_name_the_size_that_suffices() {
    let folder = folder(1, &whole((0..300).map(|n| if n % 3 == 0 { 9014 } else { 100 })));
    let told = warnings(&folder, "");
    let expected = "input 'jumbo': 100 of 300 packets (33 %) did not fit in a frame \
        (frame-too-small); the longest has 9014 bytes: set frame_size in [memory] to 9152 or more";
    assert_eq!(told, [expected]);
    let kept = report(&folder, &chain("", "[memory]\nframe_size = 9152\n"), 1);
    assert_eq!((kept.packets_out, kept.warnings), (300, vec![]));
    let lost = report(&folder, &chain("", "[memory]\nframe_size = 9088\n"), 1);
    assert_eq!((lost.packets_dropped, lost.warnings.len()), (100, 1));
}

#[test]
fn even_one_packet_that_is_too_long_is_told() {
    let folder = folder(1, &whole((0..5000).map(|n| if n == 2000 { 2000 } else { 60 })));
    let told = warnings(&folder, "");
    assert!(told[0].contains("1 of 5000 packets (less than 0.1 %)"), "{told:?}");
    assert!(told[0].ends_with("set frame_size in [memory] to 2176 or more"), "{told:?}");
}

#[test]
fn packets_that_no_frame_holds_are_told_with_the_most_that_one_does() {
    let folder = folder(1, &whole([60_000, 9000, 60]));
    let told = warnings(&folder, "");
    assert!(told[0].contains("60000 bytes, but no frame holds more than 10240"), "{told:?}");
    assert!(told[0].contains("frame_size = 10432 in [memory]"), "{told:?}");
    let kept = report(&folder, &chain("", "[memory]\nframe_size = 10432\n"), 1);
    assert_eq!(kept.packets_out, 2);
    let most = folder_of(10_240);
    assert!(warnings(&most, "")[0].ends_with("set frame_size in [memory] to 10432 or more"));
}

fn folder_of(len: usize) -> Folder {
    folder(1, &whole([len]))
}

#[test]
fn a_capture_of_packets_in_part_is_told_unless_they_are_few() {
    let part = |all: usize, cut: usize| -> Vec<Captured> {
        (0..all).map(|n| (vec![2; 96], if n < cut { 1500 } else { 96 })).collect()
    };
    let told = warnings(&folder(1, &part(50, 20)), "");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("input 'jumbo': 20 of 50 packets (40 %) were captured"),
        "{told:?}"
    );
    assert!(told[0].contains("tcpdump -s 0"), "{told:?}");
    assert_eq!(warnings(&folder(1, &part(3000, 3)), ""), [""; 0]);
    // Each pass counts.
    let folder = folder(1, &part(50, 20));
    let looped = ["loop = 3", "loop = 3\nmemory = true"];
    for input in looped {
        let report = report(&folder, &chain(input, ""), 1);
        assert!(report.warnings[0].contains("60 of 150 packets"), "{:?}", report.warnings);
    }
}

#[test]
fn a_link_type_without_ethernet_form_is_told() {
    const RADIOTAP: u32 = 127;
    let told = warnings(&folder(RADIOTAP, &whole([100; 40])), "");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("40 of 40 packets (100 %) have a link type"), "{told:?}");
}

#[test]
fn what_the_traffic_itself_causes_is_no_warning() {
    // Truncated Cisco HDLC headers are malformed; a route drops all others.
    let folder = folder(104, &whole([2; 40]));
    let report = report(&folder, &chain("", ""), 1);
    assert_eq!((report.packets_dropped, report.warnings), (40, vec![]));
    let folder = self::folder(1, &whole([60; 40]));
    folder.write("routes.csv", "*,ingress,drop\n");
    let report = self::report(&folder, &chain("", ""), 1);
    assert_eq!((report.packets_dropped, report.warnings), (40, vec![]));
}
