//! A slot: what one work-item of a device is given, and gives back.

use crate::sync::{AtomicU32, Ordering};

/// Words of a slot.
pub(crate) const SLOT: usize = 8;

/// A place for one job: `offset` (two words), `length`, `flag`, `argument` (two words) and `result`
/// (two words), as the kernel declares it.
///
/// Every word is an atomic, so that a device which writes what is not its own makes wrong results and
/// no undefined behaviour. Words are ordered by the indexes of their row: relaxed here.
pub(crate) struct Slot<'a>(pub(crate) &'a [AtomicU32; SLOT]);

/// What a work-item is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes from the start of packet memory.
    pub(crate) offset: u64,
    /// Bytes from there.
    pub(crate) len: u32,
    pub(crate) argument: [u32; 2],
}

impl Slot<'_> {
    /// Writes a request, and clears the result of the one before.
    pub(crate) fn write(&self, request: Request) {
        let Request { offset, len, argument } = request;
        let words = [offset as u32, (offset >> 32) as u32, len, 1, argument[0], argument[1], 0, 0];
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Makes it a dummy, which keeps a work-item in step with the others of its row.
    pub(crate) fn clear(&self) {
        self.0[3].store(0, Ordering::Relaxed);
    }

    /// The request, or `None` for a dummy.
    pub(crate) fn request(&self) -> Option<Request> {
        let word = |at: usize| self.0[at].load(Ordering::Relaxed);
        let offset = u64::from(word(1)) << 32 | u64::from(word(0));
        (word(3) != 0).then(|| Request { offset, len: word(2), argument: [word(4), word(5)] })
    }

    /// Writes the result.
    pub(crate) fn answer(&self, result: [u32; 2]) {
        self.0[6].store(result[0], Ordering::Relaxed);
        self.0[7].store(result[1], Ordering::Relaxed);
    }

    /// The result.
    pub(crate) fn result(&self) -> [u32; 2] {
        [6, 7].map(|at: usize| self.0[at].load(Ordering::Relaxed))
    }
}
