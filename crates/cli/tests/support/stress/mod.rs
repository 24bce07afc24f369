//! What the stress run of NFs on devices consists of.

pub mod chain;
pub mod ledger;
pub mod packet;
pub mod pipes;
pub mod random;
pub mod round;
mod waited;
