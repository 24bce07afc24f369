//! The processor time that a thread takes from the start of one batch to that of the next.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::counters::Latencies;
use crate::report::BatchReport;

/// The time that this thread has used its processor: unlike time by the clock, it does not pass
/// while the system runs another thread.
pub(crate) fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `time` in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor times of the batches of one thread.
pub(crate) struct BatchTimes {
    times: Latencies,
    last: Duration,
}

impl BatchTimes {
    pub(crate) fn new() -> Self {
        Self { times: Latencies::new(), last: Duration::ZERO }
    }

    /// Begins with the first batch of a generation, on the thread that takes it.
    pub(crate) fn begin(&mut self) {
        self.last = used();
    }

    /// Ends a batch and begins the next; one without packets is not recorded.
    pub(crate) fn next(&mut self, has_packets: bool) {
        let now = used();
        if has_packets {
            self.times.record(nanoseconds(now.saturating_sub(self.last)), 1);
        }
        self.last = now;
    }

    /// `None` without batches.
    pub(crate) fn report(&self) -> Option<BatchReport> {
        (!self.times.histogram().is_empty()).then(|| BatchReport::of(&self.times))
    }
}
