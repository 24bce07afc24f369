//! The counts of all stages at one moment of a run.
//!
//! In a run with one line, a tally travels with a burst: each stage adds its counts when it has served
//! that burst. Since every stage serves the bursts in the same order, the tally has all packets up to
//! that burst and none behind it: what was received and generated was transmitted or dropped, to the
//! packet. Several lines receive no packets until none is under way, and the counts of all stages are
//! taken then.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use thalweg_chain::{NfIndex, Plan};
use thalweg_cpu::cycles::Clock;

use crate::classification::Classification;
use crate::counters::{Counters, Former, Latencies, NfCounters, PortTotals};
use crate::published::{Published, WorkerCounts};
use crate::report::{Report, Totals};
use crate::station::Station;

/// Those who asked for a tally.
pub(crate) type Asked = Vec<Sender<Tally>>;

/// The counts of the stages that a burst has passed.
#[derive(Clone)]
pub(crate) struct Tally {
    run: Run,
    /// When the tally began, since the start of the run.
    elapsed: Duration,
    workers: Vec<WorkerCounts>,
    inputs: PortTotals,
    outputs: PortTotals,
    latency: Latencies,
    counters: Counters,
}

/// The run that is counted.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    /// The counts of each worker.
    pub(crate) workers: Arc<[Published]>,
    pub(crate) clock: Clock,
    pub(crate) former: Arc<Former>,
}

impl Tally {
    /// Begins with what the inputs have received.
    pub(crate) fn new(run: &Run, inputs: PortTotals) -> Self {
        let (nfs, types) = (run.plan.nfs.len(), run.plan.types.len());
        Self {
            run: run.clone(),
            elapsed: run.clock.elapsed(),
            workers: run.workers.iter().map(Published::now).collect(),
            inputs,
            outputs: PortTotals::new(run.plan.outputs.len()),
            latency: Latencies::new(),
            counters: Counters::new(nfs, types, &run.former),
        }
    }

    pub(crate) fn add_classification(&mut self, classification: &Classification) {
        self.counters.types.clone_from(&classification.types);
        self.counters.layers.merge(&classification.classifier.stats());
        self.counters.chain_drops.merge(&classification.lost);
    }

    pub(crate) fn add_station(&mut self, station: &Station) {
        self.counters.chain_drops.merge(&station.lost);
        for member in station.members() {
            self.add_nf(member.nf, &member.counters);
            let counters = &mut self.counters.nfs[usize::from(member.nf.0)];
            counters.figures = member.function.figures();
            counters.add_device(member.device.as_ref());
        }
    }

    /// Adds the counts of an NF, or of a part of it.
    pub(crate) fn add_nf(&mut self, nf: NfIndex, counters: &NfCounters) {
        self.counters.nfs[usize::from(nf.0)].merge(counters);
    }

    /// Adds the counts of the outputs of a line, and the times of their packets.
    pub(crate) fn add_outputs(&mut self, add: impl FnOnce(&mut PortTotals), latency: &Latencies) {
        add(&mut self.outputs);
        self.latency.merge(latency);
    }

    /// Answers those who `asked`.
    pub(crate) fn answer(self, mut asked: Asked) {
        let last = asked.pop();
        // One who no longer waits needs no answer.
        asked.into_iter().for_each(|ask| drop(ask.send(self.clone())));
        if let Some(last) = last {
            let _ = last.send(self);
        }
    }

    /// The clock of the run.
    pub(crate) fn clock(&self) -> Clock {
        self.run.clock
    }

    /// The report of the run up to here.
    pub(crate) fn report(self) -> Report {
        let Self { run, elapsed, workers, inputs, outputs, latency, counters } = self;
        let Run { plan, clock, .. } = run;
        let totals = Totals {
            workers,
            duration_s: elapsed.as_secs_f64(),
            stages: false,
            nanoseconds_per_cycle: clock.nanoseconds_per_cycle(),
            port_cycles: 0,
            inputs,
            outputs,
            counters,
            latency,
            batch_cpu_ns: None,
            reload_pauses_ns: None,
            leaked_frames: 0,
            warnings: Vec::new(),
            failures: Vec::new(),
        };
        Report::new(&plan, totals)
    }
}
