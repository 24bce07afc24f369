//! The schemas of the kinds' options are true, by Python's jsonschema.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use thalweg_cli::built_in_kinds;
use thalweg_nf::Kind;
use thalweg_testkit::peer;

/// Reads a list of `[schema, value]`, and writes for each the list of the value's errors. A schema
/// that is none of draft 2020-12 fails it.
const VALIDATE: &str = "
import json, sys, jsonschema
def errors(schema, value):
    jsonschema.Draft202012Validator.check_schema(schema)
    return [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(value)]
print(json.dumps([errors(*case) for case in json.load(sys.stdin)]))
";

/// The errors of each value by its schema; `None` where the peer is missing.
fn errors(cases: &[(Value, Value)]) -> Option<Vec<Vec<String>>> {
    let input = serde_json::to_string(cases).unwrap();
    let output = peer::python("jsonschema", VALIDATE, &input)?;
    Some(serde_json::from_str(&output).unwrap())
}

/// The section of the first example of a kind's page.
fn example(kind: &str) -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/nf/{kind}.md"));
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("```toml\n").expect("a page begins with an example");
    let (example, _) = rest.split_once("```").unwrap();
    let table: toml::Table = example.parse().unwrap();
    let sections = table["nf"].as_table().unwrap();
    let mut section = serde_json::to_value(sections.values().next().unwrap()).unwrap();
    if let Some(second) = section.pointer_mut("/sa/1").and_then(Value::as_object_mut) {
        // It stands for one that is like the first.
        for (key, value) in [("spi", json!(300)), ("suite", json!("aes128-gcm16"))] {
            second.insert(key.into(), value);
        }
        for key in ["encryption_key", "source", "destination"] {
            second.insert(key.into(), json!("text"));
        }
    }
    section
}

/// A kind's example, and what an option more and another kind make of it: a right value and two
/// wrong ones.
fn cases(kind: &Kind) -> [(Value, Value); 3] {
    let right = example(kind.name);
    let (mut unknown, mut other) = (right.clone(), right.clone());
    unknown["optoin"] = json!(1);
    other["kind"] = json!("other");
    [right, unknown, other].map(|value| (kind.schema().to_value(), value))
}

#[test]
fn the_examples_of_the_documentation_have_the_form_that_is_told() {
    let kinds = built_in_kinds().nfs;
    let cases: Vec<_> = kinds.iter().flat_map(cases).collect();
    let Some(errors) = errors(&cases) else { return };
    for (kind, errors) in kinds.iter().zip(errors.chunks(3)) {
        assert_eq!(errors[0], [""; 0], "{}", kind.name);
        assert!(!errors[1].is_empty(), "{}: an unknown option is allowed", kind.name);
        assert!(!errors[2].is_empty(), "{}: another kind is allowed", kind.name);
    }
}

/// What serde says of an option that there is not names all that there are.
#[test]
fn the_options_that_are_told_are_those_that_are_read() {
    for kind in built_in_kinds().nfs.iter() {
        let told = kind.build_alone("no-such-option = 1").err().map(|e| e.to_string());
        let told = told.expect("an unknown option is refused");
        let schema = kind.schema();
        let names = schema.as_value()["properties"].as_object().unwrap().keys();
        let of_all = ["kind", "pinned", "core", "on_overload", "overload_after_ms"];
        let of_devices = ["at", "work_groups", "fallback", "failed_after_ms"];
        let is_own = |name: &&String| {
            let name = name.as_str();
            !(of_all.contains(&name) || kind.runs_on_devices && of_devices.contains(&name))
        };
        let own = names.filter(is_own);
        let mut known: Vec<&str> = own.map(String::as_str).collect();
        let (_, list) = told.split_once("expected").unwrap_or_else(|| panic!("{told}"));
        let mut read: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        known.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, known, "{}: {told}", kind.name);
    }
}

#[test]
fn defaults_and_bounds_are_told() {
    let kinds = built_in_kinds().nfs;
    let of = |kind: &str, place: &str| {
        kinds.find(kind).unwrap().schema().as_value().pointer(place).cloned()
    };
    assert_eq!(of("router", "/properties/icmp_rate/default"), Some(json!(1000)));
    assert_eq!(of("nat", "/properties/max_sessions/default"), Some(json!(4_194_304)));
    assert_eq!(of("nat", "/properties/max_sessions/maximum"), Some(json!(268_435_456)));
    assert_eq!(of("nat", "/$defs/Timeouts/properties/udp/minimum"), Some(json!(1)));
    assert_eq!(of("monitor", "/properties/max_flows/default"), Some(json!(262_144)));
    assert_eq!(of("monitor", "/properties/max_flows/maximum"), Some(json!(67_108_864)));
    assert_eq!(of("nids", "/properties/unsupported/default"), Some(json!("skip")));
    assert_eq!(of("ipsec", "/properties/default_policy/default"), Some(json!("discard")));
    assert!(kinds.find("none").is_none());
}
