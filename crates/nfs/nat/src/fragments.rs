//! Fragments after the first carry no ports; they are translated like the first.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use thalweg_packet::{Batch, Nanoseconds, field};

/// How long the first fragment of a packet is remembered.
const LIFE: Nanoseconds = Nanoseconds::from_secs(30);
/// The most fragmented packets that are tracked at a time; beyond that the oldest is
/// evicted.
const MOST: usize = 4096;
/// The room of a hash table for as many entries: with half of it free, the table does not grow while
/// packets wait, though removed entries take places. Untouched, it takes no memory.
pub(super) const ROOM: usize = 2 * MOST;
/// The most that a packet forgets of those whose time is over.
const STEP: usize = 8;

/// What the fragments of one packet have in common (RFC 791).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FragmentId {
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
}

impl FragmentId {
    /// The id of the IPv4 packet in `lane`, if it is a fragment.
    pub(super) fn of(batch: &Batch, lane: usize) -> Option<Self> {
        let headers = batch.headers(lane);
        let header = batch.bytes(lane).get(headers.l3 as usize..)?;
        let identification = header.get(4..)?.first_chunk::<2>()?;
        headers.fragment.then(|| Self {
            source: batch.field(lane, field::NW_SRC) as u32,
            destination: batch.field(lane, field::NW_DST) as u32,
            protocol: batch.field(lane, field::NW_PROTO) as u8,
            identification: u16::from_be_bytes(*identification),
        })
    }
}

impl FragmentId {
    /// The address of the sender.
    pub(super) fn source(&self) -> u32 {
        self.source
    }

    #[cfg(test)]
    pub(super) fn test(source: u32, identification: u16) -> Self {
        Self { source, destination: 2, protocol: 17, identification }
    }
}

/// Whether the time of a fragment of `since` is over.
pub(super) fn is_over(since: Nanoseconds, now: Nanoseconds) -> bool {
    since.plus(LIFE) <= now
}

/// The addresses that first fragments were translated to, for later fragments.
#[derive(Debug)]
pub(super) struct Fragments {
    found: HashMap<FragmentId, (Ipv4Addr, Nanoseconds)>,
    /// In order of time; an id that is seen again is in it twice.
    order: VecDeque<(FragmentId, Nanoseconds)>,
    /// Packets evicted early, because there were too many.
    pub(super) evicted: u64,
}

impl Fragments {
    pub(super) fn new() -> Self {
        let order = VecDeque::with_capacity(MOST);
        Self { found: HashMap::with_capacity(ROOM), order, evicted: 0 }
    }

    /// The address that the first fragment was translated to.
    pub(super) fn get(&self, id: FragmentId, now: Nanoseconds) -> Option<Ipv4Addr> {
        let found = self.found.get(&id).filter(|(_, made)| !is_over(*made, now));
        found.map(|(address, _)| *address)
    }

    pub(super) fn remember(&mut self, id: FragmentId, address: Ipv4Addr, now: Nanoseconds) {
        while self.order.len() >= MOST {
            let is_early = self.order.front().is_some_and(|(_, made)| !is_over(*made, now));
            self.evicted += u64::from(self.forget_oldest() && is_early);
        }
        self.found.insert(id, (address, now));
        self.order.push_back((id, now));
    }

    /// Forgets some of those whose time is over.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        for _ in 0..STEP {
            if !self.order.front().is_some_and(|(_, made)| is_over(*made, now)) {
                return;
            }
            self.forget_oldest();
        }
    }

    /// Returns whether the id was not seen again since.
    fn forget_oldest(&mut self) -> bool {
        let Some((id, made)) = self.order.pop_front() else { return false };
        let is_newest = self.found.get(&id).is_some_and(|(_, newest)| *newest == made);
        if is_newest {
            self.found.remove(&id);
        }
        is_newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(identification: u16) -> FragmentId {
        FragmentId::test(1, identification)
    }

    #[test]
    fn no_more_are_remembered_than_may_be_and_no_longer() {
        let mut fragments = Fragments::new();
        for n in 0..=MOST as u16 {
            fragments.remember(id(n), Ipv4Addr::LOCALHOST, Nanoseconds(u64::from(n)));
        }
        assert_eq!((fragments.found.len(), fragments.order.len()), (MOST, MOST));
        assert_eq!(fragments.evicted, 1);
        assert_eq!(fragments.get(id(0), Nanoseconds(1)), None);
        assert!(fragments.get(id(1), Nanoseconds(1)).is_some());
        let later = Nanoseconds(1).plus(LIFE);
        fragments.expire(later);
        assert_eq!(fragments.found.len(), MOST - 1);
        assert_eq!(fragments.get(id(1), later), None);
        assert!(fragments.get(id(2), later).is_some());
        assert_eq!(fragments.evicted, 1, "the others had their time");
    }

    #[test]
    fn the_table_does_not_grow() {
        let mut fragments = Fragments::new();
        let room = fragments.found.capacity();
        for n in 0..50 * MOST as u32 {
            let id = FragmentId::test(n, n as u16);
            fragments.remember(id, Ipv4Addr::LOCALHOST, Nanoseconds(0));
            assert!(fragments.found.capacity() <= room, "{n}");
        }
    }

    #[test]
    fn an_id_used_again_lives_from_then_on() {
        let mut fragments = Fragments::new();
        fragments.remember(id(1), Ipv4Addr::LOCALHOST, Nanoseconds(0));
        fragments.remember(id(1), Ipv4Addr::BROADCAST, Nanoseconds::from_secs(20));
        for (seconds, expected) in [(49, Some(Ipv4Addr::BROADCAST)), (50, None)] {
            let now = Nanoseconds::from_secs(seconds);
            fragments.expire(now);
            assert_eq!(fragments.get(id(1), now), expected);
        }
        assert!(fragments.found.is_empty() && fragments.order.is_empty());
    }

    #[test]
    fn those_whose_time_is_over_at_once_are_forgotten_some_at_a_time() {
        let (mut fragments, now) = (Fragments::new(), Nanoseconds(0).plus(LIFE));
        for n in 0..100 {
            fragments.remember(id(n), Ipv4Addr::LOCALHOST, Nanoseconds(0));
        }
        for left in (0..100).rev().step_by(STEP) {
            fragments.expire(now);
            assert_eq!(fragments.found.len(), (left + 1) - STEP.min(left + 1));
            assert!((0..100).all(|n| fragments.get(id(n), now).is_none()));
        }
        assert!(fragments.order.is_empty());
    }
}
