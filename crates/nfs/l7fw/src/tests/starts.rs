//! Rules by host hold however the start of a connection is segmented, repeated, reordered and
//! written.

use thalweg_packet::DropReason;

use super::super::hello::tests::{hello, in_records};
use super::wire::{Wire, long_hello, request};
use super::{Bench, Verdict};

const RULES: &str = "rule = [{ action = 'block', host = ['bad.example'] }]";

/// Sends connections of one client after another.
struct Clients {
    bench: Bench,
    wire: Wire,
}

impl Clients {
    fn new(options: &str) -> Self {
        Self { bench: Bench::new(options), wire: Wire::new(0) }
    }

    /// Sends the packets that `make` creates for a new client; returns the verdicts.
    fn send(&mut self, make: impl FnOnce(&Wire) -> Vec<Vec<u8>>) -> Vec<Verdict> {
        self.wire.client += 1;
        self.bench.drive.send(&make(&self.wire))
    }

    /// Whether a connection whose client sends these parts of `bytes` was blocked, at the latest
    /// when its start was whole.
    fn blocks(&mut self, bytes: &[u8], places: &[(usize, usize)]) -> bool {
        let verdicts = self.send(|wire| wire.connection(wire.parts(bytes, places), bytes.len()));
        let (start, rest) = verdicts.split_at(verdicts.len() - 3);
        let blocked = |v: &Verdict| *v == Verdict::Drop(DropReason::Application);
        let stopped = start.last().is_some_and(blocked) && rest.iter().all(blocked);
        let passed = verdicts.iter().all(|v| *v == Verdict::Forward);
        assert!(stopped || passed, "{places:?}: {verdicts:?}");
        stopped
    }
}

/// The same start of a connection that names either host, of the same length.
fn both(make: impl Fn(&str) -> Vec<u8>) -> [(Vec<u8>, bool); 2] {
    [(make("bad.example"), true), (make("god.example"), false)]
}

/// The places of segments of `size` bytes.
fn segments(length: usize, size: usize) -> Vec<(usize, usize)> {
    (0..length).step_by(size).map(|at| (at, length.min(at + size))).collect()
}

fn starts() -> Vec<(Vec<u8>, bool)> {
    let mut all = Vec::new();
    all.extend(both(request));
    all.extend(both(hello));
    all.extend(both(|host| in_records(&hello(host), 30)));
    all
}

#[test]
fn a_start_in_two_segments_in_any_order_with_copies() {
    let mut clients = Clients::new(RULES);
    for (bytes, bad) in starts() {
        let end = bytes.len();
        for cut in (1..end).step_by(3) {
            let (a, b, all) = ((0, cut), (cut, end), (0, end));
            for places in [&[a, b][..], &[b, a], &[a, a, b], &[a, all], &[b, b, a, a], &[b, all]] {
                assert_eq!(clients.blocks(&bytes, places), bad, "{cut}: {places:?}");
            }
        }
    }
    assert_eq!(clients.bench.figure("segments_contradicting"), 0);
}

#[test]
fn a_start_byte_by_byte_in_several_orders() {
    let mut clients = Clients::new(RULES);
    for (bytes, bad) in starts() {
        let end = bytes.len();
        let single = |at: usize| (at, at + 1);
        let forwards: Vec<_> = (0..end).map(single).collect();
        let backwards: Vec<_> = (0..end).rev().map(single).collect();
        // Every second byte last; 128 parts wait at most.
        let interleaved: Vec<_> =
            (1..end).step_by(2).chain((0..end).step_by(2)).map(single).collect();
        for places in [forwards, backwards, interleaved] {
            assert_eq!(clients.blocks(&bytes, &places), bad);
        }
        // All segments of 7 bytes, every third first.
        let parts = segments(end, 7);
        let order = (0..3).flat_map(|first| parts.iter().skip(first).step_by(3).copied());
        assert_eq!(clients.blocks(&bytes, &order.collect::<Vec<_>>()), bad);
    }
}

#[test]
fn hellos_longer_than_a_segment() {
    let mut clients = Clients::new(RULES);
    for (bytes, bad) in both(long_hello) {
        let end = bytes.len();
        assert!(end > 1340);
        for cut in [1, 4, 5, 6, 43, 700, end - 30, end - 5, end - 1] {
            for places in [[(0, cut), (cut, end)], [(cut, end), (0, cut)]] {
                assert_eq!(clients.blocks(&bytes, &places), bad, "{cut}");
            }
        }
        for size in [1, 2, 5, 100] {
            let divided = in_records(&bytes, size);
            let parts = segments(divided.len(), 1200);
            assert_eq!(clients.blocks(&divided, &parts), bad, "records of {size}");
        }
    }
}

#[test]
fn applications_are_recognised_in_segmented_starts() {
    let mut clients = Clients::new("rule = [{ action = 'block', application = ['TLS.Google'] }]");
    let bytes = hello("www.google.com");
    let end = bytes.len();
    assert!(clients.blocks(&bytes, &[(0, end)]));
    assert!(clients.blocks(&bytes, &[(0, 50), (50, end)]));
    assert!(clients.blocks(&bytes, &[(50, end), (0, 50)]));
    let divided = in_records(&bytes, 20);
    assert!(clients.blocks(&divided, &[(0, divided.len())]));
}

#[test]
fn a_repeated_part_of_a_hello_inside_the_stream_does_not_hide_the_host() {
    let mut clients = Clients::new(RULES);
    let whole = hello("bad.example");
    for cut in [40, 50, 77, 100] {
        let twice = [&whole[..cut], &whole].concat();
        let end = twice.len();
        assert!(clients.blocks(&twice, &[(0, cut), (cut, 2 * cut), (2 * cut, end)]), "{cut}");
        assert!(clients.blocks(&twice, &[(0, end)]), "{cut}");
    }
}

#[test]
fn requests_written_in_odd_ways() {
    let mut clients = Clients::new(RULES);
    for text in [
        "GET / HTTP/1.1\r\nHost:\tHOST\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \t HOST \t\r\n\r\n",
        "GET / HTTP/1.1\r\nhOsT:HOST.\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST:80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\tHOST\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET / HTTP/1.1\nHost: HOST\n\n",
        "GET http://HOST/ HTTP/1.1\r\nHost: x.example\r\n\r\n",
        "GET http://x.example/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "CONNECT HOST:443 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x.example\r\nHost: HOST\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x.example\r\n\r\nGET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "PROPFIND / HTTP/1.1\r\nHost: HOST\r\n\r\n",
    ] {
        for (host, bad) in [("bad.example", true), ("BAD.Example", true), ("god.example", false)] {
            let bytes = text.replace("HOST", host).into_bytes();
            let end = bytes.len();
            for cut in [1, 5, end / 2, end - 3] {
                assert_eq!(clients.blocks(&bytes, &[(0, cut), (cut, end)]), bad, "{text:?}");
            }
            assert_eq!(clients.blocks(&bytes, &[(0, end)]), bad, "{text:?}");
        }
    }
    for name in ["bad.example.", "BAD.example"] {
        let bytes = hello(name);
        assert!(clients.blocks(&bytes, &[(0, bytes.len())]));
    }
}

#[test]
fn a_head_of_many_bytes_before_its_host() {
    let mut clients = Clients::new(RULES);
    for (bytes, bad) in both(|host| {
        let fields = ["X-Field: ", &"y".repeat(60), "\r\n"].concat().repeat(600);
        format!("GET / HTTP/1.1\r\n{fields}Host: {host}\r\n\r\n").into()
    }) {
        assert!(bytes.len() > 40_000);
        let parts = segments(bytes.len(), 1400);
        assert_eq!(clients.blocks(&bytes, &parts), bad);
    }
}

#[test]
fn over_ipv6_in_a_vlan_and_where_sequence_numbers_wrap() {
    for (ipv6, vlan, isn) in [
        (true, None, 7),
        (false, Some(5), 7),
        (true, Some(5), u32::MAX - 9),
        (false, None, u32::MAX),
    ] {
        let mut clients = Clients::new(RULES);
        clients.wire = Wire { ipv6, vlan, isn, ..clients.wire };
        for (bytes, bad) in starts() {
            let end = bytes.len();
            for cut in [2, 20, end - 9] {
                assert_eq!(clients.blocks(&bytes, &[(cut, end), (0, cut), (0, cut)]), bad);
            }
        }
    }
}

#[test]
fn without_the_handshake() {
    let mut clients = Clients::new(RULES);
    for (bytes, bad) in starts() {
        let end = bytes.len();
        for (cut, in_order) in [(2, true), (20, true), (20, false), (end - 9, false)] {
            let mut places = vec![(0, cut), (cut, end)];
            if !in_order {
                places.reverse();
            }
            let verdicts = clients.send(|wire| {
                let [_, answer, more] = wire.answer(end).try_into().unwrap();
                [wire.parts(&bytes, &places), vec![answer, more]].concat()
            });
            let blocked = verdicts.last() == Some(&Verdict::Drop(DropReason::Application));
            assert_eq!(blocked, bad, "{cut}, {in_order}: {verdicts:?}");
        }
    }
}

#[test]
fn later_requests_of_a_connection() {
    let mut clients = Clients::new(RULES);
    let (first, second) = (request("x.example"), request("bad.example"));
    for cut in [1, 20, second.len() - 2] {
        let verdicts = clients.send(|wire| {
            let at = first.len();
            let answer = &wire.answer(at)[..2];
            let later = [
                wire.segment(true, 0x18, (at + cut, 40), &second[cut..]),
                wire.segment(true, 0x18, (at, 40), &second[..cut]),
                wire.segment(false, 0x18, (40, at + second.len()), b"HTTP/1.1 200 OK\r\n\r\n"),
            ];
            [wire.handshake(), vec![wire.data(0, &first)], answer.to_vec(), later.to_vec()].concat()
        });
        let (passed, blocked) = verdicts.split_at(verdicts.len() - 2);
        assert!(passed.iter().all(|v| *v == Verdict::Forward), "{verdicts:?}");
        assert!(blocked.iter().all(|v| *v == Verdict::Drop(DropReason::Application)));
    }
}

#[test]
fn a_copy_with_other_bytes_is_dropped_until_the_first_is_acknowledged() {
    let mut clients = Clients::new(RULES);
    let (good, bad) = (request("god.example"), request("bad.example"));
    let end = good.len();
    // Of a part of the head, of all of it, and of bytes that wait for earlier ones.
    for places in [vec![(0, 60)], vec![(0, end)], vec![(38, end)]] {
        let verdicts = clients.send(|wire| {
            let mut packets = [wire.handshake(), wire.parts(&good, &places)].concat();
            packets.push(wire.data(0, &bad));
            packets
        });
        assert_eq!(verdicts.last(), Some(&Verdict::Drop(DropReason::Malformed)), "{places:?}");
    }
    assert_eq!(clients.bench.figure("segments_contradicting"), 3);
}

#[test]
fn a_segment_with_a_wrong_checksum_is_not_read() {
    let good = request("god.example");
    let bad = request("bad.example");
    let exchange = |wire: &Wire| {
        let mut forged = wire.data(0, &good);
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let data = vec![forged, wire.data(0, &bad)];
        wire.connection(data, bad.len())
    };
    let mut clients = Clients::new(RULES);
    assert_eq!(clients.send(exchange).last(), Some(&Verdict::Drop(DropReason::Application)));
    assert_eq!(clients.bench.figure("segments_bad_checksum"), 1);
    // A card that computes checksums after the capture has all of them wrong.
    let verdicts = clients.send(|wire| {
        let mut packets = wire.connection(vec![wire.data(0, &bad)], bad.len());
        for packet in &mut packets {
            packet[14 + 20 + 16] ^= 1;
        }
        packets
    });
    assert_eq!(verdicts.last(), Some(&Verdict::Drop(DropReason::Application)));
}

#[test]
fn a_new_connection_between_the_same_ports_is_read_again() {
    let mut clients = Clients::new(RULES);
    let (good, bad) = (request("god.example"), request("bad.example"));
    let verdicts = clients.send(|wire| {
        let again = Wire { isn: 77_000, ..*wire };
        let one =
            |wire: &Wire, bytes: &[u8]| wire.connection(vec![wire.data(0, bytes)], bytes.len());
        [one(wire, &good), one(&again, &bad)].concat()
    });
    let first_blocked = verdicts.iter().position(|v| *v != Verdict::Forward);
    assert_eq!(first_blocked, Some(7 + 3), "{verdicts:?}");
    // A SYN alone changes nothing.
    let verdicts = clients.send(|wire| {
        let again = Wire { isn: 77_000, ..*wire };
        let mut packets = wire.connection(vec![wire.data(0, &bad)], bad.len());
        packets.push(again.handshake().swap_remove(0));
        packets.push(wire.data(bad.len(), b"more"));
        packets
    });
    assert!(verdicts[3..].iter().all(|v| *v != Verdict::Forward), "{verdicts:?}");
}

#[test]
fn memory_of_starts_is_bounded_and_returned() {
    let mut clients = Clients::new("max_flows = 64");
    for _ in 0..200 {
        clients.send(|wire| {
            let data = (0..40).map(|n| wire.data(1 + n * 1400, &[b'a'; 1400])).collect();
            [wire.handshake(), data].concat()
        });
    }
    assert!(clients.bench.figure("flows_evicted") > 100);
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn random_segments_with_overlaps() {
    let mut numbers = Numbers(29);
    let mut clients = Clients::new(RULES);
    for round in 0..120 {
        for (bytes, bad) in starts() {
            let end = bytes.len();
            let mut places: Vec<_> = (0..numbers.below(12))
                .map(|_| {
                    let from = numbers.below(end);
                    (from, from + 1 + numbers.below(end - from))
                })
                .collect();
            // These cover all of it; the last segment is always one that is needed.
            let cut = 1 + numbers.below(end - 2);
            let last = if round % 2 == 0 { (0, cut) } else { (cut, end) };
            let other = if round % 2 == 0 { (cut, end) } else { (0, cut) };
            places.insert(numbers.below(places.len() + 1), other);
            places.push(last);
            assert_eq!(clients.blocks(&bytes, &places), bad, "{places:?}");
        }
    }
}

#[test]
fn hostile_segments_are_survived() {
    let mut numbers = Numbers(7);
    let mut clients = Clients::new(RULES);
    for _ in 0..300 {
        let (bytes, _) = starts().swap_remove(numbers.below(6));
        clients.send(|wire| {
            let mut packets = Vec::new();
            for _ in 0..20 {
                let at = [0, 1, 50, 60_000, 64_001, 1 << 20, 1 << 31][numbers.below(7)];
                let (from, flags) = (numbers.below(bytes.len()), numbers.below(64) as u8);
                let mut payload = bytes[from..].repeat(1 + numbers.below(9));
                let changed = numbers.below(payload.len());
                payload[changed] ^= 1 << numbers.below(8);
                let seen = [0, 10, 70_000, 1 << 25][numbers.below(4)];
                let by_client = numbers.below(3) > 0;
                packets.push(wire.segment(by_client, flags, (at + from, seen), &payload));
            }
            packets
        });
    }
    assert_eq!(clients.bench.figure("flows"), 300);
}
