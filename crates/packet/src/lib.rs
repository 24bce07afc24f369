//! Packet memory, batches, flow keys, headers and checksums: the base of every
//! other crate of Thalweg.
//!
//! A [`Pool`] cuts one region of [`PacketMemory`] into equal frames, and a few large ones. A packet
//! is a frame with an offset, a length and metadata; it owns no bytes. Stages
//! pass packets in a [`Batch`] of up to [`BATCH`] in structure-of-arrays form
//! and select packets with [`Lanes`].
//!
//! Parsing ([`parse()`]) turns a packet's bytes into a [`FlowKey`] and the
//! offsets of its [`Headers`]; [`MiniFlow`] is the compressed key.

mod batch;
pub mod checksum;
mod drop_reason;
mod headers;
mod key;
mod lanes;
mod memory;
mod metadata;
mod miniflow;
mod parse;
mod pool;
mod segments;
mod time;
mod transposed;
mod tuple;
pub mod wire;
pub mod write;

pub use batch::{Batch, MAX_PACKET_LEN};
pub use drop_reason::{DropCounts, DropReason};
pub use headers::{Headers, Layer, ParseStatus};
pub use key::{Field, FlowKey, KEY_WORDS, field};
pub use lanes::{BATCH, Lanes};
pub use memory::{MemoryKind, PacketMemory};
pub use metadata::{Cut, Metadata, Packet, PacketType, PortIndex};
pub use miniflow::MiniFlow;
pub use parse::{Decapsulate, MOST_TUNNELS, parse};
pub use pool::{
    DEFAULT_FRAME_SIZE, Frame, HEADROOM, LARGE_FRAME_SIZE, MAX_FRAME_SIZE, MAX_SUPER_PACKET_LEN,
    Pool, PoolError,
};
pub use segments::Segments;
pub use time::Nanoseconds;
pub use transposed::{Half, TransposedKeys};
pub use tuple::{FiveTuple, address_bits, address_of, symmetric_hash};
