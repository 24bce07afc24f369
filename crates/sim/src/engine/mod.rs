//! The core: micro-operations in, times out.

mod ooo;
mod predictor;
mod stages;
mod store_buffer;
#[cfg(test)]
mod tests;

pub use ooo::{Core, CoreCounts, Op, Tag};
pub use predictor::Predictor;
