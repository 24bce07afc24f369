//! `thalweg sim calibrate`: this machine's caches as a configuration.

use std::fs;
use std::io::{self, Write};

use thalweg_sim::calibrate::{self, Measured};
use thalweg_sim::config::Config;
use thalweg_sim::host::{clock_ghz, step_ns};

use super::load;
use crate::args;
use crate::errors::Failure;
use crate::report::number_table;
use crate::terminal::{self, Line};

/// Passes over all sizes.
const SWEEPS: usize = 8;

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
    let (ghz, line) = (clock_ghz(), Line::start(quiet));
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
