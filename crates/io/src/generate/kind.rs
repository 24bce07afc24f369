//! Generated traffic as a kind of port.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, counted};
use toml::Spanned;

use super::{GeneratorInput, Spec};
use crate::kind::{InputBlueprint, InputOpening, Kind, Opened, PortBlueprint, Section, Side};
use crate::paced::Pace;
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
        keys: &["generate", "pace"],
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
    /// Generate packets when their times come: 1.0 in real time, 2.0 twice as fast.
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pace: Option<Spanned<f64>>,
}

/// An input that generates traffic.
#[derive(PartialEq)]
struct Generator {
    spec: Spec,
    pace: Option<Pace>,
}

fn build(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let Options { generate, pace } = section.parse()?;
    let mut errors = Vec::new();
    let pace = Pace::of_option(section, pace, &mut errors);
    let span = generate.span();
    let spec = generate.into_inner();
    if let Err(e) = spec.validate() {
        errors.push(section.error(span, format!("{}: {}", e.field, e.what), e.expected));
    }
    if errors.is_empty() { Ok(Box::new(Generator { spec, pace })) } else { Err(errors) }
}

impl PortBlueprint for Generator {
    fn describe(&self) -> String {
        let flows = counted(self.spec.flows, "flow");
        format!("{} in {flows}", counted(self.spec.packets, "generated packet"))
    }

    fn title(&self) -> String {
        format!("generator: {}", self.describe())
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn mode(&self) -> Option<String> {
        self.pace.map(|pace| pace.to_string())
    }
}

impl InputBlueprint for Generator {
    fn open(&self, _opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        Ok(Opened::single(Box::new(GeneratorInput::new(self.spec.clone())?), self.mode()))
    }

    fn pace(&self) -> Option<Pace> {
        self.pace
    }
}
