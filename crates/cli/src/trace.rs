//! `thalweg trace`: explains one packet's path through a chain.

use std::io::{self, Write};

use thalweg_chain::{Kinds, PlanOptions};
use thalweg_engine::{RunOptions, TraceError};

use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::report::write_json;
use crate::run::refusal;

/// Sends packets through the chain until the requested one, and prints its path.
pub fn trace(options: &args::Trace, kinds: &Kinds) -> Result<(), Failure> {
    let how = PlanOptions { dry_run: true, without_outputs: true, ..PlanOptions::default() };
    let plan = load(&options.chain, kinds, how)?;
    let failure = |e: TraceError| match e {
        TraceError::Run(e) => refusal(&e),
        _ => Failure::Run(format!("--packet: {e}")),
    };
    let how = RunOptions {
        times: options.selected.times(),
        filter: options.selected.filter.clone(),
        ..RunOptions::default()
    };
    let trace = thalweg_engine::trace(plan, options.packet, &how).map_err(failure)?;
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &trace)?;
    } else {
        write!(out, "{trace}")?;
    }
    Ok(())
}
