//! Runs a plan: on one thread, or on several; or traces one packet of it.

mod dispatch;
mod drops;
mod error;
mod inline;
mod options;
mod pinned;
mod ports;
mod reload;
mod rings;
mod state;
mod threads;
mod trace;
mod worker_thread;
mod workers;

use crate::config::{MAX_WORKERS, Plan};
use crate::control::Control;
use crate::report::Report;
use state::StateFolders;

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
#[allow(clippy::needless_pass_by_value)] // a plan is for one run: its NFs hold state and files
pub fn run(plan: Plan, options: &RunOptions, control: &Control) -> Result<Report, RunError> {
    let workers = options.workers.unwrap_or(plan.workers).max(1);
    if workers > MAX_WORKERS {
        return Err(RunError::Workers(workers));
    }
    let pinned = plan.nfs.iter().any(|nf| nf.has_own_worker(workers));
    let state = StateFolders::open(&plan, workers, options)?;
    if workers == 1 && !pinned {
        inline::run(&plan, options, &state, control)
    } else {
        threads::run(&plan, workers, options, &state, control)
    }
}
