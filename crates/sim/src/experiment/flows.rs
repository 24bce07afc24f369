//! Which keys are looked up.

use std::sync::Arc;

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
    /// How many of 2^32 lookups find their key.
    hits: u64,
    recent: Vec<Flow>,
    /// By Zipf's law: for each key the sum of the weights up to its own.
    weights: Arc<[f64]>,
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
            weights: if config.workload.pick == Pick::Zipf {
                weights(keys, config.workload.zipf)
            } else {
                Arc::default()
            },
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

    /// The number of a key.
    fn key(&mut self) -> u64 {
        let Some(all) = self.weights.last().copied() else { return self.below(self.keys) };
        let drawn = self.below(1 << 53) as f64 / (1u64 << 53) as f64 * all;
        self.weights.partition_point(|sum| *sum <= drawn) as u64
    }

    fn draw(&mut self) -> Flow {
        let mut number = 0;
        let (table, key) = if self.flows > 0 {
            number = self.below(self.flows);
            (number % self.tables, mix(number) % self.keys)
        } else {
            (self.below(self.tables), self.key())
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

/// The sums of the weights of the first keys by Zipf's law with an exponent.
fn weights(keys: u64, exponent: f64) -> Arc<[f64]> {
    let mut sum = 0.0;
    let next = |n: u64| {
        // Of this library alone: the same on every machine.
        sum += libm::exp(-exponent * libm::log(n as f64));
        sum
    };
    (1..=keys).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_by_zipfs_law() {
        for exponent in [0.9, 1.0, 1.1] {
            let mut config = Config::default();
            (config.workload.pick, config.workload.zipf) = (Pick::Zipf, exponent);
            let (keys, draws) = (1000u64, 200_000);
            let mut flows = Flows::new(&config, keys);
            let mut seen = vec![0u32; keys as usize];
            (0..draws).for_each(|_| seen[flows.next().key as usize] += 1);
            let all: f64 = (1..=keys).map(|n| (n as f64).powf(-exponent)).sum();
            for n in [1u64, 2, 10, 100] {
                let expected = (n as f64).powf(-exponent) / all * f64::from(draws);
                let found = f64::from(seen[n as usize - 1]);
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt(),
                    "{n}: {found} {expected}"
                );
            }
            assert!(seen[900..].iter().any(|times| *times > 0));
        }
    }
}
