//! A divided NF: several workers are in it at a time, each in another part.

use std::sync::Arc;

use thalweg_chain::{NfIndex, OnOverload, Overload, Routing};
use thalweg_nf::{BUCKETS, BucketOf, Emitted, Note, Part, WholeOf};
use thalweg_packet::{DropReason, Lanes, Pool};

use crate::burst::Burst;
use crate::counters::NfCounters;
use crate::overload;
use crate::supers::Cut;
use crate::tally::Tally;
use crate::turn::InTurn;
use crate::visit::{Visit, process};
use crate::watch::Watch;

/// The most parts of an NF.
pub(crate) const MOST: usize = 16;

/// The parts of an NF, each of which serves the bursts in the order of their numbers.
pub(crate) struct Parts {
    pub(crate) nf: NfIndex,
    parts: Vec<InTurn<PartAtWork>>,
    bucket: BucketOf,
    /// Which super-packets they process whole.
    takes_whole: WholeOf,
    /// What they do with late packets.
    pub(crate) overload: Option<Overload>,
}

/// A part with its counts.
struct PartAtWork {
    part: Box<dyn Part>,
    counters: NfCounters,
    emitted: Emitted,
    /// Whether it processes packets at this moment.
    at_work: bool,
}

/// How far a burst is in a divided NF.
#[derive(Default)]
pub(crate) struct Split {
    /// The parts that have not served it yet, as a set of bits; `None` before it is split.
    left: Option<u32>,
    /// The parts in the order of their bytes, the fewest first: later bursts follow sooner in more
    /// parts.
    order: [u8; MOST],
    rounds: Vec<SplitRound>,
    /// What the segmentation of super-packets counts, until a part has it.
    cut: Cut,
    /// Notes for the whole, each with the numbers of its round and lane.
    notes: Vec<(usize, usize, Note)>,
}

/// How far a round is in a divided NF.
#[derive(Clone, Copy, Default)]
struct SplitRound {
    /// The packets of each part.
    lanes: [Lanes; MOST],
    /// The packets that continue.
    passed: Lanes,
    dropped: Lanes,
}

impl Parts {
    pub(crate) fn new(
        nf: NfIndex,
        parts: Vec<Box<dyn Part>>,
        bucket: BucketOf,
        takes_whole: WholeOf,
        pool: &Arc<Pool>,
    ) -> Self {
        let at_work = |part| {
            let (counters, emitted) = (NfCounters::new(), Emitted::new(pool.clone()));
            InTurn::new(PartAtWork { part, counters, emitted, at_work: false }, 1)
        };
        let parts = parts.into_iter().map(at_work).collect();
        Self { nf, parts, bucket, takes_whole, overload: None }
    }

    /// Begins with burst 0 of each of this many lines. No burst is under way.
    pub(crate) fn begin(&mut self, lines: usize) {
        self.parts.iter_mut().for_each(|part| part.begin(lines));
    }

    /// Adds what all parts have counted to a tally, of which no burst is under way; `None`, and perhaps
    /// not all is added, if a thread looks at one.
    pub(crate) fn count(&self, tally: &mut Tally) -> Option<()> {
        for part in &self.parts {
            tally.add_nf(self.nf, &part.peek()?.counters);
        }
        Some(())
    }

    /// Lets each part whose turn it is process its packets of `burst`; returns whether any did, and
    /// whether all have.
    pub(crate) fn serve(
        &self,
        routing: &Routing,
        burst: &mut Burst,
        watch: &mut Watch,
    ) -> (bool, bool) {
        let left = burst.split.left.unwrap_or_else(|| self.split(routing, burst, watch));
        let mut now = left;
        for number in burst.split.order {
            let number = usize::from(number);
            if left >> number & 1 == 0 {
                continue;
            }
            if let Some(mut part) = self.parts[number].enter(burst.line, burst.number) {
                std::mem::take(&mut burst.split.cut).count(&mut part.counters);
                part.serve(self.nf, number, burst, self.overload.as_ref());
                burst.count(|tally| tally.add_nf(self.nf, &part.counters));
                now &= !(1 << number);
            }
        }
        burst.split.left = Some(now);
        (now != left, now == 0)
    }

    /// Divides the packets of a burst that wait for the NF; returns the parts that have to serve it.
    fn split(&self, routing: &Routing, burst: &mut Burst, watch: &mut Watch) -> u32 {
        burst.split.rounds.clear();
        let (mut bytes, mut cut, mut at) = ([0; MOST], Cut::default(), 0);
        // Rounds of segments are added behind, and are divided too.
        while let Some(round) = burst.rounds.get_mut(at) {
            let mut split = SplitRound::default();
            let waiting = round.queues.take(self.nf);
            if !waiting.is_empty() {
                round.hops += 1;
                watch.parse(|| round.batch.parse_changed());
                let takes_whole = &self.takes_whole;
                let lanes =
                    burst.segment_supers((at, waiting), takes_whole, self.nf, &mut cut, routing);
                let batch = &burst.rounds[at].batch;
                for lane in lanes {
                    let bucket = usize::from((self.bucket)(batch, lane));
                    let part = bucket * self.parts.len() / BUCKETS;
                    split.lanes[part].insert(lane);
                    bytes[part] += batch.packet_len(lane);
                }
            }
            burst.split.rounds.push(split);
            at += 1;
        }
        burst.split.cut = cut;
        let order = &mut burst.split.order;
        *order = std::array::from_fn(|part| part as u8);
        order.sort_by_key(|part| bytes[usize::from(*part)]);
        (1 << self.parts.len()) - 1
    }

    /// The NF, if one of its parts has panicked.
    pub(crate) fn panicked(&self) -> Option<NfIndex> {
        let is_at_work = |part: &InTurn<PartAtWork>| part.peek().is_some_and(|part| part.at_work);
        self.parts.iter().any(is_at_work).then_some(self.nf)
    }

    /// Adds the counts of all parts to `sum`.
    pub(crate) fn add_counters(&mut self, sum: &mut NfCounters) {
        self.parts.iter_mut().for_each(|part| sum.merge(&part.get_mut().counters));
    }
}

impl PartAtWork {
    /// Processes the packets of part `number` of an NF, apart from late ones if it has `on_overload`.
    fn serve(
        &mut self,
        nf: NfIndex,
        number: usize,
        burst: &mut Burst,
        overload: Option<&Overload>,
    ) {
        self.at_work = true;
        let Self { part, counters, emitted, .. } = self;
        let Burst { rounds, split, .. } = burst;
        let Split { rounds: splits, notes, .. } = split;
        for (at, (round, split)) in rounds.iter_mut().zip(splits).enumerate() {
            let mut lanes = split.lanes[number];
            let late = overload::late(overload, round, lanes);
            if let Some(Overload { action, .. }) = overload.filter(|_| !late.is_empty()) {
                overload::count(*action, &round.batch, late, counters);
                let fate = match action {
                    OnOverload::Bypass => &mut split.passed,
                    OnOverload::Drop => {
                        if let Some(observed) = &mut round.observed {
                            observed.dropped(&round.batch, late, nf, DropReason::Overload);
                        }
                        &mut split.dropped
                    }
                };
                *fate = fate.or(late);
                lanes = lanes.without(late);
            }
            if lanes.is_empty() {
                continue;
            }
            let (batch, clock) = (&mut round.batch, round.clock);
            let observed = round.observed.as_deref_mut();
            let mut visit = Visit { nf, batch, lanes, clock, emitted, observed };
            let passed =
                process(|batch, context| part.process(batch, lanes, context), &mut visit, counters);
            split.passed = split.passed.or(passed);
            split.dropped = split.dropped.or(lanes.without(passed));
            notes.extend(emitted.take_notes().map(|(lane, note)| (at, lane, note)));
        }
        self.at_work = false;
    }
}

impl Split {
    /// Ends the visit of a burst to a divided NF: calls `settle` with each note, in the order of the
    /// packets, and `act` with each round, the packets that continue, and those that are dropped.
    pub(crate) fn end(
        burst: &mut Burst,
        mut settle: impl FnMut(Note),
        mut act: impl FnMut(&mut crate::burst::Round, Lanes, Lanes),
    ) {
        let Burst { rounds, split, .. } = burst;
        split.notes.sort_by_key(|(round, lane, _)| (*round, *lane));
        split.notes.drain(..).for_each(|(_, _, note)| settle(note));
        for (round, split) in rounds.iter_mut().zip(&split.rounds) {
            act(round, split.passed, split.dropped);
        }
        split.left = None;
    }
}
