//! TCP, UDP, SCTP, ICMP and ICMPv6.

use super::{Parser, mac};
use crate::headers::{Layer, ParseStatus};
use crate::key::field;
use crate::wire::ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};
use crate::wire::{ethertype, header_len};

const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

impl Parser<'_> {
    /// Parses the transport header of `protocol` at `at`. Protocols without
    /// ports end the key at the network layer, which is then complete.
    pub(super) fn transport(&mut self, protocol: u8, at: usize) {
        match protocol {
            TCP => self.tcp(at),
            UDP => self.udp(at),
            SCTP => self.sctp(at),
            ICMP => self.icmp(at),
            ICMPV6 if self.headers.ether_type == ethertype::IPV6 => self.icmpv6(at),
            _ => {}
        }
    }

    fn ports(&mut self, at: usize, source: u16, destination: u16, header_len: usize) {
        self.set(field::TP_SRC, u64::from(source));
        self.set(field::TP_DST, u64::from(destination));
        self.headers.l4 = at as u16;
        self.reached(Layer::Transport, at + header_len);
    }

    fn tcp(&mut self, at: usize) {
        let Some(header) = self.array::<20>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < 20 {
            return self.stop(ParseStatus::Inconsistent);
        }
        if at + header_len > self.headers.end as usize {
            return self.stop(ParseStatus::Truncated);
        }
        let flags = u16::from_be_bytes([header[12], header[13]]) & 0x0fff;
        self.set(field::TCP_FLAGS, u64::from(flags));
        let source = u16::from_be_bytes([header[0], header[1]]);
        self.ports(at, source, u16::from_be_bytes([header[2], header[3]]), header_len);
    }

    fn udp(&mut self, at: usize) {
        let Some([s0, s1, d0, d1, l0, l1, _, _]) = self.array::<8>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        self.ports(at, u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]), 8);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let within = length >= 8 && at + length <= self.headers.end as usize;
        // In a first fragment and in a truncated packet the datagram continues beyond.
        if !within && !self.headers.fragment && (length < 8 || !self.is_cut()) {
            self.stop(ParseStatus::Inconsistent);
        }
    }

    fn sctp(&mut self, at: usize) {
        let Some(header) = self.array::<12>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        let source = u16::from_be_bytes([header[0], header[1]]);
        self.ports(at, source, u16::from_be_bytes([header[2], header[3]]), 12);
    }

    fn icmp(&mut self, at: usize) {
        let Some([kind, code, _, _, i0, i1, _, _]) = self.array::<8>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        self.ports(at, u16::from(kind), u16::from(code), 8);
        if matches!(kind, 0 | 8) {
            self.set(field::ICMP_ID, u64::from(u16::from_be_bytes([i0, i1])));
        }
    }

    fn icmpv6(&mut self, at: usize) {
        let Some([kind, code, _, _]) = self.array::<4>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        self.ports(at, u16::from(kind), u16::from(code), 4);
        match kind {
            128 | 129 => match self.u16_at(at + 4) {
                Some(id) => {
                    self.set(field::ICMP_ID, u64::from(id));
                    self.reached(Layer::Transport, (at + 8).min(self.headers.end as usize));
                }
                None => self.stop(ParseStatus::Truncated),
            },
            NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT if code == 0 => {
                self.neighbour_discovery(at);
            }
            _ => {}
        }
    }

    /// Target and link-layer address options of neighbour discovery (RFC 4861).
    /// As in Open vSwitch, the fields are set only when the whole message is good.
    fn neighbour_discovery(&mut self, at: usize) {
        let Some(target) = self.array::<16>(at + 8).map(u128::from_be_bytes) else {
            return self.stop(ParseStatus::Truncated);
        };
        let mut option = at + 24;
        let (mut source, mut destination) = (0, 0);
        while let Some([kind, units]) = self.array::<2>(option) {
            let length = usize::from(units) * 8;
            if length == 0 || option + length > self.headers.end as usize {
                return self.stop(ParseStatus::Inconsistent);
            }
            let address = self.array(option + 2).map_or(0, mac);
            match kind {
                SOURCE_LINK_LAYER if length == 8 && source == 0 => source = address,
                TARGET_LINK_LAYER if length == 8 && destination == 0 => destination = address,
                SOURCE_LINK_LAYER | TARGET_LINK_LAYER => {
                    return self.stop(ParseStatus::Inconsistent);
                }
                _ => {}
            }
            option += length;
        }
        self.key.set128(field::ND_TARGET, target);
        self.set(field::ARP_SHA, source);
        self.set(field::ARP_THA, destination);
        self.reached(Layer::Transport, option.min(self.headers.end as usize));
    }

    /// Whether the network packet continues beyond the available bytes.
    fn is_cut(&self) -> bool {
        let l3 = self.headers.l3 as usize;
        let says = if self.headers.ether_type == ethertype::IPV4 {
            self.u16_at(l3 + 2).map(usize::from)
        } else {
            self.u16_at(l3 + 4).map(|n| usize::from(n) + header_len::IPV6)
        };
        says.is_some_and(|length| l3 + length > self.headers.end as usize)
    }
}
