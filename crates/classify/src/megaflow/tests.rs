use std::cell::Cell;

use proptest::prelude::*;

use super::*;

fn key(word: usize, value: u64) -> FlowKey {
    let mut key = FlowKey::default();
    key.words[word] = value;
    key
}

fn found(mask: FlowKey) -> Found {
    Found { rule: None, packet_type: PacketType(7), mask }
}

fn on(word: usize) -> Found {
    found(key(word, u64::MAX))
}

fn megaflows(limit: usize) -> Megaflows {
    Megaflows::new(limit, Isa::active(), Keys::seeded(5))
}

fn find(flows: &mut Megaflows, key: FlowKey) -> Option<u32> {
    let mut handles = [0; BATCH];
    let keys = TransposedKeys::from_keys(&[key; BATCH]);
    let lanes = flows.find_batch(&keys, Lanes::one(3), &mut handles);
    (lanes == Lanes::one(3)).then_some(handles[3])
}

#[test]
fn the_name_of_a_megaflow_that_is_gone_finds_nothing_in_its_place() {
    let mut flows = megaflows(10);
    flows.set_time(Nanoseconds(0));
    let first = flows.insert(&key(0, 1), &on(0)).unwrap();
    let stamp = flows.stamp(first);
    flows.set_time(Nanoseconds::from_secs(5));
    assert_eq!(flows.expire(1.0, Nanoseconds::from_secs(4)), 1);
    let second = flows.insert(&key(0, 2), &on(0)).unwrap();
    assert_eq!(first, second, "the place is used again");
    assert!(flows.stamped_mut(first, stamp).is_none() && !flows.has_stamp(first, stamp));
    assert!(flows.stamped_mut(second, flows.stamp(second)).is_some());
    assert_eq!((flows.len(), flows.subtables()), (1, 1));
}

#[test]
fn the_family_with_the_most_hits_comes_to_the_front() {
    let mut flows = megaflows(10);
    flows.insert(&key(0, 1), &on(0)).unwrap();
    flows.insert(&key(1, 1), &on(1)).unwrap();
    let visits = |flows: &mut Megaflows| {
        let before = flows.visited();
        let keys = TransposedKeys::from_keys(&[key(1, 1); BATCH]);
        assert_eq!(flows.find_batch(&keys, Lanes::ALL, &mut [0; BATCH]), Lanes::ALL);
        flows.visited() - before
    };
    assert_eq!(visits(&mut flows), 2 * BATCH as u64);
    for _ in 0..SORT_PERIOD as usize / BATCH {
        visits(&mut flows);
    }
    assert_eq!(visits(&mut flows), BATCH as u64);
}

#[test]
fn a_clock_that_steps_back_does_not_keep_idle_megaflows_for_ever() {
    let mut flows = megaflows(10);
    flows.set_time(Nanoseconds::from_secs(1_000_000));
    flows.insert(&key(0, 1), &on(0)).unwrap();
    let idle = Nanoseconds::from_secs(10);
    let removed_at = |flows: &mut Megaflows, seconds| {
        flows.set_time(Nanoseconds::from_secs(seconds));
        flows.expire(1.0, idle)
    };
    assert_eq!(removed_at(&mut flows, 1), 0);
    assert_eq!(removed_at(&mut flows, 10), 0);
    assert_eq!(removed_at(&mut flows, 12), 1);
}

#[test]
fn a_sweep_in_parts_sees_every_megaflow() {
    let mut flows = megaflows(1000);
    flows.set_time(Nanoseconds(0));
    (0..100).for_each(|n| assert!(flows.insert(&key(0, n), &on(0)).is_some()));
    flows.set_time(Nanoseconds::from_secs(60));
    let removed: usize = (0..10).map(|_| flows.expire(0.1, Nanoseconds::from_secs(10))).sum();
    assert_eq!((removed, flows.len(), flows.subtables()), (100, 0, 0));
}

#[test]
fn doubtful_megaflows_stay_only_while_the_rules_agree() {
    let mut flows = megaflows(10);
    let mut rules = RuleTable::new(PacketType(7));
    // A search in an empty table looks at nothing.
    let all = flows.insert(&key(0, 1), &found(FlowKey::default())).unwrap();
    assert!(!flows.is_doubtful(all));
    flows.doubt_all();
    assert!(flows.is_doubtful(all) && flows.confirm(all, &rules) && !flows.is_doubtful(all));
    let matches = vec![Match::new(key(1, 1), key(1, 1))];
    let id = RuleId(0);
    rules.insert(crate::Rule {
        id,
        priority: 1,
        matches,
        packet_type: PacketType(1),
        text: String::new(),
    });
    flows.doubt_all();
    assert!(!flows.confirm(all, &rules), "its mask has not the bit that the rules look at");
    assert_eq!((flows.len(), find(&mut flows, key(0, 1))), (0, None));
}

/// Many flows that agree in the bits that all masks have.
#[test]
fn a_family_whose_members_do_not_fit_together_is_taken_apart() {
    let mut flows = megaflows(100_000);
    // Both have the upper half of word 12, which is the same everywhere.
    let masks = [
        key(12, u64::MAX),
        FlowKey {
            words: {
                let mut words = key(12, 0xffff_ffff_0000_0000).words;
                words[18] = u64::MAX;
                words
            },
        },
    ];
    let flow = |n: u64| {
        let mut key = key(12, 0x0a00_0001_0000_0000 + n / 2);
        key.words[18] = n << 8;
        (key, masks[n as usize % 2])
    };
    for n in 0..4000 {
        let (key, mask) = flow(n);
        assert!(flows.insert(&key, &found(mask)).is_some());
    }
    assert_eq!((flows.subtables(), flows.families.len()), (2, 2));
    assert!((0..4000).all(|n| find(&mut flows, flow(n).0).is_some()));
}

/// Small indexes have few buckets, of which chance fills one now and then.
#[test]
fn a_bucket_that_chance_has_filled_keeps_no_flow_out() {
    for seed in 0..3000 {
        let mut flows = Megaflows::new(1000, Isa::active(), Keys::seeded(seed));
        for n in 0..24 {
            let mut key = key(12, 0x0a00_0001 << 32);
            key.words[18] = n << 48;
            let mut mask = FlowKey::default();
            mask.words[12] = 0xffff_ffff << 32;
            mask.words[18] = if n == 0 { 0 } else { 0xffff << 48 };
            assert!(flows.insert(&key, &found(mask)).is_some(), "seed {seed}, flow {n}");
        }
    }
}

/// Even a sender who knew the secret would only find flows that are not cached.
#[test]
fn flows_made_to_meet_are_refused_and_the_index_stays_as_large() {
    let mut flows = megaflows(100_000);
    (0..100).for_each(|n| assert!(flows.insert(&key(12, n), &on(12)).is_some()));
    let cancelling = u64::from(flows.hasher.nh().cancelling(2 * 12 + 1)) << 32;
    let alike = |n: u64| key(12, cancelling | n);
    let kept: Vec<u64> =
        (0..1000).filter(|n| flows.insert(&alike(*n), &on(12)).is_some()).collect();
    assert_eq!(kept, [0, 1, 2, 3, 4, 5], "three by each of two hashes");
    let places = flows.families[0].places();
    (1000..2000).for_each(|n| assert_eq!(flows.insert(&alike(n), &on(12)), None));
    assert_eq!((flows.families[0].places(), flows.len()), (places, 106));
    assert!(kept.iter().all(|n| find(&mut flows, alike(*n)).is_some()));
    (100..5000).for_each(|n| assert!(flows.insert(&key(12, n), &on(12)).is_some(), "{n}"));
}

/// A mask with few bits makes all flows before it agree in the coarse bits.
#[test]
fn a_mask_that_makes_a_family_coarser_loses_no_flow() {
    let mut flows = megaflows(1000);
    let network = 0x0a00_u64 << 48;
    for n in 0..50 {
        assert!(flows.insert(&key(12, network | n), &found(key(12, u64::MAX))).is_some());
    }
    assert!(flows.insert(&key(12, network), &found(key(12, 0xffff << 48))).is_some());
    assert_eq!(flows.families.len(), 1);
    let indexed = |handle: &u32| {
        let pattern = flows.store.pattern(*handle);
        let wanted = |h: u32| h == *handle;
        flows.families[0].peek(&flows.store, &flows.hasher, pattern.value(), wanted).is_some()
    };
    assert_eq!(flows.store.handles().filter(indexed).count(), 51);
}

/// Takes what changes to its end, with as many batches as that takes; returns their number.
fn settle(flows: &mut Megaflows) -> usize {
    let mut batches = 0;
    while flows.changes {
        find(flows, FlowKey::default());
        batches += 1;
        std::thread::yield_now();
    }
    batches
}

/// As many flows as must not move at once, in a network; and how they differ.
const MANY: u64 = 5000;

fn host(n: u64) -> FlowKey {
    key(12, 0x0a00 << 48 | n)
}

#[test]
fn the_flows_of_a_family_move_some_at_a_time() {
    let mut flows = megaflows(100_000);
    for n in 0..MANY {
        assert!(flows.insert(&host(n), &found(key(12, u64::MAX))).is_some());
        settle(&mut flows);
    }
    // One more mask, with which the coarse mask loses bits.
    assert!(flows.insert(&key(12, 0x0b00 << 48), &found(key(12, 0xffff << 48))).is_some());
    let left = |flows: &Megaflows| {
        let leaving = flows.families.iter().filter(|family| !family.is_open());
        leaving.map(Family::len).sum::<usize>()
    };
    assert!(left(&flows) as u64 >= MANY - 100, "{}", left(&flows));
    let mut batches = 0;
    while flows.changes {
        let before = left(&flows);
        let asked = host(batches * 37 % MANY);
        assert!(find(&mut flows, asked).is_some(), "found where it is");
        assert!(before - left(&flows) <= changes::MOVED * signatures::WAYS);
        batches += 1;
    }
    assert!(batches >= MANY / (changes::MOVED * signatures::WAYS) as u64, "{batches}");
    assert_eq!(flows.len() as u64, MANY + 1);
    assert!((0..MANY).all(|n| find(&mut flows, host(n)).is_some()));
}

#[test]
fn idle_megaflows_are_removed_some_at_a_time() {
    let mut flows = megaflows(100_000);
    flows.set_time(Nanoseconds(0));
    for n in 0..MANY {
        assert!(flows.insert(&host(n), &on(12)).is_some());
        settle(&mut flows);
    }
    flows.set_time(Nanoseconds::from_secs(60));
    let mut calls = 0;
    while flows.len() > 0 {
        let removed = flows.expire(1.0, Nanoseconds::from_secs(10));
        assert!((1..=MOST_REMOVED).contains(&removed));
        calls += 1;
    }
    assert_eq!(calls, (MANY as usize).div_ceil(MOST_REMOVED));
    assert_eq!((flows.subtables(), flows.families.len()), (0, 0));
}

/// Masks like those of real rule sets: prefixes of addresses, and ports or not.
fn mask() -> impl Strategy<Value = FlowKey> {
    mask_of(vec![0, 8, 12, 16, 24, 32])
}

/// The same with prefixes of these lengths.
fn mask_of(lengths: Vec<u32>) -> impl Strategy<Value = FlowKey> {
    let prefix = prop::sample::select(lengths);
    (prefix.clone(), prefix, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(src, dst, tp_src, tp_dst, wide)| {
            let bits = |len: u32| u64::from(u32::MAX.checked_shl(32 - len).unwrap_or(0));
            let mut mask = FlowKey::default();
            mask.words[12] = bits(src) << 32 | bits(dst);
            mask.words[18] =
                (u64::from(tp_src) * (0xffff << 48)) | (u64::from(tp_dst) * (0xffff << 32));
            mask.words[11] = 0xff00_0000;
            if wide {
                (13..17).for_each(|i| mask.words[i] = u64::MAX);
            }
            mask
        },
    )
}

/// Keys with few different values, so that masked keys collide.
fn a_key() -> impl Strategy<Value = FlowKey> {
    (any::<[u8; 4]>(), 0..3u64, prop::bool::weighted(0.2)).prop_map(|(b, proto, wide)| {
        let b = b.map(u64::from);
        let mut key = FlowKey::default();
        key.words[12] = ((b[0] % 4) << 56) + ((b[1] % 3) << 32) + ((b[2] % 4) << 24) + b[3] % 5;
        key.words[18] = (b[0] % 2) << 50 | (b[3] % 7) << 33;
        key.words[11] = proto << 24;
        if wide {
            key.words[14] = b[1] % 2;
        }
        key
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Against a list of patterns: with megaflows that come and go, every key that
    /// any covers is found, by one that covers it, at every level.
    #[test]
    fn a_key_is_found_exactly_when_a_megaflow_covers_it(
        steps in prop::collection::vec((mask(), a_key(), any::<u8>()), 1..150),
        asked in prop::collection::vec(a_key(), BATCH),
        lanes in any::<u32>(),
    ) {
        let rules = RuleTable::new(PacketType(0));
        for isa in Isa::available() {
            let mut flows = Megaflows::new(1000, isa, Keys::seeded(9));
            let mut held: Vec<u32> = Vec::new();
            for (mask, key, what) in &steps {
                if *what < 40 && !held.is_empty() {
                    let handle = held.swap_remove(usize::from(*what) % held.len());
                    flows.remove(handle);
                } else if flows.peek(key, &rules).is_none_or(|m| m.pattern.mask() != mask) {
                    let pattern = Match::new(*key, *mask);
                    if !held.iter().any(|h| flows.store.pattern(*h) == pattern) {
                        held.push(flows.insert(key, &found(*mask)).unwrap());
                    }
                }
                prop_assert_eq!(flows.len(), held.len());
            }
            let asked: [FlowKey; BATCH] = asked.clone().try_into().unwrap();
            let mut handles = [u32::MAX; BATCH];
            let keys = TransposedKeys::from_keys(&asked);
            let hits = flows.find_batch(&keys, Lanes(lanes), &mut handles);
            prop_assert!(hits.without(Lanes(lanes)).is_empty());
            for lane in Lanes(lanes) {
                let covering = |h: &u32| flows.store.pattern(*h).covers(&asked[lane]);
                let any = held.iter().any(covering);
                prop_assert_eq!(hits.contains(lane), any);
                prop_assert_eq!(flows.peek(&asked[lane], &rules).is_some(), any);
                prop_assert!(!any || covering(&handles[lane]) && held.contains(&handles[lane]));
            }
        }
    }
}

/// Keys of many flows, of which few agree.
fn many_keys() -> impl Strategy<Value = Vec<(FlowKey, FlowKey, bool)>> {
    let one = (mask_of(vec![16, 24, 32]), any::<(u32, u32, u32)>(), prop::bool::weighted(0.1));
    prop::collection::vec(one, 1000..6000).prop_map(|all| {
        let flow = |(mask, (src, dst, ports), is_removed)| {
            let mut key = FlowKey::default();
            key.words[11] = 6 << 24;
            key.words[12] = u64::from(src) << 32 | u64::from(dst);
            key.words[18] = u64::from(ports) << 32;
            (mask, key, is_removed)
        };
        all.into_iter().map(flow).collect()
    })
}

/// While indexes grow, coarse masks lose bits and families are taken apart, with few batches between the
/// flows or many, all flows that are there are found.
#[test]
fn megaflows_are_found_while_families_change() {
    let changing = Cell::new(0);
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    proptest!(config, |(steps in many_keys(), each in 1usize..200)| {
        let mut flows = megaflows(10_000);
        let mut held: Vec<(u32, FlowKey)> = Vec::new();
        for (n, (mask, key, is_removed)) in steps.iter().enumerate() {
            if *is_removed && let Some((handle, _)) = held.pop() {
                flows.remove(handle);
            }
            if find(&mut flows, *key).is_none() {
                // It may lack a place while a larger index is prepared.
                held.extend(flows.insert(key, &found(*mask)).map(|handle| (handle, *key)));
            }
            changing.set(changing.get() + usize::from(flows.changes));
            if n % each == 0 && let Some((_, key)) = held.last() {
                prop_assert_eq!(flows.len(), held.len());
                prop_assert!(find(&mut flows, *key).is_some());
            }
        }
        for _ in 0..2 {
            for (_, key) in &held {
                prop_assert!(find(&mut flows, *key).is_some());
            }
            settle(&mut flows);
            prop_assert!(flows.families.iter().all(Family::is_open));
            prop_assert_eq!(flows.len(), held.len());
        }
        for (handle, _) in held {
            flows.remove(handle);
        }
        prop_assert_eq!((flows.len(), flows.families.len()), (0, 0));
    });
    assert!(changing.get() > 1000, "vacuous run: {}", changing.get());
}
