//! What lasts from the start of a run to its end, whatever its generations.

use std::sync::{Arc, Mutex, PoisonError};
use std::{io, panic, thread};

use thalweg_chain::NfPlan;
use thalweg_cpu::cycles;

use super::ending;
use super::error::RunError;
use super::generation::Generation;
use super::options::RunOptions;
use super::reload::Reloads;
use super::state::StateFolders;
use super::{inline, workers};
use crate::batch_times::BatchTimes;
use crate::burst::Burst;
use crate::control::Control;
use crate::guard::Confinement;
use crate::published::Published;
use crate::report::Report;
use crate::visit::Clock;
use crate::watch::Watch;

/// A run, apart from its generation.
pub(super) struct Session<'a> {
    pub(super) control: &'a Control,
    /// The counts of each worker.
    pub(super) workers: Arc<[Published]>,
    pub(super) began: cycles::Clock,
    /// How far the times of packets have come, by line; at least one.
    pub(super) reached: Vec<Clock>,
    pub(super) reloads: Reloads,
    /// Bursts without packets, which the next generation goes on with.
    pub(super) bursts: Vec<Burst>,
    pub(super) watch: Watch,
    /// Taken on request, of a run on one thread.
    pub(super) batch_times: Option<BatchTimes>,
    /// Cycles spent on packets outside the course.
    pub(super) port_cycles: u64,
    pub(super) confinement: Option<Arc<dyn Confinement>>,
    /// A thread has panicked.
    pub(super) is_broken: bool,
    pub(super) failures: Vec<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(options: &RunOptions, workers: usize, control: &'a Control) -> Self {
        Self {
            control,
            workers: (0..workers).map(|_| Published::new()).collect(),
            began: cycles::Clock::start(),
            reached: vec![Clock::default()],
            reloads: Reloads::new(options, workers, control),
            bursts: Vec::new(),
            watch: Watch { timed: options.stages, ..Watch::default() },
            batch_times: options.stages.then(BatchTimes::new),
            port_cycles: 0,
            confinement: options.confinement.clone(),
            is_broken: false,
            failures: Vec::new(),
        }
    }

    /// Runs `generation` and those that take its place, until no more packets arrive.
    pub(super) fn run(mut self, mut generation: Generation, state: &StateFolders<'_>) -> Report {
        let mut has_threads = self.has_threads(&generation);
        loop {
            generation = if has_threads {
                workers::serve(generation, &mut self)
            } else {
                self.serve_inline(generation)
            };
            if self.is_broken || !self.reloads.is_ready() {
                return ending::report(generation, self, state);
            }
            self.reloads.carry_out(&mut generation, self.control);
            let had_threads = std::mem::replace(&mut has_threads, self.has_threads(&generation));
            if had_threads != has_threads {
                self.bursts.clear();
            }
            let routing = &generation.plan.routing;
            self.bursts.iter_mut().for_each(|burst| burst.suit(routing));
        }
    }

    /// Serves a generation on one thread: this one, or one of its own if it is confined, because a
    /// confined thread could not end the run.
    fn serve_inline(&mut self, generation: Generation) -> Generation {
        if self.confinement.is_none() {
            return inline::serve(generation, self);
        }
        let name = || thread::Builder::new().name("worker 0".into());
        // Kept here until the thread has started, so that it is not lost if it does not.
        let kept = Mutex::new(Some(generation));
        let take = || kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let session = &mut *self;
        let served = thread::scope(|scope| {
            let work = || inline::serve(take().expect("it is taken once"), session);
            let thread = name().spawn_scoped(scope, work)?;
            Ok::<_, io::Error>(thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
        });
        served.unwrap_or_else(|error| {
            self.failures.push(RunError::Thread(error).to_string());
            self.is_broken = true;
            take().expect("no thread has taken it")
        })
    }

    /// Whether a generation needs threads of its own.
    fn has_threads(&self, generation: &Generation) -> bool {
        // A device has packets of several bursts at a time.
        let needs = |nf: &NfPlan| nf.pinned || nf.device.is_some();
        self.workers.len() > 1 || generation.plan.nfs.iter().any(needs)
    }
}
