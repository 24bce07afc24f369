//! Generated traffic as a kind of port.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, counted};
use toml::Spanned;

use super::{GeneratorInput, Spec};
use crate::kind::{InputBlueprint, InputOpening, Kind, Opened, PortBlueprint, Section, Side};
use crate::port::{Input, IoError};

/// What was expected in place of keys that repeat a capture.
const PACKETS: &str = "packets = N in generate";

/// Generated traffic.
pub const KIND: Kind = Kind {
    name: "generator",
    key: "generate",
    example: "generate = { ... }",
    noun: "generated traffic",
    summary: "generates packets of many flows, the same for the same seed",
    input: Some(Side {
        keys: &["generate"],
        instead: &[("loop", PACKETS), ("memory", PACKETS)],
        options: || schema_for!(Options),
        build,
    }),
    output: None,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The traffic; every key has a default.
    #[schemars(with = "Spec")]
    generate: Spanned<Spec>,
}

fn build(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let Options { generate } = section.parse()?;
    let span = generate.span();
    let spec = generate.into_inner();
    match spec.validate() {
        Ok(()) => Ok(Box::new(spec)),
        Err(e) => Err(vec![section.error(span, format!("{}: {}", e.field, e.what), e.expected)]),
    }
}

impl PortBlueprint for Spec {
    fn describe(&self) -> String {
        let flows = counted(self.flows, "flow");
        format!("{} in {flows}", counted(self.packets, "generated packet"))
    }

    fn title(&self) -> String {
        format!("generator: {}", self.describe())
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }
}

impl InputBlueprint for Spec {
    fn open(&self, _opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        Ok(Opened::single(Box::new(GeneratorInput::new(self.clone())?), None))
    }
}
