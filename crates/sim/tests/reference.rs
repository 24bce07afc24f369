//! Software lookups against gem5 (`reference.toml`).

use std::sync::{LazyLock, Mutex};
use std::thread::available_parallelism;

use serde::Deserialize;
use thalweg_sim::config::{Config, Method, Stream};
use thalweg_sim::experiment::{Report, Store};

#[derive(Deserialize)]
struct Reference {
    gem5: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    bits: u32,
    llc_mib: Option<u64>,
    independent: f64,
    dependent: f64,
    fenced: f64,
    bulk: f64,
    in_vain: f64,
    misses: [f64; 3],
    mispredictions: f64,
}

/// What is compared of a row.
type Of = fn(&Row) -> f64;

fn rows() -> Vec<Row> {
    toml::from_str::<Reference>(include_str!("reference.toml")).unwrap().gem5
}

/// gem5's core.
fn gem5() -> Config {
    Config::from_toml(include_str!("gem5.toml")).unwrap()
}

/// What lookups do.
type Change = fn(&mut Config);

const INDEPENDENT: Change = |config| config.workload.stream = Stream::Independent;
const DEPENDENT: Change = |config| config.workload.stream = Stream::Dependent;
const FENCED: Change = |config| config.workload.stream = Stream::Fenced;
const BULK: Change = |config| config.workload.method = Method::Bulk;
const IN_VAIN: Change = |config| config.workload.hit_rate = 0.0;

/// The lookups of a row on a machine.
fn config(machine: &Config, row: &Row, change: Change) -> Config {
    let mut config = machine.clone();
    config.workload.entries = 1 << row.bits;
    config.workload.method = Method::LockFree;
    config.llc.mib = row.llc_mib.unwrap_or(config.llc.mib);
    config.sim.measured_lookups = 4000;
    change(&mut config);
    config
}

/// Runs all rows on both machines: most of the time passes until a table is filled and its caches
/// are warm, which runs of one table share.
static SIMULATED: LazyLock<Mutex<Store>> = LazyLock::new(|| {
    let (gem5, ours) = (gem5(), Config::default());
    let of_row = |row: &Row| {
        let of_gem5 =
            [INDEPENDENT, DEPENDENT, FENCED, BULK, IN_VAIN].map(|c| config(&gem5, row, c));
        let of_ours = [INDEPENDENT, DEPENDENT].map(|change| config(&ours, row, change));
        of_gem5.into_iter().chain(of_ours)
    };
    let configs: Vec<Config> = rows().iter().flat_map(of_row).collect();
    let mut store = Store::in_memory();
    store.simulate(&configs, available_parallelism().map_or(1, usize::from), |_, _| ()).unwrap();
    Mutex::new(store)
});

fn simulated(machine: &Config, row: &Row, change: Change) -> Report {
    let store = SIMULATED.lock().unwrap();
    store.get(&config(machine, row, change)).expect("all rows are simulated").clone()
}

fn cycles(machine: &Config, row: &Row, change: Change) -> f64 {
    simulated(machine, row, change).cycles.mean
}

#[test]
fn cycles_are_those_of_gem5() {
    let machine = gem5();
    let (mut logarithms, mut told) = (Vec::new(), Vec::new());
    for row in rows() {
        let pairs = [
            (INDEPENDENT, row.independent),
            (DEPENDENT, row.dependent),
            (FENCED, row.fenced),
            (IN_VAIN, row.in_vain),
        ];
        for (change, theirs) in pairs {
            let ours = cycles(&machine, &row, change);
            told.push(format!("2^{}: {ours:.0} of {theirs}", row.bits));
            logarithms.push((ours / theirs).ln().abs());
        }
    }
    let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp() - 1.0;
    let worst = logarithms.iter().copied().fold(0.0, f64::max).exp() - 1.0;
    // A sixth more and a seventh less are as far: 15 % of gem5's figure.
    assert!(worst <= 1.0 / 0.85 - 1.0 && mean <= 0.08, "worst {worst}, mean {mean}: {told:#?}");
}

#[test]
fn lookups_in_bulk_hardly_take_longer_in_a_larger_table() {
    // What they take in all does not agree: gem5's core is twice as slow where nothing is
    // mispredicted.
    let machine = gem5();
    let bulk = |row: &Row| cycles(&machine, row, BULK);
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.llc_mib.is_none()).collect();
    for row in &rows {
        assert!((bulk(row) / bulk(&rows[0]) - row.bulk / rows[0].bulk).abs() < 0.1, "{}", row.bits);
    }
}

#[test]
fn misses_and_mispredictions_are_those_of_gem5() {
    for row in rows() {
        let of = simulated(&Config::default(), &row, INDEPENDENT).per_lookup;
        // gem5's counts have the wrong path in them.
        for ((ours, theirs), most) in [of.l1_misses, of.l2_misses, of.llc_misses]
            .into_iter()
            .zip(row.misses)
            .zip([0.9, 0.75, 0.75])
        {
            assert!((theirs - most..theirs + 0.2).contains(&ours), "2^{}: {of:?}", row.bits);
        }
        let off = (of.mispredictions - row.mispredictions).abs();
        assert!(off <= 0.35, "2^{}: {of:?}", row.bits);
    }
}

#[test]
fn a_table_further_away_takes_as_much_more_as_in_gem5_on_our_core_too() {
    let rows = rows();
    let streams: [(&str, Change, Of); 2] = [
        ("independent", INDEPENDENT, |row| row.independent),
        ("dependent", DEPENDENT, |row| row.dependent),
    ];
    for (name, stream, of) in streams {
        let near = cycles(&Config::default(), &rows[0], stream);
        // From the first-level cache to the second, and to the last.
        for row in rows.iter().filter(|row| [14, 17].contains(&row.bits)) {
            let more = cycles(&Config::default(), row, stream) - near;
            let theirs = of(row) - of(&rows[0]);
            let close = (more - theirs).abs() <= (0.35 * theirs).max(8.0);
            assert!(close, "2^{} {name}: {more} more, not {theirs}", row.bits);
        }
    }
}
