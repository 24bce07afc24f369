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

use serde::Serialize;
use thalweg_chain::{Control, PlanOptions, Report, RunOptions};
use thalweg_nf::Kinds;

use self::mixes::{MIXES, Mix};
use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::report::{number_table, write_json};
use crate::signals;

/// The stages in the order of the path: the name in the report, and the one shown.
const STAGES: [(&str, &str); 6] = [
    ("io", "I/O"),
    ("parse", "pre-processing"),
    ("emc", "EMC"),
    ("megaflow", "megaflow"),
    ("rules", "rules"),
    ("other", "other"),
];

#[derive(Debug, Serialize)]
struct Profile {
    schema: &'static str,
    isa: &'static str,
    mixes: Vec<Profiled>,
}

/// The measurements of one mix.
#[derive(Debug, Serialize)]
struct Profiled {
    name: &'static str,
    flows: u32,
    rules: u32,
    packets: u64,
    cycles_per_packet: f64,
    /// By the names of [`STAGES`].
    stages: [f64; STAGES.len()],
    subtables: u64,
    emc_hits: u64,
    megaflow_hits: u64,
    rule_lookups: u64,
}

/// Runs every mix and shows the share of each stage.
pub fn profile(options: &args::Profile, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let folder = tempfile::tempdir().map_err(|e| Failure::Run(format!("temporary folder: {e}")))?;
    let mut profile = Profile { schema: "thalweg.profile/1", isa: "", mixes: Vec::new() };
    for (at, mix) in MIXES.iter().enumerate() {
        if !quiet {
            log::info!("{} of {}: {}", at + 1, MIXES.len(), mix.name);
        }
        let report = run(mix, options, kinds, folder.path(), &control)?;
        profile.isa = report.isa;
        profile.mixes.push(Profiled::new(mix, &report));
        if control.is_stopping() {
            return Err(Failure::Run("interrupted".into()));
        }
    }
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

/// Sends the mix through a chain without NFs, with the stages timed.
fn run(
    mix: &Mix,
    options: &args::Profile,
    kinds: &Kinds,
    folder: &Path,
    control: &Control,
) -> Result<Report, Failure> {
    let chain = mix.prepare(folder, options.emc_entries)?;
    let plan = load(&chain, kinds, PlanOptions::default())?;
    let options =
        RunOptions { count: Some(options.packets), stages: true, ..RunOptions::default() };
    let report =
        thalweg_chain::run(plan, &options, control).map_err(|e| Failure::Run(e.to_string()))?;
    match report.failures.first() {
        None => Ok(report),
        Some(failure) => Err(Failure::Run(failure.clone())),
    }
}

impl Profiled {
    fn new(mix: &Mix, report: &Report) -> Self {
        let count = |name: &str| report.classification.get(name).copied().unwrap_or(0);
        let stage = |name: &str| report.stages.get(name).copied().unwrap_or(0.0);
        Self {
            name: mix.name,
            flows: mix.flows,
            rules: mix.rules,
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

fn show(out: &mut impl Write, profile: &Profile) -> io::Result<()> {
    writeln!(out, "cycles per packet and shares by stage, one worker, {}", profile.isa)?;
    let mut headings = vec!["traffic", "cycles"];
    headings.extend(STAGES.map(|(_, name)| name));
    headings.push("subtables");
    let mut table = number_table(&headings, 1);
    for mix in &profile.mixes {
        let mut row = vec![mix.name.to_owned(), format!("{:.0}", mix.cycles_per_packet)];
        let share = |cycles: f64| format!("{:.0} %", 100.0 * cycles / mix.cycles_per_packet);
        row.extend(mix.stages.map(share));
        row.push(mix.subtables.to_string());
        table.add_row(row);
    }
    writeln!(out, "{table}")
}
