//! Arguments of `thalweg port`.

use clap::Subcommand;

/// Commands of `thalweg port`.
#[derive(Debug, Subcommand)]
pub enum Port {
    /// List the kinds of port
    #[command(after_help = "Examples:
  thalweg port list
  thalweg port list --json")]
    List {
        /// Print them as JSON (schema thalweg.port.list/1)
        #[arg(long)]
        json: bool,
    },
    /// Show the keys of a kind's sections with their defaults
    #[command(after_help = "Examples:
  thalweg port show capture
  thalweg port show capture --json | jq .input > capture.schema.json")]
    Show {
        /// The kind, or the key that chooses it
        kind: String,
        /// Print it as JSON (schema thalweg.port/1), its sections as JSON Schema
        #[arg(long)]
        json: bool,
    },
}
