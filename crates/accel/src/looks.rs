//! The time that a repeated look at something has lasted.

use std::time::{Duration, Instant};

/// How long a device was looked at. A process that was stopped, or had no processor for long, did not look
/// meanwhile, and a device that is made of its threads, or of others on the same processors, did not move on
/// either: such a gap counts only as a part of the time that is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    last: Instant,
    seen: Duration,
}

impl Looks {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self { last: Instant::now(), seen: Duration::ZERO }
    }

    /// Looks again; returns how long it has looked, in pieces of at most a quarter of the `allowed` time.
    pub(crate) fn again(&mut self, allowed: Duration) -> Duration {
        let now = Instant::now();
        self.seen += (now - self.last).min(allowed / 4);
        self.last = now;
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_gap_between_looks_counts_as_a_quarter() {
        let allowed = Duration::from_millis(40);
        let mut looks = Looks::new();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(looks.again(allowed), Duration::from_millis(10));
        assert!(looks.again(allowed) < allowed);
        while looks.again(allowed) < allowed {}
    }
}
