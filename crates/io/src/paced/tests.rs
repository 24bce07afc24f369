//! Packets are received when they are due, by a clock that the tests move.

use std::sync::Arc;

use thalweg_packet::{BATCH, Lanes, Pool};

use super::*;
use crate::generate::{GeneratorInput, Spec};
use crate::memory::MemoryInput;

/// A paced input, and the time of the test.
struct Replay {
    input: PacedInput,
    batch: Batch,
    began: Instant,
}

impl Replay {
    fn of(input: impl Input + 'static, pace: f64) -> Self {
        Self::with(input, pace, PacedStart::default())
    }

    fn with(input: impl Input + 'static, pace: f64, start: PacedStart) -> Self {
        let batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
        let pace = Pace::new(pace).unwrap();
        let input = PacedInput::new(Box::new(input), pace, start);
        Self { input, batch, began: Instant::now() }
    }

    /// The times in milliseconds of up to `most` packets, and up to `last`, that are received `after`
    /// milliseconds from the start.
    fn some(&mut self, after: f64, most: usize, last: Option<u64>) -> Vec<u64> {
        let now = self.began + Duration::from_secs_f64(after / 1000.0);
        let (reach, mut drops) =
            ((most, last.map(Nanoseconds::from_millis)), DropCounts::default());
        let received = self.input.fill(now, &mut self.batch, reach, &mut drops, None).unwrap();
        let times = &self.batch.meta.timestamp[..received.packets];
        let times = times.iter().map(|time| time.0 / 1_000_000).collect();
        self.batch.release(Lanes::ALL);
        times
    }

    /// The times of all packets that are received then.
    fn at(&mut self, after: f64) -> Vec<u64> {
        self.some(after, BATCH, None)
    }

    /// How long after the start the next packet is due, in milliseconds.
    fn due(&self) -> Option<f64> {
        Some((self.input.due()? - self.began).as_secs_f64() * 1000.0)
    }
}

/// An input whose packets have these times, in milliseconds.
fn memory(times: &[u64], passes: u64) -> MemoryInput {
    let packet = |time: &u64| (Nanoseconds::from_millis(*time), [0; 64]);
    MemoryInput::from_packets(times.iter().map(packet), passes)
}

#[test]
fn the_first_is_received_at_once_and_each_later_one_when_its_time_comes() {
    let mut replay = Replay::of(memory(&[5000, 5010, 5020, 5050, 5050], 1), 2.0);
    assert_eq!(replay.at(0.0), [5000]);
    assert_eq!((replay.at(4.999), replay.due()), (vec![], Some(5.0)));
    assert_eq!(replay.at(5.0), [5010]);
    // A late reader receives all that is due by then.
    assert_eq!((replay.at(24.0), replay.due()), (vec![5020], Some(25.0)));
    assert_eq!((replay.at(100.0), replay.due()), (vec![5050, 5050], None));
}

#[test]
fn a_slow_pace_takes_longer() {
    let mut replay = Replay::of(memory(&[0, 10], 1), 0.5);
    assert_eq!((replay.at(0.0), replay.due()), (vec![0], Some(20.0)));
    // However slow, the next look is not too far for the clock.
    let mut slowest = Replay::of(memory(&[0, 10], 1), f64::MIN_POSITIVE);
    assert_eq!((slowest.at(0.0), slowest.due()), (vec![0], Some(3_600_000.0)));
}

#[test]
fn no_more_is_received_than_requested() {
    let mut replay = Replay::of(memory(&[0, 1, 2, 3, 4, 5], 1), 1.0);
    assert!(replay.some(0.0, 0, None).is_empty());
    assert_eq!(replay.input.upcoming(), Some(Nanoseconds(0)), "but the next is known");
    assert_eq!(replay.some(0.0, 2, None), [0]);
    assert_eq!(replay.some(100.0, 2, None), [1, 2]);
    // The first of a call may be later, as everywhere.
    assert_eq!(replay.some(100.0, BATCH, Some(1)), [3]);
    assert_eq!(replay.some(100.0, BATCH, Some(4)), [4]);
}

#[test]
fn each_pass_goes_on_where_the_last_one_ended() {
    let mut replay = Replay::of(memory(&[100, 110], 3), 1.0);
    let received: Vec<_> = (0..=60).flat_map(|at| replay.at(f64::from(at * 10))).collect();
    assert_eq!(received, [100, 110, 120, 130, 140, 150]);
    let mut replay = Replay::of(memory(&[100, 110], 0), 1.0);
    assert_eq!(replay.at(0.0), [100]);
    assert_eq!(replay.at(35.0), [110, 120, 130]);
}

#[test]
fn a_wrong_time_is_not_waited_for() {
    let second = 1000;
    let wrong = 4_000_000 * second;
    let mut replay = Replay::of(memory(&[10, 11, wrong, 12, 13], 1), 1.0);
    assert_eq!(replay.at(0.0), [10]);
    assert_eq!(replay.at(1.0), [11, wrong]);
    assert_eq!(replay.at(2.0), [12]);
    let mut first = Replay::of(memory(&[wrong, 10, 11, 12], 1), 1.0);
    assert_eq!(first.at(0.0), [wrong, 10]);
    assert_eq!((first.at(1.0), first.due()), (vec![11], Some(2.0)));
}

#[test]
fn an_older_packet_is_due_at_once() {
    let mut replay = Replay::of(memory(&[100, 110, 105, 108, 120], 1), 1.0);
    assert_eq!(replay.at(0.0), [100]);
    assert_eq!((replay.at(10.0), replay.due()), (vec![110, 105, 108], Some(20.0)));
}

#[test]
fn a_clock_that_is_set_back_goes_on_from_there() {
    let hour = 3_600_000;
    let mut replay = Replay::of(memory(&[hour, hour + 10, 50, 60, 70], 1), 1.0);
    assert_eq!(replay.at(0.0), [hour]);
    assert_eq!((replay.at(10.0), replay.due()), (vec![hour + 10, 50], Some(20.0)));
    assert_eq!((replay.at(20.0), replay.due()), (vec![60], Some(30.0)));
}

#[test]
fn inputs_with_one_start_keep_their_distance() {
    let start = PacedStart::default();
    let mut first = Replay::with(memory(&[1000, 1100], 1), 1.0, start.clone());
    assert_eq!(first.at(0.0), [1000]);
    let mut second = Replay::with(memory(&[1050], 1), 1.0, start);
    second.began = first.began;
    assert_eq!((second.at(1.0), second.due()), (vec![], Some(50.0)));
    assert_eq!(second.at(50.0), [1050]);
    assert!(first.at(50.0).is_empty());
}

#[test]
fn generated_packets_are_those_without_a_pace() {
    let spec = Spec { packets: 200, rate: 1000.0, ..Spec::default() };
    let mut replay = Replay::of(GeneratorInput::new(spec.clone()).unwrap(), 1.0);
    let mut unpaced = GeneratorInput::new(spec).unwrap();
    let (mut drops, mut ended) = (DropCounts::default(), false);
    for at in 0..200 {
        let now = replay.began + Duration::from_millis(at);
        let input = &mut replay.input;
        let received = input.fill(now, &mut replay.batch, (BATCH, None), &mut drops, None).unwrap();
        assert_eq!(received.packets, 1, "one a millisecond");
        let (bytes, time) = unpaced.next_packet().unwrap();
        assert_eq!(replay.batch.bytes(0), bytes);
        assert_eq!(replay.batch.meta.timestamp[0], time);
        replay.batch.release(Lanes::ALL);
        ended = received.ended;
    }
    assert!(ended && unpaced.next_packet().is_none());
}

#[test]
fn a_pace_is_above_zero_and_finite() {
    for pace in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(Pace::new(pace), None);
    }
    assert_eq!(Pace::new(2.0).unwrap().to_string(), "pace 2");
    assert_eq!(Pace::new(0.25).unwrap().to_string(), "pace 0.25");
}
