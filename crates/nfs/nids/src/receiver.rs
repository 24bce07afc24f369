//! Whether the receiver of a TCP segment takes it.
//!
//! A sender can insert segments that only the inspection believes: with wrong checksums, flags,
//! acknowledgements, timestamps, signatures or sequence numbers (Ptacek and Newsham, "Insertion,
//! Evasion, and Denial of Service", 1998). So the rules of the receiver are applied before a segment
//! joins its stream: RFC 9293 3.10.7.4, RFC 5961 (resets, SYNs, old acknowledgements), RFC 7323
//! (timestamps), RFC 2385 and 5925 (signatures).
//!
//! The receiver's state is known from what it sent. Rules about a state that was not seen, because
//! the handshake or the other direction is missing, are left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

use super::segment::{MOST_SCALE, Segment, distance};
use super::seldom::Seldom;
use super::stream::{Stream, WINDOW};

/// The maximum number of SYNs a side may send before one is answered.
const OFFERS: usize = 4;
/// The largest window that can be offered.
const MOST_WINDOW: u32 = (u16::MAX as u32) << MOST_SCALE;

/// The systems that receive, where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Target {
    /// Refuses SYN with FIN and unexpected signatures; takes a timestamp that is one older.
    #[default]
    Linux,
    /// Ignores signatures; cuts segments at the end of the window.
    Windows,
    /// Refuses segments without the agreed timestamps; cuts segments at the end of the window.
    Bsd,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $figure:literal $text:literal,)*) => {
        /// Why a receiver does not take a segment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// The figures that count rejected segments, by reason.
            pub(super) const FIGURES: [&str; 0 $(+ { let _ = Self::$variant; 1 })*] =
                [$($figure,)*];

            /// The reason in words.
            pub(super) fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// The checksum of the IPv4 or the TCP header.
    Checksum "segments_rejected_checksum" "a wrong checksum",
    /// Lengths of headers, options or the packet contradict each other.
    Length "segments_rejected_length" "inconsistent lengths",
    /// A fragment, which only its whole packet can make a segment.
    Fragment "segments_rejected_fragment" "a fragment",
    /// Its TTL or hop limit ends before the receiver.
    Unreachable "segments_rejected_unreachable" "it does not reach its receiver",
    /// No state takes these flags.
    Flags "segments_rejected_flags" "impossible flags",
    /// A SYN within a connection.
    Syn "segments_rejected_syn" "a SYN within the connection",
    /// A reset with another sequence number than the next.
    Reset "segments_rejected_reset" "a reset that is not at the next sequence number",
    /// It acknowledges what was never sent, or what is too old.
    Acknowledgement "segments_rejected_ack" "an impossible acknowledgement",
    /// An old timestamp, or none where they were agreed.
    Timestamp "segments_rejected_timestamp" "an old or missing timestamp",
    /// A signature that was not agreed, or none where it was.
    Signature "segments_rejected_signature" "an unexpected or missing signature",
    /// Outside the receiver's window.
    Window "segments_rejected_window" "outside the window",
    /// Data after a FIN.
    Closed "segments_rejected_closed" "data after the end of the stream",
}

impl Reason {
    /// Whether the receiver's acknowledgement may show that it took the segment all the same:
    /// packets may be missing here, and other systems differ.
    pub(super) fn may_be_wrong(self) -> bool {
        use Reason::{Acknowledgement, Flags, Signature, Timestamp, Window};
        matches!(self, Flags | Acknowledgement | Timestamp | Signature | Window)
    }
}

/// A SYN or SYN-ACK that the other side may still answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offer {
    /// The sequence number after it.
    next: u32,
    window: u16,
    scale: Option<u8>,
    stamp: Option<u32>,
    signed: bool,
    /// Its data, which counts if the answer acknowledges it (RFC 7413).
    data: Vec<u8>,
}

/// What a side has sent as a sender and offered as a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    /// The sequence number after everything it has sent, once it was seen.
    sent: Option<u32>,
    /// Its highest acknowledgement.
    acked: u32,
    /// The end of the window it offered, and its largest window.
    edge: u32,
    largest: u32,
    scale: u8,
    /// Its newest timestamp in order; 0 if unknown.
    recent: u32,
}

/// One side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    /// What a segment that [follows](Ends::follow) changes lies together.
    numbers: Numbers,
    /// Its SYNs without an answer yet.
    offers: Seldom<Vec<Offer>>,
}

/// What both sides agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Agreement {
    timestamps: bool,
    signed: bool,
}

/// The two ends of a connection, the client's first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    sides: [Side; 2],
    /// `None` until the handshake was seen; then the sides' numbers are known, too.
    agreed: Option<Agreement>,
}

impl Target {
    /// Whether no state of a receiver takes the flags of a segment.
    #[inline]
    pub(super) fn refuses_flags(self, segment: &Segment) -> bool {
        let alone = segment.flags & (SYN | RST | ACK) == 0;
        let torn = segment.has(SYN | RST, 0) || self == Self::Linux && segment.has(SYN | FIN, 0);
        alone || torn
    }

    /// By how much a timestamp may be older than the newest.
    fn slack(self) -> i32 {
        i32::from(self == Self::Linux)
    }
}

impl Offer {
    fn new(segment: &Segment, data: &[u8]) -> Self {
        Self {
            next: segment.sequence.wrapping_add(1),
            window: segment.window,
            scale: segment.scale(),
            stamp: segment.stamps().map(|[own, _]| own),
            signed: segment.is_signed(),
            data: data.to_vec(),
        }
    }

    /// The sequence number after its data.
    fn end(&self) -> u32 {
        self.next.wrapping_add(self.data.len() as u32)
    }

    /// Whether an acknowledgement answers it.
    fn is_answered_by(&self, acknowledged: u32) -> bool {
        acknowledged.wrapping_sub(self.next) as usize <= self.data.len()
    }
}

impl Numbers {
    /// Notes a window up to `edge`.
    #[inline]
    fn open(&mut self, acknowledged: u32, window: u32) {
        let edge = acknowledged.wrapping_add(window);
        if distance(self.acked, acknowledged) > 0 {
            self.acked = acknowledged;
        }
        if distance(self.edge, edge) > 0 {
            self.edge = edge;
        }
        self.largest = self.largest.max(window);
    }
}

impl Side {
    /// Keeps a SYN; a repeated one changes nothing, as at the receiver.
    fn offer(&mut self, offer: Offer) {
        if self.offers.iter().any(|known| known.next == offer.next) {
            return;
        }
        if self.offers.len() == OFFERS {
            self.offers.remove(0);
        }
        self.offers.push(offer);
    }

    /// The SYN that an acknowledgement answers. `Err` if it answers none, `None` if its SYN may
    /// have been missed.
    fn answered(&self, acknowledged: u32) -> Result<Option<&Offer>, Reason> {
        let may_miss = self.offers.is_empty() || self.offers.len() == OFFERS;
        match self.offers.iter().find(|offer| offer.is_answered_by(acknowledged)) {
            None if !may_miss => Err(Reason::Acknowledgement),
            found => Ok(found),
        }
    }
}

impl Ends {
    /// Takes a SYN or SYN-ACK of a connection that is not established. The last SYN counts until
    /// the other side has answered one.
    pub(super) fn greet(
        &mut self,
        to_server: bool,
        segment: &Segment,
        data: &[u8],
        streams: &mut [Stream; 2],
    ) -> Result<(), Reason> {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let offer = Offer::new(segment, data);
        if !segment.acknowledges() {
            if self.agreed.is_none() {
                streams[own].settle(offer.next);
            }
            self.sides[own].offer(offer);
            return Ok(());
        }
        let theirs = self.sides[other].answered(segment.acknowledged)?.cloned();
        streams[own].settle(offer.next);
        match &theirs {
            Some(theirs) => {
                streams[other].settle(theirs.next);
                streams[other].hold(&theirs.data);
            }
            None if self.sides[other].offers.is_empty() => {
                streams[other].begin(segment.acknowledged);
            }
            None => streams[other].settle(segment.acknowledged),
        }
        let echo = segment.stamps().map_or(0, |[_, echo]| echo);
        self.agree(own, &offer, theirs.as_ref(), segment.acknowledged, echo);
        self.sides[own].offer(offer);
        Ok(())
    }

    /// Both sides take the options and windows of the SYN-ACK `mine` of side `own`, and of the SYN
    /// `theirs` that it answers, if that was seen.
    fn agree(&mut self, own: usize, mine: &Offer, theirs: Option<&Offer>, acked: u32, echo: u32) {
        let both = |has: fn(&Offer) -> bool| has(mine) && theirs.is_none_or(has);
        self.agreed = Some(Agreement {
            timestamps: both(|offer| offer.stamp.is_some()),
            signed: both(|offer| offer.signed),
        });
        let scaled = both(|offer| offer.scale.is_some());
        let scale = |offer: &Offer| offer.scale.filter(|_| scaled).unwrap_or(0);
        let offers = |side: &mut Side| std::mem::take(&mut side.offers);
        let [first, second] = &mut self.sides;
        let (side, peer) = if own == 0 { (first, second) } else { (second, first) };
        let numbers = Numbers {
            sent: Some(mine.end()),
            acked,
            edge: acked.wrapping_add(mine.window.into()),
            largest: mine.window.into(),
            scale: scale(mine),
            recent: mine.stamp.unwrap_or(0),
        };
        *side = Side { numbers, offers: offers(side) };
        // A window that was not seen may have any size.
        let window = theirs.map_or(MOST_WINDOW, |theirs| theirs.window.into());
        // The echo is the stamp of the SYN that arrived, unless the echo is wrong.
        let recent = match theirs.and_then(|theirs| theirs.stamp) {
            Some(stamp) if echo == 0 || distance(echo, stamp) < 0 => stamp,
            _ => echo,
        };
        let numbers = Numbers {
            sent: theirs.map(Offer::end),
            acked: mine.next,
            edge: mine.next.wrapping_add(window),
            largest: window,
            scale: theirs.map_or(MOST_SCALE, scale),
            recent,
        };
        *peer = Side { numbers, offers: offers(peer) };
    }

    /// An acknowledgement chooses the SYN-ACK that it answers, if several were sent.
    pub(super) fn choose(&mut self, to_server: bool, segment: &Segment, streams: &mut [Stream; 2]) {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let acknowledged = segment.acknowledged;
        let Ok(Some(theirs)) = self.sides[other].answered(acknowledged) else { return };
        let theirs = theirs.clone();
        if theirs.next != streams[other].first() {
            streams[other].settle(theirs.next);
            let first = streams[own].first();
            let mine = self.sides[own].offers.iter().find(|mine| mine.next == first).cloned();
            self.agree(other, &theirs, mine.as_ref(), first, 0);
        }
        streams[other].hold(&theirs.data);
    }

    /// Forgets what a side has sent, and what was agreed from it.
    pub(super) fn forget(&mut self, to_server: bool) {
        self.sides[usize::from(!to_server)] = Side::default();
        self.agreed = None;
    }

    /// Drops the SYNs that were not chosen.
    pub(super) fn settle(&mut self) {
        self.sides.iter_mut().for_each(|side| side.offers = Seldom::default());
    }

    /// Whether the handshake was seen and a SYN-ACK waits for its acknowledgement.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.agreed.is_some() && self.sides.iter().any(|side| !side.offers.is_empty())
    }

    /// Keeps a SYN within the connection: its answer would begin another one.
    pub(super) fn keep_syn(&mut self, to_server: bool, segment: &Segment) {
        self.sides[usize::from(!to_server)].offer(Offer::new(segment, &[]));
    }

    /// The ends of a new connection, and its streams, if `segment` is the answer to a SYN that was
    /// [kept](Self::keep_syn). The sender of that SYN is the client.
    pub(super) fn reopened(
        &self,
        to_server: bool,
        segment: &Segment,
    ) -> Option<(Self, [Stream; 2])> {
        let offers = &self.sides[usize::from(to_server)].offers;
        let offer = offers.iter().find(|o| o.is_answered_by(segment.acknowledged))?.clone();
        let mut streams = <[Stream; 2]>::default();
        streams[0].settle(offer.next);
        let mut ends = Self::default();
        ends.sides[0].offer(offer);
        Some((ends, streams))
    }

    /// How many of a segment's `length` bytes the receiver takes, from the first one.
    #[inline]
    pub(super) fn judge(
        &self,
        to_server: bool,
        segment: &Segment,
        length: usize,
        streams: &[Stream; 2],
        target: Target,
    ) -> Result<usize, Reason> {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        if segment.is_reset() {
            return self.judge_reset(own, other, segment, streams, target).map(|()| 0);
        }
        let stream = &streams[own];
        if let Some(next) = stream.next() {
            if distance(next, segment.sequence).unsigned_abs() as usize > WINDOW {
                return Err(Reason::Window);
            }
            let end = segment.sequence.wrapping_add(length as u32);
            if stream.has_ended() && length > 0 && distance(next, end) > 0 {
                return Err(Reason::Closed);
            }
        }
        let Some(agreed) = self.agreed else { return Ok(length) };
        self.judge_agreed(agreed, own, segment, length, streams[other].first(), target)
    }

    /// The same as far as it depends on what was `agreed`, for a segment of side `own` near its next
    /// one; the other side's first sequence number is `first`.
    #[inline]
    fn judge_agreed(
        &self,
        agreed: Agreement,
        own: usize,
        segment: &Segment,
        length: usize,
        first: u32,
        target: Target,
    ) -> Result<usize, Reason> {
        let (sender, receiver) = (&self.sides[own].numbers, &self.sides[1 - own].numbers);
        if segment.is_signed() != agreed.signed && target.misses_signature(agreed.signed) {
            return Err(Reason::Signature);
        }
        match segment.stamps() {
            Some([stamp, _])
                if agreed.timestamps
                    && sender.recent != 0
                    && distance(stamp, sender.recent) > target.slack() =>
            {
                return Err(Reason::Timestamp);
            }
            None if agreed.timestamps && target == Target::Bsd => return Err(Reason::Timestamp),
            _ => {}
        }
        let room = distance(segment.sequence, receiver.edge);
        if room < 0 || room == 0 && length > 0 {
            return Err(Reason::Window);
        }
        let known = sender.acked.wrapping_sub(first);
        let oldest = sender.acked.wrapping_sub(sender.largest.min(known));
        let acknowledged = segment.acknowledged;
        let is_sent = receiver.sent.is_none_or(|sent| distance(acknowledged, sent) >= 0);
        if distance(oldest, acknowledged) < 0 || !is_sent {
            return Err(Reason::Acknowledgement);
        }
        Ok(if target == Target::Linux { length } else { length.min(room as usize) })
    }

    /// A reset must have exactly the next sequence number (RFC 5961 3.2); others cause a challenge.
    fn judge_reset(
        &self,
        own: usize,
        other: usize,
        segment: &Segment,
        streams: &[Stream; 2],
        target: Target,
    ) -> Result<(), Reason> {
        let stream = &streams[own];
        let Some(next) = stream.next() else {
            // It refuses the connection, and acknowledges the SYN.
            let answers = self.sides[other].answered(segment.acknowledged).is_ok();
            return if answers { Ok(()) } else { Err(Reason::Reset) };
        };
        let sequence = segment.sequence;
        let after_fin = stream.has_ended() && sequence == next.wrapping_add(1);
        let last_acked = target == Target::Bsd
            && self.agreed.is_some()
            && self.sides[other].numbers.acked == sequence;
        if sequence == next || after_fin || last_acked { Ok(()) } else { Err(Reason::Reset) }
    }

    /// Takes a segment of which `length` bytes are the next of its stream, which has not ended: a segment
    /// without SYN, FIN and RST. Returns whether its receiver does; if it takes less, nothing changes.
    /// The other side's first sequence number is `first`'s. Without an agreement, nothing but the segment's
    /// sequence number matters.
    #[inline(always)]
    pub(super) fn follow(
        &mut self,
        to_server: bool,
        (sequence, segment): (u32, impl FnOnce() -> Segment),
        length: usize,
        first: impl FnOnce() -> u32,
        target: Target,
    ) -> bool {
        let takes = match self.agreed {
            Some(agreed) => self.follow_agreed(agreed, to_server, segment, length, first(), target),
            None => true,
        };
        if takes {
            self.has_sent(to_server, sequence.wrapping_add(length as u32));
        }
        takes
    }

    /// The same but for what its sender has sent, as far as it depends on what was `agreed`. Not inlined: the
    /// loop around it would have too few registers.
    #[inline(never)]
    fn follow_agreed(
        &mut self,
        agreed: Agreement,
        to_server: bool,
        segment: impl FnOnce() -> Segment,
        length: usize,
        first: u32,
        target: Target,
    ) -> bool {
        let (own, segment) = (usize::from(!to_server), segment());
        let takes = self.judge_agreed(agreed, own, &segment, length, first, target) == Ok(length);
        if takes {
            self.take(to_server, &segment);
        }
        takes
    }

    /// What a segment of side `own` that [follows](Self::follow) changes.
    #[inline]
    pub(super) fn numbers(&self, own: usize) -> Numbers {
        self.sides[own].numbers
    }

    /// Takes back what segments that followed have changed since there were these numbers.
    pub(super) fn take_back(&mut self, own: usize, numbers: Numbers) {
        self.sides[own].numbers = numbers;
    }

    /// Notes how far a side has sent, whether or not its receiver takes the segment: an honest
    /// receiver acknowledges what it took, and that must not be doubted.
    #[inline]
    pub(super) fn sends(
        &mut self,
        to_server: bool,
        segment: &Segment,
        length: usize,
        streams: &[Stream; 2],
    ) {
        let own = usize::from(!to_server);
        let taken = length as u32 + u32::from(segment.is_last());
        let end = segment.sequence.wrapping_add(taken);
        let near = |next| distance(next, end).unsigned_abs() as usize <= WINDOW;
        if streams[own].next().is_some_and(near) {
            self.has_sent(to_server, end);
        }
    }

    /// A side has sent everything before `end`.
    #[inline]
    pub(super) fn has_sent(&mut self, to_server: bool, end: u32) {
        // What the other side took before anything was seen was sent as well.
        let acked = self.sides[usize::from(to_server)].numbers.acked;
        let side = &mut self.sides[usize::from(!to_server)].numbers;
        let sent = side.sent.get_or_insert(acked);
        if distance(*sent, end) > 0 {
            *sent = end;
        }
    }

    /// Takes over the acknowledgement, the window and the timestamp of a segment that the receiver
    /// takes.
    #[inline]
    pub(super) fn take(&mut self, to_server: bool, segment: &Segment) {
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        if self.agreed.is_none() || segment.is_reset() {
            return;
        }
        let last_acked = self.sides[other].numbers.acked;
        let side = &mut self.sides[own].numbers;
        side.open(segment.acknowledged, u32::from(segment.window) << side.scale);
        if let Some([stamp, _]) = segment.stamps()
            && distance(segment.sequence, last_acked) >= 0
            && (side.recent == 0 || distance(side.recent, stamp) > 0)
        {
            side.recent = stamp;
        }
    }

    /// Forgets the newest timestamp of a side, or of both: it was not what the receiver has, or is
    /// too old (RFC 7323, 5.5).
    pub(super) fn forget_timestamps(&mut self, of: [bool; 2]) {
        let sides = self.sides.iter_mut().zip(of);
        sides.filter(|(_, forget)| *forget).for_each(|(side, _)| side.numbers.recent = 0);
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let offers = self.sides.iter().flat_map(|side| side.offers.iter());
        offers.map(|offer| size_of::<Offer>() + offer.data.len()).sum()
    }

    /// Whether this can have been noted; imported state may be arbitrary.
    pub(super) fn is_sound(&self) -> bool {
        let is_scale = |scale: u8| scale <= MOST_SCALE;
        self.sides.iter().all(|side| {
            let offers = side.offers.iter();
            is_scale(side.numbers.scale)
                && side.offers.len() <= OFFERS
                && side.numbers.largest <= MOST_WINDOW
                && offers.clone().all(|o| o.scale.is_none_or(is_scale))
                && offers.map(|o| o.data.len()).all(|length| u16::try_from(length).is_ok())
        })
    }
}

impl Target {
    /// Whether a signature, or its lack, against the agreement makes a segment invalid.
    fn misses_signature(self, agreed: bool) -> bool {
        match self {
            Self::Linux => true,
            Self::Bsd => agreed,
            Self::Windows => false,
        }
    }
}
