//! Segments that only continue their stream.
//!
//! Most do: they are next in their stream, their receiver takes them, and no rule may match their
//! bytes. They skip all other work, with the same effect.

use thalweg_packet::{Batch, Lanes, Nanoseconds};

use super::arrival;
use super::engine::Engine;
use super::flow::{Flow, Tracked};
use super::inspect::Settings;
use super::receiver::Target;
use super::segment::Segment;
use super::stream::Policy;
use super::tail::Searched;
use thalweg_nf::toolkit::flow_table::Slot;

/// What decides, the same for all packets of a batch.
pub(super) struct Terms {
    target: Target,
    midstream: bool,
    policy: Policy,
    /// Bytes of the past that are searched with a segment.
    reach: usize,
    /// The rule set.
    rules: u64,
    applications: bool,
    checksums: bool,
    min_ttl: u8,
}

impl Terms {
    pub(super) fn new(engine: &Engine, settings: &Settings) -> Self {
        let Settings { target, midstream, checksums, min_ttl, .. } = *settings;
        Self {
            target,
            midstream,
            policy: settings.policy(engine),
            reach: engine.reach,
            rules: engine.fingerprint,
            applications: engine.needs.applications,
            checksums,
            min_ttl,
        }
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
pub(super) struct Changed(u64);

impl Changed {
    /// Adds the connection in a slot. One without a slot may take that of any other.
    pub(super) fn add(&mut self, slot: Option<Slot>) {
        self.0 |= slot.map_or(u64::MAX, bit);
    }

    /// Whether the connection in a slot may have changed.
    #[inline]
    pub(super) fn may_have(self, slot: Slot) -> bool {
        self.0 != 0 && self.0 & bit(slot) != 0
    }
}

/// The bit of a slot in a word. Slots in use have patterns.
#[inline]
fn bit(Slot(slot): Slot) -> u64 {
    1 << (slot.wrapping_mul(0x9e37_79b1) >> (u32::BITS - u64::BITS.ilog2()))
}

impl Flow {
    /// Accepts a [continuing](Segment::continues) segment if it only continues its stream: it changes
    /// nothing else, and only its new bytes could require a rule to be evaluated. If it has any, and
    /// with `past`, only if that is the end of the stream. The bytes were `searched` with the end of the
    /// stream.
    /// Returns the bytes of memory of the stream's past before and now.
    #[inline(always)]
    pub(super) fn go_on(
        &mut self,
        to_server: bool,
        segment: &Segment,
        payload: &[u8],
        past: Option<&[u8]>,
        searched: Searched,
        terms: &Terms,
        now: Nanoseconds,
    ) -> Option<(usize, usize)> {
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
            && ends.follow(to_server, segment, payload.len(), first, terms.target);
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
            && !stream.has_ended()
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
