//! Resolved MAC addresses of the hosts and routers on a port's link: the known ones, the pending
//! requests, and the packets that wait (RFC 1122 §2.3.2, RFC 4861 §7.2 and §7.3).
//!
//! **Bounds.** A sender that scans the addresses of a link makes the router request each one
//! (RFC 6583). So neighbours that have not answered have a table of their own: while it is full, no
//! further ones are requested, and the known ones stay known.

use std::collections::BTreeMap;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use thalweg_packet::{Nanoseconds, PacketType, PortIndex, address_bits};

use super::table::{Mac, RouterPort};
use thalweg_nf::toolkit::flow_table::{FlowTable, FlowWords, Hand};

/// The time between two requests to the same neighbour (RFC 4861 §10: RETRANS_TIMER).
const RETRY: Nanoseconds = Nanoseconds::from_secs(1);
/// Requests without an answer after which a neighbour counts as silent.
const TRIES: u8 = 3;
/// The time for which a silent neighbour is not requested again.
const SILENCE: Nanoseconds = Nanoseconds::from_secs(3);
/// The time for which an answer is valid without a new request (RFC 4861 §10: REACHABLE_TIME).
const REACHABLE: Nanoseconds = Nanoseconds::from_secs(30);
/// The most neighbours with a request and without an answer.
pub(super) const MOST_ASKED: usize = 1024;
/// The most known neighbours; beyond that, each new one evicts that of eight that answered longest ago.
pub(super) const MOST_KNOWN: usize = 65_536;
/// The most packets that wait for one neighbour; later ones are dropped.
pub(super) const MOST_HELD: usize = 3;

/// A host or router: the port whose link it is on, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Neighbor(pub(super) RouterPort, pub(super) IpAddr);

impl FlowWords<3> for Neighbor {
    fn words(&self) -> [u64; 3] {
        let Self(port, address) = *self;
        // An IPv4 address has the bits of the IPv6 address that it is mapped to.
        let kind = u64::from(address.is_ipv4()) << 16 | u64::from(port.0);
        let bits = address_bits(address);
        [kind, (bits >> 64) as u64, bits as u64]
    }
}

/// A packet that waits, ready to leave except for the neighbour's MAC address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    pub(super) wire_len: u32,
    pub(super) packet_type: PacketType,
    pub(super) in_port: PortIndex,
    pub(super) out_port: PortIndex,
    pub(super) received_at: u64,
    pub(super) segment_size: u16,
    pub(super) inner_len: u16,
}

/// The state of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It has this MAC address.
    At(Mac),
    /// A request was sent.
    Asked,
    /// It did not answer, or the table has no room for another request.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    mac: Mac,
    /// The time until which the answer is valid.
    until: Nanoseconds,
    tries: Tries,
}

#[derive(Debug)]
struct Unanswered {
    tries: Tries,
    held: ArrayVec<Held, MOST_HELD>,
}

/// Requests since the last answer.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    sent: u8,
    /// The time at which the next is due, or the last has failed.
    next: Nanoseconds,
}

impl Tries {
    /// Whether to send a request now.
    fn is_due(&self, now: Nanoseconds) -> bool {
        self.sent < TRIES && now >= self.next
    }

    /// Returns whether to send a request now, and counts it.
    fn again(&mut self, now: Nanoseconds) -> bool {
        let due = self.is_due(now);
        if due {
            *self = Self { sent: self.sent + 1, next: now.plus(RETRY) };
        }
        due
    }

    /// Whether all requests remained without an answer.
    fn have_failed(&self, now: Nanoseconds) -> bool {
        self.sent >= TRIES && now >= self.next
    }
}

/// The neighbours of a router.
#[derive(Debug)]
pub(super) struct Neighbors {
    answered: FlowTable<Neighbor, Answered, 3>,
    hand: Hand,
    /// In an order that does not depend on a hash: packets wait here and requests are sent.
    unanswered: BTreeMap<Neighbor, Unanswered>,
    /// Known neighbours that were evicted for lack of room.
    pub(super) evicted: u64,
}

impl Default for Neighbors {
    fn default() -> Self {
        let answered = FlowTable::new(MOST_KNOWN);
        Self { answered, hand: Hand::default(), unanswered: BTreeMap::new(), evicted: 0 }
    }
}

impl Neighbors {
    /// The number of known neighbours.
    pub(super) fn len(&self) -> usize {
        self.answered.len()
    }

    /// The state of a neighbour that a packet is for, and whether to send a request now.
    pub(super) fn find(&mut self, neighbor: Neighbor, now: Nanoseconds) -> (Known, bool) {
        if let Some(known) = self.answered.get_mut(None, &neighbor) {
            if now < known.until {
                return (Known::At(known.mac), false);
            }
            // While new requests are pending, the old MAC address remains in use.
            if !known.tries.have_failed(now) {
                return (Known::At(known.mac), known.tries.again(now));
            }
            self.answered.remove(&neighbor);
        }
        if !self.unanswered.contains_key(&neighbor) && !self.has_room(now) {
            return (Known::Silent, false);
        }
        let asked = self
            .unanswered
            .entry(neighbor)
            .or_insert_with(|| Unanswered { tries: Tries::default(), held: ArrayVec::new() });
        if !asked.tries.have_failed(now) {
            return (Known::Asked, asked.tries.again(now));
        }
        asked.held.clear();
        if now < asked.tries.next.plus(SILENCE) {
            return (Known::Silent, false);
        }
        asked.tries = Tries::default();
        (Known::Asked, asked.tries.again(now))
    }

    /// Whether there is room for one more request; removes neighbours that were silent long enough.
    fn has_room(&mut self, now: Nanoseconds) -> bool {
        if self.unanswered.len() >= MOST_ASKED {
            let silent = |tries: &Tries| now >= tries.next.plus(SILENCE);
            self.unanswered.retain(|_, asked| !silent(&asked.tries));
        }
        self.unanswered.len() < MOST_ASKED
    }

    /// Keeps a packet until its neighbour has answered; returns whether there was room.
    pub(super) fn hold(&mut self, neighbor: Neighbor, packet: Held) -> bool {
        let asked = self.unanswered.get_mut(&neighbor);
        asked.is_some_and(|asked| asked.held.try_push(packet).is_ok())
    }

    /// Neighbours to request again, up to `most`: those first that have waited longest.
    pub(super) fn due(&mut self, now: Nanoseconds, most: usize) -> Vec<Neighbor> {
        let waiting = self.unanswered.iter().filter(|(_, asked)| !asked.held.is_empty());
        let due = waiting.filter(|(_, asked)| asked.tries.is_due(now));
        let mut due: Vec<_> = due.map(|(neighbor, asked)| (asked.tries.next, *neighbor)).collect();
        due.sort_unstable();
        due.truncate(most);
        for (_, neighbor) in &due {
            self.unanswered.get_mut(neighbor).map(|asked| asked.tries.again(now));
        }
        due.into_iter().map(|(_, neighbor)| neighbor).collect()
    }

    /// Accepts the answer to a request; returns the packets that waited for it.
    pub(super) fn answer(
        &mut self,
        neighbor: Neighbor,
        mac: Mac,
        now: Nanoseconds,
    ) -> ArrayVec<Held, MOST_HELD> {
        let until = now.plus(REACHABLE);
        if let Some(asked) = self.unanswered.remove(&neighbor) {
            self.insert(neighbor, mac, until);
            return asked.held;
        }
        // An unsolicited answer is ignored: it may not be the neighbour's.
        if self.answered.get(&neighbor).is_some_and(|known| known.tries.sent > 0) {
            self.insert(neighbor, mac, until);
        }
        ArrayVec::new()
    }

    /// Ends the requests to neighbours that `known` has the MAC address of; returns it with the packets
    /// that waited.
    pub(super) fn met(
        &mut self,
        known: impl Fn(&Neighbor) -> Option<Mac>,
    ) -> Vec<(Mac, ArrayVec<Held, MOST_HELD>)> {
        let mut met = Vec::new();
        self.unanswered.retain(|neighbor, asked| {
            let mac = known(neighbor);
            met.extend(mac.map(|mac| (mac, asked.held.take())));
            mac.is_none()
        });
        met
    }

    /// Accepts the MAC address of a neighbour that requests the router's, until the router itself
    /// sends a request (RFC 826; RFC 4861 §7.2.3). Returns the packets that waited for it.
    pub(super) fn request(
        &mut self,
        neighbor: Neighbor,
        mac: Mac,
        now: Nanoseconds,
    ) -> ArrayVec<Held, MOST_HELD> {
        if self.answered.get(&neighbor).is_some_and(|known| known.mac == mac) {
            return ArrayVec::new();
        }
        self.insert(neighbor, mac, now);
        self.unanswered.remove(&neighbor).map_or_else(ArrayVec::new, |asked| asked.held)
    }

    /// Without a place in the table, which only neighbours chosen to collide lack, it counts as
    /// evicted.
    fn insert(&mut self, neighbor: Neighbor, mac: Mac, until: Nanoseconds) {
        let answer = Answered { mac, until, tries: Tries::default() };
        if let Some(known) = self.answered.get_mut(None, &neighbor) {
            *known = answer;
            return;
        }
        if self.answered.len() >= MOST_KNOWN {
            let evicted = self.answered.evict(0, &mut self.hand, |_, known| known.until);
            self.evicted += u64::from(evicted.is_some());
        }
        // One without a place in the table is evicted at once.
        self.evicted += u64::from(self.answered.insert(neighbor, answer).is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn host(n: u32) -> Neighbor {
        Neighbor(RouterPort(0), std::net::Ipv4Addr::from_bits(n).into())
    }

    fn seconds(tenths: u64) -> Nanoseconds {
        Nanoseconds(tenths * 100_000_000)
    }

    fn packet(n: u8) -> Held {
        let port = PortIndex(0);
        let bytes = vec![n];
        Held {
            bytes,
            wire_len: 1,
            packet_type: PacketType(1),
            in_port: port,
            out_port: port,
            received_at: 0,
            segment_size: 0,
            inner_len: 0,
        }
    }

    #[test]
    fn it_is_asked_three_times_and_then_left_alone_for_three_seconds() {
        let mut neighbors = Neighbors::default();
        let mut find = |tenths| neighbors.find(host(1), seconds(tenths));
        assert_eq!(find(0), (Known::Asked, true));
        assert_eq!(find(9), (Known::Asked, false));
        assert_eq!([find(10).1, find(11).1, find(25).1, find(26).1], [true, false, true, false]);
        assert_eq!(find(34), (Known::Asked, false));
        assert_eq!(find(35), (Known::Silent, false));
        assert_eq!(find(64), (Known::Silent, false));
        assert_eq!(find(65), (Known::Asked, true));
    }

    #[test]
    fn packets_wait_for_the_answer_and_no_more_than_three() {
        let mut neighbors = Neighbors::default();
        assert!(!neighbors.hold(host(1), packet(0)), "no request was sent");
        neighbors.find(host(1), seconds(0));
        let held: Vec<_> = (1..=4).map(|n| neighbors.hold(host(1), packet(n))).collect();
        assert_eq!(held, [true, true, true, false]);
        assert_eq!(neighbors.due(seconds(9), 9), []);
        assert_eq!(neighbors.due(seconds(10), 9), [host(1)]);
        let released = neighbors.answer(host(1), MAC, seconds(11));
        assert_eq!(&released[..], [packet(1), packet(2), packet(3)]);
        assert_eq!(neighbors.find(host(1), seconds(12)), (Known::At(MAC), false));
        assert!(neighbors.answer(host(1), MAC, seconds(13)).is_empty());
    }

    #[test]
    fn those_that_have_waited_longest_are_asked_first() {
        let mut neighbors = Neighbors::default();
        for (n, tenths) in [(7, 0), (3, 2), (9, 1), (1, 2)] {
            neighbors.find(host(n), seconds(tenths));
            assert!(neighbors.hold(host(n), packet(1)));
        }
        assert_eq!(neighbors.due(seconds(20), 3), [host(7), host(9), host(1)]);
        assert_eq!(neighbors.due(seconds(20), 3), [host(3)]);
    }

    #[test]
    fn an_ipv4_neighbour_is_not_the_ipv6_one_that_it_is_mapped_to() {
        let mapped: IpAddr = "::ffff:0.0.0.1".parse().unwrap();
        assert_ne!(host(1).words(), Neighbor(RouterPort(0), mapped).words());
        assert_ne!(host(1).words(), Neighbor(RouterPort(1), host(1).1).words());
    }

    #[test]
    fn a_known_one_is_used_while_it_is_asked_again() {
        let mut neighbors = Neighbors::default();
        neighbors.find(host(1), seconds(0));
        neighbors.answer(host(1), MAC, seconds(0));
        let mut find = |tenths| neighbors.find(host(1), seconds(tenths));
        assert!(!find(299).1);
        for tenths in [300, 310, 320] {
            assert_eq!(find(tenths), (Known::At(MAC), true));
        }
        assert_eq!(find(329), (Known::At(MAC), false));
        assert_eq!(find(330), (Known::Asked, true), "it has expired");
        assert_eq!(neighbors.len(), 0);
        neighbors.answer(host(1), [4; 6], seconds(331));
        neighbors.find(host(1), seconds(640));
        neighbors.answer(host(1), MAC, seconds(641));
        let until = seconds(941);
        assert_eq!(neighbors.find(host(1), Nanoseconds(until.0 - 1)), (Known::At(MAC), false));
        assert_eq!(neighbors.find(host(1), until), (Known::At(MAC), true));
    }

    #[test]
    fn an_answer_that_nobody_asked_for_is_not_believed() {
        let mut neighbors = Neighbors::default();
        neighbors.answer(host(1), MAC, seconds(0));
        assert_eq!(neighbors.len(), 0);
        neighbors.find(host(1), seconds(0));
        neighbors.answer(host(1), MAC, seconds(1));
        neighbors.answer(host(1), [4; 6], seconds(2));
        assert_eq!(neighbors.find(host(1), seconds(3)).0, Known::At(MAC));
    }

    #[test]
    fn one_that_asks_is_known_and_asked_before_it_is_believed_for_long() {
        let mut neighbors = Neighbors::default();
        neighbors.request(host(1), MAC, seconds(0));
        assert_eq!(neighbors.find(host(1), seconds(1)), (Known::At(MAC), true));
        neighbors.request(host(1), [4; 6], seconds(2));
        assert_eq!(neighbors.find(host(1), seconds(3)), (Known::At([4; 6]), true));
        neighbors.find(host(2), seconds(3));
        assert!(neighbors.hold(host(2), packet(1)));
        assert_eq!(&neighbors.request(host(2), MAC, seconds(4))[..], [packet(1)]);
    }

    #[test]
    fn a_scan_fills_the_table_of_the_silent_and_leaves_the_known_alone() {
        let mut neighbors = Neighbors::default();
        neighbors.request(host(0), MAC, seconds(0));
        for n in 1..=MOST_ASKED as u32 {
            assert_eq!(neighbors.find(host(n), seconds(1)), (Known::Asked, true));
        }
        assert_eq!(neighbors.find(host(5000), seconds(2)), (Known::Silent, false));
        assert!(matches!(neighbors.find(host(0), seconds(2)).0, Known::At(..)));
        assert_eq!(neighbors.find(host(5000), seconds(41)), (Known::Asked, true));
    }

    #[test]
    fn each_one_too_many_evicts_one_that_answered_long_ago() {
        let mut neighbors = Neighbors::default();
        for n in 0..=MOST_KNOWN as u32 {
            neighbors.request(host(n), MAC, Nanoseconds(n.into()));
        }
        assert_eq!((neighbors.len(), neighbors.evicted), (MOST_KNOWN, 1));
        let newest = host(MOST_KNOWN as u32);
        assert!(matches!(neighbors.find(newest, seconds(1)).0, Known::At(..)));
        assert_eq!(neighbors.find(host(0), seconds(1)).0, Known::Asked);
    }
}
