//! Internet checksums (RFC 1071) and their incremental update (RFC 1624).

mod words;

use crate::headers::Headers;
use crate::wire::ip_proto;

/// A one's-complement sum that is being computed.
///
/// Parts may be added in any order; each part but the last must be of even
/// length, as the fields of a pseudo-header are.
// Words as they lie in memory: a one's-complement sum does not depend on the order of their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds the 16-bit words of `bytes`; an odd last byte counts as if a zero
    /// followed.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // `+` on bytes would say less
    #[inline]
    pub fn add(mut self, bytes: &[u8]) -> Self {
        self.0 += words::sum(bytes);
        self
    }

    /// Adds one 16-bit word.
    #[must_use]
    #[inline]
    pub fn add_u16(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// The sum folded to 16 bits, not complemented.
    #[inline]
    pub fn sum(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        while sum >> 16 != 0 {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::from_be(sum as u16)
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.sum()
    }
}

/// The checksum of `bytes`.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Checksum::default().add(bytes).finish()
}

/// The checksum `old` after a 16-bit word under it changed from `from` to `to`
/// (RFC 1624, equation 3).
#[must_use]
#[inline]
pub fn update_u16(old: u16, from: u16, to: u16) -> u16 {
    Checksum::default().add_u16(!old).add_u16(!from).add_u16(to).finish()
}

/// The checksum `old` after 32 bits under it changed from `from` to `to`.
#[must_use]
#[inline]
pub fn update_u32(old: u16, from: u32, to: u32) -> u16 {
    let (f, t) = (from.to_be_bytes(), to.to_be_bytes());
    let sum = Checksum::default().add_u16(!old).add(&t);
    let sum = sum.add_u16(!u16::from_be_bytes([f[0], f[1]]));
    sum.add_u16(!u16::from_be_bytes([f[2], f[3]])).finish()
}

/// The result of verifying a packet's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// Every checksum that could be computed is right.
    Good,
    /// The IPv4 header's checksum is wrong.
    BadHeader,
    /// The transport checksum is wrong.
    BadTransport,
    /// The packet carries no checksum that can be computed: a fragment, a truncated
    /// packet, UDP over IPv4 without checksum, or another protocol.
    Unchecked,
}

/// Where the transport checksum of `protocol` lies in its header.
#[inline]
fn transport_field(protocol: u8) -> Option<usize> {
    match protocol {
        ip_proto::ICMP | ip_proto::ICMPV6 => Some(2),
        ip_proto::TCP => Some(16),
        ip_proto::UDP => Some(6),
        _ => None,
    }
}

/// The sum that the transport header's checksum covers before its bytes:
/// the pseudo-header of RFC 9293, 768 and 8200; nothing for ICMP over IPv4.
#[inline]
fn pseudo_header(bytes: &[u8], headers: &Headers, length: usize) -> Option<Checksum> {
    let l3 = headers.l3 as usize;
    let sum = Checksum::default();
    if headers.is_ipv4() {
        if headers.ip_proto == ip_proto::ICMP {
            return Some(sum);
        }
        let addresses = bytes.get(l3 + 12..l3 + 20)?;
        Some(sum.add(addresses).add_u16(u16::from(headers.ip_proto)).add_u16(length as u16))
    } else {
        let addresses = bytes.get(l3 + 8..l3 + 40)?;
        Some(sum.add(addresses).add_u16(u16::from(headers.ip_proto)).add_u16(length as u16))
    }
}

/// The sum of the pseudo-header, which a packet holds in the place of its transport checksum when
/// that is left to hardware. `None` for a packet whose checksum cannot be computed.
pub fn pseudo_header_sum(bytes: &[u8], headers: &Headers) -> Option<u16> {
    let (segment, _) = transport(bytes, headers)?;
    pseudo_header(bytes, headers, segment.len()).map(Checksum::sum)
}

/// The transport part of the packet and the place of its checksum within it,
/// when the checksum can be computed: whole, not a fragment.
#[inline]
fn transport<'a>(bytes: &'a [u8], headers: &Headers) -> Option<(&'a [u8], usize)> {
    if headers.l4 == 0 || headers.fragment || headers.status != crate::ParseStatus::Complete {
        return None;
    }
    let field = transport_field(headers.ip_proto)?;
    let segment = bytes.get(headers.l4 as usize..headers.end as usize)?;
    // A UDP datagram may be shorter than the IP payload.
    let segment = if headers.ip_proto == ip_proto::UDP {
        let length = usize::from(u16::from_be_bytes([*segment.get(4)?, *segment.get(5)?]));
        segment.get(..length)?
    } else {
        segment
    };
    (segment.len() >= field + 2).then_some((segment, field))
}

/// The bytes of the IPv4 header, options included.
#[inline]
fn ipv4_header<'a>(bytes: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let l3 = headers.l3 as usize;
    let length = usize::from(*bytes.get(l3)? & 0x0f) * 4;
    bytes.get(l3..l3 + length).filter(|_| headers.is_ipv4() && length >= 20)
}

/// Whether a parsed packet has an IPv4 header whose checksum is wrong.
///
/// Receivers drop it (RFC 1122, section 3.2.1.2). An NF that opens the packet, or writes its header
/// anew, must drop it as well; one that updates the checksum by what it changes (RFC 1624) leaves it
/// wrong.
#[inline]
pub fn is_ipv4_header_bad(bytes: &[u8], headers: &Headers) -> bool {
    ipv4_header(bytes, headers).is_some_and(|header| checksum(header) != 0)
}

/// Checks the IPv4 header's and the transport's checksum of a parsed packet.
#[inline]
pub fn verify(bytes: &[u8], headers: &Headers) -> ChecksumStatus {
    if is_ipv4_header_bad(bytes, headers) {
        return ChecksumStatus::BadHeader;
    }
    verify_transport(bytes, headers)
}

/// Checks the transport's checksum alone: never returns [`ChecksumStatus::BadHeader`].
#[inline]
pub fn verify_transport(bytes: &[u8], headers: &Headers) -> ChecksumStatus {
    let Some((segment, field)) = transport(bytes, headers) else {
        return ChecksumStatus::Unchecked;
    };
    let stored = u16::from_be_bytes([segment[field], segment[field + 1]]);
    if headers.ip_proto == ip_proto::UDP && stored == 0 {
        // RFC 768: no checksum. RFC 8200: not allowed over IPv6.
        let v4 = headers.is_ipv4();
        return if v4 { ChecksumStatus::Unchecked } else { ChecksumStatus::BadTransport };
    }
    match pseudo_header(bytes, headers, segment.len()) {
        Some(sum) if sum.add(segment).sum() == 0xffff => ChecksumStatus::Good,
        Some(_) => ChecksumStatus::BadTransport,
        None => ChecksumStatus::Unchecked,
    }
}

/// Computes and writes the IPv4 header checksum of a parsed packet.
#[inline]
pub fn fill_ipv4(bytes: &mut [u8], headers: &Headers) {
    let Some(header) = ipv4_header(bytes, headers) else { return };
    let stored = u16::from_be_bytes([header[10], header[11]]);
    let sum = Checksum::default().add(header).add_u16(!stored).finish();
    let at = headers.l3 as usize + 10;
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Computes and writes every checksum that [`verify`] checks.
#[inline]
pub fn fill(bytes: &mut [u8], headers: &Headers) {
    fill_ipv4(bytes, headers);
    let Some((segment, field)) = transport(bytes, headers) else { return };
    let stored = u16::from_be_bytes([segment[field], segment[field + 1]]);
    let Some(sum) = pseudo_header(bytes, headers, segment.len()) else { return };
    let mut value = sum.add(segment).add_u16(!stored).finish();
    if value == 0 && headers.ip_proto == ip_proto::UDP {
        value = 0xffff;
    }
    let at = headers.l4 as usize + field;
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::default().add(&bytes).sum(), 0xddf2);
        assert_eq!(checksum(&[0xff]), !0xff00);
    }

    #[test]
    fn the_words_of_a_text_are_summed_in_the_order_of_the_network() {
        for len in [0, 1, 2, 5, 20, 127, 128, 129, 1500, 65_535] {
            let bytes: Vec<u8> = (0..len).map(|n: u64| ((n * n) >> 3) as u8).collect();
            let word =
                |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u64::from(*b));
            let all: u64 = bytes.chunks(2).map(word).sum::<u64>() + 0x1234;
            let folded = (all % 0xffff) as u16;
            let sum = Checksum::default().add_u16(0x1234).add(&bytes).sum();
            assert_eq!(sum % 0xffff, folded, "{len} bytes");
        }
    }

    #[test]
    fn the_example_of_rfc_1624_updates_without_minus_zero() {
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }
}
