//! What each worker of a run has done: counts that it publishes, and others read at any time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use thalweg_cpu::cores;

/// The bursts between two looks at the core.
const CORE_PERIOD: u64 = 64;
/// The core of a worker that has not looked yet.
const UNKNOWN: u32 = u32::MAX;

/// The counts of one worker, which alone writes them; in cache lines of their own (processors fetch
/// them in pairs), so that no other worker waits for them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Published {
    busy_cycles: AtomicU64,
    bursts: AtomicU64,
    packets: AtomicU64,
    taken_over: AtomicU64,
    waits: AtomicU64,
    core: AtomicU32,
}

/// The counts of one worker at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCounts {
    /// Cycles in which it had something to do.
    pub(crate) busy_cycles: u64,
    /// Bursts that it received.
    pub(crate) bursts: u64,
    /// The packets in them.
    pub(crate) packets: u64,
    /// Times that it took a burst further that another worker had received.
    pub(crate) taken_over: u64,
    /// Times that a burst which it took through the chain had to wait for its turn.
    pub(crate) waits: u64,
    /// The core that it was on; `None` if that is unknown.
    pub(crate) core: Option<u32>,
}

/// Adds to a count that no other thread writes meanwhile.
#[inline]
pub(crate) fn add_alone(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Published {
    /// No packets yet.
    pub(crate) fn new() -> Self {
        Self {
            busy_cycles: AtomicU64::new(0),
            bursts: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            core: AtomicU32::new(UNKNOWN),
        }
    }

    /// Counts a burst of `packets` packets that the worker has received.
    #[inline]
    pub(crate) fn received(&self, packets: u64) {
        if self.bursts.load(Relaxed).is_multiple_of(CORE_PERIOD) {
            self.core.store(cores::current().unwrap_or(UNKNOWN), Relaxed);
        }
        add_alone(&self.bursts, 1);
        add_alone(&self.packets, packets);
    }

    /// Counts cycles in which the worker had something to do.
    #[inline]
    pub(crate) fn worked(&self, cycles: u64) {
        add_alone(&self.busy_cycles, cycles);
    }

    /// Counts that the worker took a burst of another one further.
    #[inline]
    pub(crate) fn took_over(&self) {
        add_alone(&self.taken_over, 1);
    }

    /// Counts that a burst has to wait for its turn.
    #[inline]
    pub(crate) fn waits(&self) {
        add_alone(&self.waits, 1);
    }

    /// The counts at this moment.
    pub(crate) fn now(&self) -> WorkerCounts {
        let core = self.core.load(Relaxed);
        WorkerCounts {
            busy_cycles: self.busy_cycles.load(Relaxed),
            bursts: self.bursts.load(Relaxed),
            packets: self.packets.load(Relaxed),
            taken_over: self.taken_over.load(Relaxed),
            waits: self.waits.load(Relaxed),
            core: (core != UNKNOWN).then_some(core),
        }
    }
}
