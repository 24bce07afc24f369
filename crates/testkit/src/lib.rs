//! What the tests of several crates share: the folder of real data, the peer programs that our
//! results are held against, and a drive that sends packets through one network function.
//!
//! Only tests use this crate.

mod data;
mod drive;
pub mod fragments;
pub mod moving;
pub mod odd_device;
mod pass;
pub mod peer;
mod renewal;

pub use data::{captures, data_folder};
pub use drive::{Drive, assert_fresh};
pub use pass::{Fate, pass, pass_one};
pub use renewal::{build, renew};

/// The number of random cases of a property that is slow: `PROPTEST_CASES`, else `few`.
///
/// # Panics
/// When the variable is set and not a number.
pub fn cases(few: u32) -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.map_or(few, |cases| cases.parse().expect("PROPTEST_CASES is a number"))
}
