//! The headers of VXLAN (RFC 7348), Geneve (RFC 8926) and GRE (RFC 2784, RFC 2890).

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_packet::DropReason;
use thalweg_packet::checksum::Checksum;
use thalweg_packet::wire::ethertype;

/// Flag of VXLAN: there is an identifier.
const WITH_ID: u8 = 0x08;
/// Flag of Geneve: a control packet.
const CONTROL: u8 = 0x80;
/// Flag of Geneve: there are options that must be understood.
const CRITICAL: u8 = 0x40;
/// Flags of GRE: checksum, routing, key, sequence number.
const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;

/// The encapsulation of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protocol {
    /// Ethernet in UDP.
    Vxlan,
    /// Ethernet in UDP.
    Geneve,
    /// IP in IP.
    Gre,
    /// Ethernet in IP.
    Gretap,
}

impl Protocol {
    /// The default UDP port; `None` without UDP.
    pub(super) fn port(self) -> Option<u16> {
        match self {
            Self::Vxlan => Some(4789),
            Self::Geneve => Some(6081),
            Self::Gre | Self::Gretap => None,
        }
    }

    /// The largest identifier.
    pub(super) fn most_id(self) -> u32 {
        if self.port().is_some() { 0xff_ffff } else { u32::MAX }
    }

    /// The length of its header in bytes.
    pub(super) fn header_len(self, id: Option<u32>) -> usize {
        if self.port().is_some() || id.is_some() { 8 } else { 4 }
    }

    /// Writes its header, for a packet of `ether_type`.
    pub(super) fn write(self, id: Option<u32>, ether_type: u16, out: &mut [u8]) {
        let [t0, t1] = ether_type.to_be_bytes();
        let [_, i0, i1, i2] = id.unwrap_or(0).to_be_bytes();
        match (self, id) {
            (Self::Vxlan, _) => out.copy_from_slice(&[WITH_ID, 0, 0, 0, i0, i1, i2, 0]),
            (Self::Geneve, _) => out.copy_from_slice(&[0, 0, t0, t1, i0, i1, i2, 0]),
            (Self::Gre | Self::Gretap, None) => out.copy_from_slice(&[0, 0, t0, t1]),
            (Self::Gre | Self::Gretap, Some(key)) => {
                out[..4].copy_from_slice(&[KEY, 0, t0, t1]);
                out[4..].copy_from_slice(&key.to_be_bytes());
            }
        }
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The identifier; GRE may have none.
    pub(super) id: Option<u32>,
    pub(super) ether_type: u16,
    /// Its length in bytes.
    pub(super) len: usize,
}

impl Header {
    /// The header of VXLAN, from `bytes` on.
    pub(super) fn vxlan(bytes: &[u8]) -> Result<Self, DropReason> {
        let [flags, _, _, _, i0, i1, i2, _] = *first(bytes)?;
        if flags & WITH_ID == 0 {
            return Err(DropReason::Malformed);
        }
        let id = Some(u32::from_be_bytes([0, i0, i1, i2]));
        Ok(Self { id, ether_type: ethertype::TRANSPARENT_ETHERNET, len: 8 })
    }

    /// The header of Geneve. We support no options: a packet with critical options must be dropped
    /// (RFC 8926, section 3.5), as must control messages, which are not to be forwarded (3.4).
    pub(super) fn geneve(bytes: &[u8]) -> Result<Self, DropReason> {
        let [version, flags, t0, t1, i0, i1, i2, _] = *first(bytes)?;
        let len = 8 + usize::from(version & 0x3f) * 4;
        if version >> 6 != 0 || flags & (CONTROL | CRITICAL) != 0 {
            return Err(DropReason::UnsupportedProtocol);
        }
        if len > bytes.len() {
            return Err(DropReason::Malformed);
        }
        let id = Some(u32::from_be_bytes([0, i0, i1, i2]));
        Ok(Self { id, ether_type: u16::from_be_bytes([t0, t1]), len })
    }

    /// The header of GRE, whose checksum covers all `bytes`; that of a super-packet is unspecified.
    pub(super) fn gre(bytes: &[u8], is_super: bool) -> Result<Self, DropReason> {
        let [flags, version, t0, t1] = *first(bytes)?;
        // Version 1 is PPTP's; routing (RFC 1701) is obsolete.
        if version & 7 != 0 || flags & ROUTING != 0 {
            return Err(DropReason::UnsupportedProtocol);
        }
        let mut len = 4;
        if flags & CHECKSUM != 0 {
            if !is_super && Checksum::default().add(bytes).finish() != 0 {
                return Err(DropReason::BadChecksum);
            }
            len += 4;
        }
        let mut id = None;
        if flags & KEY != 0 {
            id = Some(u32::from_be_bytes(*first(bytes.get(len..).unwrap_or(&[]))?));
            len += 4;
        }
        if flags & SEQUENCE != 0 {
            len += 4;
        }
        if len > bytes.len() {
            return Err(DropReason::Malformed);
        }
        Ok(Self { id, ether_type: u16::from_be_bytes([t0, t1]), len })
    }
}

fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DropReason> {
    bytes.first_chunk().ok_or(DropReason::Malformed)
}
