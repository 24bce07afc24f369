//! The two ends of a conversation, whichever of them speaks.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use thalweg_packet::FiveTuple;

/// What tells conversations apart: both directions give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Conversation {
    /// Addresses, those of IPv4 mapped to IPv6, and ports.
    low: (u128, u16),
    high: (u128, u16),
    protocol: u8,
}

impl Conversation {
    /// The conversation of a packet, and whether it is sent by the lower end.
    pub(crate) fn of(tuple: &FiveTuple) -> (Self, bool) {
        // The numbers in ICMP's port fields are no ports.
        let ports = matches!(tuple.protocol, 6 | 17 | 132);
        let end = |address: IpAddr, port: u16| (bits(address), if ports { port } else { 0 });
        let from = end(tuple.src, tuple.src_port);
        let to = end(tuple.dst, tuple.dst_port);
        let from_low = from <= to;
        let (low, high) = if from_low { (from, to) } else { (to, from) };
        (Self { low, high, protocol: tuple.protocol }, from_low)
    }

    /// As its lower end sends it.
    pub(crate) fn tuple(&self) -> FiveTuple {
        let ((src, src_port), (dst, dst_port)) = (self.low, self.high);
        let (src, dst) = (address_of(src), address_of(dst));
        FiveTuple { src, dst, protocol: self.protocol, src_port, dst_port }
    }
}

/// The address that [`bits`] made this number of.
pub(crate) fn address_of(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(bits).to_canonical()
}

/// An address as a number, one of IPv4 mapped to IPv6.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .to_bits()
}
