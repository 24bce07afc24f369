//! Lookup after lookup in our own cuckoo table.

use thalweg_classify::cuckoo::Walk;

use crate::config::{Config, Method, Stream};
use crate::engine::Tag;
use crate::machine::{Address, LINE, Layout, Machine, Region};
use crate::own::{KEY, OwnTable, STEP};
use crate::software::KeyAt;

use super::flows::Flows;
use super::measured::{Measured, Tally};
use super::statistics::Observed;

/// Buffers that keys are written to when they are looked up one by one, and their bytes.
const BUFFERS: u64 = 64;
const BUFFER: u64 = 256;
/// Steps whose keys are written together.
const STEPS: usize = 8;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const FOUND: u32 = 250;
    pub(super) const LOOP: u32 = 251;
    pub(super) const KEYS: u32 = 252;
    pub(super) const STEPS: u32 = 253;
}

/// A run that can begin.
#[derive(Clone, Debug)]
pub(super) struct OwnLookups {
    config: Config,
    table: OwnTable,
    machine: Machine,
    flows: Flows,
    buffers: Region,
    written: u64,
    /// The operation that the next lookup waits for.
    last: Tag,
    hits: u64,
    /// Completed lookups whose results were not read yet: whether they found their key.
    done: Vec<bool>,
}

impl OwnLookups {
    /// A filled table, and caches as they are after long use.
    pub(super) fn new(config: &Config) -> Self {
        let work = &config.workload;
        let keys = ((work.entries as f64 * work.occupancy) as u32).max(1);
        let mut layout = Layout::default();
        let buffers = layout.region(BUFFERS * BUFFER);
        let table = OwnTable::new(work.entries, keys, config.sim.seed, &mut layout);
        let mut flows = Flows::new(config, keys.into());
        let mut machine = Machine::new(config);
        table.lines().lines().for_each(|line| machine.memory.warm(line, true));
        let lines = table.lines().bytes() / LINE;
        for _ in 0..lines {
            machine.memory.warm(table.lines().at(flows.below(lines) * LINE), true);
        }
        let config = config.clone();
        Self {
            config,
            table,
            machine,
            flows,
            buffers,
            written: 0,
            last: Tag::NONE,
            hits: 0,
            done: Vec::new(),
        }
    }

    /// The same table and caches under a configuration that is prepared alike (see
    /// [`Config::prepared`]).
    pub(super) fn with(mut self, config: &Config) -> Self {
        self.config = config.clone();
        self.machine.renew_cores(config);
        self
    }

    /// Writes a key.
    fn write(&mut self, address: Address) -> (KeyAt, Walk) {
        let m = &mut self.machine;
        let from = match self.config.workload.stream {
            Stream::Independent => m.alu(&[]),
            Stream::Dependent => m.alu(&[self.last]),
            Stream::Fenced => {
                m.fence();
                m.alu(&[])
            }
        };
        let first = m.multiply(&[from]);
        m.store(address, &[first]);
        m.store(address.plus(8), &[from]);
        (KeyAt { address, from: Tag::NONE }, self.table.walk(self.flows.next().key))
    }

    fn one(&mut self) {
        let address = self.buffers.at(self.written % BUFFERS * BUFFER);
        self.written += 1;
        self.machine.alus(7, &[]);
        let (key, walk) = self.write(address);
        let answer = self.table.get(&mut self.machine, key, &walk);
        let m = &mut self.machine;
        m.fused_branch(pc::FOUND, answer.found, &[answer.tag]);
        let value = m.alu(&[answer.tag]);
        m.alus(2, &[value]);
        m.fused_branch(pc::LOOP, true, &[]);
        self.done.push(answer.found);
        self.last = answer.tag;
    }

    fn steps(&mut self) {
        let mut walks = Vec::with_capacity(STEPS * STEP);
        for n in 0..STEPS * STEP {
            self.machine.alu(&[]);
            let (_, walk) = self.write(self.buffers.at(KEY * n as u64));
            walks.push(walk);
            self.machine.fused_branch(pc::KEYS, n + 1 < STEPS * STEP, &[]);
        }
        for (n, walks) in walks.chunks(STEP).enumerate() {
            let keys = self.buffers.at(KEY * (STEP * n) as u64);
            let answers = self.table.get_step(&mut self.machine, keys, walks);
            self.done.extend(answers.iter().map(|answer| answer.found));
            self.last = answers[STEP - 1].tag;
            // The values' sum.
            let sum = self.machine.chain(8, self.last);
            self.machine.alus(8, &[sum]);
            self.machine.fused_branch(pc::STEPS, n + 1 < STEPS, &[]);
        }
    }
}

impl Measured for OwnLookups {
    fn config(&self) -> &Config {
        &self.config
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn lookups(&mut self, count: u64, observed: &mut Observed) {
        let count = count as usize;
        while self.done.len() < count {
            let before = self.done.len();
            if self.config.workload.method == Method::Bulk {
                self.steps();
            } else {
                self.one();
            }
            observed.note((self.done.len() - before) as u64, self.machine.now());
        }
        self.hits += self.done.drain(..count).filter(|found| *found).count() as u64;
    }

    fn tally(&self) -> Tally {
        Tally::of(&self.machine, self.hits)
    }

    fn size(&self) -> (u64, u64) {
        (self.table.len(), self.table.lines().bytes())
    }
}
