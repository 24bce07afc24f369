//! The command line of `thalweg sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands of `thalweg sim`.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Simulate one workload with several lookup methods and compare them
    #[command(after_help = "Examples:
  thalweg sim run
  thalweg sim run --set workload.entries=1048576 --set workload.stream=dependent
  thalweg sim run machine.toml --method lock-free,halo-blocking --json")]
    Run(SimRun),
    /// Simulate every combination of several settings, one line of JSON for each
    #[command(after_help = "Examples:
  thalweg sim sweep --over workload.entries=1024,131072 --over workload.occupancy=0.25,0.75 out.jsonl
  thalweg sim sweep --over workload.tuples=5,10,15,20 --set workload.entries=1024 tuples.jsonl

An interrupted sweep resumes when it is started again with the same file: combinations
that the file holds already are not simulated again.")]
    Sweep(SimSweep),
    /// Simulate a writer and concurrent readers: lookups that miss while entries are displaced
    #[command(after_help = "Examples:
  thalweg sim race
  thalweg sim race --set workload.entries=64 --set race.readers=16 --json

The readers look up keys that are always in the table, while the writer inserts and removes
others, under each guard: none, the change counter of software, the locks of accelerators.")]
    Race(SimRace),
    /// Write the queries of an accelerator step by step, for its RTL
    #[command(after_help = "Examples:
  thalweg sim queries --set workload.method=halo-blocking > queries.txt

rtl/check.sh runs them through the accelerator in SystemVerilog.")]
    Queries(SimConfig),
    /// Simulate the claims of the HALO paper, and report which of them hold
    #[command(after_help = "Examples:
  thalweg sim claims --out report
  thalweg sim claims --out report --set llc.tag_data=24

Writes figures (SVG, PDF and CSV), tables, claims.md and claims.json to the folder. runs.jsonl
there keeps every finished simulation, so that an interrupted command resumes where it stopped.")]
    Claims(SimClaims),
    /// Simulate and draw one figure of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim figure 11 --out report")]
    Figure(SimNumber),
    /// Simulate and print one table of the HALO paper
    #[command(after_help = "Examples:
  thalweg sim table 4 --out report")]
    Table(SimNumber),
    /// Measure this machine's caches with a pointer chase, and print them as a configuration
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml
  thalweg sim run host.toml

Measures only the time of dependent loads, over more and more memory; the core's width,
queues and ports are those of the configuration that it begins with.")]
    Calibrate(SimCalibrate),
    /// Time lookups in our own cuckoo table on this machine, next to the simulation's times
    ///
    /// FILE is the machine's configuration, as `thalweg sim calibrate` writes it. The simulation
    /// uses nothing that is measured here.
    #[command(after_help = "Examples:
  thalweg sim calibrate --out host.toml && thalweg sim predict host.toml
  thalweg sim predict host.toml --places 10,17 --json")]
    Predict(SimPredict),
    /// Print the whole configuration, including the defaults
    #[command(after_help = "Examples:
  thalweg sim config > machine.toml
  thalweg sim config machine.toml --set core.width=6")]
    Config(SimConfig),
}

/// A simulation's configuration.
#[derive(Debug, Args)]
pub struct SimConfig {
    /// A file with settings that differ from the defaults
    pub file: Option<PathBuf>,
    /// Override one setting of the file; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Arguments of `thalweg sim run`.
#[derive(Debug, Args)]
pub struct SimRun {
    #[command(flatten)]
    pub config: SimConfig,
    /// Lookup methods, instead of workload.method [default: all]
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    pub method: Vec<String>,
    /// Print the reports as JSON (schema thalweg.sim.run/2)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg sim calibrate`.
#[derive(Debug, Args)]
pub struct SimCalibrate {
    #[command(flatten)]
    pub config: SimConfig,
    /// The file to write, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The most memory to chase through; must be much larger than the last-level cache
    #[arg(long, value_name = "MIB", default_value_t = 192,
        value_parser = clap::value_parser!(u64).range(16..=65536))]
    pub most: u64,
}

/// Arguments of `thalweg sim predict`.
#[derive(Debug, Args)]
pub struct SimPredict {
    #[command(flatten)]
    pub config: SimConfig,
    /// Sizes of the tables, each as the base-2 logarithm of its places
    #[arg(long, value_name = "BITS,...", value_delimiter = ',', default_value = "6,10,14,17,20",
        value_parser = clap::value_parser!(u32).range(3..=26))]
    pub places: Vec<u32>,
    /// Rounds of measurement, of which the shortest times count
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Print the measured and simulated times as JSON (schema thalweg.sim.predict/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `thalweg sim race`.
#[derive(Debug, Args)]
pub struct SimRace {
    #[command(flatten)]
    pub config: SimConfig,
    /// Print the results as JSON (schema thalweg.sim.race/1)
    #[arg(long)]
    pub json: bool,
}

/// The options that many simulations share.
#[derive(Debug, Args)]
pub struct SimGrid {
    /// A file with settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one setting in all simulations; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    pub settings: Vec<String>,
    /// Simulations to run in parallel [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Arguments of `thalweg sim claims`.
#[derive(Debug, Args)]
pub struct SimClaims {
    #[command(flatten)]
    pub paper: SimPaper,
    /// Print the claims with their verdicts as JSON (schema thalweg.sim.claims/1)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the commands that simulate what the HALO paper shows.
#[derive(Debug, Args)]
pub struct SimPaper {
    /// The folder to write to; created if it is missing
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    #[command(flatten)]
    pub grid: SimGrid,
}

/// Arguments of `thalweg sim figure` and `thalweg sim table`.
#[derive(Debug, Args)]
pub struct SimNumber {
    /// The number of the figure or table in the paper
    pub number: String,
    #[command(flatten)]
    pub paper: SimPaper,
}

/// Arguments of `thalweg sim sweep`.
#[derive(Debug, Args)]
pub struct SimSweep {
    /// The file to write: reports as lines of JSON (schema thalweg.sim.run/2)
    pub output: PathBuf,
    /// A setting and its values; may be repeated
    #[arg(long, value_name = "TABLE.KEY=VALUE,...", required = true)]
    pub over: Vec<String>,
    #[command(flatten)]
    pub grid: SimGrid,
}
