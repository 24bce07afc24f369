//! The stages of a run on several threads.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_chain::{Plan, Routing};

use super::panics;
use super::ports::{Inputs, Outputs};
use super::reload::Reloads;
use crate::burst::Burst;
use crate::classification::Classification;
use crate::control::Control;
use crate::course::{Course, transmit};
use crate::station::Station;
use crate::turn::InTurn;
use crate::visit::Clock;
use crate::watch::Watch;

/// All stages of a run, shared by its threads.
pub(super) struct Stages<'a> {
    pub(super) plan: &'a Plan,
    pub(super) control: &'a Control,
    pub(super) routing: Arc<Routing>,
    pub(super) intake: Mutex<Intake>,
    pub(super) classification: InTurn<Classification>,
    pub(super) stations: Vec<InTurn<Station>>,
    pub(super) outputs: InTurn<Outputs>,
    /// No more packets will be received.
    pub(super) drained: AtomicBool,
    /// A thread has panicked: bursts under way do not end.
    pub(super) broken: AtomicBool,
    /// All workers have ended.
    pub(super) end: AtomicBool,
    failures: Mutex<Vec<String>>,
}

/// The first stage, where bursts get their numbers.
pub(super) struct Intake {
    pub(super) inputs: Inputs,
    pub(super) reloads: Reloads,
    clock: Clock,
    /// The number of the next burst.
    next: u64,
}

impl Intake {
    pub(super) fn new(inputs: Inputs, reloads: Reloads) -> Self {
        Self { inputs, reloads, clock: Clock::default(), next: 0 }
    }

    /// Fills `burst` (empty) with the packets that are there; returns whether anything arrived or
    /// an input ended. A burst with packets or a request gets its number.
    pub(super) fn receive(&mut self, burst: &mut Burst, control: &Control) -> bool {
        let mut came = false;
        self.reloads.poll(control);
        burst.flushes = control.take_export();
        for round in &mut burst.rounds {
            came |= self.inputs.receive(&mut round.batch, control);
            round.clock = self.clock.batch(&round.batch);
            if !round.batch.is_full() || self.inputs.ended(control) {
                break;
            }
        }
        if !burst.is_empty() {
            burst.number = self.next;
            self.next += 1;
        }
        came
    }
}

impl<'a> Stages<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        control: &'a Control,
        intake: Intake,
        course: Course,
        outputs: Outputs,
    ) -> Self {
        let Course { routing, classification, stations } = course;
        Self {
            plan,
            control,
            routing,
            intake: Mutex::new(intake),
            classification: InTurn::new(classification),
            stations: stations.into_iter().map(InTurn::new).collect(),
            outputs: InTurn::new(outputs),
            drained: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            end: AtomicBool::new(false),
            failures: Mutex::new(Vec::new()),
        }
    }

    /// Lets the NFs of a station process a burst whose turn it is there.
    pub(super) fn serve(&self, station: &mut Station, burst: &mut Burst, watch: &mut Watch) {
        station.serve(&self.routing, burst, watch);
        if burst.flushes {
            let mut failures = Vec::new();
            station.flush(&mut failures);
            self.fail(failures);
        }
    }

    /// Sends the packets of a burst whose turn it is at the outputs.
    pub(super) fn send(&self, outputs: &mut Outputs, burst: &mut Burst, watch: &mut Watch) {
        let control = self.control;
        outputs.check(control);
        transmit(burst, watch, |output, batch, lanes| outputs.send(output, batch, lanes, control));
        if burst.flushes {
            outputs.flush(control);
        }
        control.drops.fetch_add(burst.drops, Ordering::Relaxed);
    }

    fn fail(&self, more: impl IntoIterator<Item = String>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    /// Ends the run because `who` panicked with `cause`.
    pub(super) fn break_off(&self, who: &str, cause: &(dyn Any + Send)) {
        let nf = self.stations.iter().find_map(|station| station.peek()?.at_work);
        self.fail([panics::failure(self.plan, who, nf, cause)]);
        self.broken.store(true, Ordering::Release);
        self.control.stop();
    }

    /// What the run leaves when its threads have ended: inputs, reloads, course, outputs, failures.
    pub(super) fn into_parts(self) -> (Intake, Course, Outputs, Vec<String>) {
        let Self { routing, intake, classification, stations, outputs, failures, .. } = self;
        let course = Course {
            routing,
            classification: classification.into_inner(),
            stations: stations.into_iter().map(InTurn::into_inner).collect(),
        };
        let of = |failures: Mutex<Vec<String>>| {
            failures.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let intake = intake.into_inner().unwrap_or_else(PoisonError::into_inner);
        (intake, course, outputs.into_inner(), of(failures))
    }
}
