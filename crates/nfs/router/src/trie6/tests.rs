//! Lookups by vectors, one by one, and by the prefixes themselves agree.

use proptest::prelude::*;
use thalweg_testkit::cases;

use super::*;

#[test]
fn memory_that_is_not_needed_any_more_is_used_again() {
    let trie = Trie6::new();
    let mut store = PrefixStore::default();
    let prefix = |n: u128| Prefix::new(n << 112 | 1, 128).unwrap();
    let state = || {
        let root = trie.root.load();
        (root.arena.words().len() / groups::UNIT, root.arena.left(), root.chunks.len())
    };
    for round in 0..5 {
        for n in 0..10 {
            store.set(prefix(n + round), Some(HopId::test(3)));
            trie.rebuild(&store, &[prefix(n + round)]);
        }
        // Six groups of 256 words each.
        let (units, left, chunks) = state();
        assert_eq!((units - left as usize, chunks), (10 * 6 * 4, 10), "{units}");
        for n in 0..10 {
            store.set(prefix(n + round), None);
            trie.rebuild(&store, &[prefix(n + round)]);
        }
        let (end, left, chunks) = state();
        assert_eq!((end, left as usize, chunks), (units, units, 0));
        assert!(units < 20 * 6 * 4, "{units}");
    }
    assert!(trie.root.load().top.iter().all(|entry| *entry == Entry::of_hop(HopId::NO_ROUTE)));
}

/// Routes of all lengths, clustered in a few places.
fn routes() -> impl Strategy<Value = Vec<Route>> {
    let top = prop_oneof![8 => Just(0u128), 1 => Just(1)];
    let bits = (top, 0u128..4, 0u128..400, any::<u128>(), 0u8..3);
    let one = (bits, prop_oneof![3 => 17u8..=64, 1 => 0u8..=128], hops());
    prop::collection::vec(one, 0..900).prop_map(|prefixes| {
        let of = |((top, second, third, rest, dense), len, hop): ((_, _, _, u128, u8), u8, _)| {
            let crowded: u128 = (0x2001 + top) << 112 | second << 96 | third << 80;
            let rest = if dense == 0 { rest >> 48 } else { rest & 3 };
            (Prefix::holding(crowded | rest, len), hop)
        };
        prefixes.into_iter().map(of).collect()
    })
}

/// Next hops, most of which fit in a byte.
fn hops() -> impl Strategy<Value = HopId> {
    prop_oneof![40 => 1u16..=255, 1 => 256u16..=300, 1 => 0x7ff0u16..=0x7fff].prop_map(HopId::test)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn all_ways_to_look_up_agree(
        routes in routes(), others in prop::collection::vec(any::<u128>(), 0..80),
    ) {
        let tries: Vec<_> = Isa::available().map(Trie6::at).collect();
        let readers: Vec<_> = tries.iter().map(Trie6::reader).collect();
        let store: PrefixStore<u128> = routes.iter().copied().collect();
        for trie in &tries {
            trie.rebuild(&store, &[Prefix::holding(0, 0)]);
        }
        let within = routes.iter().flat_map(|(p, _)| [p.first(), p.last(), p.last().wrapping_add(1)]);
        let addresses: Vec<u128> = within.chain(others).collect();
        let expected: Vec<HopId> = addresses
            .iter()
            .map(|a| store.longest(*a, 128).map_or(HopId::NO_ROUTE, |(_, hop)| hop))
            .collect();
        for mut reader in readers {
            for len in [1, 3, 4, 7, 8, 31, 32, 33, 40, 64, 107, addresses.len().max(1)] {
                prop_assert_eq!(&look_up(&mut reader, &addresses, len), &expected);
            }
        }
    }
}

#[test]
fn a_full_slash16_is_looked_up_before_and_after_it_moves() {
    let trie = Trie6::at(Isa::detect());
    // A /40 with a /48 in it for each; the next hops of the first fit in a byte.
    let hops = |n: u128| (HopId::test(1 + n as u16 / 2), HopId::test(200 + n as u16 % 100));
    let routes = (0..4000u128).flat_map(|n| {
        let slash40 = 0x2001 << 112 | n << 88;
        let (hop, longer) = hops(n);
        [(Prefix::holding(slash40, 40), hop), (Prefix::holding(slash40, 48), longer)]
    });
    let mut store: PrefixStore<u128> = routes.collect();
    trie.rebuild(&store, &[Prefix::holding(0x2001 << 112, 16)]);
    let mut reader = trie.reader();
    let addresses: Vec<u128> =
        (0..8000u128).map(|n| 0x2001 << 112 | (n / 2) << 88 | (n % 2) << 80).collect();
    let hop = |n: u128| if n.is_multiple_of(2) { hops(n / 2).1 } else { hops(n / 2).0 };
    let expected: Vec<HopId> = (0..8000).map(hop).collect();
    assert_eq!(look_up(&mut reader, &addresses, 32), expected);
    assert_eq!(look_up(&mut reader, &addresses, 1), expected);

    let before = trie.root.load_full();
    let another = Prefix::holding(0x2002 << 112, 20);
    store.set(another, Some(HopId::test(7)));
    trie.rebuild(&store, &[another]);
    assert!(Arc::ptr_eq(&before.arena, &trie.root.load().arena), "it has room");
    let again = Prefix::holding(0x2001 << 112, 17);
    store.set(again, Some(HopId::test(7)));
    trie.rebuild(&store, &[again]);
    assert!(!Arc::ptr_eq(&before.arena, &trie.root.load().arena), "it has none for both");
    assert_eq!(look_up(&mut reader, &addresses, 32), expected);
    assert_eq!(look_up(&mut reader, &[0x2001 << 112 | 1 << 100], 1), [HopId::test(7)]);
}

/// CI sets `REQUIRE_ISA`: then the vectors of that level must be available.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_vectors_of_the_required_level_are_there() {
    if let Ok(required) = std::env::var("REQUIRE_ISA") {
        let level = Trie6::new().lanes.map_or("scalar", |lanes| lanes.level().name());
        assert_eq!(level, required);
    }
}

/// Looks up `len` addresses at a time.
fn look_up(reader: &mut Reader, addresses: &[u128], len: usize) -> Vec<HopId> {
    let mut hops = vec![HopId::test(0x7fff); addresses.len()];
    for (a, h) in addresses.chunks(len).zip(hops.chunks_mut(len)) {
        reader.lookup_batch(a, h);
    }
    hops
}
