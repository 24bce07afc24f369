//! Most quiet segments, in a loop of their own: those that are searched after a seam.
//!
//! The loop is small, so that what it needs stays in registers, and compiled once more for AVX-512.
//!
//! `unsafe` here: a function compiled for more than the build's target is called after the processor
//! was checked.
#![allow(unsafe_code)]

use thalweg_cpu::{Isa, avx512};
use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_packet::{Batch, Lanes, Nanoseconds};

use super::ahead::{Ahead, Place, Texts};
use super::flow::{Flow, Tracked};
use super::flows::Flows;
use super::literals::Literals;
use super::quiet::{Before, Changed, Terms};
use super::receiver::Target;
use super::searched::Searched;
use super::segment::Segment;
use super::tail::Kept;

/// What is the same for all segments of a batch.
pub(super) struct Swiftly<'a, 'b> {
    pub(super) flows: &'a mut Flows,
    pub(super) batch: &'a Batch,
    pub(super) texts: &'a mut Texts<'b>,
    pub(super) terms: &'a Terms,
    /// The time without a packet after which a connection expires.
    pub(super) idle: Nanoseconds,
    /// The search of the batch.
    pub(super) search: Searched,
    /// Connections with earlier segments in the batch that are not accepted yet.
    pub(super) blocked: Changed,
}

impl Ahead {
    /// Accepts the segments of `lanes`, which continue their streams plainly, as far as each is searched
    /// after a [seam](super::stream::Stream::seam); puts their texts into `text` from `end` on. Returns
    /// the lanes from the first other one on, which has changed nothing, and the end.
    pub(super) fn go_on_swiftly(
        &mut self,
        with: &mut Swiftly<'_, '_>,
        lanes: Lanes,
        text: &mut [u8],
        end: usize,
    ) -> (Lanes, usize) {
        #[cfg(target_arch = "x86_64")]
        if Isa::active().avx512().is_some() {
            // SAFETY: an `Avx512` exists only if the processor has AVX-512.
            return unsafe { self.go_on_swiftly_by_avx512(with, lanes, text, end) };
        }
        self.go_on_swiftly_anywhere(with, lanes, text, end)
    }

    #[cfg(target_arch = "x86_64")]
    #[avx512]
    fn go_on_swiftly_by_avx512(
        &mut self,
        with: &mut Swiftly<'_, '_>,
        lanes: Lanes,
        text: &mut [u8],
        end: usize,
    ) -> (Lanes, usize) {
        self.go_on_swiftly_anywhere(with, lanes, text, end)
    }

    #[inline(always)]
    fn go_on_swiftly_anywhere(
        &mut self,
        with: &mut Swiftly<'_, '_>,
        lanes: Lanes,
        text: &mut [u8],
        mut end: usize,
    ) -> (Lanes, usize) {
        let Swiftly { flows, batch, texts, terms, idle, search, blocked } = with;
        // Copies, which no store in the loop can change.
        let (kept, target, rules) = (&{ terms.policy.tail }, terms.target, terms.rules);
        let (idle, search, are_blocked) = (*idle, *search, !blocked.is_empty());
        let mut room = text.get_mut(end..).unwrap_or_default();
        for lane in lanes {
            let slot = Slot(self.slots[lane]);
            let rest = Lanes(lanes.0 & u32::MAX << lane);
            let Some(flow) = flows.at(slot).filter(|_| !are_blocked || !blocked.may_have(slot))
            else {
                return (rest, end);
            };
            let payload = texts.bytes[lane];
            let (begin, fresh) = (end, end + Literals::SEAM);
            let of_room = std::mem::take(&mut room);
            let Some((text, left)) = of_room.split_at_mut_checked(Literals::SEAM + payload.len())
            else {
                return (rest, end);
            };
            let head = &self.heads[lane];
            let plain = Plain {
                to_server: flow.is_to_server(self.from_low.contains(lane)),
                sequence: head.sequence(),
                payload,
                now: batch.meta.timestamp[lane],
            };
            let how = How { idle, search, target, kept, rules };
            let segment = || head.segment().unwrap_or_else(|| Segment::of(batch, lane));
            let before = &mut self.before[lane];
            let Some((was, is)) = flow.go_on_swiftly(&plain, segment, &how, text, before) else {
                return (rest, end);
            };
            (room, end) = (left, fresh + payload.len());
            self.places[lane] = Place::new(begin, fresh, end);
            texts.known[lane] = Literals::SEAM;
            if was != is {
                flows.book_within(slot, was, is);
            }
        }
        (Lanes::NONE, end)
    }
}

/// A segment that continues its stream plainly, and when it arrives.
struct Plain<'a> {
    to_server: bool,
    sequence: u32,
    payload: &'a [u8],
    now: Nanoseconds,
}

/// How all segments of a batch are treated.
struct How<'a> {
    /// The time without a packet after which a connection has expired.
    idle: Nanoseconds,
    /// The search of the batch.
    search: Searched,
    target: Target,
    kept: &'a Kept,
    rules: u64,
}

impl Flow {
    /// Accepts a segment and makes the seam and its payload a `text`, which has their length; or changes
    /// nothing. Returns the bytes of memory of the stream's past before and now.
    #[inline(always)]
    fn go_on_swiftly(
        &mut self,
        &Plain { to_server, sequence, payload, now }: &Plain<'_>,
        segment: impl FnOnce() -> Segment,
        &How { idle, search, target, kept, rules: known }: &How<'_>,
        text: &mut [u8],
        before: &mut Before,
    ) -> Option<(usize, usize)> {
        let own = usize::from(!to_server);
        if now < self.last || now.since(self.last) >= idle {
            return None;
        }
        let Tracked { streams, ends, rules, calm, .. } = self.tracked.as_deref_mut()?;
        let len = payload.len();
        let [client, server] = streams;
        let (stream, other) = if to_server { (client, server) } else { (server, client) };
        if !stream.is_next(sequence) || !stream.has_seam(search) {
            return None;
        }
        // Its last segment was quiet, for the same rules, and no other packet came since.
        let is_known = *rules == known && calm.0[own] && self.seen[own];
        debug_assert!(is_known, "a search outlives what it needs");
        *before = Before { last: self.last, numbers: ends.numbers(own) };
        if !ends.follow(to_server, (sequence, segment), len, || other.first(), target) {
            return None;
        }
        self.last = now;
        Some(stream.append_after_seam(sequence, payload, text, kept, search))
    }
}
