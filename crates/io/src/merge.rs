//! The order by time of packets of several streams.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thalweg_packet::Nanoseconds;

use crate::port::FOREVER;

/// Several streams of packets, by the time of the next packet of each.
///
/// Packets are taken from the stream whose next packet is the oldest; of equally old ones, from the
/// stream with the lowest number. What a stream contributes depends on its own times alone. So a
/// stream out of order, or with a wrong clock, moves its own packets to other places between those
/// of the others, and neither reorders the others among themselves nor withholds any of them.
///
/// The time that counts is the believed one ([`PacketClock::expect`](crate::PacketClock::expect)):
/// one packet with a wrong time does not hold up its stream until all others have reached it.
#[derive(Debug, Default)]
pub struct Merge {
    heads: BinaryHeap<Reverse<(Nanoseconds, usize)>>,
}

/// The stream whose packets are next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// Its number.
    pub stream: usize,
    /// Its packets up to this time come before those of all other streams.
    pub until: Nanoseconds,
}

impl Merge {
    /// Adds a stream whose next packet counts as of `time`.
    pub fn push(&mut self, stream: usize, time: Nanoseconds) {
        self.heads.push(Reverse((time, stream)));
    }

    /// Takes out the stream whose packet is next. [`push`](Self::push) adds it again, with the time
    /// of the packet after those that were taken from it.
    pub fn pop(&mut self) -> Option<Oldest> {
        let Reverse((_, stream)) = self.heads.pop()?;
        let until = match self.peek() {
            None => FOREVER,
            Some((time, other)) if stream < other => time,
            Some((time, _)) => Nanoseconds(time.0.saturating_sub(1)),
        };
        Some(Oldest { stream, until })
    }

    /// The time of the oldest packet, and the number of its stream.
    pub fn peek(&self) -> Option<(Nanoseconds, usize)> {
        self.heads.peek().map(|Reverse(head)| *head)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whole runs are taken at once, and still in the order of a stable sort.
        #[test]
        fn runs_join_to_the_sorted_whole(
            mut streams in prop::collection::vec(prop::collection::vec(0u64..50, 0..60), 1..6),
        ) {
            streams.iter_mut().for_each(|times| times.sort_unstable());
            let mut expected: Vec<(u64, usize)> = streams
                .iter()
                .enumerate()
                .flat_map(|(stream, times)| times.iter().map(move |time| (*time, stream)))
                .collect();
            expected.sort_by_key(|(time, _)| *time);
            let mut next = vec![0; streams.len()];
            let mut merge = Merge::default();
            for (stream, times) in streams.iter().enumerate() {
                times.first().into_iter().for_each(|time| merge.push(stream, Nanoseconds(*time)));
            }
            let mut merged = Vec::new();
            while let Some(Oldest { stream, until }) = merge.pop() {
                let rest = &streams[stream][next[stream]..];
                let run = rest.partition_point(|time| *time <= until.0);
                prop_assert!(run > 0, "at least the oldest packet");
                merged.extend(rest[..run].iter().map(|time| (*time, stream)));
                next[stream] += run;
                rest.get(run).into_iter().for_each(|time| merge.push(stream, Nanoseconds(*time)));
            }
            prop_assert_eq!(merged, expected);
        }
    }
}
