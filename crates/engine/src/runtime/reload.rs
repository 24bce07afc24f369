//! Reads rules and tables again, while packets pass.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use thalweg_chain::Plan;
use thalweg_source::{count, counted};

use crate::control::Control;

/// The most mistakes of a reload that are reported one by one; the rest are counted.
const SHOWN: usize = 20;

/// Reloads on their own thread, one at a time: the packet path does not wait for files. Workers
/// use the published rules and tables from their next batch on.
pub(super) struct Reloads {
    plan: Arc<Plan>,
    running: Option<JoinHandle<Vec<String>>>,
    warnings: Vec<String>,
}

impl Reloads {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, running: None, warnings: Vec::new() }
    }

    /// Starts a reload if one is requested and none is under way.
    pub(super) fn poll(&mut self, control: &Control) {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join();
        }
        if self.running.is_none() && control.take_reload() {
            let plan = self.plan.clone();
            match thread::Builder::new().name("reload".into()).spawn(move || reload(&plan)) {
                Ok(handle) => self.running = Some(handle),
                Err(e) => self.warnings.push(format!("cannot start the reload thread: {e}")),
            }
        }
    }

    /// Waits for the reload under way; returns the warnings of all reloads.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.join();
        self.warnings
    }

    fn join(&mut self) {
        match self.running.take().map(JoinHandle::join) {
            Some(Ok(mistakes)) => self.warnings.extend(mistakes),
            Some(Err(_)) => self
                .warnings
                .push("the reload thread panicked; all that it did not reach stays in use".into()),
            None => {}
        }
    }
}
fn reload(plan: &Plan) -> Vec<String> {
    match plan.reload() {
        Ok(()) => {
            log::info!("reloaded rules and tables");
            Vec::new()
        }
        Err(mistakes) => {
            let mut told: Vec<_> = mistakes.iter().take(SHOWN).map(ToString::to_string).collect();
            let more = count(&mistakes) - told.len() as u64;
            if more > 0 {
                told.push(counted(more, "more mistake"));
            }
            told.iter().for_each(|mistake| log::error!("reload: {mistake}"));
            told.iter().map(|mistake| format!("not reloaded: {mistake}")).collect()
        }
    }
}
