//! The command line of `thalweg devices`.

use clap::Args;

/// Arguments of `thalweg devices`.
#[derive(Debug, Args)]
pub struct Devices {
    /// Print them as JSON (schema thalweg.devices/1)
    #[arg(long)]
    pub json: bool,
}
