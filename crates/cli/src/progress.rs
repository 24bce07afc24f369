//! The progress of a run: a line on the terminal, or messages now and then.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_engine::{Control, Progress};

use crate::terminal::Line;
use crate::units::{rate, wait};

/// Between two versions of the line.
const PERIOD: Duration = Duration::from_millis(250);
/// Between two messages, where standard error is not a terminal.
const MESSAGES: Duration = Duration::from_secs(10);
/// The part of the work that must be done before the rest is estimated.
const ENOUGH: f64 = 0.01;

/// Shows the progress of a run until it is dropped.
pub struct Shown(Option<(Sender<()>, JoinHandle<()>)>);

impl Shown {
    /// Starts to show the progress, unless `quiet`: as a line if standard error is a terminal, else
    /// as messages if they are logged.
    pub fn start(control: Arc<Control>, quiet: bool) -> Self {
        let line = Line::start(quiet);
        if line.is_none() && (quiet || !log::log_enabled!(log::Level::Info)) {
            return Self(None);
        }
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let period = if line.is_some() { PERIOD } else { MESSAGES };
            let start = Instant::now();
            let mut before = (start, 0);
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                let progress = control.progress();
                let packets = progress.packets_in.saturating_sub(before.1);
                let pps = packets as f64 / (now - before.0).as_secs_f64();
                before = (now, progress.packets_in);
                let parts = parts(&progress, pps, start.elapsed());
                match &line {
                    Some(line) => line.draw(&parts),
                    None => log::info!("{}", parts.join(", ")),
                }
            }
        });
        Self(Some((stop, thread)))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// The progress after a time, in words, the most important first.
pub fn parts(progress: &Progress, pps: f64, elapsed: Duration) -> Vec<String> {
    let mut parts = vec![wait(elapsed)];
    if let Some(share) = progress.share {
        // Less than all, as long as the run goes on.
        parts.push(format!("{:.0} %", (100.0 * share).floor().min(99.0)));
        if share >= ENOUGH {
            parts.push(format!("{} left", wait(elapsed.mul_f64((1.0 - share).max(0.0) / share))));
        }
    }
    parts.push(rate(pps, "pps"));
    parts.push(format!("{} in", progress.packets_in));
    parts.push(format!("{} out", progress.packets_out));
    parts.push(format!("{} dropped", progress.drops));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_percent_and_remaining_time_where_they_are_known() {
        let text = |share| {
            let progress = Progress {
                packets_in: 500,
                packets_out: 400,
                drops: 90,
                share,
                ..Progress::default()
            };
            parts(&progress, 12.0, Duration::from_secs(30)).join(", ")
        };
        assert_eq!(text(None), "30 s, 12.0 pps, 500 in, 400 out, 90 dropped");
        let told = "30 s, 20 %, 2 min 0 s left, 12.0 pps, 500 in, 400 out, 90 dropped";
        assert_eq!(text(Some(0.2)), told);
        assert!(text(Some(0.001)).starts_with("30 s, 0 %, 12.0 pps"));
        assert!(text(Some(1.0)).starts_with("30 s, 99 %, 0 s left"));
    }
}
