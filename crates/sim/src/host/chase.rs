//! The clock of a core, and chases through its caches.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use memmap2::{Advice, MmapMut};

use crate::calibrate::cycle_through;
use crate::machine::LINE;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Steps of a chase that are timed together.
const STEPS: u32 = 1 << 19;
/// Times that each measurement is repeated.
const ROUNDS: usize = 3;

/// The clock of the core in GHz, as it is under load: three shifts and three exclusive ors,
/// each of which needs the one before, take six cycles.
pub fn clock_ghz() -> f64 {
    const TIMES: u32 = 1 << 23;
    let once = || {
        let (start, mut n) = (Instant::now(), black_box(1u64));
        for _ in 0..TIMES {
            n ^= n << 13;
            n ^= n >> 7;
            n ^= n << 17;
        }
        black_box(n);
        f64::from(TIMES) * 6.0 / start.elapsed().as_nanos() as f64
    };
    (0..ROUNDS).map(|_| once()).fold(0.0, f64::max)
}

/// Nanoseconds per step of a chase through `bytes` bytes, on huge pages if the system has them.
///
/// # Errors
/// When the system has no memory for it.
pub fn step_ns(bytes: u64) -> io::Result<f64> {
    let mut map = MmapMut::map_anon(bytes as usize + HUGE)?;
    // Without huge pages, misses of address translation are measured too.
    let _ = map.advise(Advice::HugePage);
    let start = map.as_ptr().align_offset(HUGE);
    let place = |line: usize| start + line * LINE as usize;
    // Each line holds where in the memory the next one is.
    for (line, next) in cycle_through(bytes / LINE).into_iter().enumerate() {
        map[place(line)..][..8].copy_from_slice(&place(next as usize).to_ne_bytes());
    }
    let follow =
        |at: usize| map[at..].first_chunk().map_or(start, |word| usize::from_ne_bytes(*word));
    let mut at = (0..bytes / LINE).fold(start, |at, _| follow(at));
    let mut shortest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        at = (0..STEPS).fold(at, |at, _| follow(at));
        shortest = shortest.min(begun.elapsed().as_nanos() as f64 / f64::from(STEPS));
    }
    black_box(at);
    Ok(shortest)
}
