//! `thalweg profile`: where the cycles of a packet go, by kind of traffic.
//!
//! The mixes are those of HALO (Yuan et al., "HALO: Accelerating Flow
//! Classification for Scalable Packet Processing in NFV", ISCA 2019, figure 3):
//! few flows, many flows, few and many rules, and rules some of which are hot.

mod mixes;
mod picture;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_chain::{Kinds, PlanOptions};
use thalweg_engine::{Control, Report, RunOptions};

use self::mixes::{MIXES, Mix};
use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::report::{number_table, write_json};
use crate::signals;
use thalweg_source::counted;

/// The stages in the order of the path: the name in the report, and the one shown.
const STAGES: [(&str, &str); 6] = [
    ("io", "I/O"),
    ("parse", "pre-processing"),
    ("emc", "EMC"),
    ("megaflow", "megaflow"),
    ("rules", "rules"),
    ("other", "other"),
];

/// The measurements of all mixes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Profile {
    #[schemars(extend("const" = "thalweg.profile/1"))]
    schema: &'static str,
    /// The level of vector instructions: scalar, avx2 or avx512.
    isa: &'static str,
    mixes: Vec<Profiled>,
}

/// The measurements of one mix: its median sample, and the spread of all.
#[derive(Debug, Serialize, JsonSchema)]
struct Profiled {
    name: &'static str,
    flows: u32,
    rules: u32,
    #[serde(flatten)]
    median: Sample,
    /// The cycles per packet of each sample, in the order measured.
    samples: Vec<f64>,
    /// The least and the most cycles per packet of all samples.
    spread: Spread,
    /// The same for each stage, by the names of [`STAGES`].
    stage_spreads: [Spread; STAGES.len()],
}

/// One measurement of a mix.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Sample {
    packets: u64,
    cycles_per_packet: f64,
    /// By the names of [`STAGES`].
    stages: [f64; STAGES.len()],
    subtables: u64,
    emc_hits: u64,
    megaflow_hits: u64,
    rule_lookups: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
struct Spread {
    min: f64,
    max: f64,
}

/// Measures every mix several times and shows the share of each stage.
pub fn profile(options: &args::Profile, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let folder = tempfile::tempdir().map_err(|e| Failure::Run(format!("temporary folder: {e}")))?;
    let mut chains = Vec::new();
    for (at, mix) in MIXES.iter().enumerate() {
        stop(&control)?;
        if !quiet {
            log::info!("traffic {} of {}: {}", at + 1, MIXES.len(), mix.name);
        }
        let folder = folder.path().join(at.to_string());
        chains.push(mix.prepare(&folder, options.emc_entries, options.packets)?);
    }
    let mut profile = Profile { schema: "thalweg.profile/1", isa: "", mixes: Vec::new() };
    let mut samples = MIXES.map(|_| Vec::new());
    // Mix after mix in each round, so that other load on the machine falls on all of them.
    for round in 1..=options.samples {
        for ((mix, chain), samples) in MIXES.iter().zip(&chains).zip(&mut samples) {
            if !quiet {
                log::info!("sample {round} of {}: {}", options.samples, mix.name);
            }
            let report = run(chain, options.packets, kinds, &control)?;
            profile.isa = report.isa;
            samples.push(Sample::new(&report));
            stop(&control)?;
        }
    }
    profile.mixes = MIXES.iter().zip(samples).map(|(mix, all)| Profiled::new(mix, all)).collect();
    if let Some(path) = &options.svg {
        let write = |e: &dyn std::fmt::Display| Failure::Run(format!("{}: {e}", path.display()));
        let svg = picture::draw(&profile).map_err(|e| write(&e))?;
        std::fs::write(path, svg).map_err(|e| write(&e))?;
    }
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &profile)?;
    } else {
        show(&mut out, &profile)?;
    }
    Ok(())
}

/// Ends the profile if its end was requested: fewer samples would have another spread.
fn stop(control: &Control) -> Result<(), Failure> {
    if control.is_stopping() { Err(Failure::Run("interrupted".into())) } else { Ok(()) }
}

/// Sends `packets` packets through a chain without NFs, with the stages timed.
fn run(chain: &Path, packets: u64, kinds: &Kinds, control: &Control) -> Result<Report, Failure> {
    let plan = load(chain, kinds, PlanOptions::default())?;
    let options = RunOptions { count: Some(packets), stages: true, ..RunOptions::default() };
    let report =
        thalweg_engine::run(plan, &options, control).map_err(|e| Failure::Run(e.to_string()))?;
    match report.failures.first() {
        None => Ok(report),
        Some(failure) => Err(Failure::Run(failure.clone())),
    }
}

impl Sample {
    fn new(report: &Report) -> Self {
        let count = |name: &str| report.classification.get(name).copied().unwrap_or(0);
        let stage = |name: &str| report.stages.get(name).copied().unwrap_or(0.0);
        Self {
            packets: report.packets_in,
            cycles_per_packet: report.cycles_per_packet,
            stages: STAGES.map(|(name, _)| stage(name)),
            subtables: count("subtables"),
            emc_hits: count("emc_hits"),
            megaflow_hits: count("megaflow_hits"),
            rule_lookups: count("rule_lookups"),
        }
    }
}

impl Profiled {
    /// The profile of a mix with at least one sample.
    fn new(mix: &Mix, samples: Vec<Sample>) -> Self {
        let cycles: Vec<f64> = samples.iter().map(|sample| sample.cycles_per_packet).collect();
        Self {
            name: mix.name,
            flows: mix.flows,
            rules: mix.rules,
            spread: Spread::of(cycles.iter().copied()),
            stage_spreads: std::array::from_fn(|stage| {
                Spread::of(samples.iter().map(|sample| sample.stages[stage]))
            }),
            samples: cycles,
            median: median(samples),
        }
    }
}

/// The sample in the middle by its cycles: whole, so that its stages add up. An even number of
/// samples has two in the middle; this is the lower one.
fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.cycles_per_packet.total_cmp(&b.cycles_per_packet));
    samples.swap_remove((samples.len() - 1) / 2)
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let min = values.clone().fold(f64::INFINITY, f64::min);
        Self { min, max: values.fold(f64::NEG_INFINITY, f64::max) }
    }
}

fn show(out: &mut impl Write, profile: &Profile) -> io::Result<()> {
    let samples = profile.mixes.first().map_or(0, |mix| mix.samples.len());
    let samples = counted(samples as u64, "sample");
    writeln!(
        out,
        "cycles per packet, the median of {samples} with the least and the most, and its shares by \
         stage; one worker, {}",
        profile.isa
    )?;
    let mut headings = vec!["traffic", "cycles", "min", "max"];
    headings.extend(STAGES.map(|(_, name)| name));
    headings.push("subtables");
    let mut table = number_table(&headings, 1);
    for mix in &profile.mixes {
        let (median, spread) = (&mix.median, mix.spread);
        let mut row = vec![mix.name.to_owned()];
        let cycles = [median.cycles_per_packet, spread.min, spread.max];
        row.extend(cycles.map(|cycles| format!("{cycles:.0}")));
        let share = |cycles: f64| format!("{:.0} %", 100.0 * cycles / median.cycles_per_packet);
        row.extend(median.stages.map(share));
        row.push(median.subtables.to_string());
        table.add_row(row);
    }
    writeln!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cycles: f64) -> Sample {
        Sample {
            packets: 1000,
            cycles_per_packet: cycles,
            stages: [cycles / 2.0, cycles / 2.0, 0.0, 0.0, 0.0, 0.0],
            subtables: 1,
            emc_hits: 0,
            megaflow_hits: 0,
            rule_lookups: 0,
        }
    }

    #[test]
    fn the_median_is_a_whole_sample_and_the_spread_is_that_of_all() {
        for (cycles, middle) in [
            (&[200.0][..], 200.0),
            (&[300.0, 100.0], 100.0),
            (&[900.0, 100.0, 200.0], 200.0),
            (&[4.0, 1.0, 3.0, 2.0], 2.0),
        ] {
            let samples = cycles.iter().copied().map(sample).collect();
            let profiled = Profiled::new(&MIXES[0], samples);
            let whole: f64 = profiled.median.stages.iter().sum();
            for cycles in [profiled.median.cycles_per_packet, whole] {
                assert!((cycles - middle).abs() < 1e-9, "{cycles} {middle}");
            }
            assert_eq!(profiled.samples, cycles);
            let [min, max] = [profiled.spread.min, profiled.spread.max];
            assert!(cycles.iter().all(|c| (min..=max).contains(c)), "{cycles:?}");
            assert!(cycles.contains(&min) && cycles.contains(&max));
            assert_eq!(profiled.stage_spreads[1], Spread { min: min / 2.0, max: max / 2.0 });
        }
    }

    #[test]
    fn the_picture_shows_the_spread() {
        let mixes = |cycles: &[f64]| {
            let samples: Vec<Sample> = cycles.iter().copied().map(sample).collect();
            MIXES.iter().map(|mix| Profiled::new(mix, samples.clone())).collect()
        };
        let draw = |cycles: &[f64]| {
            let profile = Profile { schema: "", isa: "scalar", mixes: mixes(cycles) };
            picture::draw(&profile).unwrap()
        };
        let lines = |svg: &str| svg.matches("stroke=\"#000000\"").count();
        // A whisker for each mix.
        let (one, several) = (draw(&[200.0]), draw(&[100.0, 200.0, 400.0]));
        assert!(lines(&several) >= lines(&one) + MIXES.len(), "{several}");
        assert!(several.contains("median of 3 samples"), "{several}");
    }
}
