//! The texts to search for segments: each with the end of its stream.
//!
//! Most segments are quiet. Those are accepted here already, while their connection is at hand: nothing
//! but a literal in their text can make that wrong, and then it is undone.

use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_packet::{BATCH, Batch, Lanes};

use super::ahead::{Ahead, Place, Texts};
use super::flows::Flows;
use super::literals::Literals;
use super::quiet::{Changed, Continuation, Terms};
use super::segment::Segment;
use super::stream::Stream;
use super::tail::{MEMORY_STEP, copy};

/// Longer payloads are accepted at their turn: before it, their copies would evict from the cache what the
/// search reads next. They are searched with all of the past that a literal may reach back into: that adds
/// little to them.
const LONG: usize = 128;

/// Puts the end of a stream at the beginning of `text`: a seam, or all that a literal may reach back into.
/// Returns its length.
#[inline(always)]
fn put(
    seam: Option<&[u8; Literals::SEAM]>,
    stream: &Stream,
    reach: usize,
    text: &mut [u8],
) -> usize {
    if let Some(seam) = seam {
        text[..seam.len()].copy_from_slice(seam);
        return seam.len();
    }
    let [first, second] = stream.past(reach);
    copy(first, &mut text[..first.len()]);
    if !second.is_empty() {
        text[first.len()..][..second.len()].copy_from_slice(second);
    }
    first.len() + second.len()
}

/// Puts the end of an earlier text of the same stream at `to`; returns its length.
fn again(place: Place, text: &mut [u8], to: usize, reach: usize) -> usize {
    let until = place.end as usize;
    let from = (place.begin as usize).max(until.saturating_sub(reach));
    text.copy_within(from..until, to);
    until - from
}

impl Ahead {
    /// Assembles the `texts` to search for segments, one after the other in `text`; accepts those that
    /// are quiet if no literal lies in their text.
    #[inline(always)]
    pub(super) fn assemble<'t>(
        &mut self,
        flows: &mut Flows,
        batch: &Batch,
        terms: &Terms,
        text: &'t mut Vec<u8>,
        texts: &mut Texts<'t>,
    ) {
        let data = self.segmented.and(texts.with_payload);
        self.bare = self.segmented.and(self.known).without(data);
        let most = texts.total + data.count() * terms.reach;
        if text.len() < most {
            text.resize(most, 0);
        }
        self.number = self.number.checked_add(1).unwrap_or(1);
        let (number, idle) = (self.number, flows.idle());
        let may_take = terms.takes() && flows.have_memory_for(texts.total + MEMORY_STEP * BATCH);
        // Sets in registers, from which the few are removed for which they do not hold.
        let mut taken =
            if may_take { self.continuing_plainly(batch, texts, terms) } else { Lanes::NONE };
        let mut joined = data.without(self.resets(data));
        let (mut seamed, mut blocked) = (joined, Changed::default());
        // A stream that begins here is searched at the packet's turn.
        let begins = |segment: &Segment| terms.midstream || segment.is_syn();
        let mut unsearched = Lanes::NONE;
        for lane in joined.without(self.known) {
            joined.remove(lane);
            unsearched.0 |= u32::from(begins(&self.segments[lane])) << lane;
        }
        let mut end = 0;
        'lanes: for lane in self.known {
            let slot = Slot(self.slots[lane]);
            let is_free = !blocked.may_have(slot);
            let (payload, segment) = (texts.bytes[lane], &self.segments[lane]);
            let begin = end;
            let mut fresh = begin;
            // Its turn may find a stream that is not there yet: then this is its place, not that of an
            // earlier batch.
            self.places[lane] =
                Place { begin: begin as u32, fresh: begin as u32, end: begin as u32 };
            'connection: {
                let Some(flow) = flows.at(slot).filter(|_| self.segmented.contains(lane)) else {
                    break 'connection;
                };
                let to_server = flow.is_to_server(self.from_low.contains(lane));
                let own = usize::from(!to_server);
                let Some(tracked) = flow.tracked.as_deref_mut() else {
                    let is_unsearched = joined.contains(lane) && begins(segment);
                    unsearched.0 |= u32::from(is_unsearched) << lane;
                    joined.remove(lane);
                    break 'connection;
                };
                let stream = &mut tracked.streams[own];
                if joined.contains(lane) {
                    let before = if is_free { None } else { self.segment_before(lane, joined) };
                    let past = match before {
                        Some(place) => Some(again(place, text, begin, terms.reach)),
                        None if !stream.goes_on_at(segment.sequence) => None,
                        None => {
                            let is_short = terms.seams && is_free && payload.len() <= LONG;
                            let seam = stream.seam(terms.reach, number).filter(|_| is_short);
                            if seam.is_none() {
                                seamed.remove(lane);
                            }
                            Some(put(seam, stream, terms.reach, &mut text[begin..]))
                        }
                    };
                    let Some(past) = past else {
                        unsearched.insert(lane);
                        joined.remove(lane);
                        break 'connection;
                    };
                    fresh += past;
                    end = fresh + payload.len();
                    copy(payload, &mut text[fresh..end]);
                    texts.known[lane] = fresh - begin;
                }
                self.places[lane] =
                    Place { begin: begin as u32, fresh: fresh as u32, end: end as u32 };
                let now = batch.meta.timestamp[lane];
                let may_take = taken.contains(lane)
                    && is_free
                    && payload.len() <= stream.room().min(LONG)
                    && now.since(flow.last) < idle;
                if !may_take {
                    break 'connection;
                }
                self.before[lane] = flow.before(own);
                let next =
                    Continuation { to_server, segment, payload, past: None, searched: number };
                if let Some((before, after)) = flow.go_on(&next, terms, now) {
                    if before != after {
                        flows.book_within(slot, before, after);
                    }
                    continue 'lanes;
                }
            }
            taken.remove(lane);
            blocked.add(Some(slot));
        }
        (self.joined, self.unknown, self.taken) = (joined, unsearched, taken);
        self.seamed = seamed.and(joined);
        let text = &text[..end];
        let mut rest = text;
        for lane in joined {
            let len = texts.known[lane] + texts.bytes[lane].len();
            (texts.bytes[lane], rest) = rest.split_at_checked(len).unwrap_or_default();
        }
        (texts.joined, texts.are_joined) = (text, joined);
    }

    /// The segments of known connections that continue their stream, in packets with which nothing is wrong;
    /// of those whose checksums tell, the ones that are not long.
    #[inline(always)]
    fn continuing_plainly(&self, batch: &Batch, texts: &Texts<'_>, terms: &Terms) -> Lanes {
        let mut plain = self.segmented.and(self.continuing).and(self.known);
        for lane in plain.without(terms.surely_plain(self.flawless)) {
            if texts.bytes[lane].len() > LONG || !terms.is_plain(batch, lane) {
                plain.remove(lane);
            }
        }
        plain
    }

    /// The resets among segments with `data`, which add nothing to their stream.
    #[inline(always)]
    fn resets(&self, data: Lanes) -> Lanes {
        let others = data.without(self.continuing).into_iter();
        others.filter(|lane| self.segments[*lane].is_reset()).collect()
    }

    /// A number of the stream of a packet whose connection was found.
    #[inline]
    fn stream_number(&self, lane: usize) -> u32 {
        self.slots[lane] << 1 | u32::from(self.from_low.contains(lane))
    }

    /// The place of the last segment in `joined` that is of the same stream as the segment in `lane`, if
    /// this one follows it.
    #[inline(never)]
    fn segment_before(&self, lane: usize, joined: Lanes) -> Option<Place> {
        let number = self.stream_number(lane);
        let last =
            (0..lane).rev().find(|n| joined.contains(*n) && self.stream_number(*n) == number)?;
        let (place, before) = (self.places[last], self.segments[last].sequence);
        let next = before.wrapping_add(place.end - place.fresh);
        (next == self.segments[lane].sequence).then_some(place)
    }

    /// Undoes what was accepted, but need not have been by the search, and what followed in the same
    /// connections.
    #[inline]
    pub(super) fn settle(&mut self, flows: &mut Flows) {
        let unclear = self.taken.and(self.unclear());
        for lane in self.taken.and(self.open.after).without(unclear) {
            if let Some(flow) = flows.at(Slot(self.slots[lane])) {
                let own = usize::from(!flow.is_to_server(self.from_low.contains(lane)));
                if let Some(tracked) = flow.tracked.as_deref_mut() {
                    tracked.streams[own].set_searched(0);
                }
            }
        }
        for lane in unclear {
            let slot = self.slots[lane];
            let later = self.taken.and(Lanes(u32::MAX << lane)).into_iter();
            self.give_back(flows, later.filter(|n| self.slots[*n] == slot).collect());
        }
    }

    /// Undoes the acceptance of the packets of some lanes, after which their connections have no others.
    pub(super) fn give_back(&mut self, flows: &mut Flows, lanes: Lanes) {
        let mut left = lanes.and(self.taken);
        while let Some(lane) = left.highest() {
            left.remove(lane);
            self.taken.remove(lane);
            let slot = Slot(self.slots[lane]);
            if let Some(flow) = flows.at(slot) {
                let own = usize::from(!flow.is_to_server(self.from_low.contains(lane)));
                let place = self.places[lane];
                let len = (place.end - place.fresh) as usize;
                if let Some((before, after)) = flow.restore(own, len, self.before[lane]) {
                    flows.book_within(slot, before, after);
                }
            }
        }
    }
}
