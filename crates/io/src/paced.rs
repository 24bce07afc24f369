//! Hands packets out when their times come.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use thalweg_packet::{Batch, DropCounts, Nanoseconds};
use thalweg_source::SourceError;
use toml::Spanned;

use crate::claims::Claims;
use crate::clock::PacketClock;
use crate::kind::Section;
use crate::port::{Input, IoError, Received, Shortfall};

/// The farthest ahead that a packet is due; for a later one the input is polled again then.
const FARTHEST: Duration = Duration::from_secs(3600);

/// How many times as fast as in real time packets are received: 2 takes half as long.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Pace(f64);

impl Pace {
    /// The pace `times` as fast as real time; `None` unless that is above 0 and finite.
    pub fn new(times: f64) -> Option<Self> {
        (times > 0.0 && times.is_finite()).then_some(Self(times))
    }

    /// The pace that an option sets. Adds an error to `errors` if there is no such pace.
    pub fn of_option(
        section: &Section<'_>,
        option: Option<Spanned<f64>>,
        errors: &mut Vec<SourceError>,
    ) -> Option<Self> {
        let option = option?;
        let pace = Self::new(*option.get_ref());
        if pace.is_none() {
            let message = format!("bad pace '{}'", option.get_ref());
            errors.push(section.error(
                option.span(),
                message,
                "a number above 0; 1.0 is real time",
            ));
        }
        pace
    }

    /// How long a span between the times of two packets takes.
    fn real(self, span: Nanoseconds) -> Duration {
        // Casts of floating-point numbers saturate.
        Duration::from_nanos((span.0 as f64 / self.0) as u64)
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pace {}", self.0)
    }
}

/// When the first packet of one paced input, or of several that are merged by time, was received, and
/// its time.
#[derive(Clone, Debug, Default)]
pub struct PacedStart(Arc<OnceLock<(Instant, Nanoseconds)>>);

/// An input whose packets are received when their times come: the first at once, each later one as
/// long after it as their times differ, by a monotonic clock.
///
/// A late reader receives at once all that is due, and so catches up. Steps of packets' times are
/// believed as [`PacketClock`] believes them: one wrong time is not waited for, and a packet older
/// than those before it is due at once. Where the clock of a capture was set back, later packets
/// count from there.
///
/// The input that is paced must know its [`upcoming`](Input::upcoming) packet after a call that
/// receives none, and then receive it without an error.
pub struct PacedInput {
    input: Box<dyn Input>,
    pace: Pace,
    start: PacedStart,
    schedule: Schedule,
    /// When the next packet is due, if it was not when it was last looked for.
    due: Option<Instant>,
}

/// The times of packets as they count for their pace: they never go back for long.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    clock: PacketClock,
    /// The time by which the clock was set back, in total.
    back: Nanoseconds,
}

impl Schedule {
    /// The time that counts for a packet of `time`, the next one, and the schedule after it. `after`
    /// is as for [`PacketClock::expect`].
    fn pass(
        mut self,
        time: Nanoseconds,
        after: impl FnOnce() -> Option<Nanoseconds>,
    ) -> (Nanoseconds, Self) {
        let before = self.clock.reached().unwrap_or(time);
        let place = self.clock.pass(time, after);
        let reached = self.clock.reached().unwrap_or(place);
        self.back = self.back.plus(before.since(reached));
        (place.plus(self.back), self)
    }
}

impl PacedInput {
    /// Paces `input`; `start` is its own, or that of all inputs that it is merged with.
    pub fn new(input: Box<dyn Input>, pace: Pace, start: PacedStart) -> Self {
        Self { input, pace, start, schedule: Schedule::default(), due: None }
    }

    /// When a packet is due whose time counts as `place`, `now` if it is the first.
    fn due_at(&self, place: Nanoseconds, now: Instant) -> Instant {
        let (began, first) = *self.start.0.get_or_init(|| (now, place));
        let due = began.checked_add(self.pace.real(place.since(first)));
        due.map_or(now + FARTHEST, |due| due.min(now + FARTHEST))
    }

    /// Receives the packets that are due `now`, as [`Input::claim`] does if there are claims.
    fn fill(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        (most, last): (usize, Option<Nanoseconds>),
        drops: &mut DropCounts,
        mut claims: Option<&mut Claims>,
    ) -> Result<Received, IoError> {
        self.due = None;
        let mut received = Received::default();
        if self.input.upcoming().is_none() {
            received = self.input.receive(batch, 0, drops)?;
        }
        while received.packets < most && !batch.is_full() {
            let Some(time) = self.input.upcoming() else { break };
            if received.packets > 0 && last.is_some_and(|last| time > last) {
                break;
            }
            let (place, next) = self.schedule.pass(time, || self.input.following());
            let due = self.due_at(place, now);
            if due > now {
                self.due = Some(due);
                break;
            }
            // One by one: after a time that is set back, the next packet may not be due.
            let one = match claims.as_deref_mut() {
                Some(claims) => self.input.claim(batch, 1, None, drops, claims)?,
                None => self.input.receive(batch, 1, drops)?,
            };
            received.merge(&one);
            if one.packets == 0 {
                break; // no frame is free
            }
            self.schedule = next;
        }
        Ok(received)
    }
}

impl Input for PacedInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        self.fill(Instant::now(), batch, (most, None), drops, None)
    }

    fn receive_until(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Nanoseconds,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        self.fill(Instant::now(), batch, (most, Some(last)), drops, None)
    }

    fn claim(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Option<Nanoseconds>,
        drops: &mut DropCounts,
        claims: &mut Claims,
    ) -> Result<Received, IoError> {
        self.fill(Instant::now(), batch, (most, last), drops, Some(claims))
    }

    fn upcoming(&self) -> Option<Nanoseconds> {
        self.input.upcoming()
    }

    fn following(&mut self) -> Option<Nanoseconds> {
        self.input.following()
    }

    fn share(&self) -> Option<f64> {
        self.input.share()
    }

    fn shortfall(&self) -> Shortfall {
        self.input.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        self.input.copied()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.input.descriptor()
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
