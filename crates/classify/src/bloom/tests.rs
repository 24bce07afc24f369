use proptest::prelude::*;

use super::*;

/// Sorted pairs of key and payload.
fn sorted(keys: &[u32], payloads: &[u32]) -> Vec<(u32, u32)> {
    let mut pairs: Vec<_> = keys.iter().copied().zip(payloads.iter().copied()).collect();
    pairs.sort_unstable();
    pairs
}

/// Whether every variant gives what each key by itself gives.
fn all_variants_agree(filter: &BloomFilter, keys: &[u32]) {
    let payloads: Vec<u32> = (0..keys.len() as u32).map(|n| n ^ 0xaaaa_5555).collect();
    let wanted: Vec<(u32, u32)> = keys
        .iter()
        .copied()
        .zip(payloads.iter().copied())
        .filter(|(key, _)| filter.contains(*key))
        .collect();
    for variant in Variant::all().filter(|v| v.isa().is_available()) {
        // No room to spare: a write beyond it would be seen.
        let (mut found_keys, mut found) = (vec![0; keys.len()], vec![0; keys.len()]);
        let count = filter.select_by(variant, keys, &payloads, &mut found_keys, &mut found);
        let (found_keys, found) = (&found_keys[..count], &found[..count]);
        if matches!(variant, Variant::Scalar | Variant::Staged | Variant::StagedFar) {
            let found: Vec<_> = found_keys.iter().copied().zip(found.iter().copied()).collect();
            assert_eq!(found, wanted, "{variant} in order");
        } else {
            let mut wanted = wanted.clone();
            wanted.sort_unstable();
            assert_eq!(sorted(found_keys, found), wanted, "{variant}");
        }
    }
}

fn all_levels_agree(filter: &SplitBlockFilter, keys: &[u32]) {
    let payloads: Vec<u32> = (0..keys.len() as u32).map(|n| n ^ 0xaaaa_5555).collect();
    let wanted: Vec<u32> = keys.iter().copied().filter(|key| filter.contains(*key)).collect();
    for isa in Isa::available() {
        let (mut found_keys, mut found) = (vec![0; keys.len()], vec![0; keys.len()]);
        let count = filter.select_at(isa, keys, &payloads, &mut found_keys, &mut found);
        assert_eq!(&found_keys[..count], wanted, "{isa}");
        for (key, payload) in found_keys.iter().zip(&found[..count]) {
            assert_eq!(*key, keys[(payload ^ 0xaaaa_5555) as usize], "{isa}");
        }
    }
}

/// Numbers without a pattern (splitmix64).
fn numbers(seed: u64) -> impl Iterator<Item = u32> {
    (0u64..).map(move |n| {
        let z = (seed << 40 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    })
}

#[test]
fn the_variants_agree_at_every_length_around_vectors_and_blocks() {
    let mut filter = BloomFilter::new(1 << 12, 3, 1).unwrap();
    let mut blocked = SplitBlockFilter::new(1 << 12, 1).unwrap();
    let inside: Vec<u32> = numbers(1).take(400).collect();
    filter.insert_all(&inside);
    blocked.insert_all(&inside);
    let keys: Vec<u32> =
        inside.iter().copied().zip(numbers(2)).flat_map(|(a, b)| [a, b, b ^ 1]).collect();
    let keys: Vec<u32> = keys.iter().copied().cycle().take(5000).collect();
    for around in [0, 16, 64, 128, 1024, 2048, 4096] {
        for len in around.max(20) - 20..around + 20 {
            all_variants_agree(&filter, &keys[..len]);
            all_levels_agree(&blocked, &keys[..len]);
        }
    }
}

#[test]
fn the_variants_agree_when_all_or_no_keys_are_inside() {
    for bits in [1, 32, 33, 1000, 1 << 15, (1 << 15) + 1, 3 << 20] {
        for hashes in 1..=MAX_HASHES {
            let mut filter = BloomFilter::new(bits, hashes, 9).unwrap();
            let keys: Vec<u32> = numbers(3).take(2100).collect();
            all_variants_agree(&filter, &keys);
            filter.insert_all(&keys);
            assert!(keys.iter().all(|key| filter.contains(*key)));
            all_variants_agree(&filter, &keys);
        }
    }
}

proptest! {
    #[test]
    fn the_variants_agree(
        bits in prop_oneof![1u64..5000, (0u32..16).prop_map(|n| 1 << n)],
        hashes in 1..=MAX_HASHES,
        seed in any::<u64>(),
        inside in prop::collection::vec(0u32..200, 0..40),
        keys in prop::collection::vec(prop_oneof![0u32..200, any::<u32>()], 0..300),
    ) {
        let mut filter = BloomFilter::new(bits, hashes, seed).unwrap();
        let mut blocked = SplitBlockFilter::new(bits, seed).unwrap();
        for key in &inside {
            filter.insert(*key);
            blocked.insert(*key);
        }
        prop_assert!(inside.iter().all(|key| filter.contains(*key) && blocked.contains(*key)));
        all_variants_agree(&filter, &keys);
        all_levels_agree(&blocked, &keys);
    }
}

#[test]
fn wrong_sizes_are_told() {
    let told = |filter: Result<BloomFilter, BloomError>| filter.unwrap_err().to_string();
    assert!(told(BloomFilter::new(0, 3, 1)).contains("0 bits"));
    assert!(told(BloomFilter::new(MAX_BITS + 1, 3, 1)).contains("4294967297 bits"));
    assert!(told(BloomFilter::new(64, 0, 1)).contains("functions of a Bloom filter: 0;"));
    assert!(told(BloomFilter::new(64, 9, 1)).contains("functions of a Bloom filter: 9;"));
    for rate in [0.0, 1.0, -1.0, f64::NAN] {
        assert!(told(BloomFilter::for_keys(10, rate, 1)).contains("false-positive rate"));
    }
    assert!(SplitBlockFilter::new(0, 1).is_err());
}

#[test]
fn a_filter_for_keys_has_the_rate_asked_for() {
    for rate in [0.3, 0.05, 0.01, 0.001] {
        let mut filter = BloomFilter::for_keys(20_000, rate, 4).unwrap();
        let inside: Vec<u32> = numbers(5).take(20_000).collect();
        filter.insert_all(&inside);
        let tried = 2_000_000;
        let hits = numbers(6).take(tried).filter(|key| filter.contains(*key)).count();
        let measured = hits as f64 / tried as f64;
        assert!((0.85..1.15).contains(&(measured / rate)), "{rate}: {measured}");
    }
}
