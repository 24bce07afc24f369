//! The options of a NAT.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;
use thalweg_source::SourceError;
use toml::Spanned;

use super::session::Life;
use thalweg_nf::{BuildError, Section};

/// The maximum number of external addresses of one NAT.
const MAX_EXTERNAL: usize = 1024;

/// The options of a NAT.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// IPv4 prefixes of the inside hosts, which are translated.
    #[schemars(with = "Vec<String>")]
    inside: Vec<Spanned<String>>,
    /// External addresses, single ones or ranges `FIRST-LAST`.
    #[schemars(with = "Vec<String>")]
    external: Vec<Spanned<String>>,
    /// The range of external ports, `FIRST-LAST`.
    #[serde(default = "ports")]
    #[schemars(with = "String")]
    ports: Spanned<String>,
    /// Which outside hosts may send through a mapping (RFC 4787, section 5).
    #[serde(default)]
    filtering: Filtering,
    /// Whether inside hosts reach each other by their external addresses.
    #[serde(default = "yes")]
    hairpinning: bool,
    /// The maximum number of mappings.
    #[serde(default = "max_mappings")]
    #[schemars(with = "usize", range(min = 1, max = 67_108_864))]
    max_mappings: Spanned<usize>,
    /// The maximum number of sessions over all mappings.
    #[serde(default = "max_sessions")]
    #[schemars(with = "usize", range(min = 1, max = 268_435_456))]
    max_sessions: Spanned<usize>,
    /// Idle times after which a session ends, in seconds.
    #[serde(default)]
    timeouts_s: Timeouts,
}

fn ports() -> Spanned<String> {
    Spanned::new(0..0, "1024-65535".into())
}

fn yes() -> bool {
    true
}

fn max_mappings() -> Spanned<usize> {
    Spanned::new(0..0, 1 << 20)
}

fn max_sessions() -> Spanned<usize> {
    Spanned::new(0..0, 1 << 22)
}

/// Which outside hosts may send through a mapping (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filtering {
    /// All hosts.
    EndpointIndependent,
    /// Hosts that the inside host has sent to, from any port.
    #[default]
    AddressDependent,
    /// Addresses and ports that the inside host has sent to.
    AddressAndPortDependent,
}

/// Idle times after which a session ends, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Timeouts {
    /// Idle time of UDP sessions.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    udp: Spanned<u64>,
    /// Idle time of established TCP connections.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    tcp: Spanned<u64>,
    /// Idle time of TCP connections that are opening or closing.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    tcp_transitory: Spanned<u64>,
    /// Idle time of ICMP echo sessions.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    icmp: Spanned<u64>,
}

impl Default for Timeouts {
    /// RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2.
    fn default() -> Self {
        let of = |seconds| Spanned::new(0..0, seconds);
        Self { udp: of(300), tcp: of(7440), tcp_transitory: of(240), icmp: of(60) }
    }
}

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Config {
    inside: Vec<(u32, u32)>,
    pub(super) external: Vec<Ipv4Addr>,
    /// The same as ranges (first, last), in order.
    ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) ports: RangeInclusive<u16>,
    pub(super) filtering: Filtering,
    pub(super) hairpinning: bool,
    pub(super) max_mappings: usize,
    pub(super) max_sessions: usize,
    /// The idle time of each [`Life`].
    timeouts: [Nanoseconds; 4],
}

impl Config {
    /// Whether mappings of a NAT of `other` stay as they are with this configuration.
    pub(super) fn suits_mappings_of(&self, other: &Self) -> bool {
        (&self.inside, &self.external, &self.ports, self.filtering)
            == (&other.inside, &other.external, &other.ports, other.filtering)
            && self.max_mappings >= other.max_mappings
            && self.max_sessions >= other.max_sessions
    }

    pub(super) fn is_inside(&self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        self.inside.iter().any(|(value, mask)| address & mask == *value)
    }

    pub(super) fn is_external(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|(first, last)| (first..=last).contains(&&address))
    }

    pub(super) fn timeout(&self, life: Life) -> Nanoseconds {
        self.timeouts[life as usize]
    }

    /// Why an external address cannot be `address`.
    fn objection_to(&self, address: Ipv4Addr) -> Option<&'static str> {
        let names_no_host = address.octets()[0] == 0
            || address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast();
        if names_no_host {
            Some("does not name a single host")
        } else if self.is_inside(address) {
            Some("is within an 'inside' prefix")
        } else {
            self.external.contains(&address).then_some("is already listed")
        }
    }
}

/// Merges `addresses` into ranges.
fn ranges(mut addresses: Vec<Ipv4Addr>) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    addresses.sort_unstable();
    let follows = |a: &Ipv4Addr, b: &Ipv4Addr| a.to_bits() + 1 == b.to_bits();
    addresses.chunk_by(follows).map(|range| (range[0], range[range.len() - 1])).collect()
}

pub(super) fn read(section: &Section<'_>) -> Result<Config, BuildError> {
    let options: Options = section.parse()?;
    let mut errors = Vec::new();
    let mut config = Config {
        inside: Vec::new(),
        external: Vec::new(),
        ranges: Vec::new(),
        ports: 0..=0,
        filtering: options.filtering,
        hairpinning: options.hairpinning,
        max_mappings: section.in_range(&options.max_mappings, 1..=1 << 26, &mut errors),
        max_sessions: section.in_range(&options.max_sessions, 1..=1 << 28, &mut errors),
        timeouts: timeouts(section, &options.timeouts_s, &mut errors),
    };
    for text in &options.inside {
        match prefix(text.get_ref()) {
            Ok(prefix) => config.inside.push(prefix),
            Err(e) => {
                errors.push(section.error(text.span(), e, "an IPv4 prefix such as 10.0.0.0/8"));
            }
        }
    }
    read_external(section, &options.external, &mut config, &mut errors);
    let ports = options.ports.get_ref().split_once('-');
    match ports.and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)))
    {
        Some((low, high)) if 0 < low && low < high => config.ports = low..=high,
        _ => {
            let expected = "a range such as \"1024-65535\"";
            errors.push(section.error(options.ports.span(), "bad port range", expected));
        }
    }
    if options.inside.is_empty() || options.external.is_empty() {
        let expected = "at least one 'inside' prefix and one 'external' address";
        errors.push(section.error(section.span(), "nothing to translate", expected));
    }
    if errors.is_empty() { Ok(config) } else { Err(BuildError(errors)) }
}

fn timeouts(
    section: &Section<'_>,
    options: &Timeouts,
    errors: &mut Vec<SourceError>,
) -> [Nanoseconds; 4] {
    let mut timeouts = [Nanoseconds(0); 4];
    for (life, seconds) in [
        (Life::Udp, &options.udp),
        (Life::TcpEstablished, &options.tcp),
        (Life::TcpTransitory, &options.tcp_transitory),
        (Life::Echo, &options.icmp),
    ] {
        let seconds = section.in_range(seconds, 1..=1 << 32, errors);
        timeouts[life as usize] = Nanoseconds::from_secs(seconds);
    }
    timeouts
}

/// Reads the external addresses; the inside prefixes must have been read.
fn read_external(
    section: &Section<'_>,
    options: &[Spanned<String>],
    config: &mut Config,
    errors: &mut Vec<SourceError>,
) {
    for text in options {
        let Some(range) = addresses(text.get_ref()) else {
            let expected = "an IPv4 address, or a range FIRST-LAST";
            errors.push(section.error(text.span(), "bad address", expected));
            continue;
        };
        for address in range {
            if let Some(why) = config.objection_to(address) {
                let message = format!("the external address {address} {why}");
                let expected = "addresses that only this NAT uses, each listed once";
                errors.push(section.error(text.span(), message, expected));
                break;
            }
            if config.external.len() == MAX_EXTERNAL {
                let message = format!("more than {MAX_EXTERNAL} external addresses");
                errors.push(section.error(text.span(), message, "fewer addresses"));
                return;
            }
            config.external.push(address);
        }
    }
    config.ranges = ranges(config.external.clone());
}

fn prefix(text: &str) -> Result<(u32, u32), &'static str> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let address = address.parse::<Ipv4Addr>().map_err(|_| "not an IPv4 address")?.to_bits();
    let length = length.parse().ok().filter(|length| *length <= 32);
    let length: u32 = length.ok_or("bad IPv4 prefix length")?;
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    if address & !mask != 0 {
        return Err("bits set past the prefix length");
    }
    Ok((address, mask))
}

fn addresses(text: &str) -> Option<impl Iterator<Item = Ipv4Addr>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = u32::from(low.trim().parse::<Ipv4Addr>().ok()?);
    let high = u32::from(high.trim().parse::<Ipv4Addr>().ok()?);
    (low <= high).then(|| (low..=high).map(Ipv4Addr::from))
}
