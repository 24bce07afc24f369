//! Ethernet II, 802.3 with LLC and SNAP, VLAN tags, MPLS labels, ARP.

use super::{Parser, mac};
use crate::headers::{Layer, ParseStatus};
use crate::key::field;
use crate::wire::ethertype;
use crate::wire::header_len::ETHERNET;

const ARP: usize = 28;

/// The EtherType of frames that have none, as in Open vSwitch.
const NOT_ETHERNET_II: u16 = 0x05ff;
/// The smallest number that is an EtherType and not a length.
const FIRST_ETHER_TYPE: u16 = 0x0600;

impl Parser<'_> {
    /// Parses from the Ethernet header at `at` upwards.
    pub(super) fn ethernet(&mut self, at: usize) {
        let Some(header) = self.array::<ETHERNET>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = header;
        self.headers.l2 = at as u16;
        self.set(field::DL_DST, mac([d0, d1, d2, d3, d4, d5]));
        self.set(field::DL_SRC, mac([s0, s1, s2, s3, s4, s5]));
        self.reached(Layer::Link, at + ETHERNET);

        let Some((mut ether_type, mut next)) =
            self.vlan_tags(u16::from_be_bytes([t0, t1]), at + ETHERNET)
        else {
            return self.stop(ParseStatus::Truncated);
        };
        if ether_type < FIRST_ETHER_TYPE {
            (ether_type, next) = self.llc(next);
        }
        self.set(field::DL_TYPE, u64::from(ether_type));
        self.reached(Layer::Link, next);
        self.network(ether_type, next);
    }

    /// Takes off VLAN tags: the EtherType after them and where it leads.
    fn vlan_tags(&mut self, mut ether_type: u16, mut next: usize) -> Option<(u16, usize)> {
        let places = [(field::VLAN_TCI, field::VLAN_TPID), (field::VLAN2_TCI, field::VLAN2_TPID)];
        for (tci, tpid) in places {
            if !ethertype::VLAN_TPIDS.contains(&ether_type) {
                break;
            }
            let [c0, c1, t0, t1] = self.array(next)?;
            let value = u64::from(u16::from_be_bytes([c0, c1])) | field::VLAN_PRESENT;
            self.set(tci, value);
            self.set(tpid, u64::from(ether_type));
            ether_type = u16::from_be_bytes([t0, t1]);
            next += 4;
            self.reached(Layer::Link, next);
        }
        Some((ether_type, next))
    }

    /// An 802.3 frame: the EtherType of its SNAP header, or 0x05ff.
    fn llc(&self, at: usize) -> (u16, usize) {
        match self.array::<8>(at) {
            Some([0xaa, 0xaa, 0x03, 0, 0, 0, t0, t1]) => match u16::from_be_bytes([t0, t1]) {
                t if t >= FIRST_ETHER_TYPE => (t, at + 8),
                _ => (NOT_ETHERNET_II, at),
            },
            _ => (NOT_ETHERNET_II, at),
        }
    }

    /// Parses the header of type `ether_type` at `at`.
    pub(super) fn network(&mut self, ether_type: u16, at: usize) {
        match ether_type {
            ethertype::IPV4 => self.ipv4(at),
            ethertype::IPV6 => self.ipv6(at),
            ethertype::ARP | ethertype::RARP => self.arp(ether_type, at),
            ethertype::MPLS | ethertype::MPLS_MULTICAST => self.mpls(at),
            // A frame of a protocol that has no flow key fields is whole as it is.
            _ if ether_type == NOT_ETHERNET_II => {}
            _ => self.stop(ParseStatus::Unknown),
        }
    }

    /// The MPLS label stack, of which three entries have a place in the key.
    fn mpls(&mut self, mut at: usize) {
        let places = [field::MPLS_LSE, field::MPLS_LSE2, field::MPLS_LSE3];
        let mut places = places.into_iter();
        loop {
            let Some(entry) = self.array(at).map(u32::from_be_bytes) else {
                return self.stop(ParseStatus::Truncated);
            };
            if let Some(place) = places.next() {
                self.set(place, u64::from(entry));
            }
            at += 4;
            self.reached(Layer::Link, at);
            if entry & 0x100 != 0 {
                return;
            }
        }
    }

    /// ARP and RARP for IPv4 over Ethernet (RFC 826).
    fn arp(&mut self, ether_type: u16, at: usize) {
        let Some(arp) = self.array::<ARP>(at) else {
            return self.stop(ParseStatus::Truncated);
        };
        if arp[..6] != [0, 1, 0x08, 0x00, 6, 4] {
            return self.stop(ParseStatus::Unknown);
        }
        let address = |i: usize| u32::from_be_bytes([arp[i], arp[i + 1], arp[i + 2], arp[i + 3]]);
        let hardware =
            |i: usize| mac([arp[i], arp[i + 1], arp[i + 2], arp[i + 3], arp[i + 4], arp[i + 5]]);
        // The field is 8 bits wide; opcodes above are not in use.
        if arp[6] == 0 {
            self.set(field::NW_PROTO, u64::from(arp[7]));
        }
        self.set(field::ARP_SHA, hardware(8));
        self.set(field::NW_SRC, u64::from(address(14)));
        self.set(field::ARP_THA, hardware(18));
        self.set(field::NW_DST, u64::from(address(24)));
        self.headers.l3 = at as u16;
        self.headers.ether_type = ether_type;
        self.headers.end = (at + ARP) as u16;
        self.reached(Layer::Network, at + ARP);
    }
}
