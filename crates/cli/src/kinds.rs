//! `thalweg nf`: the kinds of network function, their options, state and limits.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thalweg_nf::{Grain, Kind, Kinds};

use crate::args;
use crate::errors::Failure;
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
    let mut table = plain_table(&["option", "takes", "default", "meaning"]);
    for option in options(&schema, &schema, "") {
        table.add_row([option.name, option.takes, option.default, option.meaning]);
    }
    let prose = |lead: &str, text: &str| wrapped(lead, text.split(' '), " ", columns());
    writeln!(out, "{}\n\n{table}\n", prose(&format!("{}: ", kind.name), kind.summary))?;
    writeln!(out, "{}", prose("State that is exported and imported: ", state(kind)))?;
    writeln!(out, "{}", prose("How it moves to another instance: ", kind.grain.describe()))?;
    writeln!(out, "Limits:")?;
    kind.limits.iter().try_for_each(|limit| writeln!(out, "{}", prose("  - ", limit)))
}

/// One row of the table of options.
struct Row {
    name: String,
    takes: String,
    default: String,
    meaning: String,
}

/// The options of a table whose schema is `table`, with those of tables within it. Their names
/// begin with `prefix`; `root` is the whole schema.
fn options(table: &Value, root: &Value, prefix: &str) -> Vec<Row> {
    let required = |name: &str| {
        let all = table["required"].as_array();
        all.is_some_and(|all| all.iter().any(|other| other == name))
    };
    let mut rows = Vec::new();
    for (name, option) in table["properties"].as_object().into_iter().flatten() {
        let form = resolve(option, root);
        let default = match &option["default"] {
            _ if required(name) => "required".to_owned(),
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(all) if all.is_empty() => "none".to_owned(),
            Value::Object(all) if all.is_empty() => "none".to_owned(),
            Value::Object(_) => "below".to_owned(),
            other => other.to_string(),
        };
        let meaning = option["description"].as_str().unwrap_or_default().replace('\n', " ");
        let name = format!("{prefix}{name}");
        let takes = takes(form, root);
        rows.push(Row { name: name.clone(), takes, default, meaning });
        let (element, by_name) = (&form["items"], &form["additionalProperties"]);
        for (within, prefix) in [
            (form, format!("{name}.")),
            (resolve(element, root), format!("{name}[].")),
            (resolve(by_name, root), format!("{name}.NAME.")),
        ] {
            if within["properties"].is_object() {
                rows.extend(options(within, root, &prefix));
            }
        }
    }
    rows
}

/// The schema that `form` refers to, or that it makes optional.
fn resolve<'a>(form: &'a Value, root: &'a Value) -> &'a Value {
    if let Some(place) = form["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
        return root.pointer(place).unwrap_or(&Value::Null);
    }
    let choice = form["anyOf"].as_array().and_then(|all| all.iter().find(|f| f["type"] != "null"));
    choice.map_or(form, |choice| resolve(choice, root))
}

/// The values that a schema allows, in words.
fn takes(form: &Value, root: &Value) -> String {
    let names = |all: &Vec<Value>| {
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| name(one.get("const").unwrap_or(one))).collect::<Vec<_>>().join(", ")
    };
    if let Some(all) = form["oneOf"].as_array().or(form["enum"].as_array()) {
        return names(all);
    }
    if let Some(only) = form["const"].as_str() {
        return only.to_owned();
    }
    let kind = match &form["type"] {
        Value::Array(all) => all.iter().find(|kind| *kind != "null").and_then(Value::as_str),
        other => other.as_str(),
    };
    match kind {
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => range(form),
        Some("array") => match takes(resolve(&form["items"], root), root).as_str() {
            "table" => "list of tables".to_owned(),
            element => format!("list of {element}"),
        },
        Some("object") if form["additionalProperties"].is_object() => "tables by name".to_owned(),
        _ => "table".to_owned(),
    }
}

/// A number and its bounds.
fn range(form: &Value) -> String {
    match (form["minimum"].as_u64(), form["maximum"].as_u64()) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) if least > 0 => format!("{least} or more"),
        _ => "number".to_owned(),
    }
}
