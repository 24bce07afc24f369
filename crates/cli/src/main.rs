//! The `thalweg` program with the kinds of network function that come with it.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_cli::main(&thalweg_cli::built_in_kinds())
}
