//! Builds the next generation while packets pass, and answers those who asked for it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use thalweg_chain::{
    Change, Difference, Heir, How, InputPlan, NfIndex, NfPlan, OutputPlan, Plan, StateFate,
    Succession,
};
use thalweg_cpu::cores;
use thalweg_io::PacedStart;
use thalweg_source::{Stop, outside};

use super::error::RunError;
use super::generation::{Generation, Next, NextNf};
use super::options::RunOptions;
use super::panics;
use super::pauses::Pauses;
use super::ports::{NextPort, check_options, claim_files, claim_output, open_paced, queues};
use crate::control::Control;
use crate::course::{Seat, classification, divisible};
use crate::device::{self, NextDevice, Renewed};
use crate::reload::{Answer, Reload, ReloadError, Waiting};
use crate::report::PauseReport;

/// The most warnings that a run keeps for its report.
const MOST_WARNINGS: usize = 100;

/// The reloads of a run, one at a time, each on a thread of its own.
pub(super) struct Reloads {
    options: RunOptions,
    workers: usize,
    stop: Stop,
    building: Option<(JoinHandle<Built>, Waiting)>,
    /// The next generation, which waits until no packet is under way.
    ready: Option<(Box<Next>, Waiting)>,
    /// Threads that end what earlier generations have left; each returns what failed.
    ending: VecDeque<JoinHandle<Vec<String>>>,
    warnings: Vec<String>,
    failures: Vec<String>,
    pauses: Pauses,
}

/// What the thread of a reload returns: a generation, or the answer if there is nothing to be done.
type Built = Result<Result<Box<Next>, Difference>, ReloadError>;

impl Reloads {
    pub(super) fn new(options: &RunOptions, workers: usize, control: &Control) -> Self {
        Self {
            options: options.clone(),
            workers,
            stop: control.stop_request().after(options.duration),
            building: None,
            ready: None,
            ending: VecDeque::new(),
            warnings: Vec::new(),
            failures: Vec::new(),
            pauses: Pauses::new(),
        }
    }

    /// Starts a reload if one is requested and none is under way; whether the next generation of
    /// `plan` is ready.
    pub(super) fn poll(&mut self, plan: &Arc<Plan>, control: &Control) -> bool {
        if !self.is_ready() {
            self.pauses.end();
        }
        if self.building.as_ref().is_some_and(|(thread, _)| thread.is_finished()) {
            self.join();
        }
        if self.building.is_none()
            && !self.is_ready()
            && let Some(waiting) = control.take_reload()
        {
            self.start(plan.clone(), waiting, control.failed_devices.nfs());
        }
        if self.is_ready() {
            self.pauses.begin();
        }
        self.is_ready()
    }

    /// Starts a reload that starts the devices of the NFs `failed` again.
    fn start(&mut self, plan: Arc<Plan>, waiting: Waiting, failed: Vec<String>) {
        let (options, workers, reload) = (self.options.clone(), self.workers, waiting.reload);
        let stop = self.stop.clone();
        let build = move || {
            // The thread that starts this one may be kept on a core.
            cores::release();
            build(&plan, &options, workers, &stop, reload, &failed)
        };
        match outside::spawn("reload", build) {
            Ok(thread) => self.building = Some((thread, waiting)),
            Err(e) => self.answer(waiting, Err(ReloadError::Thread(e))),
        }
    }

    /// Takes what the thread of the reload has built.
    fn join(&mut self) {
        let Some((thread, waiting)) = self.building.take() else { return };
        match thread.join().unwrap_or_else(|cause| Err(panics::of_reload(&*cause))) {
            Ok(Ok(next)) => self.ready = Some((next, waiting)),
            Ok(Err(difference)) => self.answer(waiting, Ok(difference)),
            Err(e) => self.answer(waiting, Err(e)),
        }
    }

    /// Whether the next generation is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Lets the next generation, which is ready, take the place of `running`, in which there is no
    /// packet.
    pub(super) fn carry_out(&mut self, running: &mut Generation, control: &Control) {
        let Some((next, waiting)) = self.ready.take() else { return };
        match self.pauses.change(|| running.follow(*next, control)) {
            Ok((difference, retired)) => {
                let Waiting { asker, reload, under_way } = waiting;
                drop(under_way);
                if asker.is_none() {
                    self.tell(&Ok(difference.clone()), reload);
                }
                let end = move || {
                    cores::release();
                    let failures = retired.end();
                    // One who no longer waits needs no answer.
                    asker.into_iter().for_each(|asker| drop(asker.send(Ok(difference.clone()))));
                    failures
                };
                match outside::spawn("reload", end) {
                    Ok(thread) => self.ending.push_back(thread),
                    // What was left over is dropped with the closure, and the one who asked gets no answer.
                    Err(e) => self.failures.push(format!("cannot start a thread: {e}")),
                }
            }
            Err(e) => self.answer(waiting, Err(e)),
        }
        while self.ending.front().is_some_and(JoinHandle::is_finished) {
            self.join_ending();
        }
    }

    fn join_ending(&mut self) {
        let Some(thread) = self.ending.pop_front() else { return };
        let panicked = |cause: Box<dyn Any + Send>| {
            vec![format!("the end of an NF panicked: {}", panics::message(&*cause))]
        };
        self.failures.extend(thread.join().unwrap_or_else(panicked));
    }

    /// Waits for what is under way; returns warnings and failures of all reloads, and how long they
    /// held packets up.
    pub(super) fn finish(mut self) -> (Vec<String>, Vec<String>, Option<PauseReport>) {
        self.join();
        if let Some((_, waiting)) = self.ready.take() {
            self.answer(waiting, Err(ReloadError::Ended));
        }
        while !self.ending.is_empty() {
            self.join_ending();
        }
        (self.warnings, self.failures, self.pauses.report())
    }

    /// Answers the one who asked, or tells the log and the report.
    fn answer(&mut self, waiting: Waiting, answer: Answer) {
        let Waiting { asker, reload, under_way } = waiting;
        drop(under_way);
        match asker {
            Some(asker) => drop(asker.send(answer)),
            None => self.tell(&answer, reload),
        }
    }

    fn tell(&mut self, answer: &Answer, reload: Reload) {
        match answer {
            Ok(difference) if difference.is_empty() => log::info!("reload: nothing has changed"),
            Ok(difference) => {
                let done = if reload.dry_run { "would reload" } else { "reloaded" };
                difference.0.iter().for_each(|change| log::info!("{done}: {change}"));
            }
            Err(e) => {
                for line in e.lines() {
                    log::error!("reload: {line}");
                    if self.warnings.len() < MOST_WARNINGS {
                        self.warnings.push(format!("not reloaded: {line}"));
                    }
                }
            }
        }
    }
}

/// Loads the chain file of `running` again, and builds what is new. Devices that have `failed` these NFs
/// are started again.
fn build(
    running: &Plan,
    options: &RunOptions,
    workers: usize,
    stop: &Stop,
    reload: Reload,
    failed: &[String],
) -> Built {
    let succession = running.succession().map_err(ReloadError::Mistakes)?;
    let Succession { plan, mut difference, nfs, inputs, outputs, keeps_classification } =
        succession;
    check_options(&plan, options)?;
    let has_changed = !difference.is_empty();
    // A device reads what the NF was made of.
    let kept = |heir: &Heir| if let Heir::Kept(was) = heir { Some(*was) } else { None };
    let kept: Vec<_> = nfs.iter().map(kept).collect();
    let renewed = device::renew(running, &plan, workers, &kept, reload.dry_run, failed);
    let Renewed { next: devices, refused } = renewed.map_err(RunError::Device)?;
    if !refused.is_empty() && !has_changed {
        return Err(RunError::Device(refused.join("; ")).into());
    }
    add_again(&mut difference, &plan, failed, &devices);
    // Only an NF that takes over the state of another instance can still refuse.
    let moves = nfs.iter().any(|heir| matches!(heir, Heir::Replaced(_)));
    if !moves && (difference.is_empty() || reload.dry_run) {
        return Ok(Err(difference));
    }
    plan.warnings().iter().for_each(|warning| log::warn!("{warning}"));
    let may_divide = divisible(&plan, workers);
    refused.iter().for_each(|why| log::warn!("still on the processor: {why}"));
    let next = |((at, heir), device): ((usize, Heir), NextDevice)| {
        let (was, renewal, runs_on) = match heir {
            Heir::Kept(was) => (Some(was), None, true),
            Heir::Renewed(was, renewal) => (Some(was), Some(renewal), true),
            Heir::Replaced(was) => (Some(was), None, false),
            Heir::New => (None, None, false),
        };
        let seat = || Seat::new(&plan, NfIndex(at as u16), workers, may_divide[at]);
        let (seat, may_divide) = ((!runs_on).then(seat), may_divide[at]);
        NextNf { was, seat, renewal, may_divide, device }
    };
    let nfs = nfs.into_iter().enumerate().zip(devices).map(next).collect();
    let start = PacedStart::default();
    let queues = queues(&plan, options, workers);
    let open = |input: &InputPlan| open_paced(&plan, input, options, queues, &start, stop);
    let claim = |output: &OutputPlan| claim_output(&plan, output, queues, stop);
    let (inputs, outputs) = if reload.dry_run {
        (Vec::new(), Vec::new())
    } else {
        claim_files(&plan, stop)?;
        (ports(&plan.inputs, inputs, open)?, ports(&plan.outputs, outputs, claim)?)
    };
    let classification = (!keeps_classification).then(|| classification(&plan));
    Ok(Ok(Box::new(Next { plan, difference, reload, nfs, inputs, outputs, classification })))
}

/// Adds the NFs whose devices have failed and are started again, and which change in nothing else.
fn add_again(difference: &mut Difference, plan: &Plan, failed: &[String], next: &[NextDevice]) {
    let is_again = |(nf, next): &(&NfPlan, &NextDevice)| {
        nf.device.is_some() && failed.contains(&nf.name) && !matches!(next, NextDevice::Same)
    };
    for (nf, _) in plan.nfs.iter().zip(next).filter(is_again) {
        let is_it = |change: &Change| change.part == "nf" && change.name.as_ref() == Some(&nf.name);
        if !difference.0.iter().any(is_it) {
            let (how, part, name) = (How::Changed, "nf", Some(nf.name.clone()));
            let what = "its device, which had failed, again".into();
            let state = nf.kind.state.map(|_| StateFate::Kept);
            difference.0.push(Change { how, part, name, what, state });
        }
    }
}

/// Opens the ports that do not run yet.
fn ports<T, P: ?Sized>(
    plans: &[T],
    kept: Vec<Option<usize>>,
    open: impl Fn(&T) -> Result<Vec<Box<P>>, RunError>,
) -> Result<Vec<NextPort<P>>, RunError> {
    let port = |(plan, kept): (&T, Option<usize>)| match kept {
        Some(was) => Ok(NextPort::Kept(was)),
        None => open(plan).map(NextPort::New),
    };
    plans.iter().zip(kept).map(port).collect()
}
