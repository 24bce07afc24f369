//! The options of the `router` NF.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_packet::PortIndex;
use thalweg_source::SourceError;
use toml::Spanned;

use super::table::{Mac, RouterPort};
use thalweg_nf::toolkit::icmp_error::IcmpSender;
use thalweg_nf::{Environment, Section};

/// The MTU of a port, in bytes of IP, if none is configured: Ethernet's.
const DEFAULT_MTU: u16 = 1500;

/// The options of a router.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The route file, relative to the chain file; required without `kernel_table`.
    #[schemars(with = "Option<String>")]
    routes: Option<Spanned<String>>,
    /// The number of a routing table of the Linux kernel to follow, with the kernel's neighbours; 254
    /// is its main table.
    #[schemars(with = "Option<u32>", range(min = 1))]
    kernel_table: Option<Spanned<u32>>,
    /// Ports by the names that the route file uses; one or more.
    #[schemars(with = "BTreeMap<String, PortOptions>", length(min = 1))]
    ports: BTreeMap<Spanned<String>, PortOptions>,
    /// ICMP errors per second, after a burst of 50; 0 sends none.
    #[serde(default = "icmp_rate")]
    icmp_rate: u32,
}

fn icmp_rate() -> u32 {
    IcmpSender::DEFAULT_RATE
}

fn no() -> Spanned<bool> {
    Spanned::new(0..0, false)
}

/// A port of a router.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PortOptions {
    /// Its MAC address: the source of the packets that leave by it.
    #[schemars(with = "String")]
    mac: Spanned<String>,
    /// Its IPv4 address, without prefix length.
    #[schemars(with = "Option<String>")]
    ip: Option<Spanned<String>>,
    /// Its IPv6 address, not link-local.
    #[schemars(with = "Option<String>")]
    ipv6: Option<Spanned<String>>,
    /// The chain's output that its packets take; by default the one with the port's name.
    #[schemars(with = "Option<String>")]
    output: Option<Spanned<String>>,
    /// The kernel's interface whose routes leave by this port; by default that of the output, or
    /// else the one with the output's name. Only with `kernel_table`.
    #[schemars(with = "Option<String>")]
    interface: Option<Spanned<String>>,
    /// Its MTU, in bytes of IP; 1280 or more with `ipv6`; 1500 by default.
    #[schemars(with = "Option<u16>", range(min = 68))]
    mtu: Option<Spanned<u16>>,
    /// The MAC address of every host and next hop that `neighbors` does not name.
    #[schemars(with = "Option<String>")]
    default_mac: Option<Spanned<String>>,
    /// Whether to resolve the MAC addresses of hosts and next hops that `neighbors` does not name,
    /// by ARP with `ip` and by neighbour discovery with `ipv6`.
    #[serde(default = "no")]
    #[schemars(with = "bool")]
    resolve: Spanned<bool>,
    /// MAC addresses by IP address: static ARP and neighbour entries.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    neighbors: BTreeMap<Spanned<String>, Spanned<String>>,
}

/// One port of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name: the `dev` of the route file.
    pub name: String,
    /// The source MAC address of the packets that leave by it.
    pub mac: Mac,
    /// Its IPv4 address.
    pub ip: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The chain's output that its packets take.
    pub output: PortIndex,
    /// The name of that output.
    pub output_name: String,
    /// The kernel's interface whose routes leave by it, if the router follows the kernel.
    pub interface: Option<String>,
    /// Its MTU, in bytes of IP.
    pub mtu: u16,
    /// The MAC address of hosts that `neighbors` does not name.
    pub default_mac: Option<Mac>,
    /// Whether the MAC addresses of others are resolved.
    pub resolve: bool,
    /// MAC addresses by IP address, sorted.
    pub neighbors: Vec<(IpAddr, Mac)>,
}

impl Port {
    /// The MAC address of the host or router `address` on the port's link.
    pub fn neighbor(&self, address: IpAddr) -> Option<Mac> {
        self.static_neighbor(address).or(self.default_mac)
    }

    /// The MAC address that `neighbors` lists for `address`.
    pub(super) fn static_neighbor(&self, address: IpAddr) -> Option<Mac> {
        let found = self.neighbors.binary_search_by_key(&address, |(address, _)| *address);
        found.ok().map(|i| self.neighbors[i].1)
    }

    /// Whether the MAC address of `address` is resolved on this port.
    pub(super) fn asks_for(&self, address: IpAddr) -> bool {
        self.resolve && if address.is_ipv4() { self.ip.is_some() } else { self.ipv6.is_some() }
    }
}

/// The ports of a router, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<Port>);

impl Ports {
    /// The given ports; a [`RouterPort`] is a position in them.
    pub fn new(ports: Vec<Port>) -> Self {
        Self(ports)
    }

    /// The port `port`.
    ///
    /// # Panics
    /// If `port` belongs to another router and is out of range.
    #[inline]
    pub fn get(&self, port: RouterPort) -> &Port {
        &self.0[port.0 as usize]
    }

    /// A number specific to this router, derived from its ports' MAC addresses (FNV-1a).
    pub(super) fn seed(&self) -> u32 {
        let bytes = self.0.iter().flat_map(|port| port.mac);
        bytes.fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    /// The port named `name`.
    pub fn find(&self, name: &str) -> Option<RouterPort> {
        self.iter().find(|(_, port)| port.name == name).map(|(id, _)| id)
    }

    /// All ports.
    pub fn iter(&self) -> impl Iterator<Item = (RouterPort, &Port)> {
        self.0.iter().enumerate().map(|(i, port)| (RouterPort(i as u16), port))
    }

    /// The names of all ports, for messages.
    pub(super) fn names(&self) -> String {
        self.0.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// All addresses of the router with their ports.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = (IpAddr, RouterPort)> + '_ {
        self.iter().flat_map(|(id, port)| {
            let v4 = port.ip.map(IpAddr::V4);
            v4.into_iter().chain(port.ipv6.map(IpAddr::V6)).map(move |address| (address, id))
        })
    }

    /// The port that has the address `own`.
    pub(super) fn with_address(&self, own: IpAddr) -> Option<RouterPort> {
        self.own_addresses().find(|(address, _)| *address == own).map(|(_, port)| port)
    }

    /// The source address of errors sent by `port`, in the IP version of
    /// `like`: the port's own, or else the first that the router has (RFC 1812
    /// §4.3.2.4, the router-id).
    pub(super) fn error_source(&self, port: RouterPort, like: IpAddr) -> Option<IpAddr> {
        let mut first = None;
        for (address, id) in self.own_addresses() {
            if address.is_ipv4() == like.is_ipv4() {
                if id == port {
                    return Some(address);
                }
                first = first.or(Some(address));
            }
        }
        first
    }
}

/// The checked options of a router.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) routes: Option<Spanned<String>>,
    pub(super) kernel_table: Option<Spanned<u32>>,
    pub(super) ports: Ports,
    pub(super) icmp_rate: u32,
}

impl Config {
    /// Reads the options of `section`.
    ///
    /// # Errors
    /// Every mistake in them.
    pub(super) fn read(
        section: &Section<'_>,
        environment: &Environment<'_>,
    ) -> Result<Self, Vec<SourceError>> {
        let mut options: Options = section.parse().map_err(|e| vec![e])?;
        let follows = options.kernel_table.is_some();
        let mut reader = Reader { section, environment, follows, errors: Vec::new() };
        reader.sources(options.routes.is_some(), options.kernel_table.as_ref());
        if options.ports.is_empty() {
            reader.fail(section.span(), "a router without ports", "a table [nf.NAME.ports.DEV]");
        }
        let ports = std::mem::take(&mut options.ports);
        let ports = ports.into_iter().map(|(name, port)| reader.port(name, &port)).collect();
        let ports = Ports(ports);
        reader.interfaces_differ(&ports);
        reader.own_addresses_differ(&ports);
        if !reader.errors.is_empty() {
            return Err(reader.errors);
        }
        let Options { routes, kernel_table, icmp_rate, .. } = options;
        Ok(Self { routes, kernel_table, ports, icmp_rate })
    }
}

/// Collects the mistakes of one section.
struct Reader<'a> {
    section: &'a Section<'a>,
    environment: &'a Environment<'a>,
    /// Whether the router follows the kernel.
    follows: bool,
    errors: Vec<SourceError>,
}

impl Reader<'_> {
    fn fail(&mut self, span: std::ops::Range<usize>, message: &str, expected: &str) {
        self.errors.push(self.section.error(span, message, expected));
    }

    /// Checks where the routes come from.
    fn sources(&mut self, has_file: bool, kernel_table: Option<&Spanned<u32>>) {
        match kernel_table {
            None if !has_file => {
                let expected = "`routes`, `kernel_table` or both";
                self.fail(self.section.span(), "a router without routes", expected);
            }
            Some(table) if *table.get_ref() == 0 => {
                let expected = "1 to 4294967295; the main table is 254";
                self.fail(table.span(), "not the number of a table", expected);
            }
            _ => {}
        }
    }

    /// The kernel's interface of a port whose packets take `output`.
    fn interface(
        &mut self,
        option: Option<&Spanned<String>>,
        output: PortIndex,
        output_name: &str,
    ) -> Option<String> {
        if let Some(name) = option {
            if !self.follows {
                let message = "`interface` has no effect without `kernel_table`";
                self.fail(name.span(), message, "`kernel_table`, or no `interface`");
            } else if name.get_ref().is_empty() || name.get_ref().len() > 15 {
                let expected = "the name of an interface, of 1 to 15 bytes";
                self.fail(name.span(), "not the name of an interface", expected);
            }
        }
        let of_output = self.environment.interfaces.get(usize::from(output.0));
        let of_output = of_output.filter(|name| !name.is_empty()).map(String::as_str);
        let given = option.map(|name| name.get_ref().as_str());
        self.follows.then(|| given.or(of_output).unwrap_or(output_name).to_owned())
    }

    fn interfaces_differ(&mut self, ports: &Ports) {
        let mut named: Vec<_> = ports
            .0
            .iter()
            .filter_map(|port| Some((port.interface.as_ref()?, &port.name)))
            .collect();
        named.sort_unstable();
        for pair in named.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let [(interface, one), (_, other)] = [pair[0], pair[1]];
            let message =
                format!("ports '{one}' and '{other}' have the same interface '{interface}'");
            self.fail(self.section.span(), &message, "a different `interface` for each port");
        }
    }

    /// Reads a port as far as possible; the mistakes are added to the errors.
    fn port(&mut self, name: Spanned<String>, options: &PortOptions) -> Port {
        let output = options.output.as_ref().unwrap_or(&name);
        let index = self.output(output);
        let output_name = output.get_ref().clone();
        let ip = options.ip.as_ref().and_then(|ip| self.address::<Ipv4Addr>(ip));
        let ipv6 = options.ipv6.as_ref().and_then(|ip| self.address::<Ipv6Addr>(ip));
        let resolve = self.resolve(options);
        Port {
            resolve,
            mac: self.mac(&options.mac).unwrap_or_default(),
            ip,
            ipv6,
            output: index,
            interface: self.interface(options.interface.as_ref(), index, &output_name),
            output_name,
            mtu: self.mtu(options.mtu.as_ref(), ipv6.is_some()),
            default_mac: options.default_mac.as_ref().and_then(|mac| self.mac(mac)),
            neighbors: self.neighbors(&options.neighbors),
            name: name.into_inner(),
        }
    }

    fn resolve(&mut self, options: &PortOptions) -> bool {
        let resolve = &options.resolve;
        if !resolve.get_ref() {
            return false;
        }
        if options.default_mac.is_some() {
            let message = "`resolve` and `default_mac` exclude each other";
            self.fail(resolve.span(), message, "one of the two");
        }
        if options.ip.is_none() && options.ipv6.is_none() {
            let message = "a port without an IP address cannot resolve MAC addresses";
            self.fail(resolve.span(), message, "`ip`, `ipv6` or both");
        }
        true
    }

    fn output(&mut self, name: &Spanned<String>) -> PortIndex {
        let outputs = self.environment.outputs;
        let found = outputs.iter().position(|output| output == name.get_ref());
        if found.is_none() {
            let message = "the chain has no output of this name; set the port's `output`";
            self.fail(name.span(), message, &format!("one of {}", outputs.join(", ")));
        }
        found.map_or(PortIndex::NONE, |i| PortIndex(i as u16))
    }

    fn address<A: OwnAddress>(&mut self, text: &Spanned<String>) -> Option<A> {
        let address = text.get_ref().parse().ok().filter(A::is_host);
        if address.is_none() {
            self.fail(text.span(), "not a usable port address", A::EXPECTED);
        }
        address
    }

    fn mac(&mut self, text: &Spanned<String>) -> Option<Mac> {
        let mac = parse_mac(text.get_ref()).filter(|mac| is_station(*mac));
        if mac.is_none() {
            let expected = "a unicast MAC address such as 02:00:00:00:00:01";
            self.fail(text.span(), "not a unicast MAC address", expected);
        }
        mac
    }

    fn mtu(&mut self, mtu: Option<&Spanned<u16>>, v6: bool) -> u16 {
        let Some(mtu) = mtu else { return DEFAULT_MTU };
        let least = if v6 { 1280 } else { 68 };
        if *mtu.get_ref() < least {
            let expected = format!("{least} to 65535 bytes (68 for IPv4, 1280 for IPv6)");
            self.fail(mtu.span(), "MTU too small", &expected);
        }
        *mtu.get_ref()
    }

    fn neighbors(
        &mut self,
        map: &BTreeMap<Spanned<String>, Spanned<String>>,
    ) -> Vec<(IpAddr, Mac)> {
        let mut neighbors = Vec::with_capacity(map.len());
        for (address, mac) in map {
            let mac = self.mac(mac);
            match address.get_ref().parse() {
                Ok(address) => neighbors.extend(mac.map(|mac| (address, mac))),
                Err(_) => self.fail(address.span(), "not an IP address", "an IPv4 or IPv6 address"),
            }
        }
        neighbors.sort_unstable();
        neighbors
    }

    fn own_addresses_differ(&mut self, ports: &Ports) {
        let mut own: Vec<_> = ports.own_addresses().collect();
        own.sort_unstable();
        for pair in own.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let (one, other) = (&ports.get(pair[0].1).name, &ports.get(pair[1].1).name);
            let message =
                format!("ports '{one}' and '{other}' have the same address {}", pair[0].0);
            self.fail(self.section.span(), &message, "a different address for each port");
        }
    }
}

/// An address that a port can have.
trait OwnAddress: std::str::FromStr {
    const EXPECTED: &'static str;
    fn is_host(&self) -> bool;
}

impl OwnAddress for Ipv4Addr {
    const EXPECTED: &'static str =
        "a unicast IPv4 address without prefix length, such as 192.0.2.1";

    fn is_host(&self) -> bool {
        !matches!(self.octets()[0], 0 | 127 | 224..)
    }
}

impl OwnAddress for Ipv6Addr {
    const EXPECTED: &'static str =
        "a unicast IPv6 address, not link-local, without prefix length, such as 2001:db8::1";

    fn is_host(&self) -> bool {
        u128::from(*self) > 1 && !self.is_multicast() && !self.is_unicast_link_local()
    }
}

/// Whether a MAC address is unicast and not zero.
pub(super) fn is_station(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// A MAC address as six pairs of hexadecimal digits, joined by `:` or `-`.
fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = part.bytes().try_fold(0, |sum: u8, digit| {
            (digit as char).to_digit(16).map(|digit| sum << 4 | digit as u8)
        })?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests;
