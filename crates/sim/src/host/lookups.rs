//! Lookups in our own cuckoo table.

use std::hint::black_box;
use std::time::Instant;

use thalweg_classify::cuckoo::{Reader, STEP};

use crate::own::{filled, key_of};

/// Buffers that keys are written to just before they are looked up, as parsing packets does.
const BUFFERS: usize = 64;
/// Lookups that are timed together.
const LOOKUPS: usize = 1 << 19;
/// Keys that are written together when they are looked up a step at a time.
const TOGETHER: usize = 8 * STEP;

/// A packet's buffer; the key takes its start.
type Buffer = [u64; 32];

/// Nanoseconds per lookup in one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookupTimes {
    /// One by one.
    pub independent: f64,
    /// One by one, each of which needs the value of the one before.
    pub dependent: f64,
    /// A step of keys at a time.
    pub steps: f64,
}

/// A table, the keys that are looked up in it, and the shortest times so far.
struct Own {
    reader: Reader<2>,
    order: Vec<u32>,
    shortest: LookupTimes,
}

/// Measures lookups in tables of about `places` places each, of which `occupancy` (0 to 1) is full,
/// table after table in each of `rounds` rounds.
///
/// # Panics
/// When there is no memory for a table.
pub fn lookup_times(places: &[u64], occupancy: f64, seed: u64, rounds: u32) -> Vec<LookupTimes> {
    let mut tables: Vec<Own> =
        places.iter().map(|places| Own::new(*places, occupancy, seed)).collect();
    let mut buffers = [[0; 32]; BUFFERS];
    for _ in 0..rounds {
        tables.iter_mut().for_each(|table| table.measure(&mut buffers));
    }
    tables.into_iter().map(|table| table.shortest).collect()
}

impl Own {
    fn new(places: u64, occupancy: f64, seed: u64) -> Self {
        let keys = ((places as f64 * occupancy) as u32).max(1);
        let (_, reader) = filled(places, keys, seed);
        let mut state = 42u64;
        let mut number = || {
            // A linear congruence, whose upper bits are as good as random (Knuth, MMIX).
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((u128::from(state) * u128::from(keys)) >> 64) as u32
        };
        let order = (0..LOOKUPS).map(|_| number()).collect();
        let never = f64::INFINITY;
        let shortest = LookupTimes { independent: never, dependent: never, steps: never };
        Self { reader, order, shortest }
    }

    fn measure(&mut self, buffers: &mut [Buffer; BUFFERS]) {
        let Self { reader, order, shortest } = self;
        improve(&mut shortest.independent, || one_by_one::<false>(reader, buffers, order));
        improve(&mut shortest.dependent, || one_by_one::<true>(reader, buffers, order));
        improve(&mut shortest.steps, || in_steps(reader, order));
    }
}

/// Times `look_up`, which looks up all keys.
fn improve(shortest: &mut f64, look_up: impl FnOnce() -> u64) {
    let begun = Instant::now();
    black_box(look_up());
    *shortest = shortest.min(begun.elapsed().as_nanos() as f64 / LOOKUPS as f64);
}

/// Looks the keys up one by one; with `DEPENDENT` each needs the value of the one before.
fn one_by_one<const DEPENDENT: bool>(
    reader: &mut Reader<2>,
    buffers: &mut [Buffer; BUFFERS],
    order: &[u32],
) -> u64 {
    let (mut sum, mut last) = (0, 0);
    for (n, number) in order.iter().enumerate() {
        let key = buffers[n % BUFFERS].first_chunk_mut().expect("a buffer has room for a key");
        *key = key_of(u64::from(*number) + last);
        let value = u64::from(reader.get(key).expect("every inserted key is found"));
        sum += value;
        if DEPENDENT {
            // 0, which the compiler does not know.
            last = value & black_box(0);
        }
    }
    sum
}

/// Looks the keys up a step at a time.
fn in_steps(reader: &mut Reader<2>, order: &[u32]) -> u64 {
    let (mut keys, mut values, mut sum) = ([[0; 2]; TOGETHER], [0; STEP], 0);
    for numbers in order.as_chunks::<TOGETHER>().0 {
        for (key, number) in keys.iter_mut().zip(numbers) {
            *key = key_of(u64::from(*number));
        }
        for step in black_box(&keys).as_chunks::<STEP>().0 {
            let found = reader.get_step(step, &mut values);
            assert_eq!(found, u32::MAX, "every inserted key is found");
            sum += values.iter().map(|value| u64::from(*value)).sum::<u64>();
        }
    }
    sum
}
