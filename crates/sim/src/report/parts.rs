//! What figures and metrics have in common: the parts of packets and lookups, and what flow
//! registers count.

use crate::config::{Config, Method};
use crate::experiment::{Mean, Store};
use crate::flow_register::FlowRegister;

use super::grid::{self, OTHER_CYCLES, TRAFFIC, cycles, report};

/// Cycles of a packet: elsewhere, in the exact-match cache, in the megaflow layer.
pub(super) fn switch_split(base: &Config, store: &Store) -> Vec<[f64; 3]> {
    let of = |(_, flows, rules): &(&str, u64, u64)| {
        let seen = report(store, &grid::switch(base, *flows, *rules));
        let emc = seen.per_lookup.emc_cycles;
        [OTHER_CYCLES, emc, seen.cycles.mean - emc]
    };
    TRAFFIC.iter().map(of).collect()
}

/// Bits of the registers of figure 8b.
pub(super) const REGISTERS: [usize; 4] = [16, 32, 64, 128];
/// Flows that they count.
pub(super) const COUNTED: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Windows for each.
pub(super) const WINDOWS: u64 = 1000;

/// What a register of `bits` bits counts of `flows` flows, in the mean over many windows.
pub(super) fn counted(base: &Config, bits: usize, flows: u64) -> Mean {
    let in_window = |window: u64| {
        let mut register = FlowRegister::new(bits);
        let hash = |n| crate::table::mix(base.sim.seed << 40 ^ window << 20 ^ n);
        (0..flows).for_each(|n| register.note(hash(n)));
        register.flows().unwrap_or_else(|| bits as f64 * (bits as f64).ln())
    };
    Mean::of(&(0..WINDOWS).map(in_window).collect::<Vec<_>>())
}

/// How far registers of 32 bits and more are off in the mean, at twice as many flows.
pub(super) fn register_error_percent(base: &Config) -> f64 {
    let error = |bits: &usize| {
        let flows = 2 * *bits as u64;
        (counted(base, *bits, flows).mean / flows as f64 - 1.0).abs()
    };
    100.0 * REGISTERS.iter().filter(|bits| **bits >= 32).map(error).fold(0.0, f64::max)
}

/// Where the tables of figure 10 lie.
pub(super) const PLACES: [(&str, u32); 2] = [("LLC", 18), ("DRAM", 24)];
/// A table in the first-level cache: what its lookups take is computing.
pub(super) const NEAR: u32 = 3;

/// Cycles of a fenced lookup: computing, data, locking, transport.
pub(super) struct Split {
    pub(super) compute: f64,
    pub(super) data: f64,
    pub(super) lock: f64,
    pub(super) transport: f64,
}

/// A software lookup under `method`: what it takes in the first-level cache is computing,
/// what it takes more is data, and what it takes more than without a lock is locking.
pub(super) fn software_split(base: &Config, store: &Store, bits: u32, method: Method) -> Split {
    let of = |bits, method| cycles(store, &grid::fenced(base, bits, method));
    let compute = of(NEAR, Method::Scalar);
    let plain = of(bits, Method::Scalar);
    Split { compute, data: plain - compute, lock: of(bits, method) - plain, transport: 0.0 }
}

/// A lookup of the accelerator; what the core does is computing.
pub(super) fn halo_split(base: &Config, store: &Store, bits: u32) -> Split {
    let seen = report(store, &grid::fenced(base, bits, Method::HaloBlocking));
    let of = &seen.per_lookup;
    let transport = of.query_transport + of.query_queue;
    let compute = seen.cycles.mean - transport - of.query_data;
    Split { compute, data: of.query_data, lock: 0.0, transport }
}
