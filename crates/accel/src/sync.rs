//! Atomics: the standard ones, or those of the model checker, which runs every order of the steps of
//! several threads.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
