//! What the tests of several crates share: the folder of real data, the peer programs that our
//! results are held against, and a drive that sends packets through one network function.
//!
//! Only tests use this crate.

mod data;
mod drive;
pub mod fragments;
mod pass;
pub mod peer;

pub use data::{captures, data_folder};
pub use drive::{Drive, assert_fresh};
pub use pass::{Fate, pass, pass_one};
