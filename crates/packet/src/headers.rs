//! Where a packet's headers lie.

use crate::wire::ethertype;

/// How far up the stack parsing got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Layer {
    /// Nothing could be parsed.
    #[default]
    None,
    /// Ethernet, with its VLAN tags and MPLS labels.
    Link,
    /// ARP, IPv4 or IPv6.
    Network,
    /// TCP, UDP, SCTP, ICMP, ICMPv6 or IGMP.
    Transport,
}

/// Whether parsing reached the end of the headers that the packet declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ParseStatus {
    /// Every header was there and consistent.
    #[default]
    Complete,
    /// The next header is truncated by the end of the packet.
    Truncated,
    /// The next header contradicts itself or what encloses it.
    Inconsistent,
    /// The next header is of a kind that the parser does not know.
    Unknown,
}

/// Where the headers of a packet lie, as byte offsets from its Ethernet header.
///
/// With decapsulation, the offsets are those of the innermost parsed packet.
/// An offset of 0 means that the header is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Headers {
    /// The Ethernet header that precedes `l3` (not 0 only inside a tunnel).
    pub l2: u16,
    /// ARP, IPv4 or IPv6 header.
    pub l3: u16,
    /// Transport header. 0 in fragments other than the first.
    pub l4: u16,
    /// First byte after the last parsed header.
    pub payload: u16,
    /// End of the network-layer packet by its own length field: Ethernet
    /// padding lies between here and the end of the packet.
    pub end: u16,
    /// EtherType of `l3`; 0 when unknown.
    pub ether_type: u16,
    /// IP protocol after all IPv6 extension headers; 0 when there is no IP header.
    pub ip_proto: u8,
    /// How far parsing got.
    pub layer: Layer,
    /// Why it stopped there.
    pub status: ParseStatus,
    /// Whether the packet is an IP fragment (of any kind).
    pub fragment: bool,
}

impl Headers {
    /// Whether an IPv4 header was parsed.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.layer >= Layer::Network && self.ether_type == ethertype::IPV4
    }

    /// Whether an IPv6 header was parsed.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.layer >= Layer::Network && self.ether_type == ethertype::IPV6
    }

    /// Whether a transport header of `protocol` was parsed.
    #[inline]
    pub fn has_transport(&self, protocol: u8) -> bool {
        self.layer == Layer::Transport && self.ip_proto == protocol
    }
}
