//! Parsing a packet into its flow key, in one pass over its headers.
//!
//! What lies where follows Open vSwitch (`miniflow_extract` in its
//! `lib/flow.c`): 802.3 frames without SNAP get the EtherType 0x05ff, ICMP type
//! and code stand in the port fields, the ARP opcode in the protocol field, and
//! a packet with MPLS labels is not looked into below them.

mod ip;
mod link;
pub(crate) mod plain;
#[cfg(target_arch = "x86_64")]
pub(crate) mod quick;
mod transport;
mod tunnel;

use crate::headers::{Headers, Layer, ParseStatus};
use crate::key::{FlowKey, field};
use crate::metadata::PortIndex;

/// Whether tunnels are looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decapsulate {
    /// The key describes the outermost packet.
    #[default]
    No,
    /// The key describes the packet inside VXLAN, GRE, Geneve and IP in IP, and the
    /// tunnel fields what was around it.
    Yes,
    /// The key describes the innermost packet, of at most [`MOST_TUNNELS`] in one another, and the
    /// tunnel fields what was directly around it.
    Nested,
}

/// The maximum number of tunnels in one another that are looked into.
pub const MOST_TUNNELS: usize = 8;

impl Decapsulate {
    /// How many tunnels are looked into at most.
    fn most_tunnels(self) -> usize {
        match self {
            Self::No => 0,
            Self::Yes => 1,
            Self::Nested => MOST_TUNNELS,
        }
    }
}

/// Parses the packet `bytes`, from its Ethernet header on, that came in by `in_port`.
///
/// Never fails: where a header is truncated, inconsistent or unknown, key and
/// headers stop at the last good layer and [`Headers::status`] gives the reason.
pub fn parse(bytes: &[u8], in_port: PortIndex, decapsulate: Decapsulate) -> (FlowKey, Headers) {
    // Offsets are 16 bits wide; no length in a header reaches further.
    let bytes = &bytes[..bytes.len().min(u16::MAX as usize)];
    let mut parser = Parser::new(bytes, in_port);
    parser.ethernet(0);
    for _ in 0..decapsulate.most_tunnels() {
        if !parser.decapsulate() {
            break;
        }
    }
    (parser.key, parser.headers)
}

/// The headers from the network header of type `ether_type` at `at` on, as offsets in `bytes`.
pub(crate) fn parse_network(bytes: &[u8], ether_type: u16, at: usize) -> Headers {
    let bytes = &bytes[..bytes.len().min(u16::MAX as usize)];
    let mut parser = Parser::new(bytes, PortIndex::NONE);
    parser.network(ether_type, at);
    parser.headers
}

/// The state of one parse.
struct Parser<'a> {
    bytes: &'a [u8],
    key: FlowKey,
    headers: Headers,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8], in_port: PortIndex) -> Self {
        let mut key = FlowKey::default();
        key.set(field::IN_PORT, u64::from(in_port.0.wrapping_add(1)));
        let end = bytes.len() as u16;
        Self { bytes, key, headers: Headers { end, ..Headers::default() } }
    }

    /// The `N` bytes at `at`, when they lie before the end of the network
    /// packet.
    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let within = &self.bytes[..self.headers.end as usize];
        within.get(at..at.checked_add(N)?)?.first_chunk().copied()
    }

    /// The big-endian 16-bit number at `at`.
    #[inline]
    fn u16_at(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    #[inline]
    fn set(&mut self, field: crate::key::Field, value: u64) {
        self.key.set(field, value);
    }

    #[inline]
    fn stop(&mut self, status: ParseStatus) {
        self.headers.status = status;
    }

    /// `layer` was parsed whole; what follows it begins at `next`.
    #[inline]
    fn reached(&mut self, layer: Layer, next: usize) {
        self.headers.layer = layer;
        self.headers.payload = (next as u16).min(self.headers.end);
    }
}

/// A 48-bit address as a number.
fn mac([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[cfg(test)]
mod tests;
