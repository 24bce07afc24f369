//! The bytes of literals, in lower case, to compare eight at a time.

use super::lower_long;

/// Bytes compared at once.
const STEP: usize = 8;

/// Literals one after the other.
pub(super) struct Texts {
    /// Eight bytes can be read from each byte of a literal on.
    bytes: Vec<u8>,
    /// The start of each literal; one more for the end.
    starts: Vec<u32>,
}

impl Texts {
    pub(super) fn new(literals: &[Vec<u8>]) -> Self {
        let (mut bytes, mut starts) = (Vec::new(), vec![0]);
        for literal in literals {
            bytes.extend(literal.to_ascii_lowercase());
            starts.push(bytes.len() as u32);
        }
        bytes.extend([0; STEP]);
        Self { bytes, starts }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The literal of a number.
    #[inline]
    pub(super) fn literal(&self, number: u32) -> &[u8] {
        let at = number as usize;
        &self.bytes[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// The number of bytes after the first `from` with which `text` begins like the literal of a number
    /// goes on from there.
    #[inline]
    pub(super) fn common(&self, number: u32, from: usize, text: &[u8]) -> usize {
        let at = number as usize;
        let (start, end) = (self.starts[at] as usize + from, self.starts[at + 1] as usize);
        let length = end - start;
        let mut done = 0;
        while let (Some(literal), Some(text)) =
            (self.bytes[start + done..].first_chunk::<STEP>(), text[done..].first_chunk())
        {
            let differing = u64::from_le_bytes(*literal) ^ lower_long(u64::from_le_bytes(*text));
            let same = differing.trailing_zeros() as usize / 8;
            done += same;
            if same < STEP || done >= length {
                return done.min(length);
            }
        }
        let rest = self.bytes[start + done..end].iter().zip(&text[done..]);
        done + rest.take_while(|(literal, text)| **literal == text.to_ascii_lowercase()).count()
    }
}
