//! The figures, of what was simulated.

use crate::config::{Beside, Config, Function, Method, Stream, Table};
use crate::experiment::PerLookup;

use super::figure::{Figure, Kind, Point, Scale, Series};
use super::grid::{
    self, BESIDE, FLOWS, FUNCTIONS, OCCUPANCIES, OCCUPANCY, SHOWN, SIZES, TRAFFIC, TUPLES, report,
    single,
};
use super::metrics::{Metric, Runs};
use super::parts::{self, COUNTED, PLACES, REGISTERS, Split};

/// A figure without marks; its note is the start of its caption.
struct Plan {
    kind: Kind,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    scale: Scale,
    note: &'static str,
}

impl Plan {
    fn with(self, points: Vec<Point>, series: Vec<Series>) -> Figure {
        let Self { kind, title, x, y, scale, note } = self;
        Figure {
            kind,
            title,
            x,
            y,
            scale,
            points,
            series,
            of_stacks: Vec::new(),
            reference: None,
            marks: Vec::new(),
            samples: "the batches of a run",
            caption: note.to_owned(),
        }
    }
}

/// Points whose names are their numbers.
fn numbered(numbers: &[u64]) -> Vec<Point> {
    let of = |number: &u64| Point { name: number.to_string(), number: *number as f64 };
    numbers.iter().map(of).collect()
}

/// Points of an axis of categories.
fn categories<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Point> {
    names.into_iter().map(|name| Point { name: name.to_owned(), number: 0.0 }).collect()
}

fn sizes() -> Vec<Point> {
    SIZES.map(|bits| Point { name: format!("2^{bits}"), number: f64::from(1u32 << bits) }).into()
}

fn series<V: Into<Metric>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Series {
    Series { name: name.into(), values: values.into_iter().map(Into::into).collect() }
}

pub(super) fn figure_3(runs: Runs<'_>) -> Figure {
    let split = parts::switch_split(runs.base, runs.store);
    let names = ["other (an input)", "exact-match cache", "megaflow"];
    let of = |(n, name): (usize, &str)| series(name, split.iter().map(|parts| parts[n]));
    let plan = Plan {
        kind: Kind::Stacks,
        title: "Figure 3: cycles of a packet in a switch",
        x: "traffic",
        y: "cycles",
        scale: Scale::Linear,
        note: "Weak evidence: the work other than lookups is an input.",
    };
    let points = categories(TRAFFIC.iter().map(|(name, ..)| *name));
    let mut figure = plan.with(points, names.into_iter().enumerate().map(of).collect());
    let half = |(_, flows, rules): &(&str, u64, u64)| {
        report(runs.store, &grid::switch(runs.base, *flows, *rules)).cycles.half_width
    };
    figure.of_stacks = TRAFFIC.iter().map(half).collect();
    figure
}

pub(super) fn figure_4(runs: Runs<'_>) -> Figure {
    let mut all = Vec::new();
    for (name, table) in [("cuckoo", Table::Cuckoo), ("single-function", Table::SingleFunction)] {
        let per_kilo_loads = |misses: fn(&PerLookup) -> f64| {
            let of = |flows: &u64| {
                let run = grid::flows(runs.base, *flows, table);
                let seen = &report(runs.store, &run).per_lookup;
                1000.0 * misses(seen) / seen.loads
            };
            FLOWS.iter().map(of).collect::<Vec<_>>()
        };
        all.push(series(format!("{name} L2"), per_kilo_loads(|seen| seen.l2_misses)));
        all.push(series(format!("{name} LLC"), per_kilo_loads(|seen| seen.llc_misses)));
    }
    let plan = Plan {
        kind: Kind::Lines(Scale::Tens),
        title: "Figure 4: misses of both kinds of table",
        x: "flows",
        y: "misses in 1000 loads",
        scale: Scale::Linear,
        note: "Lock-free software; all lookups find their key.",
    };
    plan.with(numbered(&FLOWS), all)
}

pub(super) fn figure_8b(base: &Config) -> Figure {
    let of = |bits: &usize| {
        series(format!("{bits} bits"), COUNTED.iter().map(|n| parts::counted(base, *bits, *n)))
    };
    let mut all: Vec<_> = REGISTERS.iter().map(of).collect();
    all.push(series("flows", COUNTED.iter().map(|n| *n as f64)));
    let plan = Plan {
        kind: Kind::Lines(Scale::Twos),
        title: "Figure 8b: flows that the register counts",
        x: "flows",
        y: "counted flows",
        scale: Scale::Twos,
        note: "Means of 1000 windows, each of other flows.",
    };
    let mut figure = plan.with(numbered(&COUNTED), all);
    figure.samples = "the windows";
    figure
}

/// Cycles of lock-free software over those of `method`, with the same stream.
fn gain(runs: Runs<'_>, bits: u32, occupancy: f64, method: Method, stream: Stream) -> Metric {
    let of = |method| single(runs.base, bits, occupancy, method, stream);
    runs.quotient(&of(Method::LockFree), &of(method))
}

pub(super) fn figure_9(runs: Runs<'_>) -> Figure {
    let of = |more: &str, method: Method, stream| {
        let gains = SIZES.map(|bits| gain(runs, bits, OCCUPANCY, method, stream));
        series(format!("{}{more}", method.name()), gains)
    };
    let mut all: Vec<Series> =
        SHOWN.into_iter().skip(1).map(|method| of("", method, Stream::Independent)).collect();
    let dependent = [Method::HaloBlocking, Method::Tcam];
    all.extend(dependent.map(|method| of(" dependent", method, Stream::Dependent)));
    let plan = Plan {
        kind: Kind::Lines(Scale::Twos),
        title: "Figure 9: lookups in one table, over lock-free software",
        x: "places",
        y: "times as fast",
        scale: Scale::Twos,
        note: "Tables are 75 % full. Dependent lookups need the previous result; the paper's \
               values are those of halo-blocking dependent.",
    };
    let mut figure = plan.with(sizes(), all);
    figure.reference = Some(1.0);
    figure
}

/// The same by how full tables are.
pub(super) fn figure_9_occupancy(runs: Runs<'_>) -> Figure {
    let mut all = Vec::new();
    for method in [Method::HaloBlocking, Method::HaloNonBlocking] {
        for occupancy in OCCUPANCIES {
            let gains = SIZES.map(|bits| gain(runs, bits, occupancy, method, Stream::Independent));
            let name = format!("{} {:.0} % full", method.name(), 100.0 * occupancy);
            all.push(series(name, gains));
        }
    }
    let plan = Plan {
        kind: Kind::Lines(Scale::Twos),
        title: "Figure 9: by occupancy, over lock-free software",
        x: "places",
        y: "times as fast",
        scale: Scale::Twos,
        note: "Independent lookups.",
    };
    let mut figure = plan.with(sizes(), all);
    figure.reference = Some(1.0);
    figure
}

pub(super) fn figure_10(runs: Runs<'_>) -> Figure {
    let Runs { base, store } = runs;
    let (mut columns, mut halves) = (Vec::new(), Vec::new());
    let mut column = |name: String, split: Split, bits, method| {
        columns.push((name, split));
        halves.push(report(store, &grid::fenced(base, bits, method)).cycles.half_width);
    };
    for (place, bits) in PLACES {
        for method in [Method::Scalar, Method::LockFree, Method::ReadLock] {
            let split = parts::software_split(base, store, bits, method);
            column(format!("{place} {}", method.name()), split, bits, method);
        }
        let split = parts::halo_split(base, store, bits);
        column(format!("{place} HALO"), split, bits, Method::HaloBlocking);
    }
    let of =
        |name, part: fn(&Split) -> f64| series(name, columns.iter().map(|(_, split)| part(split)));
    let all = vec![
        of("compute", |split| split.compute),
        of("data", |split| split.data),
        of("lock", |split| split.lock),
        of("transport", |split| split.transport),
    ];
    let plan = Plan {
        kind: Kind::Stacks,
        title: "Figure 10: where the cycles of a fenced lookup go",
        x: "table and method",
        y: "cycles",
        scale: Scale::Linear,
        note: "The paper gives quotients of these.",
    };
    let mut figure = plan.with(categories(columns.iter().map(|(name, _)| name.as_str())), all);
    figure.of_stacks = halves;
    figure
}

/// Queries of a table in flight, and keys requested at a time, that figure 11 sweeps.
const SWEPT: [(usize, u64); 4] = [(1, 1), (1, 8), (2, 8), (10, 1)];

pub(super) fn figure_11(runs: Runs<'_>) -> Figure {
    let gain =
        |n: u64, run: &Config| runs.quotient(&grid::tuples(runs.base, n, Method::LockFree), run);
    let of = |method: Method| {
        let gains = TUPLES.map(|n| gain(n, &grid::tuples(runs.base, n, method)));
        series(method.name(), gains)
    };
    let mut all: Vec<Series> = SHOWN.into_iter().skip(1).map(of).collect();
    all.extend(SWEPT.map(|(in_flight, keys)| {
        let gains = TUPLES.map(|n| gain(n, &grid::tuples_as(runs.base, n, in_flight, keys)));
        let name = Method::HaloNonBlocking.name();
        series(format!("{name} {in_flight} under way {keys} keys"), gains)
    }));
    let plan = Plan {
        kind: Kind::Lines(Scale::Linear),
        title: "Figure 11: tuple space search, over lock-free software",
        x: "tuples",
        y: "times as fast",
        scale: Scale::Twos,
        note: "Under way: queries that an accelerator serves of one table; keys: how many are \
               requested at a time.",
    };
    let mut figure = plan.with(numbered(&TUPLES), all);
    figure.reference = Some(1.0);
    figure
}

/// Methods whose lookups figure 12 has beside the other thread.
const NEIGHBOURS: [Method; 3] = [Method::LockFree, Method::HaloBlocking, Method::HaloNonBlocking];

pub(super) fn figure_12(runs: Runs<'_>) -> Figure {
    let of = |method: Method| {
        series(method.name(), BESIDE.map(|(_, beside, flows)| runs.drop(beside, flows, method)))
    };
    let plan = Plan {
        kind: Kind::Bars,
        title: "Figure 12: what the core's other thread loses beside lookups",
        x: "function and flows",
        y: "percent slower",
        scale: Scale::Linear,
        note: "Weak evidence: the functions' work is ours.",
    };
    let points = categories(BESIDE.map(|(name, ..)| name));
    let mut figure = plan.with(points, NEIGHBOURS.map(of).into());
    figure.reference = Some(0.0);
    figure
}

pub(super) fn figure_12_misses(runs: Runs<'_>) -> Figure {
    let of = |method: Option<Method>| {
        let misses = |(_, beside, flows): (&str, Beside, u64)| {
            let run = grid::beside(runs.base, beside, flows, method);
            report(runs.store, &run).per_lookup.l1_misses
        };
        series(method.map_or("alone", Method::name), BESIDE.map(misses))
    };
    let methods = [None].into_iter().chain(NEIGHBOURS.map(Some));
    let plan = Plan {
        kind: Kind::Bars,
        title: "Figure 12: lines that it misses in the first-level cache",
        x: "function and flows",
        y: "misses a unit of its work",
        scale: Scale::Linear,
        note: "Weak evidence: the functions' work is ours.",
    };
    plan.with(categories(BESIDE.map(|(name, ..)| name)), methods.map(of).collect())
}

pub(super) fn figure_13(runs: Runs<'_>) -> Figure {
    let of = |method: Method| {
        let gain = |(_, function, keys): (&str, Function, u64)| {
            let by = |method| grid::function(runs.base, function, keys, method);
            runs.quotient(&by(Method::LockFree), &by(method))
        };
        series(method.name(), FUNCTIONS.map(gain))
    };
    let plan = Plan {
        kind: Kind::Bars,
        title: "Figure 13: network functions, over lock-free software",
        x: "function and size",
        y: "times as fast",
        scale: Scale::Linear,
        note: "Weak evidence: the functions' work other than lookups is ours.",
    };
    let methods = [Method::Bulk, Method::HaloBlocking, Method::HaloNonBlocking];
    let mut figure =
        plan.with(categories(FUNCTIONS.map(|(name, ..)| name)), methods.map(of).into());
    figure.reference = Some(1.0);
    figure
}
