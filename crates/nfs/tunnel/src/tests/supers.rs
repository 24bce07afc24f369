//! Super-packets: encapsulated and decapsulated whole, they leave as their segments would.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_nf::{Emitted, Verdict};
use thalweg_packet::Pool;
use thalweg_packet::checksum::fill_ipv4;
use thalweg_packet::wire::tcp_flags::{ACK, CWR, PSH};
use thalweg_packet::write::TcpSegment;

use super::*;

/// A packet, with a segment size if it is a super-packet.
type Sent = (Vec<u8>, u16);

fn pool() -> Arc<Pool> {
    Arc::new(Pool::anonymous_with(512, 2048, 40).unwrap())
}

fn batch_of(pool: &Arc<Pool>, packets: &[Sent]) -> Batch {
    let mut batch = Batch::new(pool.clone());
    for (bytes, size) in packets {
        let lane = batch.push_super(bytes.len(), *size).unwrap();
        batch.bytes_mut(lane).copy_from_slice(bytes);
    }
    batch
}

/// Lets an NF process packets, which it must pass on.
fn process(nf: &mut dyn NetworkFunction, batch: &mut Batch) {
    batch.parse(batch.lanes(), Decapsulate::No);
    let mut emitted = Emitted::new(batch.pool().clone());
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    let lanes = batch.lanes();
    nf.process(batch, lanes, &mut context);
    for lane in lanes {
        assert_eq!(context.verdict(lane), Verdict::Forward, "{lane}");
    }
}

/// The packets on the wire that those of a batch stand for.
fn on_wire(batch: &Batch) -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    for lane in batch.lanes() {
        let Some(mut segments) = batch.segments(lane) else {
            assert!(!batch.is_super(lane), "it can be segmented");
            wire.push(batch.bytes(lane).to_vec());
            continue;
        };
        while let Some(len) = segments.next_len() {
            let mut packet = vec![0; len];
            segments.write_next(batch.bytes(lane), &mut packet);
            wire.push(packet);
        }
    }
    wire
}

/// The reference: each packet by itself, as one that is not a super-packet.
fn each(nf: &mut dyn NetworkFunction, pool: &Arc<Pool>, wire: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let one = |packet: &Vec<u8>| {
        let mut batch = batch_of(pool, &[(packet.clone(), 0)]);
        process(nf, &mut batch);
        on_wire(&batch).remove(0)
    };
    wire.iter().map(one).collect()
}

/// A packet of `payload` bytes, in segments of up to `size`.
fn sent((v6, tcp, tagged, tos): (bool, bool, bool, u8), payload: usize, size: u16) -> Sent {
    let (src, dst) = if v6 {
        ("2001:db8:1::1".parse().unwrap(), "2001:db8:2::1".parse().unwrap())
    } else {
        ([10, 1, 0, 1].into(), [10, 2, 0, 1].into())
    };
    let builder = PacketBuilder::new([2; 6], [4; 6]).ipv4_id(65_530, true);
    let builder = if tagged { builder.vlan(7) } else { builder };
    let builder = builder.ip(src, dst).tos(tos);
    let flags = ACK | PSH | CWR;
    let builder = if tcp {
        builder.tcp(TcpSegment { seq: 0xffff_ff00, flags, ..TcpSegment::default() })
    } else {
        builder.udp(1, 2)
    };
    let content = |at: usize| (at * 7) as u8;
    let mut bytes = builder.build(&(0..payload).map(content).collect::<Vec<_>>());
    // The builder makes no longer ones.
    if payload > 65_000 && !v6 && !tagged {
        bytes.extend((65_000..payload).map(content));
        let len = bytes.len() as u16 - 14;
        bytes[16..18].copy_from_slice(&len.to_be_bytes());
        let (_, headers) = parse(&bytes, PortIndex::NONE, Decapsulate::No);
        fill_ipv4(&mut bytes, &headers);
    }
    (bytes, if payload > usize::from(size) { size } else { 0 })
}

fn any_packet() -> impl Strategy<Value = Sent> {
    let kind = (any::<bool>(), any::<bool>(), any::<bool>(), 0..4_u8);
    // Odd sizes too: a checksum is over 16-bit words.
    (kind, 1..20_000_usize, 500..1460_u16)
        .prop_map(|(kind, payload, size)| sent(kind, payload, size))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn segments_of_what_is_encapsulated_are_the_segments_encapsulated(
        protocol in proptest::sample::select(&PROTOCOLS[..]), v6_tunnel: bool,
        packets in proptest::collection::vec(any_packet(), 1..16),
    ) {
        let pool = pool();
        let (mut whole, mut pieces) = (end(protocol, v6_tunnel, true), end(protocol, v6_tunnel, true));
        let (mut there, mut there_too) = (end(protocol, v6_tunnel, false), end(protocol, v6_tunnel, false));
        let mut batch = batch_of(&pool, &packets);
        let clear = on_wire(&batch);
        for lane in batch.supers() {
            prop_assert!(whole.takes_whole(&batch, lane));
        }
        process(&mut *whole, &mut batch);
        let inside = on_wire(&batch);
        prop_assert_eq!(batch.tunnelled_supers(), batch.supers());
        prop_assert_eq!(&inside, &each(&mut *pieces, &pool, &clear));
        for packet in &inside {
            let (_, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
            prop_assert!(matches!(
                verify(packet, &headers),
                ChecksumStatus::Good | ChecksumStatus::Unchecked
            ));
        }
        // The other end gets super-packets from a sender on the same machine.
        for lane in batch.supers() {
            prop_assert!(there.takes_whole(&batch, lane));
        }
        process(&mut *there, &mut batch);
        prop_assert!(batch.tunnelled_supers().is_empty());
        let outside = on_wire(&batch);
        prop_assert_eq!(&outside, &each(&mut *there_too, &pool, &inside));
        prop_assert_eq!(outside, clear);
    }
}

#[test]
fn only_super_packets_that_can_be_encapsulated_whole_are_taken() {
    let pool = pool();
    let takes = |nf: &dyn NetworkFunction, sent: &Sent| {
        let batch = batch_of(&pool, std::slice::from_ref(sent));
        nf.takes_whole(&batch, 0)
    };
    let (plain, tcp, udp) =
        (end("vxlan", true, true), (false, true, false, 0), (false, false, false, 0));
    assert!(takes(&*plain, &sent(tcp, 65_160, 1448)));
    assert!(takes(&*plain, &sent(udp, 20_000, 1400)));
    let most = MAX_SUPER_PACKET_LEN - MOST_HEADERS - 54;
    assert!(takes(&*plain, &sent(tcp, most, 1400)));
    assert!(!takes(&*plain, &sent(tcp, most + 1, 1400)), "the headers of a tunnel have no room");
    let fragmentable = instance(
        "[[tunnel]]\nname = 'x'\nprotocol = 'gre'\nlocal = '192.0.2.1'\nremote = '192.0.2.2'\ndf = false\n",
    );
    assert!(takes(&*fragmentable, &sent(tcp, 20_000, 1400)));
    assert!(
        !takes(&*fragmentable, &sent(udp, 20_000, 1400)),
        "only its segments can be fragmented"
    );
    // In a tunnel whose end is elsewhere, it would be in two.
    let mut batch = batch_of(&pool, &[sent(tcp, 20_000, 1400)]);
    process(&mut *end("vxlan", true, true), &mut batch);
    assert_eq!(batch.tunnelled_supers(), Lanes::one(0));
    assert!(!end("vxlan", false, true).takes_whole(&batch, 0));
    assert!(end("vxlan", true, false).takes_whole(&batch, 0));
}

#[test]
fn a_super_packet_as_long_as_can_be_is_encapsulated_and_decapsulated() {
    let pool = pool();
    for protocol in PROTOCOLS {
        let most = MAX_SUPER_PACKET_LEN - MOST_HEADERS - 54;
        let mut batch = batch_of(&pool, &[sent((false, true, false, 0), most, 1400)]);
        let clear = on_wire(&batch);
        process(&mut *end(protocol, true, true), &mut batch);
        process(&mut *end(protocol, true, false), &mut batch);
        assert_eq!(on_wire(&batch), clear, "{protocol}");
    }
}
