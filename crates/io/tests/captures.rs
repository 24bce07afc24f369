//! Laws of reading and writing captures.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use thalweg_io::{CaptureInput, CaptureOutput, Input, IoError, MemoryInput, Output};
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, Nanoseconds, Pool};

use common::{Drained, Seen, drain};

const PLAIN: [&str; 2] = ["a.pcap", "a.pcapng"];
const ALL: [&str; 4] = ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz"];

fn read(path: &Path) -> Drained {
    match CaptureInput::open(path, 1) {
        Ok(mut input) => drain(&mut input),
        Err(error) => Drained { error: Some(error), ..Drained::default() },
    }
}

fn packet(n: usize) -> Seen {
    let bytes = vec![n as u8; 14 + n * 7 % 50];
    let wire_len = bytes.len() as u32 + n as u32 % 3;
    Seen { bytes, wire_len, timestamp: Nanoseconds(1_700_000_000_000_000_000 + n as u64 * 1001) }
}

fn write(output: &mut CaptureOutput, packet: &Seen) {
    output.write(&packet.bytes, packet.wire_len, packet.timestamp).unwrap();
}

/// A capture of `count` packets, and the file's length before the first record
/// and after each.
fn written(path: &Path, count: usize) -> (Vec<Seen>, Vec<usize>) {
    let mut output = CaptureOutput::create(path).unwrap();
    let length = || std::fs::metadata(path).unwrap().len() as usize;
    let mut lengths = vec![length()];
    let packets: Vec<Seen> = (0..count).map(packet).collect();
    for packet in &packets {
        write(&mut output, packet);
        output.flush().unwrap();
        lengths.push(length());
    }
    (packets, lengths)
}

#[test]
fn a_file_cut_anywhere_gives_exactly_its_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    for name in PLAIN {
        let path = folder.path().join(name);
        let (packets, lengths) = written(&path, 12);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = 0;
        // A section's header ends before that of the file, which holds an interface.
        let header = if name == "a.pcap" { 24 } else { 44 };
        let ends = [&[header], &lengths[..]].concat();
        for cut in header..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = read(&path);
            let records = lengths.iter().filter(|length| **length <= cut).count();
            let expected = &packets[..records.saturating_sub(1)];
            assert_eq!(found.packets, expected, "{name} cut at {cut}");
            match found.error {
                None => assert!(ends.contains(&cut), "{name} cut at {cut}"),
                Some(IoError::Damaged { path: named, offset, .. }) => {
                    let start = ends.iter().rfind(|end| **end < cut);
                    assert_eq!(Some(&(offset as usize)), start, "{name} cut at {cut}");
                    assert_eq!(named, path);
                    damaged += 1;
                }
                Some(other) => panic!("{other}"),
            }
        }
        assert!(damaged > 400, "{name}: {damaged}");
        for cut in 0..header {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(CaptureInput::open(&path, 1).is_err(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn a_compressed_file_cut_anywhere_gives_its_first_records() {
    let folder = tempfile::tempdir().unwrap();
    for name in &ALL[2..] {
        let path = folder.path().join(name);
        let (packets, lengths) = written(&path, 6);
        let whole = std::fs::read(&path).unwrap();
        for cut in 2..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = read(&path);
            let members = lengths.iter().filter(|length| **length <= cut).count();
            assert!(found.packets.len() >= members.saturating_sub(1), "{name} cut at {cut}");
            assert_eq!(found.packets, packets[..found.packets.len()], "{name} cut at {cut}");
            match found.error {
                None => assert!(lengths.contains(&cut), "{name} cut at {cut}"),
                Some(error) => assert!(matches!(error, IoError::Damaged { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn an_output_that_dies_is_whole_up_to_its_last_write() {
    let folder = tempfile::tempdir().unwrap();
    for name in ALL {
        let path = folder.path().join(name);
        let mut output = CaptureOutput::create(&path).unwrap();
        let (mut last, mut grown) = (0, 0);
        for n in 0..6000 {
            write(&mut output, &packet(n));
            let length = std::fs::metadata(&path).unwrap().len();
            if length != last {
                last = length;
                grown += 1;
                let found = read(&path);
                assert!(found.error.is_none(), "{name}: {:?}", found.error);
                assert_eq!(found.packets, (0..found.packets.len()).map(packet).collect::<Vec<_>>());
                assert!(found.packets.len() <= n + 1, "{name}");
            }
        }
        assert!(grown > 4, "{name}: {grown}");
        std::mem::forget(output); // neither flushed nor dropped
        assert!(read(&path).error.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_behind_a_magic_number_end_in_order(
        magic in prop::sample::select(vec![
            &b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00"[..], b"\xa1\xb2\x3c\x4d\x00\x02\x00\x04",
            b"\x34\xcd\xb2\xa1\x02\x00\x04\x00", b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a",
            b"\x0a\x0d\x0d\x0a\x00\x00\x00\x1c\x1a\x2b\x3c\x4d", b"\x1f\x8b\x08\x00",
        ]),
        rest in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..400),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, [magic, &rest].concat()).unwrap();
        let file = read(&path);
        // Each packet has a record header of 12 bytes at least.
        prop_assert!(file.received <= rest.len() / 12 + 1);
        if let Ok(mut memory) = MemoryInput::load(&path, 1) {
            prop_assert_eq!(drain(&mut memory).packets, file.packets);
        }
    }
}

/// A pcapng block in either byte order, of 32-bit words.
fn block(big: bool, kind: u32, body: &[u32]) -> Vec<u8> {
    let total = 12 + 4 * body.len() as u32;
    let words = [&[kind, total], body, &[total]].concat();
    let bytes = |word: &u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    words.iter().flat_map(bytes).collect()
}

fn section(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    block(big, 0x0a0d_0d0a, &[0x1a2b_3c4d, version, u32::MAX, u32::MAX])
}

/// An interface of `link` type, with microseconds and without a snap length.
fn interface(big: bool, link: u32) -> Vec<u8> {
    block(big, 1, &[if big { link << 16 } else { link }, 0])
}

fn file(folder: &Path, blocks: &[Vec<u8>]) -> PathBuf {
    let path = folder.join("x.pcapng");
    std::fs::write(&path, blocks.concat()).unwrap();
    path
}

#[test]
fn sections_of_both_byte_orders_and_all_packet_blocks_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        &[
            section(true),
            interface(true, 1),
            block(true, 6, &[0, 0, 5, 4, 60, 0x0102_0304]),
            block(true, 0xbad, &[1, 2, 3]), // unknown
            block(true, 3, &[3, 0x0102_0300]),
            section(false),
            block(false, 5, &[0, 0, 0]), // statistics
            interface(false, 147),
            interface(false, 1),
            block(false, 2, &[1, 0, 7, 2, 2, 0x0201]),
            block(false, 6, &[0, 0, 8, 1, 1, 0]), // a link type that cannot be converted
            block(false, 6, &[1, 0, 9, 0, 0]),
        ],
    );
    let found = read(&path);
    assert!(found.error.is_none(), "{:?}", found.error);
    let seen: Vec<_> =
        found.packets.iter().map(|p| (p.bytes.clone(), p.wire_len, p.timestamp.0)).collect();
    let expected = [
        (vec![1, 2, 3, 4], 60, 5000),
        (vec![1, 2, 3], 3, 5000), // without its own time
        (vec![1, 2], 2, 7000),
        (vec![], 0, 9000),
    ];
    assert_eq!(seen, expected);
    assert_eq!(found.drops.get(DropReason::UnsupportedLinkType), 1);
    assert_eq!(found.received, 5);
}

#[test]
fn each_damage_of_a_block_is_told_with_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let good = block(false, 6, &[0, 0, 5, 4, 4, 0x0102_0304]);
    let start = section(false).len() + interface(false, 1).len() + good.len();
    let mut unequal = good.clone();
    *unequal.last_mut().unwrap() = 1;
    let mut unequal_unknown = block(false, 0xbad, &[0]);
    unequal_unknown[12] = 17;
    let mut huge = good.clone();
    huge[4..8].copy_from_slice(&0xffff_fffc_u32.to_le_bytes());
    let mut huge_unknown = huge.clone();
    huge_unknown[0] = 99;
    let mut odd = good.clone();
    odd[4] += 1;
    let mut future = section(false);
    future[12] = 2;
    let mut no_magic = section(false);
    no_magic[8] = 0;
    let cases = [
        (unequal, "lengths differ"),
        (unequal_unknown, "lengths differ"),
        (huge, "longer than"),
        (huge_unknown, "truncated"),
        (odd, "multiple of 4"),
        (future, "version 2.0"),
        (no_magic, "byte-order magic"),
        (block(false, 6, &[1, 0, 5, 4, 4, 0]), "interface 1"),
        (block(false, 6, &[0, 0, 5, 5, 5, 0]), "does not fit"),
        (block(false, 6, &[0, 0]), "too short"),
        (block(false, 1, &[1]), "too short"),
        (vec![6, 0, 0], "truncated"),
    ];
    for (damage, message) in cases {
        let blocks = [section(false), interface(false, 1), good.clone(), damage, good.clone()];
        let found = read(&file(folder.path(), &blocks));
        assert_eq!(found.packets.len(), 1, "{message}");
        match found.error {
            Some(IoError::Damaged { offset, what, .. }) => {
                assert!(what.contains(message), "{what} does not contain: {message}");
                assert_eq!(offset, start as u64, "{message}");
            }
            other => panic!("{message}: {other:?}"),
        }
    }
}

#[test]
fn a_pcap_record_of_4_gib_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let (packets, lengths) = written(&path, 3);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[lengths[2] + 8..lengths[2] + 12].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let found = read(&path);
    assert_eq!(found.packets, packets[..2]);
    match found.error {
        Some(IoError::Damaged { offset, .. }) => assert_eq!(offset as usize, lengths[2]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_capture_is_refused_when_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for content in [&b""[..], b"\xd4", b"no capture at all", &[0; 100]] {
        std::fs::write(&path, content).unwrap();
        let error = CaptureInput::open(&path, 1).err().unwrap();
        assert!(matches!(error, IoError::Format { .. }), "{error}");
        assert!(MemoryInput::load(&path, 1).is_err());
    }
    let missing = CaptureInput::open(&folder.path().join("missing"), 1).err().unwrap();
    assert!(matches!(missing, IoError::File { .. }), "{missing}");
    let directory = CaptureInput::open(folder.path(), 1).err().unwrap();
    assert!(matches!(directory, IoError::File { .. }), "{directory}");
    let name = CaptureOutput::create(&folder.path().join("x.txt")).err().unwrap();
    assert!(matches!(name, IoError::Format { .. }), "{name}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.pcap");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    match CaptureOutput::create(&path).err() {
        Some(IoError::File { path: named, source }) => {
            assert_eq!(named, path);
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn loops_move_time_on_alike_from_file_and_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let (packets, _) = written(&path, 40);
    let file = drain(&mut CaptureInput::open(&path, 3).unwrap()).packets;
    let memory = drain(&mut MemoryInput::load(&path, 3).unwrap()).packets;
    let given = packets.iter().map(|p| (p.timestamp, &p.bytes));
    let direct = drain(&mut MemoryInput::from_packets(given, 3)).packets;
    assert_eq!(file, memory);
    assert_eq!(file.len(), 120);
    assert!(file.windows(2).all(|pair| pair[0].timestamp < pair[1].timestamp));
    for (n, seen) in file.iter().enumerate() {
        assert_eq!(
            (&seen.bytes, seen.wire_len),
            (&packets[n % 40].bytes, packets[n % 40].wire_len)
        );
        assert_eq!((&direct[n].bytes, direct[n].timestamp), (&seen.bytes, seen.timestamp));
    }
}

#[test]
fn a_damaged_capture_plays_once_whatever_the_loops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let (packets, lengths) = written(&path, 40);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..lengths[39] + 3]).unwrap();
    let inputs: [Box<dyn Input>; 2] = [
        Box::new(CaptureInput::open(&path, 0).unwrap()),
        Box::new(MemoryInput::load(&path, 0).unwrap()),
    ];
    for mut input in inputs {
        let found = drain(&mut *input);
        assert_eq!(found.packets, packets[..39]);
        assert!(matches!(found.error, Some(IoError::Damaged { .. })), "{:?}", found.error);
    }
}

/// The inputs that hold packets back, each of the same packets.
fn inputs(path: &Path) -> [Box<dyn Input>; 2] {
    [Box::new(CaptureInput::open(path, 1).unwrap()), Box::new(MemoryInput::load(path, 1).unwrap())]
}

/// Receives the packets of `path` up to the next of the times `until`, as long runs at once; returns
/// them with the number of each run's packets. The times ahead are looked up before each run.
fn received_until(input: &mut dyn Input, path: &[Seen], until: &[u64]) -> (Vec<Seen>, Vec<usize>) {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    let (mut packets, mut runs, mut drops) = (Vec::new(), Vec::new(), DropCounts::default());
    let none = input.receive(&mut batch, 0, &mut drops).unwrap();
    assert_eq!((none.packets, none.ended, batch.len()), (0, path.is_empty(), 0));
    for last in until.iter().copied().chain([u64::MAX]) {
        let time = |ahead: usize| path.get(packets.len() + ahead).map(|packet| packet.timestamp);
        assert_eq!((input.upcoming(), input.following()), (time(0), time(1)));
        assert_eq!(input.following(), time(1), "the same when it is looked up again");
        let received = input.receive_until(&mut batch, BATCH, Nanoseconds(last), &mut drops);
        let received = received.unwrap();
        packets.extend(batch.lanes().into_iter().map(|lane| Seen {
            bytes: batch.bytes(lane).to_vec(),
            wire_len: batch.meta.wire_len[lane],
            timestamp: batch.meta.timestamp[lane],
        }));
        batch.release(Lanes::ALL);
        runs.push(received.packets);
        if received.ended {
            break;
        }
    }
    (packets, runs)
}

#[test]
fn a_run_of_packets_ends_before_the_first_that_is_too_late() {
    let folder = tempfile::tempdir().unwrap();
    for name in ALL {
        let path = folder.path().join(name);
        let (packets, _) = written(&path, 20);
        let time = |n: usize| packets[n].timestamp.0;
        for mut input in inputs(&path) {
            // The first packet is received whatever its time, and then those that are not late.
            let until = [0, time(1), time(4), time(4) + 1, time(9) - 1, time(12)];
            let (found, runs) = received_until(&mut *input, &packets, &until);
            assert_eq!(runs, [1, 1, 3, 1, 3, 4, 7], "{name}");
            assert_eq!(found, packets, "{name}");
        }
    }
}

#[test]
fn the_next_pass_is_known_before_the_last_packet_of_the_one_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let (packets, _) = written(&path, 3);
    let inputs: [Box<dyn Input>; 2] = [
        Box::new(CaptureInput::open(&path, 2).unwrap()),
        Box::new(MemoryInput::load(&path, 2).unwrap()),
    ];
    for mut input in inputs {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
        let received = input.receive(&mut batch, 3, &mut DropCounts::default()).unwrap();
        assert_eq!((received.packets, received.ended), (3, false));
        let second_pass = packets[2].timestamp.plus(Nanoseconds(1001));
        assert_eq!(input.upcoming(), Some(second_pass));
        let received = input.receive(&mut batch, 3, &mut DropCounts::default()).unwrap();
        assert_eq!((received.packets, received.ended), (3, true));
        assert_eq!(input.upcoming(), None);
    }
}

#[test]
fn a_pool_that_is_empty_for_a_moment_costs_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let (packets, _) = written(&path, 10);
    for mut input in inputs(&path) {
        let pool = Arc::new(Pool::anonymous(3, 512).unwrap());
        let mut drops = DropCounts::default();
        let mut batch = Batch::new(pool.clone());
        let mut times = Vec::new();
        let mut in_flight = Batch::new(pool.clone());
        while times.len() < packets.len() {
            // Another batch holds all frames.
            while in_flight.push_bytes(b"x").is_some() {}
            let none = input.receive(&mut batch, BATCH, &mut drops).unwrap();
            assert_eq!((none.packets, none.ended), (0, false));
            in_flight.release(Lanes::ALL);
            let some = input.receive(&mut batch, BATCH, &mut drops).unwrap();
            assert!(some.packets == 3 || some.ended, "{some:?}");
            times.extend(batch.lanes().into_iter().map(|lane| batch.meta.timestamp[lane]));
            batch.release(Lanes::ALL);
        }
        assert_eq!(times, packets.iter().map(|p| p.timestamp).collect::<Vec<_>>());
        assert_eq!(drops.total(), 0);
    }
}

#[test]
fn a_pool_that_stays_empty_loses_packets_by_name_and_hangs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    written(&path, 10);
    let mut input = CaptureInput::open(&path, 1).unwrap();
    let pool = Arc::new(Pool::anonymous(1, 512).unwrap());
    let frame = pool.take().unwrap();
    let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
    let begin = Instant::now();
    while !input.receive(&mut batch, BATCH, &mut drops).unwrap().ended {
        assert!(begin.elapsed() < Duration::from_secs(30), "the input hangs");
    }
    assert!(begin.elapsed() >= Duration::from_millis(900), "it did not wait");
    assert_eq!(drops.get(DropReason::PoolExhausted), 10);
    pool.give_back([frame]);
}

#[test]
fn a_packet_longer_than_a_frame_is_dropped_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let mut output = CaptureOutput::create(&path).unwrap();
    for len in [100, 4000, 101] {
        output.write(&vec![1; len], len as u32, Nanoseconds(0)).unwrap();
    }
    drop(output);
    for mut input in inputs(&path) {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(8, 2048).unwrap()));
        let mut drops = DropCounts::default();
        let received = input.receive(&mut batch, BATCH, &mut drops).unwrap();
        assert_eq!((received.packets, received.bytes), (3, 4201));
        assert_eq!((batch.len(), drops.get(DropReason::FrameTooSmall)), (2, 1));
    }
}

#[test]
fn no_more_packets_come_than_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    written(&path, 10);
    for mut input in inputs(&path) {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 512).unwrap()));
        let mut drops = DropCounts::default();
        for expected in [4, 4, 2] {
            let received = input.receive(&mut batch, 4, &mut drops).unwrap();
            assert_eq!((received.packets, batch.len()), (expected, expected));
            batch.release(Lanes::ALL);
        }
    }
}
