//! Incomplete packets that move to another instance.

use thalweg_nf::Steering;
use thalweg_nf::Units;
use thalweg_packet::BATCH;
use thalweg_testkit::moving::{Moving, assert_reads_recorded};

use super::*;

/// A recorded stream: two incomplete packets, one of IPv4 and one of IPv6.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    assert_reads_recorded(&mut *defrag(""), "defrag", FORMAT_2, 2);
}

/// The fragments of a packet between two of several hosts.
fn fragments(v6: bool, (from, to): (u8, u8), id: u16, len: usize, step: usize) -> Vec<Vec<u8>> {
    let mut whole = packet(v6, len, id);
    let (source, destination) = if v6 { (37, 53) } else { (29, 33) };
    whole[source] = from;
    whole[destination] = to;
    parts(&whole, id, steps(len, step))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn packets_move_unit_by_unit_while_fragments_arrive(
        seed: u64,
        packets in prop::collection::vec(
            (any::<bool>(), (1u8..5, 1u8..5), 0u16..3, 64usize..1500, 4usize..40),
            1..24,
        ),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u64..4), 20..160),
        moves in prop::collection::vec(0u16..64, 0..40),
        batch in 1usize..=BATCH,
    ) {
        let parts: Vec<_> =
            packets.into_iter().flat_map(|(v6, ends, id, len, step)| fragments(v6, ends, id, len, step)).collect();
        let units = Units::new(64, Steering::with_seed(seed)).unwrap();
        let mut moving = Moving::new("defrag", units, |_| defrag("timeout_s = 20\nmax_fragments = 12"));
        let mut now = 0;
        let arrivals: Vec<_> = order.iter().map(|(part, seconds)| {
            now += seconds;
            (Nanoseconds::from_secs(now), parts[part.index(parts.len())].clone())
        }).collect();
        for unit in moving.send_while_moving(&arrivals, batch, moves, 8) {
            moving.move_unit(unit);
        }
        moving.end();

        for name in ["fragments", "whole", "waiting", "refused", "expired", "evicted"] {
            let both = figure(&*moving.old, name) + figure(&*moving.new, name);
            prop_assert_eq!(both, figure(&*moving.whole, name), "{}", name);
        }
    }
}

/// Packets that are taken over may be older than those that were here first.
#[test]
fn what_moves_expires_when_it_would_have() {
    let (mut old, mut new) = (defrag("timeout_s = 30"), defrag("timeout_s = 30"));
    let first = fragments(false, (1, 2), 1, 1000, 10);
    let second = fragments(false, (3, 4), 1, 1000, 10);
    assert_eq!(pass(&mut *old, &first[0], 10), Err(DropReason::FragmentHeld));
    assert_eq!(pass(&mut *new, &second[0], 20), Err(DropReason::FragmentHeld));
    let stream = thalweg_testkit::moving::exported(&*old, "defrag");
    assert_eq!(thalweg_testkit::moving::import(&mut *new, "defrag", &stream), 1);
    assert_eq!(pass(&mut *new, &packet(false, 100, 9), 40), Ok(packet(false, 100, 9)));
    assert_eq!(figure(&*new, "expired"), 1);
    assert_eq!(figure(&*new, "waiting"), 1);
}
