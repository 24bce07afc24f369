//! Values that bursts use one after the other, in the order of their numbers.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// A value that each burst uses once: burst 0 first, then burst 1, and so on, whichever thread they
/// are on.
///
/// A burst asks for its turn and, if it has not come yet, does something else and asks again: no
/// thread waits inside. The oldest burst under way can always use the next value on its way, so
/// some burst always gets on.
#[derive(Debug)]
pub(crate) struct InTurn<T> {
    /// The number of the burst whose turn it is.
    next: AtomicU64,
    // Its lock is always free for the burst whose turn it is, save for a short look by others.
    value: Mutex<T>,
}

/// The use of a value by the burst whose turn it is. Dropping it gives the turn to the next burst,
/// unless the thread panics: what a panic left behind is for no other burst.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    next: &'a AtomicU64,
    value: MutexGuard<'a, T>,
}

impl<T> InTurn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { next: AtomicU64::new(0), value: Mutex::new(value) }
    }

    /// The value, if it is the turn of burst `number`.
    #[inline]
    pub(crate) fn enter(&self, number: u64) -> Option<Turn<'_, T>> {
        if self.next() != number {
            return None;
        }
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Turn { next: &self.next, value })
    }

    /// The number of the burst whose turn it is.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// A look at the value between turns, or behind a panic, if no burst uses it at this moment.
    pub(crate) fn peek(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, when all bursts are through.
    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.next.fetch_add(1, Ordering::Release);
        }
    }
}
