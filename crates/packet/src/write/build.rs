//! Whole packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::metadata::PortIndex;
use crate::parse::{Decapsulate, parse};
use crate::wire::{ethertype, header_len, ip_proto};

/// The TCP fields of a built packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpSegment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The low 8 flag bits ([`tcp_flags`](crate::wire::tcp_flags)).
    pub flags: u8,
    /// Receive window.
    pub window: u16,
}

/// The fields of a built ICMP or ICMPv6 echo packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct IcmpEcho {
    /// Request or reply.
    pub reply: bool,
    /// Identifier.
    pub id: u16,
    /// Sequence number.
    pub seq: u16,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Udp(u16, u16),
    Tcp(TcpSegment),
    Echo(IcmpEcho),
    Sctp(u16, u16),
    Raw(u8),
}

/// Builds well-formed packets, with correct lengths and checksums.
///
/// ```
/// use thalweg_packet::write::PacketBuilder;
/// let packet = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
///     .vlan(10)
///     .ip("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
///     .udp(1234, 53)
///     .build(b"hello");
/// assert_eq!(packet.len(), 14 + 4 + 20 + 8 + 5);
/// ```
#[derive(Clone, Debug)]
pub struct PacketBuilder {
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    tags: Vec<(u16, u16)>,
    addresses: Option<(IpAddr, IpAddr)>,
    ttl: u8,
    tos: u8,
    id: u16,
    dont_fragment: bool,
    transport: Transport,
}

impl PacketBuilder {
    /// A packet between two MAC addresses.
    pub fn new(src_mac: [u8; 6], dst_mac: [u8; 6]) -> Self {
        Self {
            src_mac,
            dst_mac,
            tags: Vec::new(),
            addresses: None,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: true,
            transport: Transport::Raw(ip_proto::NO_NEXT_HEADER),
        }
    }

    /// Adds an 802.1Q tag inside the tags so far.
    #[must_use]
    pub fn vlan(self, vid: u16) -> Self {
        self.tag(ethertype::VLAN, vid & 0x0fff)
    }

    /// Adds a tag with any TPID and TCI inside the tags so far.
    #[must_use]
    pub fn tag(mut self, tpid: u16, tci: u16) -> Self {
        self.tags.push((tpid, tci));
        self
    }

    /// Sets the IP addresses, and with them the version.
    ///
    /// # Panics
    /// When the two have different versions.
    #[must_use]
    pub fn ip(mut self, src: IpAddr, dst: IpAddr) -> Self {
        assert_eq!(src.is_ipv4(), dst.is_ipv4(), "both addresses are of one IP version");
        self.addresses = Some((src, dst));
        self
    }

    /// Sets TTL or hop limit; 64 by default.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets TOS or traffic class; 0 by default.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Sets the IPv4 identification and whether routers may not fragment
    /// (they may not by default).
    #[must_use]
    pub fn ipv4_id(mut self, id: u16, dont_fragment: bool) -> Self {
        self.id = id;
        self.dont_fragment = dont_fragment;
        self
    }

    /// Makes it a UDP datagram.
    #[must_use]
    pub fn udp(self, src_port: u16, dst_port: u16) -> Self {
        Self { transport: Transport::Udp(src_port, dst_port), ..self }
    }

    /// Makes it a TCP segment.
    #[must_use]
    pub fn tcp(self, segment: TcpSegment) -> Self {
        Self { transport: Transport::Tcp(segment), ..self }
    }

    /// Makes it an ICMP or ICMPv6 echo, by the IP version.
    #[must_use]
    pub fn echo(self, echo: IcmpEcho) -> Self {
        Self { transport: Transport::Echo(echo), ..self }
    }

    /// Makes it an SCTP packet with one DATA chunk.
    #[must_use]
    pub fn sctp(self, src_port: u16, dst_port: u16) -> Self {
        Self { transport: Transport::Sctp(src_port, dst_port), ..self }
    }

    /// Makes it a packet of another IP protocol, without transport header.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        Self { transport: Transport::Raw(protocol), ..self }
    }

    /// The bytes before the payload.
    pub fn header_len(&self) -> usize {
        let network = match self.addresses {
            Some((IpAddr::V4(_), _)) => header_len::IPV4,
            Some(_) => header_len::IPV6,
            None => return header_len::ETHERNET + 4 * self.tags.len(),
        };
        let transport = match self.transport {
            Transport::Udp(..) | Transport::Echo(_) => 8,
            Transport::Tcp(_) => 20,
            Transport::Sctp(..) => 28,
            Transport::Raw(_) => 0,
        };
        header_len::ETHERNET + 4 * self.tags.len() + network + transport
    }

    /// The packet with `payload`, truncated to what the length fields can express.
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::with_capacity(self.header_len() + payload.len());
        self.build_into(payload, &mut packet);
        packet
    }

    /// Like [`build`](Self::build), into `out`, which is cleared first.
    pub fn build_into(&self, payload: &[u8], out: &mut Vec<u8>) {
        let payload = &payload[..payload.len().min(65_000)];
        out.clear();
        out.extend_from_slice(&self.dst_mac);
        out.extend_from_slice(&self.src_mac);
        for (tpid, tci) in &self.tags {
            out.extend_from_slice(&tpid.to_be_bytes());
            out.extend_from_slice(&tci.to_be_bytes());
        }
        let Some(addresses) = self.addresses else {
            out.extend_from_slice(&ethertype::LOCAL_EXPERIMENT.to_be_bytes());
            out.extend_from_slice(payload);
            return;
        };
        let l3_len = self.header_len() - header_len::ETHERNET - 4 * self.tags.len() + payload.len();
        match addresses {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.ipv4(src, dst, l3_len, out),
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.ipv6(src, dst, l3_len - header_len::IPV6, out);
            }
            _ => unreachable!("`ip` takes both addresses of one version"),
        }
        self.transport(addresses.0.is_ipv4(), payload.len(), out);
        out.extend_from_slice(payload);
        if let Transport::Sctp(..) = self.transport {
            sctp_checksum(out, self.header_len() - 28);
        }
        let (_, headers) = parse(out, PortIndex::NONE, Decapsulate::No);
        checksum::fill(out, &headers);
    }

    fn ip_protocol(&self, v4: bool) -> u8 {
        match self.transport {
            Transport::Udp(..) => ip_proto::UDP,
            Transport::Tcp(_) => ip_proto::TCP,
            Transport::Echo(_) if v4 => ip_proto::ICMP,
            Transport::Echo(_) => ip_proto::ICMPV6,
            Transport::Sctp(..) => ip_proto::SCTP,
            Transport::Raw(protocol) => protocol,
        }
    }

    fn ipv4(&self, src: Ipv4Addr, dst: Ipv4Addr, total_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&ethertype::IPV4.to_be_bytes());
        out.extend_from_slice(&[0x45, self.tos]);
        out.extend_from_slice(&(total_len as u16).to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&[u8::from(self.dont_fragment) << 6, 0]);
        out.extend_from_slice(&[self.ttl, self.ip_protocol(true), 0, 0]);
        out.extend_from_slice(&src.octets());
        out.extend_from_slice(&dst.octets());
    }

    fn ipv6(&self, src: Ipv6Addr, dst: Ipv6Addr, payload_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&ethertype::IPV6.to_be_bytes());
        out.extend_from_slice(&(6u32 << 28 | u32::from(self.tos) << 20).to_be_bytes());
        out.extend_from_slice(&(payload_len as u16).to_be_bytes());
        out.extend_from_slice(&[self.ip_protocol(false), self.ttl]);
        out.extend_from_slice(&src.octets());
        out.extend_from_slice(&dst.octets());
    }

    fn transport(&self, v4: bool, payload_len: usize, out: &mut Vec<u8>) {
        let ports = |out: &mut Vec<u8>, src: u16, dst: u16| {
            out.extend_from_slice(&src.to_be_bytes());
            out.extend_from_slice(&dst.to_be_bytes());
        };
        match self.transport {
            Transport::Udp(src, dst) => {
                ports(out, src, dst);
                out.extend_from_slice(&(8 + payload_len as u16).to_be_bytes());
                out.extend_from_slice(&[0, 0]);
            }
            Transport::Tcp(tcp) => {
                ports(out, tcp.src_port, tcp.dst_port);
                out.extend_from_slice(&tcp.seq.to_be_bytes());
                out.extend_from_slice(&tcp.ack.to_be_bytes());
                out.extend_from_slice(&[0x50, tcp.flags]);
                out.extend_from_slice(&tcp.window.to_be_bytes());
                out.extend_from_slice(&[0; 4]);
            }
            Transport::Echo(echo) => {
                let kind = match (v4, echo.reply) {
                    (true, true) => 0,
                    (true, false) => 8,
                    (false, true) => 129,
                    (false, false) => 128,
                };
                out.extend_from_slice(&[kind, 0, 0, 0]);
                ports(out, echo.id, echo.seq);
            }
            Transport::Sctp(src, dst) => {
                ports(out, src, dst);
                out.extend_from_slice(&[0; 8]); // verification tag, checksum
                out.extend_from_slice(&[0, 3]); // one whole DATA chunk
                out.extend_from_slice(&(16 + payload_len as u16).to_be_bytes());
                out.extend_from_slice(&[0; 12]); // TSN, stream, sequence, protocol
            }
            Transport::Raw(_) => {}
        }
    }
}

/// Writes the CRC32C of the SCTP packet that begins at `at` (RFC 9260, 6.8).
fn sctp_checksum(packet: &mut [u8], at: usize) {
    let mut crc = u32::MAX;
    for byte in &packet[at..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    packet[at + 8..at + 12].copy_from_slice(&(!crc).to_le_bytes());
}
