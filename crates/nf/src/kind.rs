//! The kinds of NF, and what a user wants to know of each.

use std::ops::RangeInclusive;

use schemars::Schema;
use serde_json::{Value, json};
use thalweg_cpu::cores::HIGHEST;

use crate::grain::Grain;
use crate::section::Section;
use crate::{Blueprint, BuildError, Environment};

/// The default of `overload_after_ms`.
pub const DEFAULT_OVERLOAD_AFTER_MS: u64 = 10;
/// The bounds of `overload_after_ms`.
pub const OVERLOAD_AFTER_MS: RangeInclusive<u64> = 1..=60_000;

/// The most work-groups of an NF on a device.
pub const MOST_WORK_GROUPS: usize = 4096;
/// The default of `failed_after_ms`.
pub const DEFAULT_FAILED_AFTER_MS: u64 = 1000;
/// The bounds of `failed_after_ms`.
pub const FAILED_AFTER_MS: RangeInclusive<u64> = 1..=60_000;

/// Checks a section and loads its files.
pub type Build = fn(&Section<'_>, &Environment<'_>) -> Result<Box<dyn Blueprint>, BuildError>;

/// A kind of NF: what its crate exports for the registry of a program.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name, as `kind` in a chain file.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The state that is exported and imported, in words; `None` if there is none.
    pub state: Option<&'static str>,
    /// The parts in which that state moves to another instance; [`Grain::None`] exactly if there is
    /// none.
    pub grain: Grain,
    /// Its bounds, and what it does not do.
    pub limits: &'static [&'static str],
    /// Whether it chooses the output of a packet: a chain with several outputs needs such an NF
    /// before `egress`.
    pub chooses_output: bool,
    /// Whether its NFs keep the names or numbers of the chain's ports and packet types. Others are
    /// not told them, so that an NF lives on when ports or types are added.
    pub keeps_names: bool,
    /// Whether its NFs process super-packets: packets of up to 64 KiB that stand for several, whose
    /// transport checksums are unspecified ([`Metadata::segment_size`]). Others get the segments.
    ///
    /// [`Metadata::segment_size`]: thalweg_packet::Metadata::segment_size
    pub takes_supers: bool,
    /// Whether a device can do a part of its work: then its sections may have `at`, and its blueprints
    /// have [`device_work`](Blueprint::device_work).
    pub runs_on_devices: bool,
    /// What would happen if packets bypassed it, for a kind whose sections therefore refuse
    /// `on_overload = "bypass"`, such as `packets would leave unencrypted`; `None` for one that
    /// packets may bypass.
    pub bypass_hazard: Option<&'static str>,
    /// The JSON Schema of its options.
    pub options: fn() -> Schema,
    /// Checks the options of an NF of this kind, and loads its files.
    pub build: Build,
}

impl Kind {
    /// Builds an NF whose options are the TOML `text`, in a chain with one input `in` and one
    /// output `out`: for tests, benches and fuzz targets. It writes no files.
    ///
    /// # Errors
    /// Every mistake found, with its place.
    ///
    /// # Panics
    /// When `text` is not TOML.
    pub fn build_alone(&self, text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
        let (inputs, outputs) = (["in".to_owned()], ["out".to_owned()]);
        let environment = Environment {
            inputs: &inputs,
            outputs: &outputs,
            dry_run: true,
            ..Environment::default()
        };
        self.build_in(text, &environment)
    }

    /// Builds an NF whose options are the TOML `text`: for tests. Without inputs, outputs and
    /// `dry_run`, as by default, it writes the files that its options name.
    ///
    /// # Errors
    /// Every mistake found, with its place.
    ///
    /// # Panics
    /// When `text` is not TOML.
    pub fn build_in(
        &self,
        text: &str,
        environment: &Environment<'_>,
    ) -> Result<Box<dyn Blueprint>, BuildError> {
        Section::parse_text(text, |section| (self.build)(section, environment))
    }

    /// What a section `[nf.NAME]` of this kind may hold, as JSON Schema (2020-12).
    ///
    /// # Panics
    /// Never: options are a table.
    pub fn schema(&self) -> Schema {
        let mut schema = (self.options)();
        let object = schema.ensure_object();
        object.insert("title".into(), format!("[nf.NAME] of kind \"{}\"", self.name).into());
        object.insert("description".into(), self.summary.into());
        let own = json!({ "const": self.name, "description": "The kind of NF." });
        let pinned = json!({
            "type": "boolean",
            "default": false,
            "description": "Whether a thread of its own serves it.",
        });
        let core = json!({
            "type": "integer",
            "minimum": 0,
            "maximum": HIGHEST,
            "description": "The core of that thread, if `pinned`; default: any.",
        });
        let actions =
            if self.bypass_hazard.is_none() { &["bypass", "drop"][..] } else { &["drop"] };
        let on_overload = json!({
            "enum": actions,
            "description": "What becomes of late packets; default: they wait.",
        });
        let overload_after = json!({
            "type": "integer",
            "minimum": OVERLOAD_AFTER_MS.start(),
            "maximum": OVERLOAD_AFTER_MS.end(),
            "default": DEFAULT_OVERLOAD_AFTER_MS,
            "description": "The age at which packets of a live port are late, in milliseconds.",
        });
        let properties = object.entry("properties").or_insert_with(|| json!({}));
        let properties = properties.as_object_mut().expect("properties are an object");
        properties.insert("kind".into(), own);
        properties.insert("pinned".into(), pinned);
        properties.insert("core".into(), core);
        properties.insert("on_overload".into(), on_overload);
        properties.insert("overload_after_ms".into(), overload_after);
        if self.runs_on_devices {
            for (key, schema) in device_keys() {
                let properties = object.get_mut("properties").and_then(Value::as_object_mut);
                properties.expect("properties are an object").insert(key.into(), schema);
            }
        }
        let required = object.entry("required").or_insert_with(|| json!([]));
        required.as_array_mut().expect("'required' is an array").insert(0, Value::from("kind"));
        schema
    }
}

/// The keys of an NF that may run on a device.
fn device_keys() -> [(&'static str, Value); 4] {
    let at = json!({
        "type": "string",
        "default": "cpu",
        "description": "Where it runs: cpu, gpu, soft, or a device that thalweg devices lists.",
    });
    let work_groups = json!({
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_WORK_GROUPS,
        "default": 1,
        "description": "The work-groups of the device that it has.",
    });
    let fallback = json!({
        "enum": ["none", "cpu"],
        "default": "none",
        "description": "Where it runs when the device fails; none: the run ends.",
    });
    let after = json!({
        "type": "integer",
        "minimum": FAILED_AFTER_MS.start(),
        "maximum": FAILED_AFTER_MS.end(),
        "default": DEFAULT_FAILED_AFTER_MS,
        "description": "How long the device may have packets and not move on, in milliseconds.",
    });
    [("at", at), ("work_groups", work_groups), ("fallback", fallback), ("failed_after_ms", after)]
}

/// The kinds of NF that a program knows: the registry that a chain file is checked against.
#[derive(Clone, Debug, Default)]
pub struct Kinds(Vec<Kind>);

impl Kinds {
    /// A registry of `kinds`.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        kinds.into_iter().fold(Self::default(), Self::with)
    }

    /// This registry with one more kind, which replaces one of the same name.
    #[must_use]
    pub fn with(mut self, kind: Kind) -> Self {
        match self.0.binary_search_by_key(&kind.name, |known| known.name) {
            Ok(at) => self.0[at] = kind,
            Err(at) => self.0.insert(at, kind),
        }
        self
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<&Kind> {
        self.iter().find(|kind| kind.name == name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter()
    }

    /// The names of all kinds, for messages.
    pub fn names(&self) -> String {
        self.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_lists_kinds_by_name_and_a_later_one_replaces_an_earlier() {
        let kind = |name, summary| Kind {
            name,
            summary,
            state: None,
            grain: Grain::None,
            limits: &[],
            chooses_output: false,
            keeps_names: false,
            takes_supers: false,
            runs_on_devices: false,
            bypass_hazard: None,
            options: || schemars::json_schema!({}),
            build: |section, _| {
                Err(section.error(0..0, "a test builds nothing", "no section").into())
            },
        };
        let kinds =
            Kinds::new([kind("router", "old"), kind("acl", "a")]).with(kind("router", "new"));
        assert_eq!(kinds.names(), "acl, router");
        assert_eq!(kinds.find("router").map(|kind| kind.summary), Some("new"));
        assert!(kinds.find("nat").is_none());
    }
}
