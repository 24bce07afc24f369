//! Counts the work of the inspection, in steps of some ten cycles: what time measures, but the same
//! on each machine. Only tests and fuzz targets count it.

#[cfg(any(test, fuzzing))]
use std::cell::Cell;

/// A place that passed a filter.
pub(crate) const PLACE: u64 = 1;
/// A literal compared.
pub(crate) const COMPARISON: u64 = 2;
/// A content searched for to verify a rule.
pub(crate) const SEARCH: u64 = 4;
/// A regular expression matched.
pub(crate) const REGEX: u64 = 16;

#[cfg(any(test, fuzzing))]
thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts steps.
#[inline]
pub(crate) fn add(steps: u64) {
    #[cfg(any(test, fuzzing))]
    STEPS.with(|done| done.set(done.get() + steps));
    #[cfg(not(any(test, fuzzing)))]
    let _ = steps;
}

/// The steps of this thread since the last call.
#[cfg(any(test, fuzzing))]
pub fn take() -> u64 {
    STEPS.with(Cell::take)
}

/// The most steps for a packet whose payload has `bytes` bytes, with the rules in `tests/dear.rules`.
#[cfg(any(test, fuzzing))]
pub const fn most(bytes: usize) -> u64 {
    128 + 3 * bytes as u64
}
