//! A run over time: the differences of its reports, of which a bounded number is kept.

mod interval;
mod sampler;
mod times;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::report::Report;

pub use interval::{Interval, NfInterval};
pub use sampler::{Pace, Sampler};

/// The most intervals of a series: more than a plot of one has columns to show.
const MOST: usize = 600;

/// The most parts of all intervals of a series, each of about 100 bytes: a run with thousands of
/// packet types has fewer intervals.
const PARTS: usize = 300_000;

/// Takes the reports of one run, in their order, and returns what happened between them.
#[derive(Debug, Default)]
pub struct Meter {
    before: Option<Report>,
}

impl Meter {
    /// What has happened since the last report, or since the start of the run.
    pub fn read(&mut self, report: Report) -> Interval {
        let interval = Interval::between(self.before.as_ref(), &report);
        self.before = Some(report);
        interval
    }
}

/// What happened in a run over time, in at most 600 intervals (fewer with thousands of packet types):
/// after these, pairs are joined, and later intervals are twice as long.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Series {
    /// The length of the intervals in seconds; the last one may differ by half of it, or is the
    /// whole of a short run, and one in which the run did not answer is longer.
    pub interval_s: f64,
    /// The intervals, which follow each other without gaps and add up to the report.
    pub intervals: Vec<Interval>,
}

impl Series {
    /// An empty series of intervals of this length at first.
    pub fn new(interval: Duration) -> Self {
        Self { interval_s: interval.as_secs_f64(), intervals: Vec::new() }
    }

    /// Adds an interval, which begins where the last one ended.
    pub fn push(&mut self, interval: Interval) {
        if let Some(last) = self.intervals.last_mut()
            && last.seconds() + interval.seconds() / 2.0 <= self.interval_s
        {
            // At least half of it has room, also where clocks are a little late.
            last.join(&interval);
            return;
        }
        let room = (PARTS / interval.parts().max(1)).clamp(2, MOST);
        while self.intervals.len() >= room {
            self.widen();
        }
        self.intervals.push(interval);
    }

    /// Adds the last interval of the run. The rates of a very short one would mislead: it is
    /// joined with the one before.
    pub fn end(&mut self, interval: Interval) {
        let is_short = interval.seconds() < self.interval_s / 2.0;
        match self.intervals.last_mut().filter(|_| is_short) {
            Some(last) => last.join(&interval),
            None => self.push(interval),
        }
    }

    /// The series with at most `most` intervals, which are longer where there are more of them.
    #[must_use]
    pub fn of_at_most(&self, most: usize) -> Self {
        let mut series = self.clone();
        while series.intervals.len() > most.max(1) {
            series.widen();
        }
        series
    }

    /// Joins pairs of intervals.
    fn widen(&mut self) {
        self.interval_s *= 2.0;
        let mut joined: Vec<Interval> = Vec::with_capacity(self.intervals.len().div_ceil(2));
        for (n, interval) in self.intervals.drain(..).enumerate() {
            match joined.last_mut().filter(|_| n % 2 == 1) {
                Some(first) => first.join(&interval),
                None => joined.push(interval),
            }
        }
        self.intervals = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::TypeReport;

    /// An interval of one second, with packets of these types.
    fn interval(second: u32, types: usize) -> Interval {
        let mut interval = Interval::default();
        (interval.start_s, interval.end_s) = (second.into(), f64::from(second) + 1.0);
        interval.packets_in = types as u64;
        let of_type = |n| (format!("type {n}"), TypeReport { packets: 1, bytes: 64 });
        interval.types = (0..types).map(of_type).collect();
        interval
    }

    #[test]
    fn the_longest_series_of_the_largest_intervals_is_bounded() {
        // Long enough that intervals are joined.
        for (types, most, seconds) in
            [(1, 600, 1300), (1000, 300, 320), (100_000, 3, 5), (400_000, 2, 3)]
        {
            let mut series = Series::new(Duration::from_secs(1));
            for second in 0..seconds {
                series.push(interval(second, types));
                assert!(series.intervals.len() <= most, "{types}");
            }
            let packets: u64 = series.intervals.iter().map(|interval| interval.packets_in).sum();
            assert_eq!(packets, u64::from(seconds) * types as u64);
            let of_last_type: u64 =
                series.intervals.iter().map(|interval| interval.types[types - 1].packets).sum();
            assert_eq!(of_last_type, u64::from(seconds));
            let last = series.intervals.last().unwrap();
            assert!(last.seconds() <= series.interval_s, "{types}");
        }
    }

    #[test]
    fn a_late_interval_leaves_room_for_the_next() {
        let mut series = Series::new(Duration::from_secs(1));
        for (start, end) in [(0.0, 1.02), (1.02, 2.0), (2.0, 4.6), (4.6, 5.0), (5.0, 5.3)] {
            let mut interval = Interval::default();
            (interval.start_s, interval.end_s) = (start, end);
            series.push(interval);
        }
        let ends = |series: &Series| -> Vec<_> {
            series.intervals.iter().map(|interval| interval.end_s).collect()
        };
        assert_eq!(ends(&series), [1.02, 2.0, 4.6, 5.3]);
        // The last one has an interval of its own only if it is half as long.
        for (end, expected) in
            [(5.7, vec![1.02, 2.0, 4.6, 5.7]), (5.9, vec![1.02, 2.0, 4.6, 5.3, 5.9])]
        {
            let mut series = series.clone();
            let mut interval = Interval::default();
            (interval.start_s, interval.end_s) = (5.3, end);
            series.end(interval);
            assert_eq!(ends(&series), expected);
        }
    }
}
