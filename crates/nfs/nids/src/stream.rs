//! One direction of a TCP connection, reassembled from its segments.
//!
//! Delivered bytes are final: a later segment for the same bytes changes nothing and is counted
//! if it differs. For bytes that still wait for earlier ones, the configuration decides whether
//! the first or the last copy counts; receivers differ in this ("Target-Based TCP Stream
//! Reassembly", Novak and Sturges, 2007).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_cpu::prefetch;

/// Segments farther ahead than this are outside any window.
const WINDOW: usize = 1 << 24;
/// The kept past may exceed its limit by this fraction of it (1/4).
const SLACK: usize = 4;
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
    /// Bytes of the past that are searched again together with the bytes that follow them.
    pub(super) tail: usize,
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
    /// Segments outside the window.
    pub(super) outside: u64,
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
    tail: Vec<u8>,
    /// Waiting segments, in order and without overlaps.
    waiting: Vec<Segment>,
    /// Bytes were given up that may still arrive.
    has_gaps: bool,
}

/// The bytes that a segment added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fresh {
    /// Where the new bytes begin; those before were delivered already.
    pub(super) from: usize,
    /// Bytes are missing before the new ones.
    pub(super) gap: bool,
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

    /// The number of bytes sent, modulo 2^32 as sequence numbers wrap.
    pub(super) fn bytes(&self) -> u64 {
        self.next.map_or(0, |next| u64::from(next.wrapping_sub(self.first)))
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.tail.len() + self.waiting.iter().map(|s| s.bytes.len() + OVERHEAD).sum::<usize>()
    }

    /// Whether a segment at `sequence` is near the current sequence numbers.
    pub(super) fn expects(&self, sequence: u32) -> bool {
        self.next.is_none_or(|next| (distance(next, sequence)).unsigned_abs() as usize <= 1 << 16)
    }

    /// Whether the waiting segments are in order, past the next byte and within the window, as
    /// this module keeps them and imported state must have them.
    pub(super) fn is_sound(&self) -> bool {
        let Some(next) = self.next else { return self.waiting.is_empty() };
        let mut at = 1;
        self.waiting.iter().all(|segment| {
            let from = i64::from(distance(next, segment.sequence));
            let fits = from >= at && !segment.bytes.is_empty() && segment.bytes.len() <= WINDOW;
            at = from + segment.bytes.len() as i64;
            fits && at <= 2 * WINDOW as i64
        })
    }

    /// Whether segments wait for missing bytes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a segment at `sequence` continues the stream and no segment waits.
    #[inline]
    pub(super) fn goes_on_at(&self, sequence: u32) -> bool {
        self.next == Some(sequence) && self.waiting.is_empty()
    }

    /// Prefetches the last delivered bytes.
    #[inline]
    pub(super) fn ask_for(&self) {
        prefetch::near(&self.tail, self.tail.len().saturating_sub(1));
    }

    /// The last delivered bytes, `most` at most.
    #[inline]
    pub(super) fn past(&self, most: usize) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(most)..]
    }

    /// Appends the next bytes where the stream [continues](Self::goes_on_at).
    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8], policy: &Policy) {
        self.next = self.next.map(|next| next.wrapping_add(bytes.len() as u32));
        self.remember(bytes, policy.tail);
    }

    /// Accepts a segment. `out` becomes the tail followed by the bytes now available without a
    /// gap; it stays empty if the segment adds none.
    pub(super) fn segment(
        &mut self,
        sequence: u32,
        payload: &[u8],
        policy: &Policy,
        notes: &mut Notes,
        out: &mut Vec<u8>,
    ) -> Fresh {
        out.clear();
        let mut fresh = Fresh::default();
        let Some(next) = self.next else { return fresh };
        let ahead = distance(next, sequence);
        if ahead.unsigned_abs() as usize > WINDOW {
            notes.outside += 1;
            return fresh;
        }
        let (mut begin, mut bytes) = (sequence, payload);
        if ahead < 0 {
            let old = ahead.unsigned_abs() as usize;
            notes.contradictions += u64::from(contradicts(&self.tail, old, payload));
            begin = next;
            bytes = payload.get(old..).unwrap_or(&[]);
        }
        if bytes.is_empty() {
            return fresh;
        }
        out.extend_from_slice(self.past(policy.tail));
        fresh.from = out.len();
        if self.goes_on_at(begin) {
            out.extend_from_slice(bytes);
            self.append(bytes, policy);
            return fresh;
        }
        self.wait(begin, bytes, policy.overlaps, notes);
        self.take_ready(out);
        let held: usize = self.waiting.iter().map(|s| s.bytes.len() + OVERHEAD).sum();
        if held > policy.waiting {
            self.skip_gap(notes, out, &mut fresh);
        }
        self.remember(&out[fresh.from..], policy.tail);
        fresh
    }

    /// The receiver has everything before `acknowledged`, so the missing bytes that segments
    /// wait for will not arrive any more. If no segment waits, nothing is given up, because data
    /// that was never sent can be acknowledged, too. `out` becomes the bytes that waited.
    pub(super) fn acknowledged(
        &mut self,
        acknowledged: u32,
        policy: &Policy,
        notes: &mut Notes,
        out: &mut Vec<u8>,
    ) -> Fresh {
        out.clear();
        let mut fresh = Fresh::default();
        let (Some(next), Some(first)) = (self.next, self.waiting.first()) else { return fresh };
        let beyond = distance(next, acknowledged);
        if beyond > distance(next, first.sequence) && beyond as usize <= WINDOW {
            self.skip_gap(notes, out, &mut fresh);
            self.remember(out, policy.tail);
        }
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
        *fresh = Fresh { from: 0, gap: true };
        self.take_ready(out);
    }

    /// Moves the waiting bytes that are no longer ahead to `out`.
    fn take_ready(&mut self, out: &mut Vec<u8>) {
        let Some(mut next) = self.next else { return };
        let mut ready = 0;
        for segment in &self.waiting {
            if segment.sequence != next {
                break;
            }
            out.extend_from_slice(&segment.bytes);
            next = next.wrapping_add(segment.bytes.len() as u32);
            ready += 1;
        }
        self.waiting.drain(..ready);
        self.next = Some(next);
    }

    /// Adds a segment to the waiting ones.
    fn wait(&mut self, sequence: u32, bytes: &[u8], overlaps: Overlaps, notes: &mut Notes) {
        let Some(next) = self.next else { return };
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
            notes.contradictions +=
                u64::from(old.bytes[low - from..high - from] != bytes[low - start..high - start]);
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
        self.waiting = pieces;
    }

    /// Keeps the last delivered bytes, `most` and a quarter more, so that they are not moved for
    /// each segment.
    fn remember(&mut self, bytes: &[u8], most: usize) {
        let room = most + most / SLACK;
        if bytes.len() >= most {
            self.tail.clear();
        } else if self.tail.len() + bytes.len() > room {
            self.tail.drain(..self.tail.len() + bytes.len() - most);
        }
        let bytes = &bytes[bytes.len().saturating_sub(most)..];
        let needed = self.tail.len() + bytes.len();
        if needed > self.tail.capacity() {
            // It grows in steps, but never beyond the most that it can hold.
            let capacity = needed.max(2 * self.tail.len()).min(room);
            self.tail.reserve_exact(capacity - self.tail.len());
        }
        self.tail.extend_from_slice(bytes);
    }
}

fn piece(next: u32, at: usize, bytes: &[u8]) -> Segment {
    Segment { sequence: next.wrapping_add(at as u32), bytes: bytes.to_vec() }
}

/// How far `to` lies past `from`, less than half the sequence space in either direction.
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Whether `payload`, which begins `old` bytes before the end of `tail`, differs from it where
/// both are known.
fn contradicts(tail: &[u8], old: usize, payload: &[u8]) -> bool {
    let (tail, payload) = match old.checked_sub(tail.len()) {
        Some(skip) => (tail, payload.get(skip..).unwrap_or(&[])),
        None => (&tail[tail.len() - old..], payload),
    };
    tail.iter().zip(payload).any(|(a, b)| a != b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(overlaps: Overlaps) -> Policy {
        Policy { overlaps, tail: 8, waiting: 1 << 16 }
    }

    /// Passes all segments to a stream that begins at `first`; returns the delivered bytes.
    fn assemble(first: u32, segments: &[(u32, Vec<u8>)], overlaps: Overlaps) -> (Vec<u8>, Notes) {
        let (mut stream, mut notes, mut out) = (Stream::default(), Notes::default(), Vec::new());
        let mut whole = Vec::new();
        stream.begin(first);
        for (sequence, bytes) in segments {
            let fresh = stream.segment(*sequence, bytes, &policy(overlaps), &mut notes, &mut out);
            assert_eq!(&whole[whole.len() - fresh.from..], &out[..fresh.from], "the past");
            whole.extend_from_slice(&out[fresh.from..]);
        }
        (whole, notes)
    }

    /// The same, byte by byte: waiting bytes are kept in one cell each.
    fn naive(first: u32, segments: &[(u32, Vec<u8>)], overlaps: Overlaps) -> Vec<u8> {
        let mut cells = vec![None::<u8>; 256];
        let mut done = 0;
        for (sequence, bytes) in segments {
            for (i, byte) in bytes.iter().enumerate() {
                let at = sequence.wrapping_add(i as u32).wrapping_sub(first) as i32;
                let Ok(at) = usize::try_from(at) else { continue };
                if at >= done && (cells[at].is_none() || overlaps == Overlaps::Last) {
                    cells[at] = Some(*byte);
                }
            }
            while cells[done].is_some() {
                done += 1;
            }
        }
        cells[..done].iter().map(|c| c.unwrap()).collect()
    }

    proptest! {
        #[test]
        fn segments_in_any_order_give_what_the_policy_says(
            first in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
            segments in proptest::collection::vec(
                (-8i32..60, proptest::collection::vec(any::<u8>(), 0..24)), 0..40),
            overlaps in prop_oneof![Just(Overlaps::First), Just(Overlaps::Last)],
        ) {
            let segments: Vec<_> =
                segments.into_iter().map(|(at, b)| (first.wrapping_add(at as u32), b)).collect();
            let (whole, _) = assemble(first, &segments, overlaps);
            prop_assert_eq!(whole, naive(first, &segments, overlaps));
        }
    }

    #[test]
    fn what_could_not_have_been_kept_is_not_sound() {
        let stream = |waiting: &[(u32, usize)]| Stream {
            next: Some(u32::MAX),
            waiting: waiting
                .iter()
                .map(|(at, size)| Segment {
                    sequence: u32::MAX.wrapping_add(*at),
                    bytes: vec![0; *size],
                })
                .collect(),
            ..Stream::default()
        };
        assert!(stream(&[(1, 5), (6, 5), (20, 1)]).is_sound() && stream(&[]).is_sound());
        for wrong in
            [&[(0, 5)][..], &[(u32::MAX, 5)], &[(5, 5), (8, 5)], &[(9, 1), (1, 1)], &[(1, 0)]]
        {
            assert!(!stream(wrong).is_sound(), "{wrong:?}");
        }
        assert!(!stream(&[(1 << 30, 4)]).is_sound());
        assert!(!Stream { next: None, ..stream(&[(1, 1)]) }.is_sound());
    }

    #[test]
    fn contradictions_are_counted_whether_handed_on_or_not() {
        let segments = [(0, b"abcd".to_vec()), (2, b"Xdef".to_vec()), (8, b"ij".to_vec())];
        assert_eq!(assemble(0, &segments, Overlaps::First).1.contradictions, 1);
        let segments = [(4, b"efgh".to_vec()), (6, b"XYij".to_vec()), (0, b"abcd".to_vec())];
        let (first, notes) = assemble(0, &segments, Overlaps::First);
        assert_eq!((&first[..], notes.contradictions), (&b"abcdefghij"[..], 1));
        assert_eq!(assemble(0, &segments, Overlaps::Last).0, b"abcdefXYij");
        let same = [(0, b"abcd".to_vec()), (0, b"abcd".to_vec()), (1, b"bc".to_vec())];
        assert_eq!(assemble(0, &same, Overlaps::First).1.contradictions, 0);
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        let (mut stream, mut notes, mut out) = (Stream::default(), Notes::default(), Vec::new());
        let policy = Policy { waiting: 1000, ..policy(Overlaps::First) };
        stream.begin(100);
        for i in 0..15 {
            let fresh = stream.segment(110 + i * 10, &[7; 10], &policy, &mut notes, &mut out);
            assert!(!fresh.gap || i == 13, "at {i}");
            assert_eq!(out.len(), [0, 140, 18][usize::from(i == 13) + 2 * usize::from(i > 13)]);
        }
        assert_eq!(notes.gaps, 10);
        // The receiver has it: no segment waits.
        assert_eq!(stream.acknowledged(275, &policy, &mut notes, &mut out), Fresh::default());
        stream.segment(270, b"late", &policy, &mut notes, &mut out);
        assert_eq!(stream.acknowledged(270, &policy, &mut notes, &mut out), Fresh::default());
        let fresh = stream.acknowledged(274, &policy, &mut notes, &mut out);
        assert_eq!((fresh, &out[..]), (Fresh { from: 0, gap: true }, &b"late"[..]));
        assert_eq!(stream.acknowledged(275, &policy, &mut notes, &mut out).from, 0);
        assert!(stream.has_gaps());
        stream.segment(5_000_000, b"x", &policy, &mut notes, &mut out);
        stream.segment(100_000_000, b"x", &policy, &mut notes, &mut out);
        assert_eq!((notes.gaps, notes.outside), (20, 1));
    }
}
