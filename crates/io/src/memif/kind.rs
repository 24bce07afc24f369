//! Shared memory as a kind of port.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_packet::BATCH;
use thalweg_source::SourceError;
use toml::Spanned;

use super::address::Address;
use super::registry::{self, check_pool};
use super::settings::{
    BUFFER_SIZE, MAX_QUEUES, MAX_RING_SIZE, MemifSettings, RING_SIZE, Role, Secret,
};
use super::shared::Measures;
use super::{MemifInput, MemifOutput};
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, MemoryAtHand, Neighbour, Opened,
    OutputBlueprint, OutputOpening, PortBlueprint, Refusal, Section, Side,
};
use crate::link_model::{LinkModel, ModelledInput, ModelledLink};
use crate::port::{Input, IoError, Output};

/// The keys of inputs.
const KEYS: &[&str] =
    &["memif", "role", "id", "secret", "ring_size", "buffer_size", "queues", "zero_copy", "link"];
/// The last of them, which only inputs have.
const LINK: &str = "link";
/// The keys of outputs.
const OUTPUT_KEYS: &[&str] = KEYS.split_last().expect("there are keys").1;
/// The sizes of buffers in bytes.
const BUFFER_SIZES: std::ops::RangeInclusive<u32> = 64..=65_535;
/// The longest region of a client in bytes: offsets have 32 bits.
const LONGEST: u64 = 1 << 32;

/// Connections by shared memory.
pub const KIND: Kind = Kind {
    name: "memif",
    key: "memif",
    example: "memif = \"SOCKET\"",
    noun: "a shared-memory connection",
    summary: "exchanges packets with VPP, DPDK or another Thalweg by shared memory",
    input: Some(Side {
        keys: KEYS,
        instead: &[("loop", "--duration or --count to end the run")],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Memif::of(section)?)),
    }),
    output: Some(Side {
        keys: OUTPUT_KEYS,
        instead: &[],
        options: output_options,
        build: |section| Ok(Box::new(Memif::of(section)?)),
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The unix socket by which both ends find each other: a path, relative to the chain file, or
    /// `@` and a name in the abstract namespace. An input and an output with the same socket, role
    /// and id share one connection.
    #[schemars(with = "String")]
    memif: Spanned<String>,
    /// Whether this end listens on the socket, or connects to it and makes the memory.
    role: Role,
    /// The number of the connection, of several on one socket.
    #[serde(default)]
    id: u32,
    /// What a client must know: 1 to 24 bytes. Without it a server accepts every client.
    #[schemars(with = "Option<String>")]
    secret: Option<Spanned<String>>,
    /// The binary logarithm of the packets that a ring holds, up to 14: the rings that a client makes,
    /// or the largest that a server accepts.
    #[schemars(with = "u8")]
    #[serde(default = "ring_size")]
    ring_size: Spanned<u8>,
    /// Bytes of a buffer, which a client makes, from 64 to 65535, by default 2048; longer packets take
    /// several.
    #[schemars(with = "Option<u32>")]
    buffer_size: Option<Spanned<u32>>,
    /// Rings in each direction, up to 64: as many as a client makes, or as a server accepts.
    #[schemars(with = "u16")]
    #[serde(default = "queues")]
    queues: Spanned<u16>,
    /// For a client: its buffers are the frames of packet memory, all of which the peer can read and
    /// write at any time, also while packets are processed. For peers that are trusted as this program
    /// is.
    #[schemars(with = "bool")]
    #[serde(default = "no")]
    zero_copy: Spanned<bool>,
    /// A model of the link by which packets arrive, for experiments; none without it.
    #[schemars(with = "Option<LinkModel>")]
    link: Option<Spanned<LinkModel>>,
}

/// The places of the values in `link`.
#[derive(Deserialize)]
struct LinkPlaces {
    link: Option<HashMap<String, Spanned<u32>>>,
}

/// The options of an output: those of an input without a link, which is modelled where packets arrive.
fn output_options() -> schemars::Schema {
    let mut schema = schema_for!(Options);
    let properties = schema.get_mut("properties").and_then(|of| of.as_object_mut());
    properties.map(|of| of.remove(LINK));
    schema.remove("$defs");
    schema
}

fn no() -> Spanned<bool> {
    Spanned::new(0..0, false)
}

fn ring_size() -> Spanned<u8> {
    Spanned::new(0..0, RING_SIZE)
}

fn queues() -> Spanned<u16> {
    Spanned::new(0..0, 1)
}

/// A port by shared memory, of either direction.
#[derive(PartialEq)]
struct Memif {
    settings: MemifSettings,
    /// The model of the link of an input.
    link: Option<LinkModel>,
}

impl Memif {
    fn of(section: &Section<'_>) -> Result<Self, Vec<SourceError>> {
        let Options { memif, role, id, secret, ring_size, buffer_size, queues, zero_copy, link } =
            section.parse()?;
        let mut errors = Vec::new();
        if *zero_copy.get_ref() {
            let buffer_size = buffer_size.as_ref().map(Spanned::span);
            errors.extend(check_zero_copy(section, role, zero_copy.span(), buffer_size));
        }
        errors.extend(link.as_ref().and_then(|link| check_link(section, link)));
        let link = link.map(Spanned::into_inner);
        let buffer_size = buffer_size.unwrap_or(Spanned::new(0..0, BUFFER_SIZE));
        let address = address_of(section, &memif).map_err(|e| errors.push(e)).ok();
        let of_text = |text: &Spanned<String>| {
            let secret = Secret::new(text.get_ref());
            let mistake =
                || section.error(text.span(), "bad secret", "1 to 24 bytes, none of them 0");
            secret.ok_or_else(mistake)
        };
        let secret = secret.as_ref().map(of_text).transpose();
        let secret = secret.map_err(|e| errors.push(e)).ok().flatten();
        let mut check = |value: &Spanned<u32>, name, range: std::ops::RangeInclusive<u32>| {
            if !range.contains(value.get_ref()) {
                errors.push(out_of(section, value, name, range));
            }
        };
        check(&widened(&ring_size), "ring_size", 1..=MAX_RING_SIZE.into());
        check(&buffer_size, "buffer_size", BUFFER_SIZES);
        check(&widened(&queues), "queues", 1..=MAX_QUEUES.into());
        let (Some(address), true) = (address, errors.is_empty()) else { return Err(errors) };
        let settings = MemifSettings {
            address,
            role,
            id,
            secret: secret.unwrap_or_default(),
            ring_size: ring_size.into_inner(),
            buffer_size: buffer_size.into_inner(),
            queues: queues.into_inner(),
            zero_copy: zero_copy.into_inner(),
        };
        match check_memory(section, &settings, memif) {
            Some(error) => Err(vec![error]),
            None => Ok(Self { settings, link }),
        }
    }

    /// How packets pass, in a few words.
    fn describe_mode(&self) -> String {
        let MemifSettings { role, ring_size, buffer_size, queues, zero_copy, .. } = self.settings;
        let rings = if queues == 1 { "1 ring".into() } else { format!("{queues} rings") };
        let slots = 1 << ring_size;
        match role {
            Role::Client if zero_copy => {
                format!("memif 2.0 client, zero copy, {rings} of {slots} frames")
            }
            Role::Client => format!(
                "memif 2.0 client, copies, {rings} of {slots} buffers of {buffer_size} bytes"
            ),
            Role::Server => {
                format!("memif 2.0 server, copies, up to {rings} of up to {slots} buffers")
            }
        }
    }
}

/// The socket that a section names.
fn address_of(section: &Section<'_>, text: &Spanned<String>) -> Result<Address, SourceError> {
    let name = text.get_ref();
    let path = if name.starts_with('@') { PathBuf::from(name) } else { section.resolve(name) };
    let expected = "the path of a socket of up to 107 bytes, or @ and a name";
    let mistake = |message| section.error(text.span(), message, expected);
    if name.is_empty() {
        return Err(mistake("'memif' is empty".into()));
    }
    Address::new(path).map_err(mistake)
}

fn widened<T: Copy + Into<u32>>(value: &Spanned<T>) -> Spanned<u32> {
    Spanned::new(value.span(), (*value.get_ref()).into())
}

fn out_of(
    section: &Section<'_>,
    value: &Spanned<u32>,
    name: &str,
    range: std::ops::RangeInclusive<impl Display>,
) -> SourceError {
    let message = format!("'{name}' is {}", value.get_ref());
    section.error(value.span(), message, format!("{} to {}", range.start(), range.end()))
}

/// Checks the model of a link.
fn check_link(section: &Section<'_>, link: &Spanned<LinkModel>) -> Option<SourceError> {
    let (key, value, range) = link.get_ref().mistake()?;
    let places = section.parse::<LinkPlaces>().ok().and_then(|places| places.link);
    let place = places.and_then(|mut places| places.remove(key));
    let span = place.map_or_else(|| link.span(), |value| value.span());
    Some(section.error(span, format!("'{key}' of 'link' is {value}"), range))
}

/// Checks that zero copy is for a client, and the size of buffers that of frames.
fn check_zero_copy(
    section: &Section<'_>,
    role: Role,
    place: Range<usize>,
    buffer_size: Option<Range<usize>>,
) -> Vec<SourceError> {
    let mut errors = Vec::new();
    if role == Role::Server {
        let message = "a server copies packets, since the memory is its peer's";
        let expected = "role = \"client\", or no 'zero_copy'";
        errors.push(section.error(place, message, expected));
    }
    if let Some(place) = buffer_size {
        let message = "'buffer_size' does not apply with 'zero_copy': frames are the buffers";
        errors.push(section.error(place, message, "frame_size in [memory]"));
    }
    errors
}

/// Checks that a client's memory is not longer than its offsets.
fn check_memory(
    section: &Section<'_>,
    settings: &MemifSettings,
    memif: Spanned<String>,
) -> Option<SourceError> {
    let MemifSettings { ring_size, buffer_size, queues, zero_copy, .. } = *settings;
    let (transmit, receive) = (queues, queues);
    let buffer_size = if zero_copy { 0 } else { buffer_size };
    let len = Measures { transmit, receive, ring_size, buffer_size }.len();
    let message = format!("its rings and buffers have {len} bytes");
    let expected = "at most 4 GiB: fewer queues, smaller rings or smaller buffers";
    (len > LONGEST).then(|| section.error(memif.span(), message, expected))
}

impl PortBlueprint for Memif {
    fn describe(&self) -> String {
        self.settings.title()
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        let MemifSettings { queues, zero_copy, .. } = self.settings;
        Capabilities { queues: queues.into(), zero_copy, ..Capabilities::default() }
    }

    fn mode(&self) -> Option<String> {
        let link = self.link.map_or_else(String::new, |link| format!(", {link}"));
        Some(format!("{}{link}", self.describe_mode()))
    }

    fn link(&self) -> Option<Link> {
        registry::link(&self.settings)
    }

    fn shares_memory(&self) -> bool {
        self.settings.zero_copy
    }

    fn socket(&self) -> Option<&Path> {
        self.settings.address.path()
    }

    fn shared(&self) -> Option<String> {
        let MemifSettings { address, role, id, .. } = &self.settings;
        Some(format!("{address:?} {role:?} {id}"))
    }

    fn check_with(&self, other: &Neighbour<'_>) -> Result<(), Refusal> {
        let Some(Self { settings, .. }) = other.blueprint.downcast() else { return Ok(()) };
        self.settings.check_end(settings, other.name, other.same_direction)
    }

    fn kept_frames(&self) -> usize {
        if self.settings.zero_copy { self.settings.frames() } else { 0 }
    }

    fn check_memory(&self, memory: MemoryAtHand<'_>) -> Result<(), Refusal> {
        if self.settings.zero_copy { check_pool(&self.settings, memory.pool) } else { Ok(()) }
    }
}

impl InputBlueprint for Memif {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let queues = MemifInput::open(&self.settings, opening.pool, opening.queues)?;
        let pool = opening.pool;
        let Some(model) = self.link else {
            let queues = queues.into_iter().map(|queue| Box::new(queue) as _).collect();
            return Ok(Opened::of(queues, self.mode()));
        };
        let (under_way, frames) = (queues.len() * model.queue as usize, pool.frames());
        if under_way + BATCH > frames {
            let message =
                format!("'queue' of 'link' takes {under_way} frames, but there are {frames}");
            let needed = under_way + 2 * BATCH;
            let expected = format!("frames = {needed} in [memory], or a shorter queue");
            let refusal = Refusal::new(&["link.queue", "link"], message, expected);
            return Err(refusal.of(self.settings.title()));
        }
        let link = ModelledLink::new(model);
        let of = |queue| ModelledInput::by(Box::new(queue), link.clone(), pool.clone());
        let queues = queues.into_iter().map(|queue| Box::new(of(queue)) as _).collect();
        Ok(Opened::of(queues, self.mode()))
    }

    fn is_live(&self) -> bool {
        true
    }
}

impl OutputBlueprint for Memif {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        // One, which has all rings: a peer may make fewer rings than there are lines, and the packets of a
        // line without a ring would go nowhere.
        let queues = MemifOutput::open(&self.settings, opening.pool, 1)?;
        let queues = queues.into_iter().map(|queue| Box::new(queue) as _).collect();
        Ok(Opened::of(queues, self.mode()))
    }
}
