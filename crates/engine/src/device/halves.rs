//! A visit in two halves, between which a device has the packets.

use thalweg_chain::Routing;
use thalweg_cpu::cycles;
use thalweg_nf::device::{DeviceJob, DeviceResult};
use thalweg_nf::{Context, Emitted, Verdicts};
use thalweg_packet::{Batch, Lanes, Pool};

use super::Device;
use crate::burst::{Burst, Round};
use crate::observe::Notes;
use crate::station::{Member, Station, lose_all};
use crate::visit::{Visit, enter, leave, part};
use crate::watch::Watch;

/// What is kept of a visit between its halves.
pub(crate) struct Halves {
    lanes: Lanes,
    verdicts: Verdicts,
    notes: Option<Notes>,
    /// The packets that the NF has generated.
    emitted: Emitted,
    /// Spent in the first half.
    cycles: u64,
    pub(super) jobs: Vec<DeviceJob>,
    pub(super) results: Vec<DeviceResult>,
    /// The number of the visit in its line, until its packets are back.
    pub(super) visit: Option<usize>,
    /// Whether the processor does all of the work, in the second half.
    is_on_processor: bool,
}

impl Halves {
    fn new(pool: &std::sync::Arc<Pool>) -> Self {
        Self {
            lanes: Lanes::NONE,
            verdicts: Verdicts::default(),
            notes: None,
            emitted: Emitted::new(pool.clone()),
            cycles: 0,
            jobs: Vec::new(),
            results: Vec::new(),
            visit: None,
            is_on_processor: false,
        }
    }
}

impl Station {
    /// The first halves of the visits of a burst to the only NF of this station, which has `device`.
    pub(crate) fn begin(
        &mut self,
        routing: &Routing,
        burst: &mut Burst,
        device: &Device,
        watch: &mut Watch,
    ) {
        let mut at = 0;
        // Rounds of segments are added behind, and begin too.
        while at < burst.rounds.len() {
            let Some((_, lanes)) = self.next_visit(routing, burst, at) else {
                at += 1;
                continue;
            };
            let round = &mut burst.rounds[at];
            let (lanes, drops) = self.without_late(routing, round, 0, lanes);
            burst.drops += drops;
            if !lanes.is_empty() {
                self.begin_visit(round, lanes, device, watch);
            }
        }
    }

    fn begin_visit(&mut self, round: &mut Round, lanes: Lanes, device: &Device, watch: &mut Watch) {
        let Self { members, spare, at_work, .. } = self;
        let Member { nf, function, counters, .. } = &mut members[0];
        let Round { batch, clock, observed, halves, .. } = round;
        let spared = spare.pop();
        let mut new = spared.unwrap_or_else(|| Box::new(Halves::new(batch.pool())));
        watch.parse(|| batch.parse_changed());
        let (emitted, observed) = (&mut new.emitted, observed.as_deref_mut());
        let mut visit = Visit { nf: *nf, batch, lanes, clock: *clock, emitted, observed };
        new.jobs.clear();
        (new.lanes, new.notes) = (lanes, enter(&mut visit, counters));
        new.is_on_processor = device.is_over() || function.on_device().is_none();
        (new.verdicts, new.cycles) = (Verdicts::default(), 0);
        if !new.is_on_processor {
            *at_work = Some(*nf);
            let jobs = &mut new.jobs;
            let begin = |batch: &mut Batch, context: &mut Context<'_>| {
                let nf = function.on_device();
                nf.into_iter().for_each(|nf| nf.begin(batch, lanes, context, jobs));
            };
            let start = cycles::now();
            new.verdicts = part(begin, &mut visit, Verdicts::default(), new.notes.as_mut());
            new.cycles = cycles::now().wrapping_sub(start);
            *at_work = None;
        }
        *halves = Some(new);
    }

    /// The second halves, when the packets of the burst are back from the device.
    pub(crate) fn finish(&mut self, routing: &Routing, burst: &mut Burst) {
        let mut at = 0;
        while let Some(round) = burst.rounds.get_mut(at) {
            if let Some(mut halves) = round.halves.take() {
                burst.drops += self.finish_visit(routing, round, &mut halves);
                if !halves.emitted.is_empty() {
                    std::mem::swap(&mut self.emitted, &mut halves.emitted);
                    self.send_made(routing, burst, at, 0);
                    std::mem::swap(&mut self.emitted, &mut halves.emitted);
                }
                self.spare.push(halves);
            }
            at += 1;
        }
        burst.count(|tally| tally.add_station(self));
    }

    /// Returns how many packets went no further.
    fn finish_visit(&mut self, routing: &Routing, round: &mut Round, halves: &mut Halves) -> u64 {
        let Self { members, lost, at_work, .. } = self;
        let Member { nf, function, counters, .. } = &mut members[0];
        let Round { batch, queues, clock, observed, .. } = round;
        let Halves { lanes, verdicts, notes, emitted, jobs, results, .. } = halves;
        let (lanes, observed) = (*lanes, observed.as_deref_mut());
        let mut visit = Visit { nf: *nf, batch, lanes, clock: *clock, emitted, observed };
        *at_work = Some(*nf);
        let start = cycles::now();
        if halves.is_on_processor {
            let process = |batch: &mut Batch, context: &mut Context<'_>| {
                function.process(batch, lanes, context);
            };
            *verdicts = part(process, &mut visit, *verdicts, notes.as_mut());
        } else if !jobs.is_empty() {
            let finish = |batch: &mut Batch, context: &mut Context<'_>| {
                let nf = function.on_device();
                nf.into_iter().for_each(|nf| nf.finish(batch, results, context));
            };
            *verdicts = part(finish, &mut visit, *verdicts, notes.as_mut());
        }
        let cycles = halves.cycles.wrapping_add(cycles::now().wrapping_sub(start));
        let passed = leave(&mut visit, counters, verdicts, cycles, notes.take());
        *at_work = None;
        let dropped = lanes.without(passed);
        batch.release(dropped);
        let after = Some(*nf);
        let nowhere = queues.forward(routing, batch, passed, after);
        dropped.count() as u64 + lose_all(round, nowhere, after, lost)
    }
}
