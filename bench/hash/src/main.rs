//! Lookups of present keys in the concurrent cuckoo table, in the table with a
//! single hash, and in hashbrown with ahash, over the same keys in the same order.
//!
//! Prints one JSON object a line: `{"table", "key_bytes", "entries", "ns"}`, the
//! median of interleaved rounds. Arguments: the logarithms of the numbers of places. `bench/hash.py` runs it beside `rte_hash`.

use std::hint::black_box;
use std::time::Instant;

use hashbrown::HashMap;
use serde_json::json;
use thalweg_classify::cuckoo::{self, HashKind, Reader};
use thalweg_classify::sfh::SingleHashTable;

const ROUNDS: usize = 7;
/// Lookups of a round.
const LOOKUPS: usize = 1 << 20;
/// Lookups that are timed together. Their keys are generated just before, so that they are
/// near, as those of packets are that were just parsed.
const CHUNK: usize = 1024;
const BATCH: usize = cuckoo::STEP;

/// The next of a sequence of numbers that the peers generate too: splitmix64 (Steele, Lea
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

/// Nanoseconds a lookup of `lookup`, which looks up a chunk of keys among `entries`.
fn round<const W: usize>(entries: u64, mut lookup: impl FnMut(&[[u64; W]]) -> u64) -> f64 {
    let (mut state, mut elapsed, mut sum) = (42, 0, 0);
    let mut keys = vec![[0; W]; CHUNK];
    for _ in 0..LOOKUPS / CHUNK {
        keys.iter_mut().for_each(|asked| *asked = key(splitmix64(&mut state) % entries));
        let start = Instant::now();
        sum += lookup(&keys);
        elapsed += start.elapsed().as_nanos();
    }
    black_box(sum);
    elapsed as f64 / LOOKUPS as f64
}

fn in_batches<const W: usize>(reader: &mut Reader<W>, keys: &[[u64; W]]) -> u64 {
    let mut values = [0; BATCH];
    let mut sum = 0;
    for keys in keys.chunks_exact(BATCH) {
        assert_eq!(reader.get_step(keys, &mut values), u32::MAX, "a key is missing");
        sum += values.iter().map(|value| u64::from(*value)).sum::<u64>();
    }
    sum
}

fn many<const W: usize>(
    reader: &mut Reader<W>,
    keys: &[[u64; W]],
    values: &mut [u32; CHUNK],
) -> u64 {
    let mut found = [0; CHUNK / BATCH];
    reader.get_many(keys, values, &mut found);
    assert_eq!(found, [u32::MAX; CHUNK / BATCH], "a key is missing");
    values.iter().map(|value| u64::from(*value)).sum()
}

fn one_by_one<const W: usize>(keys: &[[u64; W]], get: impl Fn(&[u64; W]) -> u32) -> u64 {
    keys.iter().map(|key| u64::from(get(key))).sum()
}

fn measure<const W: usize>(bits: u32, hash: HashKind) {
    let places = 1u64 << bits;
    let entries = places * 9 / 10;
    // A table takes 95 % of its places.
    let (mut writer, mut reader) = cuckoo::table::<W>((places * 95 / 100) as usize, hash, 1);
    let mut single = SingleHashTable::<W>::new(4 << bits, 1);
    let mut map = HashMap::with_capacity_and_hasher(entries as usize, ahash::RandomState::new());
    for n in 0..entries {
        writer.insert(&key(n), n as u32);
        // Keys without a place there are left out: about one in a million.
        let _ = single.insert(&key(n), n);
        map.insert(key::<W>(n), n as u32);
    }
    let load = entries as f64 / writer.places() as f64;
    assert!((0.895..0.905).contains(&load), "the load is {load}");
    let mut values = [0; CHUNK];
    let mut rounds = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        rounds[0].push(round(entries, |keys| many(&mut reader, keys, &mut values)));
        rounds[3].push(round(entries, |keys| in_batches(&mut reader, keys)));
        let get = |key: &_| single.get(key).unwrap_or(0) as u32;
        rounds[1].push(round(entries, |keys| one_by_one(keys, get)));
        let get = |key: &_| map.get(key).copied().unwrap_or(0);
        rounds[2].push(round(entries, |keys| one_by_one(keys, get)));
    }
    for (name, mut ns) in
        ["get_many", "single hash", "hashbrown", "get_step"].into_iter().zip(rounds)
    {
        ns.sort_by(f64::total_cmp);
        let line = json!({"table": name, "key_bytes": 8 * W, "entries": 1u64 << bits, "ns": ns[ROUNDS / 2]});
        println!("{line}");
    }
}

fn main() {
    let sizes: Vec<u32> = std::env::args()
        .skip(1)
        .map(|bits| bits.parse().expect("sizes are logarithms of numbers of places"))
        .collect();
    for bits in sizes {
        measure::<2>(bits, HashKind::Murmur3);
        measure::<8>(bits, HashKind::Nh);
    }
}
