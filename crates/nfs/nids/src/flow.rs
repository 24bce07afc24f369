//! A connection: the state that `flow` and `flowbits` test, its streams and its application.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::tcp_flags::{ACK, RST, SYN};

use super::app::App;
use super::arrival::Delivery;
use super::open::Open;
use super::receiver::{Ends, Reason, Target};
use super::searched::Searched;
use super::segment::Segment;
use super::seldom::Seldom;
use super::stream::Stream;

/// The progress of a TCP handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The beginning was not seen, or the connection is not TCP.
    None,
    Syn,
    SynAck,
    /// The server answered with a SYN of its own, which RFC 9293 allows.
    Split,
    /// The client acknowledged that SYN.
    SplitAck,
    Established,
    Closed,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Whether the lower of the two endpoints (ordered by address and port) is the client.
    client_is_low: bool,
    pub(super) phase: Phase,
    /// Packets seen from the client and from the server (any but the first).
    pub(super) seen: [bool; 2],
    /// Sides that have ended their stream.
    ended: [bool; 2],
    pub(super) sums: [Sums; 2],
    pub(super) last: Nanoseconds,
    /// The decision of a rule for all packets.
    pub(super) verdict: Option<Verdict>,
    /// Names of the bits that are set.
    pub(super) bits: Seldom<BTreeSet<String>>,
    /// The numbers that rules set.
    pub(super) numbers: Seldom<BTreeMap<String, u32>>,
    /// Rules that alert once for each direction and have done so.
    pub(super) said: Seldom<BTreeSet<(u32, bool)>>,
    pub(super) tracked: Option<Box<Tracked>>,
}

/// The IPv4 header checksums in the segments of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Sums {
    Unknown,
    /// All are wrong: the segments were captured before the network card computed them.
    Wrong,
    /// They are right, and receivers drop a segment whose checksum is wrong.
    Right,
}

impl Sums {
    /// Whether another right one changes nothing.
    #[inline]
    pub(super) fn are_settled(self, established: bool) -> bool {
        match self {
            Self::Unknown => false,
            Self::Wrong => established,
            Self::Right => true,
        }
    }
}

/// A rule's decision for all packets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// They are dropped.
    Drop { sid: u32 },
    /// No rule is evaluated.
    Pass { sid: u32 },
}

impl Tracked {
    /// Forgets what holds only as long as all segments are quiet.
    pub(super) fn wake(&mut self) {
        self.calm = Calm::default();
        self.streams.iter_mut().for_each(|stream| stream.set_searched(Searched::NO));
    }
}

/// The directions whose segments may be [quiet](super::quiet), as far as that depends on what such
/// segments leave as it is. It follows from the rest of the state, and is forgotten with each other
/// packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calm(pub(super) [bool; 2]);

impl PartialEq for Calm {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Calm {}

/// The state of a connection whose streams are reassembled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// To the server, and to the client.
    pub(super) streams: [Stream; 2],
    pub(super) ends: Ends,
    pub(super) app: App,
    /// Rules whose pattern was found but whose other tests have not held yet.
    pub(super) open: Seldom<Open>,
    /// The rule set to which the rule numbers belong.
    pub(super) rules: u64,
    #[serde(skip)]
    pub(super) calm: Calm,
}

impl Tracked {
    /// Clears rule numbers that belong to another set than `rules`. Current messages are then
    /// inspected from their beginning.
    pub(super) fn renumber(&mut self, rules: u64) {
        if self.rules == rules {
            return;
        }
        self.rules = rules;
        self.open = Seldom::default();
        for to_server in [true, false] {
            if let Some(message) = self.app.message(to_server) {
                message.forget_rules();
            }
        }
    }

    /// Whether this is a valid [`Tracked`] for `rules` rules; imported state may be arbitrary.
    pub(super) fn is_sound(&mut self, rules: usize) -> bool {
        let numbers = self.open.rules().all(|number| (number as usize) < rules);
        let app = &mut self.app;
        let messages =
            [true, false].into_iter().all(|d| app.message(d).is_none_or(|m| m.is_sound(rules)));
        numbers && messages && self.streams.iter().all(Stream::is_sound) && self.ends.is_sound()
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let streams: usize = self.streams.iter().map(Stream::memory).sum();
        let open = self.open.memory();
        size_of::<Self>() + streams + open + self.ends.memory() + self.app.memory()
    }
}

/// A packet of a connection, as it arrived.
pub(super) struct Arrival<'a> {
    pub(super) segment: Option<Segment>,
    pub(super) payload: &'a [u8],
    /// Bytes after the payload that its capture did not keep.
    pub(super) missing: usize,
    pub(super) delivery: Delivery,
}

/// How connections are followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handling {
    pub(super) target: Target,
    pub(super) midstream: bool,
    /// Streams are reassembled.
    pub(super) streams: bool,
}

impl Flow {
    /// Whether a packet goes to the server, given whether the lower endpoint sent it.
    #[inline]
    pub(super) fn is_to_server(&self, from_low: bool) -> bool {
        from_low == self.client_is_low
    }

    pub(super) fn new(client_is_low: bool, now: Nanoseconds) -> Self {
        Self {
            client_is_low,
            phase: Phase::None,
            seen: [false; 2],
            ended: [false; 2],
            sums: [Sums::Unknown; 2],
            last: now,
            verdict: None,
            bits: Seldom::default(),
            numbers: Seldom::default(),
            said: Seldom::default(),
            tracked: None,
        }
    }

    /// The connection that a packet begins in place of this one. A SYN alone does only if this one
    /// is closed and the other side was never seen: else a forged SYN would end the inspection. Its
    /// answer does; it shows that the server took the SYN. The verdict to drop stays, because the
    /// ends of a dropped connection do not learn that it ended.
    pub(super) fn reopened(
        &self,
        from_low: bool,
        arrival: &Arrival<'_>,
        now: Nanoseconds,
    ) -> Option<Self> {
        let segment = arrival.segment.as_ref().filter(|_| arrival.delivery.refused.is_none())?;
        if !segment.is_syn() || matches!(self.verdict, Some(Verdict::Drop { .. })) {
            return None;
        }
        let to_server = self.is_to_server(from_low);
        if !segment.acknowledges() {
            let tracked = self.tracked.is_some();
            let is_alone = !tracked || !self.seen[usize::from(to_server)];
            let begins = self.phase == Phase::Closed && is_alone;
            return begins.then(|| Self::new(from_low, now));
        }
        let tracked = self.tracked.as_deref().filter(|_| self.is_established())?;
        let (ends, streams) = tracked.ends.reopened(to_server, segment)?;
        let mut flow = Self::new(!from_low, now);
        flow.phase = Phase::Syn;
        flow.seen = [true, false];
        flow.tracked = Some(Box::new(Tracked { streams, ends, ..Tracked::default() }));
        Some(flow)
    }

    /// Why the receiver does not even look at a packet. A side whose checksums are right from some
    /// segment of the handshake on has sent nothing that was taken before it.
    pub(super) fn refuses(&mut self, arrival: &Arrival<'_>, to_server: bool) -> Option<Reason> {
        let Delivery { refused, unsummed } = arrival.delivery;
        if refused.is_some() || arrival.segment.is_none() {
            return refused;
        }
        let (own, established) = (usize::from(!to_server), self.is_established());
        match (self.sums[own], unsummed) {
            (Sums::Right, true) => return Some(Reason::Checksum),
            (Sums::Unknown, true) => self.sums[own] = Sums::Wrong,
            (Sums::Unknown, false) => self.sums[own] = Sums::Right,
            (Sums::Wrong, false) if !established => {
                self.sums[own] = Sums::Right;
                if let Some(tracked) = self.tracked.as_deref_mut() {
                    tracked.streams[own] = Stream::default();
                    tracked.ends.forget(to_server);
                }
            }
            (Sums::Wrong, _) | (Sums::Right, false) => {}
        }
        None
    }

    /// Advances the connection by a packet; returns how many bytes of the payload the receiver
    /// takes, from the first one.
    pub(super) fn receive(
        &mut self,
        arrival: &Arrival<'_>,
        to_server: bool,
        how: Handling,
    ) -> Result<usize, Reason> {
        let Some(segment) = &arrival.segment else {
            self.advance(None, to_server);
            return Ok(arrival.payload.len());
        };
        // The packets of a dropped connection do not arrive.
        if matches!(self.verdict, Some(Verdict::Drop { .. })) {
            return Ok(0);
        }
        let established = self.is_established();
        let has_data = !arrival.payload.is_empty();
        let taken = self.judge(segment, arrival, to_server, how)?;
        if how.midstream && has_data && segment.has(0, SYN | RST) {
            self.join();
        }
        if established && segment.is_syn() {
            return Ok(0);
        }
        self.advance(Some(segment), to_server);
        if let Some(tracked) = self.tracked.as_deref_mut() {
            tracked.ends.take(to_server, segment);
            if self.phase == Phase::Established && !established {
                tracked.ends.settle();
            }
        }
        Ok(taken)
    }

    /// How many bytes of its payload the receiver of a segment takes. Begins the streams if the
    /// segment determines their sequence numbers.
    fn judge(
        &mut self,
        segment: &Segment,
        arrival: &Arrival<'_>,
        to_server: bool,
        how: Handling,
    ) -> Result<usize, Reason> {
        let Arrival { payload, missing, .. } = *arrival;
        if how.target.refuses_flags(segment) {
            return Err(Reason::Flags);
        }
        let (established, is_closed) = (self.is_established(), self.phase == Phase::Closed);
        let is_middle = how.midstream && !payload.is_empty() && !segment.is_reset();
        let begins = segment.is_syn() && !established || is_middle;
        if self.tracked.is_none() && how.streams && begins {
            self.tracked = Some(Box::default());
        }
        let Some(tracked) = self.tracked.as_deref_mut() else { return Ok(payload.len()) };
        let Tracked { ends, streams, .. } = tracked;
        if segment.is_syn() {
            if !established {
                return ends.greet(to_server, segment, payload, streams).map(|()| 0);
            }
            if !segment.acknowledges() {
                ends.keep_syn(to_server, segment);
            }
            return if is_closed { Ok(0) } else { Err(Reason::Syn) };
        }
        if is_middle {
            streams[usize::from(!to_server)].begin(segment.sequence);
        }
        if !established && ends.is_open() {
            ends.choose(to_server, segment, streams);
        }
        ends.sends(to_server, segment, payload.len() + missing, streams);
        ends.judge(to_server, segment, payload.len(), streams, how.target)
    }

    /// Bytes of memory that its streams hold.
    pub(super) fn memory(&self) -> usize {
        self.tracked.as_ref().map_or(0, |t| t.memory())
    }

    /// Holds the decision of a rule for all further packets, which need no inspection.
    pub(super) fn decide(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
        match verdict {
            Verdict::Drop { .. } => self.tracked = None,
            Verdict::Pass { .. } => {
                if let Some(tracked) = self.tracked.as_deref_mut() {
                    tracked.app = App::None;
                    tracked.open = Seldom::default();
                }
            }
        }
    }

    /// Treats a connection whose handshake was not seen as established.
    #[inline]
    pub(super) fn join(&mut self) {
        if !self.is_established() {
            self.phase = Phase::Established;
        }
    }

    #[inline]
    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established | Phase::Closed)
    }

    /// Whether a segment of a side without SYN, FIN and RST leaves the connection's phase as it is.
    #[inline]
    pub(super) fn is_steady(&self, own: usize) -> bool {
        match self.phase {
            Phase::SynAck | Phase::SplitAck => false,
            Phase::Established => !self.ended[own],
            _ => true,
        }
    }

    fn advance(&mut self, segment: Option<&Segment>, to_server: bool) {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        self.seen[own] = true;
        let Some(segment) = segment else { return };
        let flags = segment.flags;
        self.phase = match self.phase {
            _ if flags & RST != 0 && self.phase != Phase::None => Phase::Closed,
            Phase::None if flags & (SYN | ACK) == SYN && to_server => Phase::Syn,
            Phase::Syn if flags & (SYN | ACK) == SYN | ACK && !to_server => Phase::SynAck,
            Phase::SynAck if flags & (SYN | ACK) == ACK && to_server => Phase::Established,
            Phase::Syn if flags & (SYN | ACK) == SYN && !to_server => Phase::Split,
            Phase::Split if flags & (SYN | ACK) == SYN | ACK && to_server => Phase::SplitAck,
            Phase::SplitAck if flags & (SYN | ACK) == ACK && !to_server => Phase::Established,
            phase => phase,
        };
        self.ended[own] |= segment.is_last();
        let is_over = self.ended[own] && (self.ended[other] || !self.seen[other]);
        if self.phase == Phase::Established && is_over {
            self.phase = Phase::Closed;
        }
    }
}
