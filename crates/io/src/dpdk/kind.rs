//! Devices of DPDK as a kind of port.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use thalweg_source::SourceError;
use toml::Spanned;

use super::settings::{Device, DpdkSettings};
use super::{HAS_DPDK, WITHOUT, ports};
use crate::host;
use crate::interface::{check_name, link_of};
use crate::kind::{
    Capabilities, InputBlueprint, InputOpening, Kind, Link, Neighbour, Opened, OutputBlueprint,
    OutputOpening, PortBlueprint, Refusal, Section, Side,
};
use crate::port::{Input, IoError, Output};

/// The keys of sections, in both directions.
const KEYS: &[&str] = &[
    "dpdk",
    "queues",
    "descriptors",
    "mtu",
    "promiscuous",
    "drop_bad_checksums",
    "complete_checksums",
    "idle_sleep_us",
    "force",
];
/// What was expected in place of keys that end a capture.
const END: &str = "--duration or --count to end the run";
/// What was expected in place of a filter.
const FILTER: &str = "an interface by packet sockets: interface = \"NAME\"";
/// The most queues of a device.
const MOST_QUEUES: u16 = 256;
/// The descriptors that a queue can have.
const DESCRIPTORS: std::ops::RangeInclusive<u16> = 32..=32_768;
/// The MTUs that a device can have, in bytes.
const MTUS: std::ops::RangeInclusive<u16> = 68..=9_978;
/// The longest sleep of a thread that waits for packets, in microseconds.
const LONGEST_SLEEP: u32 = 10_000;

/// Devices of DPDK.
pub const KIND: Kind = Kind {
    name: "dpdk",
    key: "dpdk",
    example: "dpdk = \"DEVICE\"",
    noun: "a device of DPDK",
    summary: "receives packets of a device into packet memory, and sends them out of it, by DPDK",
    input: Some(Side {
        keys: KEYS,
        instead: &[("loop", END), ("memory", END), ("filter", FILTER)],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Dpdk::of(section, "rx_")?)),
    }),
    output: Some(Side {
        keys: KEYS,
        instead: &[],
        options: || schema_for!(Options),
        build: |section| Ok(Box::new(Dpdk::of(section, "tx_")?)),
    }),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// A device: the PCI address of one that is bound to vfio-pci, or a virtual one, and arguments of
    /// its driver: `0000:01:00.0`, `net_af_packet0,iface=eth1`. An input and an output with the same
    /// device share it, and have the same options.
    #[schemars(with = "String")]
    dpdk: Spanned<String>,
    /// Queues of the device in each direction, up to 256: as many workers can receive and send packets.
    #[schemars(with = "u16")]
    #[serde(default = "queues")]
    queues: Spanned<u16>,
    /// Descriptors of each queue, from 32 to 32768. As many frames wait for packets.
    #[schemars(with = "u16")]
    #[serde(default = "descriptors")]
    descriptors: Spanned<u16>,
    /// The MTU of the device in bytes, from 68 to 9978; otherwise it stays as it is.
    #[schemars(with = "Option<u16>")]
    mtu: Option<Spanned<u16>>,
    /// Receive packets to any MAC address.
    #[serde(default = "promiscuous")]
    promiscuous: bool,
    /// Drop packets of which the device finds the checksum of IPv4, TCP or UDP wrong.
    #[serde(default)]
    drop_bad_checksums: bool,
    /// Complete TCP and UDP checksums that a sender on the same machine has left to hardware. By
    /// default, if the device is an interface, and that is a veth.
    complete_checksums: Option<bool>,
    /// For how many microseconds a worker sleeps between two looks at a device that has had no packets
    /// for a millisecond; 0: it never does, and uses its core all the time.
    #[schemars(with = "u32")]
    #[serde(default = "idle_sleep_us")]
    idle_sleep_us: Spanned<u32>,
    /// Take an interface even if the host's default route or a session of SSH uses it.
    #[serde(default)]
    force: bool,
}

fn queues() -> Spanned<u16> {
    Spanned::new(0..0, 1)
}

fn descriptors() -> Spanned<u16> {
    Spanned::new(0..0, 1024)
}

fn promiscuous() -> bool {
    true
}

fn idle_sleep_us() -> Spanned<u32> {
    Spanned::new(0..0, 50)
}

/// A device of DPDK, of either direction.
#[derive(PartialEq)]
struct Dpdk(DpdkSettings);

impl Dpdk {
    /// Reads a section; `way` begins the arguments that name files of its direction.
    fn of(section: &Section<'_>, way: &str) -> Result<Self, Vec<SourceError>> {
        let options: Options = section.parse()?;
        let (errors, device) = check(section, &options, way);
        let Options {
            queues,
            descriptors,
            mtu,
            promiscuous,
            drop_bad_checksums,
            complete_checksums,
            idle_sleep_us,
            force,
            ..
        } = options;
        let Some(device) = device.filter(|_| errors.is_empty()) else { return Err(errors) };
        Ok(Self(DpdkSettings {
            device,
            queues: queues.into_inner(),
            descriptors: descriptors.into_inner(),
            mtu: mtu.map(Spanned::into_inner),
            promiscuous,
            drop_bad_checksums,
            complete_checksums,
            idle_sleep_us: idle_sleep_us.into_inner(),
            force,
        }))
    }

    /// Refuses a device by whose interface the host is reached.
    fn check_host(&self) -> Result<(), IoError> {
        let Self(DpdkSettings { device, force, .. }) = self;
        device.all_interfaces().iter().try_for_each(|name| host::check(name, *force))
    }
}

/// The mistakes of a section, and the device that it names.
fn check(
    section: &Section<'_>,
    options: &Options,
    way: &str,
) -> (Vec<SourceError>, Option<Device>) {
    let Options { dpdk, queues, descriptors, mtu, idle_sleep_us, .. } = options;
    let mut errors = Vec::new();
    let span = dpdk.span();
    let device = Device::read(dpdk.get_ref()).map(|device| with_files(section, device, dpdk, way));
    match &device {
        _ if !HAS_DPDK && !section.environment().any_device => {
            let expected = "a build with the feature dpdk";
            errors.push(section.error(span, WITHOUT, expected));
        }
        None => errors.push(section.error(
            span,
            format!("'{}' cannot name a device of DPDK", dpdk.get_ref()),
            "a PCI address such as 0000:01:00.0, or a virtual device such as \
             net_af_packet0,iface=eth1",
        )),
        Some(device) if device.is_of("net_af_xdp") => errors.push(section.error(
            span,
            "net_af_xdp receives into mbufs of its own, and not into packet memory",
            "AF_XDP without DPDK: xdp = \"NAME\"",
        )),
        Some(device) => {
            if let Some(name) = device.existing_interface() {
                errors.extend(check_name(section, &Spanned::new(span, name.to_owned())));
            } else if device.is_of("net_af_packet") {
                let message = "net_af_packet needs an interface";
                errors.push(section.error(span, message, "net_af_packet0,iface=NAME"));
            }
        }
    }
    let mut check = |is_good: bool, span, message: String, expected: String| {
        errors.extend((!is_good).then(|| section.error(span, message, expected)));
    };
    let (count, expected) = (*queues.get_ref(), format!("1 to {MOST_QUEUES}"));
    let is_good = (1..=MOST_QUEUES).contains(&count);
    check(is_good, queues.span(), format!("'queues' is {count}"), expected);
    let (count, span) = (*descriptors.get_ref(), descriptors.span());
    let expected = format!("{} to {}", DESCRIPTORS.start(), DESCRIPTORS.end());
    check(DESCRIPTORS.contains(&count), span, format!("'descriptors' is {count}"), expected);
    if let Some(mtu) = mtu {
        let (value, expected) = (mtu.get_ref(), format!("{} to {}", MTUS.start(), MTUS.end()));
        check(MTUS.contains(value), mtu.span(), format!("'mtu' is {value}"), expected);
    }
    let (sleep, span) = (*idle_sleep_us.get_ref(), idle_sleep_us.span());
    let expected = format!("0 to {LONGEST_SLEEP}");
    check(sleep <= LONGEST_SLEEP, span, format!("'idle_sleep_us' is {sleep}"), expected);
    (errors, device)
}

/// A device whose files lie relative to the chain file, as other files do. Those of this direction are
/// read, or written.
fn with_files(
    section: &Section<'_>,
    mut device: Device,
    text: &Spanned<String>,
    way: &str,
) -> Device {
    if device.is_of("net_pcap") {
        let is_file = |key: &str| matches!(key, "rx_pcap" | "tx_pcap");
        for (key, value) in device.arguments.iter_mut().filter(|(key, _)| is_file(key)) {
            let path = section.resolve(&*value);
            match (key.starts_with(way), way) {
                (false, _) => {}
                (true, "rx_") => section.reads(&path, text.span()),
                (true, _) => section.writes(&path, text.span()),
            }
            *value = path.to_string_lossy().into_owned();
        }
    }
    device
}

impl PortBlueprint for Dpdk {
    fn describe(&self) -> String {
        self.0.device.text()
    }

    fn title(&self) -> String {
        self.0.title()
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: self.0.queues.into(),
            zero_copy: true,
            offloads: if self.0.drop_bad_checksums { &["checksum"] } else { &[] },
            ..Capabilities::default()
        }
    }

    fn link(&self) -> Option<Link> {
        self.0.device.interface().and_then(link_of).or_else(|| ports::link(&self.0))
    }

    fn interface(&self) -> Option<&str> {
        self.0.device.interface()
    }

    fn kept_frames(&self) -> usize {
        self.0.frames()
    }

    fn drives_hardware(&self) -> bool {
        self.0.device.is_pci
    }

    fn shared(&self) -> Option<String> {
        Some(self.0.device.name.clone())
    }

    fn check_with(&self, other: &Neighbour<'_>) -> Result<(), Refusal> {
        let Some(other_device) = other.blueprint.downcast::<Self>() else { return Ok(()) };
        self.0.check_device(&other_device.0, other.name, other.same_direction)
    }
}

impl InputBlueprint for Dpdk {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        self.check_host()?;
        ports::open_input(&self.0, opening.pool, opening.queues)
    }

    fn is_live(&self) -> bool {
        true
    }
}

impl OutputBlueprint for Dpdk {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        self.check_host()?;
        ports::open_output(&self.0, opening.pool, opening.queues)
    }
}
