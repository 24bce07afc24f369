//! The kinds of NF, with the description of each for users.

use schemars::Schema;
use serde_json::{Value, json};
use thalweg_classify::source::SourceError;

use crate::section::Section;
use crate::{
    Blueprint, BuildError, Environment, acl, assets, defrag, filter, ipsec, l7fw, monitor, nat,
    nids, refrag, router, tunnel,
};

/// Checks a section and loads its files.
type Build = fn(&Section<'_>, &Environment<'_>) -> Result<Box<dyn Blueprint>, BuildError>;

/// A kind of NF.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name, as `kind` in a chain file.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The state that it keeps of packets, exports and imports; "none" without any.
    pub state: &'static str,
    /// Its capacity limits, and what it does not support.
    pub limits: &'static [&'static str],
    pub(crate) options: fn() -> Schema,
    pub(crate) build: Build,
}

/// All kinds, by name.
pub const KINDS: &[Kind] = &[
    acl::KIND,
    assets::KIND,
    defrag::KIND,
    filter::KIND,
    ipsec::KIND,
    l7fw::KIND,
    monitor::KIND,
    nat::KIND,
    nids::KIND,
    refrag::KIND,
    router::KIND,
    tunnel::KIND,
];

impl Kind {
    /// The kind of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Whether it keeps state that is exported and imported.
    pub fn has_state(&self) -> bool {
        self.state != "none"
    }

    /// The names of all kinds, for messages.
    pub fn names() -> String {
        KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    }

    /// The options of a section `[nf.NAME]` of this kind, as JSON Schema (2020-12).
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
            "description": "Whether the NF runs on its own worker.",
        });
        let properties = object.entry("properties").or_insert_with(|| json!({}));
        let properties = properties.as_object_mut().expect("properties are an object");
        properties.insert("kind".into(), own);
        properties.insert("pinned".into(), pinned);
        let required = object.entry("required").or_insert_with(|| json!([]));
        required
            .as_array_mut()
            .expect("what is required is an array")
            .insert(0, Value::from("kind"));
        schema
    }
}

/// Checks the configuration `section` of an NF of `kind`, and loads its files.
///
/// # Errors
/// All mistakes found, each with its place.
pub fn build(
    kind: &str,
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let Some(known) = Kind::find(kind) else {
        let expected = format!("one of {}", Kind::names());
        let error: SourceError =
            section.error(section.span(), format!("no NF of kind '{kind}'"), expected);
        return Err(error.into());
    };
    (known.build)(section, environment)
}
