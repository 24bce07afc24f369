//! Packets of a capture that are passed over.

mod common;

use std::path::Path;
use std::sync::Arc;

use thalweg_io::{
    CaptureFiles, CaptureInput, CaptureOutput, Input, MemoryInput, Output, PassedOver, Selection,
    TimeRange,
};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds, Pool};

fn write(path: &Path, times: impl IntoIterator<Item = u64>) {
    let mut output = CaptureOutput::create(path).unwrap();
    for time in times {
        output.write(&[7; 60], 60, Nanoseconds(time)).unwrap();
    }
    output.flush().unwrap();
}

fn range(from: Option<u64>, to: Option<u64>) -> Selection {
    let times = TimeRange { from: from.map(Nanoseconds), to: to.map(Nanoseconds) };
    Selection { times, filter: None }
}

/// The inputs that receive `selection` of `files`.
fn inputs(files: &CaptureFiles, selection: &Selection, loops: u64) -> [Box<dyn Input>; 2] {
    [
        Box::new(CaptureInput::open_files(files, selection.clone(), loops).unwrap()),
        Box::new(MemoryInput::load_files(files, selection.clone(), loops).unwrap()),
    ]
}

/// The times that are received, and what is passed over in all and at most in one call.
fn drain(input: &mut dyn Input) -> (Vec<u64>, PassedOver, u64) {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    let (mut times, mut all, mut most) = (Vec::new(), PassedOver::default(), 0);
    loop {
        let received = input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
        times.extend(batch.lanes().into_iter().map(|lane| batch.meta.timestamp[lane].0));
        batch.release(Lanes::ALL);
        all.merge(&received.passed_over);
        most = most.max(received.passed_over.total());
        if received.ended {
            return (times, all, most);
        }
    }
}

#[test]
fn packets_outside_of_the_range_are_counted_and_not_received() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("a.pcap"), folder.path().join("b.pcapng.gz")];
    // Out of order, since a range is not where a file was captured in order.
    write(&paths[0], [10, 12, 40, 14, 16]);
    write(&paths[1], [11, 13, 15, 9]);
    let (files, _) = CaptureFiles::several(paths);
    for (from, to, expected, outside) in [
        (None, None, &[10, 11, 12, 13, 15, 9, 40, 14, 16][..], 0),
        (Some(12), None, &[12, 13, 15, 40, 14, 16], 3),
        (None, Some(13), &[10, 11, 12, 9], 5),
        (Some(12), Some(15), &[12, 13, 14], 6),
        (Some(41), None, &[], 9),
    ] {
        for mut input in inputs(&files, &range(from, to), 1) {
            let (times, passed_over, _) = drain(&mut *input);
            assert_eq!(times, expected, "{from:?} to {to:?}");
            assert_eq!(passed_over.outside, outside, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_replay_repeats_what_is_in_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    write(&path, [10, 20, 30, 1_000_000]);
    for mut input in inputs(&CaptureFiles::one(&path), &range(Some(20), Some(40)), 3) {
        let (times, passed_over, _) = drain(&mut *input);
        assert_eq!(times, [20, 30, 40, 50, 60, 70]);
        assert_eq!(passed_over.outside, 6);
    }
    // Nothing to repeat without end.
    for mut input in inputs(&CaptureFiles::one(&path), &range(None, Some(5)), 0) {
        let (times, passed_over, _) = drain(&mut *input);
        assert_eq!((times.len(), passed_over.outside), (0, 4));
    }
}

/// So that a run can end while nothing is selected.
#[test]
fn a_call_passes_over_a_bounded_number_of_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    write(&path, (0..20_000).chain([50_000]));
    let selection = range(Some(50_000), None);
    let mut input = CaptureInput::open_files(&CaptureFiles::one(&path), selection, 1).unwrap();
    let (times, passed_over, most) = drain(&mut input);
    assert_eq!((times, passed_over.outside), (vec![50_000], 20_000));
    assert!(most <= 4096, "{most} at once");
}

/// A capture of a link type with packets of these bytes.
#[cfg(feature = "libpcap")]
fn write_link(path: &Path, link: u32, packets: &[&[u8]]) {
    let mut bytes = Vec::new();
    let mut put = |words: &[u32]| words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
    put(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, link]);
    for packet in packets {
        let len = packet.len() as u32;
        [0, 0, len, len + 1000].iter().for_each(|w: &u32| bytes.extend(w.to_le_bytes()));
        bytes.extend_from_slice(packet);
    }
    std::fs::write(path, bytes).unwrap();
}

#[cfg(feature = "libpcap")]
#[test]
fn packets_of_other_link_types_are_matched_as_ethernet() {
    const UDP: [u8; 28] = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 7, 192, 0, 2, 1, 0, 5, 0, 53, 0, 8, 0,
        0,
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let mut tcp = UDP;
    tcp[9] = 6;
    for (text, link, received, filtered, dropped) in [
        ("udp port 53", 101, 1, 1, 0),
        ("ether proto 0x800 and tcp", 101, 1, 1, 0),
        ("ip6", 101, 0, 2, 0),
        // The length on the wire, with the Ethernet header.
        ("len == 1042", 101, 2, 0, 0),
        // What cannot become Ethernet is reported as such.
        ("udp", 127, 2, 0, 2),
    ] {
        write_link(&path, link, &[&UDP, &tcp]);
        let filter = Some(thalweg_io::Filter::compile(text).unwrap());
        let selection = Selection { filter, ..Selection::default() };
        for mut input in inputs(&CaptureFiles::one(&path), &selection, 1) {
            let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
            let mut drops = DropCounts::default();
            let found = input.receive(&mut batch, BATCH, &mut drops).unwrap();
            let counts = (found.packets, found.passed_over.filtered, drops.total());
            assert_eq!(counts, (received, filtered, dropped), "{text}");
        }
    }
}
