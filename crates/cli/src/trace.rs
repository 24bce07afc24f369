//! `thalweg trace`: explains one packet's path through a chain.

use std::io::{self, Write};

use thalweg_chain::{PlanOptions, RunOptions};
use thalweg_nf::Kinds;

use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::report::write_json;

/// Sends packets through the chain until the requested one, and prints its path.
pub fn trace(options: &args::Trace, kinds: &Kinds) -> Result<(), Failure> {
    let how = PlanOptions { dry_run: true, without_outputs: true, ..PlanOptions::default() };
    let plan = load(&options.chain, kinds, how)?;
    let trace = thalweg_chain::trace(plan, options.packet, &RunOptions::default())
        .map_err(|e| Failure::Run(e.to_string()))?;
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &trace)?;
    } else {
        write!(out, "{trace}")?;
    }
    Ok(())
}
