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

/// What happened in a run over time, in at most 600 intervals: after these, pairs are joined, and
/// later intervals are twice as long.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Series {
    /// The length of the intervals in seconds; the last one may be shorter, and one in which the
    /// run did not answer is longer.
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
        if self.intervals.len() == MOST {
            self.widen();
        }
        self.intervals.push(interval);
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
