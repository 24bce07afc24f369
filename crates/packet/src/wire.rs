//! The numbers of the wire: what protocols put into their fields, by the names of the registries.

/// EtherTypes (IEEE 802 Numbers, IANA), the TPIDs of VLAN tags among them.
pub mod ethertype {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Transparent Ethernet bridging: an Ethernet frame in a tunnel (RFC 1701).
    pub const TRANSPARENT_ETHERNET: u16 = 0x6558;
    /// RARP (RFC 903).
    pub const RARP: u16 = 0x8035;
    /// The customer's VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// MPLS (RFC 3032).
    pub const MPLS: u16 = 0x8847;
    /// MPLS with an upstream-assigned label, once multicast (RFC 5332).
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// A PPPoE session (RFC 2516).
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// The service provider's VLAN tag (IEEE 802.1ad).
    pub const QINQ: u16 = 0x88a8;
    /// Local experiments (IEEE 802).
    pub const LOCAL_EXPERIMENT: u16 = 0x88b5;
    /// The service provider's VLAN tag before 802.1ad; not registered for it.
    pub const OLD_QINQ: u16 = 0x9100;

    /// The TPIDs of VLAN tags.
    pub const VLAN_TPIDS: [u16; 3] = [VLAN, QINQ, OLD_QINQ];
}

/// IP protocol numbers, the IPv6 extension headers among them (Assigned Internet Protocol Numbers,
/// IANA).
pub mod ip_proto {
    /// IPv6 hop-by-hop options (RFC 8200).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// IGMP (RFC 1112).
    pub const IGMP: u8 = 2;
    /// An IPv4 packet in a tunnel (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// An IPv6 packet in a tunnel (RFC 2473).
    pub const IPV6: u8 = 41;
    /// IPv6 routing header (RFC 8200).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200).
    pub const FRAGMENT: u8 = 44;
    /// GRE (RFC 2784).
    pub const GRE: u8 = 47;
    /// ESP (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication header (RFC 4302).
    pub const AH: u8 = 51;
    /// `ICMPv6` (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Nothing follows (RFC 8200); in ESP, a dummy packet (RFC 4303).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// IPv6 mobility header (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// Host Identity Protocol (RFC 7401).
    pub const HOST_IDENTITY: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;

    /// The name of a protocol in lower case, as in flow syntax and `/etc/protocols`; its number if
    /// it is not one of these.
    pub fn name(protocol: u8) -> std::borrow::Cow<'static, str> {
        let name = match protocol {
            ICMP => "icmp",
            IGMP => "igmp",
            IPV4 => "ipip",
            TCP => "tcp",
            UDP => "udp",
            IPV6 => "ipv6",
            GRE => "gre",
            ESP => "esp",
            AH => "ah",
            ICMPV6 => "icmpv6",
            89 => "ospf",
            112 => "vrrp",
            SCTP => "sctp",
            other => return other.to_string().into(),
        };
        name.into()
    }
}

/// TCP flags (RFC 9293; ECE and CWR: RFC 3168), in byte 13 of the header.
pub mod tcp_flags {
    /// The sender has sent all its data.
    pub const FIN: u8 = 0x01;
    /// Synchronises sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Resets the connection.
    pub const RST: u8 = 0x04;
    /// Pushes the data to the application.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// The receiver echoes a congestion mark; in a SYN, the sender supports ECN.
    pub const ECE: u8 = 0x40;
    /// The sender has reduced its congestion window.
    pub const CWR: u8 = 0x80;
}

/// Bytes of headers without options.
pub mod header_len {
    /// Ethernet, without VLAN tags and frame check sequence.
    pub const ETHERNET: usize = 14;
    /// IPv4 (RFC 791).
    pub const IPV4: usize = 20;
    /// IPv6 (RFC 8200).
    pub const IPV6: usize = 40;
    /// UDP (RFC 768).
    pub const UDP: usize = 8;
}
