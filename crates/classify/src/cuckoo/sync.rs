//! The atomics of the table: those of the standard library, or those of the model
//! checker.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Lets another thread go on, while a writer is at work.
#[inline]
pub(super) fn wait() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
