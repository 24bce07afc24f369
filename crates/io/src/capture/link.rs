//! Link types other than Ethernet, and the Ethernet header that replaces theirs.
//!
//! Numbers and layouts: <https://www.tcpdump.org/linktypes.html>.

use thalweg_packet::DropReason;
use thalweg_packet::wire::ethertype::{IPV4, IPV6};
use thalweg_packet::wire::header_len;

pub(super) const ETHERNET: u32 = 1;

/// An Ethernet header with addresses of zero.
const BLANK: [u8; header_len::ETHERNET] = [0; header_len::ETHERNET];

/// The conversion of a captured packet to an Ethernet packet: `header`,
/// then the captured bytes without the first `skip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Converted {
    header: [u8; header_len::ETHERNET],
    header_len: usize,
    skip: usize,
}

impl Converted {
    const UNCHANGED: Self = Self { header: BLANK, header_len: 0, skip: 0 };

    fn behind(skip: usize, source: [u8; 6], ether_type: u16) -> Self {
        let mut header = BLANK;
        header[6..12].copy_from_slice(&source);
        header[12..].copy_from_slice(&ether_type.to_be_bytes());
        Self { header, header_len: header.len(), skip }
    }

    /// The bytes to put before the captured bytes.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// The captured bytes that follow the header.
    pub(crate) fn rest<'a>(&self, captured: &'a [u8]) -> &'a [u8] {
        captured.get(self.skip..).unwrap_or_default()
    }

    /// Converts the original's length on the wire, `wire_len`, to that of the Ethernet packet.
    pub(crate) fn wire_len(&self, wire_len: u32) -> u32 {
        wire_len.saturating_sub(self.skip as u32).saturating_add(self.header_len as u32)
    }
}

/// Why a packet cannot be converted to Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Its link type cannot be converted.
    LinkType,
    /// Its own link header is truncated, or names no network protocol.
    Header,
}

impl Unfit {
    /// The drop reason of such a packet.
    pub(crate) fn reason(self) -> DropReason {
        match self {
            Self::LinkType => DropReason::UnsupportedLinkType,
            Self::Header => DropReason::Malformed,
        }
    }
}

/// Returns the conversion of a packet of `link` type to Ethernet.
#[inline]
pub(crate) fn to_ethernet(link: u32, captured: &[u8]) -> Result<Converted, Unfit> {
    if link == ETHERNET { Ok(Converted::UNCHANGED) } else { from_other(link, captured) }
}

fn from_other(link: u32, captured: &[u8]) -> Result<Converted, Unfit> {
    let converted = match link {
        12 | 14 | 101 => {
            // An unknown IP version is later parsed as a malformed IPv4 packet.
            let version = captured.first().map_or(4, |byte| byte >> 4);
            let ether_type = if version == 6 { IPV6 } else { IPV4 };
            Some(Converted::behind(0, [0; 6], ether_type))
        }
        228 => Some(Converted::behind(0, [0; 6], IPV4)),
        229 => Some(Converted::behind(0, [0; 6], IPV6)),
        104 => from_hdlc(captured),
        0 | 108 => from_loopback(captured),
        113 => from_cooked(captured, &COOKED),
        276 => from_cooked(captured, &COOKED_2),
        _ => return Err(Unfit::LinkType),
    };
    converted.ok_or(Unfit::Header)
}

/// BSD null and loopback: the address family in the byte order of the capturing
/// machine, or in network order.
fn from_loopback(captured: &[u8]) -> Option<Converted> {
    let raw = *captured.first_chunk()?;
    let family = u32::from_be_bytes(raw).min(u32::from_le_bytes(raw));
    let ether_type = match family {
        2 => IPV4,
        // Linux; NetBSD, OpenBSD and BSD/OS; FreeBSD; macOS.
        10 | 24 | 28 | 30 => IPV6,
        _ => return None,
    };
    Some(Converted::behind(4, [0; 6], ether_type))
}

/// Cisco's HDLC: an address, a control byte, and the protocol as an EtherType.
fn from_hdlc(captured: &[u8]) -> Option<Converted> {
    let [0x0f | 0x8f, _, high, low] = *captured.first_chunk()? else { return None };
    Some(Converted::behind(4, [0; 6], u16::from_be_bytes([high, low])))
}

/// The positions of the fields in a Linux cooked header.
struct CookedLayout {
    len: usize,
    protocol: usize,
    hardware: usize,
    address_len: CookedLength,
    address: usize,
}

/// The address length is 16 bits wide in the first version, 8 in the second.
enum CookedLength {
    Wide(usize),
    Narrow(usize),
}

const COOKED: CookedLayout = CookedLayout {
    len: 16,
    protocol: 14,
    hardware: 2,
    address_len: CookedLength::Wide(4),
    address: 6,
};

const COOKED_2: CookedLayout = CookedLayout {
    len: 20,
    protocol: 0,
    hardware: 8,
    address_len: CookedLength::Narrow(11),
    address: 12,
};

fn from_cooked(captured: &[u8], layout: &CookedLayout) -> Option<Converted> {
    let header = captured.get(..layout.len)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    // Netlink and radiotap use the protocol field for other data.
    if matches!(word(layout.hardware), 824 | 803) {
        return None;
    }
    let protocol = match word(layout.protocol) {
        // 802.3 with or without LLC: Ethernet has a length there.
        1 | 4 => u16::try_from(captured.len() - layout.len).unwrap_or(u16::MAX).min(1500),
        protocol if protocol >= 0x0600 => protocol,
        _ => return None,
    };
    let address_len = match layout.address_len {
        CookedLength::Wide(at) => word(at),
        CookedLength::Narrow(at) => u16::from(header[at]),
    };
    let address = header[layout.address..].first_chunk().copied();
    let source = address.filter(|_| address_len == 6).unwrap_or_default();
    Some(Converted::behind(layout.len, source, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(link: u32, captured: &[u8]) -> Result<(Vec<u8>, u32), Unfit> {
        let converted = to_ethernet(link, captured)?;
        let bytes = [converted.header(), converted.rest(captured)].concat();
        Ok((bytes, converted.wire_len(captured.len() as u32 + 100)))
    }

    fn ethernet(source: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
        [&[0; 6], &source[..], &ether_type.to_be_bytes(), payload].concat()
    }

    #[test]
    fn ethernet_stays_as_it_is() {
        assert_eq!(convert(1, b"abc"), Ok((b"abc".to_vec(), 103)));
    }

    #[test]
    fn raw_ip_gets_the_ether_type_of_its_version() {
        for link in [12, 14, 101] {
            let (bytes, wire_len) = convert(link, &[0x45, 1]).unwrap();
            assert_eq!((bytes, wire_len), (ethernet([0; 6], 0x0800, &[0x45, 1]), 116));
            assert_eq!(convert(link, &[0x60]).unwrap().0, ethernet([0; 6], 0x86dd, &[0x60]));
            assert_eq!(convert(link, &[]).unwrap().0, ethernet([0; 6], 0x0800, &[]));
        }
        assert_eq!(convert(228, &[0x60]).unwrap().0, ethernet([0; 6], 0x0800, &[0x60]));
        assert_eq!(convert(229, &[0x45]).unwrap().0, ethernet([0; 6], 0x86dd, &[0x45]));
    }

    #[test]
    fn loopback_is_read_in_both_byte_orders() {
        for link in [0, 108] {
            for (family, ether_type) in [(2, 0x0800), (10, 0x86dd), (24, 0x86dd), (30, 0x86dd)] {
                for header in [[family, 0, 0, 0], [0, 0, 0, family]] {
                    let captured = [&header[..], b"x"].concat();
                    let (bytes, wire_len) = convert(link, &captured).unwrap();
                    assert_eq!((bytes, wire_len), (ethernet([0; 6], ether_type, b"x"), 115));
                }
            }
            assert_eq!(convert(link, &[7, 0, 0, 0]), Err(Unfit::Header));
            assert_eq!(convert(link, &[2, 0, 0]), Err(Unfit::Header));
        }
    }

    #[test]
    fn hdlc_tells_the_protocol_as_ethernet_does() {
        let (bytes, wire_len) = convert(104, &[0x0f, 0, 0x86, 0xdd, b'x']).unwrap();
        assert_eq!((bytes, wire_len), (ethernet([0; 6], 0x86dd, b"x"), 115));
        assert_eq!(convert(104, &[0xff, 3, 0, 0x21, b'x']), Err(Unfit::Header));
        assert_eq!(convert(104, &[0x0f, 0, 8]), Err(Unfit::Header));
    }

    #[test]
    fn cooked_keeps_the_source_address_where_there_is_one() {
        let mac = [2, 0, 0, 0, 0, 9];
        let sll = |len: u8, proto: [u8; 2]| {
            [&[0, 0, 0, 1, 0, len][..], &mac, &[0, 0], &proto, b"pay"].concat()
        };
        assert_eq!(convert(113, &sll(6, [8, 0])).unwrap().0, ethernet(mac, 0x0800, b"pay"));
        assert_eq!(convert(113, &sll(0, [8, 0])).unwrap().0, ethernet([0; 6], 0x0800, b"pay"));
        assert_eq!(convert(113, &sll(6, [0, 4])).unwrap().0, ethernet(mac, 3, b"pay"));
        assert_eq!(convert(113, &sll(6, [0, 12])), Err(Unfit::Header));
        assert_eq!(convert(113, &[0; 15]), Err(Unfit::Header));
        assert_eq!(convert(113, &sll(6, [8, 0])).unwrap().1, 19 + 100 - 2);

        let sll2 =
            [&[0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6][..], &mac, &[0, 0], b"pay"].concat();
        assert_eq!(convert(276, &sll2).unwrap().0, ethernet(mac, 0x86dd, b"pay"));
        assert_eq!(convert(276, &sll2).unwrap().1, 23 + 100 - 6);
        assert_eq!(convert(276, &sll2[..19]), Err(Unfit::Header));
    }

    #[test]
    fn other_link_types_have_no_ethernet_form() {
        for link in [9, 105, 127, u32::MAX] {
            assert_eq!(to_ethernet(link, &[0; 64]), Err(Unfit::LinkType));
        }
    }
}
