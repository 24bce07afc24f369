//! `thalweg sim predict`: times of lookups in our own cuckoo table on this machine, beside the
//! simulator's.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_cpu::Isa;
use thalweg_sim::config::{Config, Method, Stream, Table};
use thalweg_sim::experiment;
use thalweg_sim::host::{LookupTimes, lookup_times};

use super::load;
use crate::args;
use crate::errors::Failure;
use crate::report::{number_table, write_json};

/// The dependence between lookups, and how each kind is simulated.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Lookups {
    Independent,
    Dependent,
    Steps,
}

impl Lookups {
    const ALL: [Self; 3] = [Self::Independent, Self::Dependent, Self::Steps];

    fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Dependent => "dependent",
            Self::Steps => "steps of 32",
        }
    }

    fn of(self, times: &LookupTimes) -> f64 {
        match self {
            Self::Independent => times.independent,
            Self::Dependent => times.dependent,
            Self::Steps => times.steps,
        }
    }

    fn config(self, base: &Config, places: u64) -> Config {
        let mut config = base.clone();
        let work = &mut config.workload;
        (work.table, work.entries) = (Table::Thalweg, places);
        (work.method, work.stream) = match self {
            Self::Independent => (Method::LockFree, Stream::Independent),
            Self::Dependent => (Method::LockFree, Stream::Dependent),
            Self::Steps => (Method::Bulk, Stream::Independent),
        };
        config
    }
}

/// The times of one kind of lookups in a table of one size.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Row {
    places: u64,
    lookups: Lookups,
    measured_ns: f64,
    predicted_ns: f64,
}

/// Measured and simulated times.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Predictions {
    #[schemars(extend("const" = "thalweg.sim.predict/1"))]
    schema: &'static str,
    rows: Vec<Row>,
}

pub(super) fn predict(options: &args::SimPredict) -> Result<(), Failure> {
    let base = load(options.config.file.as_deref(), &options.config.settings)?;
    let places: Vec<u64> = options.places.iter().map(|bits| 1 << bits).collect();
    let (occupancy, seed) = (base.workload.occupancy, base.sim.seed);
    let measured = lookup_times(&places, occupancy, seed, options.rounds);
    let mut rows = Vec::new();
    for (places, times) in places.iter().zip(measured) {
        for lookups in Lookups::ALL {
            // Without AVX-512 a step of lookups is a different program.
            if matches!(lookups, Lookups::Steps) && Isa::active() != Isa::Avx512 {
                continue;
            }
            let config = lookups.config(&base, *places);
            let report =
                experiment::run(&config).map_err(|e| Failure::Simulation(e.to_string()))?;
            let predicted_ns = report.cycles.mean / config.core.ghz;
            let measured_ns = lookups.of(&times);
            rows.push(Row { places: *places, lookups, measured_ns, predicted_ns });
        }
    }
    let mut out = io::stdout().lock();
    if options.json {
        let predictions = Predictions { schema: "thalweg.sim.predict/1", rows };
        return Ok(write_json(&mut out, &predictions)?);
    }
    let mut table = number_table(&["places", "lookups", "ns", "simulated", "off"], 0);
    for row in &rows {
        table.add_row([
            format!("2^{}", row.places.trailing_zeros()),
            row.lookups.name().to_owned(),
            format!("{:.1}", row.measured_ns),
            format!("{:.1}", row.predicted_ns),
            format!("{:+.0} %", 100.0 * (row.predicted_ns / row.measured_ns - 1.0)),
        ]);
    }
    Ok(writeln!(out, "{table}")?)
}
