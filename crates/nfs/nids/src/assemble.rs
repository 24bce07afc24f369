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
use super::searched::Searched;
use super::segment::Segment;
use super::stream::Stream;
use super::swift::Swiftly;
use super::tail::{MEMORY_STEP, TRIED, copy};

/// Longer payloads are accepted at their turn: before it, their copies would evict from the cache what the
/// search reads next. They are searched with all of the past that a literal may reach back into: that adds
/// little to them.
pub(super) const LONG: usize = 128;
const _: () = assert!(LONG <= TRIED);

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
        text.resize(text.len().max(most), 0);
        self.now = self.now.next(terms.engine);
        let (search, idle) = (self.now, flows.idle());
        let may_take = terms.takes() && flows.have_memory_for(texts.total + MEMORY_STEP * BATCH);
        // Sets in registers, from which the few are removed for which they do not hold.
        let mut taken =
            if may_take { self.continuing_plainly(batch, texts, terms) } else { Lanes::NONE };
        let mut joined = data.without(self.resets(batch, data));
        let (mut seamed, mut blocked) = (joined, Changed::default());
        // A stream that begins here is searched at the packet's turn.
        let begins = |segment: &Segment| terms.midstream || segment.is_syn();
        let unknown = joined.without(self.known).into_iter();
        let mut unsearched: Lanes =
            unknown.filter(|lane| begins(&self.segment_of(batch, *lane))).collect();
        joined = joined.and(self.known);
        let swift = taken.and(joined).and(self.short);
        let (mut end, mut left) = (0, self.known);
        while let Some(lane) = left.lowest() {
            if swift.contains(lane) {
                let run = left.before(left.without(swift));
                let mut swiftly = Swiftly { flows, batch, texts, terms, idle, search, blocked };
                let (rest, now) = self.go_on_swiftly(&mut swiftly, run, text, end);
                end = now;
                left = left.without(run).or(rest);
                if rest != run {
                    continue;
                }
            }
            left.remove(lane);
            let slot = Slot(self.slots[lane]);
            let is_free = !blocked.may_have(slot);
            let (payload, segment) = (texts.bytes[lane], &self.segment_of(batch, lane));
            let (begin, mut fresh) = (end, end);
            let is_taken = 'connection: {
                let Some(flow) = flows.at(slot).filter(|_| self.segmented.contains(lane)) else {
                    break 'connection false;
                };
                let to_server = flow.is_to_server(self.from_low.contains(lane));
                let own = usize::from(!to_server);
                let Some(tracked) = flow.tracked.as_deref_mut() else {
                    let is_unsearched = joined.contains(lane) && begins(segment);
                    unsearched.0 |= u32::from(is_unsearched) << lane;
                    joined.remove(lane);
                    break 'connection false;
                };
                let stream = &mut tracked.streams[own];
                if joined.contains(lane) {
                    let before =
                        if is_free { None } else { self.segment_before(batch, lane, joined) };
                    let past = match before {
                        Some(place) => Some(again(place, text, begin, terms.reach)),
                        None if !stream.goes_on_at(segment.sequence) => None,
                        None => {
                            let has_seam = terms.seams && is_free && payload.len() <= LONG;
                            let seam = stream.seam(terms.reach, search).filter(|_| has_seam);
                            if seam.is_none() {
                                seamed.remove(lane);
                            }
                            Some(put(seam, stream, terms.reach, &mut text[begin..]))
                        }
                    };
                    let Some(past) = past else {
                        unsearched.insert(lane);
                        joined.remove(lane);
                        break 'connection false;
                    };
                    fresh += past;
                    end = fresh + payload.len();
                    copy(payload, &mut text[fresh..end]);
                    texts.known[lane] = fresh - begin;
                }
                let now = batch.meta.timestamp[lane];
                let may_take = taken.contains(lane)
                    && is_free
                    && flow.seen[own]
                    && payload.len() <= LONG
                    && stream.may_try(payload.len(), &terms.policy, search)
                    && now.since(flow.last) < idle;
                if !may_take {
                    break 'connection false;
                }
                self.before[lane] = flow.before(own);
                let next =
                    Continuation { to_server, segment, payload, past: None, searched: search };
                let kept = flow.go_on(&next, terms, now);
                if let Some((before, after)) = kept.filter(|(before, after)| before != after) {
                    flows.book_within(slot, before, after);
                }
                kept.is_some()
            };
            // Also of a segment without a text: its turn may find a stream that is not there yet.
            self.places[lane] = Place::new(begin, fresh, end);
            if !is_taken {
                taken.remove(lane);
                blocked.add(Some(slot));
            }
        }
        (self.joined, self.unknown, self.taken) = (joined, unsearched, taken);
        self.seamed = seamed.and(joined);
        texts.join(&text[..end], joined);
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
    fn resets(&self, batch: &Batch, data: Lanes) -> Lanes {
        let others = data.without(self.continuing).into_iter();
        others.filter(|lane| self.segment_of(batch, *lane).is_reset()).collect()
    }

    /// A number of the stream of a packet whose connection was found.
    #[inline]
    fn stream_number(&self, lane: usize) -> u32 {
        self.slots[lane] << 1 | u32::from(self.from_low.contains(lane))
    }

    /// The place of the last segment in `joined` that is of the same stream as the segment in `lane`, if
    /// this one follows it.
    #[inline(never)]
    fn segment_before(&self, batch: &Batch, lane: usize, joined: Lanes) -> Option<Place> {
        let number = self.stream_number(lane);
        let last =
            (0..lane).rev().find(|n| joined.contains(*n) && self.stream_number(*n) == number)?;
        let sequence = |lane: usize| self.segment_of(batch, lane).sequence;
        let (place, before) = (self.places[last], sequence(last));
        let next = before.wrapping_add(place.end - place.fresh);
        (next == sequence(lane)).then_some(place)
    }

    /// Undoes what was accepted, but need not have been by the search, and what followed in the same
    /// connections. If all rules are known that may match a segment, only what followed it.
    #[inline]
    pub(super) fn settle(&mut self, flows: &mut Flows) {
        let unclear = self.taken.and(self.unclear());
        let stays = unclear.and(self.joined).without(self.seamed.and(self.open.before));
        for lane in self.taken.and(self.open.after) {
            if let Some(flow) = flows.at(Slot(self.slots[lane])) {
                let own = usize::from(!flow.is_to_server(self.from_low.contains(lane)));
                if let Some(tracked) = flow.tracked.as_deref_mut() {
                    tracked.streams[own].set_searched(Searched::NO);
                }
            }
        }
        for lane in unclear {
            let slot = self.slots[lane];
            let first = lane + usize::from(stays.contains(lane));
            let later = self.taken.and(Lanes(u32::MAX.checked_shl(first as u32).unwrap_or(0)));
            let of_it = Lanes::all_where(|n| self.slots[n] == slot).and(later);
            self.give_back(flows, of_it);
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
