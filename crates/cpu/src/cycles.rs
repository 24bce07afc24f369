//! The processor's time stamp counter.
//!
//! `unsafe` here: reading the counter is an intrinsic.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// The counter now; it runs at a constant rate on processors of this century.
/// Where there is none, nanoseconds since the first call.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has RDTSC, and Linux leaves it enabled.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// How fast the counter runs, measured against the system's clock over a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    began: Instant,
}

impl Clock {
    /// Starts the measurement.
    pub fn start() -> Self {
        Self { start: now(), began: Instant::now() }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Nanoseconds a count, over the time since the start (at least 2 ms, so
    /// that a short run is measured well enough).
    pub fn nanoseconds_per_cycle(&self) -> f64 {
        const LEAST: Duration = Duration::from_millis(2);
        if let Some(rest) = LEAST.checked_sub(self.elapsed()) {
            std::thread::sleep(rest);
        }
        let cycles = now().wrapping_sub(self.start).max(1);
        self.elapsed().as_nanos() as f64 / cycles as f64
    }
}
