//! A run on a thread of its own.

use std::panic;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use thalweg_chain::Plan;

use crate::control::Control;
use crate::report::Report;
use crate::runtime::{RunError, RunOptions, run_and_tell};

/// A run that goes on while its owner does something else. Dropping it stops the run, and waits for
/// its end.
///
/// ```no_run
/// # fn f(plan: thalweg_chain::Plan) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use thalweg_engine::{Engine, Reload, RunOptions};
///
/// let engine = Engine::start(plan, RunOptions::default())?;
/// let so_far = engine.control().snapshot(Duration::from_secs(1));
/// let changes = engine.control().reload(Reload::default())?;
/// engine.control().stop();
/// let report = engine.join();
/// # drop((so_far, changes, report));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Engine {
    control: Arc<Control>,
    /// `None` after its end.
    thread: Option<JoinHandle<Result<Report, RunError>>>,
}

impl Engine {
    /// Starts to send the plan's traffic through its chain, as [`run`](crate::run) does. Returns when
    /// ports are open and packets can pass.
    ///
    /// # Errors
    /// If the run could not start.
    ///
    /// # Panics
    /// If the start panics.
    pub fn start(plan: Plan, options: RunOptions) -> Result<Self, RunError> {
        let control = Arc::new(Control::default());
        let (tell, started) = mpsc::channel();
        let run = {
            let control = control.clone();
            // The other end is gone only if the start has panicked.
            move || run_and_tell(plan, &options, &control, || _ = tell.send(()))
        };
        let thread = thread::Builder::new().name("engine".into()).spawn(run);
        let thread = thread.map_err(RunError::Thread)?;
        if started.recv().is_ok() {
            return Ok(Self { control, thread: Some(thread) });
        }
        let outcome = thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause));
        Err(outcome.expect_err("a run that starts reports its start"))
    }

    /// Controls and observes the run, from any thread.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Waits for the end of the run; returns its report.
    ///
    /// # Panics
    /// If the engine itself has panicked; a panic of an NF is a failure of the report.
    pub fn join(mut self) -> Report {
        let thread = self.thread.take().expect("only `join` takes it");
        let outcome = thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause));
        outcome.expect("a run that has started has a report")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.control.stop();
            drop(thread.join());
        }
    }
}
