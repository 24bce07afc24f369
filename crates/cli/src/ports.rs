//! `thalweg port`: the kinds of port, and the keys of their sections.

use std::io::{self, Write};

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;
use thalweg_io::kind::{Kind, Kinds, Side};

use crate::args;
use crate::errors::Failure;
use crate::options;
use crate::report::{columns, plain_table, wrapped, write_json};

/// The kinds of port.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PortKindList {
    #[schemars(extend("const" = "thalweg.port.list/1"))]
    schema: &'static str,
    kinds: Vec<Listed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// Its name in reports.
    kind: &'static str,
    /// The key that chooses it in a section.
    key: &'static str,
    summary: &'static str,
    /// Whether it has inputs.
    input: bool,
    /// Whether it has outputs.
    output: bool,
}

/// A kind of port.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownPortKind {
    #[schemars(extend("const" = "thalweg.port/1"))]
    schema: &'static str,
    /// Its name in reports.
    kind: &'static str,
    /// The key that chooses it in a section.
    key: &'static str,
    summary: &'static str,
    /// The JSON Schema of a section `[input.NAME]`; absent if it has no inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// The JSON Schema of a section `[output.NAME]`; absent if it has no outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
}

/// Runs the command that `options` names.
pub fn show_kinds(options: &args::Port, kinds: &Kinds) -> Result<(), Failure> {
    match options {
        args::Port::List { json } => Ok(list(kinds, *json)?),
        args::Port::Show { kind, json } => {
            let is_it = |known: &&Kind| known.name == kind || known.key == kind;
            let known = kinds.iter().find(is_it).ok_or_else(|| {
                let all: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
                let all = all.join(", ");
                Failure::Usage(format!("unknown kind of port '{kind}'; expected one of {all}"))
            })?;
            Ok(show(known, *json)?)
        }
    }
}

fn list(kinds: &Kinds, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let describe = |kind: &Kind| Listed {
            kind: kind.name,
            key: kind.key,
            summary: kind.summary,
            input: kind.input.is_some(),
            output: kind.output.is_some(),
        };
        let kinds = kinds.iter().map(describe).collect();
        return write_json(&mut out, &PortKindList { schema: "thalweg.port.list/1", kinds });
    }
    let mut table = plain_table(&["kind", "key", "input", "output", "what it does"]);
    let yes = |has: bool| if has { "yes" } else { "no" };
    for kind in kinds.iter() {
        let sides = [yes(kind.input.is_some()), yes(kind.output.is_some())];
        table.add_row([kind.name, kind.key, sides[0], sides[1], kind.summary]);
    }
    writeln!(out, "{table}")
}

/// The schema of one side of a kind.
fn schema<B: ?Sized>(kind: &Kind, direction: &str, side: Option<&Side<B>>) -> Option<Value> {
    let mut schema: Schema = (side?.options)();
    let object = schema.ensure_object();
    object.insert("title".into(), format!("[{direction}.NAME] with {}", kind.key).into());
    object.insert("description".into(), kind.summary.into());
    Some(schema.to_value())
}

fn show(kind: &Kind, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let input = schema(kind, "input", kind.input.as_ref());
    let output = schema(kind, "output", kind.output.as_ref());
    let Kind { name, key, summary, .. } = *kind;
    if json {
        let schema = "thalweg.port/1";
        let shown = ShownPortKind { schema, kind: name, key, summary, input, output };
        return write_json(&mut out, &shown);
    }
    writeln!(out, "{}", wrapped(&format!("{name}: "), summary.split(' '), " ", columns()))?;
    for (direction, schema) in [("input", input), ("output", output)] {
        if let Some(schema) = schema {
            let table = options::table(&format!("[{direction}.NAME]"), &schema);
            writeln!(out, "\n{table}")?;
        }
    }
    Ok(())
}
