//! Queues of interfaces by AF_XDP as a kind of port.

use std::sync::Arc;

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, outside};
use toml::Spanned;

use super::endpoint::check_memory;
use super::program::Pass;
use super::settings::{DEFAULT_PASS, MOST_QUEUES, RING_SIZE, RING_SIZES, XdpMode, XdpSettings};
use super::{XdpInput, XdpOutput};
use crate::interface::{check_name, link_of};
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, MemoryAtHand, Neighbour, Opened,
    OutputBlueprint, OutputOpening, PortBlueprint, Refusal, Section, Side,
};
use crate::links::{self, Following, KnownMtu, OnRemoval};
use crate::port::{Input, IoError, Output};

/// The keys of sections, in both directions.
const KEYS: &[&str] = &[
    "xdp",
    "queue",
    "mode",
    "ring_size",
    "busy_poll_us",
    "promiscuous",
    "pass",
    "force",
    "complete_checksums",
    "on_removal",
];
/// What was expected in place of keys that end a capture.
const END: &str = "--duration or --count to end the run";
/// What was expected in place of a filter.
const FILTER: &str = "an interface by packet sockets: interface = \"NAME\"";

/// Queues of network interfaces.
pub const KIND: Kind = Kind {
    name: "xdp",
    key: "xdp",
    example: "xdp = \"NAME\"",
    noun: "an interface by AF_XDP",
    summary: "receives packets of an interface's queue into packet memory, and sends them out of it",
    input: Some(Side {
        keys: KEYS,
        instead: &[("loop", END), ("memory", END), ("filter", FILTER)],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Xdp::of(section)?)),
    }),
    output: Some(Side {
        keys: KEYS,
        instead: &[],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Xdp::of(section)?)),
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The name of an Ethernet interface. An input and an output with the same interface and queue
    /// share one socket, and have the same options.
    #[schemars(with = "String")]
    xdp: Spanned<String>,
    /// The queue of the interface.
    #[schemars(with = "u32")]
    #[serde(default = "queue")]
    queue: Spanned<u32>,
    /// How packets pass between the interface and packet memory.
    #[serde(default)]
    mode: XdpMode,
    /// Descriptors of each ring: a power of two from 64 to 32768. As many frames wait for packets.
    #[schemars(with = "u32")]
    #[serde(default = "ring_size")]
    ring_size: Spanned<u32>,
    /// For how many microseconds to poll the driver in place of interrupts; 0: not at all.
    #[serde(default)]
    busy_poll_us: u32,
    /// Receive packets to any MAC address.
    #[serde(default = "promiscuous")]
    promiscuous: bool,
    /// What the kernel keeps of the packets to its own addresses: `arp` (with neighbor discovery),
    /// `ssh`, `icmp`, `tcp/PORT` and `udp/PORT`; and whatever their addresses, `ether/0xTYPE`.
    #[schemars(with = "Vec<String>")]
    #[serde(default = "pass")]
    pass: Vec<Spanned<String>>,
    /// Take the interface even if the host's default route or a session of SSH uses it.
    #[serde(default)]
    force: bool,
    /// Complete TCP and UDP checksums that a sender on the same machine has left to hardware. By
    /// default, if the interface is a veth.
    complete_checksums: Option<bool>,
    /// What to do when the interface is removed: end the run, or wait until there is one of its name.
    #[serde(default)]
    on_removal: OnRemoval,
}

fn queue() -> Spanned<u32> {
    Spanned::new(0..0, 0)
}

fn ring_size() -> Spanned<u32> {
    Spanned::new(0..0, RING_SIZE)
}

fn promiscuous() -> bool {
    true
}

fn pass() -> Vec<Spanned<String>> {
    DEFAULT_PASS.iter().map(|word| Spanned::new(0..0, (*word).to_owned())).collect()
}

/// A queue of an interface, of either direction.
#[derive(PartialEq)]
struct Xdp {
    settings: XdpSettings,
    on_removal: OnRemoval,
}

impl Xdp {
    fn of(section: &Section<'_>) -> Result<Self, Vec<SourceError>> {
        let Options {
            xdp,
            queue,
            mode,
            ring_size,
            busy_poll_us,
            promiscuous,
            pass,
            force,
            complete_checksums,
            on_removal,
        } = section.parse()?;
        let mut errors: Vec<_> = check_name(section, &xdp).into_iter().collect();
        let mut refuse = |span, message: String, expected: String| {
            errors.push(section.error(span, message, expected));
        };
        if *queue.get_ref() >= MOST_QUEUES {
            let message = format!("'queue' is {}", queue.get_ref());
            refuse(queue.span(), message, format!("0 to {}", MOST_QUEUES - 1));
        }
        let size = *ring_size.get_ref();
        if !RING_SIZES.contains(&size) || !size.is_power_of_two() {
            let (least, most) = (RING_SIZES.start(), RING_SIZES.end());
            let expected = format!("a power of two from {least} to {most}");
            refuse(ring_size.span(), format!("'ring_size' is {size}"), expected);
        }
        let mut kept = Vec::new();
        for word in &pass {
            match Pass::parse(word.get_ref()) {
                Some(passes) => kept.extend(passes),
                None => refuse(
                    word.span(),
                    format!("unknown packets '{}'", word.get_ref()),
                    "arp, ssh, icmp, tcp/PORT, udp/PORT, or ether/0xTYPE".into(),
                ),
            }
        }
        kept.sort_unstable();
        kept.dedup();
        if !errors.is_empty() {
            return Err(errors);
        }
        let settings = XdpSettings {
            interface: xdp.into_inner(),
            queue: queue.into_inner(),
            mode,
            ring_size: size,
            busy_poll_us,
            promiscuous,
            force,
            complete_checksums,
            pass: kept,
        };
        Ok(Self { settings, on_removal })
    }
}

impl PortBlueprint for Xdp {
    fn describe(&self) -> String {
        match self.settings.queue {
            0 => format!("interface {}", self.settings.interface),
            queue => format!("interface {}, queue {queue}", self.settings.interface),
        }
    }

    fn title(&self) -> String {
        self.settings.title()
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { zero_copy: true, ..Capabilities::default() }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.settings.interface)
    }

    fn loads_program(&self) -> bool {
        true
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.settings.interface)
    }

    fn shared(&self) -> Option<String> {
        Some(self.settings.interface.clone())
    }

    fn check_with(&self, other: &Neighbour<'_>) -> Result<(), Refusal> {
        let Some(Self { settings, .. }) = other.blueprint.downcast() else { return Ok(()) };
        if settings.queue == self.settings.queue {
            self.settings.check_queue(settings, other.name, other.same_direction)
        } else {
            self.settings.check_program(settings, other.name)
        }
    }

    fn check_memory(&self, memory: MemoryAtHand<'_>) -> Result<(), Refusal> {
        check_memory(&self.settings, memory)
    }
}

impl InputBlueprint for Xdp {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let (settings, pool) = (self.settings.clone(), opening.pool.clone());
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let open = move || {
            let input = outside::privileged(|| XdpInput::open(&settings, &pool))?;
            Ok::<_, IoError>(input.with_mtu(known.clone()))
        };
        let input = open()?;
        let mode = input.mode();
        let opened = Opened::single(Box::new(input) as Box<dyn Input>, mode);
        let reopen = Box::new(move || Ok(vec![Box::new(open()?) as _]));
        let (name, on_removal) = (&*self.settings.interface, self.on_removal);
        let shows_drops = true;
        links::inputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}

impl OutputBlueprint for Xdp {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let (settings, pool) = (self.settings.clone(), opening.pool.clone());
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let open = move || {
            let output = outside::privileged(|| XdpOutput::open(&settings, &pool))?;
            Ok::<_, IoError>(output.with_mtu(known.clone()))
        };
        let output = open()?;
        let mode = output.mode();
        let opened = Opened::single(Box::new(output) as Box<dyn Output>, mode);
        let reopen = Box::new(move || Ok(vec![Box::new(open()?) as _]));
        let (name, on_removal) = (&*self.settings.interface, self.on_removal);
        let shows_drops = false;
        links::outputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}
