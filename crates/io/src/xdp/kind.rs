//! Queues of interfaces by AF_XDP as a kind of port.

use std::sync::Arc;

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, outside};
use toml::Spanned;

use super::endpoint::{check_memory, frames_of};
use super::program::Pass;
use super::settings::{
    DEFAULT_PASS, MOST_QUEUES, Obtained, RING_SIZE, RING_SIZES, XdpMode, XdpSettings, named,
};
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
    "queues",
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
    /// The queue of the interface, or the first of several.
    #[schemars(with = "u32")]
    #[serde(default = "queue")]
    queue: Spanned<u32>,
    /// How many of its queues, from this one on. An input receives from all of them, an output sends by
    /// as many as workers can use at the same time.
    #[schemars(with = "u32")]
    #[serde(default = "queues")]
    queues: Spanned<u32>,
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

fn queues() -> Spanned<u32> {
    Spanned::new(0..0, 1)
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

/// Queues of an interface, of either direction.
#[derive(Clone, PartialEq)]
struct Xdp {
    /// Those of the first queue, which the others have too.
    settings: XdpSettings,
    queues: u32,
    on_removal: OnRemoval,
}

impl Xdp {
    fn of(section: &Section<'_>) -> Result<Self, Vec<SourceError>> {
        let Options {
            xdp,
            queue,
            queues,
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
        let (first, count) = (*queue.get_ref(), *queues.get_ref());
        let most = MOST_QUEUES.saturating_sub(first).max(1);
        if !(1..=most).contains(&count) {
            refuse(queues.span(), format!("'queues' is {count}"), format!("1 to {most}"));
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
            queue: first,
            mode,
            ring_size: size,
            busy_poll_us,
            promiscuous,
            force,
            complete_checksums,
            pass: kept,
        };
        Ok(Self { settings, queues: count, on_removal })
    }

    /// Opens up to `most` of the queues, each by `open`.
    fn open_each<Q>(
        &self,
        most: usize,
        open: impl Fn(&XdpSettings) -> Result<Q, IoError> + Sync,
    ) -> Result<Vec<Q>, IoError>
    where
        Q: Send,
    {
        let first = self.settings.queue;
        let numbers = (first..first + self.queues).take(most);
        let of = |queue| open(&XdpSettings { queue, ..self.settings.clone() });
        outside::privileged(|| numbers.map(of).collect())
    }

    /// Whether a port has a queue that the other one has, too.
    fn overlaps(&self, other: &Self) -> bool {
        let range = |port: &Self| port.settings.queue..port.settings.queue + port.queues;
        let (own, others) = (range(self), range(other));
        own.start < others.end && others.start < own.end
    }
}

impl PortBlueprint for Xdp {
    fn describe(&self) -> String {
        let XdpSettings { interface, queue, .. } = &self.settings;
        match (*queue, self.queues as usize) {
            (0, 1) => format!("interface {interface}"),
            (queue, queues) => format!("interface {interface}, {}", named(queue, queues)),
        }
    }

    fn title(&self) -> String {
        self.settings.title(self.queues as usize)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        let queues = self.queues as usize;
        Capabilities { queues, zero_copy: true, ..Capabilities::default() }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.settings.interface)
    }

    fn kept_frames(&self) -> usize {
        frames_of(&self.settings, self.queues as usize)
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
        let Some(port) = other.blueprint.downcast::<Self>() else { return Ok(()) };
        if self.overlaps(port) {
            self.settings.check_queue(&port.settings, other.name, other.same_direction)
        } else {
            self.settings.check_program(&port.settings, other.name)
        }
    }

    fn check_memory(&self, memory: MemoryAtHand<'_>) -> Result<(), Refusal> {
        check_memory(&self.settings, self.queues as usize, memory)
    }
}

impl InputBlueprint for Xdp {
    /// Opens all queues: packets of one that is not opened go to the kernel.
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let (port, pool) = (self.clone(), opening.pool.clone());
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let open = move || {
            let of = |settings: &XdpSettings| XdpInput::open(settings, &pool);
            let inputs = port.open_each(usize::MAX, of)?;
            Ok::<Vec<_>, IoError>(each(inputs, |input| input.with_mtu(known.clone())))
        };
        let inputs = open()?;
        let obtained: Vec<_> = inputs.iter().map(XdpInput::obtained).collect();
        let boxed = |inputs| each(inputs, |input| Box::new(input) as Box<dyn Input>);
        let opened = Opened::of(boxed(inputs), Obtained::describe(&obtained));
        let reopen = Box::new(move || open().map(boxed));
        let (name, on_removal) = (&*self.settings.interface, self.on_removal);
        let shows_drops = true;
        links::inputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}

impl OutputBlueprint for Xdp {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let (port, pool, most) = (self.clone(), opening.pool.clone(), opening.queues);
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let open = move || {
            let of = |settings: &XdpSettings| XdpOutput::open(settings, &pool);
            let outputs = port.open_each(most, of)?;
            Ok::<Vec<_>, IoError>(each(outputs, |output| output.with_mtu(known.clone())))
        };
        let outputs = open()?;
        let obtained: Vec<_> = outputs.iter().map(XdpOutput::obtained).collect();
        let boxed = |outputs| each(outputs, |output| Box::new(output) as Box<dyn Output>);
        let opened = Opened::of(boxed(outputs), Obtained::describe(&obtained));
        let reopen = Box::new(move || open().map(boxed));
        let (name, on_removal) = (&*self.settings.interface, self.on_removal);
        let shows_drops = false;
        links::outputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}

/// What `of` makes of each queue.
fn each<Q, R>(queues: Vec<Q>, of: impl Fn(Q) -> R) -> Vec<R> {
    queues.into_iter().map(of).collect()
}
