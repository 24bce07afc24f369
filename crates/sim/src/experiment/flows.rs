//! Which keys are looked up.

use crate::config::{Config, Pick};
use crate::random::Random;
use crate::table::mix;

/// A key: the table that has it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// The table; any, when no table has it.
    pub(super) table: usize,
    /// Its number.
    pub(super) key: u32,
    /// Whether a table has it.
    pub(super) inside: bool,
    /// The number of the flow, where there are flows.
    pub(super) number: u64,
}

/// The first number of keys that no table has.
pub(super) const OUTSIDE: u32 = 1 << 31;

/// Draws flows.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    random: Random,
    tables: u64,
    keys: u64,
    /// Of 2^32 lookups so many find their key.
    hits: u64,
    recent: Vec<Flow>,
    /// How many flows share the keys; 0 if each key is by itself.
    flows: u64,
}

impl Flows {
    /// Flows over tables with `keys` keys each.
    pub(super) fn new(config: &Config, keys: u64) -> Self {
        let hits = (config.workload.hit_rate * (1u64 << 32) as f64) as u64;
        let mut flows = Self {
            random: Random::new(config.sim.seed),
            tables: config.workload.tuples,
            keys,
            hits,
            recent: Vec::new(),
            flows: config.workload.flows,
        };
        if config.workload.pick == Pick::Recent {
            let recent = config.sim.warmup_lookups.max(1);
            flows.recent = (0..recent).map(|_| flows.draw()).collect();
        }
        flows
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn draw(&mut self) -> Flow {
        let mut number = 0;
        let (table, key) = if self.flows > 0 {
            number = self.below(self.flows);
            (number % self.tables, mix(number) % self.keys)
        } else {
            (self.below(self.tables), self.below(self.keys))
        };
        let inside = self.below(1 << 32) < self.hits;
        let key = if inside { key as u32 } else { key as u32 | OUTSIDE };
        Flow { table: table as usize, key, inside, number }
    }

    /// The flow of the next packet.
    pub(super) fn next(&mut self) -> Flow {
        if self.recent.is_empty() {
            return self.draw();
        }
        let at = self.below(self.recent.len() as u64);
        self.recent[at as usize]
    }

    /// The flows that alone are looked up, if not all are.
    pub(super) fn recent(&self) -> &[Flow] {
        &self.recent
    }
}
