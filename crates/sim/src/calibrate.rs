//! A machine's caches from a pointer chase through more and more memory.
//!
//! Nothing else is measured: sizes are where the time of a step rises, latencies what it is
//! where it is level. What the mesh and the memory's controller take is set so that a
//! simulated chase takes as long.

use crate::calendar::Cycle;
use crate::config::{Config, ConfigError};
use crate::machine::{Access, CoreId, LINE, Layout, Memory};
use crate::random::Random;

/// What was measured on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Clock of the core.
    pub ghz: f64,
    /// Bytes that were chased through, from few to many, and nanoseconds of a step.
    pub chase: Vec<(u64, f64)>,
}

/// Why no machine can be made of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The chase does not show three caches before memory.
    #[error("the chase shows {found} levels; expected three caches and memory behind them")]
    Levels {
        /// How many there are.
        found: usize,
    },
    /// What was found cannot be simulated.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Steps that take at most so much longer than the shortest of a level are of that level.
const LEVEL: f64 = 1.3;

/// A level of the chase: the largest size that fits into it, and its time.
#[derive(Clone, Copy, Debug)]
struct Level {
    bytes: u64,
    ns: f64,
}

/// Levels where the time of a step is level over two sizes at least; what lies between is
/// on its way from one to the next.
fn levels(chase: &[(u64, f64)]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while at < chase.len() {
        let (first, mut least) = (at, chase[at].1);
        while at + 1 < chase.len() && chase[at + 1].1 <= least * LEVEL {
            at += 1;
            least = least.min(chase[at].1);
        }
        if at > first {
            let mut ns: Vec<f64> = chase[first..=at].iter().map(|(_, ns)| *ns).collect();
            ns.sort_by(f64::total_cmp);
            levels.push(Level { bytes: chase[at].0, ns: ns[(ns.len() - 1) / 2] });
        }
        at += 1;
    }
    levels
}

/// What is chased through: from 8 KiB to `most` bytes, two sizes to each doubling.
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
/// When the measurement does not show three caches and memory, or what it shows cannot be
/// simulated.
pub fn fit(base: &Config, measured: &Measured) -> Result<Config, CalibrateError> {
    let levels = levels(&measured.chase);
    let [l1, l2, llc, .., memory] = levels[..] else {
        return Err(CalibrateError::Levels { found: levels.len() });
    };
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

    const MOST: u64 = 192 << 20;

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
        machine.llc.mib = 16;
        (machine.mesh.core_egress, machine.mesh.core_ingress) = (3, 6);
        machine.dram.controller_ns = 33.0;
        let measured = chased(&machine);
        let fitted = fit(&Config::default(), &measured).unwrap();
        assert_eq!((fitted.l1d.kib, fitted.l1d.load_to_use), (64, 4));
        assert_eq!((fitted.l2.kib, fitted.l2.load_to_use), (512, 13));
        assert!((12..=16).contains(&fitted.llc.mib), "{}", fitted.llc.mib);
        for (bytes, ns) in measured.chase.into_iter().filter(|(bytes, _)| bytes.is_power_of_two()) {
            let again = simulated_chase(&fitted, bytes) / fitted.core.ghz;
            // At the edge of a cache a few lines more or less decide.
            let edge = [20, 24, 25].contains(&bytes.trailing_zeros());
            assert!((again / ns - 1.0).abs() < 0.12 || edge, "{bytes}: {again} {ns}");
        }
    }

    #[test]
    fn a_chase_without_levels_is_refused() {
        let flat = Measured { ghz: 2.0, chase: sizes(MOST).map(|bytes| (bytes, 2.0)).collect() };
        let told = fit(&Config::default(), &flat).unwrap_err().to_string();
        assert!(told.contains("shows 1 levels"), "{told}");
        let none = Measured { ghz: 2.0, chase: Vec::new() };
        assert!(fit(&Config::default(), &none).is_err());
    }
}
