//! Written captures are read back identically, and hostile files do no harm.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_packet::{BATCH, Batch, DropCounts, Nanoseconds, Pool};

use super::record::Reader;
use super::stream::Upkeep;
use super::*;
use crate::port::{Input, IoError, Output};

mod claimed;
mod direct;

type Packets = Vec<(Vec<u8>, u32, u64)>;

/// Reads a capture until its end or its damage.
fn read(path: &Path, loops: u64) -> (Packets, Option<IoError>) {
    let mut input = match CaptureInput::open(path, loops) {
        Ok(input) => input,
        Err(e) => return (Vec::new(), Some(e)),
    };
    let pool = Arc::new(Pool::anonymous(40, 2048).unwrap());
    let mut batch = Batch::new(pool);
    let (mut packets, mut drops) = (Vec::new(), DropCounts::default());
    loop {
        match input.receive(&mut batch, BATCH, &mut drops) {
            Ok(received) => {
                for lane in batch.lanes() {
                    let (wire, time) = (batch.meta.wire_len[lane], batch.meta.timestamp[lane].0);
                    packets.push((batch.bytes(lane).to_vec(), wire, time));
                }
                batch.release(batch.lanes());
                if received.ended {
                    return (packets, None);
                }
            }
            Err(e) => return (packets, Some(e)),
        }
    }
}

fn write(path: &Path, packets: &Packets) {
    let mut output = CaptureOutput::create(path).unwrap();
    for (bytes, wire_len, time) in packets {
        output.write(bytes, *wire_len, Nanoseconds(*time)).unwrap();
    }
    output.flush().unwrap();
}

fn some_packets() -> Packets {
    (0..5u32)
        .map(|i| (vec![i as u8; 20 + i as usize], 60 + i, 1_000_000_007 * u64::from(i)))
        .collect()
}

const NAMES: [&str; 4] = ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn packets_come_back_as_written(packets in proptest::collection::vec(
        (proptest::collection::vec(any::<u8>(), 0..300), any::<u16>(), 0u64..1 << 61), 0..50),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let packets: Packets = packets.into_iter()
            .map(|(b, extra, t)| { let wire = b.len() as u32 + u32::from(extra); (b, wire, t) })
            .collect();
        for name in NAMES {
            let path = folder.path().join(name);
            write(&path, &packets);
            let (read, failure) = read(&path, 1);
            prop_assert!(failure.is_none());
            prop_assert_eq!(&read, &packets);
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        which in 0usize..2, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAMES[which]);
        write(&path, &some_packets());
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        std::fs::write(&path, &bytes).unwrap();
        let (packets, _) = read(&path, 1);
        prop_assert!(packets.len() <= bytes.len() / 12);
    }
}

#[test]
fn other_byte_orders_resolutions_and_link_types_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    // Big-endian pcap, microseconds, raw IP.
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 << 16 | 4, 0, 0, 65535, 101, 5, 6, 20, 20] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(&[0x45; 20]);
    std::fs::write(&path, &bytes).unwrap();
    let (packets, _) = read(&path, 1);
    assert_eq!((packets[0].1, packets[0].2), (34, 5_000_006_000));
    assert_eq!(packets[0].0[12..16], [0x08, 0x00, 0x45, 0x45]);

    // Big-endian pcapng, resolution 2^-10, offset of 100 s, Linux cooked.
    let mut bytes = Vec::new();
    let mut put =
        |words: &[u32]| words.iter().for_each(|w| bytes.extend_from_slice(&w.to_be_bytes()));
    put(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1 << 16, u32::MAX, u32::MAX, 28]);
    put(&[1, 40, 113 << 16, 0, 9 << 16 | 1, 0x8a00_0000, 14 << 16 | 8, 0, 100, 40]);
    put(&[6, 52, 0, 0, 2048, 18, 18]);
    put(&[0x0000_0001, 0x0006_0200, 0x0000_0009, 0x0000_0800, 0x4142_0000, 52]);
    std::fs::write(&path, &bytes).unwrap();
    let (packets, failure) = read(&path, 1);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(packets[0].2, 102_000_000_000);
    assert_eq!(packets[0].0, [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9, 8, 0, 0x41, 0x42]);
}

/// The packets that have arrived, and whether the capture has ended.
fn arrived(input: &mut dyn Input) -> (usize, bool) {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(40, 2048).unwrap()));
    let received = input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
    batch.release(batch.lanes());
    (received.packets, received.ended)
}

/// A capture of some packets with a block before each that holds none, and the end of each packet.
fn with_other_blocks() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let put = |bytes: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    };
    put(&mut bytes, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    put(&mut bytes, &[1, 20, 1, 0, 20]);
    let mut ends = Vec::new();
    for _ in 0..3 {
        put(&mut bytes, &[0xbad, 24, 1, 2, 3, 24]);
        put(&mut bytes, &[6, 48, 0, 0, 7, 14, 14, 0, 0, 0, 0, 48]);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[test]
fn a_pipe_delivers_each_packet_with_its_last_byte() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let folder = tempfile::tempdir().unwrap();
    let mut captures = vec![with_other_blocks()];
    for name in &NAMES[..2] {
        let path = folder.path().join(name);
        let mut ends = Vec::new();
        let mut output = CaptureOutput::create(&path).unwrap();
        for (bytes, wire_len, time) in some_packets() {
            output.write(&bytes, wire_len, Nanoseconds(time)).unwrap();
            output.flush().unwrap();
            ends.push(std::fs::metadata(&path).unwrap().len() as usize);
        }
        captures.push((std::fs::read(&path).unwrap(), ends));
    }
    for (bytes, ends) in captures {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let mut input = CaptureInput::open(Path::new(&path), 1).unwrap();
        assert!(input.descriptor().is_some());
        assert_eq!(arrived(&mut input), (0, false));
        for (at, byte) in bytes.iter().enumerate() {
            writer.write_all(&[*byte]).unwrap();
            let due = usize::from(ends.contains(&(at + 1)));
            assert_eq!(arrived(&mut input), (due, false), "after byte {at}");
        }
        drop(writer);
        assert_eq!(arrived(&mut input), (0, true));
    }
}

/// So that pipes, too, can be merged by time; one without a packet is not waited for.
#[test]
fn the_next_packet_of_a_pipe_is_known_once_it_has_arrived() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let (bytes, ends) = with_other_blocks();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let mut input = CaptureInput::open(Path::new(&path), 1).unwrap();
    let mut batch = Batch::new(Arc::new(Pool::anonymous(40, 2048).unwrap()));
    let mut receive = |input: &mut CaptureInput, most| {
        let received = input.receive(&mut batch, most, &mut DropCounts::default()).unwrap();
        batch.release(batch.lanes());
        (received.packets, received.ended)
    };
    assert_eq!(receive(&mut input, 0), (0, false));
    assert!(input.upcoming().is_none() && input.descriptor().is_some());
    writer.write_all(&bytes[..ends[1]]).unwrap();
    assert_eq!(receive(&mut input, 0), (0, false));
    let time = input.upcoming();
    // What was read ahead needs no further bytes.
    assert!(time.is_some() && input.descriptor().is_none());
    assert_eq!(input.following(), time, "all have the same time");
    assert_eq!(receive(&mut input, 1), (1, false));
    assert_eq!((input.upcoming(), input.following()), (time, None));
    writer.write_all(&bytes[ends[1]..]).unwrap();
    assert_eq!(input.following(), time);
    drop(writer);
    assert_eq!(receive(&mut input, 9), (2, true));
}

/// What the writer has flushed is there, also within a gzip member.
#[test]
fn a_compressed_pipe_delivers_what_was_flushed() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let (bytes, ends) = with_other_blocks();
    for members in [false, true] {
        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let mut input = CaptureInput::open(Path::new(&path), 1).unwrap();
        let level = flate2::Compression::fast();
        let mut out = flate2::write::GzEncoder::new(writer, level);
        let mut start = 0;
        for end in &ends {
            out.write_all(&bytes[start..*end]).unwrap();
            start = *end;
            if members {
                out = flate2::write::GzEncoder::new(out.finish().unwrap(), level);
            } else {
                out.flush().unwrap();
            }
            assert_eq!(arrived(&mut input), (1, false), "{members}");
            assert_eq!(arrived(&mut input), (0, false), "{members}");
        }
        drop(out.finish().unwrap());
        assert_eq!(arrived(&mut input), (0, true), "{members}");
    }
}

/// A capture as it was read.
#[derive(Default)]
struct Found {
    /// Times and bytes.
    records: Vec<(u64, Vec<u8>)>,
    error: Option<String>,
    /// The share of the capture that was read, after each record.
    shares: Vec<f64>,
}

fn found(path: &Path, upkeep: Upkeep) -> Found {
    let mut reader = Reader::open(path, upkeep).unwrap();
    let mut found = Found::default();
    loop {
        match reader.next() {
            Ok(Next::Record(record)) => {
                found.records.push((record.timestamp.0, reader.data(&record).to_vec()));
                found.shares.push(reader.share().unwrap());
            }
            Ok(_) => return found,
            Err(error) => {
                assert!(matches!(reader.next(), Ok(Next::End)), "an error is returned once");
                found.error = Some(error.to_string());
                return found;
            }
        }
    }
}

/// By a thread, a long compressed capture is read as without one: whole, truncated or damaged.
#[test]
fn a_thread_that_decompresses_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap.gz");
    let packets: Packets = (0..2000u64)
        .map(|n| ((0..1000).map(|k| ((n * n) >> (k % 7)) as u8 ^ k as u8).collect(), 1000, n))
        .collect();
    write(&path, &packets);
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() * 2 / 3] ^= 0xff;
    let size = whole.len();
    let cases = [&whole[..], &whole[..size - 1], &whole[..size / 2], &whole[..size / 3], &damaged];
    for (case, bytes) in cases.iter().enumerate() {
        std::fs::write(&path, bytes).unwrap();
        let expected = found(&path, Upkeep::Small);
        let found = found(&path, Upkeep::Full);
        assert_eq!(found.records.len(), expected.records.len(), "case {case}");
        assert!(found.records == expected.records, "case {case}");
        assert_eq!(found.error, expected.error, "case {case}");
        assert_eq!(found.error.is_none(), case == 0, "case {case}");
        assert!(found.records.len() > 500, "longer than what is read before the thread starts");
        // As far as the blocks that were read, not as far as the thread.
        let apart = expected.shares.iter().zip(&found.shares).map(|(a, b)| (a - b).abs());
        let most = apart.fold(0.0, f64::max);
        assert!(most <= 2.0 * 128.0 * 1024.0 / bytes.len() as f64, "case {case}: {most} apart");
        assert!(found.shares.is_sorted() && found.shares.last() <= Some(&1.0), "case {case}");
    }
}
