//! Runs a plan: on one thread, or on several; or traces one packet of it.

mod at_device;
mod ending;
mod error;
mod generation;
mod idle;
mod inline;
mod line;
mod options;
mod panics;
mod pauses;
mod pinned;
mod placing;
mod ports;
mod reload;
mod session;
mod stages;
mod state;
mod trace;
mod waker;
mod watching;
mod worker;
mod workers;

use std::sync::mpsc;
use std::thread;

use thalweg_chain::{MAX_WORKERS, Plan};

use crate::control::Control;
use crate::guard::Confinement;
use crate::report::Report;
use generation::Generation;
use session::Session;
use state::StateFolders;
use watching::watch;

pub use error::RunError;
pub use options::RunOptions;
pub use state::{StateFolderError, state_schema};
pub use trace::{TraceError, trace};

/// Sends the plan's traffic through its chain, to its end or until `control`
/// stops it, and reports the fate of every packet.
///
/// A damaged input or a full output does not prevent the report: it covers the
/// packets until then, and names the failure.
///
/// # Errors
/// If the run could not start.
pub fn run(plan: Plan, options: &RunOptions, control: &Control) -> Result<Report, RunError> {
    run_and_tell(plan, options, control, || {})
}

/// As [`run`]; calls `started` when nothing can prevent the run any more.
pub(crate) fn run_and_tell(
    plan: Plan,
    options: &RunOptions,
    control: &Control,
    started: impl FnOnce(),
) -> Result<Report, RunError> {
    let outcome = execute(plan, options, control, started);
    // Those who still wait get no answer.
    control.end();
    outcome
}

fn execute(
    plan: Plan,
    options: &RunOptions,
    control: &Control,
    started: impl FnOnce(),
) -> Result<Report, RunError> {
    let workers = options.workers.unwrap_or(plan.workers).max(1);
    if workers > MAX_WORKERS {
        return Err(RunError::Workers(workers));
    }
    if (1..workers).contains(&plan.cores.len()) {
        return Err(RunError::Cores { workers, cores: plan.cores.len() });
    }
    let state = StateFolders::open(&plan, options)?;
    let generation = Generation::open(plan, workers, options, &state, control)?;
    let confinement = options.confinement.as_deref();
    confinement.map_or(Ok(()), Confinement::opened).map_err(RunError::Confinement)?;
    drop(control.set_plan(Some(generation.plan.clone())));
    thread::scope(|scope| {
        let (running, ended) = mpsc::channel();
        if options.watch {
            let watch = move || watch(control, &ended);
            let builder = thread::Builder::new().name("watch".into());
            builder.spawn_scoped(scope, watch).map_err(RunError::Thread)?;
        }
        started();
        let report = Session::new(options, workers, control).run(generation, &state);
        drop(running);
        Ok(report)
    })
}
