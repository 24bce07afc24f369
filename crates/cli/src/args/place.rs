//! The command line of `thalweg place`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `thalweg place`.
#[derive(Debug, Args)]
pub struct Place {
    /// Measure each NF on each place where it can run
    #[arg(long, required = true)]
    pub measure: bool,
    /// The chain file
    pub chain: PathBuf,
    /// Frame sizes of the generated traffic, as of thalweg gen: imix, 64, 64-1500, or 64:7,594:4
    #[arg(long, value_name = "SIZES", num_args = 1..,
        default_values_t = ["64", "512", "1472", "imix"].map(str::to_owned))]
    pub sizes: Vec<String>,
    /// Packets of each kind of traffic, which pass again and again
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub packets: u64,
    /// How often to measure each; the median and the spread are shown
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub samples: u16,
    /// Length of a measurement, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500,
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub time: u64,
    /// Print the measurements as JSON (schema thalweg.place/1); mistakes in files too
    /// (thalweg.mistakes/1)
    #[arg(long)]
    pub json: bool,
}
