//! `thalweg sim`: simulations of flow lookup.

mod calibrate;
mod paper;
mod predict;
mod progress;
mod race;
mod sweep;

pub use predict::Predictions;
pub use race::Races;

use std::io::{self, Write};
use std::path::Path;

use thalweg_sim::config::{Beside, Config, ConfigError, Method, Table};
use thalweg_sim::experiment::{self, Report, StoreError};

use crate::args;
use crate::errors::Failure;
use crate::report::{columns, number_table, wrapped, write_json};
use thalweg_source::counted;

/// Runs the command that `options` names.
pub fn simulate(options: &args::Sim, quiet: bool) -> Result<(), Failure> {
    match options {
        args::Sim::Run(options) => run(options),
        args::Sim::Calibrate(options) => calibrate::calibrate(options, quiet),
        args::Sim::Predict(options) => predict::predict(options),
        args::Sim::Race(options) => race::race(options),
        args::Sim::Sweep(options) => sweep::sweep(options, quiet),
        args::Sim::Claims(options) => paper::claims(options, quiet),
        args::Sim::Figure(options) => paper::figure(options, quiet),
        args::Sim::Table(options) => paper::table(options, quiet),
        args::Sim::Queries(options) => queries(options),
        args::Sim::Config(options) => {
            let config = load(options.file.as_deref(), &options.settings)?;
            Ok(io::stdout().write_all(config.to_toml().as_bytes())?)
        }
    }
}

/// The configuration of a file and settings.
fn load(file: Option<&Path>, settings: &[String]) -> Result<Config, Failure> {
    load_by("--set", file, settings)
}

/// As [`load`], with settings that `option` gave.
fn load_by(option: &str, file: Option<&Path>, settings: &[String]) -> Result<Config, Failure> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Failure::Simulation(format!("{}: {e}", path.display())))?,
        None => String::new(),
    };
    Config::with_settings(&text, settings).map_err(|e| {
        let place = match (&e, file) {
            (ConfigError::Setting { .. } | ConfigError::Refused { .. }, _) => format!("{option}: "),
            (ConfigError::Syntax(_) | ConfigError::Range { .. }, Some(path)) => {
                format!("{}: ", path.display())
            }
            _ => String::new(),
        };
        Failure::Simulation(format!("{place}{}", e.to_string().trim_end()))
    })
}

/// Converts a store's error into a command's failure.
fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Config(e) => Failure::Simulation(e.to_string()),
        other => Failure::Run(other.to_string()),
    }
}

/// The number of simulations that run at the same time.
fn threads(asked: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(processors, usize::from)
}

/// The methods with these names; without names, all that can look up in `table`.
fn methods(names: &[String], table: Table) -> Result<Vec<Method>, Failure> {
    if names.is_empty() {
        return Ok(table.methods().to_vec());
    }
    let of = |wanted: &String| {
        let known = Method::ALL.into_iter().find(|method| method.name() == wanted);
        known.ok_or_else(|| {
            let all = Method::ALL.map(Method::name);
            let all = all.join(", ");
            Failure::Usage(format!("--method: unknown method '{wanted}'; expected one of {all}"))
        })
    };
    names.iter().map(of).collect()
}

fn queries(options: &args::SimConfig) -> Result<(), Failure> {
    let config = load(options.file.as_deref(), &options.settings)?;
    if !matches!(config.workload.method, Method::HaloBlocking | Method::HaloNonBlocking) {
        let method = config.workload.method.name();
        return Err(Failure::Simulation(format!(
            "workload.method is {method}; expected halo-blocking or halo-non-blocking"
        )));
    }
    let text = experiment::queries(&config).map_err(|e| Failure::Simulation(e.to_string()))?;
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn run(options: &args::SimRun) -> Result<(), Failure> {
    let config = load(options.config.file.as_deref(), &options.config.settings)?;
    let methods = methods(&options.method, config.workload.table)?;
    let reports =
        experiment::compare(&config, &methods).map_err(|e| Failure::Simulation(e.to_string()))?;
    let mut out = io::stdout().lock();
    if options.json {
        return Ok(write_json(&mut out, &reports)?);
    }
    Ok(show(&mut out, &reports)?)
}

fn show(out: &mut impl Write, reports: &[Report]) -> io::Result<()> {
    let Some(first) = reports.first() else { return Ok(()) };
    let work = &first.config.workload;
    let measured = if work.beside == Beside::None {
        let found = 100.0 * first.hits as f64 / first.lookups as f64;
        format!("{}, {found:.0} % found", counted(first.lookups, "lookup"))
    } else {
        format!("{} units of the other thread's work, each reported as a lookup", first.lookups)
    };
    let prose = |text: &str| wrapped("", text.split(' '), " ", columns());
    let keys = format!(
        "{} of {} bytes in {} ({:.1} MiB), {measured}",
        counted(first.keys, "key"),
        work.key_bytes,
        counted(work.tuples, "table"),
        first.table_bytes as f64 / f64::from(1 << 20),
    );
    writeln!(out, "{}", prose(&keys))?;
    let reference = reports.iter().find(|r| r.config.workload.method == Method::LockFree);
    let headings = [
        "method",
        "cycles",
        "95 %",
        "speed-up",
        "operations",
        "mispredicted",
        "L1 misses",
        "L2 misses",
        "LLC misses",
        "query",
    ];
    let mut table = number_table(&headings, 1);
    for report in reports {
        let of = &report.per_lookup;
        let query = of.query_compute + of.query_data + of.query_transport + of.query_queue;
        let gain = reference
            .map_or_else(String::new, |r| format!("{:.2}", r.cycles.mean / report.cycles.mean));
        table.add_row([
            report.config.workload.method.name().to_owned(),
            format!("{:.1}", report.cycles.mean),
            format!("± {:.1}", report.cycles.half_width),
            gain,
            format!("{:.0}", of.operations),
            format!("{:.2}", of.mispredictions),
            format!("{:.2}", of.l1_misses),
            format!("{:.2}", of.l2_misses),
            format!("{:.2}", of.llc_misses + of.accelerator_misses),
            if of.queries > 0.0 { format!("{:.0}", query / of.queries) } else { String::new() },
        ]);
    }
    writeln!(out, "{table}")?;
    let means = "cycles and counts are means per lookup; speed-up is over lock-free;";
    let query = "query: cycles from the core's instruction to the result";
    writeln!(out, "{}\n{}", prose(means), prose(query))
}
