//! A machine's caches, derived from pointer chases through growing sizes of memory.
//!
//! Nothing else is measured: a cache's size is where the time of a step rises, its latency the
//! time on the plateau. The latencies of the mesh and of the memory's controller are set so that a
//! simulated chase takes as long.

use std::ops::Range;

use crate::calendar::Cycle;
use crate::config::{Config, ConfigError};
use crate::machine::{Access, CoreId, LINE, Layout, Memory};
use crate::random::Random;

/// The measurements of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Clock of the core.
    pub ghz: f64,
    /// Bytes that were chased through, from few to many, and nanoseconds of a step.
    pub chase: Vec<(u64, f64)>,
}

/// Why a measurement cannot be turned into a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The chase does not show three caches before memory.
    #[error("the pointer chase shows levels: {found}; expected 4: three caches and memory")]
    Levels {
        /// How many there are.
        found: usize,
    },
    /// The slowest steps are too fast to reach memory.
    #[error(
        "the slowest steps of the pointer chase take {ns:.1} ns, less than any memory \
         ({MEMORY_NS} ns); measure larger sizes (--most)"
    )]
    Memory {
        /// The time of a step of the last level.
        ns: f64,
    },
    /// The resulting machine cannot be simulated.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A level counts only if its steps take at least this many times those of the level before.
const LEVEL: f64 = 1.3;
/// The least latency of any memory, in nanoseconds: DRAM alone needs 25 to open a row and read it.
const MEMORY_NS: f64 = 25.0;
/// Levels of a machine: three caches, and memory.
const LEVELS: usize = 4;

/// A level of the chase: the largest size that fits into it, and its time.
#[derive(Clone, Copy, Debug)]
struct Level {
    bytes: u64,
    ns: f64,
}

impl Level {
    fn of(chase: &[(u64, f64)]) -> Self {
        let mut ns: Vec<f64> = chase.iter().map(|(_, ns)| *ns).collect();
        ns.sort_by(f64::total_cmp);
        Self { bytes: chase[chase.len() - 1].0, ns: ns[(ns.len() - 1) / 2] }
    }
}

/// The levels of a chase: its best approximation by [`LEVELS`] constants (Bellman, "On the
/// approximation of curves by line segments using dynamic programming", CACM 4(6), 1961), of
/// the logarithms of its times. Sizes on the way from one level to the next are of that to
/// which they are nearer. None is found twice: there are fewer where times are alike.
fn levels(chase: &[(u64, f64)]) -> Vec<Level> {
    let times: Vec<f64> = chase.iter().map(|(_, ns)| ns.ln()).collect();
    let mut found: Vec<Level> = Vec::new();
    for segment in segments(&times, LEVELS) {
        let level = Level::of(&chase[segment]);
        match found.last_mut() {
            Some(last) if level.ns < last.ns * LEVEL => last.bytes = level.bytes,
            _ => found.push(level),
        }
    }
    found
}

/// Cuts `values` into at most `most` pieces of two or more, so that they differ as little as
/// can be from the means of their pieces.
fn segments(values: &[f64], most: usize) -> Vec<Range<usize>> {
    let error = |piece: &[f64]| {
        let mean = piece.iter().sum::<f64>() / piece.len() as f64;
        piece.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>()
    };
    // By number of pieces, and where they end: what they differ, and where the last begins.
    let whole = |end: usize| (if end < 2 { f64::INFINITY } else { error(&values[..end]) }, 0);
    let mut best = vec![(0..=values.len()).map(whole).collect::<Vec<_>>()];
    for pieces in 1..most {
        let to = |end: usize| {
            let from =
                |start: usize| (best[pieces - 1][start].0 + error(&values[start..end]), start);
            let starts = 2..(end + 1).saturating_sub(2).max(2);
            starts.map(from).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        };
        let row = (0..=values.len()).map(to).collect();
        best.push(row);
    }
    let (mut end, mut pieces) = (values.len(), Vec::new());
    for row in best.iter().rev().skip_while(|row| row[values.len()].0.is_infinite()) {
        pieces.push(row[end].1..end);
        end = row[end].1;
    }
    pieces.reverse();
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The sizes that are chased through: from 8 KiB to `most` bytes, two sizes to each doubling.
pub fn sizes(most: u64) -> impl Iterator<Item = u64> {
    let sizes = (13..37).flat_map(|bits| [1 << bits, 3 << (bits - 1)]);
    sizes.take_while(move |bytes| *bytes <= most)
}

/// The lines of a chase in the order in which they follow each other: one cycle through all
/// (Sattolo, 1986), the same for equal numbers of lines.
pub fn cycle_through(lines: u64) -> Vec<u64> {
    let mut random = Random::new(lines);
    let mut next: Vec<u64> = (0..lines).collect();
    for last in (1..next.len()).rev() {
        next.swap(last, random.index(last));
    }
    next
}

/// Mean cycles of a step of a chase through `bytes` bytes on a simulated machine.
///
/// # Panics
/// When `bytes` is less than a line.
pub fn simulated_chase(config: &Config, bytes: u64) -> f64 {
    /// Steps that are timed.
    const STEPS: u64 = 20_000;
    let mut memory = Memory::new(config);
    let region = Layout::default().region(bytes);
    let next = cycle_through(bytes / LINE);
    let mut at = 0;
    for _ in 0..next.len() {
        memory.warm(region.at(at * LINE), true);
        at = next[at as usize];
    }
    let start: Cycle = 1_000_000;
    let mut now = start;
    for _ in 0..STEPS {
        now = memory.core(CoreId(0), region.at(at * LINE), Access::Read, now).at;
        at = next[at as usize];
    }
    (now - start) as f64 / STEPS as f64
}

/// The machine of `base` with clock and caches as measured.
///
/// # Errors
/// When the measurement does not show three caches and memory, ends before memory, or shows
/// what cannot be simulated.
pub fn fit(base: &Config, measured: &Measured) -> Result<Config, CalibrateError> {
    let levels = levels(&measured.chase);
    let [l1, l2, llc, memory] = levels[..] else {
        return Err(CalibrateError::Levels { found: levels.len() });
    };
    if memory.ns < MEMORY_NS {
        return Err(CalibrateError::Memory { ns: memory.ns });
    }
    let cycles = |ns: f64| ((ns * measured.ghz).round() as Cycle).max(1);
    let mut config = base.clone();
    config.core.ghz = measured.ghz;
    (config.l1d.kib, config.l1d.load_to_use) = (l1.bytes >> 10, cycles(l1.ns));
    (config.l2.kib, config.l2.load_to_use) = (l2.bytes >> 10, cycles(l2.ns));
    config.llc.mib = (llc.bytes >> 20).max(1);
    // What the way to the last-level cache and back takes more or less than it did.
    config.check()?;
    let off = (llc.ns * measured.ghz - simulated_chase(&config, llc.bytes / 2)).round() as i64;
    (config.mesh.core_egress, config.mesh.core_ingress) =
        both(config.mesh.core_egress, config.mesh.core_ingress, off);
    let off_ns = memory.ns - simulated_chase(&config, memory.bytes) / measured.ghz;
    config.dram.controller_ns = (config.dram.controller_ns + off_ns).max(0.0);
    config.check()?;
    Ok(config)
}

/// Two times with `more` cycles more together, in equal parts as far as there are any.
fn both(first: Cycle, second: Cycle, more: i64) -> (Cycle, Cycle) {
    let together = (first + second).saturating_add_signed(more);
    (together / 2, together - together / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six times the last-level cache of the machine that is measured.
    const MOST: u64 = 24 << 20;

    fn chased(config: &Config) -> Measured {
        let ns = |bytes| simulated_chase(config, bytes) / config.core.ghz;
        Measured { ghz: config.core.ghz, chase: sizes(MOST).map(|b| (b, ns(b))).collect() }
    }

    #[test]
    fn the_chase_of_a_machine_gives_that_machine() {
        let mut machine = Config::default();
        machine.core.ghz = 3.3;
        (machine.l1d.kib, machine.l1d.load_to_use) = (64, 4);
        (machine.l2.kib, machine.l2.load_to_use) = (512, 13);
        machine.llc.mib = 4;
        (machine.mesh.core_egress, machine.mesh.core_ingress) = (3, 6);
        machine.dram.controller_ns = 33.0;
        let measured = chased(&machine);
        let fitted = fit(&Config::default(), &measured).unwrap();
        assert_eq!((fitted.l1d.kib, fitted.l1d.load_to_use), (64, 4));
        assert_eq!((fitted.l2.kib, fitted.l2.load_to_use), (512, 13));
        assert!((3..=4).contains(&fitted.llc.mib), "{}", fitted.llc.mib);
        for (bytes, ns) in measured.chase.into_iter().filter(|(bytes, _)| bytes.is_power_of_two()) {
            let again = simulated_chase(&fitted, bytes) / fitted.core.ghz;
            // At the edge of a cache a few lines more or less decide.
            let edge = [20, 22, 23].contains(&bytes.trailing_zeros());
            assert!((again / ns - 1.0).abs() < 0.12 || edge, "{bytes}: {again} {ns}");
        }
    }

    #[test]
    fn sizes_between_levels_are_of_the_nearer_one() {
        let times = [1.0, 1.0, 1.1, 3.6, 3.7, 4.2, 5.6, 9.0, 11.0, 12.0, 14.0, 17.0, 90.0, 130.0];
        let chase: Vec<(u64, f64)> = (1..).zip(times).collect();
        let levels = levels(&chase);
        let bytes: Vec<u64> = levels.iter().map(|level| level.bytes).collect();
        assert_eq!(bytes, [3, 7, 12, 14]);
        let ns: Vec<f64> = levels.iter().map(|level| level.ns).collect();
        assert_eq!(ns, [1.0, 3.7, 12.0, 90.0]);
    }

    #[test]
    fn a_chase_without_levels_is_refused() {
        let flat = Measured { ghz: 2.0, chase: sizes(MOST).map(|bytes| (bytes, 2.0)).collect() };
        let told = fit(&Config::default(), &flat).unwrap_err().to_string();
        assert!(told.contains("shows levels: 1"), "{told}");
        let none = Measured { ghz: 2.0, chase: Vec::new() };
        assert!(fit(&Config::default(), &none).is_err());
    }

    #[test]
    fn a_chase_that_ends_in_a_cache_is_refused() {
        // On a busy machine the second cache looks like two.
        let times = [1.1, 1.1, 1.1, 1.1, 1.1, 3.6, 3.6, 3.7, 3.7, 5.1, 5.2, 8.4, 8.5];
        let chase = sizes(MOST).zip(times).collect();
        let told = fit(&Config::default(), &Measured { ghz: 3.56, chase }).unwrap_err().to_string();
        assert!(told.contains("less than any memory"), "{told}");
    }
}
