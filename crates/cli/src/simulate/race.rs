//! `thalweg sim race`: a writer and concurrent readers.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_sim::experiment::{self, Race};

use super::load;
use crate::args;
use crate::errors::Failure;
use crate::report::{columns, number_table, wrapped, write_json};

/// The results under each guard.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Races {
    #[schemars(extend("const" = "thalweg.sim.race/1"))]
    schema: &'static str,
    races: Vec<Race>,
}

pub(super) fn race(options: &args::SimRace) -> Result<(), Failure> {
    let config = load(options.config.file.as_deref(), &options.config.settings)?;
    let races = experiment::race(&config).map_err(|e| Failure::Simulation(e.to_string()))?;
    let mut out = io::stdout().lock();
    if options.json {
        return Ok(write_json(&mut out, &Races { schema: "thalweg.sim.race/1", races })?);
    }
    Ok(show(&mut out, &races)?)
}

fn show(out: &mut impl Write, races: &[Race]) -> io::Result<()> {
    let headings = [
        "guard",
        "lookups",
        "missed",
        "retries",
        "insertions",
        "displaced",
        "snoop misses",
        "most per write",
        "cycles per lookup",
        "per change",
    ];
    let mut table = number_table(&headings, 1);
    for race in races {
        table.add_row([
            race.guard.name().to_owned(),
            race.lookups.to_string(),
            race.false_negatives.to_string(),
            race.retries.to_string(),
            race.insertions.to_string(),
            race.displacements.to_string(),
            race.snoop_misses.to_string(),
            race.most_snoop_misses.to_string(),
            format!("{:.0}", race.lookup_cycles),
            format!("{:.0}", race.change_cycles),
        ]);
    }
    writeln!(out, "{table}")?;
    let missed = "missed: lookups that did not find a key that was in the table all the time";
    writeln!(out, "{}", wrapped("", missed.split(' '), " ", columns()))
}
