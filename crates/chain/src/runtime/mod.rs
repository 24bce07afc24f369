//! Runs a plan: on one thread, or on several.

mod dispatch;
mod inline;
mod pinned;
mod ports;
mod reload;
mod rings;
mod state;
mod threads;
mod worker_thread;

use std::path::PathBuf;
use std::time::Duration;

use thalweg_classify::Classifier;
use thalweg_io::{CaptureInput, Input, InterfaceInput, IoError, MemoryInput};

use crate::config::{InputSource, NfPlan, Plan};
use crate::control::Control;
use crate::counters::WorkerCounters;
use crate::report::Report;
use crate::worker::Worker;
use state::StateFolders;

pub(crate) use ports::wait;
pub use state::StateFolderError;

/// Options of a run beside the chain file.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Worker threads, in place of the chain file's.
    pub workers: Option<usize>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this many received packets.
    pub count: Option<u64>,
    /// Passes over each capture (0 = forever), in place of the chain file's.
    pub loops: Option<u64>,
    /// Time each stage; the timing itself takes time.
    pub stages: bool,
    /// A folder with NF state that is imported before the first packet.
    pub import_state: Option<PathBuf>,
    /// A folder to which the NF state is exported after the last packet.
    pub export_state: Option<PathBuf>,
}

/// The maximum number of worker threads of a run.
pub(crate) const MAX_WORKERS: usize = 256;

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A port could not be opened.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The specification of a generator is invalid.
    #[error("generated traffic: {0}")]
    Generate(#[from] thalweg_io::generate::SpecError),
    /// More workers are requested than the maximum.
    #[error("bad number of workers: {0}; expected 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// State cannot be imported or exported.
    #[error(transparent)]
    State(#[from] StateFolderError),
    /// The system refuses to start a thread.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
}

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

pub(crate) fn open_inputs(
    plan: &Plan,
    options: &RunOptions,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let open = |input: &crate::config::InputPlan| -> Result<Box<dyn Input>, RunError> {
        let loops = options.loops.unwrap_or(input.loops);
        Ok(match &input.source {
            InputSource::Interface { name, promiscuous } => {
                Box::new(InterfaceInput::open(name, *promiscuous)?)
            }
            InputSource::Capture { path, in_memory: false } => {
                Box::new(CaptureInput::open(path, loops)?)
            }
            InputSource::Capture { path, in_memory: true } => {
                Box::new(MemoryInput::load(path, loops)?)
            }
            InputSource::Generate(spec) => {
                Box::new(thalweg_io::generate::GeneratorInput::new((**spec).clone())?)
            }
        })
    };
    plan.inputs.iter().map(open).collect()
}

/// Creates worker number `number` of `workers`, with the NFs that run on it and their imported
/// state.
fn begin_worker(
    plan: &Plan,
    number: usize,
    workers: usize,
    state: &StateFolders<'_>,
) -> Result<Worker, StateFolderError> {
    let mut worker = worker_with(plan, number, |nf| !nf.has_own_worker(workers));
    worker.each_nf(|nf, function| state.import(nf, number, function))?;
    Ok(worker)
}

/// Writes the state of the NFs of worker number `number`.
fn export_state(
    worker: &mut Worker,
    number: usize,
    state: &StateFolders<'_>,
    failures: &mut Vec<String>,
) {
    let written = worker.each_nf(|nf, function| state.export(nf, number, function));
    failures.extend(written.err().map(|e| e.to_string()));
}

/// Commits the state that all instances have written; returns whether another run can import it.
fn leave_state(state: &StateFolders<'_>, failures: &mut Vec<String>) -> bool {
    state.commit().unwrap_or_else(|e| {
        failures.push(e.to_string());
        false
    })
}

/// Ends a worker: its NFs write what they hold, and it returns its counts; `is_left` if the state
/// of its NFs was exported for another run.
fn end_worker(mut worker: Worker, is_left: bool, failures: &mut Vec<String>) -> WorkerCounters {
    worker.end(is_left, failures);
    worker.finish()
}

/// Creates a worker that runs every NF itself, including those that are pinned in a run.
pub(crate) fn build_lone_worker(plan: &Plan) -> Worker {
    worker_with(plan, 0, |_| true)
}

fn worker_with(plan: &Plan, number: usize, runs_here: impl Fn(&NfPlan) -> bool) -> Worker {
    let nfs = plan.nfs.iter().map(|nf| runs_here(nf).then(|| nf.blueprint.instance(number)));
    Worker::new(
        plan.routing.clone(),
        Classifier::new(plan.rules.clone(), plan.classifier),
        nfs.collect(),
        plan.pool.clone(),
    )
}
