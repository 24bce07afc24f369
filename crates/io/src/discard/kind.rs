//! Discarding packets as a kind of port.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::SourceError;

use super::DiscardOutput;
use crate::kind::{Kind, Opened, OutputBlueprint, OutputOpening, PortBlueprint, Section, Side};
use crate::port::{IoError, Output};

/// Outputs that discard packets.
pub const KIND: Kind = Kind {
    name: "discard",
    key: "discard",
    example: "discard = true",
    noun: "a discarding output",
    summary: "counts packets and discards them",
    input: None,
    output: Some(Side {
        keys: &["discard"],
        instead: &[],
        options: || schema_for!(Options),
        build,
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Count the packets and discard them.
    #[expect(dead_code, reason = "false would have chosen another kind")]
    discard: bool,
}

/// An output that discards packets, with its name: another one has counts of its own.
struct Discard {
    name: String,
}

fn build(section: &Section<'_>) -> Result<Box<dyn OutputBlueprint>, Vec<SourceError>> {
    section.parse::<Options>()?;
    Ok(Box::new(Discard { name: section.name().to_owned() }))
}

impl PortBlueprint for Discard {
    fn describe(&self) -> String {
        "discard".into()
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>().is_some_and(|other| self.name == other.name)
    }
}

impl OutputBlueprint for Discard {
    fn open(&self, _opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        Ok(Opened::single(Box::new(DiscardOutput), None))
    }
}
