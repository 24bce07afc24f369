//! The service manager that has started the program, such as systemd: reports to it by
//! `sd_notify(3)`.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use thalweg_engine::Control;

use crate::progress::parts;

/// Names the socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Between two looks at the run.
const PERIOD: Duration = Duration::from_millis(50);
/// Between two lines of status.
const STATUS: Duration = Duration::from_secs(5);

/// Reports a run to the service manager, if there is one.
pub struct Service(Option<(Sender<bool>, JoinHandle<()>)>);

impl Service {
    /// Starts to report the run that `control` steers: that it is ready when its ports are open,
    /// reloads, stops, and its progress; and, if the service manager has a watchdog, that packets
    /// can pass. Does nothing without a service manager.
    pub fn start(control: Arc<Control>) -> Self {
        if std::env::var_os(SOCKET).is_none_or(|path| path.is_empty()) {
            return Self(None);
        }
        let (end, ended) = mpsc::channel();
        let work = move || {
            let mut reporter = Reporter::new(control);
            loop {
                match ended.recv_timeout(PERIOD) {
                    Err(RecvTimeoutError::Timeout) => reporter.look(),
                    Ok(has_run) => return reporter.end(has_run),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        match thread::Builder::new().name("service".into()).spawn(work) {
            Ok(thread) => Self(Some((end, thread))),
            Err(e) => {
                warn(&e);
                Self(None)
            }
        }
    }

    /// Reports that the run has ended, and before that, if it `has_run`, that it was ready.
    pub fn finish(self, has_run: bool) {
        if let Some((end, thread)) = self.0 {
            // Both fail only after a panic there, which has printed its message.
            let _ = end.send(has_run);
            let _ = thread.join();
        }
    }
}

fn warn(error: &std::io::Error) {
    log::warn!("cannot report to the service manager: {error}");
}

/// What reports, and what it has reported.
struct Reporter {
    control: Arc<Control>,
    is_ready: bool,
    is_reloading: bool,
    is_stopping: bool,
    /// The reloads that were reported.
    reloads: u64,
    watchdog: Option<Watchdog>,
    start: Instant,
    /// When the last status was reported, and the packets received until then.
    status: (Instant, u64),
    has_failed: bool,
}

impl Reporter {
    fn new(control: Arc<Control>) -> Self {
        let now = Instant::now();
        Self {
            control,
            is_ready: false,
            is_reloading: false,
            is_stopping: false,
            reloads: 0,
            watchdog: Watchdog::of_environment(),
            start: now,
            status: (now, 0),
            has_failed: false,
        }
    }

    /// Reports what has changed since the last look.
    fn look(&mut self) {
        // There is one as soon as all ports are open.
        if !self.is_ready && self.control.plan().is_some() {
            self.ready();
        }
        if !self.is_ready || self.is_stopping {
            return;
        }
        // Without a plan the run has ended, and takes no snapshots for the watchdog.
        if self.control.is_stopping() || self.control.plan().is_none() {
            return self.stopping();
        }
        self.look_at_reloads();
        if self.status.0.elapsed() >= STATUS {
            self.report_status();
        }
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_satisfied_by(&self.control)) {
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    fn look_at_reloads(&mut self) {
        let reloads = self.control.reloads();
        if reloads.begun > self.reloads {
            // The service manager distinguishes this reload from earlier ones by its time.
            match NotifyState::monotonic_usec_now() {
                Ok(now) => self.notify(&[NotifyState::Reloading, now]),
                Err(e) => self.failed(&e),
            }
            (self.reloads, self.is_reloading) = (reloads.begun, true);
        }
        if self.is_reloading && reloads.ended >= self.reloads {
            self.notify(&[NotifyState::Ready]);
            self.is_reloading = false;
        }
    }

    fn report_status(&mut self) {
        let (before, packets) = self.status;
        let (now, progress) = (Instant::now(), self.control.progress());
        let more = progress.packets_in.saturating_sub(packets);
        let pps = more as f64 / (now - before).as_secs_f64();
        self.status = (now, progress.packets_in);
        let text = parts(&progress, pps, self.start.elapsed()).join(", ");
        self.notify(&[NotifyState::Status(&text)]);
    }

    fn ready(&mut self) {
        self.is_ready = true;
        self.notify(&[NotifyState::Ready, NotifyState::Status("packets pass")]);
    }

    fn stopping(&mut self) {
        self.is_stopping = true;
        self.notify(&[NotifyState::Stopping, NotifyState::Status("the run ends")]);
    }

    /// Reports the end. A run that `has_run`, but not for long enough to be seen, was ready too:
    /// otherwise the service manager takes it for one that has failed.
    fn end(&mut self, has_run: bool) {
        if has_run && !self.is_ready {
            self.ready();
        }
        if !self.is_stopping {
            self.stopping();
        }
    }

    fn notify(&mut self, states: &[NotifyState<'_>]) {
        if let Err(e) = sd_notify::notify(states) {
            self.failed(&e);
        }
    }

    /// Warns of the first failure: the others will have the same reason.
    fn failed(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            warn(error);
        }
    }
}

/// The watchdog of the service manager, which ends the program when it hears nothing for a time.
struct Watchdog {
    /// Half of that time.
    period: Duration,
    /// When it last heard that packets can pass.
    last: Option<Instant>,
    has_warned: bool,
}

impl Watchdog {
    fn of_environment() -> Option<Self> {
        let time = sd_notify::watchdog_enabled().filter(|time| !time.is_zero())?;
        Some(Self { period: time / 2, last: None, has_warned: false })
    }

    /// Whether it is time for a sign of life, and packets can pass: the packet path takes a
    /// snapshot, which it does between two bursts, whether or not packets arrive.
    fn is_satisfied_by(&mut self, control: &Control) -> bool {
        if self.last.is_some_and(|last| last.elapsed() < self.period) {
            return false;
        }
        let began = Instant::now();
        if control.snapshot(self.period / 2).is_some() {
            (self.last, self.has_warned) = (Some(began), false);
            return true;
        }
        if !control.is_stopping() && !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("packets do not pass: no sign of life for the watchdog");
        }
        false
    }
}
