//! TAP devices as a kind of port.

use std::ops::Range;
use std::sync::Arc;

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, counted, outside};
use toml::Spanned;

use super::device::TapSettings;
use super::input::TapInput;
use super::output::TapOutput;
use super::setup::HostAddress;
use crate::interface::link_of;
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, Opened, OutputBlueprint, OutputOpening,
    PortBlueprint, Section, Side,
};
use crate::links::{self, Following, KnownMtu, OnRemoval};
use crate::port::{Input, IoError, Output};

/// The keys of sections, in both directions.
const KEYS: &[&str] = &["tap", "addresses", "mtu", "mac", "queues", "force", "on_removal"];
/// The most queues of a device (`MAX_TAP_QUEUES`).
const MOST_QUEUES: u16 = 256;
/// The MTUs that a device can have, in bytes.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65_521;

/// TAP devices of this machine.
pub const KIND: Kind = Kind {
    name: "tap",
    key: "tap",
    example: "tap = \"NAME\"",
    noun: "a TAP device",
    summary: "exchanges packets with the host, a virtual machine or a container by a TAP device",
    input: Some(Side {
        keys: KEYS,
        instead: &[("loop", "--duration or --count to end the run")],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Tap::of(section)?)),
    }),
    output: Some(Side {
        keys: KEYS,
        instead: &[],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Tap::of(section)?)),
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The name of a TAP device, which is made if there is none, and then goes at the end of the run.
    /// An input and an output with the same name share the device; each sets what its section has.
    #[schemars(with = "String")]
    tap: Spanned<String>,
    /// Addresses of the host on the device, each with the length of its network's prefix:
    /// `192.0.2.1/24`.
    #[schemars(with = "Vec<String>")]
    #[serde(default)]
    addresses: Vec<Spanned<String>>,
    /// The MTU of the device in bytes, from 68 to 65521; otherwise it stays as it is: 1500 of a new one.
    #[schemars(with = "Option<u32>")]
    mtu: Option<Spanned<u32>>,
    /// The MAC address of the host on the device: `02:00:00:00:00:01`.
    #[schemars(with = "Option<String>")]
    mac: Option<Spanned<String>>,
    /// Queues of the device, up to 256: as many workers can receive and send packets.
    #[schemars(with = "u16")]
    #[serde(default = "queues")]
    queues: Spanned<u16>,
    /// Take a device that another program has, too, even if the host's default route or a session of SSH
    /// uses it.
    #[serde(default)]
    force: bool,
    /// What to do when the device is removed: end the run, or wait until there is one of its name.
    #[serde(default)]
    on_removal: OnRemoval,
}

fn queues() -> Spanned<u16> {
    Spanned::new(0..0, 1)
}

/// A port by a TAP device, of either direction.
#[derive(PartialEq)]
struct Tap {
    settings: TapSettings,
    on_removal: OnRemoval,
}

impl Tap {
    fn of(section: &Section<'_>) -> Result<Self, Vec<SourceError>> {
        let Options { tap, addresses, mtu, mac, queues, force, on_removal } = section.parse()?;
        let mut errors = Vec::new();
        let mut check = |is_good: bool, span: Range<usize>, message: String, expected: &str| {
            errors.extend((!is_good).then(|| section.error(span, message, expected)));
        };
        let name = tap.get_ref();
        let expected = "1 to 15 bytes without '/', ':', '%' and blanks";
        check(is_name(name), tap.span(), format!("'{name}' cannot name a device"), expected);
        let read = addresses.iter().filter_map(|text| {
            let address = HostAddress::read(text.get_ref());
            let message = format!("'{}' is not an address with a prefix", text.get_ref());
            check(address.is_some(), text.span(), message, "such as 192.0.2.1/24");
            address
        });
        let addresses = read.collect();
        if let Some(mtu) = &mtu {
            let (value, expected) = (mtu.get_ref(), format!("{} to {}", MTUS.start(), MTUS.end()));
            check(MTUS.contains(value), mtu.span(), format!("'mtu' is {value}"), &expected);
        }
        let mac = mac.and_then(|text| {
            let mac = read_mac(text.get_ref());
            let message = format!("'{}' is not the MAC address of a host", text.get_ref());
            check(mac.is_some(), text.span(), message, "such as 02:00:00:00:00:01");
            mac
        });
        let (count, expected) = (queues.get_ref(), format!("1 to {MOST_QUEUES}"));
        let is_good = (1..=MOST_QUEUES).contains(count);
        check(is_good, queues.span(), format!("'queues' is {count}"), &expected);
        if !errors.is_empty() {
            return Err(errors);
        }
        let settings = TapSettings {
            name: tap.into_inner(),
            addresses,
            mtu: mtu.map(Spanned::into_inner),
            mac,
            queues: queues.into_inner(),
            force,
        };
        Ok(Self { settings, on_removal })
    }
}

/// Queues, each as `of` makes it one of a port.
fn boxed<Q, P: ?Sized>(queues: Vec<Q>, of: impl Fn(Q) -> Box<P>) -> Vec<Box<P>> {
    queues.into_iter().map(of).collect()
}

/// How packets pass, in a few words.
pub(super) fn mode(queues: usize, left: &str) -> String {
    format!("TAP device with {}, {left}", counted(queues as u64, "queue"))
}

/// Whether an interface can have this name. In that of a new one, the kernel would replace a `%d`.
fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b':' | b'%' | 0);
    (1..libc::IF_NAMESIZE).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(is_good)
}

/// Reads the MAC address of a host, which is not that of a group.
fn read_mac(text: &str) -> Option<[u8; 6]> {
    let byte = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
    let bytes = text.split(':').map(byte).collect::<Option<Vec<_>>>()?;
    <[u8; 6]>::try_from(bytes).ok().filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6])
}

impl PortBlueprint for Tap {
    fn describe(&self) -> String {
        format!("TAP device {}", self.settings.name)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: self.settings.queues.into(),
            offloads: &["checksum", "segmentation"],
            super_packets: true,
            ..Capabilities::default()
        }
    }

    fn link(&self) -> Option<Link> {
        link_of(&self.settings.name)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.settings.name)
    }

    fn steers_queues(&self) -> bool {
        self.settings.queues > 1
    }
}

impl InputBlueprint for Tap {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let (settings, pool) = (self.settings.clone(), opening.pool.clone());
        let most = opening.queues;
        let open = move || {
            let opened = outside::privileged(|| TapInput::open(&settings, most, &pool));
            opened.map(|(queues, mode)| (boxed(queues, |queue| Box::new(queue) as _), mode))
        };
        let (queues, mode) = open()?;
        let opened = Opened::of(queues, mode);
        let reopen = Box::new(move || open().map(|(queues, _)| queues));
        let (name, on_removal) = (&*self.settings.name, self.on_removal);
        let (mtu, shows_drops) = (Arc::default(), false);
        links::inputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}

impl OutputBlueprint for Tap {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let (settings, most) = (self.settings.clone(), opening.queues);
        let mtu = Arc::<KnownMtu>::default();
        let known = mtu.clone();
        let open = move || {
            let queues = outside::privileged(|| TapOutput::open(&settings, most))?;
            Ok(boxed(queues, |queue: TapOutput| Box::new(queue.with_mtu(known.clone())) as _))
        };
        let queues = open()?;
        let mode = mode(queues.len(), "super-packets");
        let opened = Opened::of(queues, mode);
        let (name, on_removal) = (&*self.settings.name, self.on_removal);
        let (reopen, shows_drops) = (Box::new(open), false);
        links::outputs(Following { name, mtu, on_removal, shows_drops, opened, reopen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_mac_addresses_are_those_that_the_kernel_takes() {
        assert!(is_name("tap0") && is_name("a-b.c") && is_name("fifteen-letters"));
        for wrong in ["", "sixteen-letters.", "a/b", "tap%d", "a b", "a:1", ".", "..", "a\0"] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
        assert_eq!(read_mac("02:0a:FF:00:00:01"), Some([2, 10, 255, 0, 0, 1]));
        for wrong in ["", "02:00:00:00:00", "01:00:00:00:00:00", "00:00:00:00:00:00", "2:0:0:0:0:1"]
        {
            assert_eq!(read_mac(wrong), None, "{wrong}");
        }
    }
}
