//! The request to end a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A request to end, which threads that wait for a file observe. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Requests the end.
    pub fn request(&self) {
        self.requested.store(true, Relaxed);
    }

    /// Whether the end was requested, or its time has come.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The same request, which is made after `duration` too, if one is given.
    #[must_use]
    pub fn after(&self, duration: Option<Duration>) -> Self {
        let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        Self { requested: self.requested.clone(), deadline: deadline.or(self.deadline) }
    }
}
