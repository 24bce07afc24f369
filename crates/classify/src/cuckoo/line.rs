//! A cache line that one thread writes and others read.

use super::sync::{AtomicU64, Ordering, fence};

/// Words of 64 bits in a line.
pub(super) const WORDS: usize = 8;
/// The word whose upper half holds the state of the line.
const STATE: usize = WORDS - 1;

/// A line of memory. The upper half of its last word is its state: which of its
/// places are taken ([`TAKEN_BITS`] of them), and above that a version that is odd
/// while the line is written.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    words: [AtomicU64; WORDS],
}

/// Lowest bits of the state.
pub(super) const TAKEN_BITS: u32 = 5;
/// What the version counts in.
const VERSION: u32 = 1 << TAKEN_BITS;

/// The state of a line at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

impl State {
    /// The bit that is set while the line is written.
    pub(super) const CHANGING: u32 = VERSION;

    /// Whether the line was being written.
    #[inline(always)]
    pub(super) fn is_changing(self) -> bool {
        self.0 & Self::CHANGING != 0
    }

    /// The lowest bits.
    #[inline(always)]
    pub(super) fn taken(self) -> u32 {
        self.0 & (VERSION - 1)
    }
}

#[cfg(loom)]
impl Default for Line {
    fn default() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Line {
    /// The state as a read begins.
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        State((self.words[STATE].load(Ordering::Acquire) >> 32) as u32)
    }

    /// The state after a read.
    #[inline(always)]
    pub(super) fn state_after(&self) -> State {
        // The reads before must not be reordered after the load.
        fence(Ordering::Acquire);
        State((self.words[STATE].load(Ordering::Relaxed) >> 32) as u32)
    }

    /// Whether nothing was written since a read began in `state`. What was read in
    /// between is then of one moment.
    #[inline(always)]
    pub(super) fn is_still(&self, state: State) -> bool {
        self.state_after() == state && !state.is_changing()
    }

    #[inline(always)]
    pub(super) fn word(&self, n: usize) -> u64 {
        self.words[n].load(Ordering::Relaxed)
    }

    /// Half `n`, the low half of the first word being the first.
    #[inline(always)]
    pub(super) fn half(&self, n: usize) -> u32 {
        (self.word(n / 2) >> (n % 2 * 32)) as u32
    }

    /// Writes within [`change`](Self::change), or where readers may see the old and
    /// the new; for the one writer.
    pub(super) fn set_word(&self, n: usize, word: u64) {
        self.words[n].store(word, Ordering::Relaxed);
    }

    /// As `set_word`, with `width` bits from bit `n * width` of the line on.
    pub(super) fn set_part(&self, n: usize, width: usize, part: u64) {
        let (word, shift) = (n * width / 64, n * width % 64);
        let others = self.word(word) & !(u64::MAX >> (64 - width) << shift);
        self.set_word(word, others | part << shift);
    }

    /// Lets `write` change the line, and what else readers look at under its version;
    /// `taken` gives the lowest bits of the state from those before. For the one
    /// writer.
    pub(super) fn change(&self, taken: impl FnOnce(u32) -> u32, write: impl FnOnce()) {
        let before = self.state().0;
        self.set_part(2 * STATE + 1, 32, u64::from(before.wrapping_add(VERSION)));
        // The writes that follow must not be reordered before the store.
        fence(Ordering::Release);
        write();
        let version = before.wrapping_add(2 * VERSION) & !(VERSION - 1);
        let low = self.word(STATE) & u64::from(u32::MAX);
        let state = version | taken(before & (VERSION - 1));
        self.words[STATE].store(low | u64::from(state) << 32, Ordering::Release);
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);
