//! `thalweg run`: sends traffic through a chain.

use std::io::{self, Write};
use std::sync::Arc;

use thalweg_chain::PlanOptions;
use thalweg_engine::{Control, Report, RunError, RunOptions};
use thalweg_nf::Kinds;
use thalweg_source::{PatientWriter, Stop};

use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::progress::Shown;
use crate::report::{columns, write_json};
use crate::signals;
use crate::summary;

/// Runs the chain to its end and prints the report.
pub fn run(options: &args::Run, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    let plan_options = PlanOptions { strict: options.strict, ..PlanOptions::default() };
    let plan = load(&options.chain, kinds, plan_options)?;
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let run_options = RunOptions {
        workers: options.workers.map(usize::from),
        duration: options.duration,
        count: options.count,
        loops: options.loops,
        times: options.selected.times(),
        filter: options.selected.filter.clone(),
        stages: false,
        import_state: options.import_state.clone(),
        export_state: options.export_state.clone(),
    };
    let progress = Shown::start(control.clone(), quiet);
    let outcome = thalweg_engine::run(plan, &run_options, &control);
    drop(progress);
    let report = outcome.map_err(|e| refusal(&e))?;

    let shown = show(&report, options.json, control.stop_request());
    for warning in &report.warnings {
        log::warn!("{warning}");
    }
    if report.failed() {
        for failure in &report.failures {
            log::error!("{failure}");
        }
        return Err(Failure::Told);
    }
    Ok(shown?)
}

/// The failure of a run or a trace that did not start.
pub fn refusal(error: &RunError) -> Failure {
    match error {
        RunError::Loops | RunError::Times | RunError::NoTime(_) | RunError::Filter => {
            Failure::Usage(error.to_string())
        }
        other => Failure::Run(other.to_string()),
    }
}

/// Prints the report. A request to end the run also ends the wait for a stalled reader.
fn show(report: &Report, json: bool, stop: Stop) -> io::Result<()> {
    let mut text = Vec::new();
    if json {
        write_json(&mut text, report)?;
    } else {
        summary::show(&mut text, report, columns())?;
    }
    PatientWriter::stdout(stop)?.write_all(&text)
}
