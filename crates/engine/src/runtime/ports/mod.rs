//! The ports of a run, on the thread that reads and writes them.

mod inputs;
mod open;
mod outputs;
mod sources;

pub(super) use inputs::Inputs;
pub(super) use open::check_options;
pub(super) use outputs::Outputs;
pub(super) use sources::{Delivery, Sources};

/// Batches between two readings of the clock, and between two checks of the outputs.
const CLOCK_PERIOD: u32 = 64;
