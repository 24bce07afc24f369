//! Values that bursts use one after the other, in the order of their numbers.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::thread;

use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, MutexGuard};

/// The model checker runs every order of the steps of several threads.
#[cfg(loom)]
use loom::sync;
#[cfg(not(loom))]
use std::sync;

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

    /// The value, when no burst is under way.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(all(loom, test))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two workers take three bursts through two stages; returns what each stage saw. `enter` takes
    /// a burst into a stage, or lets it wait.
    fn run(enter: fn(&InTurn<Vec<u64>>, u64) -> bool) -> [Vec<u64>; 2] {
        const BURSTS: u64 = 3;
        let stages = Arc::new([InTurn::new(Vec::new()), InTurn::new(Vec::new())]);
        let received = Arc::new(AtomicU64::new(0));
        let work = {
            let (stages, received) = (stages.clone(), received.clone());
            move || loop {
                let number = received.fetch_add(1, Ordering::Relaxed);
                if number >= BURSTS {
                    return;
                }
                for stage in &*stages {
                    while !enter(stage, number) {
                        thread::yield_now();
                    }
                }
            }
        };
        let other = thread::spawn(work.clone());
        work();
        other.join().unwrap();
        let seen = |stage: &InTurn<Vec<u64>>| stage.peek().unwrap().clone();
        [seen(&stages[0]), seen(&stages[1])]
    }

    fn check(enter: fn(&InTurn<Vec<u64>>, u64) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || assert_eq!(run(enter), [[0, 1, 2], [0, 1, 2]]));
    }

    #[test]
    fn each_stage_sees_all_bursts_in_order() {
        check(|stage, number| {
            let turn = stage.enter(number);
            turn.map(|mut turn| turn.push(number)).is_some()
        });
    }

    /// Without its guard the model fails.
    #[test]
    #[should_panic(expected = "assertion `left == right` failed")]
    fn without_turns_stages_see_bursts_in_other_orders() {
        check(|stage, number| {
            let mut value = stage.value.lock().unwrap();
            value.push(number);
            true
        });
    }
}
