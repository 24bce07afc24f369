//! The places at which a content may lie.

use super::super::rule::{Content, Number, VARIABLES};
use super::value;

/// Where a content may lie, as Suricata counts: offset from the payload's start, depth from
/// offset, distance from the previous match, within from the end of distance.
pub(super) struct Bounds {
    /// The earliest start.
    pub(super) start: usize,
    /// The latest end.
    pub(super) fixed_end: usize,
    /// A latest end that is relative to the previous match; may lie beyond the payload.
    pub(super) sliding_end: Option<i64>,
}

impl Bounds {
    pub(super) fn new(
        content: &Content,
        len: usize,
        cursor: usize,
        variables: &[u64; VARIABLES],
    ) -> Self {
        let of = |number: Option<Number>| number.map(|n| value(n, variables));
        let clamp = |at: i64| at.clamp(0, len as i64) as usize;
        let (mut start, mut fixed_end, mut sliding_end) = (0, len, None);
        if content.is_relative() {
            let from = (cursor as i64).saturating_add(of(content.distance).unwrap_or(0));
            start = clamp(from);
            sliding_end = of(content.within).map(|within| from.saturating_add(within));
        }
        let offset = of(content.offset).unwrap_or(0);
        start = start.max(clamp(offset));
        if let Some(depth) = of(content.depth) {
            fixed_end = clamp(offset.saturating_add(depth));
        }
        if content.ends_with {
            start = start.max(len.saturating_sub(content.bytes.len()));
        }
        Self { start, fixed_end, sliding_end }
    }

    /// The latest end.
    pub(super) fn end(&self) -> usize {
        let sliding = self.sliding_end.map_or(usize::MAX, |end| end.max(0) as usize);
        self.fixed_end.min(sliding)
    }
}
