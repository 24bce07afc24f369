//! The numbers that claims are about.

use crate::config::{Config, Method, Stream, Table};
use crate::energy;
use crate::experiment::Store;

use super::artefacts::{self, NEAR, PLACES};
use super::grid::{self, OCCUPANCY, SIZES, TUPLES, report, single};

/// A number and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) half_width: f64,
}

/// The quotient of two means, with the interval of independent errors.
fn quotient(store: &Store, over: &Config, under: &Config) -> (f64, f64) {
    let (over, under) = (report(store, over).cycles, report(store, under).cycles);
    let value = over.mean / under.mean;
    let relative = (over.half_width / over.mean).hypot(under.half_width / under.mean);
    (value, value * relative)
}

/// All of them.
///
/// # Panics
/// When a simulation that they need is missing.
pub(super) fn all(base: &Config, store: &Store) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut add = |name, (value, half_width)| metrics.push(Metric { name, value, half_width });
    let dependent = |bits, method| single(base, bits, OCCUPANCY, method, Stream::Dependent);
    let gain = |bits| {
        quotient(store, &dependent(bits, Method::LockFree), &dependent(bits, Method::HaloBlocking))
    };
    let best = |of: (f64, f64), other: (f64, f64)| if other.0 > of.0 { other } else { of };
    // Larger than the second-level cache, and within the last one.
    let in_llc = SIZES.into_iter().filter(|bits| (15..=18).contains(bits));
    add("single_llc", in_llc.map(gain).fold((0.0, 0.0), best));
    let beyond: Vec<_> = SIZES.into_iter().filter(|bits| *bits > 20).map(gain).collect();
    let n = beyond.len() as f64;
    let half_width = beyond.iter().map(|(_, h)| h * h).sum::<f64>().sqrt() / n;
    add("single_dram", (beyond.iter().map(|(value, _)| value).sum::<f64>() / n, half_width));
    add("single_l1", gain(NEAR));
    let (value, half_width) =
        quotient(store, &grid::polled(base, 18), &dependent(18, Method::HaloBlocking));
    add("polled_percent", (100.0 * (value - 1.0), 100.0 * half_width));
    let against = |over, under| quotient(store, &dependent(18, over), &dependent(18, under));
    add("tcam_over_halo", against(Method::HaloBlocking, Method::Tcam));
    add("sram_over_tcam", against(Method::SramTcam, Method::Tcam));
    for (name, (_, bits)) in ["data_llc", "data_dram"].into_iter().zip(PLACES) {
        let software = artefacts::software_split(base, store, bits, Method::LockFree);
        let halo = artefacts::halo_split(base, store, bits);
        add(name, (software.data / halo.data, 0.0));
        if name == "data_llc" {
            add("compute_percent", (100.0 * (1.0 - halo.compute / software.compute), 0.0));
            let locked = artefacts::software_split(base, store, bits, Method::ReadLock);
            let total = locked.compute + locked.data + locked.lock;
            add("lock_rw_percent", (100.0 * locked.lock / total, 0.0));
        }
    }
    let of_tuples = |n, method| {
        quotient(store, &grid::tuples(base, n, Method::LockFree), &grid::tuples(base, n, method))
    };
    let gains = TUPLES.map(|n| of_tuples(n, Method::HaloNonBlocking));
    add("tuples_20", gains[TUPLES.len() - 1]);
    let growth = gains.windows(2).map(|pair| pair[1].0 / pair[0].0).fold(f64::MAX, f64::min);
    add("tuples_growth", (growth, 0.0));
    let blocking = TUPLES.map(|n| of_tuples(n, Method::HaloBlocking).0);
    let mean = blocking.iter().sum::<f64>() / blocking.len() as f64;
    let spread = blocking.iter().map(|gain| (gain / mean - 1.0).abs()).fold(0.0, f64::max);
    add("tuples_blocking_spread_percent", (100.0 * spread, 0.0));
    let faster = SIZES.into_iter().find(|bits| gain(*bits).0 > 1.0);
    add("crossover", (faster.map_or(f64::INFINITY, |bits| f64::from(1u32 << bits)), 0.0));
    add("register_error_percent", (artefacts::register_error_percent(base), 0.0));
    let misses = |table| {
        let seen = &report(store, &grid::flows(base, grid::MILLION, table)).per_lookup;
        seen.llc_misses / seen.loads
    };
    let cuckoo = misses(Table::Cuckoo).max(1e-6);
    add("sfh_over_cuckoo", (misses(Table::SingleFunction) / cuckoo, 0.0));
    let split = artefacts::switch_split(base, store);
    let of = |split: &[f64; 3]| (split.iter().sum::<f64>(), split[1] + split[2]);
    let totals: Vec<(f64, f64)> = split.iter().map(of).collect();
    let share = |(all, classification): (f64, f64)| 100.0 * classification / all;
    let (least, most) = (totals[0], totals[totals.len() - 1]);
    add("switch_cycles_least", (least.0, 0.0));
    add("switch_cycles_most", (most.0, 0.0));
    add("switch_share_least_percent", (share(least), 0.0));
    add("switch_share_most_percent", (share(most), 0.0));
    let steps = totals.windows(2).map(|pair| pair[1].0 / pair[0].0);
    add("switch_growth", (steps.fold(f64::MAX, f64::min), 0.0));
    let operations = report(store, &artefacts::table_1_run(base)).per_lookup.operations;
    add("operations", (operations, 0.0));
    add("energy_ratio", (energy::TCAM[3].1.dynamic_nj / energy::HALO.dynamic_nj, 0.0));
    metrics
}
