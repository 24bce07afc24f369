//! Laws of parsing, keys and checksums.

use std::net::IpAddr;

use proptest::prelude::*;
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::write::{self, PacketBuilder, TcpSegment};
use thalweg_packet::{
    Decapsulate, FiveTuple, FlowKey, Headers, MiniFlow, ParseStatus, PortIndex, parse,
};

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (IpAddr::V4(a.into()), IpAddr::V4(b.into()))),
        any::<(u128, u128)>().prop_map(|(a, b)| (IpAddr::V6(a.into()), IpAddr::V6(b.into()))),
    ]
}

prop_compose! {
    fn packet()(
        (src, dst) in addresses(),
        (sport, dport) in any::<(u16, u16)>(),
        (seq, flags, ttl) in (any::<u32>(), any::<u8>(), 1u8..),
        vlan in proptest::option::of(0u16..4096),
        transport in 0..4,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) -> Vec<u8> {
        let mut builder = PacketBuilder::new([2; 6], [4; 6]).ip(src, dst).ttl(ttl);
        if let Some(vid) = vlan {
            builder = builder.vlan(vid);
        }
        let tcp = TcpSegment {
            src_port: sport, dst_port: dport, seq, ack: !seq, flags, window: 1000,
        };
        let echo = write::IcmpEcho { reply: false, id: sport, seq: dport };
        match transport {
            // 4789 and 6081 would be tunnels.
            0 => builder.udp(sport, dport & 0x0fff),
            1 => builder.tcp(tcp),
            2 => builder.echo(echo),
            _ => builder.sctp(sport, dport),
        }.build(&payload)
    }
}

fn parsed(bytes: &[u8]) -> (FlowKey, Headers) {
    parse(bytes, PortIndex(0), Decapsulate::Yes)
}

fn offsets_are_ordered(bytes: &[u8]) -> Result<(), TestCaseError> {
    for decapsulate in [Decapsulate::No, Decapsulate::Yes, Decapsulate::Nested] {
        let (_, h) = parse(bytes, PortIndex(0), decapsulate);
        prop_assert!(h.end as usize <= bytes.len());
        prop_assert!(h.payload <= h.end, "{h:?}");
        prop_assert!(h.l3 == 0 || h.l2 <= h.l3 && h.l3 <= h.payload, "{h:?}");
        prop_assert!(h.l4 == 0 || h.l3 < h.l4 && h.l4 <= h.payload, "{h:?}");
        let _ = checksum::verify(bytes, &h);
        let mut copy = bytes.to_vec();
        checksum::fill(&mut copy, &h);
        write::decrement_ttl(&mut copy, &h);
        write::set_ipv4_src(&mut copy, &h, [1, 2, 3, 4].into());
        write::set_dst_port(&mut copy, &h, 7);
        write::set_icmp_id(&mut copy, &h, 7);
        prop_assert_eq!(copy.len(), bytes.len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn built_packets_parse_whole_with_good_checksums(packet in packet()) {
        let (_, headers) = parsed(&packet);
        prop_assert_eq!(headers.status, ParseStatus::Complete);
        prop_assert_eq!(headers.end as usize, packet.len());
        let expected = if headers.ip_proto == 132 {
            ChecksumStatus::Unchecked
        } else {
            ChecksumStatus::Good
        };
        prop_assert_eq!(checksum::verify(&packet, &headers), expected);
    }

    #[test]
    fn a_flipped_bit_under_a_checksum_is_found(packet in packet(), bit in any::<prop::sample::Index>()) {
        let (_, headers) = parsed(&packet);
        prop_assume!(matches!(headers.ip_proto, 1 | 6 | 58));
        let l4 = headers.l4 as usize;
        let bit = bit.index((packet.len() - l4) * 8);
        let mut bad = packet.clone();
        bad[l4 + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(checksum::verify(&bad, &headers), ChecksumStatus::BadTransport);
    }

    #[test]
    fn incremental_updates_equal_recomputation(
        packet in packet(), address in any::<u32>(), port in any::<u16>(),
    ) {
        let (_, headers) = parsed(&packet);
        let mut changed = packet.clone();
        write::decrement_ttl(&mut changed, &headers);
        write::set_ipv4_src(&mut changed, &headers, address.into());
        write::set_ipv4_dst(&mut changed, &headers, (!address).into());
        write::set_src_port(&mut changed, &headers, port);
        write::set_dst_port(&mut changed, &headers, !port);
        if headers.ip_proto == 1 {
            write::set_icmp_id(&mut changed, &headers, port);
        }
        let mut again = changed.clone();
        checksum::fill(&mut again, &headers);
        prop_assert_eq!(&changed, &again);
        if headers.is_ipv4() {
            let tuple = FiveTuple::from_key(&parsed(&changed).0).unwrap();
            prop_assert_eq!(tuple.src, IpAddr::V4(address.into()));
            if matches!(headers.ip_proto, 6 | 17) {
                prop_assert_eq!((tuple.src_port, tuple.dst_port), (port, !port));
            }
        }
    }

    #[test]
    fn a_sum_updated_word_by_word_equals_a_fresh_one(
        mut words in proptest::collection::vec(any::<u16>(), 1..64),
        at in any::<prop::sample::Index>(), to in any::<u16>(),
    ) {
        let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let old = checksum::checksum(&bytes(&words));
        let at = at.index(words.len());
        let from = std::mem::replace(&mut words[at], to);
        let fresh = checksum::checksum(&bytes(&words));
        let updated = checksum::update_u16(old, from, to);
        // Words that are all zero have the checksum 0xffff; equation 3 gives it too
        // unless nothing but zeros is left.
        let all_zero = words.iter().all(|w| *w == 0);
        prop_assert!(updated == fresh || all_zero, "{updated:x} {fresh:x}");
    }

    #[test]
    fn any_bytes_parse_without_panic_and_in_order(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        offsets_are_ordered(&bytes)?;
    }

    #[test]
    fn cut_and_changed_packets_parse_in_order(
        packet in packet(), cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = packet.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len().min(80));
            bytes[at] = value;
        }
        bytes.truncate(cut.index(packet.len() + 1));
        offsets_are_ordered(&bytes)?;
    }

    #[test]
    fn a_cut_packet_says_so(packet in packet(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(packet.len());
        let (_, headers) = parsed(&packet[..cut]);
        prop_assert_eq!(headers.status, ParseStatus::Truncated);
    }

    #[test]
    fn a_key_survives_compression(words in proptest::array::uniform23(
        prop_oneof![Just(0u64), any::<u64>()],
    )) {
        let key = FlowKey { words };
        let mini = MiniFlow::from(&key);
        prop_assert_eq!(FlowKey::from(&mini), key);
        prop_assert_eq!(mini.words().len(), words.iter().filter(|w| **w != 0).count());
        for (i, word) in words.iter().enumerate() {
            prop_assert_eq!(mini.get(i), *word);
        }
    }
}
