//! The options of a section as a table, by their JSON Schema.

use serde_json::Value;

use crate::report::{TextTable, plain_table};

/// The options of a section whose schema is `schema`, under the heading `what`.
pub fn table(what: &str, schema: &Value) -> TextTable {
    let mut table = plain_table(&[what, "takes", "default", "meaning"]);
    for option in options(schema, schema, "") {
        table.add_row([option.name, option.takes, option.default, option.meaning]);
    }
    table
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
        Some("number") => "number".to_owned(),
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
