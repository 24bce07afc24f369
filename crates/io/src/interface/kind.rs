//! Network interfaces as a kind of port.

use std::sync::Arc;

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, outside};
use toml::Spanned;

use super::{InterfaceInput, InterfaceOutput, check_interface, interfaces, link_of};
use crate::filter::Filter;
use crate::host;
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, Opened, OutputBlueprint, OutputOpening,
    PortBlueprint, Section, Side,
};
use crate::links::{self, Following, KnownMtu, OnRemoval};
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
        keys: &["interface", "promiscuous", "filter", "queues", "on_removal"],
        instead: &[("loop", END), ("memory", END)],
        options: || schema_for!(InputOptions),
        build: build_input,
    }),
    output: Some(Side {
        keys: &["interface", "queues", "force", "on_removal"],
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
    /// The most queues, up to 256, over which packets are spread by flow, so that several workers receive
    /// at the same time; as many as workers without it.
    #[schemars(with = "Option<u16>")]
    queues: Option<Spanned<u16>>,
    /// What to do when the interface is removed: end the run, or wait until there is one of its name.
    #[serde(default)]
    on_removal: OnRemoval,
}

/// The most sockets of a group that every kernel permits (`PACKET_FANOUT_MAX`).
const MAX_QUEUES: u16 = 256;

/// The most queues by an option; as many as a run requests without it.
fn queues_of(
    section: &Section<'_>,
    queues: Option<&Spanned<u16>>,
    errors: &mut Vec<SourceError>,
) -> usize {
    let Some(queues) = queues else { return MAX_QUEUES.into() };
    if !(1..=MAX_QUEUES).contains(queues.get_ref()) {
        let message = format!("'queues' is {}", queues.get_ref());
        errors.push(section.error(queues.span(), message, format!("1 to {MAX_QUEUES}")));
    }
    usize::from(*queues.get_ref())
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
    /// The most queues, up to 256, by which several workers send at the same time; as many as workers
    /// without it.
    #[schemars(with = "Option<u16>")]
    queues: Option<Spanned<u16>>,
    /// Send by the interface even if the host's default route or a session of SSH uses it.
    #[serde(default)]
    force: bool,
    /// What to do when the interface is removed: end the run, or wait until there is one of its name.
    #[serde(default)]
    on_removal: OnRemoval,
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
    Some(section.error(span, message, problem.refusal().expected))
}

/// An interface from which packets are received.
#[derive(Clone, PartialEq)]
struct InterfaceSource {
    name: String,
    promiscuous: bool,
    filter: Option<Filter>,
    /// The most queues.
    queues: usize,
    on_removal: OnRemoval,
}

fn build_input(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let InputOptions { interface, promiscuous, filter, queues, on_removal } = section.parse()?;
    let mut errors: Vec<_> = check_name(section, &interface).into_iter().collect();
    let filter = filter.and_then(|text| Filter::of_option(section, &text, &mut errors));
    let queues = queues_of(section, queues.as_ref(), &mut errors);
    let name = interface.into_inner();
    let source = InterfaceSource { name, promiscuous, filter, queues, on_removal };
    if errors.is_empty() { Ok(Box::new(source)) } else { Err(errors) }
}

impl InterfaceSource {
    fn open_queues(&self) -> Result<Vec<InterfaceInput>, IoError> {
        let Self { name, promiscuous, filter, queues, .. } = self;
        outside::privileged(|| {
            InterfaceInput::open_queues(name, *promiscuous, filter.as_ref(), *queues)
        })
    }
}

impl PortBlueprint for InterfaceSource {
    fn describe(&self) -> String {
        format!("interface {}", self.name)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        let (queues, offloads) = (self.queues, &["checksum", "segmentation", "vlan"]);
        Capabilities { queues, offloads, super_packets: true, ..Capabilities::default() }
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
        let filter = opening.overrides.filter.clone().or_else(|| self.filter.clone());
        let queues = self.queues.min(opening.queues);
        let source = Self { filter, queues, ..self.clone() };
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let boxed = move |inputs: Vec<InterfaceInput>| -> Vec<Box<dyn Input>> {
            let of = |input: InterfaceInput| Box::new(input.with_mtu(known.clone())) as _;
            inputs.into_iter().map(of).collect()
        };
        let inputs = source.open_queues()?;
        let mode = inputs.first().map(InterfaceInput::mode);
        let opened = Opened::of(boxed(inputs), mode);
        let reopen = Box::new(move || Ok(boxed(source.open_queues()?)));
        let (name, on_removal) = (&*self.name, self.on_removal);
        let shows_drops = true;
        links::inputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }

    fn can_filter(&self) -> bool {
        true
    }
}

/// An interface by which packets are sent.
#[derive(PartialEq)]
struct InterfaceTarget {
    name: String,
    /// The most queues.
    queues: usize,
    force: bool,
    on_removal: OnRemoval,
}

fn build_output(section: &Section<'_>) -> Result<Box<dyn OutputBlueprint>, Vec<SourceError>> {
    let OutputOptions { interface, queues, force, on_removal } = section.parse()?;
    let mut errors: Vec<_> = check_name(section, &interface).into_iter().collect();
    let queues = queues_of(section, queues.as_ref(), &mut errors);
    let name = interface.into_inner();
    let target = InterfaceTarget { name, queues, force, on_removal };
    if errors.is_empty() { Ok(Box::new(target)) } else { Err(errors) }
}

impl PortBlueprint for InterfaceTarget {
    fn describe(&self) -> String {
        format!("interface {}", self.name)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        let queues = self.queues;
        Capabilities { queues, super_packets: true, ..Capabilities::default() }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.name)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.name)
    }
}

impl OutputBlueprint for InterfaceTarget {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let (name, queues) = (self.name.clone(), self.queues.min(opening.queues));
        let mtu = Arc::<KnownMtu>::default();
        let (known, on_removal) = (mtu.clone(), self.on_removal);
        let force = self.force;
        let open = move || {
            host::check(&name, force)?;
            outside::privileged(|| InterfaceOutput::open_queues(&name, queues))
        };
        let boxed = move |outputs: Vec<InterfaceOutput>| -> Vec<Box<dyn Output>> {
            let of = |output: InterfaceOutput| Box::new(output.with_mtu(known.clone())) as _;
            outputs.into_iter().map(of).collect()
        };
        let outputs = open()?;
        let mode = InterfaceOutput::mode(&outputs);
        let opened = Opened::of(boxed(outputs), mode);
        let reopen = Box::new(move || Ok(boxed(open()?)));
        let (name, shows_drops) = (&*self.name, false);
        links::outputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}
