//! A thread that takes snapshots of a run at a fixed pace.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Interval, Meter, Series};
use crate::control::Control;
use crate::report::Report;
use crate::tally::Tally;

/// The time between two checks for the end of the run while a snapshot is awaited.
const CHECK: Duration = Duration::from_millis(20);

/// Receives each interval, and whether it is the last.
type Observer = Box<dyn FnMut(&Interval, bool) + Send>;

/// How often snapshots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At this interval until the end of the run.
    Steady(Duration),
    /// At this interval at first, and less often as the intervals of the series become longer.
    Slowing(Duration),
}

impl Pace {
    fn interval(self) -> Duration {
        match self {
            Self::Steady(interval) | Self::Slowing(interval) => interval,
        }
    }
}

/// Takes snapshots of a run on a thread of its own, and keeps a series of what happened between
/// them.
pub struct Sampler {
    /// Ends the thread when it is dropped.
    stop: Sender<()>,
    thread: JoinHandle<Sampling>,
}

impl Sampler {
    /// Starts to take snapshots of the run that `control` controls, which may begin later. Each
    /// interval is passed to `observe`, and whether it is the last one of the run.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    ///
    /// # Panics
    /// If the interval is zero.
    pub fn start(
        control: Arc<Control>,
        pace: Pace,
        observe: impl FnMut(&Interval, bool) + Send + 'static,
    ) -> io::Result<Self> {
        assert!(!pace.interval().is_zero(), "an interval has a length");
        let (stop, stopped) = mpsc::channel();
        let (meter, series) = (Meter::default(), Series::new(pace.interval()));
        let mut sampling = Sampling { control, pace, meter, series, observe: Box::new(observe) };
        let thread = thread::Builder::new().name("sampler".into()).spawn(move || {
            // Only the end of the run ends it.
            let _ = sampling.until(&stopped);
            sampling
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the series with the report of the run, which has ended: the last interval lasts from
    /// the last snapshot until then.
    ///
    /// # Panics
    /// If the observer has panicked.
    pub fn finish(self, report: &Report) -> Series {
        drop(self.stop);
        let mut sampling = self.thread.join().expect("the observer does not panic");
        sampling.take(report.clone(), true);
        sampling.series
    }
}

/// The end of the run.
struct Ended;

struct Sampling {
    control: Arc<Control>,
    pace: Pace,
    meter: Meter,
    series: Series,
    observe: Observer,
}

impl Sampling {
    /// Takes snapshots until the run has ended.
    fn until(&mut self, stopped: &Receiver<()>) -> Result<(), Ended> {
        // The first one sets the clock only: intervals end at multiples of their length.
        let clock = self.snapshot(stopped)?.clock();
        loop {
            wait(stopped, self.until_next(clock.elapsed()))?;
            let report = self.snapshot(stopped)?.report();
            self.take(report, false);
        }
    }

    /// The time from `elapsed` until the next snapshot: at least half an interval.
    fn until_next(&self, elapsed: Duration) -> Duration {
        let interval = match self.pace {
            Pace::Steady(interval) => interval.as_secs_f64(),
            Pace::Slowing(_) => self.series.interval_s,
        };
        let elapsed = elapsed.as_secs_f64();
        let next = ((elapsed / interval + 0.5).floor() + 1.0) * interval;
        Duration::try_from_secs_f64(next - elapsed).unwrap_or(Duration::MAX)
    }

    /// A snapshot. A run that waits for a reader answers late, and until then gets no other request.
    fn snapshot(&self, stopped: &Receiver<()>) -> Result<Tally, Ended> {
        let answer = self.control.request_snapshot();
        loop {
            match answer.recv_timeout(CHECK) {
                Ok(tally) => return Ok(tally),
                Err(RecvTimeoutError::Timeout) => wait(stopped, Duration::ZERO)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            }
        }
    }

    fn take(&mut self, report: Report, is_last: bool) {
        let interval = self.meter.read(report);
        (self.observe)(&interval, is_last);
        if is_last {
            self.series.end(interval);
        } else {
            self.series.push(interval);
        }
    }
}

/// Waits for a time, unless the run ends.
fn wait(stopped: &Receiver<()>, time: Duration) -> Result<(), Ended> {
    match stopped.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => Ok(()),
        _ => Err(Ended),
    }
}
