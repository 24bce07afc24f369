//! Lookups of present keys in the concurrent cuckoo table, in the table with a
//! single hash, and in hashbrown with ahash, over the same keys in the same order.
//!
//! Prints one JSON object a line: `{"table", "key_bytes", "entries", "ns"}`, the
//! median of interleaved rounds. `bench/hash.py` runs it beside `rte_hash`.

use std::hint::black_box;
use std::time::Instant;

use hashbrown::HashMap;
use serde_json::json;
use thalweg_classify::cuckoo::{self, HashKind, Reader};
use thalweg_classify::sfh::SingleHashTable;

const ROUNDS: usize = 7;
/// Lookups of a round.
const LOOKUPS: usize = 1 << 21;
const BATCH: usize = 32;

/// The next of a sequence of numbers that peers make too: splitmix64 (Steele, Lea
/// and Flood, OOPSLA 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn key<const W: usize>(n: u64) -> [u64; W] {
    let mut state = n;
    std::array::from_fn(|_| splitmix64(&mut state))
}

fn cuckoo_round<const W: usize>(reader: &Reader<W>, asked: &[[u64; W]]) -> f64 {
    let mut values = [None; BATCH];
    let start = Instant::now();
    let mut sum = 0;
    for keys in asked.chunks_exact(BATCH) {
        reader.get_batch(keys, &mut values);
        sum += values.iter().flatten().sum::<u64>();
    }
    black_box(sum);
    per_lookup(start, asked.len())
}

fn plain_round<const W: usize>(asked: &[[u64; W]], get: impl Fn(&[u64; W]) -> u64) -> f64 {
    let start = Instant::now();
    black_box(asked.iter().map(get).sum::<u64>());
    per_lookup(start, asked.len())
}

fn per_lookup(start: Instant, lookups: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / lookups as f64
}

fn measure<const W: usize>(bits: u32) {
    // 90 % of the places of a table of 2^bits places.
    let entries = (1u64 << bits) * 9 / 10;
    let (mut writer, reader) = cuckoo::table::<W>(entries as usize, HashKind::Crc32c, 1);
    let mut single = SingleHashTable::<W>::new(4 << bits, 1);
    let mut map = HashMap::with_capacity_and_hasher(entries as usize, ahash::RandomState::new());
    for n in 0..entries {
        writer.insert(&key(n), n);
        // What finds no place there is missed: a part in a million or so.
        let _ = single.insert(&key(n), n);
        map.insert(key::<W>(n), n);
    }
    assert_eq!(writer.places(), 1 << bits, "the load is another");
    let mut state = 42;
    let asked: Vec<[u64; W]> =
        (0..LOOKUPS).map(|_| key(splitmix64(&mut state) % entries)).collect();
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        rounds[0].push(cuckoo_round(&reader, &asked));
        rounds[1].push(plain_round(&asked, |key| single.get(key).unwrap_or(0)));
        rounds[2].push(plain_round(&asked, |key| map.get(key).copied().unwrap_or(0)));
    }
    for (name, mut ns) in ["cuckoo", "single hash", "hashbrown"].into_iter().zip(rounds) {
        ns.sort_by(f64::total_cmp);
        let line = json!({"table": name, "key_bytes": 8 * W, "entries": 1u64 << bits, "ns": ns[ROUNDS / 2]});
        println!("{line}");
    }
}

fn main() {
    for bits in [10, 14, 17, 20, 22] {
        measure::<2>(bits);
        measure::<8>(bits);
    }
}
