//! The classic five-tuple, and the hash that spreads flows over workers.

use std::net::IpAddr;

use crate::key::FlowKey;

/// Source and destination of a flow, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiveTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port; 0 where the protocol has none.
    pub src_port: u16,
    /// Destination port; 0 where the protocol has none.
    pub dst_port: u16,
}

/// Hash of the flow that `key` belongs to, equal for both of its directions.
pub fn symmetric_hash(key: &FlowKey) -> u32 {
    key.words.iter().fold(0, |h, w| h ^ (*w as u32) ^ ((*w >> 32) as u32))
}
