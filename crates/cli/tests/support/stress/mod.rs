//! What the stress run of NFs on devices consists of.

pub mod chain;
mod faults;
mod feed;
pub mod ledger;
mod outcome;
pub mod packet;
pub mod pipes;
pub mod random;
mod rings;
pub mod round;
mod traffic;
mod waited;
