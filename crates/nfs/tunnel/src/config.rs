//! The tunnels of the configuration.

use std::net::IpAddr;
use std::ops::Range;

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_classify::flow_syntax::{self, Flow};
use thalweg_classify::{Match, RuleTable};
use thalweg_packet::wire::ethertype;
use thalweg_packet::wire::ip_proto::{GRE, UDP};
use thalweg_packet::{PacketType, field};
use thalweg_source::{Place, SourceError};
use toml::Spanned;

use super::header::Protocol;
use thalweg_nf::toolkit::outer::OuterIp;
use thalweg_nf::toolkit::rules::RuleList;
use thalweg_nf::{BuildError, Section};

/// The options of tunnels.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The tunnels; a packet goes into the first one whose `match` it matches.
    #[schemars(with = "Vec<TunnelOptions>")]
    tunnel: Vec<Spanned<TunnelOptions>>,
}

/// A tunnel.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TunnelOptions {
    /// The name of the tunnel, for messages.
    name: String,
    /// The encapsulation.
    protocol: Protocol,
    /// The network identifier (VXLAN, Geneve: 24 bits) or key (GRE: 32 bits, optional).
    #[schemars(with = "Option<u32>")]
    id: Option<Spanned<u32>>,
    /// The IP address of the local endpoint.
    #[schemars(with = "String")]
    local: Spanned<IpAddr>,
    /// The IP address of the remote endpoint.
    #[schemars(with = "String")]
    remote: Spanned<IpAddr>,
    /// Which packets are encapsulated, in flow syntax; without it the tunnel only decapsulates.
    #[schemars(with = "Option<String>")]
    r#match: Option<Spanned<String>>,
    /// The UDP port of both endpoints; 4789 for VXLAN and 6081 for Geneve by default.
    #[schemars(with = "Option<u16>", range(min = 1))]
    port: Option<Spanned<u16>>,
    /// The TTL or hop limit of the outer header.
    #[serde(default = "default_ttl")]
    #[schemars(with = "u8", range(min = 1))]
    ttl: Spanned<u8>,
    /// Whether an outer IPv4 header has "don't fragment" set.
    #[serde(default = "default_df")]
    df: bool,
    /// The source MAC address of the outer header; by default that of the inner packet.
    #[schemars(with = "Option<String>")]
    source_mac: Option<Spanned<String>>,
    /// The destination MAC address of the outer header; by default that of the inner packet.
    #[schemars(with = "Option<String>")]
    destination_mac: Option<Spanned<String>>,
}

fn default_ttl() -> Spanned<u8> {
    Spanned::new(0..0, 64)
}

fn default_df() -> bool {
    true
}

/// A tunnel, ready for packets.
pub(super) struct Tunnel {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) id: Option<u32>,
    /// Its UDP port; none for GRE.
    pub(super) port: Option<u16>,
    pub(super) outer: OuterIp,
    pub(super) dont_fragment: bool,
    pub(super) macs: [Option<[u8; 6]>; 2],
}

impl Tunnel {
    /// Whether routers may fragment its packets.
    pub(super) fn may_be_fragmented(&self) -> bool {
        !self.dont_fragment && matches!(self.outer, OuterIp::V4 { .. })
    }
}

/// The key of a packet's tunnel: source and destination address, the UDP port, or none for GRE, and
/// the identifier.
pub(super) type EndPoint = (IpAddr, IpAddr, Option<u16>, Option<u32>);

/// The tunnels.
pub(super) struct Tunnels {
    /// Packet type `n` of the table is number `n - 1`.
    pub(super) all: Vec<Tunnel>,
    pub(super) table: RuleTable,
    /// The index in `all` of the tunnel that a packet arrives from.
    pub(super) ends: HashMap<EndPoint, usize>,
    /// The protocol by source and destination address and UDP port.
    pub(super) ports: HashMap<(IpAddr, IpAddr, Option<u16>), Protocol>,
}

pub(super) fn read(section: &Section<'_>) -> Result<Tunnels, BuildError> {
    let options: Options = section.parse()?;
    let mut reader = Reader {
        section,
        errors: Vec::new(),
        tunnels: Tunnels {
            all: Vec::new(),
            table: RuleTable::new(PacketType(0)),
            ends: HashMap::new(),
            ports: HashMap::new(),
        },
        rules: RuleList::default(),
    };
    if options.tunnel.is_empty() {
        reader.error(section.span(), "no tunnel is configured", "at least one [[nf.NAME.tunnel]]");
    }
    for tunnel in options.tunnel {
        if reader.tunnels.all.len() == usize::from(u16::MAX) {
            reader.error(tunnel.span(), "too many tunnels", "at most 65535");
            break;
        }
        reader.tunnel(tunnel);
    }
    let Reader { mut errors, mut tunnels, mut rules, .. } = reader;
    errors.extend(rules.never_met());
    tunnels.table = rules.table(PacketType(0));
    if errors.is_empty() { Ok(tunnels) } else { Err(BuildError(errors)) }
}

struct Reader<'a> {
    section: &'a Section<'a>,
    errors: Vec<SourceError>,
    tunnels: Tunnels,
    rules: RuleList,
}

impl Reader<'_> {
    fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.errors.push(self.section.error(span, message, expected));
    }

    fn tunnel(&mut self, options: Spanned<TunnelOptions>) {
        let span = options.span();
        let options = options.into_inner();
        let protocol = options.protocol;
        let id = options.id.as_ref().map(|id| *id.get_ref());
        match &options.id {
            Some(id) if *id.get_ref() > protocol.most_id() => {
                let expected = format!("0 to {}", protocol.most_id());
                self.error(id.span(), "tunnel identifier out of range", expected);
            }
            None if protocol.port().is_some() => {
                self.error(span.clone(), "the tunnel has no identifier", "id = 0 to 16777215");
            }
            _ => {}
        }
        let port = self.port(&options);
        if *options.ttl.get_ref() == 0 {
            self.error(options.ttl.span(), "a TTL of 0", "1 to 255");
        }
        let (local, remote) = (*options.local.get_ref(), *options.remote.get_ref());
        let ip_protocol = if port.is_some() { UDP } else { GRE };
        let Some(outer) = OuterIp::new(local, remote, ip_protocol, *options.ttl.get_ref()) else {
            let expected = "'local' and 'remote' of the same IP version";
            self.error(options.remote.span(), "the endpoints differ in IP version", expected);
            return;
        };
        let at = self.tunnels.all.len();
        if self.tunnels.ends.insert((remote, local, port, id), at).is_some() {
            let message = "duplicate tunnel: same endpoints, port and identifier as another";
            self.error(span, message, "another identifier");
        }
        // GRE names its payload, so that both GRE and GRETAP can share two endpoints.
        let before = self.tunnels.ports.insert((remote, local, port), protocol);
        if port.is_some() && before.is_some_and(|before| before != protocol) {
            let message = "two protocols between the same endpoints on the same port";
            self.error(options.remote.span(), message, "another port");
        }
        if let Some(text) = &options.r#match {
            self.rule(text, at, protocol);
        }
        let macs = [&options.source_mac, &options.destination_mac]
            .map(|mac| mac.as_ref().and_then(|mac| self.mac(mac)));
        let (name, dont_fragment) = (options.name, options.df);
        self.tunnels.all.push(Tunnel { name, protocol, id, port, outer, dont_fragment, macs });
    }

    fn port(&mut self, options: &TunnelOptions) -> Option<u16> {
        match (&options.port, options.protocol.port()) {
            (None, default) => default,
            (Some(port), None) => {
                self.error(port.span(), "this protocol has no UDP port", "no 'port'");
                None
            }
            (Some(port), Some(_)) => {
                if *port.get_ref() == 0 {
                    self.error(port.span(), "port 0", "1 to 65535");
                }
                Some(*port.get_ref())
            }
        }
    }

    fn rule(&mut self, text: &Spanned<String>, at: usize, protocol: Protocol) {
        let place = Place::of_string(self.section.source(), text.get_ref(), text.span());
        let pattern = match flow_syntax::parse_pattern(text.get_ref()) {
            Ok(pattern) => pattern,
            Err(e) => {
                self.errors.push(e.in_rule(&place, 0));
                return;
            }
        };
        if protocol == Protocol::Gre && is_never_ip(&pattern) {
            let expected = "IP packets, or protocol = \"gretap\"";
            self.error(text.span(), "this protocol carries only IP", expected);
        }
        let flow = Flow { priority: 0, pattern };
        self.rules.add(&place, text.get_ref(), flow, PacketType(at as u16 + 1));
    }

    fn mac(&mut self, text: &Spanned<String>) -> Option<[u8; 6]> {
        let bytes: Option<Vec<u8>> = text
            .get_ref()
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
            .collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        if mac.is_none() {
            self.error(text.span(), "not a MAC address", "six bytes such as 02:00:00:00:00:01");
        }
        mac
    }
}

/// Whether no packet that matches a pattern has an EtherType of IP.
fn is_never_ip(pattern: &Match) -> bool {
    let named = pattern.mask().get(field::DL_TYPE) == field::DL_TYPE.max();
    named
        && !matches!(pattern.value().get(field::DL_TYPE) as u16, ethertype::IPV4 | ethertype::IPV6)
}
