//! What the tests of the chain use.

#[path = "../../../chain/tests/common/mod.rs"]
mod of_chain;

pub use of_chain::*;
