//! Packet time.

use serde::{Deserialize, Serialize};

/// A point in packet time, or a span of it, in nanoseconds.
///
/// Captures count from the Unix epoch; synthetic traffic counts from zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanoseconds(pub u64);

impl Nanoseconds {
    /// By how much packets of one clock may be out of order in time: an older time than that means
    /// that the clock was set back.
    pub const REORDERING: Self = Self::from_secs(60);

    /// The span of `seconds` whole seconds, saturating.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The span of `milliseconds`, saturating.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// The span from `earlier` to `self`; zero when the clock went backwards,
    /// as it does in merged captures.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self` advanced by `span`, saturating.
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The newest time after a packet of time `now`: that time, or `self` if the packet is only out
    /// of order. Unlike the maximum it follows a clock that was set back.
    #[must_use]
    pub const fn follow(self, now: Self) -> Self {
        let is_late = now.0 < self.0 && self.0 - now.0 <= Self::REORDERING.0;
        if is_late { self } else { now }
    }

    /// Whole seconds and the nanoseconds that remain.
    pub const fn split(self) -> (u64, u32) {
        (self.0 / 1_000_000_000, (self.0 % 1_000_000_000) as u32)
    }
}
