//! The processor time that a thread takes from the start of one batch to that of the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Serialize;

use crate::counters::Latencies;

/// The most batches that are reported one by one.
const SLOWEST: usize = 1000;

/// Percentiles of the processor time of a batch, in nanoseconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BatchReport {
    /// The number of batches.
    pub batches: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// 99.99th percentile.
    pub p9999: u64,
    /// Longest.
    pub max: u64,
    /// The batches that took longest, the longest first; at most 1,000. What the program does recurs in
    /// another run over the same traffic; interrupts do not.
    pub slowest: Vec<SlowBatch>,
}

/// A batch that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct SlowBatch {
    /// Its processor time in nanoseconds.
    pub cpu_ns: u64,
    /// Its number among all batches with packets, from 0.
    pub batch: u64,
}

/// The time that this thread has used its processor: unlike time by the clock, it does not pass
/// while the system runs another thread.
pub(crate) fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `time` in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor times of the batches of one thread.
pub(crate) struct BatchTimes {
    times: Latencies,
    batches: u64,
    /// The shortest of them first.
    slowest: BinaryHeap<Reverse<SlowBatch>>,
    last: Duration,
}

impl BatchTimes {
    pub(crate) fn new() -> Self {
        let slowest = BinaryHeap::with_capacity(SLOWEST);
        Self { times: Latencies::new(), batches: 0, slowest, last: Duration::ZERO }
    }

    /// Begins with the first batch of a generation, on the thread that takes it.
    pub(crate) fn begin(&mut self) {
        self.last = used();
    }

    /// Ends a batch and begins the next; one without packets is not recorded.
    pub(crate) fn next(&mut self, has_packets: bool) {
        let now = used();
        if has_packets {
            self.record(nanoseconds(now.saturating_sub(self.last)));
        }
        self.last = now;
    }

    fn record(&mut self, cpu_ns: u64) {
        self.times.record(cpu_ns, 1);
        let batch = SlowBatch { cpu_ns, batch: self.batches };
        self.batches += 1;
        if self.slowest.len() < SLOWEST {
            self.slowest.push(Reverse(batch));
        } else if let Some(mut least) = self.slowest.peek_mut()
            && least.0 < batch
        {
            *least = Reverse(batch);
        }
    }

    /// `None` without batches.
    pub(crate) fn report(&self) -> Option<BatchReport> {
        let times = self.times.histogram();
        let at = |q| times.value_at_quantile(q);
        let slowest = self.slowest.clone().into_sorted_vec();
        (!times.is_empty()).then(|| BatchReport {
            batches: self.batches,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: times.max(),
            slowest: slowest.into_iter().map(|Reverse(batch)| batch).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_batches_are_known_by_their_numbers() {
        let mut times = BatchTimes::new();
        assert!(times.report().is_none());
        // Each tenth of them takes a millisecond longer.
        let all: Vec<u64> = (0..5000)
            .map(|n| 1000 + n * 7919 % 5000 + if n % 10 == 3 { 1_000_000 } else { 0 })
            .collect();
        all.iter().for_each(|time| times.record(*time));
        let report = times.report().unwrap();
        assert_eq!((report.batches, report.slowest.len()), (5000, SLOWEST));
        assert!(report.slowest.is_sorted_by(|a, b| a.cpu_ns >= b.cpu_ns));
        assert!(report.slowest.iter().all(|slow| all[slow.batch as usize] == slow.cpu_ns));
        assert!(report.slowest[..500].iter().all(|slow| slow.batch % 10 == 3));
        let least = report.slowest.last().unwrap().cpu_ns;
        assert_eq!(all.iter().filter(|time| **time >= least).count(), SLOWEST);
    }
}
