//! NFs that are divided by flow, so that several workers are in them at a time.

use std::any::Any;

use thalweg_packet::{Batch, Lanes};

use crate::context::Context;
use crate::function::NetworkFunction;

/// Returns the bucket of the packet in a lane, which is parsed.
pub type BucketOf = Box<dyn Fn(&Batch, usize) -> u16 + Send + Sync>;

/// Whether parts process the super-packet in a lane whole, as
/// [`NetworkFunction::takes_whole`] does.
pub type WholeOf = Box<dyn Fn(&Batch, usize) -> bool + Send + Sync>;

/// What a part of an NF leaves for the whole to settle.
pub type Note = Box<dyn Any + Send>;

/// An NF divided into parts.
///
/// Each part serves the flows of its share of the [`BUCKETS`](crate::BUCKETS): part `p` of `n` those from
/// `p * BUCKETS / n` on. It sees their packets in order, while other parts serve others. What
/// concerns more than one flow (counts by source, files) it leaves to the whole, as
/// [notes](Context::later), which [settles](NetworkFunction::settle) them in the order of the packets.
/// So the division must not show: an NF decides, counts and writes the same in any number of parts.
pub struct Division {
    /// The parts, in the order of their buckets. They generate no packets.
    pub parts: Vec<Box<dyn Part>>,
    /// What holds the parts together: it settles their notes, exports and imports the state of all,
    /// adds up their figures, and writes. It processes no packets.
    pub whole: Box<dyn NetworkFunction>,
    /// The bucket of each packet.
    pub bucket: BucketOf,
    /// Which super-packets the parts process whole; they get the segments of others.
    pub takes_whole: WholeOf,
}

/// A part of a divided NF.
pub trait Part: Send {
    /// Processes packets of the part's flows, as [`NetworkFunction::process`] does.
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>);
}
