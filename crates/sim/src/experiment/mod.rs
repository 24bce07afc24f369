//! Running a configuration, and what is seen.

mod beside;
mod emc;
mod flows;
mod function;
mod lookups;
mod measured;
mod own;
mod queries;
mod race;
mod statistics;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, ConfigError, Method, Table};
use crate::halo::Parts;

use lookups::Lookups;
use own::OwnLookups;
pub use queries::queries;
pub use race::{Race, race};
pub use statistics::Mean;
pub use store::{Store, StoreError};

/// The results of a run. Counts and times are those of all measured lookups, or of one lookup
/// where that is stated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Form of this report.
    #[schemars(extend("const" = "thalweg.sim.run/2"))]
    pub schema: String,
    /// The whole configuration, as `thalweg sim config` prints it.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, serde_json::Value>>")]
    pub config: Config,
    /// Keys in the tables.
    pub keys: u64,
    /// Bytes of all buckets and keys.
    pub table_bytes: u64,
    /// Lookups measured; where there is another thread, units of its work, and all figures of a
    /// lookup are figures of such a unit.
    pub lookups: u64,
    /// Lookups meanwhile that found their key.
    pub hits: u64,
    /// Cycles a lookup.
    pub cycles: Mean,
    /// Cycles a lookup, batch by batch.
    pub batches: Vec<f64>,
    /// The first of the measured lookups that are not like the rest, by MSER-5.
    pub warm_up: u64,
    /// Means per lookup.
    pub per_lookup: PerLookup,
}

/// Means over the lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerLookup {
    /// Micro-operations.
    pub operations: f64,
    /// Loads.
    pub loads: f64,
    /// Stores.
    pub stores: f64,
    /// Branches.
    pub branches: f64,
    /// Mispredicted ones.
    pub mispredictions: f64,
    /// Lines missed in the first-level cache.
    pub l1_misses: f64,
    /// In the second.
    pub l2_misses: f64,
    /// In the last.
    pub llc_misses: f64,
    /// Packets that the exact-match cache knew, and cycles until it had answered.
    pub emc_hits: f64,
    /// See `emc_hits`.
    pub emc_cycles: f64,
    /// Queries to accelerators.
    pub queries: f64,
    /// Accesses of accelerators.
    pub accelerator_accesses: f64,
    /// Those of them from main memory.
    pub accelerator_misses: f64,
    /// Those of them from the core's caches.
    pub snoops: f64,
    /// Cycles of queries: decoding, hashing, comparing.
    pub query_compute: f64,
    /// Waiting for data.
    pub query_data: f64,
    /// Between core and accelerator.
    pub query_transport: f64,
    /// Waiting for the accelerator.
    pub query_queue: f64,
}

impl PerLookup {
    fn parts(&mut self, parts: &Parts, lookups: f64) {
        self.query_compute = parts.compute as f64 / lookups;
        self.query_data = parts.data as f64 / lookups;
        self.query_transport = parts.transport as f64 / lookups;
        self.query_queue = parts.queue as f64 / lookups;
    }
}

/// A configuration's tables and warm caches, from which runs begin.
#[derive(Clone, Debug)]
enum Prepared {
    /// Tables that simulated methods have in common.
    Common(Box<Lookups>),
    /// Our own tables.
    Own(Box<OwnLookups>),
}

impl Prepared {
    fn new(config: &Config) -> Self {
        match config.workload.table {
            Table::Thalweg => Self::Own(Box::new(OwnLookups::new(config))),
            Table::Cuckoo | Table::SingleFunction => Self::Common(Box::new(Lookups::new(config))),
        }
    }

    /// Runs a configuration that is prepared alike (see [`Config::prepared`]).
    fn run(self, config: &Config) -> Report {
        match self {
            Self::Common(lookups) => measured::report(lookups.with(config)),
            Self::Own(lookups) => measured::report(lookups.with(config)),
        }
    }
}

/// Simulates `config`.
///
/// # Errors
/// When it cannot be simulated.
pub fn run(config: &Config) -> Result<Report, ConfigError> {
    config.check()?;
    Ok(Prepared::new(config).run(config))
}

/// Simulates `config` with each of `methods`.
///
/// # Errors
/// When it cannot be simulated.
pub fn compare(config: &Config, methods: &[Method]) -> Result<Vec<Report>, ConfigError> {
    config.check()?;
    let by = |method: &Method| {
        let mut config = config.clone();
        config.workload.method = *method;
        config.check().map(|()| config)
    };
    let configs: Vec<Config> = methods.iter().map(by).collect::<Result<_, _>>()?;
    let prepared = Prepared::new(config);
    Ok(configs.iter().map(|config| prepared.clone().run(config)).collect())
}
