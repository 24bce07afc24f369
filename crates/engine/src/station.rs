//! A station: where the packets of a burst visit an NF.

use std::sync::Arc;

use thalweg_chain::{NfIndex, NfPlan, OnOverload, Overload, Plan, Routing};
use thalweg_nf::{Context, Emitted, NetworkFunction, NfError};
use thalweg_packet::{Batch, Decapsulate, DropCounts, DropReason, Lanes};

use crate::burst::{Burst, Flush, Round};
use crate::control::Control;
use crate::counters::NfCounters;
use crate::device::{Device, Halves};
use crate::forwarding::{Lost, Queues};
use crate::guard::{self, Place};
use crate::overload;
use crate::parts::Split;
use crate::supers::Cut;
use crate::visit::{Visit, end_nf, process};
use crate::watch::Watch;

/// The most NFs that a packet may pass; beyond that it is in a loop.
const MAX_HOPS: usize = 64;

/// An NF with its counts; or several, if packets of different types pass them in different orders,
/// so that none of them is behind another.
pub(crate) struct Station {
    pub(crate) members: Vec<Member>,
    /// Packets dropped behind the NFs.
    pub(crate) lost: DropCounts,
    /// The packets that an NF generates during a visit; reused.
    pub(crate) emitted: Emitted,
    /// For visits in two halves; reused, and moved as they are.
    #[expect(clippy::vec_box)]
    pub(crate) spare: Vec<Box<Halves>>,
    /// The NF that processes packets at this moment.
    pub(crate) at_work: Option<NfIndex>,
}

/// An NF of a station.
pub(crate) struct Member {
    pub(crate) nf: NfIndex,
    pub(crate) function: Box<dyn NetworkFunction>,
    pub(crate) counters: NfCounters,
    /// What it does with late packets.
    pub(crate) overload: Option<Overload>,
    /// Whether it processes super-packets.
    pub(crate) takes_supers: bool,
    /// Requests to write what it holds that are not complete: one under way, and one after it.
    flushes: u8,
    /// The device that does a part of its work.
    pub(crate) device: Option<Arc<Device>>,
}

impl Member {
    /// An NF without packets so far.
    pub(crate) fn new(nf: NfIndex, function: Box<dyn NetworkFunction>) -> Self {
        let (counters, overload, takes_supers) = (NfCounters::new(), None, false);
        Self { nf, function, counters, overload, takes_supers, flushes: 0, device: None }
    }

    /// Lets the NF write some of what it holds, if a request is new or not complete.
    fn flush(&mut self, is_new: bool) -> Result<(), NfError> {
        self.flushes = (self.flushes + u8::from(is_new)).min(2);
        if self.flushes > 0 {
            let flushed = guard::at(Place::Nf(self.nf), || self.function.flush_some());
            self.flushes -= u8::from(*flushed.as_ref().unwrap_or(&true));
            flushed?;
        }
        Ok(())
    }
}

impl Station {
    pub(crate) fn new(members: Vec<Member>, emitted: Emitted) -> Self {
        Self { members, lost: DropCounts::default(), emitted, spare: Vec::new(), at_work: None }
    }

    /// Lets the NFs process the packets of `burst` that wait for them, and sends each to the queue
    /// of its next step.
    pub(crate) fn serve(&mut self, routing: &Routing, burst: &mut Burst, watch: &mut Watch) {
        let mut at = 0;
        // Rounds that are generated here come behind, and are served too.
        while at < burst.rounds.len() {
            let Some((member, lanes)) = self.next_visit(routing, burst, at) else {
                at += 1;
                continue;
            };
            let round = &mut burst.rounds[at];
            burst.drops += self.visit(routing, round, member, lanes, watch);
            if !self.emitted.is_empty() {
                self.send_made(routing, burst, at, member);
            }
        }
        burst.count(|tally| tally.add_station(self));
    }

    /// The NF that is next to process packets of round number `at`, and these packets.
    pub(crate) fn next_visit(
        &mut self,
        routing: &Routing,
        burst: &mut Burst,
        at: usize,
    ) -> Option<(usize, Lanes)> {
        loop {
            let round = &mut burst.rounds[at];
            let (member, lanes) = waiting(&self.members, &mut round.queues)?;
            round.hops += 1;
            if round.hops > MAX_HOPS * routing.nfs {
                let after = Some(self.members[member].nf);
                burst.drops += lose(round, lanes, DropReason::ChainLoop, after, &mut self.lost);
                continue;
            }
            let Member { nf, function, counters, takes_supers, .. } = &mut self.members[member];
            let takes_whole =
                |batch: &Batch, lane| *takes_supers && function.takes_whole(batch, lane);
            let mut cut = Cut::default();
            let lanes = burst.segment_supers((at, lanes), takes_whole, *nf, &mut cut, routing);
            cut.count(counters);
            if !lanes.is_empty() {
                return Some((member, lanes));
            }
        }
    }

    /// Lets one NF process the packets of `lanes`, apart from late ones if it has `on_overload`;
    /// returns how many went no further.
    fn visit(
        &mut self,
        routing: &Routing,
        round: &mut Round,
        member: usize,
        lanes: Lanes,
        watch: &mut Watch,
    ) -> u64 {
        let (lanes, drops) = self.without_late(routing, round, member, lanes);
        if lanes.is_empty() {
            return drops;
        }
        drops + self.process(routing, round, member, lanes, watch)
    }

    /// Lets late packets of `lanes` pass the NF over if it has `on_overload`; returns the others, and how
    /// many went no further.
    pub(crate) fn without_late(
        &mut self,
        routing: &Routing,
        round: &mut Round,
        member: usize,
        lanes: Lanes,
    ) -> (Lanes, u64) {
        let late = overload::late(self.members[member].overload.as_ref(), round, lanes);
        if late.is_empty() {
            return (lanes, 0);
        }
        (lanes.without(late), self.pass_over(routing, round, member, late))
    }

    /// Sends late packets on without the NF, or drops them; returns how many went no further.
    fn pass_over(
        &mut self,
        routing: &Routing,
        round: &mut Round,
        member: usize,
        late: Lanes,
    ) -> u64 {
        let Member { nf, counters, overload, .. } = &mut self.members[member];
        let Some(Overload { action, .. }) = *overload else { return 0 };
        overload::count(action, &round.batch, late, counters);
        match action {
            OnOverload::Bypass => {
                let after = Some(*nf);
                let nowhere = round.queues.forward(routing, &round.batch, late, after);
                lose_all(round, nowhere, after, &mut self.lost)
            }
            OnOverload::Drop => {
                if let Some(observed) = &mut round.observed {
                    round.batch.parse_changed();
                    observed.dropped(&round.batch, late, *nf, DropReason::Overload);
                }
                round.batch.release(late);
                late.count() as u64
            }
        }
    }

    /// Lets one NF process the packets of `lanes`; returns how many went no further.
    fn process(
        &mut self,
        routing: &Routing,
        round: &mut Round,
        member: usize,
        lanes: Lanes,
        watch: &mut Watch,
    ) -> u64 {
        let Member { nf, function, counters, device, .. } = &mut self.members[member];
        let Round { batch, queues, clock, observed, .. } = round;
        watch.parse(|| batch.parse_changed());
        let (emitted, observed) = (&mut self.emitted, observed.as_deref_mut());
        let mut visit = Visit { nf: *nf, batch, lanes, clock: *clock, emitted, observed };
        self.at_work = Some(*nf);
        let serve = |batch: &mut Batch, context: &mut Context<'_>| match device {
            None => function.process(batch, lanes, context),
            Some(device) => device.process(&mut **function, batch, lanes, context),
        };
        let passed = process(serve, &mut visit, counters);
        self.at_work = None;
        let dropped = lanes.without(passed);
        batch.release(dropped);
        let after = Some(*nf);
        let lost = queues.forward(routing, batch, passed, after);
        dropped.count() as u64 + lose_all(round, lost, after, &mut self.lost)
    }

    /// Reports each device that has failed since the last call, and adds it to `failures` if its NF does
    /// not go on without it; returns whether there is one of these.
    pub(crate) fn check_devices(
        &self,
        plan: &Plan,
        control: &Control,
        failures: &mut Vec<String>,
    ) -> bool {
        let before = failures.len();
        for Member { nf, device, .. } in &self.members {
            let Some(device) = device else { continue };
            let Some(fault) = device.take_fault() else { continue };
            let NfPlan { name, device: planned, .. } = &plan.nfs[usize::from(nf.0)];
            let at = planned.as_ref().map_or("", |planned| &planned.place.at);
            control.failed_devices.add(name, at, fault);
            if device.falls_back() {
                log::error!(
                    "NF '{name}' continues on the processor: its device has failed: {fault}"
                );
            } else {
                failures.push(format!("NF '{name}': its device has failed: {fault}"));
            }
        }
        failures.len() > before
    }

    /// Ends the visit of `burst` to an NF whose parts have served it.
    pub(crate) fn settle(&mut self, routing: &Routing, burst: &mut Burst) {
        let Self { members, lost, at_work, .. } = self;
        let [Member { nf, function, .. }] = &mut members[..] else {
            unreachable!("a divided NF has a station of its own");
        };
        *at_work = Some(*nf);
        let mut drops = 0;
        Split::end(
            burst,
            |note| guard::at(Place::Nf(*nf), || function.settle(note)),
            |round, passed, dropped| {
                round.batch.release(dropped);
                let nowhere = round.queues.forward(routing, &round.batch, passed, Some(*nf));
                drops += dropped.count() as u64 + lose_all(round, nowhere, Some(*nf), lost);
            },
        );
        burst.drops += drops;
        *at_work = None;
        burst.count(|tally| tally.add_station(self));
    }

    /// Sends the packets that an NF generated in round number `at` to their queues, in rounds of
    /// their own.
    pub(crate) fn send_made(
        &mut self,
        routing: &Routing,
        burst: &mut Burst,
        at: usize,
        member: usize,
    ) {
        let nf = self.members[member].nf;
        let Self { emitted, lost, .. } = self;
        emitted.hand_over(|made| {
            let round = burst.add(at, made, routing);
            let lanes = round.batch.lanes();
            // Each generation starts further down the chain than the one it was generated for.
            burst.drops += if round.depth > routing.nfs + 1 {
                lose(round, lanes, DropReason::ChainLoop, Some(nf), lost)
            } else {
                round.batch.parse(lanes, Decapsulate::No);
                let nowhere = round.queues.forward(routing, &round.batch, lanes, Some(nf));
                lose_all(round, nowhere, Some(nf), lost)
            };
        });
    }

    /// Lets the NFs write what they hold, or go on with it, if `burst` requests it.
    pub(crate) fn flush(&mut self, burst: &mut Burst, failures: &mut Vec<String>) {
        if burst.flush == Flush::No {
            return;
        }
        for member in &mut self.members {
            let flushed = member.flush(burst.flush == Flush::Begin);
            failures.extend(flushed.err().map(|failure| failure.to_string()));
            burst.leaves_some |= member.flushes > 0;
        }
    }

    /// Lets the NFs write what they hold for the last time; `is_left` if their state was exported
    /// for another run.
    pub(crate) fn end(&mut self, is_left: bool, failures: &mut Vec<String>) {
        for Member { function, counters, .. } in &mut self.members {
            end_nf(&mut **function, is_left, failures);
            counters.figures = function.figures();
        }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn members_mut(&mut self) -> &mut [Member] {
        &mut self.members
    }

    pub(crate) fn into_members(self) -> impl Iterator<Item = Member> {
        self.members.into_iter()
    }
}

/// The first NF for which packets wait, and those packets.
fn waiting(members: &[Member], queues: &mut Queues) -> Option<(usize, Lanes)> {
    let lanes = |member: &Member| queues.take(member.nf);
    let mut all = members.iter().map(lanes).enumerate();
    all.find(|(_, lanes)| !lanes.is_empty())
}

/// Drops the packets of `lanes` after an NF, or ahead of the first one; returns how many.
fn lose(
    round: &mut Round,
    lanes: Lanes,
    reason: DropReason,
    after: Option<NfIndex>,
    drops: &mut DropCounts,
) -> u64 {
    if lanes.is_empty() {
        return 0;
    }
    drops.add(reason, lanes.count() as u64);
    if let Some(observed) = &mut round.observed {
        round.batch.parse_changed();
        observed.lost(&round.batch, lanes, after, reason);
    }
    round.batch.release(lanes);
    lanes.count() as u64
}

/// Drops the packets that go no further after an NF, or from the ingress; returns how many.
pub(crate) fn lose_all(
    round: &mut Round,
    lost: Lost,
    after: Option<NfIndex>,
    drops: &mut DropCounts,
) -> u64 {
    lose(round, lost.nowhere, DropReason::NoRoute, after, drops)
        + lose(round, lost.dropped, DropReason::Policy, after, drops)
}
