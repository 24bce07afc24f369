//! Figures and tables.

use crate::config::{Config, Method, Stream, Table};
use crate::energy;
use crate::experiment::Store;
use crate::flow_register::FlowRegister;

use super::File;
use super::chart::{Chart, Kind};
use super::grid::{
    self, BESIDE, FLOWS, FUNCTIONS, OCCUPANCIES, OCCUPANCY, OTHER_CYCLES, SHOWN, SIZES, TRAFFIC,
    TUPLES, cycles, report, single,
};
use super::metrics::Runs;

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artefact {
    /// Cycles of a switch's packet, by traffic.
    Figure3,
    /// Misses of cuckoo and single-function tables.
    Figure4,
    /// How well the flow register counts.
    Figure8b,
    /// Lookups in one table, by its size and occupancy.
    Figure9,
    /// The parts of a lookup's time.
    Figure10,
    /// Tuple space search.
    Figure11,
    /// What runs on the core's other thread beside lookups.
    Figure12,
    /// Network functions.
    Figure13,
    /// Instructions of a software lookup.
    Table1,
    /// Energy and area.
    Table4,
}

impl Artefact {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Figure3,
        Self::Figure4,
        Self::Figure8b,
        Self::Figure9,
        Self::Figure10,
        Self::Figure11,
        Self::Figure12,
        Self::Figure13,
        Self::Table1,
        Self::Table4,
    ];

    /// The name of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Figure3 => "figure-3",
            Self::Figure4 => "figure-4",
            Self::Figure8b => "figure-8b",
            Self::Figure9 => "figure-9",
            Self::Figure10 => "figure-10",
            Self::Figure11 => "figure-11",
            Self::Figure12 => "figure-12",
            Self::Figure13 => "figure-13",
            Self::Table1 => "table-1",
            Self::Table4 => "table-4",
        }
    }

    /// The simulations that it needs, over the machine of `base`.
    pub fn runs(self, base: &Config) -> Vec<Config> {
        Store::wanted_by(|store| {
            self.contents(base, store);
        })
    }

    /// Its files, once its simulations have ended.
    ///
    /// # Panics
    /// When they have not.
    pub fn files(self, base: &Config, store: &Store) -> Vec<File> {
        let of = |content| match content {
            Content::Chart(more, chart) => {
                let name = |kind| format!("{}{more}.{kind}", self.name());
                vec![
                    File { name: name("svg"), text: chart.svg() },
                    File { name: name("csv"), text: chart.csv() },
                ]
            }
            Content::Table(text) => vec![File { name: format!("{}.csv", self.name()), text }],
        };
        self.contents(base, store).into_iter().flat_map(of).collect()
    }

    fn contents(self, base: &Config, store: &Store) -> Vec<Content> {
        let chart = |chart| vec![Content::Chart("", chart)];
        match self {
            Self::Figure3 => chart(figure_3(base, store)),
            Self::Figure4 => chart(figure_4(base, store)),
            Self::Figure8b => chart(figure_8b(base)),
            Self::Figure9 => vec![
                Content::Chart("", figure_9(base, store)),
                Content::Chart("-occupancy", figure_9_occupancy(base, store)),
            ],
            Self::Figure10 => chart(figure_10(base, store)),
            Self::Figure11 => chart(figure_11(base, store)),
            Self::Figure12 => vec![
                Content::Chart("", figure_12(Runs { base, store })),
                Content::Chart("-misses", figure_12_misses(base, store)),
            ],
            Self::Figure13 => chart(figure_13(base, store)),
            Self::Table1 => vec![Content::Table(table_1(base, store))],
            Self::Table4 => vec![Content::Table(table_4(base, store))],
        }
    }
}

/// The contents of an artefact.
enum Content {
    /// A chart, and what its files' name has more than the artefact's.
    Chart(&'static str, Chart<'static>),
    Table(String),
}

fn named(method: Method, more: &str) -> String {
    format!("{}{more}", method.name())
}

/// Cycles of a packet: elsewhere, in the exact-match cache, in the megaflow layer.
pub(super) fn switch_split(base: &Config, store: &Store) -> Vec<[f64; 3]> {
    let of = |(_, flows, rules): &(&str, u64, u64)| {
        let seen = report(store, &grid::switch(base, *flows, *rules));
        let emc = seen.per_lookup.emc_cycles;
        [OTHER_CYCLES, emc, seen.cycles.mean - emc]
    };
    TRAFFIC.iter().map(of).collect()
}

fn figure_3(base: &Config, store: &Store) -> Chart<'static> {
    let split = switch_split(base, store);
    let names = ["other (an input)", "exact-match cache", "megaflow"];
    let of = |(n, name): (usize, &str)| (name.to_owned(), split.iter().map(|s| s[n]).collect());
    Chart {
        kind: Kind::Bars,
        title: "Figure 3: cycles of a packet in a switch",
        x: "traffic",
        y: "cycles",
        points: TRAFFIC.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        series: names.into_iter().enumerate().map(of).collect(),
    }
}

fn figure_4(base: &Config, store: &Store) -> Chart<'static> {
    let mut series = Vec::new();
    for (name, table) in [("cuckoo", Table::Cuckoo), ("single-function", Table::SingleFunction)] {
        let per_kilo_loads = |misses: fn(&crate::experiment::PerLookup) -> f64| {
            let of = |flows: &u64| {
                let seen = &report(store, &grid::flows(base, *flows, table)).per_lookup;
                1000.0 * misses(seen) / seen.loads
            };
            FLOWS.iter().map(of).collect::<Vec<_>>()
        };
        series.push((format!("{name} L2"), per_kilo_loads(|seen| seen.l2_misses)));
        series.push((format!("{name} LLC"), per_kilo_loads(|seen| seen.llc_misses)));
    }
    Chart {
        kind: Kind::Lines,
        title: "Figure 4: misses of both kinds of table",
        x: "flows",
        y: "misses in 1000 loads",
        points: FLOWS.iter().map(u64::to_string).collect(),
        series,
    }
}

/// Bits of the registers of figure 8b.
const REGISTERS: [usize; 4] = [16, 32, 64, 128];
/// Flows that they count.
const COUNTED: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Windows for each.
const WINDOWS: u64 = 1000;

/// What a register of `bits` bits counts of `flows` flows, in the mean over many windows.
fn counted(base: &Config, bits: usize, flows: u64) -> f64 {
    let in_window = |window: u64| {
        let mut register = FlowRegister::new(bits);
        let hash = |n| crate::table::mix(base.sim.seed << 40 ^ window << 20 ^ n);
        (0..flows).for_each(|n| register.note(hash(n)));
        register.flows().unwrap_or_else(|| bits as f64 * (bits as f64).ln())
    };
    (0..WINDOWS).map(in_window).sum::<f64>() / WINDOWS as f64
}

/// How far registers of 32 bits and more are off in the mean, at twice as many flows.
pub(super) fn register_error_percent(base: &Config) -> f64 {
    let error = |bits: &usize| {
        let flows = 2 * *bits as u64;
        (counted(base, *bits, flows) / flows as f64 - 1.0).abs()
    };
    100.0 * REGISTERS.iter().filter(|bits| **bits >= 32).map(error).fold(0.0, f64::max)
}

fn figure_8b(base: &Config) -> Chart<'static> {
    let of = |bits: &usize| {
        let values = COUNTED.iter().map(|flows| counted(base, *bits, *flows)).collect();
        (format!("{bits} bits"), values)
    };
    let mut series: Vec<_> = REGISTERS.iter().map(of).collect();
    series.push(("flows".into(), COUNTED.iter().map(|n| *n as f64).collect()));
    Chart {
        kind: Kind::Lines,
        title: "Figure 8b: flows that the register counts",
        x: "flows",
        y: "counted",
        points: COUNTED.iter().map(u64::to_string).collect(),
        series,
    }
}

/// Cycles of lock-free software over those of `method`, with the same stream.
fn gain(base: &Config, store: &Store, bits: u32, of: (f64, Method, Stream)) -> f64 {
    let (occupancy, method, stream) = of;
    cycles(store, &single(base, bits, occupancy, Method::LockFree, stream))
        / cycles(store, &single(base, bits, occupancy, method, stream))
}

fn figure_9(base: &Config, store: &Store) -> Chart<'static> {
    let mut series = Vec::new();
    for method in SHOWN.into_iter().skip(1) {
        let of = |bits: &u32| gain(base, store, *bits, (OCCUPANCY, method, Stream::Independent));
        series.push((named(method, ""), SIZES.iter().map(of).collect()));
    }
    for method in [Method::HaloBlocking, Method::Tcam] {
        let of = |bits: &u32| gain(base, store, *bits, (OCCUPANCY, method, Stream::Dependent));
        series.push((named(method, " dependent"), SIZES.iter().map(of).collect()));
    }
    Chart {
        kind: Kind::Lines,
        title: "Figure 9: lookups in one table, over lock-free software",
        x: "places",
        y: "times",
        points: SIZES.iter().map(|bits| format!("2^{bits}")).collect(),
        series,
    }
}

/// The same by how full tables are.
fn figure_9_occupancy(base: &Config, store: &Store) -> Chart<'static> {
    let mut series = Vec::new();
    for method in [Method::HaloBlocking, Method::HaloNonBlocking] {
        for occupancy in OCCUPANCIES {
            let of =
                |bits: &u32| gain(base, store, *bits, (occupancy, method, Stream::Independent));
            let name = named(method, &format!(" {:.0} % full", 100.0 * occupancy));
            series.push((name, SIZES.iter().map(of).collect()));
        }
    }
    Chart {
        kind: Kind::Lines,
        title: "Figure 9: by occupancy, over lock-free software",
        x: "places",
        y: "times",
        points: SIZES.iter().map(|bits| format!("2^{bits}")).collect(),
        series,
    }
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

fn figure_10(base: &Config, store: &Store) -> Chart<'static> {
    let mut columns = Vec::new();
    for (place, bits) in PLACES {
        for method in [Method::Scalar, Method::LockFree, Method::ReadLock] {
            let split = software_split(base, store, bits, method);
            columns.push((format!("{place} {}", method.name()), split));
        }
        columns.push((format!("{place} HALO"), halo_split(base, store, bits)));
    }
    let of = |part: fn(&Split) -> f64| columns.iter().map(|(_, split)| part(split)).collect();
    let series = vec![
        ("compute".into(), of(|split| split.compute)),
        ("data".into(), of(|split| split.data)),
        ("lock".into(), of(|split| split.lock)),
        ("transport".into(), of(|split| split.transport)),
    ];
    Chart {
        kind: Kind::Bars,
        title: "Figure 10: where the cycles of a fenced lookup go",
        x: "table and method",
        y: "cycles",
        points: columns.iter().map(|(name, _)| name.clone()).collect(),
        series,
    }
}

/// Queries of a table in flight, and keys requested at a time, that figure 11 sweeps.
pub(super) const SWEPT: [(usize, u64); 4] = [(1, 1), (1, 8), (2, 8), (10, 1)];

fn figure_11(base: &Config, store: &Store) -> Chart<'static> {
    let software = |n| cycles(store, &grid::tuples(base, n, Method::LockFree));
    let mut series = Vec::new();
    for method in SHOWN.into_iter().skip(1) {
        let of = |n: &u64| software(*n) / cycles(store, &grid::tuples(base, *n, method));
        series.push((named(method, ""), TUPLES.iter().map(of).collect()));
    }
    for (in_flight, keys) in SWEPT {
        let of =
            |n: &u64| software(*n) / cycles(store, &grid::tuples_as(base, *n, in_flight, keys));
        let name = named(Method::HaloNonBlocking, &format!(" {in_flight} under way {keys} keys"));
        series.push((name, TUPLES.iter().map(of).collect()));
    }
    Chart {
        kind: Kind::Lines,
        title: "Figure 11: tuple space search, over lock-free software",
        x: "tuples",
        y: "times",
        points: TUPLES.iter().map(u64::to_string).collect(),
        series,
    }
}

/// Methods whose lookups figure 12 has beside the other thread.
const NEIGHBOURS: [Method; 3] = [Method::LockFree, Method::HaloBlocking, Method::HaloNonBlocking];

fn figure_12(runs: Runs<'_>) -> Chart<'static> {
    let of = |method: Method| {
        let drop = |(_, beside, flows)| runs.drop(beside, flows, method).value;
        (named(method, ""), BESIDE.into_iter().map(drop).collect())
    };
    Chart {
        kind: Kind::Lines,
        title: "Figure 12: what the core's other thread loses beside lookups (weak evidence)",
        x: "function and flows",
        y: "percent",
        points: BESIDE.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        series: NEIGHBOURS.map(of).into(),
    }
}

fn figure_12_misses(base: &Config, store: &Store) -> Chart<'static> {
    let of = |method: Option<Method>| {
        let misses = |(_, beside, flows)| {
            report(store, &grid::beside(base, beside, flows, method)).per_lookup.l1_misses
        };
        let name = method.map_or_else(|| "alone".to_owned(), |method| named(method, ""));
        (name, BESIDE.into_iter().map(misses).collect())
    };
    let methods = [None].into_iter().chain(NEIGHBOURS.map(Some));
    Chart {
        kind: Kind::Lines,
        title: "Figure 12: lines that it misses in the first-level cache (weak evidence)",
        x: "function and flows",
        y: "a unit of its work",
        points: BESIDE.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        series: methods.map(of).collect(),
    }
}

fn figure_13(base: &Config, store: &Store) -> Chart<'static> {
    let of = |method: Method| {
        let gain = |(_, function, flows)| {
            let by = |method| cycles(store, &grid::function(base, function, flows, method));
            by(Method::LockFree) / by(method)
        };
        (named(method, ""), FUNCTIONS.into_iter().map(gain).collect())
    };
    Chart {
        kind: Kind::Lines,
        title: "Figure 13: network functions, over lock-free software (weak evidence)",
        x: "function and size",
        y: "times",
        points: FUNCTIONS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        series: [Method::Bulk, Method::HaloBlocking, Method::HaloNonBlocking].map(of).into(),
    }
}

pub(super) fn table_1_run(base: &Config) -> Config {
    single(base, 12, OCCUPANCY, Method::LockFree, Stream::Independent)
}

fn table_1(base: &Config, store: &Store) -> String {
    let of = &report(store, &table_1_run(base)).per_lookup;
    let share = |n: f64| format!("{n:.1},{:.1}", 100.0 * n / of.operations);
    let arithmetic = of.operations - of.loads - of.stores - of.branches;
    format!(
        "operations,a lookup,percent\nall,{}\nloads,{}\nstores,{}\nbranches,{}\narithmetic,{}\n",
        share(of.operations),
        share(of.loads),
        share(of.stores),
        share(of.branches),
        share(arithmetic),
    )
}

/// The run that yields the rate of queries for static power.
fn halo_rate(base: &Config) -> Config {
    single(base, 18, OCCUPANCY, Method::HaloNonBlocking, Stream::Independent)
}

/// Table 4, with the energy of a query: static power counts as much as there are queries.
fn table_4(base: &Config, store: &Store) -> String {
    let rate = base.core.ghz * 1e9 / cycles(store, &halo_rate(base));
    let heading = "unit,area in tiles,static mW,dynamic nJ a query,all nJ a query,\
                   dynamic over HALO\n";
    let mut rows = Vec::new();
    let slices = base.llc.slices as f64;
    let mut row = |name: String, unit: energy::Unit, units: f64| {
        let numbers = [
            unit.area * units,
            unit.static_mw * units,
            unit.dynamic_nj,
            energy::query_nj(unit, units, rate),
            unit.dynamic_nj / energy::HALO.dynamic_nj,
        ];
        let numbers = numbers.map(|number| format!("{number:.3}")).join(",");
        rows.push(format!("{name},{numbers}\n"));
    };
    row(format!("HALO x {slices}"), energy::HALO, slices);
    for (bytes, unit) in energy::TCAM {
        let (power, area) = energy::SRAM_TCAM;
        row(format!("TCAM {} KB", bytes / 1024.0), unit, 1.0);
        let sram = energy::Unit {
            area: unit.area * area,
            static_mw: unit.static_mw * power,
            dynamic_nj: unit.dynamic_nj * power,
        };
        row(format!("SRAM-TCAM {} KB", bytes / 1024.0), sram, 1.0);
    }
    heading.to_owned()
        + &rows.concat()
        + "# Area and power are inputs (Table 4 of the paper), not results. From 1 KB to 10 KB its\n\
            # area grows 66 times, which no physics explains.\n"
}
