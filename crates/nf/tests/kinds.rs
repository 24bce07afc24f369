//! The schemas of the kinds' options agree with their parsers.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};
use thalweg_nf::{KINDS, Kind, Section};

/// The section of the first example of a kind's page.
fn example(kind: &str) -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/nf/{kind}.md"));
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("```toml\n").expect("a page begins with an example");
    let (example, _) = rest.split_once("```").unwrap();
    let table: toml::Table = example.parse().unwrap();
    let sections = table["nf"].as_table().unwrap();
    serde_json::to_value(sections.values().next().unwrap()).unwrap()
}

fn validator(kind: &Kind) -> Validator {
    jsonschema::validator_for(kind.schema().as_value()).unwrap()
}

#[test]
fn the_examples_of_the_documentation_have_the_form_that_is_told() {
    for kind in KINDS {
        let (validator, mut section) = (validator(kind), example(kind.name));
        if let Some(second) = section.pointer_mut("/sa/1").and_then(Value::as_object_mut) {
            // The example abbreviates a second SA like the first.
            for (key, value) in [("spi", json!(300)), ("suite", json!("aes128-gcm16"))] {
                second.insert(key.into(), value);
            }
            for key in ["encryption_key", "source", "destination"] {
                second.insert(key.into(), json!("text"));
            }
        }
        let wrong: Vec<String> = validator.iter_errors(&section).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", kind.name);
        section["optoin"] = json!(1);
        assert!(!validator.is_valid(&section), "{}: an unknown option is allowed", kind.name);
        section.as_object_mut().unwrap().remove("optoin");
        section["kind"] = json!("other");
        assert!(!validator.is_valid(&section), "{}: another kind is allowed", kind.name);
    }
}

/// serde's message about an unknown option lists all known ones.
#[test]
fn the_options_that_are_told_are_those_that_are_read() {
    for kind in KINDS {
        let outputs = ["out".to_owned()];
        let environment = thalweg_nf::Environment { inputs: &[], outputs: &outputs, dry_run: true };
        let told = Section::parse_text("no-such-option = 1", |section| {
            thalweg_nf::build(kind.name, section, &environment).err().map(|e| e.to_string())
        });
        let told = told.expect("an unknown option is refused");
        let schema = kind.schema();
        let names = schema.as_value()["properties"].as_object().unwrap().keys();
        let own = names.filter(|name| !matches!(name.as_str(), "kind" | "pinned"));
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
    let of = |kind: &str, place: &str| {
        Kind::find(kind).unwrap().schema().as_value().pointer(place).cloned()
    };
    assert_eq!(of("router", "/properties/icmp_rate/default"), Some(json!(1000)));
    assert_eq!(of("nat", "/properties/max_sessions/default"), Some(json!(4_194_304)));
    assert_eq!(of("nat", "/properties/max_sessions/maximum"), Some(json!(268_435_456)));
    assert_eq!(of("nat", "/$defs/Timeouts/properties/udp/minimum"), Some(json!(1)));
    assert_eq!(of("monitor", "/properties/max_flows/default"), Some(json!(262_144)));
    assert_eq!(of("monitor", "/properties/max_flows/maximum"), Some(json!(67_108_864)));
    assert_eq!(of("nids", "/properties/unsupported/default"), Some(json!("skip")));
    assert_eq!(of("ipsec", "/properties/default_policy/default"), Some(json!("discard")));
    assert!(Kind::find("none").is_none());
}
