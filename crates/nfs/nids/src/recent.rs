//! Where the connections of recent segments lie.
//!
//! Most segments follow another of their connection and direction, whose lookup found a slot. This
//! remembers a few thousand of them, by addresses and ports as they are in the packet. A connection that
//! leaves its slot is forgotten; one that is not remembered is looked up.

use thalweg_packet::{Batch, field};

use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;

/// The number of sets, and the segments that share one.
const SETS: usize = 2048;
const WAYS: usize = 2;

/// The addresses and the ports of a segment of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tuple {
    /// The source, then the destination.
    pub(super) addresses: u64,
    pub(super) ports: u32,
}

/// A slot, and whether the lower endpoint of its connection sends these segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) slot: Slot,
    pub(super) from_low: bool,
}

/// A set, in half a cache line. Free ways are those of a tuple without addresses.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
struct Set {
    addresses: [u64; WAYS],
    ports: [u32; WAYS],
    /// Slots, and in the lowest bit who sends.
    places: [u32; WAYS],
}

/// The connections of recent segments.
#[derive(Debug)]
pub(super) struct Recent(Box<[Set; SETS]>);

impl Default for Recent {
    fn default() -> Self {
        let sets = vec![Set::default(); SETS].into_boxed_slice();
        Self(sets.try_into().expect("as many sets as there are"))
    }
}

impl Tuple {
    /// Reads those of segments of IPv4, by lane. Others have no addresses.
    #[inline(always)]
    pub(super) fn of(batch: &Batch) -> impl Fn(usize) -> Self {
        const { assert!(field::NW_SRC.word == field::NW_DST.word) };
        const { assert!(field::TP_SRC.word == field::TP_DST.word) };
        let half = |word: u8, upper| batch.keys().half(2 * usize::from(word) + upper);
        let (destinations, sources) = (half(field::NW_SRC.word, 0), half(field::NW_SRC.word, 1));
        let ports = half(field::TP_SRC.word, 1);
        move |lane| Self {
            addresses: u64::from(sources[lane]) << 32 | u64::from(destinations[lane]),
            ports: ports[lane],
        }
    }

    /// That of segments in the other direction.
    fn reversed(self) -> Self {
        let (addresses, ports) = (self.addresses, self.ports);
        Self { addresses: addresses.rotate_left(32), ports: ports.rotate_left(16) }
    }

    /// The number of its set. Who chooses tuples that share one only has them looked up.
    #[inline]
    fn set(self) -> usize {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
        let hash = (self.addresses ^ u64::from(self.ports).rotate_left(24))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (u64::BITS - SETS.ilog2())) as usize
    }
}

impl Recent {
    /// Bytes of memory.
    pub(super) const BYTES: usize = SETS * size_of::<Set>();

    /// Where the connection of a segment was.
    #[inline]
    pub(super) fn get(&self, tuple: Tuple) -> Option<Located> {
        let Set { addresses, ports, places } = &self.0[tuple.set()];
        let differs =
            |way: usize| (addresses[way] ^ tuple.addresses) | u64::from(ports[way] ^ tuple.ports);
        let (first, second) = (differs(0), differs(1));
        let place = if first == 0 { places[0] } else { places[1] };
        let is_there = (first == 0 || second == 0) && tuple.addresses != 0;
        is_there.then_some(Located { slot: Slot(place >> 1), from_low: place & 1 == 1 })
    }

    /// Forgets where a connection of TCP is.
    pub(super) fn forget(&mut self, connection: &Conversation) {
        let Some((addresses, ports)) = connection.in_ipv4() else { return };
        let from_low = Tuple { addresses, ports };
        for tuple in [from_low, from_low.reversed()] {
            let set = &mut self.0[tuple.set()];
            for way in 0..WAYS {
                if (set.addresses[way], set.ports[way]) == (tuple.addresses, tuple.ports) {
                    set.addresses[way] = 0;
                }
            }
        }
    }

    /// Remembers where it is, for a tuple with addresses, in place of the older one of its set.
    pub(super) fn put(&mut self, tuple: Tuple, Located { slot, from_low }: Located) {
        if tuple.addresses == 0 || slot.0 > u32::MAX >> 1 {
            return;
        }
        let set = &mut self.0[tuple.set()];
        let is_first = (set.addresses[0], set.ports[0]) == (tuple.addresses, tuple.ports);
        if !is_first {
            set.addresses[1] = set.addresses[0];
            set.ports[1] = set.ports[0];
            set.places[1] = set.places[0];
        }
        (set.addresses[0], set.ports[0]) = (tuple.addresses, tuple.ports);
        set.places[0] = slot.0 << 1 | u32::from(from_low);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use thalweg_packet::FiveTuple;
    use thalweg_packet::wire::ip_proto::TCP;

    use super::*;

    /// The conversation of segments with a tuple.
    fn conversation(Tuple { addresses, ports }: Tuple) -> Conversation {
        let address = |half: u64| Ipv4Addr::from(half as u32).into();
        let (conversation, _) = Conversation::of(&FiveTuple {
            src: address(addresses >> 32),
            dst: address(addresses),
            src_port: (ports >> 16) as u16,
            dst_port: ports as u16,
            protocol: TCP,
        });
        conversation
    }

    proptest! {
        /// The latest two tuples of a set are remembered, nothing is invented, and what is forgotten stays so.
        #[test]
        fn what_was_put_is_there_until_it_is_forgotten(
            steps in proptest::collection::vec(
                (0..40u64, 0..3u32, 0..1_000_000u32, any::<bool>(), prop::bool::weighted(0.2)), 1..200),
        ) {
            let mut recent = Recent::default();
            let mut known = std::collections::HashMap::new();
            for (address, port, slot, from_low, is_forgotten) in steps {
                let mut tuple = Tuple { addresses: address << 32 | 7, ports: port << 16 | 1 };
                if from_low {
                    tuple = tuple.reversed();
                }
                if is_forgotten {
                    recent.forget(&conversation(tuple));
                    for tuple in [tuple, tuple.reversed()] {
                        known.remove(&(tuple.addresses, tuple.ports));
                        prop_assert_eq!(recent.get(tuple), None);
                    }
                } else {
                    let place = Located { slot: Slot(slot), from_low };
                    recent.put(tuple, place);
                    known.insert((tuple.addresses, tuple.ports), place);
                    prop_assert_eq!(recent.get(tuple), Some(place));
                }
                for ((addresses, ports), last) in &known {
                    let found = recent.get(Tuple { addresses: *addresses, ports: *ports });
                    prop_assert!(found.is_none_or(|found| found == *last));
                }
            }
            prop_assert_eq!(recent.get(Tuple { addresses: 1 << 60, ports: 0 }), None);
            prop_assert_eq!(recent.get(Tuple::default()), None);
        }
    }
}
