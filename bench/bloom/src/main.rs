//! Lookups in Bloom filters: every variant of ours, our split-block filter, and the
//! filters of other projects, over the same keys in the same order.
//!
//! Prints one JSON object a line: `{"filter", "bytes", "hit_percent", "keys_per_us"}`,
//! the median of interleaved rounds, and `{"filter", "bytes", "rate", "theory",
//! "classical"}`, the false-positive rates. `bench/bloom.py` runs it beside
//! `rte_member`.
//!
//! Arguments: sizes in bytes, powers of two; default: 16 KiB to 256 MiB.

mod peers;

use std::time::Instant;

use peers::{FastBloom, ParquetBlocks};
use serde_json::json;
use thalweg_classify::bloom::{BloomFilter, SplitBlockFilter, Variant};

/// Rounds of each measurement.
const ROUNDS: usize = 9;
/// Lookups of a round.
const LOOKUPS: usize = 1 << 20;
/// Bits for each key of a set, and hash functions.
const BITS_A_KEY: u64 = 10;
const HASHES: usize = 3;

/// The next of a sequence of numbers that the peers generate too: splitmix64 (Steele, Lea
/// and Flood, OOPSLA 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The keys that are in all filters, a million at a time.
fn inside(count: u64) -> impl Iterator<Item = Vec<u32>> {
    let mut state = 1;
    let step = move |from: u64| (count - from).min(1 << 20);
    (0..count)
        .step_by(1 << 20)
        .map(move |from| (0..step(from)).map(|_| splitmix64(&mut state) as u32).collect())
}

/// Keys to look up, `hit_percent` of them from the set.
fn asked(count: u64, hit_percent: u64) -> Vec<u32> {
    let some = inside(count.min(1 << 20)).next().unwrap_or_default();
    let mut state = 2;
    let key = |_| {
        let random = splitmix64(&mut state);
        if (random >> 32) % 100 < hit_percent {
            some[random as u32 as usize % some.len()]
        } else {
            splitmix64(&mut state) as u32
        }
    };
    (0..LOOKUPS).map(key).collect()
}

/// All filters of one size, with the same keys in them.
struct Filters {
    bloom: BloomFilter,
    blocks: SplitBlockFilter,
    parquet: ParquetBlocks,
    fast: FastBloom,
}

impl Filters {
    fn new(bytes: u64) -> Self {
        let (bits, no_memory) = (bytes * 8, "cannot allocate the filters");
        let mut filters = Self {
            bloom: BloomFilter::new(bits, HASHES, 1).expect(no_memory),
            blocks: SplitBlockFilter::new(bits, 1).expect(no_memory),
            parquet: ParquetBlocks::new(bytes as usize).expect(no_memory),
            fast: FastBloom::new(bits as usize, HASHES as u32),
        };
        for keys in inside(bits / BITS_A_KEY) {
            filters.bloom.insert_all(&keys);
            filters.blocks.insert_all(&keys);
            keys.iter().for_each(|key| filters.parquet.insert(*key));
            keys.iter().for_each(|key| filters.fast.insert(*key));
        }
        filters
    }
}

/// A way to look keys up: keys, payloads, and room for both; returns how many were found.
type Lookup<'a> = Box<dyn Fn(&[u32], &[u32], &mut [u32], &mut [u32]) -> usize + 'a>;

fn lookups(filters: &Filters) -> Vec<(String, Lookup<'_>)> {
    let mut all: Vec<(String, Lookup)> = Vec::new();
    for variant in Variant::all().filter(|v| v.isa().is_available()) {
        let bloom = &filters.bloom;
        all.push((
            variant.to_string(),
            Box::new(move |k, p, a, b| bloom.select_by(variant, k, p, a, b)),
        ));
    }
    all.push(("chosen".into(), Box::new(|k, p, a, b| filters.bloom.select(k, p, a, b))));
    all.push(("split-block".into(), Box::new(|k, p, a, b| filters.blocks.select(k, p, a, b))));
    all.push((
        "sbbf-rs".into(),
        Box::new(|k, p, a, b| peers::one_by_one(|key| filters.parquet.contains(key), k, p, a, b)),
    ));
    all.push((
        "fastbloom".into(),
        Box::new(|k, p, a, b| peers::one_by_one(|key| filters.fast.contains(key), k, p, a, b)),
    ));
    all
}

fn measure(bytes: u64, hit_percent: u64, lookups: &[(String, Lookup)]) {
    let keys = asked(bytes * 8 / BITS_A_KEY, hit_percent);
    let payloads: Vec<u32> = (0..LOOKUPS as u32).collect();
    let (mut found_keys, mut found) = (vec![0; LOOKUPS], vec![0; LOOKUPS]);
    let mut rounds = vec![Vec::new(); lookups.len()];
    for _ in 0..ROUNDS {
        for ((_, select), rounds) in lookups.iter().zip(&mut rounds) {
            let start = Instant::now();
            let count = select(&keys, &payloads, &mut found_keys, &mut found);
            rounds.push(LOOKUPS as f64 / start.elapsed().as_nanos() as f64 * 1e3);
            assert!(count >= LOOKUPS / 100 * hit_percent as usize * 9 / 10, "keys are missing");
        }
    }
    for ((name, _), mut rounds) in lookups.iter().zip(rounds) {
        rounds.sort_by(f64::total_cmp);
        let line = json!({"filter": name, "bytes": bytes, "hit_percent": hit_percent, "keys_per_us": rounds[ROUNDS / 2]});
        println!("{line}");
    }
}

/// Counts false positives among keys that are not in the set.
fn rates(bytes: u64, filters: &Filters) {
    let count = bytes * 8 / BITS_A_KEY;
    let mut set = vec![0u64; 1 << 26];
    for keys in inside(count) {
        keys.iter().for_each(|key| set[*key as usize / 64] |= 1 << (key % 64));
    }
    let distinct = set.iter().map(|word| u64::from(word.count_ones())).sum();
    let mut state = 3;
    let tried: Vec<u32> = std::iter::repeat_with(|| splitmix64(&mut state) as u32)
        .filter(|key| set[*key as usize / 64] >> (key % 64) & 1 == 0)
        .take(1 << 22)
        .collect();
    let (mut a, mut b) = (vec![0; tried.len()], vec![0; tried.len()]);
    let told = |name: &str, hits: usize, theory: Option<f64>| {
        let rate = hits as f64 / tried.len() as f64;
        println!("{}", json!({"filter": name, "bytes": bytes, "rate": rate, "theory": theory}));
    };
    let hits = filters.bloom.select(&tried, &tried, &mut a, &mut b);
    told("bloom", hits, Some(filters.bloom.expected_rate(distinct)));
    let hits = filters.blocks.select(&tried, &tried, &mut a, &mut b);
    told("split-block", hits, Some(filters.blocks.expected_rate(distinct)));
    let hits = tried.iter().filter(|key| filters.parquet.contains(**key)).count();
    told("sbbf-rs", hits, None);
    let hits = tried.iter().filter(|key| filters.fast.contains(**key)).count();
    told("fastbloom", hits, None);
    let classical = (1.0 - (-(HASHES as f64) / BITS_A_KEY as f64).exp()).powi(HASHES as i32);
    println!(
        "{}",
        json!({"filter": "theory, hashes without relation", "bytes": bytes, "rate": classical})
    );
}

fn main() {
    let sizes: Vec<u64> = std::env::args()
        .skip(1)
        .map(|size| size.parse().expect("sizes are numbers of bytes"))
        .collect();
    let sizes = if sizes.is_empty() {
        vec![16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20]
    } else {
        sizes
    };
    for bytes in sizes {
        let filters = Filters::new(bytes);
        let lookups = lookups(&filters);
        for hit_percent in [0, 10, 25, 50, 75, 100] {
            measure(bytes, hit_percent, &lookups);
        }
        drop(lookups);
        rates(bytes, &filters);
    }
}
