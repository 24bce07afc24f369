//! The ports of a run.

mod inputs;
mod open;
mod outputs;
mod polls;
mod queue;
mod sources;

use thalweg_packet::{Batch, Lanes};

pub(super) use inputs::Inputs;
pub(super) use open::{check_options, claim_files, claim_output, open_input, open_paced, queues};
pub(super) use outputs::Outputs;
pub(super) use sources::{Delivery, Sources};

/// A port of a chain that takes the place of another one.
pub(super) enum NextPort<P: ?Sized> {
    /// The port with this number there.
    Kept(usize),
    /// A port that is not there: its queues.
    New(Vec<Box<P>>),
}

/// The packets of a wire that the packets of `lanes` stand for, less themselves.
fn more_segments(batch: &Batch, lanes: Lanes) -> u64 {
    let supers = batch.supers().and(lanes);
    (batch.count_segments(supers) - supers.count()) as u64
}

/// Batches between two readings of the clock, and between two checks of the outputs.
const CLOCK_PERIOD: u32 = 64;
