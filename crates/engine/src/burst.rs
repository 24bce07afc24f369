//! Packets on their way through the chain.

use std::sync::Arc;

use thalweg_chain::Routing;
use thalweg_io::{Claims, ReadAhead};
use thalweg_packet::{Batch, Lanes, Nanoseconds, Pool};

use crate::counters::PortTotals;
use crate::device::Halves;
use crate::forwarding::Queues;
use crate::observe::{Audience, Observed};
use crate::parts::Split;
use crate::supers::Pieces;
use crate::tally::{Asked, Run, Tally};

/// The batches that a worker receives at once, which keep together on their way, and the packets
/// that NFs generate for them.
///
/// The bursts of a line are numbered in the order in which they were received, and every station
/// serves them in that order. So with one line, what an NF sees does not depend on the number of
/// workers.
pub(crate) struct Burst {
    /// The line that it was received in.
    pub(crate) line: usize,
    pub(crate) number: u64,
    /// Whether all its packets are at their ends.
    pub(crate) is_through: bool,
    /// In the order in which each station serves them: behind each round those that NFs generated
    /// for it, in the order of their visits.
    pub(crate) rounds: Vec<Round>,
    /// Rounds for generated packets; empty, reused.
    spare: Vec<Round>,
    received: usize,
    recycles: bool,
    /// How many stages the burst has behind it.
    pub(crate) stages: usize,
    /// The line through which a device has its packets, between the halves of a stage.
    pub(crate) at_device: Option<usize>,
    /// Whether NFs and outputs write what they hold when the burst has passed.
    pub(crate) flush: Flush,
    /// An NF has not written all of it.
    pub(crate) leaves_some: bool,
    /// The counts of the stages that it has passed, for those who asked for them.
    pub(crate) tally: Option<Box<(Asked, Tally)>>,
    /// Packets dropped on the way.
    pub(crate) drops: u64,
    /// How far it is in a divided NF.
    pub(crate) split: Split,
    /// For the pieces of super-packets; empty, reused.
    pub(crate) pieces: Option<Pieces>,
}

/// A request that NFs and outputs write what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flush {
    #[default]
    No,
    Begin,
    /// NFs that have not written all of it go on.
    GoOn,
}

/// A batch on its way, with its packets' queues: packets stay in their lanes, and a set of lanes
/// for each NF and output holds those that wait for it.
pub(crate) struct Round {
    pub(crate) batch: Batch,
    pub(crate) queues: Queues,
    /// What receiving has left to be done: until then, the bytes of its packets are unspecified.
    pub(crate) claims: Claims,
    /// The newest time of the packets before it.
    pub(crate) clock: Nanoseconds,
    /// Whether its packets are of a live port, or were generated for such.
    pub(crate) is_live: bool,
    /// 0 for received packets; for generated ones, one more than that of the packets they were
    /// generated for.
    pub(crate) depth: usize,
    /// Visits to NFs.
    pub(crate) hops: usize,
    /// The observation of its packets, if any is wanted.
    pub(crate) observed: Option<Box<Observed>>,
    /// The visit to an NF of which a device has packets.
    pub(crate) halves: Option<Box<Halves>>,
}

impl Round {
    fn new(routing: &Routing, pool: &Arc<Pool>) -> Self {
        Self {
            batch: Batch::new(pool.clone()),
            queues: Queues::new(routing),
            claims: Claims::default(),
            clock: Nanoseconds::default(),
            is_live: false,
            depth: 0,
            hops: 0,
            observed: None,
            halves: None,
        }
    }

    /// Lets `audience`, if there is one, observe its packets, which the run has received after
    /// `before` others.
    #[inline]
    pub(crate) fn observe(&mut self, audience: Option<&Arc<Audience>>, before: u64) {
        if let Some(audience) = audience.filter(|_| !self.batch.is_empty()) {
            self.observed = Some(Box::new(Observed::new(audience.clone(), before)));
        }
    }
}

impl Burst {
    /// An empty burst of up to `batches` received batches, which keep their frames if the burst
    /// `recycles`.
    pub(crate) fn new(routing: &Routing, pool: &Arc<Pool>, batches: usize, recycles: bool) -> Self {
        let mut rounds: Vec<_> = (0..batches).map(|_| Round::new(routing, pool)).collect();
        if recycles {
            rounds.iter_mut().for_each(|round| round.batch.recycle());
        }
        Self {
            line: 0,
            number: 0,
            is_through: false,
            rounds,
            spare: Vec::new(),
            received: batches,
            recycles,
            stages: 0,
            at_device: None,
            flush: Flush::No,
            leaves_some: false,
            tally: None,
            drops: 0,
            split: Split::default(),
            pieces: None,
        }
    }

    /// Prepares the burst, which is empty, for another chain.
    pub(crate) fn suit(&mut self, routing: &Routing) {
        self.spare.clear();
        self.rounds.iter_mut().for_each(|round| round.queues = Queues::new(routing));
    }

    /// Whether it is to keep frames, and has none to receive packets into.
    pub(crate) fn is_starved(&self) -> bool {
        self.recycles && !self.rounds[0].batch.has_reserve()
    }

    /// Lets its batches keep no frames between their uses any more.
    pub(crate) fn stop_recycling(&mut self) {
        if std::mem::take(&mut self.recycles) {
            self.rounds.iter_mut().for_each(|round| round.batch.stop_recycling());
        }
    }

    /// Whether it is for this number of received batches, and keeps their frames or not.
    pub(crate) fn is_for(&self, batches: usize, recycles: bool) -> bool {
        (self.received, self.recycles) == (batches, recycles)
    }

    /// Whether it carries neither packets nor a request.
    pub(crate) fn is_empty(&self) -> bool {
        self.flush == Flush::No
            && self.tally.is_none()
            && self.rounds.iter().all(|round| round.batch.is_empty())
    }

    /// Whether an NF has to be done with it before it begins with later ones: the burst carries a request
    /// about all packets up to it and none after it.
    pub(crate) fn is_alone(&self) -> bool {
        self.flush != Flush::No || self.tally.is_some()
    }

    /// Begins a tally for those who `asked`, with what the inputs have received.
    pub(crate) fn begin_tally(&mut self, asked: Asked, run: &Run, inputs: PortTotals) {
        self.tally = Some(Box::new((asked, Tally::new(run, inputs))));
    }

    /// Lets a stage add its counts to the tally, if the burst has one.
    #[inline]
    pub(crate) fn count(&mut self, add: impl FnOnce(&mut Tally)) {
        if let Some(tally) = &mut self.tally {
            add(&mut tally.1);
        }
    }

    /// Answers those who asked for the tally, which is complete.
    pub(crate) fn answer(&mut self) {
        if let Some((asked, tally)) = self.tally.take().map(|tally| *tally) {
            tally.answer(asked);
        }
    }

    /// Copies the bytes of received packets into their frames, and adds what else receiving has left
    /// to be done to `reads`.
    pub(crate) fn settle_claims(&mut self, reads: &mut Vec<ReadAhead>) {
        for round in &mut self.rounds {
            round.claims.copy(&mut round.batch);
            round.claims.take_reads(reads);
        }
    }

    /// The packets that it carries.
    pub(crate) fn packets(&self) -> u64 {
        self.rounds.iter().map(|round| round.batch.len() as u64).sum()
    }

    /// Adds a round with the packets of `made`, which were generated at round number `at` and have
    /// their `queues` to be filled; returns it. `made` is empty afterwards.
    pub(crate) fn add(&mut self, at: usize, made: &mut Batch, routing: &Routing) -> &mut Round {
        let of = &self.rounds[at];
        let (depth, clock, is_live) = (of.depth, of.clock, of.is_live);
        let observed = of.observed.as_ref().and_then(|observed| observed.of_generated());
        let later = self.rounds[at + 1..].iter().position(|round| round.depth <= depth);
        let place = later.map_or(self.rounds.len(), |later| at + 1 + later);
        let spare = self.spare.pop();
        let mut round = spare.unwrap_or_else(|| Round::new(routing, made.pool()));
        std::mem::swap(&mut round.batch, made);
        (round.depth, round.clock, round.hops) = (depth + 1, clock, 0);
        round.is_live = is_live;
        round.observed = observed.map(Box::new);
        self.rounds.insert(place, round);
        &mut self.rounds[place]
    }

    /// Releases all packets, which are through, and prepares the burst for another use.
    pub(crate) fn clear(&mut self) {
        for round in &mut self.rounds {
            round.batch.release(Lanes::ALL);
            round.hops = 0;
            round.observed = None;
        }
        if self.rounds.len() > self.received {
            self.spare.extend(self.rounds.extract_if(.., |round| round.depth > 0));
        }
        (self.stages, self.flush, self.leaves_some, self.drops) = (0, Flush::No, false, 0);
    }
}
