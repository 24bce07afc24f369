//! The SAD and SPD of the configuration.

mod association;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::flow_syntax::{self, Flow};
use thalweg_classify::{Match, Rule, RuleId, RuleTable};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{PacketType, field};
use thalweg_source::{Place, SourceError};
use toml::Spanned;

use super::device::DeviceKeys;
use super::sa::{DontFragment, Inbound, Outbound, Receiver};
use association::SaOptions;
use thalweg_nf::toolkit::rules::RuleList;
use thalweg_nf::{BuildError, Section, Seed};

/// The options of an IPsec gateway.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// Security associations.
    #[serde(default)]
    #[schemars(with = "Vec<SaOptions>")]
    sa: Vec<Spanned<SaOptions>>,
    /// Policies for packets that did not arrive through a tunnel; the first that matches decides.
    #[serde(default)]
    #[schemars(with = "Vec<PolicyOptions>")]
    policy: Vec<Spanned<PolicyOptions>>,
    /// The action for packets that no policy matches.
    #[serde(default)]
    default_policy: DefaultPolicy,
    /// The gateway's IPv4 address: the source of ICMP errors about IPv4 packets that are too long
    /// for their tunnel. Without it the tunnel's `source` is used, if that is IPv4.
    #[schemars(with = "Option<String>")]
    icmp_source: Option<Spanned<Ipv4Addr>>,
    /// The gateway's IPv6 address: the source of ICMPv6 errors about IPv6 packets that are too long
    /// for their tunnel. Without it the tunnel's `source` is used, if that is IPv6.
    #[schemars(with = "Option<String>")]
    icmp6_source: Option<Spanned<Ipv6Addr>>,
    /// Whether the time that a device takes for ciphers must not depend on keys and packets, as others who use
    /// the device may measure it. By default the device uses what is faster. It changes nothing on the processor.
    #[serde(default)]
    constant_time: bool,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DefaultPolicy {
    /// Forward them unchanged.
    Bypass,
    /// Drop them.
    #[default]
    Discard,
}

/// A security policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyOptions {
    /// The packets that it applies to, in flow syntax.
    #[schemars(with = "String")]
    r#match: Spanned<String>,
    /// What to do with them.
    action: PolicyAction,
    /// The name of the outbound SA that protects them; with `protect` only.
    #[schemars(with = "Option<String>")]
    sa: Option<Spanned<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PolicyAction {
    /// Send them through the tunnel of `sa`.
    Protect,
    /// Forward them unchanged.
    Bypass,
    /// Drop them.
    Discard,
}

/// What the security policy decides for a packet.
pub(super) enum Policy {
    Protect(Arc<Outbound>),
    Bypass,
    Discard,
    /// The packet should have arrived through a tunnel (RFC 4301, 5.2).
    Expected,
}

/// The databases.
pub(super) struct Databases {
    pub(super) inbound: HashMap<u32, Arc<Inbound>>,
    pub(super) outbound: Vec<Arc<Outbound>>,
    /// Indexed by the packet type that [`table`](Self::table) returns; the default first.
    pub(super) policies: Vec<Policy>,
    pub(super) table: RuleTable,
    /// The end points of inbound tunnels: addresses, and UDP ports of ESP in UDP.
    pub(super) ends: HashSet<IpAddr>,
    pub(super) udp_ends: HashSet<(IpAddr, u16)>,
    pub(super) own: OwnAddresses,
    pub(super) warnings: Vec<SourceError>,
    pub(super) device_keys: DeviceKeys,
}

/// The source addresses of ICMP errors.
#[derive(Clone, Copy)]
pub(super) struct OwnAddresses {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl OwnAddresses {
    pub(super) fn of_version(self, is_ipv4: bool) -> Option<IpAddr> {
        if is_ipv4 { self.v4 } else { self.v6 }
    }
}

impl Databases {
    /// Whether a tunnel ends at `address`.
    pub(super) fn is_end(&self, address: IpAddr) -> bool {
        self.ends.contains(&address)
    }
}

pub(super) fn read(section: &Section<'_>, seed: Seed) -> Result<Databases, BuildError> {
    // A mistake here may be next to a key: show the place, not the text.
    let options: Options = section.parse().map_err(|e| hide(section, &e))?;
    let mut reader = Reader {
        seed,
        section,
        errors: Vec::new(),
        inbound: HashMap::new(),
        outbound: Vec::new(),
        names: HashMap::new(),
        receivers: HashSet::new(),
        refused: HashSet::new(),
        mtus: HashMap::new(),
        rules: RuleList::default(),
        device_keys: DeviceKeys::default(),
    };
    reader.device_keys.constant_time = options.constant_time;
    let own = reader.own_addresses(&options);
    for sa in options.sa {
        reader.security_association(sa.into_inner());
    }
    let default = match options.default_policy {
        DefaultPolicy::Bypass => Policy::Bypass,
        DefaultPolicy::Discard => Policy::Discard,
    };
    let mut policies = vec![default, Policy::Expected];
    for policy in options.policy {
        let packet_type = PacketType(policies.len() as u16);
        if policies.len() > usize::from(u16::MAX) {
            reader.error(policy.span(), "too many policies", "at most 65534");
            break;
        }
        policies.extend(reader.policy(packet_type, policy));
    }
    let warnings = reader.unheard(own, &policies);
    let Reader { mut errors, inbound, outbound, mut rules, device_keys, .. } = reader;
    let selective = inbound.values().filter(|sa| sa.is_selective());
    let ids = rules.next_id().0..;
    rules.extend(selective.zip(ids).map(|(sa, id)| expected(sa, RuleId(id))));
    errors.extend(rules.never_met());
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let table = rules.table(PacketType(0));
    let end = |sa: &Arc<Inbound>| sa.association.destination;
    let ends = inbound.values().map(end).collect();
    let udp_end = |sa: &Arc<Inbound>| Some((end(sa), sa.association.udp?.1));
    let udp_ends = inbound.values().filter_map(udp_end).collect();
    Ok(Databases { inbound, outbound, policies, table, ends, udp_ends, own, warnings, device_keys })
}

/// The rule, ahead of all policies, for packets that should have arrived through a tunnel.
fn expected(sa: &Inbound, id: RuleId) -> Rule {
    Rule {
        id,
        priority: 1,
        matches: vec![sa.selector],
        packet_type: PacketType(1),
        text: format!("the selector of SA '{}'", sa.association.name),
    }
}

/// Whether packets of an IP version can match the pattern.
fn admits(pattern: &Match, is_ipv4: bool) -> bool {
    let ether_type = if is_ipv4 { ethertype::IPV4 } else { ethertype::IPV6 };
    let (value, mask) = (pattern.value().get(field::DL_TYPE), pattern.mask().get(field::DL_TYPE));
    value == u64::from(ether_type) & mask
}

/// Whether an address can belong to a single host.
fn is_unicast(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

/// The same error without the text that it points at.
fn hide(section: &Section<'_>, error: &SourceError) -> SourceError {
    let at = error.span().start;
    section.error(at..at, error.message().lines().next().unwrap_or(""), error.expected())
}

/// The place of a policy's pattern.
fn place<'a>(section: &'a Section<'_>, text: &Spanned<String>) -> Place<'a> {
    Place::of_string(section.source(), text.get_ref(), text.span())
}

struct Reader<'a> {
    seed: Seed,
    section: &'a Section<'a>,
    errors: Vec<SourceError>,
    inbound: HashMap<u32, Arc<Inbound>>,
    outbound: Vec<Arc<Outbound>>,
    /// The index in `outbound`, by name.
    names: HashMap<String, usize>,
    /// The receivers of the outbound associations.
    receivers: HashSet<Receiver>,
    /// Names of outbound associations with a mistake.
    refused: HashSet<String>,
    /// Spans of the configured MTUs, by the name of the outbound association.
    mtus: HashMap<String, Range<usize>>,
    /// The keys of associations that a device can serve.
    device_keys: DeviceKeys,
    /// The patterns of policies.
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

    fn own_addresses(&mut self, options: &Options) -> OwnAddresses {
        let v4 = options.icmp_source.as_ref().map(|at| (at.span(), IpAddr::V4(*at.get_ref())));
        let v6 = options.icmp6_source.as_ref().map(|at| (at.span(), IpAddr::V6(*at.get_ref())));
        for (span, address) in [&v4, &v6].into_iter().flatten() {
            if !is_unicast(*address) || address.is_loopback() {
                let expected = "a unicast address of the gateway, not loopback";
                self.error(span.clone(), "not the address of a host", expected);
            }
        }
        let address = |(_, address)| address;
        OwnAddresses { v4: v4.map(address), v6: v6.map(address) }
    }

    /// Warnings for tunnels whose policies match packets of the other IP version, so that there is
    /// no source address for an ICMP error to their senders.
    fn unheard(&mut self, own: OwnAddresses, policies: &[Policy]) -> Vec<SourceError> {
        let mut warnings = Vec::new();
        for rule in self.rules.as_slice() {
            let policy = policies.get(usize::from(rule.packet_type.0));
            let Some(Policy::Protect(sa)) = policy else { continue };
            let inside_ipv4 = !sa.association.source.is_ipv4();
            let may_be_silent = own.of_version(inside_ipv4).is_none()
                && sa.path.dont_fragment != DontFragment::Clear
                && rule.matches.iter().any(|pattern| admits(pattern, inside_ipv4));
            if !may_be_silent {
                continue;
            }
            // One warning per SA.
            let Some(span) = self.mtus.remove(&sa.association.name) else { continue };
            let (version, option) =
                if inside_ipv4 { (4, "icmp_source") } else { (6, "icmp6_source") };
            let message =
                format!("no ICMP error is sent for IPv{version} packets too long for this tunnel");
            let expected =
                format!("{option} = \"ADDRESS\", an IPv{version} address of the gateway");
            warnings.push(self.section.error(span, message, expected));
        }
        warnings
    }

    fn flow(&mut self, text: &Spanned<String>) -> Option<Match> {
        let parsed = flow_syntax::parse_pattern(text.get_ref());
        parsed.map_err(|e| self.errors.push(e.in_rule(&place(self.section, text), 0))).ok()
    }

    fn policy(
        &mut self,
        packet_type: PacketType,
        options: Spanned<PolicyOptions>,
    ) -> Option<Policy> {
        let span = options.span();
        let options = options.into_inner();
        let pattern = self.flow(&options.r#match)?;
        let policy = match (options.action, &options.sa) {
            (PolicyAction::Protect, Some(name)) => {
                if let Some(at) = self.names.get(name.get_ref()) {
                    Policy::Protect(self.outbound[*at].clone())
                } else if self.refused.contains(name.get_ref()) {
                    return None;
                } else {
                    let some = self.outbound.iter().take(10);
                    let names: Vec<_> = some.map(|sa| sa.association.name.as_str()).collect();
                    let expected = if names.is_empty() {
                        "an SA with direction = \"out\"; none is configured".into()
                    } else {
                        format!("the name of an outbound SA: {}", names.join(", "))
                    };
                    self.error(name.span(), "unknown outbound SA", expected);
                    return None;
                }
            }
            (PolicyAction::Protect, None) => {
                self.error(span, "a policy with action 'protect' needs an SA", "sa = \"NAME\"");
                return None;
            }
            (_, Some(name)) => {
                self.error(name.span(), "only action 'protect' takes an SA", "no `sa`");
                return None;
            }
            (PolicyAction::Bypass, None) => Policy::Bypass,
            (PolicyAction::Discard, None) => Policy::Discard,
        };
        let place = place(self.section, &options.r#match);
        let flow = Flow { priority: 0, pattern };
        self.rules.add(&place, options.r#match.get_ref(), flow, packet_type);
        Some(policy)
    }
}
