//! The clock of an input: which times of packets are believed.

#[cfg(target_os = "linux")]
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_packet::{Batch, Lanes, Nanoseconds};

/// A step forward that needs no second packet to be believed.
const STEP: Nanoseconds = Nanoseconds::from_secs(1);

/// The time by the system's clock, for packets that come without one.
#[cfg(target_os = "linux")]
pub(crate) fn now() -> Nanoseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanoseconds(since.as_nanos() as u64)
}

/// Dates the packets of one input.
///
/// Timers go by packets' times, so one wrong time could end every flow, or stop all timers for good.
/// A packet that is up to a second newer than all before it, or up to a minute
/// ([`Nanoseconds::REORDERING`]) older, is believed: captures are a little out of order. A larger
/// step, forward or back, is believed if the next packet is nearer to the new time than to the old
/// one, or if the next packet is not known. Otherwise the packet gets the newest time before it, so
/// that it moves no timer; its captured time stays for outputs ([`Metadata::captured`]).
///
/// [`Metadata::captured`]: thalweg_packet::Metadata::captured
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketClock {
    /// The newest time believed since the clock was last set back.
    reached: Option<Nanoseconds>,
}

impl PacketClock {
    /// Dates the packets of `batch` from lane `start` on, which were received in the order of their
    /// lanes; `next` is the captured time of the packet after them, if it is known.
    pub fn date(&mut self, batch: &mut Batch, start: usize, next: Option<Nanoseconds>) {
        let packets = batch.len();
        debug_assert!(batch.lanes() == Lanes::first(packets), "an input fills lanes in order");
        let times = &batch.meta.timestamp[start.min(packets)..packets];
        let Some(first) = times.first() else { return };
        let mut reached = self.reached.unwrap_or(*first);
        if let Some(step) = small_step(reached, times) {
            self.reached = Some(reached.plus(step));
            return;
        }
        for lane in start..packets {
            let time = batch.meta.timestamp[lane];
            let after = batch.meta.timestamp[..packets].get(lane + 1).copied().or(next);
            match believe(reached, time, after) {
                Some(newest) => reached = newest,
                None => batch.meta.date(lane, reached),
            }
        }
        self.reached = Some(reached);
    }

    /// The newest time believed since the clock was last set back; `None` before the first packet.
    pub(crate) fn reached(&self) -> Option<Nanoseconds> {
        self.reached
    }

    /// The time by which a packet captured at `time`, the next one, takes its place among those of
    /// other inputs. `after` returns the captured time of the packet after it, if it is known; it
    /// is called only for a step that needs a second packet to be believed.
    ///
    /// An older packet than those before it counts as of its own time, believed or not: it is late
    /// already.
    pub fn expect(
        &self,
        time: Nanoseconds,
        after: impl FnOnce() -> Option<Nanoseconds>,
    ) -> Nanoseconds {
        self.step(time, after).0
    }

    /// As [`expect`](Self::expect); the next packet is then the one after it.
    pub(crate) fn pass(
        &mut self,
        time: Nanoseconds,
        after: impl FnOnce() -> Option<Nanoseconds>,
    ) -> Nanoseconds {
        let (place, reached) = self.step(time, after);
        self.reached = Some(reached);
        place
    }

    /// The place of the next packet in time, and the time reached with it.
    fn step(
        &self,
        time: Nanoseconds,
        after: impl FnOnce() -> Option<Nanoseconds>,
    ) -> (Nanoseconds, Nanoseconds) {
        let reached = self.reached.unwrap_or(time);
        let after = if is_small(reached, time) { None } else { after() };
        match believe(reached, time, after) {
            Some(newest) => (time, newest),
            None => (time.min(reached), reached),
        }
    }
}

/// From `reached` to the newest of `times`, if they are all from `reached` to [`STEP`] later, as in
/// most batches.
fn small_step(reached: Nanoseconds, times: &[Nanoseconds]) -> Option<Nanoseconds> {
    let steps = times.iter().map(|time| time.0.wrapping_sub(reached.0));
    // One that is older wraps to a large number.
    let newest = steps.fold(0, u64::max);
    Some(Nanoseconds(newest)).filter(|newest| *newest <= STEP)
}

/// Whether the step from `reached` to `time` needs no second packet to be believed.
fn is_small(reached: Nanoseconds, time: Nanoseconds) -> bool {
    reached.since(time) <= Nanoseconds::REORDERING && time.since(reached) <= STEP
}

/// The newest time after a packet of `time`, before which it was `reached`; `None` if the packet
/// before `next` is not believed.
fn believe(
    reached: Nanoseconds,
    time: Nanoseconds,
    next: Option<Nanoseconds>,
) -> Option<Nanoseconds> {
    if is_small(reached, time) {
        return Some(reached.max(time));
    }
    let is_nearer = |next: Nanoseconds| next.0.abs_diff(time.0) <= next.0.abs_diff(reached.0);
    next.is_none_or(is_nearer).then_some(time)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use thalweg_packet::{BATCH, Pool};

    use super::*;

    /// The times that packets get that arrive in runs of `many`, as many in a batch as fit, in
    /// seconds.
    fn dated(seconds: &[u64], many: usize) -> Vec<u64> {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
        let mut clock = PacketClock::default();
        let mut times = Vec::new();
        for (at, chunk) in seconds.chunks(many).enumerate() {
            if batch.len() + chunk.len() > BATCH {
                batch.release(Lanes::ALL);
            }
            let start = batch.len();
            let after = seconds.get(at * many + 1).map(|t| Nanoseconds::from_secs(*t));
            let expected = clock.expect(Nanoseconds::from_secs(chunk[0]), || after);
            let late = clock.reached.is_some_and(|reached| expected < reached);
            for time in chunk {
                let lane = batch.push_bytes(&[0; 64]).unwrap();
                batch.meta.timestamp[lane] = Nanoseconds::from_secs(*time);
            }
            let next = seconds.get((at + 1) * many).map(|t| Nanoseconds::from_secs(*t));
            clock.date(&mut batch, start, next);
            assert!(late || expected == batch.meta.timestamp[start], "the first as expected");
            for (lane, time) in (start..).zip(chunk) {
                assert_eq!(batch.meta.captured(lane), Nanoseconds::from_secs(*time));
                times.push(batch.meta.timestamp[lane].split().0);
            }
        }
        times
    }

    #[test]
    fn every_packet_keeps_its_own_time() {
        let slow = [0, 70, 140, 7000, 7001, 100_000];
        let reordered = [100, 101, 99, 101, 42, 102];
        for many in [1, 2, 32] {
            assert_eq!(dated(&slow, many), slow);
            assert_eq!(dated(&reordered, many), reordered);
        }
    }

    #[test]
    fn one_wrong_time_moves_nothing() {
        for many in [1, 2, 3, 32] {
            assert_eq!(dated(&[10, 11, 4_000_000_000, 12, 13], many), [10, 11, 11, 12, 13]);
            assert_eq!(dated(&[1000, 1001, 0, 1002], many), [1000, 1001, 1001, 1002]);
            assert_eq!(dated(&[10, 11, 500, 12, 900, 13], many), [10, 11, 11, 12, 12, 13]);
        }
    }

    #[test]
    fn two_packets_set_the_clock_forward_or_back() {
        for many in [1, 2, 32] {
            let far = [10, 5000, 5001, 11, 12, 13];
            assert_eq!(dated(&far, many), far);
            let first = [4_000_000_000, 10, 11, 12];
            assert_eq!(dated(&first, many), first);
        }
    }

    proptest! {
        /// How packets fall into batches changes nothing.
        #[test]
        fn batches_do_not_matter(
            seconds in prop::collection::vec(prop_oneof![0u64..5, 50u64..70, 0u64..10_000], 1..80),
            many in 1..=BATCH,
        ) {
            prop_assert_eq!(dated(&seconds, many), dated(&seconds, BATCH));
        }
    }
}
