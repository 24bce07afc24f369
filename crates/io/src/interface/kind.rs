//! Network interfaces as a kind of port.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, outside};
use toml::Spanned;

use super::{InterfaceInput, InterfaceOutput, check_interface, interfaces, link_of};
use crate::filter::Filter;
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, Opened, OutputBlueprint, OutputOpening,
    PortBlueprint, Section, Side,
};
use crate::port::{Input, IoError, Output};

/// What was expected in place of keys that end a capture.
const END: &str = "--duration or --count to end the run";

/// Network interfaces of this machine.
pub const KIND: Kind = Kind {
    name: "interface",
    key: "interface",
    example: "interface = \"NAME\"",
    noun: "an interface",
    summary: "receives and sends packets by a network interface",
    input: Some(Side {
        keys: &["interface", "promiscuous", "filter"],
        instead: &[("loop", END), ("memory", END)],
        options: || schema_for!(InputOptions),
        build: build_input,
    }),
    output: Some(Side {
        keys: &["interface"],
        instead: &[],
        options: || schema_for!(OutputOptions),
        build: build_output,
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputOptions {
    /// The name of an Ethernet or loopback interface.
    #[schemars(with = "String")]
    interface: Spanned<String>,
    /// Receive packets to any MAC address.
    #[serde(default = "promiscuous")]
    promiscuous: bool,
    /// A filter in libpcap's language that received packets match.
    #[schemars(with = "Option<String>")]
    filter: Option<Spanned<String>>,
}

fn promiscuous() -> bool {
    true
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputOptions {
    /// The name of an Ethernet or loopback interface.
    #[schemars(with = "String")]
    interface: Spanned<String>,
}

/// Checks that there is such an interface and, if the run opens it, that it may.
pub(crate) fn check_name(section: &Section<'_>, name: &Spanned<String>) -> Option<SourceError> {
    let environment = section.environment();
    if environment.any_device {
        return None;
    }
    let (span, name, names) = (name.span(), name.get_ref(), interfaces());
    if !names.contains(name) {
        let message = format!("there is no interface '{name}'");
        return Some(section.error(span, message, format!("one of {}", names.join(", "))));
    }
    let problem =
        environment.opens.then(|| outside::privileged(|| check_interface(name)).err()).flatten()?;
    let message = format!("interface '{name}': {}", problem.what());
    Some(section.error(span, message, "an interface that can be opened"))
}

/// An interface from which packets are received.
#[derive(PartialEq)]
struct InterfaceSource {
    name: String,
    promiscuous: bool,
    filter: Option<Filter>,
}

fn build_input(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let InputOptions { interface, promiscuous, filter } = section.parse()?;
    let mut errors: Vec<_> = check_name(section, &interface).into_iter().collect();
    let filter = filter.and_then(|text| Filter::of_option(section, &text, &mut errors));
    let source = InterfaceSource { name: interface.into_inner(), promiscuous, filter };
    if errors.is_empty() { Ok(Box::new(source)) } else { Err(errors) }
}

impl PortBlueprint for InterfaceSource {
    fn describe(&self) -> String {
        format!("interface {}", self.name)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        let offloads = &["checksum", "segmentation", "vlan"];
        Capabilities { offloads, super_packets: true, ..Capabilities::default() }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.name)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.name)
    }
}

impl InputBlueprint for InterfaceSource {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let filter = opening.overrides.filter.as_ref().or(self.filter.as_ref());
        let input =
            outside::privileged(|| InterfaceInput::open(&self.name, self.promiscuous, filter))?;
        let mode = input.mode();
        Ok(Opened::single(Box::new(input), mode))
    }

    fn can_filter(&self) -> bool {
        true
    }
}

/// An interface by which packets are sent.
#[derive(PartialEq)]
struct InterfaceTarget(String);

fn build_output(section: &Section<'_>) -> Result<Box<dyn OutputBlueprint>, Vec<SourceError>> {
    let OutputOptions { interface } = section.parse()?;
    match check_name(section, &interface) {
        Some(error) => Err(vec![error]),
        None => Ok(Box::new(InterfaceTarget(interface.into_inner()))),
    }
}

impl PortBlueprint for InterfaceTarget {
    fn describe(&self) -> String {
        format!("interface {}", self.0)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { super_packets: true, ..Capabilities::default() }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.0)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.0)
    }
}

impl OutputBlueprint for InterfaceTarget {
    fn open(&self, _opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let output = outside::privileged(|| InterfaceOutput::open(&self.0))?;
        let mode = output.mode();
        Ok(Opened::single(Box::new(output), mode))
    }
}
