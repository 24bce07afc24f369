//! The progress line of a run.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_chain::Control;

const PERIOD: Duration = Duration::from_millis(250);

/// A line on standard error that shows the progress of a run, when that is a terminal.
/// Dropping it clears the line.
pub struct ProgressLine(Option<(Sender<()>, JoinHandle<()>)>);

impl ProgressLine {
    /// Starts the line, unless `quiet`, or unless standard error is not a terminal.
    pub fn start(control: Arc<Control>, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut before = (start, 0);
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let p = control.progress();
                let now = Instant::now();
                let rate = (p.packets_in - before.1) as f64 / (now - before.0).as_secs_f64();
                before = (now, p.packets_in);
                let seconds = start.elapsed().as_secs();
                eprint!(
                    "\r\x1b[K{seconds} s: {} in, {} out, {} dropped, {:.2} Mpps",
                    p.packets_in,
                    p.packets_out,
                    p.drops,
                    rate / 1e6
                );
                let _ = io::stderr().flush();
            }
            eprint!("\r\x1b[K");
        });
        Self(Some((stop, thread)))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
