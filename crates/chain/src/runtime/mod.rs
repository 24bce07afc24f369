//! Running a plan: on one thread, or on several.

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

/// What the command line may ask beside the chain file.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Worker threads, in place of the chain file's.
    pub workers: Option<usize>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// End after this many packets were received.
    pub count: Option<u64>,
    /// Passes over each capture (0 = for ever), in place of the chain file's.
    pub loops: Option<u64>,
    /// Take the time of each stage; that itself takes some.
    pub stages: bool,
    /// A folder with state of NFs that is taken over before the first packet.
    pub import_state: Option<PathBuf>,
    /// A folder for the state of NFs behind the last packet.
    pub export_state: Option<PathBuf>,
}

/// The most worker threads of a run.
pub(crate) const MAX_WORKERS: usize = 256;

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A port could not be opened.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A generator's specification makes no sense.
    #[error("generated traffic: {0}")]
    Generate(#[from] thalweg_io::generate::SpecError),
    /// More workers were asked for than there may be.
    #[error("{0} workers are too many; expected 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// State cannot be taken over, or not be left.
    #[error(transparent)]
    State(#[from] StateFolderError),
    /// The system gives no thread.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
}

/// Sends the plan's traffic through its chain, to its end or until `control`
/// says stop, and reports what became of every packet.
///
/// A damaged input or a full output does not end the report: what could be
/// done is done, and the report names the failure.
///
/// # Errors
/// When the run could not begin.
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

/// Worker number `number` of `workers`, with the NFs that run on it and the state they take over.
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

/// Leaves the state that all have written; whether another run can take it over.
fn leave_state(state: &StateFolders<'_>, failures: &mut Vec<String>) -> bool {
    state.commit().unwrap_or_else(|e| {
        failures.push(e.to_string());
        false
    })
}

/// Ends a worker, whose NFs' state `is_left` for another run or not: their last words, and its
/// counts.
fn end_worker(mut worker: Worker, is_left: bool, failures: &mut Vec<String>) -> WorkerCounters {
    worker.end(is_left, failures);
    worker.finish()
}

/// A worker that runs every NF itself, also those that are pinned in a run.
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
