//! Segments that no receiver takes, and those that receivers do take.

use thalweg_packet::{Decapsulate, PortIndex, checksum, parse};

use super::*;

const RULE: &str =
    "alert tcp any any -> any any (msg:\"x\"; flow:established; content:\"evilword\"; sid:1;)\n";
/// What the receiver reads, and what another copy of it shows to the inspection.
const REAL: &[u8] = b"GET /evilword HTTP/1.1\r\n\r\n";
const COVER: &[u8] = b"GET /harmless HTTP/1.1\r\n\r\n";

const IP: usize = 14;
const TCP: usize = 34;

/// Fills in the checksums of a packet.
fn sum(mut packet: Vec<u8>) -> Vec<u8> {
    let (_, headers) = parse(&packet, PortIndex::NONE, Decapsulate::No);
    checksum::fill_ipv4(&mut packet, &headers);
    checksum::fill(&mut packet, &headers);
    packet
}

/// Inserts TCP options, a multiple of four bytes.
pub(super) fn with_options(mut packet: Vec<u8>, options: &[u8]) -> Vec<u8> {
    packet.splice(TCP + 20..TCP + 20, options.iter().copied());
    packet[TCP + 12] += (options.len() as u8 / 4) << 4;
    let length = (packet.len() - IP) as u16;
    packet[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
    sum(packet)
}

pub(super) fn stamps(own: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &own.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// A handshake whose three segments carry these options.
fn handshake(options: [&[u8]; 3]) -> Vec<Vec<u8>> {
    let plain = [
        segment(true, 2, 1000, 0, b""),
        segment(false, 18, 5000, 1001, b""),
        segment(true, 16, 1001, 5001, b""),
    ];
    plain.into_iter().zip(options).map(|(packet, options)| with_options(packet, options)).collect()
}

/// Sends a copy with harmless bytes, then the real segment; returns whether the rule fired, and
/// the figures of rejected segments that are not 0.
fn outcome(
    opening: &[Vec<u8>],
    copy: Vec<u8>,
    real: Vec<u8>,
    options: &str,
) -> (bool, Vec<String>) {
    let mut bench = Bench::new(RULE, options);
    bench.send(opening);
    bench.send(&[copy]);
    bench.send(&[real]);
    let sids = bench.sids();
    assert!(sids.len() <= 1, "{sids:?}");
    let figures = bench.drive.nf.figures().into_iter();
    let rejected = figures.filter(|(name, count)| name.contains("_rejected_") && *count > 0);
    let rejected =
        rejected.map(|(name, n)| format!("{} {n}", name.replace("segments_rejected_", "")));
    (!sids.is_empty(), rejected.collect())
}

/// The segment after the handshake, with a change.
fn next(payload: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = segment(true, 24, 1001, 5001, payload);
    change(&mut packet);
    packet
}

fn flags(flags: u8) -> Vec<u8> {
    segment(true, flags, 1001, 5001, COVER)
}

#[test]
fn a_segment_that_its_receiver_drops_hides_nothing() {
    let none = [&[][..]; 3];
    let old_ack = 5001u32.wrapping_sub(1 << 20);
    let cases: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("IPv4 checksum", next(COVER, |p| p[IP + 10] ^= 1), "checksum 1", ""),
        ("TCP checksum", next(COVER, |p| p[TCP + 16] ^= 1), "checksum 1", ""),
        ("no ACK", flags(8), "flags 1", ""),
        ("no flags", flags(0), "flags 1", ""),
        ("only FIN", flags(1), "flags 1", ""),
        ("SYN within", flags(2), "syn 1", ""),
        ("SYN and ACK within", flags(18), "syn 1", ""),
        ("future ack", segment(true, 24, 1001, 5002 + (1 << 30), COVER), "ack 1", ""),
        ("ack of one byte too many", segment(true, 24, 1001, 5002, COVER), "ack 1", ""),
        ("old ack", segment(true, 24, 1001, old_ack, COVER), "ack 1", ""),
        ("signature", with_options(next(COVER, |_| ()), &md5()), "signature 1", ""),
        ("reset with data", segment(true, 20, 1001 + 9, 5001, COVER), "reset 1", ""),
        ("TTL", next(COVER, |p| p[IP + 8] = 1), "unreachable 1", "min_ttl = 5"),
        ("length", next(COVER, |p| p[TCP + 12] = 0x40), "length 1", ""),
    ];
    for (name, mut copy, rejected, options) in cases {
        if !matches!(name, "IPv4 checksum" | "TCP checksum" | "length") {
            copy = sum(copy);
        }
        let real = segment(true, 24, 1001, 5001, REAL);
        let (fired, figures) = outcome(&handshake(none), copy, real, options);
        assert!(fired, "{name}");
        assert_eq!(figures, [rejected], "{name}");
    }
}

fn md5() -> Vec<u8> {
    [&[1, 1, 19, 18][..], &[7; 16]].concat()
}

#[test]
fn an_old_timestamp_counts_only_where_timestamps_were_agreed() {
    let agreed = [&stamps(100_000, 0)[..], &stamps(7, 100_000), &stamps(100_001, 7)];
    let one_sided = [&stamps(100_000, 0)[..], &[], &[]];
    let segment = |payload: &[u8], own| with_options(next(payload, |_| ()), &stamps(own, 7));
    for (own, rejected) in [(50_000, true), (1, true), (100_001, false), (100_050, false)] {
        let real = segment(REAL, 100_060);
        let (fired, figures) = outcome(&handshake(agreed), segment(COVER, own), real, "");
        assert_eq!(fired, rejected, "{own}");
        assert_eq!(figures.join(""), if rejected { "timestamp 1" } else { "" }, "{own}");
    }
    let real = segment(REAL, 100_060);
    let (fired, _) = outcome(&handshake(one_sided), segment(COVER, 1), real, "");
    assert!(!fired, "receivers that did not agree ignore timestamps");
}

#[test]
fn what_receivers_take_counts_and_a_later_copy_is_not_read() {
    let none = [&[][..]; 3];
    let taken: [(&str, Vec<u8>); 4] = [
        ("evil bit", sum(next(COVER, |p| p[IP + 6] |= 0x80))),
        ("another MAC address", next(COVER, |p| p[0] = 8)),
        ("urgent, ECE and CWR", sum(segment(true, 0xd8 | 0x20, 1001, 5001, COVER))),
        ("the last acknowledgement again", segment(true, 24, 1001, 5001, COVER)),
    ];
    for (name, copy) in taken {
        let real = segment(true, 24, 1001, 5001, REAL);
        let (fired, figures) = outcome(&handshake(none), copy, real, "");
        assert!(!fired && figures.is_empty(), "{name}: {figures:?}");
    }
}

/// Where systems differ, `target` decides.
#[test]
fn the_target_decides_where_systems_differ() {
    let none = [&[][..]; 3];
    let copy = || with_options(next(COVER, |_| ()), &md5());
    for (target, hides) in [("linux", false), ("windows", true)] {
        let real = segment(true, 24, 1001, 5001, REAL);
        let options = format!("target = '{target}'");
        let (fired, _) = outcome(&handshake(none), copy(), real, &options);
        assert_eq!(fired, !hides, "{target}");
    }
    let wrong = Bench::try_new(RULE, "target = 'solaris'").map(|_| ());
    assert!(wrong.unwrap_err().to_string().contains("solaris"));
}

#[test]
fn data_in_a_syn_counts_if_the_answer_acknowledges_it() {
    let syn = segment(true, 2, 1000, 0, REAL);
    let open = |acknowledged| {
        vec![
            syn.clone(),
            segment(false, 18, 5000, acknowledged, b""),
            segment(true, 16, acknowledged, 5001, b""),
        ]
    };
    for (acknowledged, fires) in [(1001, false), (1001 + REAL.len() as u32, true)] {
        let mut bench = Bench::new(RULE, "");
        bench.send(&open(acknowledged));
        let mut talk = Talk { next: [acknowledged, 5001] };
        let more = talk.send(true, 24, b" and more");
        bench.send(&[more]);
        assert_eq!(!bench.sids().is_empty(), fires, "{acknowledged}");
    }
}

#[test]
fn copies_that_differ_are_counted_also_after_delivery() {
    let mut bench = Bench::new(RULE, "");
    bench.send(&handshake([&[]; 3]));
    bench.send(&[segment(true, 24, 1001, 5001, REAL)]);
    bench.send(&[segment(true, 24, 1001, 5001, REAL)]);
    assert_eq!(bench.drive.figure("segments_contradicting"), 0);
    bench.send(&[segment(true, 24, 1001, 5001, COVER)]);
    assert_eq!(bench.drive.figure("segments_contradicting"), 1);
}

/// A capture of packets, of which those longer than `kept` bytes end there.
fn cut_capture(packets: &[Vec<u8>], kept: usize) -> Vec<u8> {
    let number = |n: usize| (n as u32).to_le_bytes();
    let header = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 16, 1].map(number);
    let records = packets.iter().flat_map(|packet| {
        let bytes = &packet[..packet.len().min(kept)];
        [&[1, 0, bytes.len(), packet.len()].map(number).concat(), bytes].concat()
    });
    header.concat().into_iter().chain(records).collect()
}

#[test]
fn what_a_capture_did_not_keep_may_be_acknowledged() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (msg:\"x\"; content:\"answer\"; sid:1;)\n",
        "checksums = false",
    );
    let mut talk = Talk::new();
    let mut packets = talk.handshake();
    packets.push(talk.send(true, 24, &[b'x'; 600]));
    packets.push(talk.send(false, 24, b"an answer"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cut_capture(&packets, 100)).unwrap();
    bench.drive.capture(file.path(), 1).1.unwrap();
    assert_eq!((bench.sids(), bench.drive.figure("segments_rejected_ack")), (vec![1], 0));
}
