//! `thalweg sim predict`: times of lookups in our own cuckoo table on this machine, beside the
//! simulator's.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_classify::cuckoo::{Reader, STEP};
use thalweg_cpu::Isa;
use thalweg_sim::config::{Config, Method, Stream, Table};
use thalweg_sim::experiment;
use thalweg_sim::own::{self, key_of};

use super::load;
use crate::args;
use crate::errors::Failure;
use crate::report::{number_table, write_json};

/// Buffers that keys are written to just before they are looked up, as parsing packets does.
const BUFFERS: usize = 64;
/// Lookups that are timed together, and how often; the shortest time counts, since other load on
/// the machine only makes it longer.
const LOOKUPS: usize = 1 << 19;
const ROUNDS: usize = 20;
/// Keys that are written together when they are looked up a step at a time.
const TOGETHER: usize = 8 * STEP;

/// A packet's buffer; the key takes its start.
type Buffer = [u64; 32];

/// The dependence between lookups, and how each kind is simulated.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Lookups {
    Independent,
    Dependent,
    Steps,
}

impl Lookups {
    const ALL: [Self; 3] = [Self::Independent, Self::Dependent, Self::Steps];

    fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Dependent => "dependent",
            Self::Steps => "steps of 32",
        }
    }

    fn config(self, base: &Config, places: u64) -> Config {
        let mut config = base.clone();
        let work = &mut config.workload;
        (work.table, work.entries) = (Table::Thalweg, places);
        (work.method, work.stream) = match self {
            Self::Independent => (Method::LockFree, Stream::Independent),
            Self::Dependent => (Method::LockFree, Stream::Dependent),
            Self::Steps => (Method::Bulk, Stream::Independent),
        };
        config
    }
}

/// The times of one kind of lookups in a table of one size.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Row {
    places: u64,
    lookups: Lookups,
    measured_ns: f64,
    predicted_ns: f64,
}

/// Measured and simulated times.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Predictions {
    #[schemars(extend("const" = "thalweg.sim.predict/1"))]
    schema: &'static str,
    rows: Vec<Row>,
}

pub(super) fn predict(options: &args::SimPredict) -> Result<(), Failure> {
    let base = load(options.config.file.as_deref(), &options.config.settings)?;
    let places: Vec<u64> = options.places.iter().map(|bits| 1 << bits).collect();
    let mut rows = Vec::new();
    for (places, own) in places.iter().zip(measure(&base, &places)) {
        for (lookups, measured_ns) in Lookups::ALL.into_iter().zip(own.shortest) {
            // Without AVX-512 a step of lookups is a different program.
            if matches!(lookups, Lookups::Steps) && Isa::active() != Isa::Avx512 {
                continue;
            }
            let config = lookups.config(&base, *places);
            let report =
                experiment::run(&config).map_err(|e| Failure::Simulation(e.to_string()))?;
            let predicted_ns = report.cycles.mean / config.core.ghz;
            rows.push(Row { places: *places, lookups, measured_ns, predicted_ns });
        }
    }
    let mut out = io::stdout().lock();
    if options.json {
        let predictions = Predictions { schema: "thalweg.sim.predict/1", rows };
        return Ok(write_json(&mut out, &predictions)?);
    }
    let mut table = number_table(&["places", "lookups", "ns", "simulated", "off"], 0);
    for row in &rows {
        table.add_row([
            format!("2^{}", row.places.trailing_zeros()),
            row.lookups.name().to_owned(),
            format!("{:.1}", row.measured_ns),
            format!("{:.1}", row.predicted_ns),
            format!("{:+.0} %", 100.0 * (row.predicted_ns / row.measured_ns - 1.0)),
        ]);
    }
    Ok(writeln!(out, "{table}")?)
}

/// A table of this machine, and the keys that are looked up in it.
struct Own {
    reader: Reader<2>,
    order: Vec<u32>,
    /// Nanoseconds per lookup, by kind.
    shortest: [f64; Lookups::ALL.len()],
}

impl Own {
    fn new(base: &Config, places: u64) -> Self {
        let keys = ((places as f64 * base.workload.occupancy) as u32).max(1);
        let (_, reader) = own::filled(places, keys, base.sim.seed);
        let mut state = 42u64;
        let mut number = || {
            // A linear congruence, whose upper bits are as good as random (Knuth, MMIX).
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((u128::from(state) * u128::from(keys)) >> 64) as u32
        };
        let order = (0..LOOKUPS).map(|_| number()).collect();
        Self { reader, order, shortest: [f64::INFINITY; Lookups::ALL.len()] }
    }

    fn measure(&mut self, buffers: &mut [Buffer; BUFFERS]) {
        for (lookups, shortest) in Lookups::ALL.into_iter().zip(&mut self.shortest) {
            let (reader, order) = (&mut self.reader, &self.order);
            let begun = Instant::now();
            black_box(match lookups {
                Lookups::Independent => one_by_one::<false>(reader, buffers, order),
                Lookups::Dependent => one_by_one::<true>(reader, buffers, order),
                Lookups::Steps => in_steps(reader, order),
            });
            *shortest = shortest.min(begun.elapsed().as_nanos() as f64 / LOOKUPS as f64);
        }
    }
}

/// Measures lookups in tables of these sizes, table after table in each round.
fn measure(base: &Config, places: &[u64]) -> Vec<Own> {
    let mut tables: Vec<Own> = places.iter().map(|places| Own::new(base, *places)).collect();
    let mut buffers = [[0; 32]; BUFFERS];
    for _ in 0..ROUNDS {
        tables.iter_mut().for_each(|table| table.measure(&mut buffers));
    }
    tables
}

/// Looks the keys up one by one; with `DEPENDENT` each needs the value of the one before.
fn one_by_one<const DEPENDENT: bool>(
    reader: &mut Reader<2>,
    buffers: &mut [Buffer; BUFFERS],
    order: &[u32],
) -> u64 {
    let (mut sum, mut last) = (0, 0);
    for (n, number) in order.iter().enumerate() {
        let key = buffers[n % BUFFERS].first_chunk_mut().expect("a buffer has room for a key");
        *key = key_of(u64::from(*number) + last);
        let value = u64::from(reader.get(key).expect("every inserted key is found"));
        sum += value;
        if DEPENDENT {
            // 0, which the compiler does not know.
            last = value & black_box(0);
        }
    }
    sum
}

/// Looks the keys up a step at a time.
fn in_steps(reader: &mut Reader<2>, order: &[u32]) -> u64 {
    let (mut keys, mut values, mut sum) = ([[0; 2]; TOGETHER], [0; STEP], 0);
    for numbers in order.as_chunks::<TOGETHER>().0 {
        for (key, number) in keys.iter_mut().zip(numbers) {
            *key = key_of(u64::from(*number));
        }
        for step in black_box(&keys).as_chunks::<STEP>().0 {
            let found = reader.get_step(step, &mut values);
            assert_eq!(found, u32::MAX, "every inserted key is found");
            sum += values.iter().map(|value| u64::from(*value)).sum::<u64>();
        }
    }
    sum
}
