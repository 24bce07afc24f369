//! The last bytes of a stream, in a ring: what is forgotten need not be moved.

use serde::{Deserialize, Serialize};
use thalweg_cpu::prefetch;

use super::literals::Literals;
use super::searched::Searched;

/// Bytes that are kept at least, to compare retransmissions with.
const COMPARED: usize = 2048;
/// What is kept may exceed its limit by this fraction of it (1/4).
const SLACK: usize = 4;

/// The most bytes that are tried: appended so that they can be taken back.
pub(super) const TRIED: usize = 128;
const _: () = assert!(TRIED <= COMPARED / SLACK);

/// Memory is counted in steps of this many bytes.
pub(super) const MEMORY_STEP: usize = 256;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The last bytes of a stream, a few more than requested.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub(super) struct Tail {
    /// Where it ends, the bytes go on at its beginning.
    ring: Box<[u8]>,
    /// The place after the last byte, which may be that after the ring.
    end: u32,
    len: u32,
    /// How many bytes have room at `end` without any other change.
    room: u32,
    /// The search of these bytes for literals, of which none that begins before the last
    /// [`SEAM`](Literals::SEAM) bytes ends after them; none if one may.
    searched: Searched,
}

impl Tail {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory, in steps, so that it seldom changes.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.len().div_ceil(MEMORY_STEP) * MEMORY_STEP
    }

    /// The last bytes, `most` at most, in two parts of which the second may be empty.
    #[inline(always)]
    pub(super) fn last(&self, most: usize) -> [&[u8]; 2] {
        let (len, end) = (self.len().min(most), self.end as usize);
        // Most do not go on at the beginning of the ring.
        match self.ring.get(end.wrapping_sub(len)..end) {
            Some(whole) => [whole, &[]],
            None => self.last_apart(len),
        }
    }

    /// The last `len` bytes, which go on at the beginning of the ring.
    #[inline(never)]
    fn last_apart(&self, len: usize) -> [&[u8]; 2] {
        let end = self.end as usize;
        [&self.ring[self.ring.len() + end - len..], &self.ring[..end]]
    }

    /// The last bytes that have to be searched again together with the next ones, if those are fewer than
    /// `most`: `None` if a literal may have begun before them, or if the search is `now`, which is
    /// still to come.
    #[inline(always)]
    pub(super) fn seam(&self, most: usize, now: Searched) -> Option<&[u8; Literals::SEAM]> {
        let is_closed = self.searched.is_before(now) && most > Literals::SEAM;
        let before = self.ring.get(..self.end as usize)?;
        before.last_chunk().filter(|_| is_closed && self.len() >= Literals::SEAM)
    }

    /// Whether there is that end, and `bytes` more can be appended after it and taken back.
    #[inline(always)]
    pub(super) fn has_seam_and_room(&self, bytes: usize, most: usize, now: Searched) -> bool {
        // As many bytes before the end are the last ones: a ring goes on at its beginning when it is full.
        self.searched.is_before(now)
            && self.end as usize >= Literals::SEAM
            && (bytes <= self.room as usize || self.can_make_room(bytes, most, now))
    }

    /// Whether `bytes` more have room after the last one once room is made, and can be taken back.
    #[inline(never)]
    fn can_make_room(&self, bytes: usize, most: usize, now: Searched) -> bool {
        let kept = self.len().min(limits(most).0);
        let grows = kept + bytes > self.ring.len();
        (grows || self.end as usize + bytes <= self.ring.len())
            && self.may_try_apart(bytes, most, now)
    }

    /// Forgets bytes so that `bytes` more have room within the limit, and makes the ring large enough.
    #[inline(never)]
    fn make_room(&mut self, bytes: usize, most: usize) {
        let (least, limit) = limits(most);
        if self.len() + bytes > limit || bytes == least {
            // Those that are tried leave what is needed if they are taken back.
            let kept = if bytes <= TRIED { least } else { least - bytes };
            self.len = self.len().min(kept) as u32;
        }
        let len = self.len() + bytes;
        if len > self.ring.len() {
            self.grow(len, limit);
        }
        self.find_room(most);
    }

    /// Appends bytes where there is [room](Self::has_seam_and_room), and makes `text` the seam and these
    /// bytes, which have its length; notes their search. Returns the bytes of memory before and now; `None`
    /// if there is no room.
    #[inline(always)]
    pub(super) fn append_after_seam(
        &mut self,
        bytes: &[u8],
        text: &mut [u8],
        most: usize,
        searched: Searched,
    ) -> Option<(usize, usize)> {
        let (len, before) = (bytes.len(), self.memory());
        if len > self.room as usize {
            self.make_room(len, most);
        }
        let end = self.end as usize;
        let place = self.ring.get_mut(end.wrapping_sub(Literals::SEAM)..end + len)?;
        let (seam, room) = place.split_first_chunk_mut::<{ Literals::SEAM }>()?;
        let (begin, rest) = text.split_first_chunk_mut()?;
        *begin = *seam;
        copy_twice(bytes, [rest, room]);
        self.has_got(len);
        self.searched = searched;
        Some((before, self.memory()))
    }

    /// Notes the search of the last bytes; none if a literal may have begun in them.
    #[inline]
    pub(super) fn set_searched(&mut self, searched: Searched) {
        self.searched = searched;
    }

    /// Whether bytes may be appended with this limit, and taken back until the search `now`.
    #[inline(always)]
    pub(super) fn may_try(&self, bytes: usize, most: usize, now: Searched) -> bool {
        bytes <= self.room as usize || self.may_try_apart(bytes, most, now)
    }

    /// The same where appending them does more than that.
    #[inline(never)]
    fn may_try_apart(&self, bytes: usize, most: usize, now: Searched) -> bool {
        let (_, limit) = limits(most);
        // What is forgotten is that before the last `most` bytes, of which none may be taken back.
        self.len() + bytes <= limit || bytes <= TRIED && self.searched != now
    }

    /// Takes back the last bytes, that [could be](Self::may_try) appended with this limit.
    pub(super) fn take_back(&mut self, bytes: usize, most: usize) {
        let end = self.end as usize;
        let place = if bytes <= end { end - bytes } else { self.ring.len() + end - bytes };
        (self.end, self.len, self.searched) = (place as u32, self.len - bytes as u32, Searched::NO);
        self.find_room(most);
    }

    /// Notes how many bytes have room.
    fn find_room(&mut self, most: usize) {
        let (most, limit) = limits(most);
        let at_end = self.ring.len() - self.end as usize;
        let in_all = self.ring.len().min(limit).saturating_sub(self.len());
        self.room = at_end.min(in_all).min(most - 1) as u32;
    }

    /// Whether the last bytes, `most` at most, are `bytes`.
    #[inline]
    pub(super) fn is(&self, bytes: &[u8], most: usize) -> bool {
        let [first, second] = self.last(most);
        bytes.strip_prefix(first) == Some(second)
    }

    /// Prefetches the last bytes, and the place of the next ones.
    #[inline(always)]
    pub(super) fn ask_for(&self) {
        let end = self.end as usize;
        prefetch::near(&self.ring, end.saturating_sub(1));
        prefetch::near(&self.ring, end + LINE);
    }

    pub(super) fn clear(&mut self) {
        *self = Self { ring: std::mem::take(&mut self.ring), ..Self::default() };
    }

    /// Appends bytes. Keeps the last ones, `most` or [`COMPARED`] and a quarter more. That quarter is
    /// forgotten all at once: before a few bytes are appended, and with many.
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: &[u8], most: usize) {
        let (len, end) = (bytes.len(), self.end as usize);
        if len <= self.room as usize
            && let Some(place) = self.ring.get_mut(end..end + len)
        {
            copy(bytes, place);
            self.has_got(len);
        } else {
            self.push_apart(bytes, most);
        }
    }

    /// Counts bytes that were put where they had room.
    #[inline(always)]
    fn has_got(&mut self, bytes: usize) {
        let bytes = bytes as u32;
        (self.end, self.len, self.room) = (self.end + bytes, self.len + bytes, self.room - bytes);
    }

    /// The same as [`push`](Self::push) where bytes are forgotten, the ring grows, or they go on at its beginning.
    #[inline(never)]
    fn push_apart(&mut self, bytes: &[u8], most: usize) {
        let bytes = &bytes[bytes.len().saturating_sub(limits(most).0)..];
        self.make_room(bytes.len(), most);
        self.put(bytes);
        self.find_room(most);
    }

    /// Makes the ring as large as needed. It grows in steps, but never beyond the most that it can
    /// hold.
    #[cold]
    fn grow(&mut self, needed: usize, limit: usize) {
        let size = needed.max(2 * self.len()).min(limit);
        let [first, second] = self.last(usize::MAX);
        let mut ring = Vec::with_capacity(size);
        ring.extend_from_slice(first);
        ring.extend_from_slice(second);
        ring.resize(size, 0);
        (self.ring, self.end) = (ring.into_boxed_slice(), self.len);
    }

    /// Appends bytes for which the ring has room.
    fn put(&mut self, bytes: &[u8]) {
        let end = self.end as usize;
        let (here, beyond) = bytes.split_at(bytes.len().min(self.ring.len() - end));
        self.ring[end..end + here.len()].copy_from_slice(here);
        self.ring[..beyond.len()].copy_from_slice(beyond);
        self.end = if beyond.is_empty() { end + here.len() } else { beyond.len() } as u32;
        self.len += bytes.len() as u32;
    }
}

/// How many bytes are kept at least and at most.
#[inline]
fn limits(most: usize) -> (usize, usize) {
    let most = most.max(COMPARED);
    (most, most + most / SLACK)
}

/// Copies bytes. Few are copied in two pieces that overlap: moves of vectors, where `memcpy` would
/// first find out the length.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    #[inline(always)]
    fn pieces<const N: usize>(from: &[u8], to: &mut [u8]) -> Option<()> {
        let (first, last) = (from.first_chunk::<N>()?, from.last_chunk::<N>()?);
        *to.first_chunk_mut()? = *first;
        *to.last_chunk_mut()? = *last;
        Some(())
    }
    assert_eq!(from.len(), to.len(), "lengths differ");
    let done = match from.len() {
        33..=64 => pieces::<32>(from, to),
        65..=128 => pieces::<64>(from, to),
        16..=32 => pieces::<16>(from, to),
        _ => None,
    };
    if done.is_none() {
        to.copy_from_slice(from);
    }
}

/// Copies bytes to two places, as [`copy`] does.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub(super) fn copy_twice(from: &[u8], to: [&mut [u8]; 2]) {
    #[inline(always)]
    fn pieces<const N: usize>(from: &[u8], [one, other]: [&mut [u8]; 2]) -> Option<()> {
        let (first, last) = (from.first_chunk::<N>()?, from.last_chunk::<N>()?);
        *one.first_chunk_mut()? = *first;
        *other.first_chunk_mut()? = *first;
        *one.last_chunk_mut()? = *last;
        *other.last_chunk_mut()? = *last;
        Some(())
    }
    assert!(to.iter().all(|to| to.len() == from.len()), "lengths differ");
    let [one, other] = to;
    let done = match from.len() {
        33..=64 => pieces::<32>(from, [&mut *one, &mut *other]),
        65..=128 => pieces::<64>(from, [&mut *one, &mut *other]),
        16..=32 => pieces::<16>(from, [&mut *one, &mut *other]),
        _ => None,
    };
    if done.is_none() {
        one.copy_from_slice(from);
        other.copy_from_slice(from);
    }
}

impl From<Vec<u8>> for Tail {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len().min(u32::MAX as usize) as u32;
        Self { ring: bytes.into_boxed_slice(), end: len, len, ..Self::default() }
    }
}

impl From<Tail> for Vec<u8> {
    fn from(tail: Tail) -> Self {
        tail.last(usize::MAX).concat()
    }
}

impl PartialEq for Tail {
    fn eq(&self, other: &Self) -> bool {
        let [first, second] = other.last(usize::MAX);
        let bytes = self.last(usize::MAX).into_iter().flatten();
        self.len == other.len && bytes.eq(first.iter().chain(second))
    }
}

impl Eq for Tail {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What [`Tail::push`] does, with a plain vector.
    fn push(tail: &mut Vec<u8>, bytes: &[u8], most: usize) {
        let least = most.max(COMPARED);
        let slack = least / SLACK;
        let bytes = &bytes[bytes.len().saturating_sub(least)..];
        let is_over = tail.len() + bytes.len() > least + slack || bytes.len() == least;
        if is_over && !bytes.is_empty() {
            let kept = if bytes.len() <= TRIED { least } else { least - bytes.len() };
            tail.drain(..tail.len().saturating_sub(kept));
        }
        tail.extend_from_slice(bytes);
    }

    #[test]
    fn all_lengths_are_copied() {
        let from: Vec<u8> = (1..=200).collect();
        for length in 0..from.len() {
            let [mut once, mut to, mut other] = [const { [0; 200] }; 3];
            copy(&from[..length], &mut once[..length]);
            copy_twice(&from[..length], [&mut to[..length], &mut other[..length]]);
            for to in [once, to, other] {
                assert_eq!(to[..length], from[..length]);
                assert!(to[length..].iter().all(|byte| *byte == 0), "{length}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_ring_keeps_what_a_vector_would(
            known in prop_oneof![Just(0), 0..9000usize],
            most in prop_oneof![Just(0usize), Just(4096)],
            pushes in proptest::collection::vec(
                (prop_oneof![0..90usize, 0..9000usize], any::<bool>()), 0..60),
        ) {
            let mut numbers = 0..;
            let mut bytes = |many: usize| -> Vec<u8> {
                numbers.by_ref().take(many).map(|n: u32| (n % 251) as u8).collect()
            };
            let mut plain = bytes(known);
            let mut tail = Tail::from(plain.clone());
            for (many, clears) in pushes {
                if clears && many % 8 == 0 {
                    tail.clear();
                    plain.clear();
                }
                let bytes = bytes(many);
                tail.push(&bytes, most);
                push(&mut plain, &bytes, most);
                prop_assert_eq!(tail.len(), plain.len());
                prop_assert!(tail.ring.len() <= known.max(4096 + 4096 / SLACK));
                for most in [0, 1, 100, usize::MAX] {
                    let last = &plain[plain.len().saturating_sub(most)..];
                    prop_assert_eq!(tail.last(most).concat(), last);
                    prop_assert!(tail.is(last, most));
                    let mut other = last.to_vec();
                    other.push(0);
                    prop_assert!(!tail.is(&other, most) && (last.is_empty() || !tail.is(&last[1..], most)));
                }
                let again = Tail::from(plain.clone());
                prop_assert!(again == tail && Vec::from(tail.clone()) == plain);
            }
        }

        /// Batch by batch; what one tries and takes back comes for good after it.
        #[test]
        fn what_is_taken_back_leaves_what_it_needs(
            most in prop_oneof![Just(20usize), Just(4096)],
            batches in proptest::collection::vec(
                (proptest::collection::vec(prop_oneof![4 => 0..129usize, 1 => 0..700usize], 1..5), any::<bool>()),
                0..150),
        ) {
            let mut numbers = 0..;
            let mut bytes = |many: usize| -> Vec<u8> {
                numbers.by_ref().take(many).map(|n: u32| (n % 251) as u8).collect()
            };
            let (least, _) = limits(most);
            let (mut plain, mut tail) = (Vec::new(), Tail::default());
            let mut now = Searched::NO;
            for (batch, (pieces, is_taken_back)) in batches.into_iter().enumerate() {
                now = now.next(1);
                let before = plain.clone();
                let pieces: Vec<_> = pieces.into_iter().map(&mut bytes).collect();
                let mut tried = 0;
                for piece in &pieces {
                    if tail.has_seam_and_room(piece.len(), most, now) {
                        let mut text = vec![0; Literals::SEAM + piece.len()];
                        let last = plain[plain.len() - Literals::SEAM..].to_vec();
                        let was = tail.memory();
                        let kept = tail.append_after_seam(piece, &mut text, most, now);
                        prop_assert_eq!(kept, Some((was, tail.memory())));
                        prop_assert_eq!(text, [last, piece.clone()].concat());
                    } else if tail.may_try(piece.len(), most, now) {
                        tail.push(piece, most);
                        tail.set_searched(now);
                    } else {
                        break;
                    }
                    push(&mut plain, piece, most);
                    tried += 1;
                }
                prop_assert!(tail == Tail::from(plain.clone()));
                let mut rest = &pieces[tried..];
                if is_taken_back {
                    pieces[..tried].iter().rev().for_each(|piece| tail.take_back(piece.len(), most));
                    prop_assert!(tail.is(&before[before.len().saturating_sub(least)..], least));
                    (plain, rest) = (before, &pieces);
                }
                for piece in rest {
                    tail.push(piece, most);
                    push(&mut plain, piece, most);
                }
                let is_closed = rest.is_empty() || batch % 3 > 0;
                tail.set_searched(if is_closed { now } else { Searched::NO });
                prop_assert!(tail == Tail::from(plain.clone()));
            }
        }
    }
}
