//! The inputs of a run, by line, and when they end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use thalweg_chain::{InputPlan, Plan};
use thalweg_cpu::cycles;
use thalweg_io::{Input, PacedStart};
use thalweg_packet::BATCH;

use super::open::{check_options, open_paced, queues};
use super::polls::Polls;
use super::sources::{Delivery, Sources};
use super::{CLOCK_PERIOD, NextPort};
use crate::burst::Round;
use crate::control::Control;
use crate::counters::{PortCounters, PortTotals};
use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;

/// The inputs of one line, until the run ends.
pub(crate) struct Inputs {
    /// Its number.
    line: usize,
    sources: Sources,
    limits: Limits,
    polls: Polls,
    until_clock: u32,
    failures: Vec<String>,
}

/// When a run ends before its inputs do.
#[derive(Clone, Copy)]
struct Limits {
    count: Option<u64>,
    /// The packets to receive; a run with a `count` has one line.
    left: u64,
    duration: Option<Duration>,
    /// The start of the run: its first poll for packets.
    began: Option<Instant>,
}

impl Inputs {
    /// Opens the inputs of a run with `workers` workers; returns those of each line.
    pub(crate) fn open(
        plan: &Plan,
        options: &RunOptions,
        workers: usize,
        control: &Control,
    ) -> Result<Vec<Self>, RunError> {
        check_options(plan, options)?;
        let start = PacedStart::default();
        let stop = control.stop_request().after(options.duration);
        let queues = queues(plan, options, workers);
        let open = |input: &InputPlan| open_paced(plan, input, options, queues, &start, &stop);
        let limits = Limits {
            count: options.count,
            left: options.count.unwrap_or(u64::MAX),
            duration: options.duration,
            began: None,
        };
        Ok(Self::of(Sources::open(plan, workers, open)?, limits, plan.poll))
    }

    fn of(lines: Vec<Sources>, limits: Limits, poll: Duration) -> Vec<Self> {
        let line = |(line, sources)| Self {
            line,
            sources,
            limits,
            polls: Polls::new(poll),
            until_clock: 0,
            failures: Vec::new(),
        };
        lines.into_iter().enumerate().map(line).collect()
    }

    /// Whether no more packets will arrive.
    pub(crate) fn ended(&mut self, control: &Control) -> bool {
        if self.until_clock == 0 {
            self.until_clock = CLOCK_PERIOD;
            let elapsed = self.limits.began.get_or_insert_with(Instant::now).elapsed();
            if self.limits.duration.is_some_and(|most| elapsed >= most) {
                self.limits.left = 0;
            }
            control.set_share(self.share(elapsed));
        }
        self.until_clock -= 1;
        self.limits.left == 0 || control.is_stopping() || self.sources.have_ended()
    }

    /// The share of the run that is done after `elapsed`: of the inputs, of the packets to receive
    /// or of the time, whichever is nearest to its end. `None` if all are unknown.
    fn share(&self, elapsed: Duration) -> Option<f64> {
        let of_time = self.limits.duration.map(|most| elapsed.as_secs_f64() / most.as_secs_f64());
        let of_count =
            self.limits.count.map(|most| self.sources.packets() as f64 / most.max(1) as f64);
        let shares = [of_time, of_count, self.sources.share()];
        let share = shares.into_iter().flatten().reduce(f64::max)?;
        Some(share.clamp(0.0, 1.0))
    }

    /// Goes on with the inputs of the plan that takes the place of that of `lines`, in a run with
    /// `workers` workers; returns those of each line. Those that the plan no longer has become
    /// `retired`, and their counts are added to `former`.
    pub(crate) fn renew(
        lines: Vec<Self>,
        plan: &Plan,
        next: Vec<NextPort<dyn Input>>,
        workers: usize,
        former: &mut PortCounters,
        retired: &mut Vec<Box<dyn Input>>,
    ) -> Vec<Self> {
        let Some(limits) = lines.first().map(|line| line.limits) else { return lines };
        let (sources, failures): (_, Vec<_>) =
            lines.into_iter().map(|line| (line.sources, line.failures)).unzip();
        let (sources, gone) = Sources::renew(sources, plan, workers, next, former);
        retired.extend(gone);
        let mut lines = Self::of(sources, limits, plan.poll);
        lines[0].failures = failures.concat();
        lines
    }

    /// The counts of the inputs of `plan` so far, of which no other line has a queue.
    pub(crate) fn counters(&self, plan: &Plan) -> PortTotals {
        let mut totals = PortTotals::new(plan.inputs.len());
        self.count_ports(&mut totals);
        totals
    }

    /// Adds the counts of each queue so far.
    pub(crate) fn count_ports(&self, totals: &mut PortTotals) {
        self.sources.count(totals);
    }

    /// Ends the inputs of all lines, of which there are `inputs`; returns their counts and failures.
    pub(crate) fn finish(lines: Vec<Self>, inputs: usize) -> (PortTotals, Vec<String>) {
        let (mut totals, mut failures) = (PortTotals::new(inputs), Vec::new());
        for line in lines {
            line.sources.finish(&mut totals);
            failures.extend(line.failures);
        }
        (totals, failures)
    }

    /// Fills the batch of `round` (empty) from the inputs that are next; returns whether anything
    /// arrived, or an input ended. An input must be open, which [`ended`](Self::ended) checks.
    pub(crate) fn receive(&mut self, round: &mut Round, control: &Control) -> bool {
        self.fill(round, control, false)
    }

    /// As [`receive`](Self::receive), but leaves what can be done without the inputs to the claims of
    /// `round`.
    pub(crate) fn claim(&mut self, round: &mut Round, control: &Control) -> bool {
        self.fill(round, control, true)
    }

    fn fill(&mut self, round: &mut Round, control: &Control, claims: bool) -> bool {
        let batch = &mut round.batch;
        let mut room = self.limits.left.min(BATCH as u64) as usize;
        let received_at = cycles::now();
        batch.reserve(room);
        let mut came = false;
        loop {
            let claims = claims.then_some(&mut round.claims);
            let delivery = self.sources.receive(batch, room, claims);
            room = room.saturating_sub(delivery.packets);
            came |= delivery.came;
            let joins = delivery.joins;
            // Only captures are joined in one batch.
            round.is_live = delivery.is_live;
            self.count(delivery, control);
            if !joins || room == 0 || batch.is_full() || self.sources.have_ended() {
                break;
            }
        }
        batch.unreserve();
        self.polls.found(came);
        // All lanes alike: the values of lanes without a packet are not used.
        batch.meta.received_at.fill(received_at);
        came
    }

    fn count(&mut self, delivery: Delivery, control: &Control) {
        self.limits.left = self.limits.left.saturating_sub(delivery.packets as u64);
        control.received(self.line, delivery.packets as u64, delivery.bytes);
        control.dropped(delivery.drops);
        if let Some(failure) = delivery.failure {
            // After a damaged file the others are read to their ends; anything else that fails, such
            // as a removed interface, ends the run.
            if failure.path().is_none() {
                control.stop();
            }
            self.failures.push(failure.to_string());
        }
    }

    /// Waits for packets, for a while at most, if polls have found none for long or none is due; not
    /// longer than until `waker` is readable. Returns whether it waited.
    pub(crate) fn rest(&mut self, waker: Option<BorrowedFd<'_>>) -> bool {
        let rests = self.sources.wait(self.polls.are_over(), waker);
        if rests {
            self.until_clock = 0;
        }
        rests
    }
}
