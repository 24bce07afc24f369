//! Looks for packets that find none, and the calls that they leave time for.

use std::time::{Duration, Instant};

/// Looks at an input without packets, and the calls to the kernel that they cause.
pub(crate) struct Silence {
    /// The least time between calls, each of which takes longer than many looks.
    period: Duration,
    /// Looks since the last packet, up to those that make a silence.
    looks: u32,
    /// The last call.
    called: Option<Instant>,
}

impl Silence {
    /// The looks that make a silence: before, packets are on their way.
    pub(crate) const LOOKS: u32 = 64;

    pub(crate) fn new(period: Duration) -> Self {
        Self { period, looks: 0, called: None }
    }

    /// Whether there is time to call the kernel after a look, which found no packet if it `is_vain`.
    #[inline]
    pub(crate) fn is_call_due(&mut self, is_vain: bool, now: impl FnOnce() -> Instant) -> bool {
        self.looks = if is_vain { (self.looks + 1).min(Self::LOOKS) } else { 0 };
        if self.looks < Self::LOOKS {
            return false;
        }
        let now = now();
        let is_recent = |called| now.saturating_duration_since(called) < self.period;
        let is_due = !self.called.is_some_and(is_recent);
        if is_due {
            self.called = Some(now);
        }
        is_due
    }
}
