//! What the tests of the chain use.

use std::time::{Duration, Instant};

#[path = "../../../chain/tests/common/mod.rs"]
mod of_chain;

pub use of_chain::*;

/// Waits until `done`.
///
/// # Panics
/// After 20 seconds.
#[allow(dead_code, reason = "not all tests wait")]
#[track_caller]
pub fn wait(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}
