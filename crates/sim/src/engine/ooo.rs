//! An out-of-order core in one pass over its micro-operations.
//!
//! Each operation is fetched, dispatched, issued, completed and retired when it comes,
//! in program order; the times come from what it needs: room in the queues, its
//! sources, a port, the caches. A mispredicted branch stops fetch until it is resolved.
//! Operations of the wrong path are not simulated.

use crate::calendar::Cycle;
use crate::config::{Config, CoreConfig};
use crate::machine::{Access, Address, CoreId, Memory};

use super::predictor::Predictor;
use super::stages::{Queue, Stage, Waiting};
use super::store_buffer::StoreBuffer;

/// A value that an operation made; operations name their sources by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u32);

impl Tag {
    /// A value that was always there.
    pub const NONE: Self = Self(0);
}

/// The kind of a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Arithmetic that takes this many cycles.
    Alu(u8),
    /// A load.
    Load(Address),
    /// A load of the whole line that begins there. No store alone has its value.
    LoadLine(Address),
    /// A store.
    Store(Address),
    /// A load whose value no operation waits for.
    Prefetch(Address),
    /// An atomic read-modify-write: the operations after it wait for its end.
    Locked(Address),
    /// A conditional branch of the program's place `pc`.
    Branch {
        /// Which branch it is.
        pc: u32,
        /// Whether it is taken.
        taken: bool,
    },
    /// A jump or call through a pointer.
    Indirect {
        /// Which branch it is.
        pc: u32,
        /// Where to.
        target: u32,
    },
}

/// How often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Operations.
    pub operations: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Branches of both kinds.
    pub branches: u64,
    /// Those that were mispredicted.
    pub mispredictions: u64,
}

/// Values that are remembered; the distance of a source to its user is smaller.
const VALUES: usize = 1 << 13;
/// An operation that waits less than this for its issue takes no place among those that
/// fill the scheduler; places for those that are just passing through are held free.
const PASSING: Cycle = 8;

/// A core; or one of two threads of it, each of which has half of its queues.
#[derive(Clone, Debug)]
pub struct Core {
    id: CoreId,
    config: CoreConfig,
    shares_fetch: bool,
    forwarding: Cycle,
    fetch: Stage,
    /// Before this nothing is fetched.
    fetch_from: Cycle,
    dispatch: Stage,
    /// Before this nothing is dispatched.
    dispatch_from: Cycle,
    retire: Stage,
    rob: Queue,
    lq: Queue,
    sq: Queue,
    waiting: Waiting,
    /// How many may wait.
    room: usize,
    /// Operations of the fetch block so far.
    in_block: u32,
    /// What decoding has still to make, in parts of an operation.
    owed: f64,
    /// When the values of the last operations are there.
    values: Box<[Cycle]>,
    next: u32,
    stores: StoreBuffer,
    last_drain: Cycle,
    predictor: Predictor,
    /// How often what happened.
    pub counts: CoreCounts,
}

impl Core {
    /// An idle core, alone or one of two threads on its ports and caches, which share
    /// its queues in equal parts.
    pub fn new(config: &Config, id: CoreId, threads: usize) -> Self {
        let mut core = config.core;
        for entries in [&mut core.rob, &mut core.lq, &mut core.sq, &mut core.iq] {
            *entries /= threads;
        }
        Self {
            id,
            shares_fetch: threads > 1,
            config: core,
            forwarding: config.l1d.load_to_use,
            fetch: Stage::new(core.width),
            fetch_from: 0,
            dispatch: Stage::new(core.width),
            dispatch_from: 0,
            retire: Stage::new(core.width),
            rob: Queue::new(core.rob),
            lq: Queue::new(core.lq),
            sq: Queue::new(core.sq),
            waiting: Waiting::new(core.iq),
            room: core.iq - (core.width as usize * 2).min(core.iq / 2),
            in_block: 0,
            owed: 0.0,
            values: vec![0; VALUES].into(),
            next: 1,
            stores: StoreBuffer::new(),
            last_drain: 0,
            predictor: Predictor::default(),
            counts: CoreCounts::default(),
        }
    }

    /// Which core it is, or on which it is a thread.
    pub fn id(&self) -> CoreId {
        self.id
    }

    /// When the last operation so far retires.
    pub fn now(&self) -> Cycle {
        self.retire.at
    }

    /// When all stores so far are in the cache.
    pub fn drained(&self) -> Cycle {
        self.last_drain
    }

    /// When a value is there.
    #[inline]
    pub fn ready(&self, tag: Tag) -> Cycle {
        self.values[tag.0 as usize % VALUES]
    }

    #[inline]
    fn all_ready(&self, sources: &[Tag]) -> Cycle {
        sources.iter().map(|tag| self.ready(*tag)).max().unwrap_or(0)
    }

    /// Fetches and dispatches an operation; the first cycle in which it can issue.
    #[inline]
    fn enter(&mut self, memory: &mut Memory) -> Cycle {
        if self.config.operations_each > 1.0 {
            self.crack(memory);
        }
        self.enter_one(memory)
    }

    /// Lets those pass that decoding makes beside the operation that comes.
    fn crack(&mut self, memory: &mut Memory) {
        self.owed += self.config.operations_each - 1.0;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let entered = self.enter_one(memory);
            let issue = memory.ports(self.id).alu.reserve(entered);
            self.leave(issue + 1);
        }
    }

    #[inline]
    fn enter_one(&mut self, memory: &mut Memory) -> Cycle {
        self.counts.operations += 1;
        self.in_block += 1;
        if self.in_block == self.config.block_operations {
            self.next_block();
        }
        let mut fetched = self.fetch.pass(self.fetch_from);
        if self.shares_fetch {
            fetched = memory.ports(self.id).fetch.reserve(fetched);
            self.fetch.catch_up(fetched);
        }
        let earliest = (fetched + self.config.frontend_depth)
            .max(self.rob.available())
            .max(self.dispatch_from)
            .max(self.scheduler());
        let dispatched = self.dispatch.pass(earliest);
        // Fetch cannot run ahead of a dispatch that is held up by more than its queue.
        self.fetch_from =
            self.fetch_from.max(dispatched.saturating_sub(2 * self.config.frontend_depth));
        dispatched + 1
    }

    /// Fetch continues with another block.
    #[inline]
    fn next_block(&mut self) {
        self.in_block = 0;
        self.fetch_from = self.fetch_from.max(self.fetch.at + 1 + self.config.block_cycles);
    }

    /// When the scheduler has room.
    #[inline]
    fn scheduler(&mut self) -> Cycle {
        self.waiting.forget_until(self.dispatch.at);
        if self.waiting.len() >= self.room { self.waiting.pop().unwrap_or(0) } else { 0 }
    }

    /// Notes when an operation issues that could from `entered` on.
    #[inline]
    fn issued(&mut self, entered: Cycle, issue: Cycle) {
        if issue > entered + PASSING {
            self.waiting.push(issue);
        }
    }

    /// Retires an operation that is complete at `complete`, with a value then.
    #[inline]
    fn leave(&mut self, complete: Cycle) -> Tag {
        let retired = self.retire.pass(complete + 1);
        self.rob.take(retired);
        let tag = Tag(self.next);
        self.values[self.next as usize % VALUES] = complete;
        self.next = self.next.checked_add(1).unwrap_or(1);
        tag
    }

    /// Takes an operation in, which needs the values of `sources`.
    #[inline]
    pub fn push(&mut self, memory: &mut Memory, op: Op, sources: &[Tag]) -> Tag {
        match op {
            Op::Alu(latency) => self.arithmetic(memory, latency.into(), sources, 1),
            Op::Load(address) => self.load(memory, address, sources, StoreBuffer::forward),
            Op::LoadLine(address) => self.load(memory, address, sources, StoreBuffer::whole),
            Op::Store(address) => self.store(memory, address, sources),
            Op::Prefetch(address) => {
                let entered = self.enter(memory);
                let issue =
                    memory.ports(self.id).load.reserve(entered.max(self.all_ready(sources)));
                self.issued(entered, issue);
                memory.core(self.id, address, Access::Prefetch, issue);
                self.leave(issue + 1)
            }
            Op::Locked(address) => {
                self.counts.loads += 1;
                self.counts.stores += 1;
                self.dispatch_from = self.dispatch_from.max(self.now());
                let entered = self.enter(memory);
                let issue =
                    memory.ports(self.id).load.reserve(entered.max(self.all_ready(sources)));
                let done =
                    memory.core(self.id, address, Access::Write, issue.max(self.last_drain)).at;
                // As long as the cache takes to take the new value in.
                self.dispatch_from = done + self.forwarding;
                self.leave(done + self.forwarding)
            }
            Op::Branch { pc, taken } => {
                let right = self.predictor.branch(pc, taken);
                self.branch(memory, right, taken, sources)
            }
            Op::Indirect { pc, target } => {
                let right = self.predictor.indirect(pc, target);
                self.branch(memory, right, true, sources)
            }
        }
    }

    /// So many operations of `latency` cycles, all of which need `sources`; the value of the
    /// last.
    #[inline]
    pub fn arithmetic(
        &mut self,
        memory: &mut Memory,
        latency: Cycle,
        sources: &[Tag],
        count: u32,
    ) -> Tag {
        let ready = self.all_ready(sources);
        let mut last = Tag::NONE;
        for _ in 0..count {
            let entered = self.enter(memory);
            let issue = memory.ports(self.id).alu.reserve(entered.max(ready));
            self.issued(entered, issue);
            last = self.leave(issue + latency);
        }
        last
    }

    /// A load, for which `stored` says what stores before it have to do with it.
    #[inline]
    fn load(
        &mut self,
        memory: &mut Memory,
        address: Address,
        sources: &[Tag],
        stored: impl Fn(&StoreBuffer, Address, Cycle) -> Option<Cycle>,
    ) -> Tag {
        self.counts.loads += 1;
        self.dispatch_from = self.dispatch_from.max(self.lq.available());
        let entered = self.enter(memory);
        let issue = memory.ports(self.id).load.reserve(entered.max(self.all_ready(sources)));
        self.issued(entered, issue);
        let complete = match stored(&self.stores, address, issue) {
            Some(known) => known.max(issue) + self.forwarding,
            None => memory.core(self.id, address, Access::Read, issue).at,
        };
        let tag = self.leave(complete);
        self.lq.take(self.retire.at);
        tag
    }

    fn store(&mut self, memory: &mut Memory, address: Address, sources: &[Tag]) -> Tag {
        self.counts.stores += 1;
        self.dispatch_from = self.dispatch_from.max(self.sq.available());
        let entered = self.enter(memory);
        let issue = memory.ports(self.id).store.reserve(entered.max(self.all_ready(sources)));
        self.issued(entered, issue);
        let tag = self.leave(issue + 1);
        // Once it has retired its line is asked for, beside those of other stores; into
        // the cache they go in order, one a cycle.
        let owned = memory.core(self.id, address, Access::Write, self.retire.at).at;
        self.last_drain = owned.saturating_sub(self.forwarding).max(self.last_drain) + 1;
        self.stores.store(address, issue + 1, self.last_drain + self.forwarding);
        self.sq.take(self.last_drain);
        tag
    }

    fn branch(&mut self, memory: &mut Memory, right: bool, taken: bool, sources: &[Tag]) -> Tag {
        self.counts.branches += 1;
        let entered = self.enter(memory);
        let issue = memory.ports(self.id).alu.reserve(entered.max(self.all_ready(sources)));
        self.issued(entered, issue);
        let resolved = issue + 1;
        if !right {
            self.counts.mispredictions += 1;
            self.fetch_from = resolved + self.config.redirect;
        } else if taken {
            // The rest of the fetch group is lost.
            self.next_block();
        }
        self.leave(resolved)
    }

    /// No later operation is dispatched before all earlier ones are complete.
    pub fn fence(&mut self) {
        self.dispatch_from = self.dispatch_from.max(self.now() + self.config.fence_cycles);
    }

    /// Takes an operation in that another unit completes: `complete` returns when, for the
    /// cycle in which it can begin. With `serialise`, nothing behind is dispatched
    /// before.
    pub fn external(
        &mut self,
        memory: &mut Memory,
        sources: &[Tag],
        serialise: bool,
        complete: impl FnOnce(&mut Memory, Cycle) -> Cycle,
    ) -> Tag {
        self.counts.loads += 1;
        self.dispatch_from = self.dispatch_from.max(self.lq.available());
        let entered = self.enter(memory);
        let issue = memory.ports(self.id).load.reserve(entered.max(self.all_ready(sources)));
        self.issued(entered, issue);
        let complete = complete(memory, issue);
        if serialise {
            self.dispatch_from = self.dispatch_from.max(complete);
        }
        let tag = self.leave(complete);
        self.lq.take(self.retire.at);
        tag
    }

    /// The result register of an operation that retires like a store, once another unit
    /// has accepted it: `accepted` returns when.
    pub fn external_store(
        &mut self,
        memory: &mut Memory,
        sources: &[Tag],
        accepted: impl FnOnce(&mut Memory, Cycle) -> Cycle,
    ) -> Tag {
        self.counts.stores += 1;
        self.dispatch_from = self.dispatch_from.max(self.sq.available());
        let entered = self.enter(memory);
        let issue = memory.ports(self.id).store.reserve(entered.max(self.all_ready(sources)));
        self.issued(entered, issue);
        let accepted = accepted(memory, issue);
        let tag = self.leave(issue + 1);
        self.sq.take(accepted.max(self.retire.at));
        tag
    }
}
