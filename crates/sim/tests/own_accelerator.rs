//! How to simulate an accelerator of one's own: a flow cache beside the core.
//!
//! It keeps the results of the keys used last, and is asked by one instruction; a key that it
//! does not have is looked up by software, and put in. This is the example of
//! `docs/sim.md`: what an accelerator needs is a state, times for its answers, and the
//! operations that the core does around it.

use std::collections::VecDeque;

use thalweg_sim::config::{Config, Method};
use thalweg_sim::engine::Tag;
use thalweg_sim::machine::{Layout, Machine};
use thalweg_sim::software::{KeyAt, Software};
use thalweg_sim::table::{HashTable, Walk};

/// The accelerator: the keys that it holds, the one used last in front.
struct FlowCache {
    entries: usize,
    held: VecDeque<u32>,
}

impl FlowCache {
    /// Cycles from the instruction to the answer.
    const LATENCY: u64 = 12;

    /// Asks for `key`; whether it is there. It is from now on.
    fn ask(&mut self, key: u32) -> bool {
        let known = self.held.iter().position(|held| *held == key);
        if let Some(at) = known {
            self.held.remove(at);
        }
        self.held.push_front(key);
        self.held.truncate(self.entries);
        known.is_some()
    }
}

/// Cycles a lookup of keys that come in bursts of eight, with a cache of `entries`.
fn cycles(entries: usize) -> f64 {
    /// The branch on the cache's answer.
    const HIT: u32 = 1;
    let config = Config::default();
    let (mut machine, mut layout) = (Machine::new(&config), Layout::default());
    let mut table = HashTable::new(1 << 14, 2, 16, 1, &mut layout);
    assert!((0..12_000).all(|key| table.insert(key)));
    (0..table.line_count()).for_each(|n| machine.memory.warm(table.line(n), true));
    let software = Software::new(layout.region(4096));
    let buffer = layout.region(64);
    let mut cache = FlowCache { entries, held: VecDeque::new() };
    let (mut walk, lookups) = (Walk::default(), 20_000);
    for n in 0..lookups {
        let key = (n / 8 * 7919) % 12_000;
        // The packet's key is parsed into its buffer.
        let address = buffer.at(0);
        (0..2).for_each(|word| {
            machine.store(address.plus(8 * word), &[]);
        });
        let hit = cache.ask(key);
        if entries > 0 {
            // The instruction: it takes the key's address, and blocks nothing.
            let (core, memory) = machine.parts();
            let answer = core.external(memory, &[], false, |_, now| now + FlowCache::LATENCY);
            machine.branch(HIT, hit, &[answer]);
        }
        if !hit || entries == 0 {
            table.walk(key, &mut walk);
            let key = KeyAt { address, from: Tag::NONE };
            let answer = software.lookup(&mut machine, &table, key, &walk, Method::LockFree);
            assert!(answer.found);
        }
    }
    machine.now() as f64 / f64::from(lookups)
}

#[test]
fn a_flow_cache_saves_most_lookups_of_bursts() {
    let (without, with) = (cycles(0), cycles(16));
    assert!(with < without / 3.0, "{with} {without}");
}
