//! The lookup of next hops as a device can do it.
//!
//! A device finds the number of the next hop of a packet's destination, and the processor does all else,
//! as it does without a device. It serves routes of a file, which stay until a reload; those of the
//! kernel change while packets pass.

mod halves;
#[cfg(test)]
mod tests;
mod trie;

use thalweg_nf::device::DeviceFunction;
use thalweg_packet::BATCH;

use super::table::HopId;
pub use trie::MOST_BYTES;
pub(crate) use trie::Trie;

/// Looks up an address: 4 or 16 bytes, as packets have them. The result has the number of a next hop, or
/// another number if the processor has to look it up, and the mark of the table.
pub const HOP: DeviceFunction = DeviceFunction {
    name: "hop",
    source: include_str!("hop.cl"),
    near: 0,
    split: None,
    changes: false,
    scalar: |address, _, table| trie::look_up(address, table),
};

/// The next hops that a device has found for the packets of a batch, by lane.
pub(super) type Hops = [Option<HopId>; BATCH];
