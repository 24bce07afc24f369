//! Opens the inputs of a plan, and checks the options of a run against them.

use std::path::Path;

use thalweg_chain::{InputPlan, InputSource, Plan};
use thalweg_io::generate::GeneratorInput;
use thalweg_io::{CaptureInput, Input, InterfaceInput, MemoryInput, Selection, TimeRange};

use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;

/// Opens the inputs of a plan, in its order.
pub(crate) fn open_inputs(
    plan: &Plan,
    options: &RunOptions,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let open = |input: &InputPlan| -> Result<Box<dyn Input>, RunError> {
        let loops = options.loops.unwrap_or(input.loops);
        let times = input.times.replaced_by(options.times);
        let selection = Selection { times };
        Ok(match &input.source {
            InputSource::Interface { name, promiscuous } => {
                Box::new(InterfaceInput::open(name, *promiscuous)?)
            }
            InputSource::Capture { files, in_memory: false, .. } => {
                Box::new(CaptureInput::open_files(files, selection, loops)?)
            }
            InputSource::Capture { files, in_memory: true, .. } => {
                Box::new(MemoryInput::load_files(files, selection, loops)?)
            }
            InputSource::Generate(spec) => Box::new(GeneratorInput::new((**spec).clone())?),
        })
    };
    plan.inputs.iter().map(open).collect()
}

/// Refuses options that apply to no input, and warns of inputs to which they do not.
pub(crate) fn check_options(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    check_loops(plan, options)?;
    check_times(plan, options)
}

fn check_times(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    if options.times == TimeRange::default() {
        return Ok(());
    }
    let has_times = |input: &&InputPlan| matches!(input.source, InputSource::Capture { .. });
    if !plan.inputs.iter().any(|input| has_times(&input)) {
        return Err(RunError::Times);
    }
    for input in &plan.inputs {
        if !has_times(&input) {
            log::warn!(
                "--from and --to do not apply to input '{}': it is not a capture",
                input.name
            );
        } else if input.times.replaced_by(options.times).is_empty() {
            return Err(RunError::NoTime(input.name.clone()));
        }
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
