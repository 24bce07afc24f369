//! `thalweg sim calibrate`: this machine's caches as a configuration.

use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use memmap2::{Advice, MmapMut};
use thalweg_sim::calibrate::{self, Measured};
use thalweg_sim::config::Config;

use super::load;
use crate::args;
use crate::errors::Failure;
use crate::report::number_table;
use crate::terminal::{self, Line};

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Passes over all sizes.
const SWEEPS: usize = 8;
/// Steps of a chase that are timed, and how often; the shortest time counts, since other load on
/// the machine only makes it longer.
const STEPS: u32 = 1 << 19;
const ROUNDS: usize = 3;

pub(super) fn calibrate(options: &args::SimCalibrate, quiet: bool) -> Result<(), Failure> {
    let base = load(options.config.file.as_deref(), &options.config.settings)?;
    let measured = measure(options.most << 20, quiet)?;
    let config =
        calibrate::fit(&base, &measured).map_err(|e| Failure::Simulation(e.to_string()))?;
    match &options.out {
        Some(path) => fs::write(path, config.to_toml())
            .map_err(|e| Failure::Run(format!("{}: {e}", path.display())))?,
        None => io::stdout().write_all(config.to_toml().as_bytes())?,
    }
    if !quiet {
        eprint!("{}", beside(&config, &measured));
    }
    Ok(())
}

/// Chases through up to `most` bytes, several times: other load on the machine takes its caches
/// for a while, and not always at the same size.
fn measure(most: u64, quiet: bool) -> Result<Measured, Failure> {
    let (ghz, line) = (clock(), Line::start(quiet));
    let mut chase: Vec<(u64, f64)> =
        calibrate::sizes(most).map(|bytes| (bytes, f64::INFINITY)).collect();
    for sweep in 1..=SWEEPS {
        for (bytes, least) in &mut chase {
            if let Some(line) = &line {
                line.draw(&[format!("{sweep} of {SWEEPS}: {} KiB", *bytes >> 10)]);
            }
            *least = least.min(step_ns(*bytes).map_err(|e| Failure::Run(e.to_string()))?);
        }
    }
    // A chase through less memory does not take longer.
    let mut later = f64::INFINITY;
    for (_, least) in chase.iter_mut().rev() {
        later = later.min(*least);
        *least = later;
    }
    Ok(Measured { ghz, chase })
}

/// The clock of the core in GHz, as it is under load: three shifts and three exclusive ors,
/// each of which needs the one before, take six cycles.
fn clock() -> f64 {
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
fn step_ns(bytes: u64) -> io::Result<f64> {
    let mut map = MmapMut::map_anon(bytes as usize + HUGE)?;
    // Without huge pages, misses of address translation are measured too.
    let _ = map.advise(Advice::HugePage);
    let start = map.as_ptr().align_offset(HUGE);
    // Each line holds where in the memory the next one is.
    for (line, next) in calibrate::cycle_through(bytes / LINE as u64).into_iter().enumerate() {
        let at = start + line * LINE;
        map[at..at + 8].copy_from_slice(&(start + next as usize * LINE).to_ne_bytes());
    }
    let follow = |at: usize| {
        let word = map[at..at + 8].try_into().expect("eight bytes");
        usize::from_ne_bytes(word)
    };
    let mut at = (0..bytes / LINE as u64).fold(start, |at, _| follow(at));
    let mut shortest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        at = (0..STEPS).fold(at, |at, _| follow(at));
        shortest = shortest.min(begun.elapsed().as_nanos() as f64 / f64::from(STEPS));
    }
    black_box(at);
    Ok(shortest)
}

/// A table of the measured times beside the simulated ones.
fn beside(config: &Config, measured: &Measured) -> String {
    let mut table =
        number_table(&["KiB", "ns", "simulated"], 0).within(terminal::columns(&io::stderr()));
    for (bytes, ns) in measured.chase.iter().filter(|(bytes, _)| bytes.is_power_of_two()) {
        let simulated = calibrate::simulated_chase(config, *bytes) / config.core.ghz;
        table.add_row([(bytes >> 10).to_string(), format!("{ns:.1}"), format!("{simulated:.1}")]);
    }
    format!("{:.2} GHz; time per step of a chase:\n{table}\n", measured.ghz)
}
