//! A thread that does for syncers what a resident kernel does, by launches: for devices that cannot see the
//! processor's stores while a kernel runs.
//!
//! The queues stay in memory of the processor. The thread takes the sealed rows of all work-groups, lets the device
//! work on them in one launch, and counts them as done. While a launch is under way, it prepares another one.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::{Figures, Launch, Resident};
use crate::error::AccelError;
use crate::region::{Region, State};
use crate::slot::Request;

/// While a launch is under way, another one begins only with this number of rows at least: with fewer, what it
/// costs would not be divided by much.
const ENOUGH: usize = 4;

/// How large launches may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Slots of a row: work-items of a work-group.
    pub(crate) lanes: usize,
    pub(crate) rows: usize,
    /// Bytes of packets, if they are copied. Those of any one row fit.
    pub(crate) bytes: usize,
}

/// A launch, one after the other: it is [laid out](Self::lay_out), its slots are [filled](Self::put), it
/// [departs](Self::depart), is [over](Self::is_over), and [lands](Self::land).
pub(crate) trait Flight: Send + 'static {
    /// Begins anew, with this number of rows.
    ///
    /// # Panics
    /// When that are too many, or the launch before is not over.
    fn lay_out(&mut self, rows: usize);

    /// Begins a row: its function, by its number, and its table, by the first byte among all tables and the length.
    fn head(&mut self, row: usize, function: usize, table: (usize, usize));

    /// Fills a slot; `None` makes it a dummy. Slots whose packets `change` come before all others.
    ///
    /// # Panics
    /// When the bytes are not in packet memory, or copies of them do not fit.
    fn put(&mut self, row: usize, lane: usize, request: Option<Request>, change: bool);

    /// Launches the kernel.
    ///
    /// # Errors
    /// When that fails, in words. A part of it may be under way: [`is_over`](Self::is_over).
    fn depart(&mut self) -> Result<(), String>;

    /// Whether nothing is under way, and how that ended; `None` while something is.
    fn is_over(&self) -> Option<Result<(), String>>;

    /// Brings the bytes of packets that the launch has changed back to their places: as many as went there,
    /// whatever the device did.
    ///
    /// # Panics
    /// When it is not over.
    fn land(&mut self);

    /// What the kernel returned for a slot that is no dummy. It is the device's word: any value may occur.
    fn result(&self, row: usize, lane: usize) -> [u32; 2];
}

/// The relay's thread.
struct Relaying {
    region: Arc<Region>,
    figures: Arc<Figures>,
    failure: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has.
struct Relay<F> {
    device: String,
    launch: Launch,
    limits: Limits,
    copies: bool,
    figures: Arc<Figures>,
    /// Why a launch has failed, once none is under way any more.
    failure: Arc<OnceLock<String>>,
    /// By work-group: rows that have been in a launch, and those that are sealed.
    taken: Vec<u32>,
    sealed: Vec<u32>,
    /// The work-group whose rows come first in the next launch.
    first: usize,
    idle: Vec<F>,
    /// From the oldest on, each with the work-group and the number of each of its rows.
    under_way: VecDeque<(F, Vec<(usize, u32)>)>,
}

/// Starts the thread, for the work-groups of `launch` on a device of this name. Packets are copied, or not.
pub(crate) fn start<F: Flight>(
    device: &str,
    launch: Launch,
    (limits, copies): (Limits, bool),
    flights: Vec<F>,
) -> Result<Box<dyn Resident>, AccelError> {
    let work_groups = launch.region.shape().work_groups;
    let figures = Arc::new(Figures::new(launch.functions.len()));
    let failure = Arc::new(OnceLock::new());
    let region = launch.region.clone();
    let relay = Relay {
        device: device.to_owned(),
        launch,
        limits,
        copies,
        figures: figures.clone(),
        failure: failure.clone(),
        taken: vec![0; work_groups],
        sealed: vec![0; work_groups],
        first: 0,
        idle: flights,
        under_way: VecDeque::new(),
    };
    let thread = thread::Builder::new().name("launches".into());
    let thread = thread.spawn(|| relay.run()).map_err(|e| AccelError::Call {
        device: device.to_owned(),
        call: "starting a thread",
        why: e.to_string(),
    })?;
    Ok(Box::new(Relaying { region, figures, failure, thread: Some(thread) }))
}

impl<F: Flight> Relay<F> {
    fn run(mut self) {
        let groups = 0..self.taken.len();
        groups.clone().for_each(|group| self.launch.region.set_state(group, State::Runs));
        if let Err(e) = self.relay() {
            log::debug!("{}: a launch: {e}", self.device);
            // Packets may be used again when no launch can change them.
            let mut looks = 0;
            while self.under_way.iter().any(|(flight, _)| flight.is_over().is_none()) {
                rest(&mut looks);
            }
            let _ = self.failure.set(format!("a launch: {e}"));
        }
        groups.for_each(|group| self.launch.region.set_state(group, State::Ended));
    }

    /// Relays until the region ends, and no launch is under way.
    fn relay(&mut self) -> Result<(), String> {
        let mut looks = 0;
        loop {
            // In this order: what was sealed before the end is worked on.
            let ends = self.launch.region.ends();
            let mut moves = self.begin()?;
            while let Some((flight, _)) = self.under_way.front()
                && let Some(ended) = flight.is_over()
            {
                ended?;
                self.land();
                moves = true;
            }
            if moves {
                looks = 0;
            } else if ends && self.under_way.is_empty() {
                return Ok(());
            } else {
                rest(&mut looks);
            }
        }
    }

    /// Begins a launch, if there are enough rows for one; returns whether there were.
    fn begin(&mut self) -> Result<bool, String> {
        let Some(mut flight) = self.idle.pop() else { return Ok(false) };
        let rows = self.take(if self.under_way.is_empty() { 1 } else { ENOUGH });
        if rows.is_empty() {
            self.idle.push(flight);
            return Ok(false);
        }
        self.fill(&mut flight, &rows);
        let departed = flight.depart();
        self.under_way.push_back((flight, rows));
        departed.map(|()| true)
    }

    /// Takes rows for a launch, of each work-group in turn, if there are `least` of them; those whose packets are
    /// changed come first.
    fn take(&mut self, least: usize) -> Vec<(usize, u32)> {
        let region = &self.launch.region;
        let groups = self.taken.len();
        let mut waiting = 0;
        for group in 0..groups {
            self.sealed[group] = region.sealed(group);
            waiting += self.sealed[group].wrapping_sub(self.taken[group]) as usize;
        }
        let mut rows = Vec::new();
        if waiting < least {
            return rows;
        }
        let (mut next, mut room, mut is_full) = (self.taken.clone(), self.limits.bytes, false);
        while waiting > 0 && !is_full {
            for group in (self.first..groups).chain(0..self.first) {
                if next[group] == self.sealed[group] {
                    continue;
                }
                let needed = self.len(group, next[group]);
                is_full = rows.len() == self.limits.rows || needed > room;
                if is_full {
                    break;
                }
                rows.push((group, next[group]));
                next[group] = next[group].wrapping_add(1);
                (room, waiting) = (room - needed, waiting - 1);
            }
        }
        self.first = (self.first + 1) % groups;
        self.taken = next;
        rows.sort_by_key(|(group, _)| !self.changes(*group));
        rows
    }

    /// The bytes that copies of a row's packets take.
    fn len(&self, group: usize, row: u32) -> usize {
        if !self.copies {
            return 0;
        }
        let region = &self.launch.region;
        let requests =
            (0..self.limits.lanes).filter_map(|lane| region.slot(group, row, lane).request());
        requests.map(|request| (request.len as usize).next_multiple_of(4)).sum()
    }

    /// Whether the function of a work-group changes packets.
    fn changes(&self, group: usize) -> bool {
        self.launch.functions[self.launch.region.function(group)].changes
    }

    /// Puts rows into a launch.
    fn fill(&self, flight: &mut F, rows: &[(usize, u32)]) {
        let Self { launch: Launch { region, functions, .. }, limits, .. } = self;
        let mut copied: Vec<Option<u64>> = vec![None; functions.len()];
        flight.lay_out(rows.len());
        for (at, (group, row)) in rows.iter().enumerate() {
            let (function, changes) = (region.function(*group), self.changes(*group));
            flight.head(at, function, region.place_of_table(*group));
            let copied = copied[function].get_or_insert_default();
            for lane in 0..limits.lanes {
                let request = region.slot(*group, *row, lane).request();
                flight.put(at, lane, request, changes);
                if self.copies {
                    let len = request.map_or(0, |request| u64::from(request.len));
                    *copied += if changes { 2 * len } else { len };
                }
            }
        }
        for (function, copied) in copied.into_iter().enumerate() {
            if let Some(copied) = copied {
                self.figures.add(function, copied);
            }
        }
    }

    /// Brings what the oldest launch did to its packets, and counts its rows as done.
    fn land(&mut self) {
        let Some((mut flight, rows)) = self.under_way.pop_front() else { return };
        flight.land();
        let region = &self.launch.region;
        for (at, (group, row)) in rows.into_iter().enumerate() {
            for lane in 0..self.limits.lanes {
                let slot = region.slot(group, row, lane);
                if slot.request().is_some() {
                    slot.answer(flight.result(at, lane));
                }
            }
            region.finish(group, row.wrapping_add(1));
        }
        self.idle.push(flight);
    }
}

/// What the relay does after a look that found nothing: it lets others run, then sleeps, ever longer up to a bound.
fn rest(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    match looks {
        0..2_000 => thread::yield_now(),
        2_000..10_000 => thread::sleep(Duration::from_micros(50)),
        _ => thread::sleep(Duration::from_micros(500)),
    }
}

impl Resident for Relaying {
    fn figures(&self) -> Option<Arc<Figures>> {
        Some(self.figures.clone())
    }

    /// The thread has all that a launch uses, and keeps it until that has ended.
    fn stop(&mut self, within: Duration) -> bool {
        self.region.end();
        let until = Instant::now() + within;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_micros(100));
        }
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}

#[cfg(test)]
mod tests;
