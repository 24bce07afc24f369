//! The command line of `thalweg top`.

use clap::Args;
use thalweg_api::Address;

/// Arguments of `thalweg top`.
#[derive(Debug, Args)]
pub struct Top {
    /// The run: the NAME of its control socket or its PATH [default: the only one that runs]
    #[arg(short, long, value_name = "NAME|PATH")]
    pub socket: Option<Address>,
    /// Print N times what has happened in a second, and end [default: on a terminal, show it until
    /// q or Ctrl-C; else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
}
