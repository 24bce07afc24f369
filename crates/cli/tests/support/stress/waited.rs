//! How long a test waits for a process, without the time in which either of them is stopped, as a shared
//! machine may do while it measures something.

use std::fs;
use std::time::{Duration, Instant};

/// The time between looks that counts at most: after a longer one, the test itself was stopped.
const STEP: Duration = Duration::from_millis(100);

/// A wait for processes, which is looked at again and again.
pub struct Waited {
    last: Instant,
    time: Duration,
}

impl Waited {
    pub fn new() -> Self {
        Self { last: Instant::now(), time: Duration::ZERO }
    }

    /// How long the wait has lasted while none of `processes` was stopped.
    pub fn for_any(&mut self, processes: &[u32]) -> Duration {
        let now = Instant::now();
        let step = (now - self.last).min(STEP);
        self.last = now;
        // A short wait needs no look at the processes.
        if self.time < Duration::from_secs(2)
            || !processes.iter().any(|process| is_stopped(*process))
        {
            self.time += step;
        }
        self.time
    }
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('T' | 't'))
}
