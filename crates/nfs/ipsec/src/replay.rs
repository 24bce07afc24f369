//! The anti-replay window (RFC 4303, section 3.4.3 and appendix A).

use serde::{Deserialize, Serialize};

/// Sequence numbers that the window reaches back.
const WIDTH: u64 = 64;

/// Which of the last 64 sequence numbers have been seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplayWindow {
    /// The highest sequence number seen; 0 before the first.
    pub(super) top: u64,
    /// Bit `i`: `top - i` was seen.
    pub(super) seen: u64,
}

impl ReplayWindow {
    /// The complete extended sequence number for the lower half in the packet:
    /// the one nearest to the window (appendix A2.2). `None` if it would lie
    /// before the first.
    pub(super) fn extend(&self, low: u32) -> Option<u64> {
        let (top_high, top_low) = (self.top >> 32, self.top as u32);
        let bottom = top_low.wrapping_sub(WIDTH as u32 - 1);
        let high = if u64::from(top_low) >= WIDTH - 1 {
            // The window lies within one subspace.
            if low >= bottom { top_high } else { top_high.checked_add(1)? }
        } else if low >= bottom {
            top_high.checked_sub(1)?
        } else {
            top_high
        };
        u32::try_from(high).is_ok().then_some(high << 32 | u64::from(low))
    }

    /// Whether a packet with this number can be new.
    pub(super) fn admits(&self, number: u64) -> bool {
        // Number 0 is never sent.
        number != 0
            && (number > self.top
                || self.top - number < WIDTH && self.seen >> (self.top - number) & 1 == 0)
    }

    /// Merges what another window has seen; never moves back.
    pub(super) fn merge(&mut self, other: Self) {
        let (older, newer) = if self.top < other.top { (*self, other) } else { (other, *self) };
        let step = newer.top - older.top;
        let seen = if step < WIDTH { older.seen << step } else { 0 };
        *self = Self { top: newer.top, seen: newer.seen | seen };
    }

    /// Records that a packet with this number was authentic.
    pub(super) fn note(&mut self, number: u64) {
        if number > self.top {
            let step = number - self.top;
            self.seen = if step < WIDTH { self.seen << step | 1 } else { 1 };
            self.top = number;
        } else if self.top - number < WIDTH {
            self.seen |= 1 << (self.top - number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0u64), Just((1 << 32) - 40), Just((7 << 32) + 5)],
            steps in proptest::collection::vec(0i64..100, 1..200),
        ) {
            let mut window = ReplayWindow::default();
            let mut seen = BTreeSet::new();
            let mut top = 0u64;
            for (i, step) in steps.iter().enumerate() {
                let at = (start + i as u64).saturating_add_signed(step - 50);
                // Near the window, the lower half determines the complete number.
                if top != 0 && at.abs_diff(top) < 60 && at + 63 > top {
                    prop_assert_eq!(window.extend(at as u32), Some(at));
                }
                let fresh = at != 0 && at + 64 > top && !seen.contains(&at);
                prop_assert_eq!(window.admits(at), fresh, "{} after {}", at, top);
                if fresh {
                    window.note(at);
                    seen.insert(at);
                    top = top.max(at);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn merged_windows_have_seen_what_either_has(
            ours in proptest::collection::vec(1u64..200, 0..80),
            theirs in proptest::collection::vec(1u64..200, 0..80),
        ) {
            let window = |numbers: &[u64]| {
                let mut window = ReplayWindow::default();
                numbers.iter().for_each(|number| window.note(*number));
                window
            };
            let (mut merged, other) = (window(&ours), window(&theirs));
            merged.merge(other);
            let both = [ours, theirs].concat();
            let top = both.iter().copied().max().unwrap_or(0);
            for number in 1..300 {
                let fresh = number + 64 > top && !both.contains(&number);
                prop_assert_eq!(merged.admits(number), fresh, "{}", number);
            }
        }
    }

    #[test]
    fn a_number_before_the_first_is_none() {
        let window = ReplayWindow { top: 5, seen: 1 };
        assert_eq!(window.extend(u32::MAX), None);
        assert_eq!(window.extend(70), Some(70));
    }
}
