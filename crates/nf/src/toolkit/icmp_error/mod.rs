//! ICMP and `ICMPv6` errors about a packet: what to send, when not to send one,
//! and how often.
//!
//! [`build`] writes one error packet by RFC 792, RFC 1812 §4.3 and RFC 4443;
//! [`IcmpSender`] adds the rate limit and the counters that an NF needs, and
//! hands the packet to the chain.

use std::net::IpAddr;

use thalweg_packet::checksum::{Checksum, checksum};
use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6};
use thalweg_packet::{Batch, Decapsulate, FlowKey, Headers, Nanoseconds, field, parse};

use crate::context::Context;
use crate::emitted::Made;

/// The longest ICMP error over IPv4, in bytes of IP (RFC 1812 §4.3.2.3).
const MAX_IPV4: usize = 576;
/// The longest `ICMPv6` error, in bytes of IP: the minimum MTU (RFC 4443 §2.4 (c)).
const MAX_IPV6: usize = 1280;
/// Hop limit of the errors.
const TTL: u8 = 64;
/// Precedence "internetwork control" (RFC 1812 §4.3.2.5).
const TOS: u8 = 0xc0;

/// The reason for the error about the quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The TTL or hop limit expired in transit.
    TimeExceeded,
    /// There is no route to the destination.
    NetUnreachable,
    /// The last hop cannot reach the destination itself.
    HostUnreachable,
    /// The destination does not support the packet's protocol.
    ProtocolUnreachable,
    /// Nothing listens on the destination port.
    PortUnreachable,
    /// A rule forbids the packet.
    AdminProhibited,
    /// The packet exceeds the MTU of the next hop and must not be fragmented.
    TooBig {
        /// The MTU of the next hop, in bytes of IP.
        mtu: u16,
    },
}

impl IcmpError {
    /// Type, code and the header's second word for IPv4.
    fn for_ipv4(self) -> (u8, u8, u32) {
        match self {
            Self::TimeExceeded => (11, 0, 0),
            Self::NetUnreachable => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::ProtocolUnreachable => (3, 2, 0),
            Self::PortUnreachable => (3, 3, 0),
            Self::AdminProhibited => (3, 13, 0),
            Self::TooBig { mtu } => (3, 4, u32::from(mtu)), // RFC 1191
        }
    }

    /// Type, code and the header's second word for IPv6.
    ///
    /// An unknown protocol is a parameter problem there (code 1), whose pointer
    /// names the Next Header field of the fixed header.
    fn for_ipv6(self) -> (u8, u8, u32) {
        match self {
            Self::TimeExceeded => (3, 0, 0),
            Self::NetUnreachable => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            Self::ProtocolUnreachable => (4, 1, 6),
            Self::PortUnreachable => (1, 4, 0),
            Self::AdminProhibited => (1, 1, 0),
            Self::TooBig { mtu } => (2, 0, u32::from(mtu)),
        }
    }
}

/// Why no error is sent (RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suppressed {
    /// The packet has no IP header.
    NotIp,
    /// No source address of the packet's IP version is available.
    NoSource,
    /// The packet is itself an ICMP error, or may be one.
    AboutError,
    /// The packet is an IPv4 fragment other than the first.
    LaterFragment,
    /// The packet was a broadcast or multicast, of the link or of IP.
    Broadcast,
    /// The packet's source does not name a single host.
    BadSource,
    /// The rate limit is exhausted.
    RateLimit,
    /// There was no free frame for the error.
    NoFrame,
}

impl Suppressed {
    /// The reason in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not an IP packet",
            Self::NoSource => "no source address of the packet's IP version",
            Self::AboutError => "the packet may be an ICMP error",
            Self::LaterFragment => "a fragment other than the first",
            Self::Broadcast => "sent to a broadcast or multicast address",
            Self::BadSource => "the source is not a single host",
            Self::RateLimit => "over the rate limit",
            Self::NoFrame => "no free frame",
        }
    }
}

/// Writes the error `kind` about the packet of `lane` into `out`, from the
/// Ethernet header on: from `source` to the packet's source, MAC addresses
/// swapped, VLAN tags kept.
///
/// The packet is quoted as it stands in the batch, so call this before
/// changing it.
///
/// # Errors
/// Why no error may be sent about this packet.
pub fn build(
    batch: &Batch,
    lane: usize,
    kind: IcmpError,
    source: IpAddr,
    out: &mut Vec<u8>,
) -> Result<(), Suppressed> {
    let bytes = batch.bytes(lane);
    let (mut key, mut headers) = (batch.key(lane), *batch.headers(lane));
    if key.get(field::TUN_KIND) != 0 {
        // Parsed with decapsulation; the error is about the outer packet.
        (key, headers) = parse(bytes, batch.meta.in_port[lane], Decapsulate::No);
    }
    may_answer(bytes, &key, &headers)?;
    let packet = bytes.get(headers.l3 as usize..headers.end as usize).ok_or(Suppressed::NotIp)?;
    out.clear();
    match source {
        IpAddr::V4(source) if headers.is_ipv4() => {
            link_header(bytes, headers.ether_type, out);
            ipv4_error(packet, kind, source.octets(), out);
        }
        IpAddr::V6(source) if headers.is_ipv6() => {
            link_header(bytes, headers.ether_type, out);
            ipv6_error(packet, kind, source.octets(), out);
        }
        _ => return Err(Suppressed::NoSource),
    }
    Ok(())
}

/// Whether an ICMP error may be sent about the packet `bytes`.
///
/// # Errors
/// Why not.
pub fn may_answer(bytes: &[u8], key: &FlowKey, headers: &Headers) -> Result<(), Suppressed> {
    if !headers.is_ipv4() && !headers.is_ipv6() {
        return Err(Suppressed::NotIp);
    }
    if bytes.first().is_none_or(|b| b & 1 == 1) {
        return Err(Suppressed::Broadcast);
    }
    let kind = key.get(field::TP_SRC);
    if headers.is_ipv4() {
        if key.get(field::NW_FRAG) & field::FRAG_LATER != 0 {
            return Err(Suppressed::LaterFragment);
        }
        if headers.ip_proto == ICMP && (headers.l4 == 0 || !is_icmp_query(kind)) {
            return Err(Suppressed::AboutError);
        }
        if key.get(field::NW_DST) as u32 >= 0xe000_0000 {
            return Err(Suppressed::Broadcast);
        }
        let source = key.get(field::NW_SRC) as u32;
        let single = !matches!(source >> 24, 0 | 127 | 224..);
        return if single { Ok(()) } else { Err(Suppressed::BadSource) };
    }
    // Redirects (137) are not errors, but must not be answered with one either.
    if headers.ip_proto == ICMPV6 && (headers.l4 == 0 || kind < 128 || kind == 137) {
        return Err(Suppressed::AboutError);
    }
    if key.get128(field::IPV6_DST) >> 120 == 0xff {
        return Err(Suppressed::Broadcast);
    }
    let source = key.get128(field::IPV6_SRC);
    let single = source > 1 && source >> 120 != 0xff;
    if single { Ok(()) } else { Err(Suppressed::BadSource) }
}

/// The ICMP types that are queries, replies or advertisements; all others
/// are errors or unknown.
fn is_icmp_query(kind: u64) -> bool {
    matches!(kind, 0 | 8 | 9 | 10 | 13..=18)
}

/// The Ethernet header of the return path. An 802.3 length and its LLC header do
/// not match the new length, so an `EtherType` replaces them.
fn link_header(bytes: &[u8], ether_type: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&bytes[6..12]);
    out.extend_from_slice(&bytes[..6]);
    let mut at = 12;
    while let Some([t0, t1, c0, c1]) = bytes.get(at..at + 4).and_then(|b| b.first_chunk().copied())
        && ethertype::VLAN_TPIDS.contains(&u16::from_be_bytes([t0, t1]))
    {
        out.extend_from_slice(&[t0, t1, c0, c1]);
        at += 4;
    }
    out.extend_from_slice(&ether_type.to_be_bytes());
}

/// The first bytes of `packet`, as many as fit an error of `limit` bytes.
fn quote(packet: &[u8], limit: usize, headers: usize) -> &[u8] {
    &packet[..packet.len().min(limit - headers)]
}

fn icmp_header((kind, code, word): (u8, u8, u32)) -> [u8; 8] {
    let [a, b, c, d] = word.to_be_bytes();
    [kind, code, 0, 0, a, b, c, d]
}

fn ipv4_error(packet: &[u8], kind: IcmpError, source: [u8; 4], out: &mut Vec<u8>) {
    let quote = quote(packet, MAX_IPV4, 28);
    let length = (28 + quote.len()) as u16;
    let mut header = [0; 20];
    header[..2].copy_from_slice(&[0x45, TOS]);
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[6] = 0x40; // never fragmented, so the identification is free (RFC 6864)
    header[8..10].copy_from_slice(&[TTL, ICMP]);
    header[12..16].copy_from_slice(&source);
    header[16..].copy_from_slice(&packet[12..16]);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut icmp = icmp_header(kind.for_ipv4());
    let sum = Checksum::default().add(&icmp).add(quote).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&icmp);
    out.extend_from_slice(quote);
}

fn ipv6_error(packet: &[u8], kind: IcmpError, source: [u8; 16], out: &mut Vec<u8>) {
    let quote = quote(packet, MAX_IPV6, 48);
    let length = (8 + quote.len()) as u16;
    let mut header = [0; 40];
    header[..2].copy_from_slice(&[0x60 | TOS >> 4, TOS << 4]);
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&[ICMPV6, TTL]);
    header[8..24].copy_from_slice(&source);
    header[24..].copy_from_slice(&packet[8..24]);
    let mut icmp = icmp_header(kind.for_ipv6());
    let pseudo = Checksum::default().add(&header[8..]).add_u16(length).add_u16(ICMPV6.into());
    let sum = pseudo.add(&icmp).add(quote).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&icmp);
    out.extend_from_slice(quote);
}

/// A token bucket in packet time (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: u32,
    burst: u32,
    /// Tokens in units of 1/10^9, so that no time is lost to rounding.
    credit: u64,
    last: Nanoseconds,
}

const TOKEN: u64 = 1_000_000_000;

impl RateLimit {
    /// At most `burst` at once and `per_second` in the long run; a rate of 0
    /// allows nothing.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let burst = if per_second == 0 { 0 } else { burst };
        Self { per_second, burst, credit: u64::from(burst) * TOKEN, last: Nanoseconds(0) }
    }

    /// Takes one token at packet time `now`, when there is one.
    pub fn allow(&mut self, now: Nanoseconds) -> bool {
        let earned = now.since(self.last).0.saturating_mul(u64::from(self.per_second));
        self.last = self.last.follow(now);
        self.credit = self.credit.saturating_add(earned).min(u64::from(self.burst) * TOKEN);
        let allowed = self.credit >= TOKEN;
        if allowed {
            self.credit -= TOKEN;
        }
        allowed
    }
}

/// Sends the ICMP errors of one NF instance: limited in rate, and counted.
#[derive(Debug)]
pub struct IcmpSender {
    limit: RateLimit,
    packet: Vec<u8>,
    sent: u64,
    suppressed: u64,
}

impl IcmpSender {
    /// Errors sent per second by default, as in Linux (`icmp_msgs_per_sec`).
    pub const DEFAULT_RATE: u32 = 1000;
    /// Errors sent at once at most, as in Linux (`icmp_msgs_burst`).
    pub const BURST: u32 = 50;

    /// A sender of at most `per_second` errors a second; 0 turns errors off.
    pub fn new(per_second: u32) -> Self {
        let limit = RateLimit::new(per_second, Self::BURST);
        Self { limit, packet: Vec::with_capacity(2048), sent: 0, suppressed: 0 }
    }

    /// Sends the error `kind` about the packet of `lane` from `source`;
    /// returns where it lies in [`Context::emitted`], not yet parsed, for the NF to
    /// choose its output (its MAC addresses are swapped, it has no output yet).
    ///
    /// # Errors
    /// Why nothing was sent.
    pub fn send(
        &mut self,
        context: &mut Context<'_>,
        batch: &Batch,
        lane: usize,
        kind: IcmpError,
        source: IpAddr,
    ) -> Result<Made, Suppressed> {
        let built = build(batch, lane, kind, source, &mut self.packet);
        let sent = built.and_then(|()| {
            if !self.limit.allow(batch.meta.timestamp[lane]) {
                return Err(Suppressed::RateLimit);
            }
            context.emit(batch, lane, &self.packet).ok_or(Suppressed::NoFrame)
        });
        match sent {
            Ok(_) => self.sent += 1,
            Err(_) => self.suppressed += 1,
        }
        sent
    }

    /// Counts an error that the NF itself suppressed.
    pub fn suppress(&mut self) {
        self.suppressed += 1;
    }

    /// Errors sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Errors that were not sent: forbidden, over the rate limit, no frame.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests;
