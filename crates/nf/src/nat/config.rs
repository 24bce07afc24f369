//! The options of a NAT.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;
use toml::Spanned;

use crate::{BuildError, Section};

/// The most external addresses of one NAT.
const MAX_EXTERNAL: usize = 1024;

/// The options of a translator.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// Prefixes of hosts that are translated.
    #[schemars(with = "Vec<String>")]
    inside: Vec<Spanned<String>>,
    /// External addresses, each one or a range `FIRST-LAST`.
    #[schemars(with = "Vec<String>")]
    external: Vec<Spanned<String>>,
    /// External ports, `FIRST-LAST`.
    #[serde(default = "ports")]
    #[schemars(with = "String")]
    ports: Spanned<String>,
    /// Whom a mapping lets in (RFC 4787, section 5).
    #[serde(default)]
    filtering: Filtering,
    /// Whether hosts inside reach each other by their external addresses.
    #[serde(default = "yes")]
    hairpinning: bool,
    /// The most mappings.
    #[serde(default = "max_mappings")]
    #[schemars(with = "usize")]
    max_mappings: Spanned<usize>,
    /// The most sessions of all mappings.
    #[serde(default = "max_sessions")]
    #[schemars(with = "usize")]
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

/// Whom a mapping lets in (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filtering {
    /// Everyone.
    EndpointIndependent,
    /// Hosts that the host inside has sent to.
    #[default]
    AddressDependent,
    /// Their addresses and ports.
    AddressAndPortDependent,
}

/// Idle times after which a mapping ends, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    /// Of UDP.
    pub(super) udp: u64,
    /// Of a TCP connection in which both sides have talked.
    pub(super) tcp: u64,
    /// Of one that begins or ends.
    pub(super) tcp_transitory: u64,
    /// Of an ICMP echo.
    pub(super) icmp: u64,
}

impl Default for Timeouts {
    /// RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2.
    fn default() -> Self {
        Self { udp: 300, tcp: 7440, tcp_transitory: 240, icmp: 60 }
    }
}

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Config {
    inside: Vec<(u32, u32)>,
    pub(super) external: Vec<Ipv4Addr>,
    /// The same as ranges, first and last, in order.
    ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) ports: RangeInclusive<u16>,
    pub(super) filtering: Filtering,
    pub(super) hairpinning: bool,
    pub(super) max_mappings: usize,
    pub(super) max_sessions: usize,
    timeouts: Timeouts,
}

impl Config {
    pub(super) fn is_inside(&self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        self.inside.iter().any(|(value, mask)| address & mask == *value)
    }

    pub(super) fn is_external(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|(first, last)| (first..=last).contains(&&address))
    }

    pub(super) fn timeout(&self, kind: super::session::Life) -> Nanoseconds {
        use super::session::Life;
        let t = self.timeouts;
        Nanoseconds::from_secs(match kind {
            Life::Udp => t.udp,
            Life::TcpEstablished => t.tcp,
            Life::TcpTransitory => t.tcp_transitory,
            Life::Echo => t.icmp,
        })
    }
}

/// The ranges of `addresses`.
fn ranges(mut addresses: Vec<Ipv4Addr>) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    addresses.sort_unstable();
    addresses.dedup();
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
        max_mappings: *options.max_mappings.get_ref(),
        max_sessions: *options.max_sessions.get_ref(),
        timeouts: options.timeouts_s,
    };
    for text in &options.inside {
        if let Some(prefix) = prefix(text.get_ref()) {
            config.inside.push(prefix);
        } else {
            let expected = "an IPv4 prefix such as 10.0.0.0/8";
            errors.push(section.error(text.span(), "bad prefix", expected));
        }
    }
    for text in &options.external {
        if let Some(range) = addresses(text.get_ref()) {
            config.external.extend(range.take(MAX_EXTERNAL + 1));
        } else {
            let expected = "an IPv4 address, or two with a hyphen between";
            errors.push(section.error(text.span(), "bad address", expected));
        }
    }
    let ports = options.ports.get_ref().split_once('-');
    match ports.and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)))
    {
        Some((low, high)) if 0 < low && low < high => config.ports = low..=high,
        _ => errors.push(section.error(options.ports.span(), "bad port range", "\"1024-65535\"")),
    }
    config.ranges = ranges(config.external.clone());
    let whole = section.span();
    if options.inside.is_empty() || options.external.is_empty() {
        let expected = "at least one 'inside' prefix and one 'external' address";
        errors.push(section.error(whole.clone(), "nothing to translate", expected));
    }
    if config.external.len() > MAX_EXTERNAL {
        let message = format!("more than {MAX_EXTERNAL} external addresses");
        errors.push(section.error(whole.clone(), message, "fewer"));
    }
    if let Some(both) = config.external.iter().find(|a| config.is_inside(**a)) {
        let message = format!("the external address {both} lies inside");
        errors.push(section.error(whole, message, "addresses that no host inside has"));
    }
    if !(1..=1 << 26).contains(options.max_mappings.get_ref()) {
        let span = options.max_mappings.span();
        errors.push(section.error(span, "bad number of mappings", "1 to 67108864"));
    }
    if !(1..=1 << 28).contains(options.max_sessions.get_ref()) {
        let span = options.max_sessions.span();
        errors.push(section.error(span, "bad number of sessions", "1 to 268435456"));
    }
    if errors.is_empty() { Ok(config) } else { Err(BuildError(errors)) }
}

fn prefix(text: &str) -> Option<(u32, u32)> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let length = length.parse::<u32>().ok().filter(|l| *l <= 32)?;
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    Some((address & mask, mask))
}

fn addresses(text: &str) -> Option<impl Iterator<Item = Ipv4Addr>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = u32::from(low.trim().parse::<Ipv4Addr>().ok()?);
    let high = u32::from(high.trim().parse::<Ipv4Addr>().ok()?);
    (low <= high).then(|| (low..=high).map(Ipv4Addr::from))
}
