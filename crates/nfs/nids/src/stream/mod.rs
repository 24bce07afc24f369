//! One direction of a TCP connection, reassembled from its segments.
//!
//! Delivered bytes are final: a later segment for the same bytes changes nothing and is counted
//! if it differs. For bytes that still wait for earlier ones, the configuration decides whether
//! the first or the last copy counts; receivers differ in this ("Target-Based TCP Stream
//! Reassembly", Novak and Sturges, 2007).
//!
//! Segments that their receiver would not take are doubted: their bytes join the stream only if
//! the receiver acknowledges them.

mod doubts;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::literals::Literals;
use super::searched::Searched;
use super::segment::distance;
use super::seldom::Seldom;
use super::tail::{Kept, Tail};
use doubts::{DOUBTED, Doubted};

/// Segments farther ahead than this are outside any window.
pub(super) const WINDOW: usize = 1 << 24;
/// The memory of a waiting segment in addition to its bytes.
const OVERHEAD: usize = 64;

/// Which of two overlapping segments counts while both wait for earlier bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Overlaps {
    /// The one that arrived first, as in Windows.
    #[default]
    First,
    /// The one that arrived last.
    Last,
}

/// Settings of the reassembly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) overlaps: Overlaps,
    /// Bytes of the past, of which some are searched again together with the bytes that follow them.
    pub(super) tail: Kept,
    /// Bytes that may wait for earlier ones.
    pub(super) waiting: usize,
}

/// Counts of irregularities in reassembly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notes {
    /// Segments that contradict earlier ones.
    pub(super) contradictions: u64,
    /// Bytes that were given up as lost.
    pub(super) gaps: u64,
}

/// A segment that waits for earlier bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Segment {
    sequence: u32,
    bytes: Vec<u8>,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stream {
    /// The next sequence number, once known.
    next: Option<u32>,
    /// The first sequence number.
    first: u32,
    /// The last delivered bytes, a few more than requested.
    tail: Tail,
    /// Waiting segments, in order and without overlaps.
    waiting: Seldom<Vec<Segment>>,
    /// Bytes were given up that may still arrive.
    has_gaps: bool,
    /// Where the stream ends, by a FIN that waits for earlier bytes.
    last: Option<u32>,
    /// The stream has ended before `next`.
    ended: bool,
    /// Segments that the receiver would not take, the oldest first.
    doubted: Seldom<Vec<Doubted>>,
}

/// The bytes that a segment added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fresh {
    /// Where the new bytes begin; those before were delivered already.
    pub(super) from: usize,
    /// Bytes are missing before the new ones.
    pub(super) gap: bool,
    /// What doubted segments among the new bytes acknowledged: their receiver had sent it.
    pub(super) believed: Option<u32>,
}

impl Stream {
    /// Begins the stream at a sequence number, unless it has begun.
    pub(super) fn begin(&mut self, sequence: u32) {
        if self.next.is_none() {
            self.restart(sequence);
        }
    }

    /// Begins the stream again.
    pub(super) fn restart(&mut self, sequence: u32) {
        *self = Self { next: Some(sequence), first: sequence, ..Self::default() };
    }

    /// Begins the stream at a sequence number unless it begins there already.
    pub(super) fn settle(&mut self, sequence: u32) {
        if self.next.is_none() || self.first != sequence {
            self.restart(sequence);
        }
    }

    /// The next sequence number, once known.
    #[inline]
    pub(super) fn next(&self) -> Option<u32> {
        self.next
    }

    /// The first sequence number.
    #[inline]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Whether a FIN ended the stream.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether its end is known: a FIN ended it, or waits for earlier bytes.
    #[inline]
    pub(super) fn has_end(&self) -> bool {
        self.ended || self.last.is_some()
    }

    /// The number of bytes sent, modulo 2^32 as sequence numbers wrap.
    pub(super) fn bytes(&self) -> u64 {
        self.next.map_or(0, |next| u64::from(next.wrapping_sub(self.first)))
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.tail.memory() + self.held() + self.doubts()
    }

    /// Bytes of memory of waiting segments.
    fn held(&self) -> usize {
        self.waiting.iter().map(Segment::memory).sum()
    }

    /// Whether the waiting segments are in order, past the next byte and within the window, as
    /// this module keeps them and imported state must have them.
    pub(super) fn is_sound(&self) -> bool {
        let Some(next) = self.next else {
            return self.waiting.is_empty() && self.doubted.is_empty();
        };
        if self.doubted.len() > DOUBTED || self.doubted.iter().any(|d| !d.segment.is_possible()) {
            return false;
        }
        let mut at = 1;
        self.waiting.iter().all(|segment| {
            let from = i64::from(distance(next, segment.sequence));
            let fits = from >= at && segment.is_possible();
            at = from + segment.bytes.len() as i64;
            fits && at <= 2 * WINDOW as i64
        })
    }

    /// Whether segments wait for missing bytes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether an acknowledgement may add bytes.
    #[inline]
    pub(super) fn waits_for_acknowledgement(&self) -> bool {
        !(self.waiting.is_empty() && self.doubted.is_empty())
    }

    /// Whether the next byte is that at `sequence`.
    #[inline]
    pub(super) fn is_next(&self, sequence: u32) -> bool {
        self.next == Some(sequence)
    }

    /// Whether a segment at `sequence` continues the stream and no segment waits.
    #[inline]
    pub(super) fn goes_on_at(&self, sequence: u32) -> bool {
        self.is_next(sequence) && self.waiting.is_empty()
    }

    /// Prefetches the last delivered bytes.
    #[inline]
    pub(super) fn ask_for(&self) {
        self.tail.ask_for();
    }

    /// The last delivered bytes, `most` at most, in two parts.
    #[inline]
    pub(super) fn past(&self, most: usize) -> [&[u8]; 2] {
        self.tail.last(most)
    }

    /// The last delivered bytes that have to be searched again together with the next ones, if those are
    /// fewer than `most`. See [`Tail::seam`].
    #[inline(always)]
    pub(super) fn seam(&self, most: usize, now: Searched) -> Option<&[u8; Literals::SEAM]> {
        self.tail.seam(most, now)
    }

    /// Whether there is that end, after which bytes may be appended and taken back. See [`Tail::has_seam`].
    #[inline(always)]
    pub(super) fn has_seam(&self, now: Searched) -> bool {
        self.tail.has_seam(now)
    }

    /// Appends the next bytes, the first of which is that at `sequence`, after that [end](Self::has_seam), and
    /// makes `text` the end and these bytes. See [`Tail::append_after_seam`].
    #[inline(always)]
    pub(super) fn append_after_seam(
        &mut self,
        sequence: u32,
        bytes: &[u8],
        text: &mut [u8],
        kept: &Kept,
        searched: Searched,
    ) -> (usize, usize) {
        self.next = Some(sequence.wrapping_add(bytes.len() as u32));
        self.tail.append_after_seam(bytes, text, kept, searched)
    }

    /// Notes the search of the last delivered bytes, or none.
    #[inline]
    pub(super) fn set_searched(&mut self, searched: Searched) {
        self.tail.set_searched(searched);
    }

    /// Whether bytes may be [appended](Self::append), and [taken back](Self::take_back) until the search `now`.
    #[inline(always)]
    pub(super) fn may_try(&mut self, bytes: usize, policy: &Policy, now: Searched) -> bool {
        self.tail.may_try(bytes, &policy.tail, now)
    }

    /// Takes back the last bytes, which [could be](Self::may_try) appended.
    pub(super) fn take_back(&mut self, bytes: usize) {
        self.next = self.next.map(|next| next.wrapping_sub(bytes as u32));
        self.tail.take_back(bytes);
    }

    /// Whether the last delivered bytes, `most` at most, are `bytes`.
    #[inline]
    pub(super) fn has_past(&self, bytes: &[u8], most: usize) -> bool {
        self.tail.is(bytes, most)
    }

    /// Appends the next bytes where the stream [continues](Self::goes_on_at). Returns the bytes of
    /// memory of its past before and now.
    #[inline(always)]
    pub(super) fn append(&mut self, bytes: &[u8], policy: &Policy) -> (usize, usize) {
        self.next = self.next.map(|next| next.wrapping_add(bytes.len() as u32));
        let before = self.tail.memory();
        self.tail.push(bytes, &policy.tail);
        (before, self.tail.memory())
    }

    /// Accepts a segment, the last one if it carries a FIN. `out` becomes the tail followed by the
    /// bytes now available without a gap; it stays empty if the segment adds none.
    pub(super) fn segment(
        &mut self,
        sequence: u32,
        payload: &[u8],
        is_last: bool,
        policy: &Policy,
        notes: &mut Notes,
        out: &mut Vec<u8>,
    ) -> Fresh {
        out.clear();
        let mut fresh = Fresh::default();
        let Some(next) = self.next.filter(|_| !self.ended) else { return fresh };
        let ahead = distance(next, sequence);
        if ahead.unsigned_abs() as usize > WINDOW {
            return fresh;
        }
        if is_last {
            self.ends_at(sequence.wrapping_add(payload.len() as u32));
        }
        let (mut begin, mut bytes) = (sequence, payload);
        let mut contradicts_earlier = false;
        if ahead < 0 {
            let old = ahead.unsigned_abs() as usize;
            contradicts_earlier = contradicts(&self.tail, old, payload);
            begin = next;
            bytes = payload.get(old..).unwrap_or(&[]);
        }
        if bytes.is_empty() {
            notes.contradictions += u64::from(contradicts_earlier);
            self.end();
            return fresh;
        }
        self.past(policy.tail.searched).into_iter().for_each(|part| out.extend_from_slice(part));
        fresh.from = out.len();
        if self.goes_on_at(begin) {
            notes.contradictions += u64::from(contradicts_earlier);
            out.extend_from_slice(bytes);
            self.append(bytes, policy);
            if is_last {
                self.last = self.next;
            }
            self.end();
            return fresh;
        }
        contradicts_earlier |= self.wait(begin, bytes, policy.overlaps);
        notes.contradictions += u64::from(contradicts_earlier);
        self.take_ready(out);
        if self.held() > policy.waiting {
            self.skip_gap(notes, out, &mut fresh);
        }
        self.tail.push(&out[fresh.from..], &policy.tail);
        fresh
    }

    /// Whether bytes were given up that may still arrive: old segments may then be new.
    pub(super) fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// Gives up the missing bytes and continues with the waiting ones.
    fn skip_gap(&mut self, notes: &mut Notes, out: &mut Vec<u8>, fresh: &mut Fresh) {
        let (Some(next), Some(first)) = (self.next, self.waiting.first()) else { return };
        notes.gaps += distance(next, first.sequence).unsigned_abs() as u64;
        self.next = Some(first.sequence);
        self.has_gaps = true;
        // A pattern does not span a gap.
        out.clear();
        self.tail.clear();
        *fresh = Fresh { from: 0, gap: true, ..*fresh };
        self.take_ready(out);
    }

    /// Moves the waiting bytes that are no longer ahead to `out`, up to the end of the stream.
    fn take_ready(&mut self, out: &mut Vec<u8>) {
        let Some(mut next) = self.next else { return };
        let mut ready = 0;
        for segment in self.waiting.iter() {
            // Doubted bytes may reach into waiting ones.
            let old = distance(segment.sequence, next);
            if old < 0 || self.last == Some(next) {
                break;
            }
            let bytes = segment.bytes.get(old as usize..).unwrap_or(&[]);
            out.extend_from_slice(bytes);
            next = next.wrapping_add(bytes.len() as u32);
            ready += 1;
        }
        if ready > 0 {
            self.waiting.drain(..ready);
        }
        self.next = Some(next);
        self.end();
    }

    /// Notes a FIN before `last`; the first one in the stream counts.
    fn ends_at(&mut self, last: u32) {
        let is_first = self.last.is_none_or(|known| distance(known, last) < 0);
        if is_first && self.next.is_some_and(|next| distance(next, last) >= 0) {
            self.last = Some(last);
        }
    }

    /// Ends the stream if it has reached its last byte. A FIN within the bytes of a later segment
    /// has no effect, since the receiver drops it as a duplicate.
    fn end(&mut self) {
        let (Some(next), Some(last)) = (self.next, self.last) else { return };
        let left = distance(next, last);
        self.ended = left == 0;
        if self.ended {
            (self.waiting, self.doubted) = Default::default();
        }
        if left <= 0 {
            self.last = None;
        }
    }

    /// Adds a segment to the waiting ones; returns whether it contradicts one of them.
    fn wait(&mut self, sequence: u32, bytes: &[u8], overlaps: Overlaps) -> bool {
        let Some(next) = self.next else { return false };
        let mut contradicts = false;
        let start = distance(next, sequence) as usize;
        let end = start + bytes.len();
        let mut pieces = Vec::with_capacity(self.waiting.len() + 1);
        // Where the new segment continues after older ones.
        let mut at = start;
        for old in self.waiting.drain(..) {
            let from = distance(next, old.sequence) as usize;
            let to = from + old.bytes.len();
            if to <= start || from >= end {
                pieces.push(old);
                continue;
            }
            let (low, high) = (from.max(start), to.min(end));
            contradicts |= old.bytes[low - from..high - from] != bytes[low - start..high - start];
            match overlaps {
                Overlaps::First => {
                    if at < from {
                        pieces.push(piece(next, at, &bytes[at - start..from - start]));
                    }
                    at = to;
                    pieces.push(old);
                }
                Overlaps::Last => {
                    if from < start {
                        pieces.push(piece(next, from, &old.bytes[..start - from]));
                    }
                    if end < to {
                        pieces.push(piece(next, end, &old.bytes[end - from..]));
                    }
                }
            }
        }
        if at < end {
            pieces.push(piece(next, at, &bytes[at - start..]));
        }
        pieces.sort_unstable_by_key(|s| distance(next, s.sequence));
        self.waiting = pieces.into();
        contradicts
    }
}

fn piece(next: u32, at: usize, bytes: &[u8]) -> Segment {
    Segment { sequence: next.wrapping_add(at as u32), bytes: bytes.to_vec() }
}

impl Segment {
    /// Bytes of memory held.
    fn memory(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }

    /// Whether a segment may have this length.
    fn is_possible(&self) -> bool {
        (1..=WINDOW).contains(&self.bytes.len())
    }

    /// Whether it has bytes from `next` on.
    fn is_new(&self, next: u32) -> bool {
        distance(next, self.sequence.wrapping_add(self.bytes.len() as u32)) > 0
    }
}

/// Whether `payload`, which begins `old` bytes before the end of `tail`, differs from it where
/// both are known. The zero byte of a keep-alive (RFC 9293, 3.8.4) is not data.
fn contradicts(tail: &Tail, old: usize, payload: &[u8]) -> bool {
    if old == 1 && payload == [0] {
        return false;
    }
    let unknown = old.saturating_sub(tail.len());
    let payload = payload.get(unknown..).unwrap_or(&[]);
    tail.last(old).into_iter().flatten().zip(payload).any(|(a, b)| a != b)
}
