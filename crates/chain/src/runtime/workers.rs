//! The beginning and the end of workers, with the state of their NFs.

use thalweg_classify::Classifier;

use super::state::{StateFolderError, StateFolders};
use crate::config::{NfPlan, Plan};
use crate::counters::WorkerCounters;
use crate::worker::Worker;

/// Creates worker number `number` of `workers`, with the NFs that run on it and their imported
/// state.
pub(super) fn begin_worker(
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
pub(super) fn export_state(
    worker: &mut Worker,
    number: usize,
    state: &StateFolders<'_>,
    failures: &mut Vec<String>,
) {
    let written = worker.each_nf(|nf, function| state.export(nf, number, function));
    failures.extend(written.err().map(|e| e.to_string()));
}

/// Commits the state that all instances have written; returns whether another run can import it.
pub(super) fn leave_state(state: &StateFolders<'_>, failures: &mut Vec<String>) -> bool {
    state.commit().unwrap_or_else(|e| {
        failures.push(e.to_string());
        false
    })
}

/// Ends a worker: its NFs write what they hold, and it returns its counts; `is_left` if the state
/// of its NFs was exported for another run.
pub(super) fn end_worker(
    mut worker: Worker,
    is_left: bool,
    failures: &mut Vec<String>,
) -> WorkerCounters {
    worker.end(is_left, failures);
    worker.finish()
}

/// Creates a worker that runs every NF itself, including those that are pinned in a run.
pub(super) fn build_lone_worker(plan: &Plan) -> Worker {
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
