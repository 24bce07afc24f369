//! How long a test waits for a process, without the time in which it could not go on: because either of them
//! was stopped, as a shared machine may do while it measures something, or because the kernel gave a thread of
//! the process no processor.
//!
//! The latter is no theory: Linux 6.18.44 with autogroups keeps threads that could run from a processor for up to
//! 22 seconds and more while several sessions compute (`bench/starvation.py`).

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time between looks that counts at most: after a longer one, the test itself was stopped.
const STEP: Duration = Duration::from_millis(100);
/// The time that counts or does not, as a whole.
const WINDOW: Duration = Duration::from_millis(300);

/// A wait for processes, which is looked at again and again.
pub struct Waited {
    last: Instant,
    time: Duration,
    /// Not decided yet.
    window: Duration,
    /// The threads that could run when the window began, and how long they had.
    runnable: HashMap<PathBuf, u64>,
}

impl Waited {
    pub fn new() -> Self {
        let (time, window) = (Duration::ZERO, Duration::ZERO);
        Self { last: Instant::now(), time, window, runnable: HashMap::new() }
    }

    /// How long the wait has lasted while each of `processes` could go on.
    pub fn for_any(&mut self, processes: &[u32]) -> Duration {
        let now = Instant::now();
        self.window += (now - self.last).min(STEP);
        self.last = now;
        if self.window >= WINDOW {
            let threads: Vec<_> = processes.iter().flat_map(|process| threads(*process)).collect();
            let is_kept = |(place, state, ran): &(PathBuf, char, u64)| match state {
                'T' | 't' => true,
                'R' => self.runnable.get(place) == Some(ran),
                _ => false,
            };
            if !threads.iter().any(is_kept) {
                self.time += self.window;
            }
            self.window = Duration::ZERO;
            let runnable = threads.into_iter().filter(|(_, state, _)| *state == 'R');
            self.runnable = runnable.map(|(place, _, ran)| (place, ran)).collect();
        }
        self.time
    }
}

/// The threads of processes in lines, for people: name, state, nanoseconds of run and wait, what each waits for.
pub fn shown(process: u32) -> String {
    let show = |(place, state, _): (PathBuf, char, u64)| {
        let read = |name| fs::read_to_string(place.join(name)).unwrap_or_default();
        let texts = ["comm", "schedstat", "wchan"].map(|name| read(name).trim().to_owned());
        format!("{} {state} {}\n", place.display(), texts.join(" "))
    };
    threads(process).into_iter().map(show).collect()
}

/// The threads of a process: where the kernel shows each, its state, and for how long it has run, in
/// nanoseconds. Nothing of those that end meanwhile.
fn threads(process: u32) -> Vec<(PathBuf, char, u64)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let read = |thread: fs::DirEntry| {
        let place = thread.path();
        let stat = fs::read_to_string(place.join("stat")).ok()?;
        let state = stat.rsplit(") ").next()?.chars().next()?;
        let times = fs::read_to_string(place.join("schedstat")).ok()?;
        Some((place, state, times.split(' ').next()?.parse().ok()?))
    };
    threads.filter_map(read).collect()
}
