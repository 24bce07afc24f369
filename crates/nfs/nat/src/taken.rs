//! The external ports that mappings have taken.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::Protocol;
use super::mapping::EndPoint;

/// The ports that are taken: a bit for each, in words of 64 by protocol and address.
///
/// A free port among many taken ones is found word by word: at most 1,024 of them, where a lookup of
/// each port would take milliseconds.
#[derive(Debug, Default)]
pub(super) struct TakenPorts(BTreeMap<Word, u64>);

/// A word of ports, the lowest in the lowest bit.
pub(super) type Word = (Protocol, Ipv4Addr, u16);

impl TakenPorts {
    pub(super) fn take(&mut self, EndPoint(protocol, address, port): EndPoint) {
        *self.0.entry((protocol, address, port / 64)).or_default() |= 1 << (port % 64);
    }

    pub(super) fn give_back(&mut self, EndPoint(protocol, address, port): EndPoint) {
        let word = (protocol, address, port / 64);
        if let Some(taken) = self.0.get_mut(&word) {
            *taken &= !(1 << (port % 64));
            if *taken == 0 {
                self.0.remove(&word);
            }
        }
    }

    /// The first free port from `start` on, and after the end of `range` from its beginning, that is
    /// odd or even as that of `like`, and of its protocol and address.
    pub(super) fn first_free(
        &self,
        like: EndPoint,
        range: &RangeInclusive<u16>,
        start: u16,
    ) -> Option<EndPoint> {
        let after = self.free_in(like, start..=*range.end());
        let before = || self.free_in(like, *range.start()..=start.checked_sub(1)?);
        after.or_else(before).map(|port| EndPoint(like.0, like.1, port))
    }

    fn free_in(&self, like: EndPoint, range: RangeInclusive<u16>) -> Option<u16> {
        let EndPoint(protocol, address, port) = like;
        let (first, last) = (*range.start(), *range.end());
        if first > last {
            return None;
        }
        let parity = 0x5555_5555_5555_5555 << (port & 1);
        let word = |number| (protocol, address, number);
        let mut known = self.0.range(word(first / 64)..=word(last / 64)).peekable();
        (first / 64..=last / 64).find_map(|number| {
            let known = known.next_if(|(word, _)| word.2 == number);
            let mut free = parity & !known.map_or(0, |(_, taken)| *taken);
            if number == first / 64 {
                free &= u64::MAX << (first % 64);
            }
            if number == last / 64 {
                free &= u64::MAX >> (63 - last % 64);
            }
            (free != 0).then(|| number * 64 + free.trailing_zeros() as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(port: u16) -> EndPoint {
        EndPoint(Protocol::Udp, Ipv4Addr::new(192, 0, 2, 1), port)
    }

    proptest! {
        #[test]
        fn the_first_free_port_is_found_as_by_trying_each(
            runs in proptest::collection::vec((0u16..2000, 0u16..300), 0..12),
            given_back in proptest::collection::vec(0u16..2300, 0..20),
            low in 0u16..1500,
            span in 0u16..800,
            start in 0u16..800,
            port in any::<u16>(),
        ) {
            let mut taken = TakenPorts::default();
            let mut is_taken = [false; 2300];
            for (first, run) in runs {
                for port in first..first + run {
                    taken.take(end(port));
                    is_taken[usize::from(port)] = true;
                }
            }
            for port in given_back {
                taken.give_back(end(port));
                is_taken[usize::from(port)] = false;
            }
            let (range, start) = (low..=low + span, low + start.min(span));
            let mut all = (start..=low + span).chain(low..start);
            let free = all.find(|p| (p ^ port) & 1 == 0 && !is_taken[usize::from(*p)]);
            prop_assert_eq!(taken.first_free(end(port), &range, start), free.map(end));
            // Those of another protocol are its own.
            let other = EndPoint(Protocol::Tcp, end(0).1, port);
            let first = start + ((start ^ port) & 1);
            if first <= low + span {
                let found = taken.first_free(other, &range, start);
                prop_assert_eq!(found, Some(EndPoint(Protocol::Tcp, end(0).1, first)));
            }
        }
    }

    #[test]
    fn the_highest_port_is_one_of_the_range() {
        let mut taken = TakenPorts::default();
        (1024..65535).for_each(|port| taken.take(end(port)));
        assert_eq!(taken.first_free(end(1), &(1024..=65535), 3000), Some(end(65535)));
        assert_eq!(taken.first_free(end(2), &(1024..=65535), 3000), None);
    }
}
