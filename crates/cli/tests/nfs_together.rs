//! Network functions one after the other: what no crate of a single function can test.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_nf::{Context, Emitted, Kind, NetworkFunction, Verdict};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{BATCH, Batch, Decapsulate, DropReason, Lanes, Nanoseconds, Pool};
use thalweg_testkit::Drive;
use thalweg_testkit::fragments::{packet, part, parts, steps};

fn instance(kind: &Kind, options: &str) -> Box<dyn NetworkFunction> {
    kind.build_alone(options).expect("the options are right").instance()
}

/// A batch of one packet, parsed.
fn one(packet: &[u8]) -> (Batch, Emitted) {
    let pool = Arc::new(Pool::anonymous(4, 8192).unwrap());
    let mut batch = Batch::new(pool.clone());
    batch.push_bytes(packet).unwrap();
    batch.parse(Lanes::ALL, Decapsulate::No);
    (batch, Emitted::new(pool))
}

proptest! {
    #[test]
    fn what_is_cut_again_is_as_it_came(v6 in any::<bool>(), len in 64usize..3000, step in 1usize..200) {
        let packet = packet(v6, len, 9);
        let fragments = parts(&packet, 9, steps(len, step).max((len / 25).next_multiple_of(8)));
        let mut nf = instance(&thalweg_defrag::KIND, "");
        let mut refrag = instance(&thalweg_refrag::KIND, "");
        let pool = Arc::new(Pool::anonymous(128, 8192).unwrap());
        let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
        for part in &fragments {
            batch.push_bytes(part).unwrap();
        }
        // And one that came whole.
        batch.push_bytes(&packet).unwrap();
        let lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        nf.process(&mut batch, lanes, &mut context);
        let left = lanes.without(context.dropped());
        prop_assert_eq!(left.count(), 2);
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        refrag.process(&mut batch, left, &mut context);
        prop_assert!(context.dropped().is_empty());
        let (first, whole) = (fragments.len() - 1, fragments.len());
        prop_assert!(batch.bytes(whole) == packet);
        let later = emitted.packets();
        if batch.bytes(first) == packet {
            // It was as long as its first fragment, with the header that says so.
            prop_assert!(v6 && packet.len() <= fragments[0].len() && emitted.is_empty());
            return Ok(());
        }
        let again: Vec<&[u8]> = [batch.bytes(first)].into_iter().chain(later).collect();
        prop_assert_eq!(again, fragments.iter().map(|part| &part[..]).collect::<Vec<_>>());
        prop_assert!(batch.headers(first).fragment);
    }
}

#[test]
fn a_pattern_over_two_fragments_is_found_behind() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("t.rules");
    let text = "drop udp any any -> any 2000 (msg:\"n\"; content:\"needle in a haystack\"; sid:1;)";
    std::fs::write(&rules, text).unwrap();
    let options = format!("rules = ['{}']", rules.display());
    let mut nids = Drive::new(instance(&thalweg_nids::KIND, &options));

    let mut data = vec![b'x'; 100];
    data[70..90].copy_from_slice(b"needle in a haystack");
    let builder = PacketBuilder::new([2; 6], [4; 6]).vlan(7);
    let builder = builder.ip([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let whole = builder.udp(1000, 2000).build(&data);
    let mut defrag = instance(&thalweg_defrag::KIND, "");
    for (part, held) in [(part(&whole, 1, 0, 80), true), (part(&whole, 1, 80, 108), false)] {
        assert_eq!(nids.send(std::slice::from_ref(&part)), [Verdict::Forward]);
        let (mut batch, mut emitted) = one(&part);
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        defrag.process(&mut batch, Lanes::one(0), &mut context);
        assert_eq!(context.verdict(0) != Verdict::Forward, held);
        if !held {
            let whole = batch.bytes(0).to_vec();
            assert_eq!(nids.send(&[whole]), [Verdict::Drop(DropReason::Intrusion)]);
        }
    }
}

/// A chain of VXLAN and IPsec, of packets that are parsed with what is in a tunnel before each NF.
#[test]
fn a_tunnel_goes_through_another() {
    let ipsec = |outbound: bool| {
        let direction = if outbound { "out" } else { "in" };
        let text = format!(
            "[[sa]]\nname = 'x'\ndirection = '{direction}'\nspi = 4660\n\
             suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '{}'\n\
             authentication_key = '{}'\nsource = '198.51.100.1'\n\
             destination = '198.51.100.2'\n{}",
            "0a".repeat(16),
            "0b".repeat(20),
            if outbound { "[[policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'x'" } else { "" },
        );
        instance(&thalweg_ipsec::KIND, &text)
    };
    let tunnel = |local, remote, pattern| {
        let text = format!(
            "[[tunnel]]\nname = 'x'\nprotocol = 'vxlan'\nlocal = '{local}'\n\
             remote = '{remote}'\nid = 4711\n{pattern}"
        );
        instance(&thalweg_tunnel::KIND, &text)
    };
    let mut chain = [
        tunnel("192.0.2.1", "192.0.2.2", "match = 'eth'"),
        ipsec(true),
        ipsec(false),
        tunnel("192.0.2.2", "192.0.2.1", ""),
    ];
    let pool = Arc::new(Pool::anonymous(64, 4096).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let clear: Vec<_> = (0..BATCH).map(|n| packet(n % 2 == 0, 30 * n, n as u16)).collect();
    clear.iter().for_each(|packet| assert!(batch.push_bytes(packet).is_some()));
    for nf in &mut chain {
        batch.parse(Lanes::ALL, Decapsulate::Yes);
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        nf.process(&mut batch, Lanes::ALL, &mut context);
        assert_eq!(context.dropped(), Lanes::NONE);
    }
    for (lane, clear) in clear.iter().enumerate() {
        assert_eq!(batch.bytes(lane), clear);
    }
}
