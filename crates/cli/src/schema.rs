//! `thalweg schema`: the JSON Schemas of all JSON that the program writes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use schemars::{JsonSchema, Schema};
use serde_json::Value;
use thalweg_nf::toolkit::output::schema_of;
use thalweg_source::nearest;

use crate::args;
use crate::check::Checked;
use crate::ctl::Runs;
use crate::devices::DeviceList;
use crate::doctor::Diagnosis;
use crate::errors::{Failed, Failure, MistakesFound};
use crate::generate::Generated;
use crate::kinds::{KindList, ShownKind};
use crate::place::Placement;
use crate::ports::{PortKindList, ShownPortKind};
use crate::profile::Profile;
use crate::report::{plain_table, write_json};
use crate::simulate::{Predictions, Races};
use crate::stats::StatsLine;

/// A document, or a line, that the program writes.
struct Document {
    /// Its name with its version: what its field `schema` holds.
    name: &'static str,
    /// The command or the option that writes it.
    written_by: &'static str,
    schema: fn() -> Schema,
}

const fn document<T: JsonSchema>(name: &'static str, written_by: &'static str) -> Document {
    Document { name, written_by, schema: schema_of::<T> }
}

/// The schema of an alert, which is written by hand, as the line is.
fn alert_schema() -> Schema {
    let text = include_str!("../../../docs/schemas/thalweg.nids.alert-1.json");
    serde_json::from_str(text).expect("a test reads the written schema")
}

const DOCUMENTS: &[Document] = &[
    document::<thalweg_engine::Report>(
        "thalweg.run/1",
        "run --json, nat --json, ctl report, and --report with .json",
    ),
    document::<StatsLine<'_>>("thalweg.stats/1", "--stats with --stats-format json, a line each"),
    document::<Checked>("thalweg.check/1", "check --json"),
    document::<MistakesFound>(
        "thalweg.mistakes/1",
        "every command with --json that runs a chain, and check, if files have mistakes",
    ),
    document::<Failed>("thalweg.failure/1", "every command with --json, if it fails otherwise"),
    document::<thalweg_engine::Trace>(
        "thalweg.trace/1",
        "trace --json, ctl trace --json, a line each, and the API",
    ),
    document::<Generated>("thalweg.gen/1", "gen --json"),
    document::<thalweg_control::Status>("thalweg.status/1", "ctl status --json, and the API"),
    document::<thalweg_control::Ports>("thalweg.ports/1", "ctl ports --json, and the API"),
    document::<thalweg_control::Nfs>("thalweg.nfs/1", "ctl nfs --json, and the API"),
    document::<thalweg_control::Rules>("thalweg.rules/1", "ctl rules --json, and the API"),
    document::<thalweg_control::Reloaded>("thalweg.reload/1", "ctl reload --json, and the API"),
    document::<Runs>("thalweg.runs/1", "ctl list --json"),
    document::<KindList>("thalweg.nf.list/1", "nf list --json"),
    document::<ShownKind>("thalweg.nf/1", "nf show --json"),
    document::<PortKindList>("thalweg.port.list/1", "port list --json"),
    document::<ShownPortKind>("thalweg.port/1", "port show --json"),
    document::<Profile>("thalweg.profile/1", "profile --json"),
    document::<Diagnosis>("thalweg.doctor/1", "doctor --json"),
    document::<DeviceList>("thalweg.devices/1", "devices --json"),
    document::<Placement>("thalweg.place/1", "place --json"),
    document::<thalweg_sim::experiment::Report>(
        "thalweg.sim.run/2",
        "sim run --json, in a list; sim sweep and sim claims, a line each",
    ),
    document::<thalweg_sim::report::Verdicts>("thalweg.sim.claims/1", "sim claims --json"),
    document::<Races>("thalweg.sim.race/1", "sim race --json"),
    document::<Predictions>("thalweg.sim.predict/1", "sim predict --json"),
    Document {
        name: "thalweg.state/1",
        written_by: "state.json of run --export-state",
        schema: thalweg_engine::state_schema,
    },
    Document {
        name: "thalweg.acl/1",
        written_by: "hits of an acl, a line each",
        schema: thalweg_acl::line_schema,
    },
    Document {
        name: "thalweg.assets/1",
        written_by: "inventory of an assets, and assets --json, a line each",
        schema: thalweg_assets::line_schema,
    },
    Document {
        name: "thalweg.l7fw/2",
        written_by: "flows of an l7fw, a line each",
        schema: thalweg_l7fw::line_schema,
    },
    Document {
        name: "thalweg.monitor/2",
        written_by: "json of a monitor, and flows --json, a line each",
        schema: thalweg_monitor::line_schema,
    },
    Document {
        name: "thalweg.nids.alert/1",
        written_by: "alerts of a nids, and ids --json, a line each (event_type alert, no field schema)",
        schema: alert_schema,
    },
];

/// Prints the schema that is named, writes all of them, or lists their names.
pub fn schema(options: &args::Schema) -> Result<(), Failure> {
    if let Some(folder) = &options.out {
        return write_all(folder);
    }
    let mut out = io::stdout().lock();
    let Some(name) = &options.name else {
        let mut table = plain_table(&["schema", "written by"]);
        for document in DOCUMENTS {
            table.add_row([document.name, document.written_by]);
        }
        return Ok(writeln!(out, "{table}")?);
    };
    let known = DOCUMENTS.iter().find(|d| d.name == name || d.short_name() == name);
    let document = known.ok_or_else(|| {
        let near = nearest(name, DOCUMENTS.iter().flat_map(|d| [d.name, d.short_name()]));
        let expected = match near {
            Some(near) => format!("did you mean '{near}'?"),
            None => "expected one that 'thalweg schema' lists".into(),
        };
        Failure::Usage(format!("unknown schema '{name}'; {expected}"))
    })?;
    Ok(write_json(&mut out, &document.published())?)
}

fn write_all(folder: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, e: io::Error| Failure::Run(format!("{}: {e}", path.display()));
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    for document in DOCUMENTS {
        let path = folder.join(document.file_name());
        let mut text = Vec::new();
        write_json(&mut text, &document.published())?;
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

impl Document {
    /// Its name without the prefix that all have, and without the version.
    fn short_name(&self) -> &'static str {
        let name = self.name.strip_prefix("thalweg.").unwrap_or(self.name);
        name.split_once('/').map_or(name, |(name, _)| name)
    }

    fn file_name(&self) -> String {
        format!("{}.json", self.name.replace('/', "-"))
    }

    /// The schema, under the name of the document.
    fn published(&self) -> Value {
        let mut schema = (self.schema)();
        schema.insert("title".into(), self.name.into());
        schema.to_value()
    }
}
