//! `thalweg run`: sends traffic through a chain.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use thalweg_chain::{Kinds, OutputPlan, Plan, PlanOptions};
use thalweg_engine::{Control, Report, RunError, RunOptions};
use thalweg_io::{IoError, STANDARD_OUTPUT};
use thalweg_source::{PatientWriter, SourceError, Stop};

use crate::args;
use crate::check::load;
use crate::control::{self, Claimed, Title};
use crate::errors::Failure;
use crate::observed::Observing;
use crate::progress::Shown;
use crate::report::{columns, write_json};
use crate::sandbox::{self, OwnFiles};
use crate::service::Service;
use crate::terminal::{self, Messages};
use crate::{signals, summary};

/// Runs the chain to its end and prints the report.
pub fn run(options: &args::Run, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    let plan_options = PlanOptions { strict: options.strict, ..PlanOptions::default() };
    let plan = load(&options.chain, kinds, plan_options)?;
    let workers = options.workers.map(|workers| workers.number_on(plan.cores.len()));
    let title = Title::of_chain(plan.source.path());
    let claimed = control::claim(&options.control, title, &plan)?;
    let socket = claimed.as_ref().and_then(Claimed::socket);
    // Before there are other threads.
    let own = OwnFiles {
        export: options.export_state.as_deref(),
        import: options.import_state.as_deref(),
        ..OwnFiles::of(&options.observed)
    };
    let sandbox = sandbox::enter(!options.no_sandbox, &plan, own, socket)?;
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let run_options = RunOptions {
        workers,
        duration: options.duration,
        count: options.count,
        loops: options.loops,
        times: options.selected.times(),
        filter: options.selected.filter.clone(),
        watch: options.watch,
        stages: options.stages,
        import_state: options.import_state.clone(),
        export_state: options.export_state.clone(),
        confinement: sandbox::of_run(sandbox.as_ref()),
    };
    // Packets on standard output have it for themselves.
    let is_taken = plan.outputs.iter().any(is_standard);
    let observing = Observing::start(&options.observed, &plan, &run_options, &control)?;
    let workers = run_options.workers.unwrap_or(plan.workers).max(1);
    let server =
        claimed.map(|claimed| claimed.serve(&plan, workers, control.clone())).transpose()?;
    let service = Service::start(control.clone());
    let progress = Shown::start(control.clone(), quiet);
    let outcome = execute(plan, &run_options, &control);
    service.finish(outcome.is_ok());
    drop(progress);
    drop(server);
    let mut report = outcome?;
    report.sandbox = sandbox.map(|sandbox| sandbox.report());
    observing.finish(&mut report);
    let shown = show(&report, options.json, is_taken, control.stop_request());
    conclude(&report)?;
    Ok(shown?)
}

fn is_standard(output: &OutputPlan) -> bool {
    output.files.iter().any(|path| path == Path::new(STANDARD_OUTPUT))
}

/// Sends the traffic of `plan` through its chain; returns the report.
pub fn execute(plan: Plan, options: &RunOptions, control: &Control) -> Result<Report, Failure> {
    thalweg_engine::run(plan, options, control).map_err(|e| refusal(&e))
}

/// The failure of a run or a trace that did not start.
pub fn refusal(error: &RunError) -> Failure {
    match error {
        RunError::Loops
        | RunError::Times
        | RunError::NoTime(_)
        | RunError::Filter
        | RunError::Cores { .. } => Failure::Usage(error.to_string()),
        RunError::Io(IoError::Option(mistake)) => Failure::Port(SourceError::clone(mistake)),
        other => Failure::Run(other.to_string()),
    }
}

/// Logs the warnings and failures of a report; an error if the run has failed.
pub fn conclude(report: &Report) -> Result<(), Failure> {
    for warning in &report.warnings {
        log::warn!("{warning}");
    }
    if !report.failed() {
        return Ok(());
    }
    for failure in &report.failures {
        log::error!("{failure}");
    }
    Err(Failure::Told)
}

/// Prints the report, on standard error if standard output `is_taken`. A request to end the run
/// also ends the wait for a stalled reader.
fn show(report: &Report, json: bool, is_taken: bool, stop: Stop) -> io::Result<()> {
    let mut text = Vec::new();
    let columns = if is_taken { terminal::columns(&io::stderr()) } else { columns() };
    if json {
        write_json(&mut text, report)?;
    } else {
        summary::show(&mut text, report, columns)?;
    }
    if is_taken {
        return Messages.write_all(&text);
    }
    PatientWriter::stdout(stop)?.write_all(&text)
}
