//! The progress line of many simulations.

use std::io::IsTerminal;
use std::time::Instant;

/// Shows progress on standard error, when that is a terminal.
pub(super) struct Progress {
    start: Instant,
    shown: bool,
}

impl Progress {
    pub(super) fn start(quiet: bool) -> Self {
        Self { start: Instant::now(), shown: !quiet && std::io::stderr().is_terminal() }
    }

    /// Shows that `done` of `all` simulations are done.
    pub(super) fn show(&self, done: usize, all: usize) {
        if !self.shown {
            return;
        }
        let left = self.start.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
        let end = if done == all { "\n" } else { "" };
        eprint!("\r\x1b[K{done} of {all} simulated, about {left:.0} s left{end}");
    }
}
