//! Replays the same packets several times.

use thalweg_packet::Nanoseconds;

/// Counts the passes over a capture, and shifts time from pass to pass so that it never goes
/// back.
#[derive(Debug)]
pub(crate) struct Passes {
    /// The passes left after the current one; `None` means forever.
    left: Option<u64>,
    /// The passes before the current one.
    done: u64,
    shift: Nanoseconds,
    pass: Span,
}

/// The range of times in one pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    packets: u64,
    first: Nanoseconds,
    last: Nanoseconds,
}

impl Span {
    /// Records a packet that was captured at `captured`.
    #[inline]
    pub(crate) fn add(&mut self, captured: Nanoseconds) {
        // The extremes rather than the first and last, since times jump in merged captures.
        if self.packets == 0 {
            (self.first, self.last) = (captured, captured);
        }
        self.first = self.first.min(captured);
        self.last = self.last.max(captured);
        self.packets += 1;
    }
}

impl Passes {
    /// Creates the counter of `passes` passes over the capture; 0 means forever.
    pub(crate) fn new(passes: u64) -> Self {
        Self { left: passes.checked_sub(1), done: 0, shift: Nanoseconds(0), pass: Span::default() }
    }

    /// The time of a packet that was captured at `captured`, in this pass.
    #[inline]
    pub(crate) fn timestamp(&mut self, captured: Nanoseconds) -> Nanoseconds {
        self.pass.add(captured);
        captured.plus(self.shift)
    }

    /// The passes before the current one.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// The share of all passes that is done, after the share `pass` of the current one; `None` if
    /// they have no end.
    pub(crate) fn share(&self, pass: f64) -> Option<f64> {
        let all = self.done + 1 + self.left?;
        Some((self.done as f64 + pass) / all as f64)
    }

    /// The time that is added in this pass to the times of capture.
    pub(crate) fn shift(&self) -> Nanoseconds {
        self.shift
    }

    /// Ends a pass whose packets had these times; returns `true` if another one follows.
    pub(crate) fn next_pass_after(&mut self, pass: Span) -> bool {
        self.pass = pass;
        self.next_pass()
    }

    /// Ends a pass; returns `true` if another one follows.
    ///
    /// The next begins a mean gap between packets after the last. A pass
    /// without packets is the last one: further passes would have none either.
    pub(crate) fn next_pass(&mut self) -> bool {
        let pass = std::mem::take(&mut self.pass);
        if pass.packets == 0 || self.left == Some(0) {
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        self.done += 1;
        let span = pass.last.since(pass.first);
        let gap = Nanoseconds((span.0 / (pass.packets - 1).max(1)).max(1));
        self.shift = self.shift.plus(span).plus(gap);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_begins_a_mean_gap_after_the_last() {
        let mut passes = Passes::new(3);
        let mut times = Vec::new();
        loop {
            times.extend([100, 110, 130].map(|t| passes.timestamp(Nanoseconds(t)).0));
            if !passes.next_pass() {
                break;
            }
        }
        assert_eq!(times, [100, 110, 130, 145, 155, 175, 190, 200, 220]);
    }

    #[test]
    fn passes_know_how_far_they_are() {
        let mut passes = Passes::new(4);
        assert_eq!(passes.share(0.5), Some(0.125));
        passes.timestamp(Nanoseconds(5));
        passes.next_pass();
        assert_eq!((passes.done(), passes.share(1.0)), (1, Some(0.5)));
        assert_eq!(Passes::new(0).share(0.5), None);
    }

    #[test]
    fn zero_passes_mean_for_ever_unless_there_is_nothing() {
        let mut passes = Passes::new(0);
        for _ in 0..1000 {
            passes.timestamp(Nanoseconds(5));
            assert!(passes.next_pass());
        }
        assert!(!passes.next_pass(), "a pass without packets is the last");
    }
}
