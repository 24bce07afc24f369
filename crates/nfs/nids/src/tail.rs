//! The last bytes of a stream, in a ring: what is forgotten need not be moved.

use serde::{Deserialize, Serialize};
use thalweg_cpu::prefetch;

use super::literals::Literals;
use super::searched::Searched;

/// Bytes that are kept at least, to compare retransmissions with.
const COMPARED: usize = 2048;
/// This fraction of it more is kept (1/4), so that as many bytes can be appended and taken back.
const SLACK: usize = 4;

/// The bytes that can be appended and taken back without asking, once in a batch.
pub(super) const TRIED: usize = 128;
const _: () = assert!(TRIED <= COMPARED / SLACK);

/// Memory is counted in steps of this many bytes.
pub(super) const MEMORY_STEP: usize = 256;

/// Bytes of a cache line.
const LINE: usize = 64;

/// How many of the last bytes of a stream are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Those that are searched again.
    pub(super) searched: usize,
    /// The minimum, as soon as the stream is that long.
    least: usize,
    /// The maximum, which is the size of a full ring.
    most: usize,
}

impl Kept {
    /// Those of a stream of which the last `searched` bytes are searched again.
    #[inline]
    pub(super) fn for_search(searched: usize) -> Self {
        let least = searched.max(COMPARED);
        Self { searched, least, most: least + least / SLACK }
    }
}

/// The last bytes of a stream, a few more than requested.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub(super) struct Tail {
    /// Where it ends, the bytes go on at its beginning. It grows up to the limit; then new bytes take the
    /// place of the oldest.
    ring: Box<[u8]>,
    /// The place after the last byte, which may be that after the ring.
    end: u32,
    len: u32,
    /// The bytes that were appended in a batch and may be taken back, at least, and the number of its search.
    tried: u16,
    tried_in: u16,
    /// The search of these bytes for literals, of which none that begins before the last
    /// [`SEAM`](Literals::SEAM) bytes ends after them; none if one may, or if there are fewer bytes.
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
        before.last_chunk().filter(|_| is_closed)
    }

    /// Whether there is that end. After it [`TRIED`] bytes may be appended and taken back, since nothing was
    /// appended for the search `now` yet.
    #[inline(always)]
    pub(super) fn has_seam(&self, now: Searched) -> bool {
        self.searched.is_before(now)
    }

    /// The ring from `before` bytes before the end on, if its size allows `bytes` more: they overwrite only the
    /// oldest bytes of a full ring.
    #[inline(always)]
    fn place(&mut self, before: usize, bytes: usize, kept: &Kept) -> Option<&mut [u8]> {
        let (size, end) = (self.ring.len(), self.end as usize);
        let has_room = size == kept.most || size < kept.most && self.len() + bytes <= size;
        if has_room { self.ring.get_mut(end.wrapping_sub(before)..) } else { None }
    }

    /// Makes the ring large enough for `bytes` more, or as large as it may be.
    fn make_room(&mut self, bytes: usize, &Kept { most: limit, .. }: &Kept) {
        let size = self.ring.len();
        let needed = self.len() + bytes;
        if size > limit || size < limit && needed > size {
            self.resize(needed.max(2 * self.len()).min(limit));
        }
    }

    /// Appends bytes after that [end](Self::has_seam), and makes `text` the seam and these bytes, which have its
    /// length; notes their search. Returns the bytes of memory before and now.
    #[inline(always)]
    pub(super) fn append_after_seam(
        &mut self,
        bytes: &[u8],
        text: &mut [u8],
        kept: &Kept,
        searched: Searched,
    ) -> (usize, usize) {
        let (before, len) = (self.memory(), bytes.len());
        if let Some(place) = self.place(Literals::SEAM, len, kept)
            && let Some((seam, room)) = place.split_first_chunk_mut::<{ Literals::SEAM }>()
            && let Some(room) = room.get_mut(..len)
            && let Some((begin, rest)) = text.split_first_chunk_mut()
            && let Some(rest) = rest.get_mut(..len)
        {
            *begin = *seam;
            copy_twice(bytes, [rest, room]);
            self.has_got(len);
            // The line that the next bytes take has not been touched for as long as the ring took to get full.
            prefetch::ahead(&self.ring, self.end as usize + LINE - 1);
        } else {
            self.append_after_seam_apart(bytes, text, kept);
        }
        self.searched = searched;
        (before, self.memory())
    }

    /// The same where the ring grows, or the bytes or the seam go on at its beginning.
    #[inline(never)]
    fn append_after_seam_apart(&mut self, bytes: &[u8], text: &mut [u8], kept: &Kept) {
        let (seam, rest) = text.split_at_mut(Literals::SEAM);
        let [first, second] = self.last(Literals::SEAM);
        seam[..first.len()].copy_from_slice(first);
        seam[first.len()..].copy_from_slice(second);
        rest.copy_from_slice(bytes);
        self.push_apart(bytes, kept);
    }

    /// Notes the search of the last bytes; none if a literal may have begun in them.
    #[inline]
    pub(super) fn set_searched(&mut self, searched: Searched) {
        let has_seam = self.len() >= Literals::SEAM;
        self.searched = if has_seam { searched } else { Searched::NO };
    }

    /// Whether bytes may be appended, and taken back until the search `now`: then no more are forgotten than are
    /// kept in addition to the least. Counts them.
    #[inline]
    pub(super) fn may_try(&mut self, bytes: usize, kept: &Kept, now: Searched) -> bool {
        let before = if self.searched != now {
            0
        } else if self.tried_in == now.number() {
            TRIED.max(self.tried.into())
        } else {
            // Those after a seam, which are not counted.
            TRIED
        };
        let tried = before.saturating_add(bytes);
        (self.tried, self.tried_in) = (tried.min(u16::MAX.into()) as u16, now.number());
        self.len() + bytes <= kept.most || tried <= kept.most - kept.least
    }

    /// Takes back the last bytes, that [could be](Self::may_try) appended.
    pub(super) fn take_back(&mut self, bytes: usize) {
        let end = self.end as usize;
        let place = if bytes <= end { end - bytes } else { self.ring.len() + end - bytes };
        (self.end, self.len, self.searched) = (place as u32, self.len - bytes as u32, Searched::NO);
    }

    /// Whether the last bytes, `most` at most, are `bytes`.
    #[inline]
    pub(super) fn is(&self, bytes: &[u8], most: usize) -> bool {
        let [first, second] = self.last(most);
        bytes.strip_prefix(first) == Some(second)
    }

    /// Prefetches the [seam](Self::seam), and the place of the next bytes.
    #[inline(always)]
    pub(super) fn ask_for(&self) {
        let end = self.end as usize;
        prefetch::near(&self.ring, end.saturating_sub(Literals::SEAM));
        prefetch::near(&self.ring, end + LINE - 1);
    }

    pub(super) fn clear(&mut self) {
        *self = Self { ring: std::mem::take(&mut self.ring), ..Self::default() };
    }

    /// Appends bytes, and keeps the last ones.
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: &[u8], kept: &Kept) {
        if let Some(place) = self.place(0, bytes.len(), kept)
            && let Some(place) = place.get_mut(..bytes.len())
        {
            copy(bytes, place);
            self.has_got(bytes.len());
        } else {
            self.push_apart(bytes, kept);
        }
    }

    /// Counts bytes that were put where they had room.
    #[inline(always)]
    fn has_got(&mut self, bytes: usize) {
        self.end += bytes as u32;
        self.len = (self.len() + bytes).min(self.ring.len()) as u32;
    }

    /// The same as [`push`](Self::push) where the ring grows, or the bytes go on at its beginning.
    #[inline(never)]
    fn push_apart(&mut self, bytes: &[u8], kept: &Kept) {
        let bytes = &bytes[bytes.len().saturating_sub(kept.most)..];
        self.make_room(bytes.len(), kept);
        let (here, beyond) = bytes.split_at(bytes.len().min(self.ring.len() - self.end as usize));
        let end = self.end as usize;
        self.ring[end..end + here.len()].copy_from_slice(here);
        self.has_got(here.len());
        if !beyond.is_empty() {
            self.ring[..beyond.len()].copy_from_slice(beyond);
            self.end = 0;
            self.has_got(beyond.len());
        }
    }

    /// Makes the ring this large, and forgets what it cannot hold.
    #[cold]
    fn resize(&mut self, size: usize) {
        let [first, second] = self.last(size);
        let mut ring = Vec::with_capacity(size);
        ring.extend_from_slice(first);
        ring.extend_from_slice(second);
        let len = ring.len() as u32;
        ring.resize(size, 0);
        (self.ring, self.end, self.len) = (ring.into_boxed_slice(), len, len);
    }
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
        // Loading once more takes less than keeping what was loaded, for which registers are short.
        for to in [one, other] {
            *to.first_chunk_mut()? = *first;
            *to.last_chunk_mut()? = *last;
        }
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
    fn push(tail: &mut Vec<u8>, bytes: &[u8], kept: &Kept) {
        tail.extend_from_slice(bytes);
        tail.drain(..tail.len().saturating_sub(kept.most));
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
            let kept = &Kept::for_search(most);
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
                tail.push(&bytes, kept);
                push(&mut plain, &bytes, kept);
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
            let kept = &Kept::for_search(most);
            let (mut plain, mut tail) = (Vec::new(), Tail::default());
            let mut now = Searched::NO;
            for (batch, (pieces, is_taken_back)) in batches.into_iter().enumerate() {
                now = now.next(1);
                let before = plain.clone();
                let pieces: Vec<_> = pieces.into_iter().map(&mut bytes).collect();
                let mut tried = 0;
                for piece in &pieces {
                    if piece.len() <= TRIED && tail.has_seam(now) {
                        let mut text = vec![0; Literals::SEAM + piece.len()];
                        let last = plain[plain.len() - Literals::SEAM..].to_vec();
                        let was = tail.memory();
                        let memory = tail.append_after_seam(piece, &mut text, kept, now);
                        prop_assert_eq!(memory, (was, tail.memory()));
                        prop_assert_eq!(text, [last, piece.clone()].concat());
                    } else if tail.may_try(piece.len(), kept, now) {
                        tail.push(piece, kept);
                        tail.set_searched(now);
                    } else {
                        break;
                    }
                    push(&mut plain, piece, kept);
                    tried += 1;
                }
                prop_assert!(tail == Tail::from(plain.clone()));
                let mut rest = &pieces[tried..];
                if is_taken_back {
                    pieces[..tried].iter().rev().for_each(|piece| tail.take_back(piece.len()));
                    prop_assert!(tail.is(&before[before.len().saturating_sub(kept.least)..], kept.least));
                    (plain, rest) = (before, &pieces);
                }
                for piece in rest {
                    tail.push(piece, kept);
                    push(&mut plain, piece, kept);
                }
                let is_closed = rest.is_empty() || batch % 3 > 0;
                tail.set_searched(if is_closed { now } else { Searched::NO });
                prop_assert!(tail == Tail::from(plain.clone()));
            }
        }
    }
}
