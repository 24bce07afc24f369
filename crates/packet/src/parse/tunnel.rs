//! VXLAN (RFC 7348), Geneve (RFC 8926), GRE (RFC 2784, 2890) and IP in IP (RFC 2003, 2473, 4213).

use super::Parser;
use crate::headers::{Headers, ParseStatus};
use crate::key::{FlowKey, field};
use crate::wire::{ethertype, ip_proto};

pub(super) const VXLAN_PORT: u64 = 4789;
pub(super) const GENEVE_PORT: u64 = 6081;

/// What a tunnel header declares about the packet inside.
struct Inner {
    kind: u64,
    id: u64,
    ether_type: u16,
    at: usize,
}

impl Parser<'_> {
    /// When the parsed packet is a tunnel's, replaces its key by that of the packet inside, with
    /// the tunnel fields set; returns whether it does.
    pub(super) fn decapsulate(&mut self) -> bool {
        if self.headers.fragment || self.headers.status != ParseStatus::Complete {
            return false;
        }
        let at = self.headers.payload as usize;
        let plain = |ether_type| Ok(Inner { kind: 4, id: 0, ether_type, at });
        let inner = if self.headers.has_transport(ip_proto::UDP) {
            match self.key.get(field::TP_DST) {
                VXLAN_PORT => self.vxlan(at),
                GENEVE_PORT => self.geneve(at),
                _ => return false,
            }
        } else {
            match self.headers.ip_proto {
                ip_proto::GRE => self.gre(at),
                ip_proto::IPV4 => plain(ethertype::IPV4),
                ip_proto::IPV6 => plain(ethertype::IPV6),
                _ => return false,
            }
        };
        match &inner {
            Ok(inner) => self.enter(inner),
            Err(status) => self.stop(*status),
        }
        inner.is_ok()
    }

    fn enter(&mut self, inner: &Inner) {
        let outer = std::mem::take(&mut self.key);
        self.key = tunnel_fields(&outer, &self.headers);
        self.set(field::IN_PORT, outer.get(field::IN_PORT));
        self.set(field::TUN_KIND, inner.kind);
        self.set(field::TUN_ID, inner.id);
        self.headers = Headers { end: self.headers.end, ..Headers::default() };
        if inner.ether_type == ethertype::TRANSPARENT_ETHERNET {
            self.ethernet(inner.at);
        } else {
            self.set(field::DL_TYPE, u64::from(inner.ether_type));
            self.headers.payload = inner.at as u16;
            self.network(inner.ether_type, inner.at);
        }
    }

    fn vxlan(&self, at: usize) -> Result<Inner, ParseStatus> {
        let header = self.array::<8>(at).ok_or(ParseStatus::Truncated)?;
        if header[0] & 0x08 == 0 {
            return Err(ParseStatus::Inconsistent);
        }
        let id = u64::from(u32::from_be_bytes([0, header[4], header[5], header[6]]));
        Ok(Inner { kind: 1, id, ether_type: ethertype::TRANSPARENT_ETHERNET, at: at + 8 })
    }

    fn geneve(&self, at: usize) -> Result<Inner, ParseStatus> {
        let header = self.array::<8>(at).ok_or(ParseStatus::Truncated)?;
        // The payload of a control packet is the end point's own (RFC 8926, section 3.4).
        if header[0] >> 6 != 0 || header[1] & 0x80 != 0 {
            return Err(ParseStatus::Unknown);
        }
        let next = at + 8 + usize::from(header[0] & 0x3f) * 4;
        if next > self.headers.end as usize {
            return Err(ParseStatus::Truncated);
        }
        let id = u64::from(u32::from_be_bytes([0, header[4], header[5], header[6]]));
        let ether_type = u16::from_be_bytes([header[2], header[3]]);
        Ok(Inner { kind: 3, id, ether_type, at: next })
    }

    fn gre(&self, at: usize) -> Result<Inner, ParseStatus> {
        let [f0, f1, t0, t1] = self.array::<4>(at).ok_or(ParseStatus::Truncated)?;
        // Version 1 is PPTP's; routing (RFC 1701) is obsolete.
        if f1 & 7 != 0 || f0 & 0x40 != 0 {
            return Err(ParseStatus::Unknown);
        }
        let mut next = at + 4 + if f0 & 0x80 != 0 { 4 } else { 0 };
        let mut id = 0;
        if f0 & 0x20 != 0 {
            let key = self.array(next).ok_or(ParseStatus::Truncated)?;
            id = u64::from(u32::from_be_bytes(key));
            next += 4;
        }
        if f0 & 0x10 != 0 {
            next += 4;
        }
        if next > self.headers.end as usize {
            return Err(ParseStatus::Truncated);
        }
        Ok(Inner { kind: 2, id, ether_type: u16::from_be_bytes([t0, t1]), at: next })
    }
}

/// A key with nothing but the outer addresses of `outer`.
fn tunnel_fields(outer: &FlowKey, headers: &Headers) -> FlowKey {
    let mut key = FlowKey::default();
    if headers.is_ipv4() {
        key.set(field::TUN_SRC, outer.get(field::NW_SRC));
        key.set(field::TUN_DST, outer.get(field::NW_DST));
    } else {
        key.set128(field::TUN_IPV6_SRC, outer.get128(field::IPV6_SRC));
        key.set128(field::TUN_IPV6_DST, outer.get128(field::IPV6_DST));
    }
    key
}
