//! Processor time, of this thread and of others.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What was measured: how many packets went through, and in what time.
pub(crate) struct Rate {
    pub(crate) packets: u64,
    pub(crate) seconds: f64,
    /// Processor time of the function, in seconds: of threads that are the device, if it is a processor.
    pub(crate) cpu_seconds: f64,
}

/// The clocks when a measurement began.
pub(crate) struct Clock {
    began: Instant,
    process: Duration,
    thread: Duration,
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor time of this thread so far. It stands while others have the processor.
pub(crate) fn thread_time() -> Duration {
    now(ClockId::ThreadCPUTime)
}

/// How long it takes to read that time.
pub(crate) fn reading() -> Duration {
    const READINGS: u32 = 20_000;
    let before = thread_time();
    for _ in 0..READINGS {
        std::hint::black_box(thread_time());
    }
    thread_time().saturating_sub(before) / READINGS
}

impl Clock {
    pub(crate) fn start() -> Self {
        let (process, thread) = (now(ClockId::ProcessCPUTime), thread_time());
        Self { began: Instant::now(), process, thread }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Ends a measurement of a device, which is other threads than this one.
    pub(crate) fn of_others(&self, packets: u64) -> Rate {
        let seconds = self.seconds();
        let process = now(ClockId::ProcessCPUTime).saturating_sub(self.process);
        let others = process.saturating_sub(thread_time().saturating_sub(self.thread));
        Rate { packets, seconds, cpu_seconds: others.as_secs_f64() }
    }

    /// Ends a measurement of this thread.
    pub(crate) fn of_this(&self, packets: u64) -> Rate {
        let seconds = self.seconds();
        let this = thread_time().saturating_sub(self.thread);
        Rate { packets, seconds, cpu_seconds: this.as_secs_f64() }
    }
}
