//! The specification of the traffic to generate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sizes::Sizes;
use super::subnet::Subnet;

/// The traffic to generate. Every field has a default.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of flows.
    pub flows: u32,
    /// Zipf skew of the flows' popularity; without it, all flows are alike.
    pub zipf: Option<f64>,
    /// Frame sizes in bytes, with the four bytes of frame check sequence that
    /// captures leave out: `imix`, a number, `64-1500`, or weighted
    /// `64:7,594:4,1518:1`. A packet is never shorter than its headers.
    pub size: Sizes,
    /// Weights of the protocols among the flows.
    pub protocols: Protocols,
    /// Share of flows over IPv6, 0 to 1.
    pub ipv6: f64,
    /// VLAN IDs of tagged flows.
    pub vlans: Vec<u16>,
    /// Share of flows with a VLAN tag, 0 to 1.
    pub vlan_share: f64,
    /// Share of tagged flows with a second, outer tag (802.1ad), 0 to 1.
    pub qinq_share: f64,
    /// IPv4 and IPv6 prefixes of the clients.
    pub clients: Vec<String>,
    /// IPv4 and IPv6 prefixes of the servers.
    pub servers: Vec<String>,
    /// Ports that servers listen on.
    pub server_ports: Vec<u16>,
    /// Share of packets with a truncated or invalid header, 0 to 1.
    pub malformed: f64,
    /// Share of packets that are attacks, 0 to 1: floods, fragments, conflicting segments, endless
    /// messages, forged resets, FINs and ICMP errors.
    pub hostile: f64,
    /// Packets per second, in packet time.
    pub rate: f64,
    /// Payload of the packets.
    pub payload: Payload,
}

/// Weights of the protocols among the flows.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protocols {
    /// TCP, with handshakes and teardowns.
    pub tcp: f64,
    /// UDP.
    pub udp: f64,
    /// ICMP and ICMPv6 echo.
    pub icmp: f64,
    /// SCTP.
    pub sctp: f64,
}

/// The payload of generated packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Random bytes.
    #[default]
    Random,
    /// Zeros.
    Zeros,
    /// Text like HTTP.
    Http,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { tcp: 70.0, udp: 25.0, icmp: 5.0, sctp: 0.0 }
    }
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            seed: 1,
            packets: 10_000,
            flows: 100,
            zipf: None,
            size: Sizes::imix(),
            protocols: Protocols::default(),
            ipv6: 0.0,
            vlans: vec![10],
            vlan_share: 0.0,
            qinq_share: 0.0,
            clients: vec!["10.0.0.0/16".into(), "2001:db8:a::/64".into()],
            servers: vec!["198.51.100.0/24".into(), "2001:db8:b::/64".into()],
            server_ports: vec![80, 443, 53, 22, 25, 123, 8080],
            malformed: 0.0,
            hostile: 0.0,
            rate: 100_000.0,
            payload: Payload::default(),
        }
    }
}

/// An invalid field of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}; expected {expected}")]
pub struct SpecError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub what: String,
    /// What the field accepts.
    pub expected: &'static str,
}

/// The subnets of clients and servers, by IP version.
pub(super) struct Addresses {
    pub(super) clients: [Vec<Subnet>; 2],
    pub(super) servers: [Vec<Subnet>; 2],
}

impl Spec {
    /// Checks every field.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn validate(&self) -> Result<(), SpecError> {
        let shares = [
            ("ipv6", self.ipv6),
            ("vlan_share", self.vlan_share),
            ("qinq_share", self.qinq_share),
            ("malformed", self.malformed),
            ("hostile", self.hostile),
        ];
        for (field, share) in shares {
            check(field, share, "a share from 0 to 1", (0.0..=1.0).contains(&share))?;
        }
        let p = self.protocols;
        let weights = [p.tcp, p.udp, p.icmp, p.sctp];
        let fine =
            weights.iter().all(|w| *w >= 0.0 && w.is_finite()) && weights.iter().sum::<f64>() > 0.0;
        check("protocols", format!("{weights:?}"), "weights of 0 or more, not all 0", fine)?;
        check("flows", self.flows, "1 to 10000000", (1..=10_000_000).contains(&self.flows))?;
        let rate = self.rate > 0.0 && self.rate.is_finite();
        check("rate", self.rate, "packets per second, above 0", rate)?;
        if let Some(zipf) = self.zipf {
            check("zipf", zipf, "a number above 0", zipf > 0.0 && zipf.is_finite())?;
        }
        let vids = self.vlans.iter().all(|v| (1..4095).contains(v)) && !self.vlans.is_empty();
        check("vlans", format!("{:?}", self.vlans), "VLAN IDs from 1 to 4094", vids)?;
        check("server_ports", "none", "at least one port", !self.server_ports.is_empty())?;
        self.addresses().map(|_| ())
    }

    pub(super) fn addresses(&self) -> Result<Addresses, SpecError> {
        let subnets = |field, texts: &[String]| {
            let mut subnets = [Vec::new(), Vec::new()];
            for text in texts {
                let subnet = Subnet::parse(text).ok_or_else(|| SpecError {
                    field,
                    what: format!("'{text}' is not an IP prefix"),
                    expected: "prefixes such as 10.0.0.0/8 or 2001:db8::/64",
                })?;
                subnets[usize::from(!subnet.is_ipv4())].push(subnet);
            }
            for (version, share, have) in
                [(4, 1.0 - self.ipv6, &subnets[0]), (6, self.ipv6, &subnets[1])]
            {
                let what = format!("no IPv{version} prefix");
                check(
                    field,
                    what,
                    "a prefix of each IP version that is used",
                    share <= 0.0 || !have.is_empty(),
                )?;
            }
            Ok(subnets)
        };
        Ok(Addresses {
            clients: subnets("clients", &self.clients)?,
            servers: subnets("servers", &self.servers)?,
        })
    }
}

fn check(
    field: &'static str,
    found: impl std::fmt::Display,
    expected: &'static str,
    fine: bool,
) -> Result<(), SpecError> {
    if fine { Ok(()) } else { Err(SpecError { field, what: found.to_string(), expected }) }
}
