//! The first bytes of one direction of a TCP connection, in order.
//!
//! The first copy of a byte counts. The firewall drops a segment that contradicts it, so the
//! receiver gets the bytes that were inspected or none.

use std::ops::Range;

/// The most bytes that are kept of a direction.
pub(super) const MOST_BYTES: usize = 64_000;
/// The most parts that wait for earlier bytes.
const MOST_PARTS: usize = 128;
/// Acknowledgments farther ahead than this are outside any window of a connection's start.
const FARTHEST: i64 = 1 << 24;

/// What a segment added to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Bytes that had not arrived yet.
    Fresh,
    /// Fresh bytes before the guessed start of the stream, which moved there.
    Earlier,
    /// Nothing.
    Repeated,
    /// Nothing: it differs from an earlier copy.
    Contradicting,
    /// Nothing: it is too far ahead, or too many parts wait.
    NoRoom,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The sequence number of the first kept byte, once known.
    first: Option<u32>,
    /// Whether a SYN gave it.
    certain: bool,
    bytes: Vec<u8>,
    /// How many bytes are there without a gap.
    next: usize,
    /// The parts of `bytes` after the first gap that arrived: in order, neither overlapping nor
    /// adjacent.
    parts: Vec<Range<usize>>,
}

impl Stream {
    /// Begins the stream at a sequence number, unless it has begun; a SYN's corrects a guess.
    pub(super) fn begin(&mut self, sequence: u32, certain: bool) {
        let empty = self.next == 0 && self.parts.is_empty();
        if self.first.is_none() || certain && !self.certain && empty {
            self.first = Some(sequence);
            self.certain = certain;
        }
    }

    /// The bytes without a gap.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.next]
    }

    /// The sequence number of the byte at `offset`.
    pub(super) fn sequence(&self, offset: usize) -> u32 {
        self.first.unwrap_or(0).wrapping_add(offset as u32)
    }

    /// Whether bytes wait for earlier ones.
    pub(super) fn has_gap(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Whether a SYN told where the stream begins.
    pub(super) fn is_certain(&self) -> bool {
        self.certain
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Moves past the bytes of a segment that need not be read, if they are the next and none are kept.
    pub(super) fn pass(&mut self, sequence: u32, length: usize) -> bool {
        let is_next = self.bytes.is_empty() && self.first == Some(sequence);
        if is_next {
            self.first = Some(sequence.wrapping_add(length as u32));
        }
        is_next
    }

    /// Adds the bytes of a segment.
    pub(super) fn insert(&mut self, sequence: u32, payload: &[u8]) -> Arrival {
        let (mut at, mut payload, mut arrival) = (self.offset(sequence), payload, Arrival::Fresh);
        if at < 0 {
            let before = at.unsigned_abs() as usize;
            if !self.certain && self.move_start(before) {
                (at, arrival) = (0, Arrival::Earlier);
            } else {
                let Some(rest) = payload.get(before..) else { return Arrival::Repeated };
                (at, payload) = (0, rest);
            }
        }
        let range = at as usize..at as usize + payload.len();
        if range.is_empty() || payload.len() == 1 && range.end == self.next {
            // The one byte may be that of a keepalive (RFC 9293 §3.8.4), which has any value.
            return Arrival::Repeated;
        }
        if range.end > MOST_BYTES {
            return Arrival::NoRoom;
        }
        if self.contradicts(&range, payload) {
            return Arrival::Contradicting;
        }
        if self.is_there(&range) {
            return Arrival::Repeated;
        }
        let touches = |part: &Range<usize>| part.start <= range.end && range.start <= part.end;
        if range.start > self.next
            && self.parts.len() >= MOST_PARTS
            && !self.parts.iter().any(touches)
        {
            return Arrival::NoRoom;
        }
        self.bytes.resize(self.bytes.len().max(range.end), 0);
        self.bytes[range.clone()].copy_from_slice(payload);
        self.record(range);
        arrival
    }

    /// Notes that the receiver has everything before `sequence`; returns whether bytes were
    /// missed, which are given up.
    pub(super) fn acknowledge(&mut self, sequence: u32) -> bool {
        let beyond = self.beyond(sequence);
        // The FIN takes one number after the last byte.
        if beyond <= 0 || beyond == 1 && self.parts.is_empty() || beyond > FARTHEST {
            return false;
        }
        while self.beyond(sequence) > 0 && self.skip_gap() {}
        if self.beyond(sequence) > 0 {
            self.skip_to(sequence);
        }
        true
    }

    /// How far `sequence` is past the bytes without a gap.
    fn beyond(&self, sequence: u32) -> i64 {
        self.offset(sequence) - self.next as i64
    }

    /// Gives up the bytes of the first gap, and all before it; returns whether there is a gap.
    pub(super) fn skip_gap(&mut self) -> bool {
        let Some(part) = self.parts.first().cloned() else { return false };
        self.parts.remove(0);
        self.next = part.end;
        self.forget(part.start);
        true
    }

    /// Begins again at `sequence`, with nothing before it.
    pub(super) fn skip_to(&mut self, sequence: u32) {
        *self = Self { first: Some(sequence), certain: self.certain, ..Self::default() };
    }

    /// Forgets the first `many` bytes.
    pub(super) fn forget(&mut self, many: usize) {
        let many = many.min(self.next);
        if many == 0 {
            return;
        }
        self.bytes.drain(..many);
        self.next -= many;
        self.first = self.first.map(|first| first.wrapping_add(many as u32));
        for part in &mut self.parts {
            *part = part.start - many..part.end - many;
        }
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// How many bytes of the stream precede `sequence`; negative before its start.
    pub(super) fn offset(&self, sequence: u32) -> i64 {
        i64::from(sequence.wrapping_sub(self.first.unwrap_or(sequence)) as i32)
    }

    /// Moves the guessed start of a stream of which nothing is forgotten.
    fn move_start(&mut self, before: usize) -> bool {
        if before + self.bytes.len() > MOST_BYTES || self.parts.len() >= MOST_PARTS {
            return false;
        }
        self.bytes.splice(..0, std::iter::repeat_n(0, before));
        for part in &mut self.parts {
            *part = part.start + before..part.end + before;
        }
        if self.next > 0 {
            self.parts.insert(0, before..before + self.next);
        }
        self.next = 0;
        self.first = self.first.map(|first| first.wrapping_sub(before as u32));
        true
    }

    fn contradicts(&self, range: &Range<usize>, payload: &[u8]) -> bool {
        std::iter::once(&(0..self.next)).chain(&self.parts).any(|part| {
            let (start, end) = (part.start.max(range.start), part.end.min(range.end));
            start < end && self.bytes[start..end] != payload[start - range.start..end - range.start]
        })
    }

    fn is_there(&self, range: &Range<usize>) -> bool {
        let holds = |part: &Range<usize>| part.start <= range.start && range.end <= part.end;
        range.end <= self.next || self.parts.iter().any(holds)
    }

    /// Records that the bytes of `range` arrived.
    fn record(&mut self, mut range: Range<usize>) {
        if range.start <= self.next {
            self.next = self.next.max(range.end);
            while let Some(part) = self.parts.first().filter(|part| part.start <= self.next) {
                self.next = self.next.max(part.end);
                self.parts.remove(0);
            }
            return;
        }
        let from = self.parts.partition_point(|part| part.end < range.start);
        let to = self.parts.partition_point(|part| part.start <= range.end);
        if let Some(touched) = self.parts.get(from..to).filter(|touched| !touched.is_empty()) {
            range.start = range.start.min(touched[0].start);
            range.end = range.end.max(touched[touched.len() - 1].end);
        }
        self.parts.splice(from..to, [range]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Stream {
        let mut stream = Stream::default();
        stream.begin(u32::MAX - 3, true);
        stream
    }

    /// A segment of `text` from `from` on, in a stream whose numbers wrap.
    fn add(stream: &mut Stream, from: usize, text: &str) -> Arrival {
        stream.insert((u32::MAX - 3).wrapping_add(from as u32), text.as_bytes())
    }

    #[test]
    fn any_order_yields_the_same_bytes() {
        let text = "abcdefghijkl";
        let pieces: Vec<_> = (0..12).step_by(3).map(|at| (at, &text[at..at + 3])).collect();
        for order in 0..4_usize.pow(4) {
            let order: Vec<_> = (0..4).map(|place| order / 4_usize.pow(place) % 4).collect();
            let mut stream = begun();
            for piece in order.iter().chain(&[3, 2, 1, 0]) {
                add(&mut stream, pieces[*piece].0, pieces[*piece].1);
            }
            assert_eq!((stream.bytes(), stream.has_gap()), (text.as_bytes(), false), "{order:?}");
        }
    }

    #[test]
    fn copies_add_nothing_and_must_agree() {
        let mut stream = begun();
        assert_eq!(add(&mut stream, 0, "abc"), Arrival::Fresh);
        assert_eq!(add(&mut stream, 0, "abc"), Arrival::Repeated);
        assert_eq!(add(&mut stream, 1, "bcde"), Arrival::Fresh, "an overlap");
        assert_eq!(add(&mut stream, 1, "bXdef"), Arrival::Contradicting);
        assert_eq!(add(&mut stream, 4, "?"), Arrival::Repeated, "a keepalive");
        assert_eq!(add(&mut stream, 7, "hi"), Arrival::Fresh);
        assert_eq!(add(&mut stream, 6, "gX"), Arrival::Contradicting, "it waits already");
        assert_eq!(add(&mut stream, 5, "fgh"), Arrival::Fresh);
        assert_eq!(stream.bytes(), b"abcdefghi");
        assert_eq!(stream.insert(u32::MAX - 5, b"xx"), Arrival::Repeated, "before the start");
    }

    #[test]
    fn memory_is_bounded() {
        let mut stream = begun();
        assert_eq!(add(&mut stream, MOST_BYTES, "a"), Arrival::NoRoom);
        for part in 0..MOST_PARTS {
            assert_eq!(add(&mut stream, 2 * part + 1, "b"), Arrival::Fresh);
        }
        assert_eq!(add(&mut stream, 1000, "c"), Arrival::NoRoom);
        assert_eq!(add(&mut stream, 2, "a"), Arrival::Fresh, "it joins two");
        assert_eq!(add(&mut stream, 1000, "c"), Arrival::Fresh);
        assert!(stream.memory() <= 2 * MOST_BYTES);
    }

    #[test]
    fn what_the_receiver_has_is_not_waited_for() {
        let mut stream = begun();
        add(&mut stream, 0, "abc");
        add(&mut stream, 5, "fg");
        assert!(!stream.acknowledge(stream.sequence(3)));
        assert!(stream.acknowledge(stream.sequence(7)));
        assert_eq!((stream.bytes(), stream.sequence(0)), (&b"fg"[..], 1));
        assert!(!stream.acknowledge(stream.sequence(3)), "a FIN");
        assert!(stream.acknowledge(stream.sequence(9)));
        assert_eq!(stream.insert(10, b"j"), Arrival::Fresh);
        stream.forget(1);
        assert_eq!(stream.sequence(0), 11);
    }

    #[test]
    fn a_guessed_start_moves_back() {
        let mut stream = Stream::default();
        stream.begin(100, false);
        assert_eq!(stream.insert(100, b"def"), Arrival::Fresh);
        assert_eq!(stream.insert(97, b"ab"), Arrival::Earlier);
        assert_eq!(stream.bytes(), b"ab");
        assert_eq!(stream.insert(99, b"cd"), Arrival::Fresh);
        assert_eq!(stream.bytes(), b"abcdef");
    }
}
