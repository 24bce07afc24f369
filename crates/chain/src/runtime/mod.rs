//! Running a plan: on one thread, or on several.

mod inline;
mod ports;
mod threads;

use std::time::Duration;

use thalweg_classify::Classifier;
use thalweg_io::{CaptureInput, Input, IoError, MemoryInput};

use crate::config::{InputSource, Plan};
use crate::control::Control;
use crate::report::Report;
use crate::worker::Worker;

/// What the command line may ask beside the chain file.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Worker threads, in place of the chain file's.
    pub workers: Option<usize>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// End after this many packets were received.
    pub count: Option<u64>,
    /// Passes over each capture (0 = for ever), in place of the chain file's.
    pub loops: Option<u64>,
}

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
pub fn run(plan: Plan, options: &RunOptions, control: &Control) -> Result<Report, RunError> {
    let workers = options.workers.unwrap_or(plan.workers).max(1);
    let pinned = plan.nfs.iter().any(|nf| plan.is_pinned(nf, workers));
    if workers == 1 && !pinned {
        inline::run(plan, options, control)
    } else {
        threads::run(plan, workers, options, control)
    }
}

pub(crate) fn open_inputs(
    plan: &Plan,
    options: &RunOptions,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let open = |input: &crate::config::InputPlan| -> Result<Box<dyn Input>, RunError> {
        let loops = options.loops.unwrap_or(input.loops);
        Ok(match &input.source {
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

/// Worker number `number` of `workers`, with the NFs that run on it.
pub(crate) fn build_worker(plan: &Plan, number: usize, workers: usize) -> Worker {
    let here = |nf: &crate::config::NfPlan| {
        (!plan.is_pinned(nf, workers)).then(|| nf.blueprint.instance(number))
    };
    Worker::new(
        plan.routing.clone(),
        Classifier::new(plan.rules.clone(), plan.classifier),
        plan.nfs.iter().map(here).collect(),
        plan.pool.clone(),
    )
}
