//! What the hashes of a batch under one mask cost, by level of instructions and number
//! of packets. One line of JSON for each.

use std::hint::black_box;

use serde_json::json;
use thalweg_classify::Signatures;
use thalweg_cpu::{Isa, cycles};
use thalweg_packet::{BATCH, FlowKey, Lanes, TransposedKeys};

/// Batches that are hashed between two readings of the cycle counter.
const REPEATS: u32 = 2_000;
/// Readings, whose median counts.
const READINGS: usize = 31;

/// A mask over addresses, protocol and ports of IPv4: what most subtables have.
fn five_tuple() -> FlowKey {
    use thalweg_packet::field::{NW_DST, NW_PROTO, NW_SRC, TP_DST, TP_SRC};
    let mut mask = FlowKey::default();
    for field in [NW_SRC, NW_DST, NW_PROTO, TP_SRC, TP_DST] {
        mask.set(field, u64::MAX);
    }
    mask
}

fn cycles_a_batch(signatures: &Signatures, keys: &TransposedKeys, packets: usize) -> f64 {
    let mut hashes = [0; BATCH];
    let mut readings = [0.0; READINGS];
    for reading in &mut readings {
        let start = cycles::now();
        for _ in 0..REPEATS {
            signatures.of(black_box(keys), Lanes::first(packets), &mut hashes);
            black_box(&hashes);
        }
        *reading = cycles::now().wrapping_sub(start) as f64 / f64::from(REPEATS);
    }
    readings.sort_by(f64::total_cmp);
    readings[READINGS / 2]
}

fn main() {
    let keys = std::array::from_fn(|lane| FlowKey {
        words: std::array::from_fn(|word| {
            ((lane * 100 + word) as u64).wrapping_mul(0x0123_4567_89ab_cdef)
        }),
    });
    let keys = TransposedKeys::from_keys(&keys);
    let levels = Isa::available().map(|isa| (isa, Signatures::new(&five_tuple(), 1, isa)));
    let levels: Vec<_> = levels.collect();
    for packets in 1..=BATCH {
        for (isa, signatures) in &levels {
            let cycles = cycles_a_batch(signatures, &keys, packets);
            let halves = signatures.halves();
            let isa = isa.name();
            println!(
                "{}",
                json!({"isa": isa, "packets": packets, "halves": halves, "cycles": cycles})
            );
        }
    }
}
