//! Lookup after lookup, by one of the methods.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::{Blocking, Config, Method, Pick, Stream, Table};
use crate::engine::Tag;
use crate::halo::{Halo, Query, Recorded};
use crate::machine::{Address, LINE, Layout, Machine, Memory, Region};
use crate::software::{Answer, KeyAt, Software};
use crate::table::{HashTable, Walk};
use crate::tcam::Tcam;

use super::beside::Neighbour;
use super::emc::Emc;
use super::flows::{Flow, Flows, OUTSIDE};
use super::function::Program;
use super::measured::{Measured, Tally};
use super::statistics::Observed;

/// Buffers that packets lie in, one after the other; a key is in the first line of its.
const BUFFERS: u64 = 64;
/// Bytes of a buffer.
const BUFFER: u64 = 256;
/// Keys of a bulk lookup.
const BULK: usize = 8;
/// The number of the thread that is the neighbour.
const NEIGHBOUR: usize = 1;
/// Operations of the loop around a lookup beside the writing of the key.
const LOOP: u32 = 10;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const FOUND: u32 = 10;
    pub(super) const TUPLES: u32 = 11;
    pub(super) const POLL: u32 = 12;
    pub(super) const LOOP: u32 = 13;
}

/// The tables and where everything lies; the same for all methods.
#[derive(Debug)]
pub(super) struct World {
    pub(super) tables: Vec<HashTable>,
    buffers: Region,
    results: Region,
    software: Software,
    function: Program,
}

/// A run that can begin.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    config: Config,
    world: Arc<World>,
    machine: Machine,
    halo: Halo,
    tcam: Tcam,
    flows: Flows,
    emc: Option<Emc>,
    neighbour: Option<Neighbour>,
    emc_hits: u64,
    /// Cycles until the exact-match cache had answered.
    emc_cycles: u64,
    /// Keys that were written so far.
    written: u64,
    /// The operation that the next lookup waits for.
    last: Tag,
    hits: u64,
    ahead: VecDeque<Flow>,
    // Reused, so that a lookup allocates nothing.
    walk: Walk,
}

/// Keys that are put in, and flows that are drawn before they are simulated, so that what they
/// need comes into our own cache meanwhile.
const AHEAD: usize = 32;

/// A key in its buffer.
struct Written {
    flow: Flow,
    at: KeyAt,
}

impl Lookups {
    /// Tables filled, caches as they are after long use.
    pub(super) fn new(config: &Config) -> Self {
        let work = &config.workload;
        let choices = if work.table == Table::SingleFunction { 1 } else { 2 };
        let mut layout = Layout::default();
        let (buffers, results) = (layout.region(BUFFERS * BUFFER), layout.region(work.tuples * 64));
        let software = Software::new(layout.region(4096));
        let keys = ((work.entries as f64 * work.occupancy) as u32).max(1);
        let tables = (0..work.tuples).map(|number| {
            let seed = config.sim.seed << 8 | number;
            let mut table =
                HashTable::new(work.entries, choices, work.key_bytes, seed, &mut layout);
            for key in 0..keys {
                table.prefetch(table.buckets_of(key.wrapping_add(AHEAD as u32))[0]);
                // With one choice a key may find no place; it is looked up in vain then.
                table.insert(key);
            }
            table
        });
        let tables = tables.collect();
        let emc = (work.flows > 0).then(|| Emc::new(&config.emc, &mut layout));
        let function = Program::new(work.function, keys.into(), &mut layout);
        let neighbour = Neighbour::new(config, &mut layout);
        let machine = match neighbour {
            Some(_) => Machine::with_threads(config),
            None => Machine::new(config),
        };
        let mut lookups = Self {
            config: config.clone(),
            world: Arc::new(World { tables, buffers, results, software, function }),
            machine,
            halo: Halo::new(config),
            tcam: Tcam::new(config, work.method),
            flows: Flows::new(config, keys.into()),
            emc,
            neighbour,
            emc_hits: 0,
            emc_cycles: 0,
            written: 0,
            last: Tag::NONE,
            hits: 0,
            ahead: VecDeque::new(),
            walk: Walk::default(),
        };
        lookups.warm();
        lookups
    }

    /// The same tables and caches under a configuration that is prepared alike (see
    /// [`Config::prepared`]).
    pub(super) fn with(mut self, config: &Config) -> Self {
        self.config = config.clone();
        self.machine.renew_cores(config);
        self.halo = Halo::new(config);
        self.tcam = Tcam::new(config, config.workload.method);
        self
    }

    /// Fills the caches as long use does: each line is touched once, and once more in the
    /// mean, in no order.
    fn warm(&mut self) {
        let world = self.world.clone();
        if let Some(emc) = &mut self.emc {
            emc.warm(|| self.flows.next().number);
        }
        for table in &world.tables {
            (0..4).for_each(|n| self.machine.memory.warm(table.metadata(n), true));
        }
        world.function.lines().for_each(|line| self.machine.memory.warm(line, true));
        if let Some(neighbour) = &self.neighbour {
            neighbour.lines().for_each(|line| self.machine.memory.warm(line, true));
        }
        if self.config.workload.pick == Pick::Recent {
            return self.flows.recent().to_vec().into_iter().for_each(|flow| self.warm_flow(flow));
        }
        for table in &world.tables {
            (0..table.line_count()).for_each(|n| self.machine.memory.warm(table.line(n), true));
        }
        let lines: u64 = world.tables.iter().map(HashTable::line_count).sum();
        for _ in 0..lines {
            if self.config.workload.pick == Pick::Zipf {
                let flow = self.flows.next();
                self.warm_flow(flow);
                continue;
            }
            let table = self.flows.below(world.tables.len() as u64) as usize;
            let line = self.flows.below(world.tables[table].line_count());
            self.machine.memory.warm(world.tables[table].line(line), true);
        }
    }

    /// Brings the lines of a lookup into the caches.
    fn warm_flow(&mut self, flow: Flow) {
        let table = &self.world.tables[flow.table];
        table.walk(flow.key, &mut self.walk);
        let buckets = self.walk.buckets.iter().map(|bucket| table.bucket(*bucket));
        let slots = self.walk.candidates.iter().map(|c| table.slot(c.key));
        buckets.chain(slots).for_each(|line| self.machine.memory.warm(line, true));
    }

    /// The queries to accelerators of the measured lookups, which are the first, and the
    /// tables.
    pub(super) fn record(mut self) -> (Arc<World>, Vec<Recorded>) {
        self.halo.record = Some(Vec::new());
        self.lookups(self.config.sim.measured_lookups, &mut Observed::default());
        (self.world, self.halo.record.unwrap_or_default())
    }

    /// The next lookup, or those that are made together, at most `most`; how many.
    fn step(&mut self, most: u64) -> u64 {
        match self.config.workload.method {
            Method::Bulk => {
                let together = most.min(BULK as u64);
                self.bulk(together);
                together
            }
            Method::HaloNonBlocking => {
                let together = most.min(self.config.halo.nb_batch);
                self.non_blocking(together);
                together
            }
            _ => {
                self.one();
                1
            }
        }
    }

    /// The flow of the next packet.
    fn next_flow(&mut self) -> Flow {
        while self.ahead.len() < AHEAD {
            let flow = self.flows.next();
            let (table, memory) = (&self.world.tables[flow.table], &self.machine.memory);
            for bucket in table.buckets_of(flow.key) {
                memory.prefetch(table.bucket(bucket));
                table.prefetch(bucket);
            }
            // Where the key's slot lies, if it is there.
            memory.prefetch(table.slot(flow.key & !OUTSIDE));
            self.ahead.push_back(flow);
        }
        self.ahead.pop_front().expect("some were drawn")
    }

    /// A packet arrives: its key is written to its buffer, as parsing does.
    fn write_key(&mut self) -> Written {
        let flow = self.next_flow();
        let address = self.world.buffers.at(self.written % BUFFERS * BUFFER);
        self.written += 1;
        let m = &mut self.machine;
        self.world.function.parse(m, address.plus(64));
        m.alus(LOOP / 2, &[]);
        let from = match self.config.workload.stream {
            Stream::Independent => Tag::NONE,
            Stream::Dependent => m.alu(&[self.last]),
            Stream::Fenced => {
                m.fence();
                Tag::NONE
            }
        };
        for at in (0..self.config.workload.key_bytes).step_by(8) {
            m.store(address.plus(at), &[from]);
        }
        m.alus(LOOP / 2, &[]);
        Written { flow, at: KeyAt { address, from } }
    }

    /// The use of a result.
    fn use_result(&mut self, key: &Written, answer: Answer) {
        self.hits += u64::from(answer.found);
        self.machine.branch(pc::FOUND, answer.found, &[answer.tag]);
        let (packet, number) = (key.at.address.plus(64), key.flow.key & !OUTSIDE);
        self.world.function.finish(&mut self.machine, packet, number.into(), answer);
        self.machine.branch(pc::LOOP, true, &[]);
        self.last = answer.tag;
    }

    /// The key's walk through table `number`.
    fn walk(&self, flow: Flow, number: usize, walk: &mut Walk) {
        // Another table does not have the key, whatever its number.
        let key = if flow.table == number { flow.key } else { flow.key | OUTSIDE };
        self.world.tables[number].walk(key, walk);
    }

    /// One key.
    fn one(&mut self) {
        let key = self.write_key();
        if let Some(answer) = self.ask_emc(&key) {
            return self.use_result(&key, answer);
        }
        let answer = match self.config.workload.method {
            Method::Tcam | Method::SramTcam => self.ternary(&key),
            method => self.table_after_table(&key, method),
        };
        self.use_result(&key, answer);
        if let Some(emc) = &mut self.emc {
            emc.missed(&mut self.machine, key.flow.number);
        }
    }

    /// Searches table after table until one has the key.
    fn table_after_table(&mut self, key: &Written, method: Method) -> Answer {
        let world = self.world.clone();
        let mut walk = std::mem::take(&mut self.walk);
        let mut answer = Answer { tag: Tag::NONE, found: false };
        for (number, table) in world.tables.iter().enumerate() {
            self.walk(key.flow, number, &mut walk);
            answer = if method == Method::HaloBlocking {
                self.blocking(table, key, &walk)
            } else {
                world.software.lookup(&mut self.machine, table, key.at, &walk, method)
            };
            let more = !answer.found && number + 1 < world.tables.len();
            if world.tables.len() > 1 {
                self.machine.branch(pc::TUPLES, more, &[answer.tag]);
            }
            if !more {
                break;
            }
        }
        self.walk = walk;
        answer
    }

    /// Asks the exact-match cache, if there is one.
    fn ask_emc(&mut self, key: &Written) -> Option<Answer> {
        let emc = self.emc.as_ref()?;
        let start = self.machine.now();
        // The hash that came with the packet.
        let packet = self.machine.load(key.at.address.plus(BUFFER - 8), &[key.at.from]);
        let (hit, tag) = emc.ask(&mut self.machine, key.flow.number, packet);
        self.emc_cycles += self.machine.now() - start;
        self.emc_hits += u64::from(hit);
        hit.then_some(Answer { tag, found: key.flow.inside })
    }

    fn ternary(&mut self, key: &Written) -> Answer {
        let Self { machine, tcam, config, world, walk, .. } = self;
        world.tables[key.flow.table].walk(key.flow.key, walk);
        let serialise = config.halo.blocking == Blocking::Serialise;
        let (core, memory) = machine.parts();
        let (id, bytes) = (core.id(), config.workload.key_bytes);
        let search = |memory: &mut Memory, now| tcam.search(memory, id, bytes, now);
        let tag = core.external(memory, &[key.at.from], serialise, search);
        Answer { tag, found: key.flow.inside && walk.found }
    }

    fn blocking(&mut self, table: &HashTable, key: &Written, walk: &Walk) -> Answer {
        let (core, memory) = self.machine.parts();
        let (halo, address) = (&mut self.halo, key.at.address);
        let serialise = self.config.halo.blocking == Blocking::Serialise;
        // Not before the key is in the cache, where the accelerator finds it.
        let (id, drained) = (core.id(), core.drained());
        let tag = core.external(memory, &[key.at.from], serialise, |memory, now| {
            let query = Query { core: id, table, key: address, walk };
            let answered = halo.query(memory, query, now.max(drained));
            halo.to_core(memory, answered)
        });
        Answer { tag, found: walk.found }
    }

    fn bulk(&mut self, count: u64) {
        let world = self.world.clone();
        let keys: Vec<Written> = (0..count).map(|_| self.write_key()).collect();
        let mut answers: Vec<Option<Answer>> = vec![None; keys.len()];
        for (number, table) in world.tables.iter().enumerate() {
            let open: Vec<usize> =
                (0..keys.len()).filter(|n| answers[*n].is_none_or(|a| !a.found)).collect();
            if open.is_empty() {
                break;
            }
            let at: Vec<KeyAt> = open.iter().map(|n| keys[*n].at).collect();
            let mut walks = vec![Walk::default(); open.len()];
            for (n, walk) in open.iter().zip(&mut walks) {
                self.walk(keys[*n].flow, number, walk);
            }
            let mut found = Vec::with_capacity(open.len());
            world.software.bulk(&mut self.machine, table, &at, &walks, &mut found);
            open.iter().zip(found).for_each(|(n, answer)| answers[*n] = Some(answer));
        }
        for (key, answer) in keys.iter().zip(answers) {
            let answer = answer.expect("there is a table at least");
            self.use_result(key, answer);
        }
    }

    /// Lookups that do not block: of several keys in all tables, with a line of results
    /// for each table; then the lines are requested one after the other.
    fn non_blocking(&mut self, count: u64) {
        let world = self.world.clone();
        let keys: Vec<Written> = (0..count).map(|_| self.write_key()).collect();
        let mut found = vec![false; keys.len()];
        let mut readable = vec![0; world.tables.len()];
        let mut walk = std::mem::take(&mut self.walk);
        for (number, table) in world.tables.iter().enumerate() {
            let results = world.results.at(number as u64 * 64);
            // A result that is not there yet is 0: one vector store clears the line.
            self.machine.store(results, &[]);
            for (n, key) in keys.iter().enumerate() {
                self.walk(key.flow, number, &mut walk);
                let at = self.ask(table, key, &walk, results.plus(8 * n as u64));
                readable[number] = readable[number].max(at);
                found[n] |= walk.found;
            }
        }
        self.walk = walk;
        let mut tag = Tag::NONE;
        for (number, at) in readable.into_iter().enumerate() {
            tag = self.poll(world.results.at(number as u64 * 64), at);
        }
        for (key, found) in keys.iter().zip(found) {
            self.use_result(key, Answer { tag, found });
        }
    }

    /// Issues a lookup that does not block; when its result can be read.
    fn ask(&mut self, table: &HashTable, key: &Written, walk: &Walk, result: Address) -> u64 {
        let (core, memory) = self.machine.parts();
        let (halo, drained, mut readable) = (&mut self.halo, core.drained(), 0);
        let id = core.id();
        core.external_store(memory, &[key.at.from], |memory, now| {
            let query = Query { core: id, table, key: key.at.address, walk };
            let answered = halo.query(memory, query, now.max(drained));
            readable = halo.to_memory(memory, answered, result);
            answered.accepted
        });
        readable
    }

    /// Reads a line of results until all are there.
    fn poll(&mut self, results: Address, readable: u64) -> Tag {
        let mut from = Tag::NONE;
        loop {
            let (core, memory) = self.machine.parts();
            let (id, mut read) = (core.id(), 0);
            let line = core.external(memory, &[from], false, |memory, now| {
                let at = memory.snapshot(id, results, now);
                read = at.0;
                at.1
            });
            let m = &mut self.machine;
            let pending = m.chain(2, line);
            let again = read < readable;
            m.branch(pc::POLL, again, &[pending]);
            if !again {
                return line;
            }
            from = pending;
        }
    }
}

impl Measured for Lookups {
    fn config(&self) -> &Config {
        &self.config
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    /// So many lookups; or so many units of the neighbour's work, with as many lookups
    /// beside them as there is time for.
    fn lookups(&mut self, count: u64, observed: &mut Observed) {
        let mut left = count;
        while left > 0 {
            let done = match self.neighbour.take() {
                None => self.step(left),
                Some(mut neighbour) => {
                    let its_turn = self.config.workload.alone
                        || self.machine.run_furthest_behind() == NEIGHBOUR;
                    if its_turn {
                        self.machine.run(NEIGHBOUR);
                        neighbour.work(&mut self.machine);
                    } else {
                        self.step(u64::MAX);
                    }
                    self.neighbour = Some(neighbour);
                    u64::from(its_turn)
                }
            };
            left -= done;
            if done > 0 {
                observed.note(done, self.machine.now());
            }
        }
    }

    fn tally(&self) -> Tally {
        let alone = Tally::of(&self.machine, self.hits);
        let l1_misses = self.neighbour.as_ref().map_or(alone.l1_misses, |other| other.l1_misses);
        Tally {
            l1_misses,
            queries: self.halo.queries,
            parts: self.halo.parts,
            emc_hits: self.emc_hits,
            emc_cycles: self.emc_cycles,
            ..alone
        }
    }

    fn size(&self) -> (u64, u64) {
        let tables = &self.world.tables;
        let lines: u64 = tables.iter().map(HashTable::line_count).sum();
        (tables.iter().map(HashTable::len).sum(), lines * LINE)
    }
}
