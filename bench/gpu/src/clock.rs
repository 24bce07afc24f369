//! The processor time of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The clock of this thread's processor time: it stands while others have the processor.
pub(crate) struct Clock {
    reading: Duration,
}

impl Clock {
    /// Measures how long it takes to read the clock.
    pub(crate) fn new() -> Self {
        const READINGS: u32 = 20_000;
        let mut clock = Self { reading: Duration::ZERO };
        let before = clock.now();
        for _ in 0..READINGS {
            std::hint::black_box(clock.now());
        }
        clock.reading = clock.now().saturating_sub(before) / READINGS;
        clock
    }

    /// The processor time so far.
    #[allow(clippy::unused_self, reason = "one that has measured itself")]
    pub(crate) fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// The time of one reading.
    pub(crate) fn reading(&self) -> Duration {
        self.reading
    }
}
