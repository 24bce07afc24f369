//! The last bytes of a stream, in a ring: what is forgotten need not be moved.

use serde::{Deserialize, Serialize};
use thalweg_cpu::prefetch;

use super::literals::Literals;

/// Bytes that are kept at least, to compare retransmissions with.
const COMPARED: usize = 2048;
/// What is kept may exceed its limit by this fraction of it (1/4).
const SLACK: usize = 4;

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
    /// The batch in which these bytes were searched for literals, of which none that begins before the
    /// last [`SEAM`](Literals::SEAM) bytes ends after them; 0 if one may.
    searched: u32,
}

impl Tail {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory, in steps, so that it seldom changes.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.len().next_multiple_of(MEMORY_STEP)
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
    /// `most`: `None` if a literal may have begun before them, or if the search is that of the batch
    /// `now`, which is still to come.
    #[inline(always)]
    pub(super) fn seam(&self, most: usize, now: u32) -> Option<&[u8; Literals::SEAM]> {
        let is_closed = self.searched != 0 && self.searched != now && most > Literals::SEAM;
        let before = self.ring.get(..self.end as usize)?;
        before.last_chunk().filter(|_| is_closed && self.len() >= Literals::SEAM)
    }

    /// Notes the batch in which the last bytes were searched; 0 if a literal may have begun in them.
    #[inline]
    pub(super) fn set_searched(&mut self, searched: u32) {
        self.searched = searched;
    }

    /// How many bytes may be appended and taken back.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.room as usize
    }

    /// Takes back the last bytes, for which there was [room](Self::room).
    pub(super) fn take_back(&mut self, bytes: usize) {
        let bytes = bytes as u32;
        (self.end, self.len, self.room) = (self.end - bytes, self.len - bytes, self.room + bytes);
        self.searched = 0;
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

    /// Appends bytes. Keeps the last ones, `most` or [`COMPARED`] and a quarter more, of which the
    /// first are forgotten all at once.
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: &[u8], most: usize) {
        let (len, end) = (bytes.len(), self.end as usize);
        if len <= self.room as usize
            && let Some(place) = self.ring.get_mut(end..end + len)
        {
            copy(bytes, place);
            self.end += len as u32;
            self.len += len as u32;
            self.room -= len as u32;
        } else {
            self.push_apart(bytes, most);
        }
    }

    /// The same where bytes are forgotten, the ring grows, or they go on at its beginning.
    #[inline(never)]
    fn push_apart(&mut self, bytes: &[u8], most: usize) {
        let most = most.max(COMPARED);
        let limit = most + most / SLACK;
        let len = self.len() + bytes.len();
        if len > limit || bytes.len() >= most {
            self.push_last(bytes, most, limit);
        } else {
            if len > self.ring.len() {
                self.grow(len, limit);
            }
            self.put(bytes);
        }
        let (at_end, in_all) = (self.ring.len() - self.end as usize, self.ring.len().min(limit));
        self.room = at_end.min(in_all.saturating_sub(self.len())).min(most - 1) as u32;
    }

    /// Appends bytes of which, with those before, the last `most` stay.
    fn push_last(&mut self, bytes: &[u8], most: usize, limit: usize) {
        let bytes = &bytes[bytes.len().saturating_sub(most)..];
        self.len = self.len().min(most - bytes.len()) as u32;
        if self.ring.len() < most {
            self.grow(most, limit);
        }
        self.put(bytes);
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
        let most = most.max(COMPARED);
        tail.extend_from_slice(bytes);
        let is_over = tail.len() > most + most / SLACK || bytes.len() >= most;
        if is_over && !bytes.is_empty() {
            tail.drain(..tail.len() - most);
        }
    }

    #[test]
    fn all_lengths_are_copied() {
        let from: Vec<u8> = (1..=200).collect();
        for length in 0..from.len() {
            let mut to = vec![0; from.len()];
            copy(&from[..length], &mut to[..length]);
            assert_eq!(to[..length], from[..length]);
            assert!(to[length..].iter().all(|byte| *byte == 0), "{length}");
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
    }
}
