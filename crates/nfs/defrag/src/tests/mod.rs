//! Properties of reassembly.

mod moving;

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_packet::Pool;
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{PacketType, PortIndex, parse};

use super::*;
use thalweg_nf::Emitted;
use thalweg_testkit::fragments::{fill, packet, part, parts, steps};
use thalweg_testkit::pass_one;
use thalweg_testkit::peer::scapy;

fn defrag(options: &str) -> Box<dyn NetworkFunction> {
    KIND.build_alone(options).unwrap().instance()
}

/// Sends one packet; returns the packet that leaves, or the drop reason.
fn pass(nf: &mut dyn NetworkFunction, packet: &[u8], seconds: u64) -> Result<Vec<u8>, DropReason> {
    pass_one(nf, (2, 8192), packet, Nanoseconds::from_secs(seconds), None).0
}

fn figure(nf: &dyn NetworkFunction, name: &str) -> u64 {
    nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
}

proptest! {
    #[test]
    fn what_was_cut_is_put_together_in_any_order(
        packets in prop::collection::vec((any::<bool>(), 16usize..3000, 1usize..200), 1..6),
        order in any::<u64>(), again in any::<bool>(),
    ) {
        let packets: Vec<(Vec<u8>, usize)> = (0..)
            .zip(packets)
            .map(|(id, (v6, len, step))| (packet(v6, len, id), steps(len, step)))
            .collect();
        let mut fragments: Vec<(usize, Vec<u8>)> = (0..)
            .zip(&packets)
            .flat_map(|(n, (packet, step))| {
                parts(packet, n as u16, *step).into_iter().map(move |part| (n, part))
            })
            .collect();
        // The same order for the same number, not necessarily a random one.
        fragments.sort_by_cached_key(|(_, part)| {
            part.iter().fold(order, |sum, byte| sum.rotate_left(7).wrapping_mul(31) ^ u64::from(*byte))
        });
        let mut nf = defrag("");
        let mut left: Vec<usize> = packets.iter().enumerate().map(|(n, _)| {
            fragments.iter().filter(|(of, _)| *of == n).count()
        }).collect();
        for (n, part) in fragments {
            left[n] -= 1;
            let result = pass(&mut *nf, &part, 0);
            if left[n] == 0 {
                let whole = result.unwrap();
                prop_assert!(whole == packets[n].0);
                let (_, headers) = parse(&whole, PortIndex::NONE, Decapsulate::No);
                prop_assert_eq!(checksum::verify(&whole, &headers), ChecksumStatus::Good);
            } else {
                prop_assert_eq!(result, Err(DropReason::FragmentHeld));
                if again {
                    prop_assert_eq!(pass(&mut *nf, &part, 0), Err(DropReason::FragmentDuplicate));
                }
            }
        }
        prop_assert_eq!(figure(&*nf, "waiting"), 0);
    }

    #[test]
    fn state_goes_on_elsewhere(len in 500usize..3000, step in 1usize..40, moved in any::<prop::sample::Index>()) {
        let packet = packet(len % 2 == 0, len, 9);
        let fragments = parts(&packet, 9, steps(len, step));
        let (before, after) = fragments.split_at(1 + moved.index(fragments.len() - 1));
        let mut here = defrag("");
        for part in before {
            prop_assert_eq!(pass(&mut *here, part, 3), Err(DropReason::FragmentHeld));
        }
        let mut stream = Vec::new();
        let mut writer = StateWriter::new(&mut stream, "defrag", here.state_version()).unwrap();
        here.export_state(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut there = defrag("");
        let mut input = &stream[..];
        let mut reader = StateReader::new(&mut input, "defrag", there.state_version()).unwrap();
        prop_assert_eq!(there.import_state(&mut reader).unwrap(), 1);
        for part in after {
            prop_assert_eq!(pass(&mut *there, part, 4), pass(&mut *here, part, 4));
        }
        prop_assert_eq!((figure(&*here, "whole"), figure(&*there, "whole")), (1, 1));
    }
}

#[test]
fn what_is_no_fragment_passes_as_it_is() {
    let mut nf = defrag("");
    for whole in [packet(false, 100, 1), packet(true, 100, 1), vec![0; 60]] {
        assert_eq!(pass(&mut *nf, &whole, 0), Ok(whole));
    }
    assert_eq!(figure(&*nf, "fragments"), 0);
}

#[test]
fn overlapping_fragments_end_the_whole_packet() {
    for v6 in [false, true] {
        let whole = packet(v6, 400, 1);
        let changed = {
            let mut other = whole.clone();
            *other.last_mut().unwrap() ^= 1;
            other
        };
        // Parts of either packet, the last of which contradicts those before it.
        let tail = 408;
        for contradicting in [
            vec![part(&whole, 1, 0, 80), part(&whole, 1, 72, 160)],
            vec![part(&whole, 1, 80, 160), part(&whole, 1, 0, 88)],
            vec![part(&whole, 1, 0, 160), part(&whole, 1, 80, 160)],
            vec![part(&whole, 1, 320, tail), part(&changed, 1, 320, tail)],
            vec![part(&whole, 1, 320, tail), part(&packet(v6, 500, 1), 1, 408, 480)],
            vec![part(&whole, 1, 320, tail), part(&packet(v6, 200, 1), 1, 160, 208)],
        ] {
            let mut nf = defrag("");
            for part in &contradicting[..1] {
                assert_eq!(pass(&mut *nf, part, 0), Err(DropReason::FragmentHeld));
            }
            assert_eq!(pass(&mut *nf, &contradicting[1], 0), Err(DropReason::FragmentOverlap));
            // The correct ones are refused too, until the packet expires.
            for part in parts(&whole, 1, 80) {
                assert_eq!(pass(&mut *nf, &part, 29), Err(DropReason::FragmentOverlap));
            }
            let again: Vec<_> =
                parts(&whole, 1, 80).iter().map(|p| pass(&mut *nf, p, 30)).collect();
            assert_eq!(again.last(), Some(&Ok(whole.clone())));
        }
    }
}

#[test]
fn who_is_in_another_vlan_or_has_another_address_has_packets_of_its_own() {
    let whole = packet(false, 400, 1);
    let [first, second] = [part(&whole, 1, 0, 80), part(&whole, 1, 80, 408)];
    for at in [15, 18 + 9, 18 + 13, 18 + 17, 18 + 5] {
        let mut nf = defrag("");
        let mut other = second.clone();
        other[at] ^= 1;
        fill(&mut other);
        assert_eq!(pass(&mut *nf, &first, 0), Err(DropReason::FragmentHeld));
        assert_eq!(pass(&mut *nf, &other, 0), Err(DropReason::FragmentHeld), "byte {at}");
        assert_eq!(figure(&*nf, "waiting"), 2);
        assert_eq!(pass(&mut *nf, &second, 0).as_ref(), Ok(&whole));
    }
}

#[test]
fn what_no_sender_makes_is_malformed() {
    let malformed = |mut packet: Vec<u8>, change: &dyn Fn(&mut Vec<u8>)| {
        change(&mut packet);
        fill(&mut packet);
        assert_eq!(pass(&mut *defrag(""), &packet, 0), Err(DropReason::Malformed));
    };
    let (v4, v6) = (packet(false, 400, 1), packet(true, 400, 1));
    // Truncated by its capture.
    malformed(part(&v4, 1, 0, 80), &|p| p.truncate(80));
    malformed(part(&v6, 1, 80, 160), &|p| p.truncate(100));
    // Not a multiple of eight bytes, although more fragments follow.
    malformed(part(&v4, 1, 0, 80), &|p| p[21] -= 4);
    malformed(part(&v6, 1, 0, 80), &|p| p[23] -= 4);
    // Without data.
    malformed(part(&v4, 1, 80, 160), &|p| p[20..22].copy_from_slice(&[0, 20]));
    malformed(part(&v6, 1, 80, 160), &|p| p[22..24].copy_from_slice(&[0, 8]));
    // Beyond the longest packet.
    malformed(part(&v4, 1, 320, 408), &|p| p[24..26].copy_from_slice(&[0x1f, 0xff]));
    malformed(part(&v6, 1, 320, 408), &|p| p[60..62].copy_from_slice(&[0xff, 0xf8]));
    // A fragmented fragment.
    let nested = part(&part(&v6, 2, 0, 80), 1, 0, 40);
    let rest = part(&part(&v6, 2, 0, 80), 1, 40, 88);
    let mut nf = defrag("");
    assert_eq!(pass(&mut *nf, &nested, 0), Err(DropReason::FragmentHeld));
    assert_eq!(pass(&mut *nf, &rest, 0), Err(DropReason::Malformed));
}

#[test]
fn a_damaged_header_is_not_put_right() {
    let whole = packet(false, 400, 1);
    let all = parts(&whole, 1, 200);
    for damaged in 0..all.len() {
        for at in [18 + 1, 18 + 8, 18 + 10] {
            let mut nf = defrag("");
            for (n, part) in all.iter().enumerate() {
                let mut part = part.clone();
                if n == damaged {
                    part[at] ^= 1;
                    assert_eq!(pass(&mut *nf, &part, 0), Err(DropReason::BadChecksum));
                } else {
                    assert_eq!(pass(&mut *nf, &part, 0), Err(DropReason::FragmentHeld));
                }
            }
            // The sender repeats it.
            assert_eq!(pass(&mut *nf, &all[damaged], 0), Ok(whole.clone()));
        }
    }
}

/// Receivers that leave header checksums unverified read other bytes than the others.
#[test]
fn a_damaged_fragment_with_other_bytes_ends_the_whole_packet() {
    let whole = packet(false, 400, 1);
    let all = parts(&whole, 1, 200);
    assert_eq!(all.len(), 3);
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut part = all[1].clone();
        part[18 + 10] ^= 1;
        change(&mut part);
        part
    };
    let other_bytes = damaged(&|part| *part.last_mut().unwrap() ^= 1);
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1]] {
        let sent = [&all[0], &other_bytes, &all[1]];
        let mut nf = defrag("");
        let fates = order.map(|n| pass(&mut *nf, sent[n], 0));
        assert!(fates.contains(&Err(DropReason::BadChecksum)), "{order:?}: {fates:?}");
        let rest: Vec<_> = all.iter().map(|part| pass(&mut *nf, part, 0)).collect();
        assert!(rest.iter().all(|fate| *fate == Err(DropReason::FragmentOverlap)), "{rest:?}");
    }
    // One of another place contradicts nothing, nor does one with the same bytes.
    let elsewhere = damaged(&|part| part[18 + 7] = 0xff);
    for harmless in [elsewhere, damaged(&|_| ())] {
        let mut nf = defrag("");
        assert_eq!(pass(&mut *nf, &harmless, 0), Err(DropReason::BadChecksum));
        let fates: Vec<_> = all.iter().map(|part| pass(&mut *nf, part, 0)).collect();
        assert_eq!(fates.last(), Some(&Ok(whole.clone())));
    }
    // What is taken note of is bounded like fragments.
    let mut nf = defrag("max_fragments = 4");
    for byte in 0..10 {
        let part = damaged(&|part| *part.last_mut().unwrap() = byte);
        assert_eq!(pass(&mut *nf, &part, 0), Err(DropReason::BadChecksum));
    }
    assert_eq!(pass(&mut *nf, &all[0], 0), Err(DropReason::FragmentOverlap));
}

#[test]
fn the_whole_is_of_the_type_of_its_first_fragment() {
    let pool = Arc::new(Pool::anonymous(4, 2048).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let whole = packet(false, 400, 1);
    for (n, part) in [part(&whole, 1, 160, 408), part(&whole, 1, 0, 80), part(&whole, 1, 80, 160)]
        .iter()
        .enumerate()
    {
        let lane = batch.push_bytes(part).unwrap();
        batch.meta.packet_type[lane] = PacketType(n as u16);
    }
    let lanes = batch.lanes();
    batch.parse(lanes, Decapsulate::No);
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    defrag("").process(&mut batch, lanes, &mut context);
    assert_eq!(context.dropped().count(), 2);
    assert_eq!(batch.meta.packet_type[2], PacketType(1));
    assert_eq!(batch.meta.wire_len[2] as usize, whole.len());
}

#[test]
fn congestion_is_told_on() {
    // ECN of the first fragment, of the second, and of the whole packet; `None`: it is dropped.
    for (first, second, whole) in [
        (1, 1, Some(1)),
        (2, 3, Some(3)),
        (3, 1, Some(3)),
        (0, 3, None),
        (3, 0, None),
        (0, 1, Some(0)),
    ] {
        for v6 in [false, true] {
            let packet = packet(v6, 400, 1);
            let marked = |from, to, ecn: u8| {
                let mut part = part(&packet, 1, from, to);
                part[19] |= if v6 { ecn << 4 } else { ecn };
                fill(&mut part);
                part
            };
            let mut nf = defrag("");
            assert!(pass(&mut *nf, &marked(0, 80, first), 0).is_err());
            let result = pass(&mut *nf, &marked(80, 408, second), 0);
            let found = result.map(|p| if v6 { p[19] >> 4 } else { p[19] } & 3);
            assert_eq!(found, whole.ok_or(DropReason::Malformed));
        }
    }
}

#[test]
fn time_memory_and_fragments_are_bounded() {
    let whole = packet(false, 1200, 1);
    let mut nf = defrag("timeout_s = 5\nmemory_mib = 1\nmax_fragments = 10");
    assert!(pass(&mut *nf, &part(&whole, 1, 0, 80), 0).is_err());
    assert!(pass(&mut *nf, &part(&whole, 1, 80, 160), 4).is_err());
    // Five seconds after the first fragment, no matter when the others arrived.
    assert_eq!(pass(&mut *nf, &part(&whole, 1, 160, 1208), 5), Err(DropReason::FragmentHeld));
    assert_eq!((figure(&*nf, "expired"), figure(&*nf, "waiting")), (1, 1));

    let many = parts(&packet(false, 1200, 2), 2, 80);
    let results: Vec<_> = many.iter().map(|part| pass(&mut *nf, part, 6)).collect();
    assert!(results[..10].iter().all(|result| *result == Err(DropReason::FragmentHeld)));
    assert_eq!(results[10], Err(DropReason::StateFull));
    assert_eq!(results[11], Err(DropReason::FragmentOverlap));

    // Beyond a mebibyte the oldest are evicted.
    for id in 0..5000 {
        let first = part(&packet(false, 1200, id), id, 0, 800);
        assert_eq!(pass(&mut *nf, &first, 60), Err(DropReason::FragmentHeld));
    }
    let (waiting, evicted) = (figure(&*nf, "waiting"), figure(&*nf, "evicted"));
    assert_eq!(waiting + evicted, 5000);
    assert!((700..1300).contains(&waiting), "{waiting}");
    let newest = packet(false, 1200, 4999);
    assert_eq!(pass(&mut *nf, &part(&newest, 4999, 800, 1208), 61), Ok(newest));
    assert_eq!(
        pass(&mut *nf, &part(&packet(false, 1200, 0), 0, 800, 1208), 61),
        Err(DropReason::FragmentHeld),
    );
}

/// After a pause in the traffic, all packets have timed out: no packet waits until all are removed.
#[test]
fn packets_that_time_out_at_once_are_removed_some_at_a_time() {
    const ALL: u16 = 1000;
    let timeout = Nanoseconds::from_secs(30);
    let limits = Limits { timeout, memory: 4 << 20, fragments: 64 };
    let mut nf = Defrag { table: Table::new(limits), fragments: 0, whole: 0, refused: 0 };
    for id in 0..ALL {
        let cut = packet(false, 1200, id);
        assert!(pass(&mut nf, &part(&cut, id, 0, 80), 0).is_err());
        assert!(pass(&mut nf, &part(&cut, id, 160, 240), 0).is_err());
    }
    let whole = packet(false, 1200, 1);
    let (mut packets, mut before) = (0, nf.table.held());
    assert_eq!(before, usize::from(ALL));
    while nf.table.held() > 0 {
        assert_eq!(pass(&mut nf, &whole, 60), Ok(whole.clone()));
        let removed = before - nf.table.held();
        assert!((1..=4).contains(&removed), "{removed} with packet {packets}");
        (packets, before) = (packets + 1, nf.table.held());
        // For all others it is as if they were removed.
        assert_eq!((figure(&nf, "expired"), figure(&nf, "waiting")), (ALL.into(), 0));
    }
}

#[test]
fn what_has_timed_out_and_is_still_there_is_not_used() {
    let mut nf = defrag("");
    for id in 0..500 {
        assert!(pass(&mut *nf, &part(&packet(false, 1200, id), id, 0, 800), 0).is_err());
    }
    let whole = packet(false, 1200, 499);
    // The last of them begins again, and is the only one that moves.
    assert_eq!(pass(&mut *nf, &part(&whole, 499, 800, 1208), 60), Err(DropReason::FragmentHeld));
    let stream = thalweg_testkit::moving::exported(&*nf, "defrag");
    let mut new = defrag("");
    assert_eq!(thalweg_testkit::moving::import(&mut *new, "defrag", &stream), 1);
    for nf in [&mut nf, &mut new] {
        assert!(pass(&mut **nf, &part(&whole, 499, 0, 800), 61) == Ok(whole.clone()));
        assert_eq!(figure(&**nf, "waiting"), 0);
    }
    assert_eq!((figure(&*nf, "expired"), figure(&*nf, "evicted")), (500, 0));
}

#[test]
fn a_packet_longer_than_a_frame_is_dropped() {
    let whole = packet(false, 9000, 1);
    let mut nf = defrag("");
    let results: Vec<_> = parts(&whole, 1, 1480).iter().map(|p| pass(&mut *nf, p, 0)).collect();
    assert_eq!(results.last(), Some(&Err(DropReason::FrameTooSmall)));
    assert_eq!(figure(&*nf, "waiting"), 0);
}

#[test]
fn damaged_state_is_refused_and_nothing_taken_over() {
    let whole = packet(false, 400, 1);
    let mut nf = defrag("");
    assert!(pass(&mut *nf, &part(&whole, 1, 0, 80), 0).is_err());
    assert!(pass(&mut *nf, &part(&whole, 1, 160, 240), 0).is_err());
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "defrag", 1).unwrap();
    nf.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    // The importing NF allows fewer fragments.
    let mut narrow = defrag("max_fragments = 2");
    let mut input = &stream[..];
    let mut reader = StateReader::new(&mut input, "defrag", 1).unwrap();
    assert_eq!(narrow.import_state(&mut reader).unwrap(), 1);
    assert!(pass(&mut *nf, &part(&whole, 1, 80, 160), 0).is_err());
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "defrag", 1).unwrap();
    nf.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    let mut input = &stream[..];
    let mut reader = StateReader::new(&mut input, "defrag", 1).unwrap();
    let error = narrow.import_state(&mut reader).unwrap_err();
    assert_eq!(error.to_string(), "state record 0: fragments that do not fit together");
    assert_eq!(figure(&*narrow, "waiting"), 1);
}

#[test]
fn what_scapy_cuts_is_what_it_was() {
    let script = "
from scapy.all import *
conf.verb = 0
def show(kind, p): print(kind, bytes(p).hex())
e = Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:02')
data = bytes(i * 7 % 251 for i in range(3100))
v4 = e/IP(src='192.0.2.1', dst='192.0.2.2', id=77, options=[IPOption_RR(length=7, pointer=4)])/UDP(sport=1, dport=2)/data
show('whole', v4)
for p in fragment(Ether(bytes(v4)), fragsize=1000): show('part', p)
v6 = e/IPv6(src='2001:db8::1', dst='2001:db8::2')/IPv6ExtHdrHopByHop()/IPv6ExtHdrRouting(addresses=['2001:db8::3'], segleft=0)/IPv6ExtHdrFragment(id=78)/UDP(sport=1, dport=2)/data
whole = e/IPv6(src='2001:db8::1', dst='2001:db8::2')/IPv6ExtHdrHopByHop()/IPv6ExtHdrRouting(addresses=['2001:db8::3'], segleft=0)/UDP(sport=1, dport=2)/data
show('whole', whole)
for p in reversed(fragment6(IPv6(bytes(v6[IPv6])), 1280)): show('part', e/p)
";
    let Some(output) = scapy(script, "") else { return };
    let mut nf = defrag("");
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for line in output.lines() {
        let (kind, bytes) = line.split_once(' ').unwrap();
        let bytes = hex::decode(bytes).unwrap();
        match (kind, pass(&mut *nf, &bytes, 0)) {
            ("whole", _) => expected.push(bytes),
            (_, Ok(whole)) => found.push(whole),
            (_, Err(reason)) => assert_eq!(reason, DropReason::FragmentHeld),
        }
    }
    assert_eq!(found.len(), 2);
    assert_eq!(found, expected);
}
