//! Link types, and what it takes to make their packets Ethernet.

const ETHERNET: u16 = 1;
const NULL: u16 = 0;
const LOOP: u16 = 108;
const RAW: [u16; 3] = [12, 14, 101];
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const SLL: u16 = 113;
const SLL2: u16 = 276;

/// How a packet of some link type becomes Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// It is Ethernet.
    None,
    /// The first `skip` bytes give way to this header.
    Header {
        /// Bytes of the link type's own header.
        skip: usize,
        /// The Ethernet header to put instead.
        header: [u8; 14],
    },
    /// The packet's own header is cut short or of an unknown protocol.
    Malformed,
    /// There is no Ethernet form of this link type.
    Unsupported,
}

/// How the packet `bytes` of `link_type` (its number in the pcap registry)
/// becomes Ethernet. Addresses that the link type does not have are zero.
pub(super) fn conversion(link_type: u16, bytes: &[u8]) -> Conversion {
    let found = match link_type {
        ETHERNET => return Conversion::None,
        NULL | LOOP => loopback(bytes),
        IPV4 => Some((0, header([0; 6], 0x0800))),
        IPV6 => Some((0, header([0; 6], 0x86dd))),
        _ if RAW.contains(&link_type) => version(bytes).map(|t| (0, header([0; 6], t))),
        SLL => linux_cooked(bytes),
        SLL2 => linux_cooked_2(bytes),
        _ => return Conversion::Unsupported,
    };
    match found {
        Some((skip, header)) if skip <= bytes.len() => Conversion::Header { skip, header },
        _ => Conversion::Malformed,
    }
}

fn header(source: [u8; 6], ether_type: u16) -> [u8; 14] {
    let mut header = [0; 14];
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&ether_type.to_be_bytes());
    header
}

/// The EtherType that the IP version nibble stands for.
fn version(bytes: &[u8]) -> Option<u16> {
    match bytes.first()? >> 4 {
        4 => Some(0x0800),
        6 => Some(0x86dd),
        _ => None,
    }
}

/// BSD loopback: an address family in the byte order of whoever captured, and
/// other numbers for IPv6 on each system.
fn loopback(bytes: &[u8]) -> Option<(usize, [u8; 14])> {
    let family = u32::from_le_bytes(*bytes.first_chunk()?);
    let family = if family > 0xffff { family.swap_bytes() } else { family };
    let ether_type = match family {
        2 => 0x0800,
        10 | 24 | 28 | 30 => 0x86dd,
        _ => return None,
    };
    Some((4, header([0; 6], ether_type)))
}

fn linux_cooked(bytes: &[u8]) -> Option<(usize, [u8; 14])> {
    let sll: &[u8; 16] = bytes.first_chunk()?;
    let address = (sll[4], sll[5]) == (0, 6);
    let source = if address { sll[6..12].try_into().unwrap_or_default() } else { [0; 6] };
    Some((16, header(source, u16::from_be_bytes([sll[14], sll[15]]))))
}

fn linux_cooked_2(bytes: &[u8]) -> Option<(usize, [u8; 14])> {
    let sll: &[u8; 20] = bytes.first_chunk()?;
    let source = if sll[11] == 6 { sll[12..18].try_into().unwrap_or_default() } else { [0; 6] };
    Some((20, header(source, u16::from_be_bytes([sll[0], sll[1]]))))
}
