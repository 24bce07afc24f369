//! Every level of vector instructions parses as the scalar parser does.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_cpu::Isa;
use thalweg_packet::{
    BATCH, Batch, DEFAULT_FRAME_SIZE, Decapsulate, Lanes, Pool, PortIndex, parse,
};

/// A TCP or UDP packet over IPv4 in which everything fits, of `extra` payload bytes.
fn plain(tcp: bool, extra: usize, padding: usize) -> Vec<u8> {
    let transport = if tcp { 20 } else { 8 };
    let total = 20 + transport + extra;
    let mut packet: Vec<u8> = (1..=14).collect();
    packet[12..].copy_from_slice(&[8, 0]);
    packet.extend([0x45, 0x17, (total >> 8) as u8, total as u8, 1, 2, 0x40, 0]);
    packet.extend([64, if tcp { 6 } else { 17 }, 3, 4, 10, 1, 2, 3, 172, 16, 9, 8]);
    packet.extend([0x12, 0x34, 0x00, 0x50]);
    if tcp {
        packet.extend([9, 8, 7, 6, 5, 4, 3, 2, 0x50, 0x18, 0x20, 0, 1, 2, 0, 0]);
    } else {
        packet.extend([((8 + extra) >> 8) as u8, (8 + extra) as u8, 5, 6]);
    }
    packet.extend((0..extra + padding).map(|i| i as u8));
    packet
}

/// What is done to one of them.
#[derive(Clone, Debug)]
enum Fault {
    None,
    /// A byte of the headers is set.
    Byte(usize, u8),
    /// The packet ends here.
    Cut(usize),
    /// A VLAN tag, before the EtherType.
    Tag,
    /// The destination port is that of a tunnel.
    Tunnel(u16),
    /// Bytes that are no packet.
    Noise(Vec<u8>),
}

fn fault() -> impl Strategy<Value = Fault> {
    // The bytes that decide what a packet is, and values near the edges.
    let places = prop::sample::select(vec![12, 13, 14, 16, 17, 20, 21, 23, 37, 38, 39, 46, 47]);
    let values = prop::sample::select(vec![
        0u8, 1, 5, 6, 7, 8, 17, 20, 27, 28, 29, 39, 40, 41, 50, 0x20, 0x3f, 0x40, 0x45, 0x4f, 0x50,
        0x51, 0x60, 0x80, 0x86, 0xdd, 0xf0, 0xff,
    ]);
    prop_oneof![
        4 => Just(Fault::None),
        6 => (places, values).prop_map(|(place, value)| Fault::Byte(place, value)),
        2 => (0..64usize, any::<u8>()).prop_map(|(place, value)| Fault::Byte(place, value)),
        2 => (0..80usize).prop_map(Fault::Cut),
        1 => Just(Fault::Tag),
        1 => prop::sample::select(vec![4789u16, 6081]).prop_map(Fault::Tunnel),
        1 => prop::collection::vec(any::<u8>(), 0..100).prop_map(Fault::Noise),
    ]
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), 0..40usize, 0..20usize, fault()).prop_map(|(tcp, extra, padding, fault)| {
        let mut packet = plain(tcp, extra, padding);
        match fault {
            Fault::None => {}
            Fault::Byte(place, value) => {
                if let Some(byte) = packet.get_mut(place) {
                    *byte = value;
                }
            }
            Fault::Cut(len) => packet.truncate(len),
            Fault::Tag => {
                packet.splice(12..12, [0x81, 0, 0x20, 5]);
            }
            Fault::Tunnel(port) => packet[36..38].copy_from_slice(&port.to_be_bytes()),
            Fault::Noise(bytes) => packet = bytes,
        }
        packet
    })
}

/// A batch of `packets`, some of them moved to the very front of their frames.
fn batch(isa: Isa, packets: &[(Vec<u8>, bool)]) -> Batch {
    let pool = Arc::new(Pool::anonymous(BATCH, DEFAULT_FRAME_SIZE).unwrap());
    let mut batch = Batch::with_isa(pool, isa);
    for (n, (bytes, at_front)) in packets.iter().enumerate() {
        let lane = batch.push_bytes(bytes).unwrap();
        batch.meta.in_port[lane] = PortIndex(n as u16 * 7);
        if *at_front {
            let room = batch.headroom(lane);
            assert!(batch.grow_front(lane, room));
            batch.bytes_mut(lane)[..bytes.len()].copy_from_slice(bytes);
            batch.truncate(lane, bytes.len());
        }
    }
    batch
}

fn assert_parsed(batch: &Batch, lanes: Lanes, decapsulate: Decapsulate) {
    for lane in lanes {
        let (key, headers) = parse(batch.bytes(lane), batch.meta.in_port[lane], decapsulate);
        assert_eq!(batch.key(lane), key, "lane {lane}");
        assert_eq!(batch.headers(lane), &headers, "lane {lane}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_level_parses_alike(
        packets in prop::collection::vec((packet(), prop::bool::weighted(0.05)), 1..=BATCH),
        again in prop::collection::vec(packet(), BATCH),
        chosen in any::<u32>(),
        tunnels in prop::sample::select(vec![Decapsulate::No, Decapsulate::Yes, Decapsulate::Nested]),
    ) {
        for isa in Isa::available() {
            let mut batch = batch(isa, &packets);
            let all = batch.lanes();
            batch.parse(all, tunnels);
            assert_parsed(&batch, all, tunnels);
            // Some packets are rewritten and parsed again; the others keep their keys.
            let chosen = Lanes(chosen).and(all);
            for lane in chosen {
                let bytes = &again[lane];
                batch.truncate(lane, 0);
                prop_assert!(batch.grow_back(lane, bytes.len()));
                batch.bytes_mut(lane).copy_from_slice(bytes);
            }
            batch.parse(chosen, tunnels);
            assert_parsed(&batch, all, tunnels);
        }
    }
}

/// The vectorised parser must parse the packets that it is for.
#[test]
fn plain_packets_are_complete_at_every_level() {
    for isa in Isa::available() {
        let packets: Vec<_> = (0..BATCH).map(|n| (plain(n % 3 > 0, n, n % 7), false)).collect();
        let mut batch = batch(isa, &packets);
        batch.parse(Lanes::ALL, Decapsulate::No);
        assert_parsed(&batch, Lanes::ALL, Decapsulate::No);
        let complete = thalweg_packet::ParseStatus::Complete;
        assert!((0..BATCH).all(|lane| batch.headers(lane).status == complete));
    }
}
