//! Packets that are claimed are those that are received, whatever reads the file ahead and when.

use std::sync::mpsc;

use crate::capture::read_ahead::ReadAhead;
use crate::claims::Claims;
use crate::memory::MemoryInput;
use crate::port::Received;
use crate::selection::{Selection, TimeRange};

use super::*;

/// One after the other fills more than the buffer with which reading begins, and fits no frame.
const LONG: usize = 70_000;

/// A part of a generated capture.
#[derive(Clone, Debug)]
enum Part {
    Packet {
        len: usize,
        missing: u32,
        time: u64,
        interface: usize,
    },
    /// pcapng only: without its own time.
    Simple {
        len: usize,
    },
    /// pcapng only.
    Interface {
        link: u32,
        nanoseconds: bool,
    },
    Section {
        big: bool,
    },
    Unknown {
        words: usize,
    },
}

/// Mostly packets.
fn part() -> impl Strategy<Value = Part> {
    let len = prop_oneof![4 => 0..200usize, 4 => 0..2000usize, 1 => 2000..9000usize];
    let packet = (len.clone(), 0..3u32, 0..5000u64, 0..3usize);
    prop_oneof![
        30 => packet.prop_map(|(len, missing, time, interface)| {
            Part::Packet { len, missing, time, interface }
        }),
        2 => len.prop_map(|len| Part::Simple { len }),
        2 => (prop::sample::select(vec![1, 101, 113, 147]), any::<bool>())
            .prop_map(|(link, nanoseconds)| Part::Interface { link, nanoseconds }),
        1 => any::<bool>().prop_map(|big| Part::Section { big }),
        1 => (0..3000usize).prop_map(|words| Part::Unknown { words }),
    ]
}

/// Writes 32-bit words in either byte order.
fn put(out: &mut Vec<u8>, big: bool, words: &[u32]) {
    let bytes = |word: &u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    out.extend(words.iter().flat_map(bytes));
}

/// The bytes of packet number `n`: those of IPv4, for the link types that look at them.
fn content(n: usize, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| if at == 0 { 0x45 } else { (n * 31 + at) as u8 })
}

/// A pcap file of a dialect.
fn pcap(magic: u32, big: bool, link: u32, parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    let version = if big { 2 << 16 | 4 } else { 4 << 16 | 2 };
    put(&mut out, big, &[magic, version, 0, 0, 65535, link]);
    for (n, part) in parts.iter().enumerate() {
        let Part::Packet { len, missing, time, .. } = *part else { continue };
        let (seconds, fraction) = ((time / 1000) as u32, (time % 1000) as u32);
        put(&mut out, big, &[seconds, fraction, len as u32, len as u32 + missing]);
        if magic == 0xa1b2_cd34 {
            put(&mut out, big, &[0, 0]);
        }
        out.extend(content(n, len));
    }
    out
}

fn block(out: &mut Vec<u8>, big: bool, kind: u32, body: &[u8]) {
    let body_len = body.len().next_multiple_of(4);
    let total = 12 + body_len as u32;
    put(out, big, &[kind, total]);
    out.extend_from_slice(body);
    out.extend(std::iter::repeat_n(0, body_len - body.len()));
    put(out, big, &[total]);
}

/// A pcapng file of sections in both byte orders, each with interfaces.
fn pcapng(parts: &[Part]) -> Vec<u8> {
    let (mut out, mut big, mut interfaces) = (Vec::new(), false, 0);
    let first = [Part::Section { big: false }, Part::Interface { link: 1, nanoseconds: true }];
    for (n, part) in first.iter().chain(parts).enumerate() {
        let mut body = Vec::new();
        match *part {
            Part::Section { big: new } => {
                big = new;
                let version = if big { 1 << 16 } else { 1 };
                put(&mut body, big, &[0x1a2b_3c4d, version, u32::MAX, u32::MAX]);
                block(&mut out, big, 0x0a0d_0d0a, &body);
                interfaces = 0;
            }
            Part::Interface { link, nanoseconds } => {
                put(&mut body, big, &[if big { link << 16 } else { link }, 0]);
                if nanoseconds {
                    let (resolution, value) = (9 << 16 | 1, 9 << 24);
                    let option = [0x0001_0009, 9];
                    put(&mut body, big, &if big { [resolution, value] } else { option });
                }
                block(&mut out, big, 1, &body);
                interfaces += 1;
            }
            Part::Packet { len, missing, time, interface } if interfaces > 0 => {
                let (len32, interface) = (len as u32, (interface % interfaces) as u32);
                put(&mut body, big, &[interface, 0, time as u32, len32, len32 + missing]);
                body.extend(content(n, len));
                block(&mut out, big, 6, &body);
            }
            Part::Simple { len } if interfaces > 0 => {
                put(&mut body, big, &[len as u32]);
                body.extend(content(n, len));
                block(&mut out, big, 3, &body);
            }
            Part::Unknown { words } => block(&mut out, big, 0xbad, &vec![7; 4 * words]),
            Part::Packet { .. } | Part::Simple { .. } => {}
        }
    }
    out
}

/// How a file is damaged.
#[derive(Clone, Debug)]
enum Damage {
    None,
    Truncated(prop::sample::Index),
    Changed(prop::sample::Index, u8),
}

/// One call, and what is done about it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    most: usize,
    until: Option<u64>,
    follows: bool,
    /// What is read ahead is read at once, after later calls, or never.
    reads: u8,
    /// Packets are copied after later calls.
    holds: bool,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let until = prop::option::weighted(0.3, 0..5_000_000_000u64);
    let step = (0..=BATCH, until, any::<bool>(), 0..3u8, any::<bool>());
    let step = step.prop_map(|(most, until, follows, reads, holds)| Step {
        most,
        until,
        follows,
        reads,
        holds,
    });
    // One that makes progress.
    let whole = Step { most: BATCH, until: None, follows: false, reads: 0, holds: false };
    prop::collection::vec(step, 0..8).prop_map(move |mut steps| {
        steps.push(whole.clone());
        steps
    })
}

/// The packets of a call: as received, and as claimed.
struct Pair {
    received: Batch,
    claimed: Batch,
    claims: Claims,
}

impl Pair {
    fn new(pool: &Arc<Pool>) -> Self {
        let batch = || Batch::new(pool.clone());
        Self { received: batch(), claimed: batch(), claims: Claims::default() }
    }

    /// Copies what was claimed, and compares all packets.
    fn check(mut self) {
        self.claims.copy(&mut self.claimed);
        let (received, claimed) = (&self.received, &self.claimed);
        assert_eq!(received.lanes(), claimed.lanes());
        for lane in received.lanes() {
            assert_eq!(received.bytes(lane), claimed.bytes(lane), "lane {lane}");
            assert_eq!(received.meta.wire_len[lane], claimed.meta.wire_len[lane]);
            assert_eq!(received.meta.timestamp[lane], claimed.meta.timestamp[lane]);
        }
    }
}

/// Receives all packets of one input, and claims those of another of the same files, by the same
/// calls; both return the same, shares included if they read alike. Returns how many packets were left to be
/// copied.
pub(super) fn compare(
    receiving: &mut dyn Input,
    claiming: &mut dyn Input,
    steps: &[Step],
    reads_alike: bool,
) -> usize {
    let pool = Arc::new(Pool::anonymous(4096, 2048).unwrap());
    let mut drops = [DropCounts::default(); 2];
    let (mut pairs, mut reads, mut copied) = (Vec::new(), Vec::new(), 0);
    for step in steps.iter().cycle().take(20_000) {
        let mut pair = Pair::new(&pool);
        let last = step.until.map(Nanoseconds);
        let received = match last {
            None => receiving.receive(&mut pair.received, step.most, &mut drops[0]),
            Some(last) => {
                receiving.receive_until(&mut pair.received, step.most, last, &mut drops[0])
            }
        };
        let Pair { claimed: batch, claims, .. } = &mut pair;
        let claimed = claiming.claim(batch, step.most, last, &mut drops[1], claims);
        let words = |result: Result<Received, IoError>| result.map_err(|error| error.to_string());
        let (received, claimed) = (words(received), words(claimed));
        assert_eq!(received, claimed);
        assert_eq!(format!("{:?}", drops[0]), format!("{:?}", drops[1]));
        assert_eq!(receiving.upcoming(), claiming.upcoming());
        if step.follows {
            assert_eq!(receiving.following(), claiming.following());
        }
        if reads_alike {
            assert_eq!(receiving.share(), claiming.share());
        }
        assert_eq!(receiving.shortfall(), claiming.shortfall());
        copied += pair.claims.packets();
        pair.claims.take_reads(&mut reads);
        match step.reads {
            0 => reads.drain(..).for_each(ReadAhead::run),
            1 => {}
            _ => reads.clear(),
        }
        pairs.push(pair);
        let ended = received.is_ok_and(|received| received.ended);
        if ended || !step.holds || pairs.len() > 8 {
            // In another order than that of the calls.
            pairs.drain(..).rev().for_each(Pair::check);
        }
        if ended {
            assert_eq!(pool.in_use(), 0, "all frames are back");
            return copied;
        }
    }
    panic!("an input does not end");
}

fn damaged(mut bytes: Vec<u8>, damage: &Damage, from: usize) -> Vec<u8> {
    match damage {
        Damage::None => {}
        Damage::Truncated(at) => bytes.truncate(from + at.index(bytes.len() - from)),
        Damage::Changed(at, value) => {
            let at = from + at.index(bytes.len() - from);
            bytes[at] = *value;
        }
    }
    bytes
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        2 => Just(Damage::None),
        1 => any::<prop::sample::Index>().prop_map(Damage::Truncated),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, v)| Damage::Changed(at, v)),
    ]
}

/// All that decides how a capture is read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    parts: Vec<Part>,
    format: usize,
    link: u32,
    damage: Damage,
    pub(super) loops: u64,
    from: Option<u64>,
}

impl Reading {
    /// The file, and where damage may begin.
    pub(super) fn file(&self) -> Vec<u8> {
        let long = Part::Packet { len: LONG, missing: 0, time: 0, interface: 0 };
        let parts = [&[long.clone(), long][..], &self.parts].concat();
        let bytes = match self.format {
            0 => pcap(0xa1b2_c3d4, false, self.link, &parts),
            1 => pcap(0xa1b2_c3d4, true, self.link, &parts),
            2 => pcap(0xa1b2_3c4d, false, self.link, &parts),
            3 => pcap(0xa1b2_cd34, true, self.link, &parts),
            _ => pcapng(&parts),
        };
        damaged(bytes, &self.damage, 28)
    }

    /// The same with packets of two lengths, several in a row.
    pub(super) fn in_bulk(mut self) -> Self {
        for (n, part) in self.parts.iter_mut().enumerate() {
            if let Part::Packet { len, .. } | Part::Simple { len } = part {
                *len = if n / 40 % 2 == 0 { 1400 } else { 60 + n % 17 / 16 };
            }
        }
        self
    }

    pub(super) fn selection(&self) -> Selection {
        let times = TimeRange { from: self.from.map(Nanoseconds), to: None };
        Selection { times, filter: None }
    }
}

pub(super) fn reading() -> impl Strategy<Value = Reading> {
    let parts = prop::collection::vec(part(), 0..200);
    let link = prop::sample::select(vec![1, 1, 101, 113, 147]);
    let from = prop::option::weighted(0.3, 0..5_000_000_000u64);
    (parts, 0..7usize, link, damage(), 1..3u64, from).prop_map(
        |(parts, format, link, damage, loops, from)| Reading {
            parts,
            format,
            link,
            damage,
            loops,
            from,
        },
    )
}

#[test]
fn claimed_packets_are_those_that_are_received() {
    let copied = std::cell::Cell::new(0);
    proptest!(ProptestConfig::with_cases(200), |(
        reading in reading(), block_len in 1..5000usize, steps in steps(),
    )| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, reading.file()).unwrap();
        let open = || {
            CaptureInput::open_files(&CaptureFiles::one(&path), reading.selection(), reading.loops)
        };
        // A damaged file header is no matter of how packets are read.
        if let (Ok(mut receiving), Ok(mut claiming)) = (open(), open()) {
            claiming.block_len = block_len;
            copied.set(copied.get() + compare(&mut receiving, &mut claiming, &steps, true));
        }
    });
    assert!(copied.get() > 1000, "few packets were left to be copied: {}", copied.get());
}

#[test]
fn packets_of_several_files_and_from_memory_are_claimed_alike() {
    let copied = std::cell::Cell::new((0, 0));
    proptest!(ProptestConfig::with_cases(60), |(
        readings in prop::collection::vec(reading(), 1..4), block_len in 1..5000usize,
        steps in steps(),
    )| {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..readings.len()).map(|n| folder.path().join(n.to_string())).collect();
        for (path, reading) in paths.iter().zip(&readings) {
            std::fs::write(path, reading.file()).unwrap();
        }
        let (files, _) = CaptureFiles::several(paths);
        let (selection, loops) = (readings[0].selection(), readings[0].loops);
        let open = || CaptureInput::open_files(&files, selection.clone(), loops).unwrap();
        let (mut receiving, mut claiming) = (open(), open());
        claiming.block_len = block_len;
        let from_files = compare(&mut receiving, &mut claiming, &steps, true);
        let load = || MemoryInput::load_files(&files, selection.clone(), loops).unwrap();
        let from_memory = compare(&mut load(), &mut load(), &steps, true);
        copied.set((copied.get().0 + from_files, copied.get().1 + from_memory));
    });
    let (from_files, from_memory) = copied.get();
    assert!(from_files > 500 && from_memory > 500, "few packets were left to be copied");
}

/// A capture of about 6 MB, in which each packet has other bytes.
fn large() -> Vec<u8> {
    let packet =
        |n: usize| Part::Packet { len: n * 37 % 1500, missing: 0, time: n as u64, interface: 0 };
    pcap(0xa1b2_3c4d, false, 1, &(0..8000).map(packet).collect::<Vec<_>>())
}

#[test]
fn threads_that_read_ahead_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    std::fs::write(&path, large()).unwrap();
    let (expected, failure) = read(&path, 2);
    assert!(failure.is_none());
    let mut input = CaptureInput::open(&path, 2).unwrap();
    let pool = Arc::new(Pool::anonymous(8192, 2048).unwrap());
    let mut packets = Vec::new();
    std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            let (sender, receiver) = mpsc::channel::<ReadAhead>();
            scope.spawn(move || receiver.into_iter().for_each(ReadAhead::run));
            sender
        });
        let (mut reads, mut turn, mut copied) = (Vec::new(), 0, 0);
        loop {
            let (mut batch, mut claims) = (Batch::new(pool.clone()), Claims::default());
            let drops = &mut DropCounts::default();
            let received = input.claim(&mut batch, BATCH, None, drops, &mut claims).unwrap();
            copied += claims.packets();
            claims.take_reads(&mut reads);
            for read in reads.drain(..) {
                turn += 1;
                readers[turn % 2].send(read).unwrap();
            }
            claims.copy(&mut batch);
            for lane in batch.lanes() {
                let (wire, time) = (batch.meta.wire_len[lane], batch.meta.timestamp[lane].0);
                packets.push((batch.bytes(lane).to_vec(), wire, time));
            }
            if received.ended {
                break;
            }
        }
        assert!(turn > 50, "{turn} parts were read ahead");
        assert!(copied > 15_000, "of 16000 packets, {copied} were left to be copied");
    });
    assert!(packets == expected);
}

/// The input then ends, with an error or without, and receives no other packets than the file had.
#[test]
fn a_file_that_is_truncated_while_it_is_claimed_ends_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    for (runs_reads, rest) in [(true, 500_000), (false, 500_000), (true, 0), (false, 3_000_000)] {
        std::fs::write(&path, large()).unwrap();
        let (expected, _) = read(&path, 1);
        let mut input = CaptureInput::open(&path, 1).unwrap();
        let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
        let (mut claims, mut reads, mut found) = (Claims::default(), Vec::new(), 0);
        loop {
            let received =
                input.claim(&mut batch, BATCH, None, &mut DropCounts::default(), &mut claims);
            claims.take_reads(&mut reads);
            if runs_reads {
                reads.drain(..).for_each(ReadAhead::run);
            }
            claims.copy(&mut batch);
            for lane in batch.lanes() {
                assert_eq!(batch.bytes(lane), expected[found].0);
                found += 1;
            }
            batch.release(batch.lanes());
            if found == 32 * 30 {
                std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(rest).unwrap();
            }
            match received {
                Ok(received) if !received.ended => {}
                Ok(_) => break,
                Err(error) => assert!(matches!(error, IoError::Damaged { .. }), "{error}"),
            }
        }
        assert!((32 * 30..expected.len()).contains(&found), "{found} packets, {rest} bytes left");
    }
}
