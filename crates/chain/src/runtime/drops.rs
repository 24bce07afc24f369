//! Publishes counts of dropped packets, for the progress of a run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of a growing count that is published.
#[derive(Default)]
pub(super) struct Published(u64);

impl Published {
    /// Adds to `sum` what `total` has grown by since the last call.
    #[inline]
    pub(super) fn publish(&mut self, total: u64, sum: &AtomicU64) {
        sum.fetch_add(total - self.0, Relaxed);
        self.0 = total;
    }
}
