//! The numbers that claims are about.

use crate::config::{Beside, Config, Function, Method, Stream, Table};
use crate::experiment::{Mean, Store};

use super::grid::{self, BESIDE, FUNCTIONS, OCCUPANCY, SIZES, TUPLES, report, single};
use super::parts::{self, PLACES};

/// A number and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) value: f64,
    pub(super) half_width: f64,
}

impl From<f64> for Metric {
    /// A number that has no interval.
    fn from(value: f64) -> Self {
        Self { value, half_width: 0.0 }
    }
}

impl From<Mean> for Metric {
    fn from(Mean { mean, half_width }: Mean) -> Self {
        Self { value: mean, half_width }
    }
}

impl Metric {
    /// By how many percent it is more than 1.
    fn percent_more(self) -> Self {
        Self { value: 100.0 * (self.value - 1.0), half_width: 100.0 * self.half_width }
    }

    fn larger(self, other: Self) -> Self {
        if other.value > self.value { other } else { self }
    }
}

/// What metrics are taken from.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    pub(super) base: &'a Config,
    pub(super) store: &'a Store,
}

impl Runs<'_> {
    /// The quotient of two means, with the interval of independent errors.
    pub(super) fn quotient(self, over: &Config, under: &Config) -> Metric {
        let (over, under) = (report(self.store, over).cycles, report(self.store, under).cycles);
        let value = over.mean / under.mean;
        let relative = (over.half_width / over.mean).hypot(under.half_width / under.mean);
        Metric { value, half_width: value * relative }
    }

    /// Dependent lookups by `over`, compared with `under`.
    pub(super) fn dependent(self, bits: u32, over: Method, under: Method) -> Metric {
        let of = |method| single(self.base, bits, OCCUPANCY, method, Stream::Dependent);
        self.quotient(&of(over), &of(under))
    }

    pub(super) fn gain(self, bits: u32) -> Metric {
        self.dependent(bits, Method::LockFree, Method::HaloBlocking)
    }

    /// The best gain in tables that are larger than the second-level cache, and within the
    /// last one.
    pub(super) fn single_llc(self) -> Metric {
        let in_llc = SIZES.into_iter().filter(|bits| (15..=18).contains(bits));
        in_llc.map(|bits| self.gain(bits)).fold(Metric::from(0.0), Metric::larger)
    }

    /// The mean gain beyond.
    pub(super) fn single_dram(self) -> Metric {
        let beyond: Vec<Metric> =
            SIZES.into_iter().filter(|bits| *bits > 20).map(|bits| self.gain(bits)).collect();
        let n = beyond.len() as f64;
        let squares = beyond.iter().map(|m| m.half_width * m.half_width).sum::<f64>();
        let value = beyond.iter().map(|metric| metric.value).sum::<f64>() / n;
        Metric { value, half_width: squares.sqrt() / n }
    }

    /// Non-blocking lookups of a table over blocking ones, where the accelerator serves one
    /// query of a table after the other, and results are requested `keys` at a time.
    pub(super) fn polled_percent(self, keys: u64) -> Metric {
        let blocking = single(self.base, 18, OCCUPANCY, Method::HaloBlocking, Stream::Dependent);
        self.quotient(&grid::polled(self.base, 18, keys), &blocking).percent_more()
    }

    /// How much faster data is accessed in one of [`PLACES`].
    pub(super) fn data(self, place: usize) -> f64 {
        let bits = PLACES[place].1;
        let software = parts::software_split(self.base, self.store, bits, Method::LockFree);
        software.data / parts::halo_split(self.base, self.store, bits).data
    }

    pub(super) fn compute_percent(self) -> f64 {
        let bits = PLACES[0].1;
        let software = parts::software_split(self.base, self.store, bits, Method::LockFree);
        let halo = parts::halo_split(self.base, self.store, bits);
        100.0 * (1.0 - halo.compute / software.compute)
    }

    pub(super) fn lock_percent(self) -> f64 {
        let bits = PLACES[0].1;
        let locked = parts::software_split(self.base, self.store, bits, Method::ReadLock);
        100.0 * locked.lock / (locked.compute + locked.data + locked.lock)
    }

    pub(super) fn tuples(self, n: u64, method: Method) -> Metric {
        let software = grid::tuples(self.base, n, Method::LockFree);
        self.quotient(&software, &grid::tuples(self.base, n, method))
    }

    pub(super) fn tuples_growth(self) -> f64 {
        let gains = TUPLES.map(|n| self.tuples(n, Method::HaloNonBlocking).value);
        gains.windows(2).map(|pair| pair[1] / pair[0]).fold(f64::MAX, f64::min)
    }

    pub(super) fn blocking_spread_percent(self) -> f64 {
        let gains = TUPLES.map(|n| self.tuples(n, Method::HaloBlocking).value);
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        100.0 * gains.iter().map(|gain| (gain / mean - 1.0).abs()).fold(0.0, f64::max)
    }

    pub(super) fn crossover(self) -> f64 {
        let gains = SIZES.map(|bits| (bits, self.gain(bits).value));
        let faster = gains.into_iter().find(|(_, gain)| *gain > 1.0);
        faster.map_or(f64::INFINITY, |(bits, _)| f64::from(1u32 << bits))
    }

    pub(super) fn sfh_over_cuckoo(self) -> f64 {
        let misses = |table| {
            let run = grid::flows(self.base, grid::MILLION, table);
            let seen = &report(self.store, &run).per_lookup;
            seen.llc_misses / seen.loads
        };
        misses(Table::SingleFunction) / misses(Table::Cuckoo).max(1e-6)
    }

    /// Cycles of a switch's packet by traffic, and the part of classification.
    fn switch(self) -> Vec<(f64, f64)> {
        let split = parts::switch_split(self.base, self.store);
        let of = |split: &[f64; 3]| {
            let all = split.iter().sum::<f64>();
            (all, 100.0 * (split[1] + split[2]) / all)
        };
        split.iter().map(of).collect()
    }

    pub(super) fn switch_growth(self) -> f64 {
        let steps = self.switch();
        steps.windows(2).map(|pair| pair[1].0 / pair[0].0).fold(f64::MAX, f64::min)
    }

    /// The gains of network functions by non-blocking lookups.
    fn functions(self) -> Vec<Metric> {
        let of = |(_, function, flows): (&str, Function, u64)| {
            let by = |method| grid::function(self.base, function, flows, method);
            self.quotient(&by(Method::LockFree), &by(Method::HaloNonBlocking))
        };
        FUNCTIONS.into_iter().map(of).collect()
    }

    /// By how many percent less the other thread does beside lookups by `method` than beside
    /// a thread that waits.
    pub(super) fn drop(self, beside: Beside, flows: u64, method: Method) -> Metric {
        let of = |method| grid::beside(self.base, beside, flows, method);
        let Metric { value, half_width } = self.quotient(&of(None), &of(Some(method)));
        Metric { value: 100.0 * (1.0 - value), half_width: 100.0 * half_width }
    }

    /// The same, the most of all.
    pub(super) fn drop_percent(self, method: Method) -> Metric {
        let drops = BESIDE.map(|(_, beside, flows)| self.drop(beside, flows, method));
        drops.into_iter().fold(Metric::from(f64::MIN), Metric::larger)
    }

    /// The largest drop by the accelerator as a part of that by software, of all.
    pub(super) fn drop_ratio(self) -> f64 {
        let of = |(_, beside, flows): (&str, Beside, u64)| {
            let by = |method| self.drop(beside, flows, method).value;
            by(Method::HaloBlocking) / by(Method::LockFree)
        };
        BESIDE.into_iter().map(of).fold(f64::MIN, f64::max)
    }

    /// The least quotient of the other thread's misses beside software and beside the
    /// accelerator.
    pub(super) fn drop_misses(self) -> f64 {
        let of = |(_, beside, flows): (&str, Beside, u64)| {
            let by = |method| {
                let run = grid::beside(self.base, beside, flows, Some(method));
                report(self.store, &run).per_lookup.l1_misses
            };
            by(Method::LockFree) / by(Method::HaloBlocking)
        };
        BESIDE.into_iter().map(of).fold(f64::MAX, f64::min)
    }

    /// The quotients of all network functions, reduced to one by `of`.
    pub(super) fn function(self, of: fn(f64, f64) -> f64) -> Metric {
        let gains = self.functions().into_iter().map(|metric| metric.value);
        gains.reduce(of).expect("there are functions").into()
    }

    /// One of the kinds of traffic of a switch: its cycles, and the part of classification.
    pub(super) fn traffic(self, at: usize) -> (f64, f64) {
        self.switch()[at]
    }
}
