//! Lookups by vectors, one by one, and by the prefixes themselves are the same.

use proptest::prelude::*;

use super::*;

#[test]
fn chunks_that_are_not_needed_any_more_are_used_again() {
    let trie = Trie6::new();
    let mut store = PrefixStore::default();
    let prefix = |n: u128| Prefix::new(n << 112 | 1, 128).unwrap();
    for round in 0..5 {
        for n in 0..10 {
            store.set(prefix(n + round), Some(HopId::test(3)));
            trie.rebuild(&store, &[prefix(n + round)]);
        }
        for n in 0..10 {
            store.set(prefix(n + round), None);
            trie.rebuild(&store, &[prefix(n + round)]);
        }
    }
    let root = trie.root.load();
    assert_eq!((root.chunks.len(), root.free.len()), (10, 10));
    assert!(root.top.iter().all(|entry| *entry == 0));
}

/// Prefixes that crowd in a few places, of all lengths.
fn prefixes() -> impl Strategy<Value = Vec<Prefix<u128>>> {
    let top = prop_oneof![8 => Just(0u128), 1 => Just(1)];
    let bits = (top, 0u128..4, 0u128..400, any::<u128>(), 0u8..3);
    let one = (bits, prop_oneof![3 => 17u8..=64, 1 => 0u8..=128]);
    prop::collection::vec(one, 0..900).prop_map(|prefixes| {
        let of = |((top, second, third, rest, dense), len): ((_, _, _, u128, u8), u8)| {
            let crowded: u128 = (0x2001 + top) << 112 | second << 96 | third << 80;
            let rest = if dense == 0 { rest >> 48 } else { rest & 3 };
            Prefix::holding(crowded | rest, len)
        };
        prefixes.into_iter().map(of).collect()
    })
}

proptest! {
    #[test]
    fn all_ways_to_look_up_agree(
        prefixes in prefixes(), others in prop::collection::vec(any::<u128>(), 0..80),
    ) {
        let tries: Vec<_> = Isa::available().map(Trie6::at).collect();
        let store: PrefixStore<u128> =
            (1..).zip(&prefixes).map(|(n, p)| (*p, HopId::test(n % 100 + 1))).collect();
        for trie in &tries {
            trie.rebuild(&store, &[Prefix::holding(0, 0)]);
        }
        let within = prefixes.iter().flat_map(|p| [p.first(), p.last(), p.last().wrapping_add(1)]);
        let addresses: Vec<u128> = within.chain(others).collect();
        let expected: Vec<HopId> = addresses
            .iter()
            .map(|a| store.longest(*a, 128).map_or(HopId::NO_ROUTE, |(_, hop)| hop))
            .collect();
        for trie in &tries {
            for len in [1, 3, 4, 7, 8, 31, 32, 33, 40, 64, 107, addresses.len().max(1)] {
                prop_assert_eq!(&look_up(trie, &addresses, len), &expected);
            }
        }
    }
}

#[test]
fn a_full_slash16_lies_on_huge_pages_and_is_looked_up_by_vectors() {
    let trie = Trie6::at(Isa::detect());
    // A /40 with a /48 in it for each: 512 bytes and 1 KiB of groups.
    let routes = (0..4000u128).flat_map(|n| {
        let slash40 = 0x2001 << 112 | n << 88;
        [(Prefix::holding(slash40, 40), 1 + n as u16), (Prefix::holding(slash40, 48), 5000)]
    });
    let store: PrefixStore<u128> = routes.map(|(p, n)| (p, HopId::test(n))).collect();
    trie.rebuild(&store, &[Prefix::holding(0x2001 << 112, 16)]);
    let root = trie.root.load();
    let chunk = root.top_of(0x2001 << 112).unwrap_err();
    assert!(chunk.is_wide && matches!(chunk.words, Words::Many(_)));
    let addresses: Vec<u128> =
        (0..8000u128).map(|n| 0x2001 << 112 | (n / 2) << 88 | (n % 2) << 80).collect();
    let expected: Vec<HopId> =
        (0..8000).map(|n| HopId::test(if n % 2 == 0 { 5000 } else { 1 + n / 2 })).collect();
    assert_eq!(look_up(&trie, &addresses, 32), expected);
    assert_eq!(look_up(&trie, &addresses, 1), expected);
}

/// CI sets `REQUIRE_ISA`: then the vectors of that level have to be there.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_vectors_of_the_required_level_are_there() {
    if let Ok(required) = std::env::var("REQUIRE_ISA") {
        let level = Trie6::new().lanes.map_or("scalar", |lanes| lanes.level().name());
        assert_eq!(level, required);
    }
}

/// Looks up so many addresses at a time.
fn look_up(trie: &Trie6, addresses: &[u128], len: usize) -> Vec<HopId> {
    let mut hops = vec![HopId::test(0x7fff); addresses.len()];
    for (a, h) in addresses.chunks(len).zip(hops.chunks_mut(len)) {
        trie.lookup_batch(a, h);
    }
    hops
}
