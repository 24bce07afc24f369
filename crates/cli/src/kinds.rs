//! `thalweg nf`: the kinds of network function, their options, state and limits.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thalweg_nf::{Grain, Kind, Kinds};

use crate::args;
use crate::errors::Failure;
use crate::options;
use crate::report::{columns, plain_table, wrapped, write_json};

/// The kinds of network function.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KindList {
    #[schemars(extend("const" = "thalweg.nf.list/1"))]
    schema: &'static str,
    kinds: Vec<Listed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    kind: &'static str,
    summary: &'static str,
    /// The state that it exports, in words.
    state: &'static str,
}

/// A kind of network function.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownKind {
    #[schemars(extend("const" = "thalweg.nf/1"))]
    schema: &'static str,
    kind: &'static str,
    summary: &'static str,
    /// The state that it exports, in words.
    state: &'static str,
    /// The parts in which that state moves to another instance.
    grain: Grain,
    limits: Vec<&'static str>,
    /// The JSON Schema of its section in a chain file.
    options: Value,
}

/// Runs the command that `options` names.
pub fn show_kinds(options: &args::Nf, kinds: &Kinds) -> Result<(), Failure> {
    match options {
        args::Nf::List { json } => Ok(list(kinds, *json)?),
        args::Nf::Show { kind, json } => {
            let known = kinds.find(kind).ok_or_else(|| {
                let all = kinds.names();
                Failure::Usage(format!("unknown NF kind '{kind}'; expected one of {all}"))
            })?;
            Ok(show(known, *json)?)
        }
    }
}

fn list(kinds: &Kinds, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let describe =
            |kind: &Kind| Listed { kind: kind.name, summary: kind.summary, state: state(kind) };
        let kinds = kinds.iter().map(describe).collect();
        return write_json(&mut out, &KindList { schema: "thalweg.nf.list/1", kinds });
    }
    let mut table = plain_table(&["kind", "what it does", "exported state"]);
    for kind in kinds.iter() {
        table.add_row([kind.name, kind.summary, state(kind)]);
    }
    writeln!(out, "{table}")
}

/// The state of a kind, in words.
fn state(kind: &Kind) -> &'static str {
    kind.state.unwrap_or("none")
}

fn show(kind: &Kind, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let schema = kind.schema().to_value();
    if json {
        let shown = ShownKind {
            schema: "thalweg.nf/1",
            kind: kind.name,
            summary: kind.summary,
            state: state(kind),
            grain: kind.grain,
            limits: kind.limits.to_vec(),
            options: schema,
        };
        return write_json(&mut out, &shown);
    }
    let table = options::table("option", &schema);
    let prose = |lead: &str, text: &str| wrapped(lead, text.split(' '), " ", columns());
    writeln!(out, "{}\n\n{table}\n", prose(&format!("{}: ", kind.name), kind.summary))?;
    writeln!(out, "{}", prose("State that is exported and imported: ", state(kind)))?;
    writeln!(out, "{}", prose("How it moves to another instance: ", kind.grain.describe()))?;
    writeln!(out, "Limits:")?;
    kind.limits.iter().try_for_each(|limit| writeln!(out, "{}", prose("  - ", limit)))
}
