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

    /// Whole seconds and the nanoseconds that remain.
    pub const fn split(self) -> (u64, u32) {
        (self.0 / 1_000_000_000, (self.0 % 1_000_000_000) as u32)
    }
}
