//! Kinds of ports: what each folder of a kind gives to the registry of a program.
//!
//! The key of a kind chooses it in a section of the chain file: `[input.NAME]` with `capture = ...`
//! is a capture. The kind checks the section and returns a *blueprint*, which is not open yet; the
//! run opens it with its packet memory. Nothing outside of a kind's folder knows the kind.

mod blueprint;
mod link;
mod refusal;
mod section;

use std::fmt;

use schemars::Schema;
use thalweg_source::SourceError;

pub use blueprint::{
    Capabilities, InputBlueprint, InputOpening, Neighbour, Opened, OutputBlueprint, OutputOpening,
    Overrides, PortBlueprint,
};
pub use link::Link;
pub use refusal::{HugePages, MemoryAtHand, Refusal};
pub use section::{Environment, NamedFiles, Section};

/// A kind of port: what its module exports for the registry of a program.
#[derive(Debug)]
pub struct Kind {
    /// Its name in reports and documents.
    pub name: &'static str,
    /// The key that chooses it in `[input.NAME]` and `[output.NAME]`. The value `false` chooses
    /// nothing.
    pub key: &'static str,
    /// The key with an example of its value, for messages: `interface = "NAME"`.
    pub example: &'static str,
    /// A port of this kind, for messages: `an interface`.
    pub noun: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its inputs, if it has some.
    pub input: Option<Side<dyn InputBlueprint>>,
    /// Its outputs, if it has some.
    pub output: Option<Side<dyn OutputBlueprint>>,
}

/// The inputs or the outputs of a kind.
pub struct Side<B: ?Sized> {
    /// The keys of their sections, the one that chooses the kind first: the properties of `options`.
    pub keys: &'static [&'static str],
    /// Keys of other kinds that users look for here, and what was expected in their place. For
    /// further ones, messages name the kinds that have them.
    pub instead: &'static [(&'static str, &'static str)],
    /// The JSON Schema of their sections.
    pub options: fn() -> Schema,
    /// Checks a section, and finds what it names.
    pub build: Build<B>,
}

/// Checks a section, and finds what it names; returns its mistakes otherwise, at least one.
pub type Build<B> = fn(&Section<'_>) -> Result<Box<B>, Vec<SourceError>>;

impl<B: ?Sized> fmt::Debug for Side<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The kinds of ports that a program knows: the registry that a chain file is checked against.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<&'static Kind>);

impl Default for Kinds {
    /// The kinds of this crate.
    fn default() -> Self {
        Self::new([
            &crate::interface::KIND,
            #[cfg(target_os = "linux")]
            &crate::xdp::KIND,
            #[cfg(target_os = "linux")]
            &crate::tap::KIND,
            #[cfg(target_os = "linux")]
            &crate::memif::KIND,
            #[cfg(target_os = "linux")]
            &crate::dpdk::KIND,
            &crate::capture::KIND,
            &crate::generate::KIND,
            &crate::discard::KIND,
        ])
    }
}

impl Kinds {
    /// A registry of `kinds`, in the order in which messages name them.
    pub fn new(kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        kinds.into_iter().fold(Self(Vec::new()), Self::with)
    }

    /// This registry with one more kind, which replaces one with the same key.
    #[must_use]
    pub fn with(mut self, kind: &'static Kind) -> Self {
        match self.0.iter_mut().find(|known| known.key == kind.key) {
            Some(known) => *known = kind,
            None => self.0.push(kind),
        }
        self
    }

    /// All kinds, in the order in which messages name them.
    pub fn iter(&self) -> impl Iterator<Item = &'static Kind> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that the schema of a side has.
    fn properties(options: fn() -> Schema) -> Vec<String> {
        let schema = options();
        assert_eq!(schema.get("additionalProperties"), Some(&false.into()), "{schema:?}");
        let properties = schema.get("properties").and_then(|all| all.as_object());
        let mut keys: Vec<_> = properties.expect("it is a table").keys().cloned().collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn the_keys_of_each_kind_are_those_of_its_schemas() {
        let kinds = Kinds::default();
        assert_eq!(
            kinds.iter().map(|kind| kind.key).collect::<Vec<_>>(),
            ["interface", "xdp", "tap", "memif", "dpdk", "capture", "generate", "discard"]
        );
        for kind in kinds.iter() {
            let input = kind.input.as_ref().map(|side| (side.keys, side.options));
            let output = kind.output.as_ref().map(|side| (side.keys, side.options));
            for (keys, options) in input.into_iter().chain(output) {
                assert_eq!(keys[0], kind.key);
                let mut sorted = keys.to_vec();
                sorted.sort_unstable();
                assert_eq!(sorted, properties(options), "{}", kind.name);
            }
            assert!(kind.example.starts_with(&format!("{} = ", kind.key)), "{kind:?}");
        }
    }

    #[test]
    fn a_later_kind_replaces_one_with_its_key() {
        static OTHER: Kind = Kind {
            name: "other",
            key: "capture",
            example: "capture = 1",
            noun: "another",
            summary: "is for a test",
            input: None,
            output: None,
        };
        let names: Vec<_> = Kinds::default().with(&OTHER).iter().map(|kind| kind.name).collect();
        assert_eq!(
            names,
            ["interface", "xdp", "tap", "memif", "dpdk", "other", "generator", "discard"]
        );
    }
}
