//! The distribution of times in one interval, small enough to keep hundreds of them.

use crate::counters::Latencies;
use crate::report::LatencyReport;

/// The leading bits of a time that are kept: a bucket is at most 1/64 of its times wide.
const BITS: u32 = 7;

/// The number of packets by time: the longest time of each bucket, in nanoseconds, ascending. An
/// empty bucket takes no room, and there are at most about 2000 others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times(Vec<(u64, u64)>);

impl Times {
    /// The times that `after` has and `before`, an earlier state of it, has not.
    pub(crate) fn between(
        before: Option<&Latencies>,
        after: &Latencies,
        nanoseconds_per_cycle: f64,
    ) -> Self {
        let mut times = Self::default();
        for value in after.histogram().iter_recorded() {
            let cycles = value.value_iterated_to();
            let earlier = before.map_or(0, |before| before.histogram().count_at(cycles));
            let packets = value.count_at_value().saturating_sub(earlier);
            times.add((cycles as f64 * nanoseconds_per_cycle) as u64, packets);
        }
        times
    }

    /// Adds packets with a time that is not shorter than those before it.
    fn add(&mut self, nanoseconds: u64, packets: u64) {
        let bucket = longest_alike(nanoseconds);
        match self.0.last_mut() {
            _ if packets == 0 => {}
            Some((last, count)) if *last >= bucket => *count += packets,
            _ => self.0.push((bucket, packets)),
        }
    }

    /// Adds the times of another interval.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut all = std::mem::take(&mut self.0);
        all.extend_from_slice(&other.0);
        all.sort_unstable();
        all.into_iter().for_each(|(nanoseconds, packets)| self.add(nanoseconds, packets));
    }

    /// The packets that have a time.
    pub(crate) fn packets(&self) -> u64 {
        self.0.iter().map(|(_, packets)| packets).sum()
    }

    /// Its percentiles; all 0 without packets.
    pub(crate) fn percentiles(&self) -> LatencyReport {
        let all = self.packets();
        let at = |share: f64| {
            let rank = ((share * all as f64).ceil() as u64).max(1);
            let mut seen = 0;
            let mut times = self.0.iter().filter(|(_, packets)| {
                seen += packets;
                seen >= rank
            });
            times.next().map_or(0, |(nanoseconds, _)| *nanoseconds)
        };
        let max = self.0.last().map_or(0, |(nanoseconds, _)| *nanoseconds);
        LatencyReport { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
    }
}

/// The longest time in the bucket of a time.
fn longest_alike(nanoseconds: u64) -> u64 {
    let width = u64::BITS - nanoseconds.leading_zeros();
    nanoseconds | ((1 << width.saturating_sub(BITS)) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn latencies(times: &[u64]) -> Latencies {
        let mut latencies = Latencies::new();
        times.iter().for_each(|time| latencies.record(*time, 1));
        latencies
    }

    #[test]
    fn a_bucket_is_a_64th_of_its_times_wide() {
        for time in (0..4096).chain([1 << 37, (1 << 38) + 12_345, u64::MAX]) {
            let longest = longest_alike(time);
            assert!(longest >= time && longest - time <= time / 64, "{time}: {longest}");
        }
    }

    proptest! {
        #[test]
        fn intervals_join_to_the_whole_and_their_percentiles_are_near(
            first in proptest::collection::vec(1u64..1 << 36, 0..200),
            second in proptest::collection::vec(1u64..1 << 20, 1..200),
        ) {
            let all = [&first[..], &second].concat();
            let (before, after) = (latencies(&first), latencies(&all));
            let mut joined = Times::between(None, &before, 1.0);
            let last = Times::between(Some(&before), &after, 1.0);
            prop_assert_eq!(last.packets(), second.len() as u64);
            joined.merge(&last);
            prop_assert_eq!(&joined, &Times::between(None, &after, 1.0));
            let mut sorted = all;
            sorted.sort_unstable();
            let found = joined.percentiles();
            for (share, found) in [(0.5, found.p50), (0.99, found.p99), (1.0, found.max)] {
                let exact = sorted[(share * sorted.len() as f64).ceil() as usize - 1];
                // A bucket of ours, after one of the histogram, which has three digits.
                prop_assert!(found >= exact && found - exact <= exact / 32 + 1, "{exact}: {found}");
            }
        }
    }

    #[test]
    fn without_packets_all_percentiles_are_0() {
        let none = latencies(&[]);
        let times = Times::between(Some(&none), &none, 1.0);
        assert_eq!(times.packets(), 0);
        assert_eq!(times.percentiles().max, 0);
    }
}
