//! Latencies of the core alone.

use super::*;
use crate::calendar::Cycle;
use crate::config::Config;
use crate::machine::{CoreId, Layout, Memory};

struct Rig {
    core: Core,
    memory: Memory,
    layout: Layout,
}

impl Rig {
    fn new(config: &Config) -> Self {
        Self {
            core: Core::new(config, CoreId(0), 1),
            memory: Memory::new(config),
            layout: Layout::default(),
        }
    }

    fn push(&mut self, op: Op, sources: &[Tag]) -> Tag {
        self.core.push(&mut self.memory, op, sources)
    }

    /// Cycles an operation of `n` of them.
    fn rate(&mut self, n: u32, mut push: impl FnMut(&mut Self, u32)) -> f64 {
        let start = self.core.now();
        (0..n).for_each(|at| push(self, at));
        (self.core.now() - start) as f64 / f64::from(n)
    }
}

#[test]
fn independent_operations_take_a_slot_each_and_dependent_ones_a_cycle() {
    let mut rig = Rig::new(&Config::default());
    let rate = rig.rate(10_000, |rig, _| {
        rig.push(Op::Alu(1), &[]);
    });
    assert!((rate - 0.25).abs() < 0.01, "{rate}");
    let mut last = Tag::NONE;
    let rate = rig.rate(10_000, |rig, _| last = rig.push(Op::Alu(1), &[last]));
    assert!((rate - 1.0).abs() < 0.01, "{rate}");
    let rate = rig.rate(10_000, |rig, _| last = rig.push(Op::Alu(3), &[last]));
    assert!((rate - 3.0).abs() < 0.01, "{rate}");
}

#[test]
fn a_load_of_a_line_waits_until_its_parts_are_in_the_cache() {
    let mut rig = Rig::new(&Config::default());
    let line = rig.layout.region(64).at(0);
    rig.memory.warm(line, true);
    let mut after = |stores: u64| {
        let (mut last, mut rate) = (Tag::NONE, 0.0);
        for _ in 0..2 {
            rate = rig.rate(1000, |rig, _| {
                for n in 0..stores {
                    rig.push(Op::Store(line.plus(8 * n)), &[last]);
                }
                last = rig.push(Op::LoadLine(line), &[last]);
            });
        }
        rate
    };
    // Five to load; with stores it begins when the last of them is in the cache, and they go
    // there once a cycle.
    let (none, one, eight) = (after(0), after(1), after(8));
    assert!((none - 5.0).abs() < 0.1, "{none}");
    assert!(one >= none + 2.0 && one < none + 10.0, "{one}");
    assert!((eight - one - 7.0).abs() < 1.1, "{one} {eight}");
}

#[test]
fn a_load_behind_its_store_takes_the_value_from_it() {
    let mut rig = Rig::new(&Config::default());
    let address = rig.layout.region(64).at(0);
    let mut last = Tag::NONE;
    let rate = rig.rate(10_000, |rig, _| {
        let stored = rig.push(Op::Store(address), &[last]);
        assert_ne!(stored, Tag::NONE);
        last = rig.push(Op::Load(address), &[]);
    });
    // A cycle to store, five to load.
    assert!((rate - 6.0).abs() < 0.1, "{rate}");
}

#[test]
fn a_mispredicted_branch_costs_redirect_and_front_end() {
    let config = Config::default();
    let cost = |random: bool| {
        let mut rig = Rig::new(&config);
        let mut state = 1u32;
        rig.rate(40_000, |rig, n| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let taken = if random { (state >> 20).is_multiple_of(2) } else { n % 2 == 0 };
            for _ in 0..7 {
                rig.push(Op::Alu(1), &[]);
            }
            rig.push(Op::Branch { pc: 5, taken }, &[]);
        })
    };
    let (random, known) = (cost(true), cost(false));
    // Half of the random ones are mispredicted; each takes its way through the front end
    // and a cycle to issue and one to resolve.
    let each = 2.0 * (random - known);
    let expected = (config.core.frontend_depth + config.core.redirect + 2) as f64;
    assert!((each - expected).abs() < 2.0, "{each}, not {expected}");
}

#[test]
fn misses_overlap_up_to_the_registers_for_them() {
    let config = Config::default();
    let lines = 8000u64;
    let mut rig = Rig::new(&config);
    let region = rig.layout.region(lines * 64);
    (0..lines).for_each(|n| rig.memory.warm(region.at(n * 64), false));
    let rate = rig.rate(4000, |rig, n| {
        rig.push(Op::Load(region.at(u64::from(n) * 64)), &[]);
    });
    // 62 cycles a line, 20 at a time.
    let least = 62.0 / config.core.mshr as f64;
    assert!((least * 0.9..least * 1.3).contains(&rate), "{rate}");
    let mut last = Tag::NONE;
    let chase = rig.rate(4000, |rig, n| {
        last = rig.push(Op::Load(region.at((4000 + u64::from(n)) * 64)), &[last]);
    });
    assert!((chase - 62.0).abs() < 6.0, "{chase}");
}

#[test]
fn the_reorder_buffer_bounds_what_overlaps() {
    let config = Config::default();
    let small = {
        let mut c = config.clone();
        c.core.rob = 32;
        c
    };
    let time = |config: &Config| {
        let mut rig = Rig::new(config);
        let region = rig.layout.region(4000 * 64);
        (0..4000).for_each(|n| rig.memory.warm(region.at(n * 64), false));
        rig.rate(4000, |rig, n| {
            rig.push(Op::Load(region.at(u64::from(n) * 64)), &[]);
            for _ in 0..15 {
                rig.push(Op::Alu(1), &[]);
            }
        })
    };
    // Two loads at a time against twelve.
    assert!(time(&small) > 2.0 * time(&config), "{} {}", time(&small), time(&config));
}

#[test]
fn a_fence_waits_for_all_before_it() {
    let mut rig = Rig::new(&Config::default());
    let mut dispatched: Vec<Cycle> = Vec::new();
    for _ in 0..3 {
        let slow = rig.push(Op::Alu(50), &[]);
        rig.core.fence();
        let after = rig.push(Op::Alu(1), &[]);
        dispatched.push(rig.core.ready(after) - rig.core.ready(slow));
    }
    assert!(dispatched.iter().all(|wait| *wait >= 1), "{dispatched:?}");
}
