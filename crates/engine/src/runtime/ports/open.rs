//! Opens the inputs of a plan, and checks the options of a run against them.

use std::path::Path;

use thalweg_chain::{InputPlan, InputSource, Plan};
use thalweg_io::generate::GeneratorInput;
use thalweg_io::{CaptureInput, Input, InterfaceInput, MemoryInput, Selection, TimeRange};

use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;

/// Opens an input.
pub(crate) fn open_input(
    input: &InputPlan,
    options: &RunOptions,
) -> Result<Box<dyn Input>, RunError> {
    let loops = options.loops.unwrap_or(input.loops);
    let times = input.times.replaced_by(options.times);
    let filter = options.filter.as_ref().or(input.filter.as_ref());
    let selection = Selection { times, filter: filter.cloned() };
    Ok(match &input.source {
        InputSource::Interface { name, promiscuous } => {
            Box::new(InterfaceInput::open(name, *promiscuous, filter)?)
        }
        InputSource::Capture { files, in_memory: false, .. } => {
            Box::new(CaptureInput::open_files(files, selection, loops)?)
        }
        InputSource::Capture { files, in_memory: true, .. } => {
            Box::new(MemoryInput::load_files(files, selection, loops)?)
        }
        InputSource::Generate(spec) => Box::new(GeneratorInput::new((**spec).clone())?),
    })
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
    let is_capture = |input: &&InputPlan| matches!(input.source, InputSource::Capture { .. });
    let (captures, others): (Vec<_>, Vec<_>) = plan.inputs.iter().partition(is_capture);
    if captures.is_empty() {
        return Err(RunError::Times);
    }
    for input in others {
        log::warn!("--from and --to do not apply to input '{}': it is not a capture", input.name);
    }
    let is_empty = |input: &&&InputPlan| input.times.replaced_by(options.times).is_empty();
    let empty = captures.iter().find(is_empty);
    empty.map_or(Ok(()), |input| Err(RunError::NoTime(input.name.clone())))
}

fn check_filter(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if options.filter.is_none() {
        return Ok(());
    }
    let is_generated = |input: &&InputPlan| matches!(input.source, InputSource::Generate(_));
    let (generated, others): (Vec<_>, Vec<_>) = plan.inputs.iter().partition(is_generated);
    if others.is_empty() {
        return Err(RunError::Filter);
    }
    for input in generated {
        log::warn!("--filter does not apply to input '{}': it is generated traffic", input.name);
    }
    Ok(())
}

fn check_loops(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    let Some(loops) = options.loops else { return Ok(()) };
    let loops_none = |input: &&InputPlan| match &input.source {
        InputSource::Interface { .. } | InputSource::Generate(_) => true,
        InputSource::Capture { files, in_memory, .. } => {
            let is_file = |path: &Path| path.metadata().is_ok_and(|file| file.is_file());
            loops != 1 && !in_memory && !files.paths().all(is_file)
        }
    };
    let ignoring: Vec<_> = plan.inputs.iter().filter(loops_none).map(|i| &*i.name).collect();
    if ignoring.len() == plan.inputs.len() {
        return Err(RunError::Loops);
    }
    for name in ignoring {
        log::warn!("--loop does not apply to input '{name}': it is not a capture file");
    }
    Ok(())
}
