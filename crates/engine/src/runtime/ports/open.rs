//! Opens the ports of a plan, and checks the options of a run against its inputs.

use thalweg_chain::{InputPlan, MergeBy, OutputPlan, Plan, PortPlan};
use thalweg_io::kind::{InputOpening, OutputOpening, Overrides, PortBlueprint};
use thalweg_io::{Input, IoError, Output, PacedInput, PacedStart, SegmentingOutput, TimeRange};
use thalweg_source::Stop;

use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;

/// The most queues of the inputs of `plan` in a run with `workers` workers: as many, if others send
/// their packets. The packets of captures are received in one order, by one worker at a time, and so
/// are those of a run that ends after a number of them.
pub(crate) fn queues(plan: &Plan, options: &RunOptions, workers: usize) -> usize {
    let are_live = plan.inputs.iter().all(|input| input.blueprint.is_live());
    if are_live && options.count.is_none() { workers } else { 1 }
}

/// Opens an input of `plan`, with up to `queues` queues; waits for its other end until `stop`.
pub(crate) fn open_input(
    plan: &Plan,
    input: &InputPlan,
    options: &RunOptions,
    queues: usize,
    stop: &Stop,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let overrides =
        Overrides { passes: options.loops, times: options.times, filter: options.filter.clone() };
    let opening = InputOpening { pool: &plan.pool, queues, overrides: &overrides, stop };
    let opened = input.open(&opening)?;
    log_mode("input", input);
    Ok(opened)
}

/// Opens an input of `plan` for a run, in which its packets may have a pace. `start` is that of all
/// inputs that are opened with it and merged by time.
pub(crate) fn open_paced(
    plan: &Plan,
    input: &InputPlan,
    options: &RunOptions,
    queues: usize,
    start: &PacedStart,
    stop: &Stop,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let ports = open_input(plan, input, options, queues, stop)?;
    let Some(pace) = input.blueprint.pace() else { return Ok(ports) };
    let merges = plan.merge == MergeBy::Time && input.blueprint.times().is_some();
    let start = if merges { start.clone() } else { PacedStart::default() };
    let paced = |port| Box::new(PacedInput::new(port, pace, start.clone())) as Box<dyn Input>;
    Ok(ports.into_iter().map(paced).collect())
}

/// Opens an output of `plan`, with up to `queues` queues, and locks its file.
pub(crate) fn claim_output(
    plan: &Plan,
    output: &OutputPlan,
    queues: usize,
    stop: &Stop,
) -> Result<Vec<Box<dyn Output>>, RunError> {
    let queues = output.open(&OutputOpening { pool: &plan.pool, queues, stop })?;
    log_mode("output", output);
    let whole = |port: Box<dyn Output>| -> Box<dyn Output> {
        if plan.pool.large_frames() == 0 || port.takes_tunnelled_supers() {
            return port;
        }
        Box::new(SegmentingOutput::new(port, &plan.pool))
    };
    Ok(queues.into_iter().map(whole).collect())
}

/// Logs how the packets of a port pass that was opened, if others send or receive them.
fn log_mode<B: PortBlueprint + ?Sized>(direction: &str, port: &PortPlan<B>) {
    if let Some(mode) = port.mode().filter(|_| port.is_live()) {
        log::info!("{direction} {}: {}: {mode}", port.name, port.blueprint.title());
    }
}

/// Opens and locks the files that NFs write, if they are not open.
pub(crate) fn claim_files(plan: &Plan, stop: &Stop) -> Result<(), RunError> {
    for file in plan.files.outputs_of_nfs() {
        file.stop_with(stop);
        let failed = |source| IoError::File { path: file.path().to_owned(), source };
        file.claim().map_err(failed)?;
    }
    Ok(())
}

/// Refuses options that apply to no input, and warns of inputs to which they do not.
pub(crate) fn check_options(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    check_loops(plan, options)?;
    check_times(plan, options)?;
    check_filter(plan, options)
}

fn check_times(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if options.times == TimeRange::default() {
        return Ok(());
    }
    let has_times = |input: &&InputPlan| input.blueprint.times().is_some();
    let (captures, others): (Vec<_>, Vec<_>) = plan.inputs.iter().partition(has_times);
    if captures.is_empty() {
        return Err(RunError::Times);
    }
    for InputPlan { name, kind, .. } in others {
        log::warn!("--from and --to do not apply to input '{name}': it is {}", kind.noun);
    }
    let is_empty = |input: &&&InputPlan| {
        let times = input.blueprint.times().unwrap_or_default();
        times.replaced_by(options.times).is_empty()
    };
    let empty = captures.iter().find(is_empty);
    empty.map_or(Ok(()), |input| Err(RunError::NoTime(input.name.clone())))
}

fn check_filter(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if options.filter.is_none() {
        return Ok(());
    }
    let can_filter = |input: &&InputPlan| input.blueprint.can_filter();
    let (filtered, others): (Vec<_>, Vec<_>) = plan.inputs.iter().partition(can_filter);
    if filtered.is_empty() {
        return Err(RunError::Filter);
    }
    for InputPlan { name, kind, .. } in others {
        log::warn!("--filter does not apply to input '{name}': it is {}", kind.noun);
    }
    Ok(())
}

fn check_loops(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    let Some(loops) = options.loops else { return Ok(()) };
    let loops_none = |input: &&InputPlan| !input.blueprint.can_repeat(loops);
    let ignoring: Vec<_> = plan.inputs.iter().filter(loops_none).map(|i| &*i.name).collect();
    if ignoring.len() == plan.inputs.len() {
        return Err(RunError::Loops);
    }
    for name in ignoring {
        log::warn!("--loop does not apply to input '{name}': it is not a capture file");
    }
    Ok(())
}
