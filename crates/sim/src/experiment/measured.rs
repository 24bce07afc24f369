//! Measuring: lookups in rounds, until their mean is known well enough.

use crate::calendar::Cycle;
use crate::config::Config;
use crate::engine::CoreCounts;
use crate::halo::Parts;
use crate::machine::{Machine, MemoryCounts};

use super::statistics::{Mean, Observed};
use super::{PerLookup, Report};

/// Half of the confidence interval, as a part of the mean, at which more is measured.
const MOST_DOUBT: f64 = 0.02;
/// How often, at most.
const MOST_ROUNDS: u32 = 8;

/// What can be measured.
pub(super) trait Measured {
    /// The simulated work.
    fn config(&self) -> &Config;

    /// The machine that it runs on.
    fn machine(&self) -> &Machine;

    /// Performs `count` lookups, and calls `observed` as they end.
    fn lookups(&mut self, count: u64, observed: &mut Observed);

    /// What happened so far.
    fn tally(&self) -> Tally;

    /// Keys in the tables, and bytes of all buckets and keys.
    fn size(&self) -> (u64, u64);

    /// When its last operation so far retires.
    fn now(&self) -> Cycle {
        self.machine().now()
    }
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) core: CoreCounts,
    pub(super) memory: MemoryCounts,
    /// Lines that the measured thread missed in the first-level cache.
    pub(super) l1_misses: u64,
    pub(super) hits: u64,
    pub(super) queries: u64,
    pub(super) parts: Parts,
    pub(super) emc_hits: u64,
    pub(super) emc_cycles: u64,
}

impl Tally {
    /// Of what runs on `machine` alone, without accelerators.
    pub(super) fn of(machine: &Machine, hits: u64) -> Self {
        let memory = machine.memory.counts;
        let core = machine.core().counts;
        Self { core, memory, l1_misses: memory.l1_misses, hits, ..Self::default() }
    }

    /// The increase since `before`, per lookup.
    fn since(&self, before: &Self, lookups: u64) -> PerLookup {
        let each = |of: fn(&Self) -> u64| (of(self) - of(before)) as f64 / lookups as f64;
        let mut per_lookup = PerLookup {
            operations: each(|t| t.core.operations),
            loads: each(|t| t.core.loads),
            stores: each(|t| t.core.stores),
            branches: each(|t| t.core.branches),
            mispredictions: each(|t| t.core.mispredictions),
            l1_misses: each(|t| t.l1_misses),
            l2_misses: each(|t| t.memory.l2_misses),
            llc_misses: each(|t| t.memory.llc_misses),
            queries: each(|t| t.queries),
            emc_hits: each(|t| t.emc_hits),
            emc_cycles: each(|t| t.emc_cycles),
            accelerator_accesses: each(|t| t.memory.accelerator_accesses),
            accelerator_misses: each(|t| t.memory.accelerator_misses),
            snoops: each(|t| t.memory.snoops),
            ..PerLookup::default()
        };
        per_lookup.parts(&self.parts.since(&before.parts), lookups as f64);
        per_lookup
    }
}

/// The whole run.
pub(super) fn report(mut measured: impl Measured) -> Report {
    let sim = measured.config().sim;
    measured.lookups(sim.warmup_lookups, &mut Observed::default());
    let before = measured.tally();
    let (mut batches, mut lookups, mut cycles) = (Vec::new(), 0, Mean::default());
    let mut observed = Observed::begin(sim.measured_lookups, measured.now());
    for _ in 0..MOST_ROUNDS {
        round(&mut measured, &mut batches, &mut observed);
        observed.end();
        lookups += sim.measured_lookups;
        cycles = Mean::of(&batches);
        if cycles.half_width <= MOST_DOUBT * cycles.mean {
            break;
        }
    }
    let tally = measured.tally();
    let (keys, table_bytes) = measured.size();
    Report {
        schema: "thalweg.sim.run/2".into(),
        keys,
        table_bytes,
        lookups,
        hits: tally.hits - before.hits,
        cycles,
        batches,
        warm_up: observed.warm_up(),
        per_lookup: tally.since(&before, lookups),
        config: measured.config().clone(),
    }
}

/// Does the lookups of a round, and adds the cycles that one took in each batch.
fn round(measured: &mut impl Measured, batches: &mut Vec<f64>, observed: &mut Observed) {
    let sim = measured.config().sim;
    let mut done = 0;
    for batch in 1..=sim.batches {
        let until = sim.measured_lookups * batch / sim.batches;
        let (start, of_batch) = (measured.now(), until - done);
        measured.lookups(of_batch, observed);
        batches.push((measured.now() - start) as f64 / of_batch as f64);
        done = until;
    }
}
