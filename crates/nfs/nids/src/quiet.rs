//! Segments that only continue their stream.
//!
//! Most do: they are next in their stream, their receiver takes them, and no rule may match their
//! bytes. They skip all other work, with the same effect.

use thalweg_packet::{Batch, Lanes, Nanoseconds};

use super::arrival;
use super::assemble::LONG;
use super::engine::Engine;
use super::flow::{Flow, Tracked};
use super::inspect::Settings;
use super::literals::Literals;
use super::receiver::{Numbers, Target};
use super::searched::Searched;
use super::segment::Segment;
use super::stream::Policy;
use thalweg_nf::toolkit::flow_table::Slot;

/// What decides, the same for all packets of a batch.
pub(super) struct Terms {
    pub(super) target: Target,
    pub(super) midstream: bool,
    pub(super) policy: Policy,
    /// Bytes of the past that are searched with a segment.
    pub(super) reach: usize,
    /// The rule set, and the number of its engine.
    pub(super) rules: u64,
    pub(super) engine: u16,
    applications: bool,
    checksums: bool,
    min_ttl: u8,
    /// Whether segments may be accepted before their turn, and those with fewer bytes than this swiftly.
    takes: bool,
    pub(super) short: usize,
    /// Whether a search with the last bytes of a stream completes that of the bytes before.
    pub(super) seams: bool,
}

impl Terms {
    /// Packets that are traced are explained at their turn. What a `device` has found says nothing about
    /// literals that begin in a payload and end in the next one.
    pub(super) fn new(
        engine: &Engine,
        settings: &Settings,
        is_traced: bool,
        by_device: bool,
    ) -> Self {
        let Settings { target, midstream, checksums, min_ttl, .. } = *settings;
        let has_seams = !by_device && engine.reach > Literals::SEAM;
        Self {
            short: if has_seams && engine.needs.streams { LONG + 1 } else { 0 },
            target,
            midstream,
            policy: settings.policy(engine),
            reach: engine.reach,
            rules: engine.fingerprint,
            engine: engine.number,
            applications: engine.needs.applications,
            checksums,
            min_ttl,
            takes: !is_traced,
            seams: !by_device,
        }
    }

    /// Whether segments may be accepted before their turn.
    #[inline]
    pub(super) fn takes(&self) -> bool {
        self.takes
    }

    #[cfg(test)]
    pub(super) fn taking(&self, takes: bool) -> Self {
        Self { takes: takes && self.takes, ..*self }
    }

    /// The packets with which nothing is wrong because nothing but checksums and TTL may be, of
    /// `flawless` ones.
    #[inline]
    pub(super) fn surely_plain(&self, flawless: Lanes) -> Lanes {
        if self.checksums || self.min_ttl > 0 { Lanes::NONE } else { flawless }
    }

    /// Whether nothing is wrong with the packet of a lane.
    #[inline]
    pub(super) fn is_plain(&self, batch: &Batch, lane: usize) -> bool {
        arrival::missing(batch, lane) == 0
            && arrival::delivery(batch, lane, self.checksums, self.min_ttl).is_plain()
    }
}

/// The connections that a batch may have changed otherwise than quiet segments do: a filter that few
/// others pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed([u64; 4]);

impl Changed {
    /// Adds the connection in a slot. One without a slot may take that of any other.
    pub(super) fn add(&mut self, slot: Option<Slot>) {
        match slot {
            Some(slot) => self.0[word(slot)] |= 1 << bit(slot),
            None => self.0 = [u64::MAX; 4],
        }
    }

    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Whether the connection in a slot may have changed.
    #[inline]
    pub(super) fn may_have(&self, slot: Slot) -> bool {
        self.0[word(slot)] >> bit(slot) & 1 == 1
    }
}

/// The word of a slot in the filter. Slots in use have patterns.
#[inline]
fn word(slot: Slot) -> usize {
    hash(slot) as usize >> u64::BITS.ilog2()
}

/// The bit of a slot in its word.
#[inline]
fn bit(slot: Slot) -> u32 {
    hash(slot) % u64::BITS
}

/// A number of eight bits.
#[inline]
fn hash(Slot(slot): Slot) -> u32 {
    slot.wrapping_mul(0x9e37_79b1) >> (u32::BITS - u8::BITS)
}

/// A segment that [continues](Segment::continues) its stream.
pub(super) struct Continuation<'a> {
    pub(super) to_server: bool,
    pub(super) segment: &'a Segment,
    pub(super) payload: &'a [u8],
    /// The end of the stream that the payload was searched with, if another may have changed it since.
    pub(super) past: Option<&'a [u8]>,
    /// That search, or none if a literal may have begun.
    pub(super) searched: Searched,
}

/// What a quiet segment of a side that was seen changes of a connection in addition to its stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    pub(super) last: Nanoseconds,
    pub(super) numbers: Numbers,
}

impl Flow {
    /// Accepts a segment if it only continues its stream: it changes nothing else, and only its new bytes
    /// could require a rule to be evaluated.
    /// Returns the bytes of memory of the stream's past before and now.
    #[inline(always)]
    pub(super) fn go_on(
        &mut self,
        continuation: &Continuation<'_>,
        terms: &Terms,
        now: Nanoseconds,
    ) -> Option<(usize, usize)> {
        let Continuation { to_server, segment, payload, past, searched } = *continuation;
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let tracked = self.tracked.as_deref()?;
        if tracked.rules != terms.rules || !tracked.calm.0[own] && !self.calm_down(own, terms) {
            return None;
        }
        let Tracked { streams, ends, .. } = self.tracked.as_deref_mut()?;
        let first = streams[other].first();
        let stream = &mut streams[own];
        let only_goes_on = stream.is_next(segment.sequence)
            && past.is_none_or(|past| payload.is_empty() || stream.has_past(past, terms.reach))
            && ends.follow(
                to_server,
                (segment.sequence, || *segment),
                payload.len(),
                || first,
                terms.target,
            );
        if !only_goes_on {
            return None;
        }
        let kept = stream.append(payload, &terms.policy);
        if !payload.is_empty() {
            stream.set_searched(searched);
        }
        self.last = self.last.follow(now);
        self.seen[own] = true;
        Some(kept)
    }

    /// What a quiet segment of a side changes in addition to its stream.
    #[inline(always)]
    pub(super) fn before(&self, own: usize) -> Before {
        let numbers =
            self.tracked.as_deref().map_or_else(Default::default, |t| t.ends.numbers(own));
        Before { last: self.last, numbers }
    }

    /// Makes a side as it was [before](Self::before) a quiet segment with a payload of `len` bytes, which
    /// its stream [could take](super::stream::Stream::may_try). Returns the bytes of memory of that
    /// stream's past after it and before.
    pub(super) fn restore(
        &mut self,
        own: usize,
        len: usize,
        before: Before,
    ) -> Option<(usize, usize)> {
        self.last = before.last;
        let tracked = self.tracked.as_deref_mut()?;
        let memory = tracked.streams[own].memory();
        tracked.streams[own].take_back(len);
        tracked.ends.take_back(own, before.numbers);
        Some((memory, tracked.streams[own].memory()))
    }

    /// Whether segments of a side may be quiet, as far as that depends on what they leave as it is;
    /// notes it then.
    #[inline(never)]
    fn calm_down(&mut self, own: usize, terms: &Terms) -> bool {
        let (established, steady, sums) =
            (self.is_established(), self.is_steady(own), self.sums[own]);
        let is_decided = self.verdict.is_some();
        let Some(tracked) = self.tracked.as_deref_mut() else { return false };
        let [stream, other] = [own, 1 - own].map(|side| &tracked.streams[side]);
        let is_calm = !is_decided
            && !stream.has_end()
            && !stream.is_waiting()
            && !other.waits_for_acknowledgement()
            && tracked.open.is_empty_in(own)
            && steady
            && sums.are_settled(established)
            // Midstream, it establishes the connection.
            && (established || !terms.midstream && !tracked.ends.is_open())
            && (!terms.applications || tracked.app.is_none());
        tracked.calm.0[own] |= is_calm;
        is_calm
    }
}
