//! Sessions: the remotes that an inside host has sent to through one of its
//! mappings, and their lifetimes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

use super::Protocol;
use super::config::Filtering;

/// The kinds of session with different idle times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Udp,
    TcpEstablished,
    TcpTransitory,
    Echo,
}

/// The remote of a session, as precise as the filtering requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Remote {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl Remote {
    /// The session of packets between a mapping of `protocol` and this end. TCP
    /// connections are always distinguished, because each has its own lifetime; an
    /// echo has no remote port.
    pub(super) fn new(
        protocol: Protocol,
        (address, port): (Ipv4Addr, u16),
        filtering: Filtering,
    ) -> Self {
        match (protocol, filtering) {
            (Protocol::Tcp, _) | (Protocol::Udp, Filtering::AddressAndPortDependent) => {
                Self { address, port }
            }
            (_, Filtering::EndpointIndependent) => Self { address: Ipv4Addr::UNSPECIFIED, port: 0 },
            _ => Self { address, port: 0 },
        }
    }
}

/// The state of a session, and when it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) last_used: Nanoseconds,
    /// A packet came in; for TCP, one that is not a reset.
    pub(super) answered: bool,
    /// TCP: a segment other than the first SYN went out.
    confirmed: bool,
    /// TCP: a FIN went out, and one came in.
    finished: [bool; 2],
    /// TCP: the last segment of interest was a reset.
    reset: bool,
    /// When to check whether the session is idle.
    #[serde(skip)]
    pub(super) due: Nanoseconds,
    /// Whether it is listed for eviction: it was unanswered at its last check.
    #[serde(skip)]
    pub(super) gives_way: bool,
}

impl Session {
    pub(super) fn new(now: Nanoseconds) -> Self {
        Self {
            last_used: now,
            answered: false,
            confirmed: false,
            finished: [false; 2],
            reset: false,
            due: now,
            gives_way: false,
        }
    }

    /// Records a packet, with its TCP flags; only packets from inside keep a
    /// session alive (RFC 4787 REQ-6).
    pub(super) fn packet(
        &mut self,
        protocol: Protocol,
        outward: bool,
        flags: u8,
        now: Nanoseconds,
    ) {
        if outward {
            self.last_used = self.last_used.follow(now);
        }
        if protocol == Protocol::Tcp {
            let before = self.life(protocol);
            self.segment(outward, flags);
            // A segment that closes an idle connection leaves it the timeout of a closing one.
            if (before, self.life(protocol)) == (Life::TcpEstablished, Life::TcpTransitory) {
                self.last_used = self.last_used.follow(now);
            }
        } else {
            self.answered |= !outward;
        }
    }

    /// Follows a TCP connection (RFC 5382 REQ-5).
    fn segment(&mut self, outward: bool, flags: u8) {
        if outward && flags & (SYN | ACK | RST) == SYN {
            let (due, gives_way) = (self.due, self.gives_way);
            *self = Self { due, gives_way, ..Self::new(self.last_used) };
        } else if flags & RST != 0 {
            self.reset = true;
        } else if outward {
            // A host that keeps sending did not receive the reset, or did not accept
            // it (RFC 7857, section 2.2).
            self.reset = false;
            self.confirmed |= flags & SYN == 0;
            self.finished[0] |= flags & FIN != 0;
        } else {
            self.answered = true;
            self.finished[1] |= flags & FIN != 0;
        }
    }

    pub(super) fn life(&self, protocol: Protocol) -> Life {
        let open = self.answered && self.confirmed && self.finished != [true; 2] && !self.reset;
        match protocol {
            Protocol::Udp => Life::Udp,
            Protocol::Echo => Life::Echo,
            Protocol::Tcp if open => Life::TcpEstablished,
            Protocol::Tcp => Life::TcpTransitory,
        }
    }
}

/// The sessions of a mapping, in order of their remotes. One of them is stored in the mapping
/// itself, as most mappings have only one: a packet then needs no further memory access.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    /// Present whenever `more` is not empty.
    one: Option<(Remote, Session)>,
    more: BTreeMap<Remote, Session>,
}

/// The keys that a node of a [`BTreeMap`] has room for, and those that it has on average: a node
/// that is full when larger keys come is divided, and keeps 6 of them.
const NODE: (usize, usize) = (11, 7);

/// The bytes of a tree of `entries` of `size` bytes.
pub(super) fn tree_bytes(size: usize, entries: usize) -> usize {
    let nodes = entries.div_ceil(NODE.1);
    // An inner node refers to further ones.
    nodes * (NODE.0 * size + 16) + nodes.div_ceil(NODE.1) * (NODE.0 + 1) * 8
}

impl Sessions {
    /// The bytes of `more` sessions of a mapping, besides its first.
    pub(super) fn further_bytes(more: usize) -> usize {
        tree_bytes(size_of::<(Remote, Session)>(), more)
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, with: &Remote) -> Option<&Session> {
        match &self.one {
            Some((known, session)) if known == with => Some(session),
            _ => self.more.get(with),
        }
    }

    pub(super) fn get_mut(&mut self, with: &Remote) -> Option<&mut Session> {
        match &mut self.one {
            Some((known, session)) if known == with => Some(session),
            _ => self.more.get_mut(with),
        }
    }

    /// Whether there is one with this host, on any port.
    pub(super) fn are_with(&self, address: Ipv4Addr) -> bool {
        let of = |port| Remote { address, port };
        self.one.is_some_and(|(known, _)| known.address == address)
            || self.more.range(of(0)..=of(u16::MAX)).next().is_some()
    }

    pub(super) fn insert(&mut self, with: Remote, session: Session) {
        match &mut self.one {
            Some((known, old)) if *known == with => *old = session,
            Some(_) => drop(self.more.insert(with, session)),
            one @ None => *one = Some((with, session)),
        }
    }

    pub(super) fn remove(&mut self, with: &Remote) -> Option<Session> {
        match self.one {
            Some((known, session)) if known == *with => {
                self.one = self.more.pop_first();
                Some(session)
            }
            _ => self.more.remove(with),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Remote, &Session)> {
        let one = self.one.as_ref().map(|(with, session)| (with, session));
        // Without `one`, `more` is empty.
        let (before, after) =
            one.map(|(with, _)| (self.more.range(..with), self.more.range(with..))).unzip();
        before.into_iter().flatten().chain(one).chain(after.into_iter().flatten())
    }
}

impl PartialEq for Sessions {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Sessions {}

impl FromIterator<(Remote, Session)> for Sessions {
    fn from_iter<I: IntoIterator<Item = (Remote, Session)>>(sessions: I) -> Self {
        let mut all = Self::default();
        sessions.into_iter().for_each(|(with, session)| all.insert(with, session));
        all
    }
}

/// As a map.
impl Serialize for Sessions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        self.iter().try_for_each(|(with, session)| map.serialize_entry(with, session))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Sessions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<Remote, Session>::deserialize(deserializer)?;
        Ok(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn life_after(segments: &[(bool, u8)]) -> Life {
        let mut session = Session::new(Nanoseconds(0));
        for (outward, flags) in segments {
            session.packet(Protocol::Tcp, *outward, *flags, Nanoseconds(0));
        }
        session.life(Protocol::Tcp)
    }

    #[test]
    fn a_connection_is_established_from_the_handshake_to_the_second_fin() {
        let open = [(true, SYN), (false, SYN | ACK), (true, ACK)];
        let with = |more: &[(bool, u8)]| life_after(&[&open, more].concat());
        assert_eq!(life_after(&open[..2]), Life::TcpTransitory);
        assert_eq!(with(&[]), Life::TcpEstablished);
        assert_eq!(with(&[(true, FIN | ACK)]), Life::TcpEstablished);
        assert_eq!(with(&[(true, FIN | ACK), (false, FIN | ACK)]), Life::TcpTransitory);
        assert_eq!(with(&[(true, FIN), (false, FIN), (true, ACK)]), Life::TcpTransitory);
        assert_eq!(with(&[(false, RST)]), Life::TcpTransitory);
        assert_eq!(with(&[(false, RST), (false, ACK)]), Life::TcpTransitory);
        assert_eq!(with(&[(false, RST), (true, ACK)]), Life::TcpEstablished);
        assert_eq!(with(&[(true, SYN)]), Life::TcpTransitory);
    }

    #[test]
    fn what_comes_in_alone_establishes_nothing() {
        assert_eq!(life_after(&[(true, SYN), (false, ACK), (false, ACK)]), Life::TcpTransitory);
        // A connection older than the NAT.
        assert_eq!(life_after(&[(true, ACK), (false, ACK)]), Life::TcpEstablished);
    }

    proptest! {
        #[test]
        fn sessions_are_an_ordered_map(steps in vec((any::<bool>(), 0u8..3, 0u16..4), 0..40)) {
            let (mut sessions, mut model) = (Sessions::default(), BTreeMap::new());
            for (n, (insert, host, port)) in (0..).zip(steps) {
                let address = Ipv4Addr::new(192, 0, 2, host);
                let with = Remote { address, port };
                if insert {
                    sessions.insert(with, Session::new(Nanoseconds(n)));
                    model.insert(with, Session::new(Nanoseconds(n)));
                } else {
                    prop_assert_eq!(sessions.remove(&with), model.remove(&with));
                }
                prop_assert!(sessions.iter().eq(model.iter()));
                prop_assert_eq!((sessions.len(), sessions.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(sessions.get(&with), model.get(&with));
                prop_assert_eq!(sessions.get_mut(&with), model.get_mut(&with));
                let known = model.keys().any(|with| with.address == address);
                prop_assert_eq!(sessions.are_with(address), known);
                let moved = postcard::to_stdvec(&sessions).unwrap();
                prop_assert_eq!(&moved, &postcard::to_stdvec(&model).unwrap());
                let there: Sessions = postcard::from_bytes(&moved).unwrap();
                prop_assert_eq!(postcard::to_stdvec(&there).unwrap(), moved);
            }
        }
    }
}
