//! The steering hash: the bucket that a flow and its packets belong to.
//!
//! Everything that divides flows uses it: the parts of a divided NF ([`Division`](crate::Division)),
//! the units in which state moves to another instance ([`Units`]), and state streams of some
//! buckets only ([`Buckets`]).

use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{BATCH, Batch, FiveTuple, Lanes, address_bits, field};

/// How many buckets all flows are divided into.
pub const BUCKETS: usize = 4096;

/// An address (IPv4 mapped to IPv6) and a port.
pub(crate) type End = (u128, u16);

/// The prefix of an IPv4 address mapped to IPv6.
pub(crate) const MAPPED: u128 = 0xffff << 32;

/// The steering hash, keyed by one seed.
///
/// It depends on the two ends of a flow and not on their order, so that both directions share a
/// bucket. Ends have ports in whole packets of TCP, UDP and SCTP; all else, fragments included, goes
/// by its addresses alone. Instances that exchange state must have the same seed; the default is
/// fixed, so that every run over a capture divides it alike.
///
/// The hash balances flows that were not chosen against it; a sender who knows the seed can choose
/// flows of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    seed: u64,
}

impl Steering {
    /// The hash keyed by `seed`.
    pub const fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// The bucket of the flow between two ends.
    #[inline]
    pub(crate) fn between(self, a: End, b: End) -> u16 {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let ports = u64::from(low.1) << 16 | u64::from(high.1);
        self.hash([(low.0 >> 64) as u64, low.0 as u64, (high.0 >> 64) as u64, high.0 as u64, ports])
    }

    /// The bucket of the addresses of a flow, the lower end first, and of its ports.
    #[inline]
    pub(crate) fn hash(self, words: [u64; 5]) -> u16 {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4), word by word.
        let fold = |hash: u64, word: u64| {
            let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 32
        };
        let hash = words.into_iter().fold(self.seed, fold);
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u16
    }

    /// The bucket of a flow.
    pub fn of_flow(self, flow: &FiveTuple) -> u16 {
        let (mut from, mut to) =
            ((address_bits(flow.src), flow.src_port), (address_bits(flow.dst), flow.dst_port));
        if !has_ports(flow.protocol) {
            (from.1, to.1) = (0, 0);
        }
        self.between(from, to)
    }

    /// The bucket of the packet in `lane`, as of the last parse: that of its flow, or of its
    /// addresses if it is a fragment; 0 if it is not IP.
    #[inline]
    pub fn of_packet(self, batch: &Batch, lane: usize) -> u16 {
        let Some((mut from, mut to)) = ends(batch, lane) else { return 0 };
        if batch.headers(lane).fragment || !has_ports(batch.field(lane, field::NW_PROTO) as u8) {
            (from.1, to.1) = (0, 0);
        }
        self.between(from, to)
    }

    /// The buckets of the packets in `lanes`, by lane.
    pub fn of_packets(self, batch: &Batch, lanes: Lanes) -> [u16; BATCH] {
        let mut buckets = [0; BATCH];
        lanes.into_iter().for_each(|lane| buckets[lane] = self.of_packet(batch, lane));
        buckets
    }
}

/// Whether the fields for ports hold ports in packets of a protocol: those of ICMP hold its type.
#[inline]
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
}

/// Source and destination of the packet in `lane`, with the fields for ports as they are; `None` if
/// it is not IP.
#[inline]
pub(crate) fn ends(batch: &Batch, lane: usize) -> Option<(End, End)> {
    let get = |place| batch.field(lane, place);
    let wide = |place| batch.field128(lane, place);
    let narrow = |place| MAPPED | u128::from(get(place));
    let (from, to) = match get(field::DL_TYPE) as u16 {
        ethertype::IPV4 => (narrow(field::NW_SRC), narrow(field::NW_DST)),
        ethertype::IPV6 => (wide(field::IPV6_SRC), wide(field::IPV6_DST)),
        _ => return None,
    };
    Some(((from, get(field::TP_SRC) as u16), (to, get(field::TP_DST) as u16)))
}

/// A division of all buckets into units, each of which moves as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    steering: Steering,
    /// The number of units, a power of two.
    count: u16,
}

impl Units {
    /// A division into `count` units; `None` unless it is a power of two up to [`BUCKETS`].
    ///
    /// Fewer units need fewer round trips, more units wait for less: 256 suit up to 300,000 flows.
    pub fn new(count: usize, steering: Steering) -> Option<Self> {
        let is_possible = count.is_power_of_two() && count <= BUCKETS;
        is_possible.then_some(Self { steering, count: count as u16 })
    }

    /// All state as one unit.
    pub const fn whole() -> Self {
        Self { steering: Steering::with_seed(0), count: 1 }
    }

    /// The number of units.
    pub fn count(self) -> usize {
        self.count.into()
    }

    /// The hash that gives the buckets.
    pub fn steering(self) -> Steering {
        self.steering
    }

    /// The unit of a bucket.
    #[inline]
    pub fn of_bucket(self, bucket: u16) -> u16 {
        (usize::from(bucket) * usize::from(self.count) / BUCKETS) as u16
    }

    /// The buckets of a unit.
    pub fn buckets_of(self, unit: u16) -> impl Iterator<Item = u16> {
        let each = BUCKETS / usize::from(self.count);
        let first = usize::from(unit) * each;
        (first..first + each).map(|bucket| bucket as u16)
    }
}

/// A set of buckets: the share of all flows that one owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    steering: Steering,
    bits: Box<[u64; BUCKETS / 64]>,
}

impl Buckets {
    /// The set of `buckets`.
    ///
    /// # Panics
    /// When there is none of such a number.
    pub fn new(steering: Steering, buckets: impl IntoIterator<Item = u16>) -> Self {
        let mut bits = Box::new([0; BUCKETS / 64]);
        for bucket in buckets {
            bits[usize::from(bucket) / 64] |= 1 << (bucket % 64);
        }
        Self { steering, bits }
    }

    /// Whether a bucket is in the set.
    pub fn has(&self, bucket: u16) -> bool {
        self.bits.get(usize::from(bucket) / 64).is_some_and(|bits| bits >> (bucket % 64) & 1 == 1)
    }

    /// Whether the state of `flows` belongs to the set: that of several goes by the first, and that
    /// of none by bucket 0, as packets that are not IP do. So each record has exactly one bucket.
    pub fn have(&self, flows: &[FiveTuple]) -> bool {
        self.has(flows.first().map_or(0, |flow| self.steering.of_flow(flow)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use thalweg_packet::write::{PacketBuilder, TcpSegment};
    use thalweg_packet::{Decapsulate, Pool};

    use super::*;

    /// The bucket of a packet, and the flow that it reads as.
    fn steered(steering: Steering, bytes: &[u8]) -> (u16, Option<FiveTuple>) {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(4, 2048).unwrap()));
        let lane = batch.push_bytes(bytes).unwrap();
        batch.parse(Lanes::one(lane), Decapsulate::No);
        let bucket = steering.of_packets(&batch, Lanes::one(lane))[lane];
        (bucket, FiveTuple::of(&batch, lane))
    }

    fn packet(a: [u8; 4], b: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
        let segment = TcpSegment { src_port: ports.0, dst_port: ports.1, ..TcpSegment::default() };
        PacketBuilder::new([2; 6], [4; 6]).ip(a.into(), b.into()).tcp(segment).build(b"data")
    }

    proptest! {
        #[test]
        fn a_packet_its_flow_and_the_answer_share_a_bucket(
            seed: u64, a: [u8; 4], b: [u8; 4], ports: (u16, u16),
        ) {
            let steering = Steering::with_seed(seed);
            let (bucket, flow) = steered(steering, &packet(a, b, ports));
            prop_assert!(usize::from(bucket) < BUCKETS);
            prop_assert_eq!(steered(steering, &packet(b, a, (ports.1, ports.0))).0, bucket);
            let flow = flow.unwrap();
            prop_assert_eq!(steering.of_flow(&flow), bucket);
            prop_assert_eq!(steering.of_flow(&flow.reversed()), bucket);
        }
    }

    #[test]
    fn fragments_go_by_their_addresses() {
        let steering = Steering::with_seed(9);
        let whole = packet([10, 0, 0, 1], [10, 0, 0, 2], (7, 80));
        let fragment = |flags: u8| {
            let mut bytes = whole.clone();
            bytes[20] = flags;
            steered(steering, &bytes).0
        };
        let addresses = FiveTuple {
            src: [10, 0, 0, 2].into(),
            dst: [10, 0, 0, 1].into(),
            protocol: 17,
            src_port: 0,
            dst_port: 0,
        };
        let of_addresses = steering.of_flow(&addresses);
        assert_eq!((fragment(0x20), fragment(0x01)), (of_addresses, of_addresses));
        assert_ne!(fragment(0), of_addresses);
        // A type and a code of ICMP are not ports.
        let echo = FiveTuple { protocol: 1, src_port: 8, dst_port: 3, ..addresses };
        assert_eq!(steering.of_flow(&echo), of_addresses);
        assert_eq!(steered(steering, &[0; 60]), (0, None));
    }

    #[test]
    fn flows_spread_evenly_and_by_the_seed() {
        let flows = || {
            (0u16..=u16::MAX).map(|n| FiveTuple {
                src: [10, 0, (n >> 12) as u8, (n >> 6) as u8 & 63].into(),
                dst: [10, 1, 0, 1].into(),
                protocol: 6,
                src_port: 1024 + (n & 63),
                dst_port: 80,
            })
        };
        for (seed, count) in [(0, 16), (1, 16), (77, 256)] {
            let units = Units::new(count, Steering::with_seed(seed)).unwrap();
            let mut load = vec![0usize; count];
            for flow in flows() {
                load[usize::from(units.of_bucket(units.steering().of_flow(&flow)))] += 1;
            }
            let fair = 64 * 1024 / count;
            assert!(load.iter().all(|n| *n > fair / 2 && *n < fair * 2), "{load:?}");
        }
        let moved = flows()
            .filter(|flow| {
                Steering::with_seed(1).of_flow(flow) != Steering::with_seed(2).of_flow(flow)
            })
            .count();
        assert!(moved > 60_000, "only {moved} flows have another bucket with another seed");
    }

    #[test]
    fn units_divide_the_buckets() {
        let steering = Steering::default();
        for count in [1, 2, 256, 4096] {
            let units = Units::new(count, steering).unwrap();
            let all = (0..count as u16)
                .flat_map(|unit| units.buckets_of(unit).map(move |bucket| (bucket, unit)));
            let all: Vec<_> = all.collect();
            assert_eq!(all.len(), BUCKETS);
            assert!(all.iter().all(|(bucket, unit)| units.of_bucket(*bucket) == *unit));
        }
        for count in [0, 3, 8192] {
            assert_eq!(Units::new(count, steering), None);
        }
        assert_eq!(Units::whole().count(), 1);
    }

    #[test]
    fn a_set_of_buckets_has_each_record_or_not() {
        let flow = |n: u8| FiveTuple {
            src: [10, 0, 0, n].into(),
            dst: [10, 0, 1, 0].into(),
            protocol: 17,
            src_port: 1,
            dst_port: 2,
        };
        let steering = Steering::default();
        let set = Buckets::new(steering, [0, steering.of_flow(&flow(1)), 4095]);
        assert!(set.have(&[]) && set.have(&[flow(1)]) && set.have(&[flow(1), flow(2)]));
        assert!(!set.have(&[flow(2), flow(1)]) && !set.has(1) && set.has(4095));
    }
}
