//! The progress line of many simulations.

use std::time::Instant;

use crate::terminal::Line;
use crate::units::wait;

/// Shows progress on standard error, when that is a terminal.
pub(super) struct Progress {
    start: Instant,
    line: Option<Line>,
}

impl Progress {
    pub(super) fn start(quiet: bool) -> Self {
        Self { start: Instant::now(), line: Line::start(quiet) }
    }

    /// Shows that `done` of `all` simulations are done.
    pub(super) fn show(&self, done: usize, all: usize) {
        let Some(line) = &self.line else { return };
        let left = self.start.elapsed().mul_f64((all - done) as f64 / done.max(1) as f64);
        line.draw(&[format!("{done} of {all} simulated"), format!("about {} left", wait(left))]);
    }
}
