//! Later fragments that wait for their first one, which has the ports (RFC 4787 REQ-14).

use std::collections::{BTreeMap, HashMap};

use thalweg_packet::{Batch, Nanoseconds};

use super::fragments::{FragmentId, ROOM, is_over};

/// The most fragments that wait, of all packets, of one source, and of one packet. A source's limit
/// keeps one host from taking the room of all others.
const MOST: usize = 4096;
const MOST_OF_SOURCE: usize = 256;
const MOST_OF_PACKET: usize = 64;
/// The most bytes that wait.
const MOST_BYTES: usize = 4 << 20;
/// The most that a packet removes of those whose first did not arrive in time.
const STEP: usize = 8;
const _: () = assert!(2 * MOST <= ROOM, "the tables must not grow");

/// A copy of a fragment, as it arrived.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    pub(super) wire_len: u32,
    serial: u64,
}

/// The fragments that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    packets: HashMap<FragmentId, Vec<Held>>,
    /// By serial number, which is the order of time.
    order: BTreeMap<u64, (FragmentId, Nanoseconds)>,
    /// Fragments by source.
    sources: HashMap<u32, usize>,
    fragments: usize,
    bytes: usize,
    serial: u64,
    /// Fragments held so far; of them, those that were forwarded and those that were lost: their
    /// first did not arrive, or could not be translated.
    pub(super) held: u64,
    pub(super) resumed: u64,
    pub(super) lost: u64,
}

impl Waiting {
    pub(super) fn new() -> Self {
        let (packets, sources) = (HashMap::with_capacity(ROOM), HashMap::with_capacity(ROOM));
        Self { packets, sources, ..Self::default() }
    }

    /// Keeps a copy of the fragment in `lane`; returns whether there is room. If all the room is
    /// taken, the oldest gives way.
    pub(super) fn hold(&mut self, id: FragmentId, batch: &Batch, lane: usize) -> bool {
        let bytes = batch.bytes(lane).to_vec();
        let of_packet = self.packets.get(&id).map_or(0, Vec::len);
        let of_source = self.sources.get(&id.source()).copied().unwrap_or(0);
        if of_packet >= MOST_OF_PACKET || of_source >= MOST_OF_SOURCE {
            return false;
        }
        while self.fragments >= MOST || self.bytes + bytes.len() > MOST_BYTES {
            if !self.forget_oldest() {
                return false;
            }
        }
        self.serial += 1;
        self.held += 1;
        self.fragments += 1;
        self.bytes += bytes.len();
        *self.sources.entry(id.source()).or_default() += 1;
        self.order.insert(self.serial, (id, batch.meta.timestamp[lane]));
        let held = Held { bytes, wire_len: batch.meta.wire_len[lane], serial: self.serial };
        self.packets.entry(id).or_default().push(held);
        true
    }

    /// Takes out the fragments of a packet whose first arrives in time, in the order of their arrival.
    pub(super) fn take(&mut self, id: &FragmentId, now: Nanoseconds) -> Vec<Held> {
        let mut taken = self.packets.remove(id).unwrap_or_default();
        taken.retain(|held| {
            let since = self.forget(id.source(), held);
            let is_late = since.is_some_and(|since| is_over(since, now));
            self.lost += u64::from(is_late);
            !is_late
        });
        taken
    }

    /// Removes some of the fragments whose first did not arrive in time.
    #[inline]
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        for _ in 0..STEP {
            if !self.is_any_late(now) {
                return;
            }
            self.forget_oldest();
        }
    }

    /// Removes all of them.
    pub(super) fn remove_all_late(&mut self, now: Nanoseconds) {
        while self.is_any_late(now) {
            self.forget_oldest();
        }
    }

    fn is_any_late(&self, now: Nanoseconds) -> bool {
        self.order.first_key_value().is_some_and(|(_, (_, since))| is_over(*since, now))
    }

    /// Removes the first in order; returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let Some((serial, (id, _))) = self.order.pop_first() else { return false };
        let Some(packet) = self.packets.get_mut(&id) else { return true };
        // The oldest of a packet comes first.
        if packet.first().is_some_and(|held| held.serial == serial) {
            let held = packet.remove(0);
            if packet.is_empty() {
                self.packets.remove(&id);
            }
            self.forget(id.source(), &held);
            self.lost += 1;
        }
        true
    }

    /// Corrects the counts for a fragment that no longer waits; returns since when it did.
    fn forget(&mut self, source: u32, held: &Held) -> Option<Nanoseconds> {
        let place = self.order.remove(&held.serial);
        self.fragments -= 1;
        self.bytes -= held.bytes.len();
        if let Some(count) = self.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
        place.map(|(_, since)| since)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_packet::Pool;

    use super::*;

    fn batch(len: usize, seconds: u64) -> Batch {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(4, 4096).unwrap()));
        batch.push_bytes(&vec![7; len]).unwrap();
        batch.meta.timestamp[0] = Nanoseconds::from_secs(seconds);
        batch
    }

    #[test]
    fn what_waits_is_bounded_and_no_source_takes_the_room_of_others() {
        let (mut waiting, batch) = (Waiting::new(), batch(100, 0));
        let room = waiting.packets.capacity();
        let mut flood = (0..1000).map(|n| waiting.hold(FragmentId::test(1, n), &batch, 0));
        assert_eq!(flood.by_ref().take(MOST_OF_SOURCE).filter(|held| *held).count(), 256);
        assert!(!flood.any(|held| held));
        let one = (0..100).filter(|_| waiting.hold(FragmentId::test(2, 1), &batch, 0)).count();
        assert_eq!(one, MOST_OF_PACKET);
        for source in 3..100 {
            for n in 0..100 {
                assert!(waiting.hold(FragmentId::test(source, n), &batch, 0));
                assert!(waiting.fragments <= MOST && waiting.bytes <= MOST_BYTES);
                assert!(waiting.packets.capacity() <= room, "it does not grow");
            }
        }
        assert_eq!(waiting.held - waiting.lost, MOST as u64);
        assert!(
            waiting.take(&FragmentId::test(1, 0), Nanoseconds(0)).is_empty(),
            "the oldest gave way"
        );
        assert_eq!(waiting.take(&FragmentId::test(99, 99), Nanoseconds(0)).len(), 1);
    }

    #[test]
    fn long_fragments_are_bounded_by_their_bytes() {
        let (mut waiting, batch) = (Waiting::new(), batch(3000, 0));
        for n in 0..3000 {
            assert!(waiting.hold(FragmentId::test(n / 100, n as u16), &batch, 0));
        }
        assert!(waiting.bytes <= MOST_BYTES && waiting.bytes > MOST_BYTES - 3000);
    }

    #[test]
    fn they_wait_for_thirty_seconds_in_their_order() {
        let mut waiting = Waiting::new();
        let id = FragmentId::test(1, 1);
        for seconds in [0, 10, 20] {
            assert!(waiting.hold(id, &batch(100 + seconds as usize, seconds), 0));
        }
        waiting.expire(Nanoseconds::from_secs(29));
        assert_eq!(waiting.lost, 0);
        waiting.expire(Nanoseconds::from_secs(30));
        assert_eq!(waiting.lost, 1);
        let now = Nanoseconds::from_secs(30);
        let lengths: Vec<_> = waiting.take(&id, now).iter().map(|held| held.bytes.len()).collect();
        assert_eq!(lengths, [110, 120]);
        waiting.expire(Nanoseconds::from_secs(90));
        let counts = (waiting.lost, waiting.fragments, waiting.bytes, waiting.sources.len());
        assert_eq!(counts, (1, 0, 0, 0));
        assert!(waiting.order.is_empty());
    }

    #[test]
    fn those_that_waited_too_long_are_removed_some_at_a_time() {
        let mut waiting = Waiting::new();
        let late = batch(100, 0);
        for n in 0..100 {
            assert!(waiting.hold(FragmentId::test(1, n), &late, 0));
        }
        let now = Nanoseconds::from_secs(60);
        waiting.expire(now);
        assert_eq!((waiting.fragments, waiting.lost), (100 - STEP, STEP as u64));
        // A first fragment that comes now is too late, too.
        assert!(waiting.take(&FragmentId::test(1, 99), now).is_empty());
        assert_eq!((waiting.fragments, waiting.lost), (99 - STEP, STEP as u64 + 1));
        waiting.remove_all_late(now);
        assert_eq!((waiting.fragments, waiting.lost, waiting.bytes), (0, 100, 0));
    }

    #[test]
    fn the_order_does_not_grow_with_what_was_taken() {
        let (mut waiting, batch) = (Waiting::new(), batch(100, 0));
        for n in 0..10_000 {
            assert!(waiting.hold(FragmentId::test(n, 1), &batch, 0));
            assert_eq!(waiting.take(&FragmentId::test(n, 1), Nanoseconds(0)).len(), 1);
        }
        assert!(waiting.order.is_empty());
    }
}
