//! Requests from other threads, which the packet path takes between two bursts.

use std::collections::VecDeque;
use std::sync::PoisonError;

use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, MutexGuard};

/// The model checker runs every order of the steps of several threads.
#[cfg(loom)]
use loom::sync;
#[cfg(not(loom))]
use std::sync;

/// A queue of requests. As long as it is empty, a look into it is one relaxed load.
pub(crate) struct Mailbox<T> {
    /// Whether there are requests.
    waits: AtomicBool,
    letters: Mutex<Letters<T>>,
}

struct Letters<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

/// Why a mailbox refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not want this one with those that wait already.
    Unwanted,
    /// It is closed.
    Closed,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let letters = Letters { waiting: VecDeque::new(), is_closed: false };
        Self { waits: AtomicBool::new(false), letters: Mutex::new(letters) }
    }
}

impl<T> std::fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl<T> Mailbox<T> {
    /// Adds a request if it is `wanted` with those that wait already.
    pub(crate) fn put(
        &self,
        request: T,
        wanted: impl FnOnce(&VecDeque<T>) -> bool,
    ) -> Result<(), Refusal> {
        let mut letters = self.letters();
        if letters.is_closed {
            return Err(Refusal::Closed);
        }
        if !wanted(&letters.waiting) {
            return Err(Refusal::Unwanted);
        }
        letters.waiting.push_back(request);
        // Under the lock: one who clears it has seen this request.
        self.waits.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there are requests.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Takes the request that waits longest.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        if !self.waits.load(Ordering::Relaxed) {
            return None;
        }
        let mut letters = self.letters();
        let first = letters.waiting.pop_front();
        self.waits.store(!letters.waiting.is_empty(), Ordering::Relaxed);
        first
    }

    /// Takes all requests.
    #[inline]
    pub(crate) fn take_all(&self) -> Vec<T> {
        if !self.waits.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut letters = self.letters();
        self.waits.store(false, Ordering::Relaxed);
        letters.waiting.drain(..).collect()
    }

    /// Drops all requests, and accepts none any more.
    pub(crate) fn close(&self) {
        let mut letters = self.letters();
        letters.is_closed = true;
        letters.waiting.clear();
    }

    fn letters(&self) -> MutexGuard<'_, Letters<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(loom, test))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two threads make a request each, while the packet path looks twice; it looks again when both
    /// are done. Returns what it took.
    fn run(put: fn(&Mailbox<u64>, u64)) -> Vec<u64> {
        let mailbox = Arc::new(Mailbox::default());
        let askers = [1, 2].map(|request| {
            let mailbox = mailbox.clone();
            thread::spawn(move || put(&mailbox, request))
        });
        let mut taken: Vec<u64> = mailbox.take().into_iter().collect();
        taken.extend(mailbox.take_all());
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        taken.extend(mailbox.take());
        taken.extend(mailbox.take_all());
        taken.sort_unstable();
        taken
    }

    fn check(put: fn(&Mailbox<u64>, u64)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || assert_eq!(run(put), [1, 2]));
    }

    #[test]
    fn every_request_is_taken_once() {
        check(|mailbox, request| mailbox.put(request, |_| true).unwrap());
    }

    /// A request that is announced before it is there may wait for ever.
    #[test]
    #[should_panic(expected = "assertion `left == right` failed")]
    fn announced_too_early_a_request_is_lost() {
        check(|mailbox, request| {
            mailbox.waits.store(true, Ordering::Relaxed);
            mailbox.letters().waiting.push_back(request);
        });
    }
}
