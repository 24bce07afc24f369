//! Software lookups against gem5 (`reference.toml`).
//!
//! gem5's x86 makes 345 micro-operations of 220 instructions, the programs here about 205,
//! so what a lookup takes in the first-level cache differs. What it takes more when the
//! table lies further away, what it misses and mispredicts, does not depend on that.

use serde::Deserialize;
use thalweg_sim::config::{Config, Method, Stream};
use thalweg_sim::experiment::{Report, run};

#[derive(Deserialize)]
struct Reference {
    gem5: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    bits: u32,
    independent: f64,
    dependent: f64,
    misses: [f64; 3],
    mispredictions: f64,
}

fn simulated(bits: u32, stream: Stream) -> Report {
    let mut config = Config::default();
    config.workload.entries = 1 << bits;
    config.workload.method = Method::LockFree;
    config.workload.stream = stream;
    config.sim.measured_lookups = 10_000;
    run(&config).unwrap()
}

/// What is compared of a row.
type Of = fn(&Row) -> f64;

fn rows() -> Vec<Row> {
    toml::from_str::<Reference>(include_str!("reference.toml")).unwrap().gem5
}

#[test]
fn misses_and_mispredictions_are_those_of_gem5() {
    for row in rows() {
        let of = simulated(row.bits, Stream::Independent).per_lookup;
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
fn a_table_further_away_takes_as_much_more_as_in_gem5() {
    let rows = rows();
    let streams: [(Stream, Of); 2] =
        [(Stream::Independent, |row| row.independent), (Stream::Dependent, |row| row.dependent)];
    for (stream, of) in streams {
        let near = simulated(rows[0].bits, stream).cycles.mean;
        // From the first-level cache to the second, and to the last.
        for row in rows.iter().filter(|row| [14, 17].contains(&row.bits)) {
            let more = simulated(row.bits, stream).cycles.mean - near;
            let theirs = of(row) - of(&rows[0]);
            let close = (more - theirs).abs() <= (0.35 * theirs).max(8.0);
            assert!(close, "2^{} {stream:?}: {more} more, not {theirs}", row.bits);
        }
    }
}
