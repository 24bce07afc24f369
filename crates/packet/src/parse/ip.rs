//! IPv4 with options and fragments, IPv6 with extension headers and fragments.

use super::Parser;
use crate::headers::{Layer, ParseStatus};
use crate::key::field;
use crate::wire::ethertype;
use crate::wire::header_len::{IPV4, IPV6};
use crate::wire::ip_proto::{
    AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, HOST_IDENTITY, MOBILITY, NO_NEXT_HEADER,
    ROUTING, SHIM6,
};

impl Parser<'_> {
    /// Parses the IPv4 header (RFC 791) at `at`, and what it carries.
    pub(super) fn ipv4(&mut self, at: usize) {
        let Some(header) = self.array::<IPV4>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] >> 4 != 4 || header_len < IPV4 || total_len < header_len {
            return self.stop(ParseStatus::Inconsistent);
        }
        if at + header_len > self.headers.end as usize {
            return self.stop(ParseStatus::Truncated);
        }
        let cut = self.ends_at(at + total_len);

        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let later = fragment & 0x1fff != 0;
        let any = later || fragment & 0x2000 != 0;
        let protocol = header[9];
        let address = |i: usize| {
            let [a, b, c, d] = [header[i], header[i + 1], header[i + 2], header[i + 3]];
            u64::from(u32::from_be_bytes([a, b, c, d]))
        };
        self.set(field::NW_PROTO, u64::from(protocol));
        self.set(field::NW_TOS, u64::from(header[1]));
        self.set(field::NW_TTL, u64::from(header[8]));
        self.set(field::NW_SRC, address(12));
        self.set(field::NW_DST, address(16));
        self.fragment(any, later);
        self.headers.l3 = at as u16;
        self.headers.ether_type = ethertype::IPV4;
        self.headers.ip_proto = protocol;
        self.reached(Layer::Network, at + header_len);
        if !later {
            self.transport(protocol, at + header_len);
        }
        self.cut_short(cut);
    }

    /// Parses the IPv6 header (RFC 8200) at `at`, and what it carries.
    pub(super) fn ipv6(&mut self, at: usize) {
        let Some(header) = self.array::<IPV6>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if first >> 28 != 6 {
            return self.stop(ParseStatus::Inconsistent);
        }
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        // A jumbogram (RFC 2675) has length 0 and is longer than any frame of ours.
        if payload_len == 0 && header[6] == HOP_BY_HOP {
            return self.stop(ParseStatus::Unknown);
        }
        let cut = self.ends_at(at + IPV6 + payload_len);

        let address = |i: usize| -> u128 {
            header[i..i + 16].iter().fold(0, |sum, b| sum << 8 | u128::from(*b))
        };
        self.set(field::NW_TOS, u64::from(first >> 20 & 0xff));
        self.set(field::IPV6_LABEL, u64::from(first & 0xf_ffff));
        self.set(field::NW_TTL, u64::from(header[7]));
        self.key.set128(field::IPV6_SRC, address(8));
        self.key.set128(field::IPV6_DST, address(24));
        self.headers.l3 = at as u16;
        self.headers.ether_type = ethertype::IPV6;
        self.reached(Layer::Network, at + IPV6);
        match self.extension_headers(header[6], at + IPV6) {
            Some((protocol, next, later)) => {
                self.set(field::NW_PROTO, u64::from(protocol));
                self.headers.ip_proto = protocol;
                self.reached(Layer::Network, next);
                if !later {
                    self.transport(protocol, next);
                }
            }
            None => self.stop(ParseStatus::Truncated),
        }
        self.cut_short(cut);
    }

    /// Walks the extension headers: the protocol after them, where it begins,
    /// and whether this is a fragment other than the first. `None` when the
    /// packet ends within them; each is at least 8 bytes, so the walk ends.
    fn extension_headers(&mut self, mut next: u8, mut at: usize) -> Option<(u8, usize, bool)> {
        loop {
            let length = match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HOST_IDENTITY | SHIM6 => {
                    (usize::from(self.array::<2>(at)?[1]) + 1) * 8
                }
                AH => (usize::from(self.array::<2>(at)?[1]) + 2) * 4,
                FRAGMENT => {
                    let header = self.array::<8>(at)?;
                    let offset = u16::from_be_bytes([header[2], header[3]]);
                    let later = offset & 0xfff8 != 0;
                    // An atomic fragment (RFC 6946) is the whole packet.
                    let any = later || offset & 1 != 0;
                    self.fragment(any, later);
                    if later {
                        return Some((header[0], at + 8, true));
                    }
                    8
                }
                NO_NEXT_HEADER => return Some((next, at, true)),
                _ => return Some((next, at, false)),
            };
            next = self.array::<1>(at)?[0];
            at += length;
            if at > self.headers.end as usize {
                return None;
            }
        }
    }

    fn fragment(&mut self, any: bool, later: bool) {
        if any {
            self.headers.fragment = true;
            let later = if later { field::FRAG_LATER } else { 0 };
            self.set(field::NW_FRAG, field::FRAG_ANY | later);
        }
    }

    /// Notes where the network packet ends by its own word; says whether the
    /// bytes end before that.
    fn ends_at(&mut self, end: usize) -> bool {
        let cut = end > self.headers.end as usize;
        if !cut {
            self.headers.end = end as u16;
        }
        cut
    }

    /// A packet that is shorter than its length field declares is truncated, even
    /// when every header is there.
    fn cut_short(&mut self, cut: bool) {
        if cut && self.headers.status == ParseStatus::Complete {
            self.stop(ParseStatus::Truncated);
        }
    }
}
