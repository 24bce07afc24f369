//! The two ends of a conversation, independent of the direction.

use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{BATCH, Batch, Field, FiveTuple, Lanes, address_bits, address_of, field};

use crate::steering::{self, End, Steering};
use crate::toolkit::flow_table::FlowWords;

/// The identity of a conversation: the same for both directions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(from = "Ends", into = "Ends")]
pub struct Conversation {
    /// The lower and the higher address, then the ports in that order and the protocol.
    words: [u64; 5],
}

/// A conversation as serialised: its lower end, its higher end, its protocol.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Ends(End, End, u8);

impl Conversation {
    /// The conversation of a packet, and whether the lower end sent the packet.
    pub fn of(tuple: &FiveTuple) -> (Self, bool) {
        let from = (address_bits(tuple.src), tuple.src_port);
        let to = (address_bits(tuple.dst), tuple.dst_port);
        Self::between(from, to, tuple.protocol)
    }

    /// That of the packet in `lane`, as of the last parse; `None` if it is not IP.
    #[inline]
    pub fn in_lane(batch: &Batch, lane: usize) -> Option<(Self, bool)> {
        let (from, to) = steering::ends(batch, lane)?;
        Some(Self::between(from, to, batch.field(lane, field::NW_PROTO) as u8))
    }

    /// The conversations of the packets in `lanes` that have a transport header, as of the last parse:
    /// their [words](FlowWords::words) into `words`, one after the other. Returns the lanes that have
    /// one, and those of them whose packet the lower end sent.
    pub fn in_lanes(batch: &Batch, lanes: Lanes, words: &mut [[u64; 5]; BATCH]) -> (Lanes, Lanes) {
        // Sums in registers, and each word is stored where it belongs: a copy of a whole conversation
        // would wait for the stores of its words.
        let (mut known, mut from_lows, mut count) = (0, 0, 0);
        let (ether_type, protocol) =
            (column(batch, field::DL_TYPE), column(batch, field::NW_PROTO));
        let sources = (column(batch, field::NW_SRC), column(batch, field::TP_SRC));
        let destinations = (column(batch, field::NW_DST), column(batch, field::TP_DST));
        for lane in lanes {
            if batch.headers(lane).l4 == 0 {
                continue;
            }
            let words = &mut words[count];
            let from_low = if ether_type(lane) == u32::from(ethertype::IPV4) {
                let from = (sources.0(lane), sources.1(lane) as u16);
                let to = (destinations.0(lane), destinations.1(lane) as u16);
                let (ends, from_low) = Self::between_ipv4(from, to, protocol(lane) as u8);
                let [low, low_rest, high, high_rest, last] = ends.words;
                (words[0], words[1], words[2]) = (low, low_rest, high);
                (words[3], words[4]) = (high_rest, last);
                from_low
            } else {
                let Some((ends, from_low)) = Self::in_lane(batch, lane) else { continue };
                *words = ends.words;
                from_low
            };
            count += 1;
            known |= 1 << lane;
            from_lows |= u32::from(from_low) << lane;
        }
        (Lanes(known), Lanes(from_lows))
    }

    /// As [`between`](Self::between), of IPv4: an end in a register.
    #[inline(always)]
    fn between_ipv4(from: (u32, u16), to: (u32, u16), protocol: u8) -> (Self, bool) {
        let has_ports = steering::has_ports(protocol);
        let end = |(address, port): (u32, u16)| {
            u64::from(address) << 16 | if has_ports { u64::from(port) } else { 0 }
        };
        let (from, to) = (end(from), end(to));
        let (low, high) = (from.min(to), from.max(to));
        let address = |end: u64| steering::MAPPED as u64 | end >> 16;
        let ports = (low & 0xffff) << 32 | (high & 0xffff) << 16;
        let words = [0, address(low), 0, address(high), ports | u64::from(protocol)];
        (Self { words }, from <= to)
    }

    /// Whether it is the conversation over a `protocol` with ports between two ends of IPv4: the source
    /// and the destination of a packet, of which the first is the upper half of `addresses` and of
    /// `ports`, sent by the lower end or not.
    #[inline]
    pub fn is_of_ipv4(&self, addresses: u64, ports: u32, protocol: u8, from_low: bool) -> bool {
        let turns = u32::from(!from_low);
        let addresses = addresses.rotate_left(turns * u32::BITS);
        let ports = ports.rotate_left(turns * u16::BITS);
        let address = |address: u64| steering::MAPPED as u64 | address;
        let last = u64::from(ports) << 16 | u64::from(protocol);
        let words =
            [0, address(addresses >> 32), 0, address(addresses & u64::from(u32::MAX)), last];
        // Comparing arrays of more than four words calls a function.
        self.words.iter().zip(words).fold(0, |differs, (a, b)| differs | a ^ b) == 0
    }

    /// Addresses and ports with which [it is](Self::is_of_ipv4) sent by the lower end, if both ends are of IPv4.
    pub fn in_ipv4(&self) -> Option<(u64, u32)> {
        let Ends((low, low_port), (high, high_port), _) = (*self).into();
        let address = |end: u128| u32::try_from(end ^ steering::MAPPED).ok().map(u64::from);
        let ports = u32::from(low_port) << 16 | u32::from(high_port);
        Some((address(low)? << 32 | address(high)?, ports))
    }

    #[inline]
    fn between(mut from: End, mut to: End, protocol: u8) -> (Self, bool) {
        // The numbers in ICMP's port fields are not ports.
        if !steering::has_ports(protocol) {
            (from.1, to.1) = (0, 0);
        }
        let from_low = from <= to;
        let (low, high) = if from_low { (from, to) } else { (to, from) };
        (Ends(low, high, protocol).into(), from_low)
    }

    /// The bucket of a conversation.
    #[inline]
    pub fn bucket(&self, steering: Steering) -> u16 {
        let [low, low_rest, high, high_rest, last] = self.words;
        // Without the protocol, which is the lowest part of the last word.
        steering.hash([low, low_rest, high, high_rest, last >> 16])
    }

    /// The bucket of the conversation of the packet in `lane`, which for a fragment is that of
    /// conversations without ports, or of the ports in the first fragment; 0 for a packet that is
    /// not IP.
    pub fn bucket_of(batch: &Batch, lane: usize, steering: Steering) -> u16 {
        Self::in_lane(batch, lane).map_or(0, |(conversation, _)| conversation.bucket(steering))
    }

    /// The five-tuple of a packet from the lower end.
    pub fn tuple(&self) -> FiveTuple {
        let Ends((src, src_port), (dst, dst_port), protocol) = (*self).into();
        let (src, dst) = (address_of(src), address_of(dst));
        FiveTuple { src, dst, protocol, src_port, dst_port }
    }
}

/// A field that lies in one half of a word, by lane.
#[inline(always)]
pub fn column(batch: &Batch, Field { word, shift, bits }: Field) -> impl Fn(usize) -> u32 {
    let half = batch.keys().half(2 * usize::from(word) + usize::from(shift / u32::BITS as u8));
    debug_assert!(shift / u32::BITS as u8 == (shift + bits - 1) / u32::BITS as u8);
    let (shift, unused) = (shift % u32::BITS as u8, u32::BITS as u8 - bits);
    move |lane| half[lane] >> shift & u32::MAX >> unused
}

impl From<Ends> for Conversation {
    #[inline]
    fn from(Ends((low, low_port), (high, high_port), protocol): Ends) -> Self {
        let upper = |address: u128| (address >> 64) as u64;
        let ports = u64::from(low_port) << 32 | u64::from(high_port) << 16;
        let last = ports | u64::from(protocol);
        Self { words: [upper(low), low as u64, upper(high), high as u64, last] }
    }
}

impl From<Conversation> for Ends {
    fn from(Conversation { words: [low, low_rest, high, high_rest, last] }: Conversation) -> Self {
        let wide = |upper, lower| u128::from(upper) << 64 | u128::from(lower);
        let ends = ((last >> 32) as u16, (last >> 16) as u16);
        Self((wide(low, low_rest), ends.0), (wide(high, high_rest), ends.1), last as u8)
    }
}

/// A conversation in a VLAN.
impl FlowWords<5> for (u16, Conversation) {
    #[inline]
    fn words(&self) -> [u64; 5] {
        let (vlan, Conversation { words: [low, low_rest, high, high_rest, last] }) = *self;
        // The upper bits of the last word are free.
        [low, low_rest, high, high_rest, u64::from(vlan) << 48 | last]
    }
}

impl FlowWords<5> for Conversation {
    #[inline]
    fn words(&self) -> [u64; 5] {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ends_of_ipv4_make_the_conversation_that_they_make_as_ipv6(
            ends in any::<[u32; 2]>(),
            same in any::<bool>(),
            ports in any::<[u16; 2]>(),
            protocol in prop_oneof![Just(1u8), Just(6), Just(17), Just(132), any::<u8>()],
        ) {
            let [from, to] = if same { [ends[0]; 2] } else { ends };
            let wide = |address: u32| address_bits(IpAddr::V4(address.into()));
            prop_assert_eq!(
                Conversation::between_ipv4((from, ports[0]), (to, ports[1]), protocol),
                Conversation::between((wide(from), ports[0]), (wide(to), ports[1]), protocol)
            );
            if steering::has_ports(protocol) {
                let (own, from_low) = Conversation::between_ipv4((from, ports[0]), (to, ports[1]), protocol);
                let addresses = u64::from(from) << 32 | u64::from(to);
                let both = u32::from(ports[0]) << 16 | u32::from(ports[1]);
                prop_assert!(own.is_of_ipv4(addresses, both, protocol, from_low));
                let (addresses_from_low, ports_from_low) = own.in_ipv4().unwrap();
                prop_assert!(own.is_of_ipv4(addresses_from_low, ports_from_low, protocol, true));
                let (wide, _) = Conversation::between((wide(from) ^ 1 << 40, 1), (wide(to), 2), protocol);
                prop_assert_eq!(wide.in_ipv4(), None);
                let other = own.is_of_ipv4(addresses, both, protocol, !from_low);
                prop_assert_eq!(other, addresses.rotate_left(32) == addresses && ports[0] == ports[1]);
                prop_assert!(!own.is_of_ipv4(addresses, both, protocol ^ 1, from_low));
                prop_assert!(!own.is_of_ipv4(addresses ^ 1, both, protocol, from_low));
                prop_assert!(!own.is_of_ipv4(addresses, both ^ 1 << 16, protocol, from_low));
            }
        }
    }
}
