//! Traces of packets of a run under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use super::{Observers, Pattern};
use crate::trace::Trace;

/// The most traces of a request that are under way or wait to be read.
const MOST_OPEN: usize = 64;

/// What the packet path and the reader share.
#[derive(Debug, Default)]
struct Counts {
    /// Traces that are under way or wait to be read.
    open: AtomicUsize,
    passed_over: AtomicU64,
}

/// A request for traces, as the packet path sees it.
#[derive(Debug)]
pub(crate) struct TraceWatch {
    pub(super) pattern: Pattern,
    /// Packets still to be traced.
    left: AtomicUsize,
    counts: Arc<Counts>,
    traces: SyncSender<Trace>,
}

impl TraceWatch {
    /// A request for the trace of the next packet, whichever it is.
    pub(crate) fn of_next() -> (Self, Traces) {
        watch(Pattern::any(), 1, Arc::default())
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Whether a packet that matches is traced; one that the reader has no room for is counted. One
    /// thread at a time calls this: the one in the classification.
    pub(super) fn take(&self) -> bool {
        if self.counts.open.load(Relaxed) >= MOST_OPEN {
            self.counts.passed_over.fetch_add(1, Relaxed);
            return false;
        }
        self.left.fetch_sub(1, Relaxed);
        self.counts.open.fetch_add(1, Relaxed);
        true
    }

    /// Passes a trace on. There is room for it, unless its reader has gone.
    pub(super) fn finish(&self, trace: Trace) {
        let _ = self.traces.try_send(trace);
    }
}

/// A request for the traces of `count` packets, and the end where they are read.
pub(super) fn watch(
    pattern: Pattern,
    count: usize,
    observers: Arc<Observers>,
) -> (TraceWatch, Traces) {
    let (send, receive) = sync_channel(MOST_OPEN);
    let counts = Arc::<Counts>::default();
    let watch =
        TraceWatch { pattern, left: AtomicUsize::new(count), counts: counts.clone(), traces: send };
    (watch, Traces { traces: receive, left: count, counts, observers })
}

/// The traces that [`Control::traces`](crate::Control::traces) has requested, in the order of their
/// packets. Dropping it ends the request.
#[derive(Debug)]
pub struct Traces {
    traces: Receiver<Trace>,
    /// Those still to be read.
    left: usize,
    counts: Arc<Counts>,
    observers: Arc<Observers>,
}

impl Traces {
    /// The most packets of a request.
    pub const MOST: usize = 1000;

    /// The next trace, if it is there.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if it is not there yet; [`TryRecvError::Disconnected`] if there will be
    /// none, because all requested ones were returned or the run has ended.
    pub fn try_next(&mut self) -> Result<Trace, TryRecvError> {
        if self.left == 0 {
            return Err(TryRecvError::Disconnected);
        }
        self.traces.try_recv().inspect(|_| self.count())
    }

    /// Waits for the next trace; `None` if there is none within `patience`, or will be none.
    pub fn next(&mut self, patience: Duration) -> Option<Trace> {
        if self.left == 0 {
            return None;
        }
        self.traces.recv_timeout(patience).inspect(|_| self.count()).ok()
    }

    /// Packets that matched and were not traced, because traces before them waited to be read.
    pub fn passed_over(&self) -> u64 {
        self.counts.passed_over.load(Relaxed)
    }

    fn count(&mut self) {
        self.left -= 1;
        self.counts.open.fetch_sub(1, Relaxed);
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.observers.retain(|watch| !Arc::ptr_eq(&watch.counts, &self.counts), |_| true);
    }
}
