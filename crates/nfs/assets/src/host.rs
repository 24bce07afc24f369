//! A host and its attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::{FiveTuple, Nanoseconds, address_bits, address_of};

use super::attributes::Attributes;
use thalweg_nf::toolkit::flow_table::FlowWords;

/// The most systems recorded for a host.
const MAX_SYSTEMS: usize = 8;

/// The identity of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct HostId {
    /// The VLAN of the host; 0 without one.
    pub(super) vlan: u16,
    /// Its address, IPv4 mapped to IPv6.
    address: u128,
}

impl HostId {
    pub(super) fn new(vlan: u16, address: IpAddr) -> Self {
        Self { vlan, address: address_bits(address) }
    }

    pub(super) fn address(self) -> IpAddr {
        address_of(self.address)
    }

    /// A flow with this source and no other known fields.
    pub(super) fn flow(self) -> FiveTuple {
        let src = self.address();
        let dst = match src {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        FiveTuple { src, dst, protocol: 0, src_port: 0, dst_port: 0 }
    }
}

impl FlowWords<3> for HostId {
    fn words(&self) -> [u64; 3] {
        [(self.address >> 64) as u64, self.address as u64, self.vlan.into()]
    }
}

/// The record of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) first: Nanoseconds,
    pub(super) last: Nanoseconds,
    /// The address of its network card, by ARP, neighbour discovery or DHCP.
    pub(super) hardware: Option<[u8; 6]>,
    /// How often that changed.
    pub(super) hardware_changes: u32,
    /// The distance to it, in hops.
    pub(super) distance: Option<u8>,
    /// The MTU of its link.
    pub(super) mtu: Option<u16>,
    pub(super) name: Option<String>,
    pub(super) systems: Vec<System>,
    pub(super) services: Vec<Service>,
}

/// The evidence that identified a system.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Evidence {
    Syn,
    SynAck,
    Dhcp,
}

/// A system that a host runs, by one kind of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct System {
    pub(super) by: Evidence,
    /// The signature seen, in p0f 3's notation, or the parameters that a DHCP client requests.
    pub(super) signature: String,
    /// The attributes it implies; empty if it is unknown.
    pub(super) says: Attributes,
    /// Whether it matches except for fields that may change on the path.
    pub(super) fuzzy: bool,
    pub(super) seen: u64,
    pub(super) last: Nanoseconds,
}

/// Which side of a service a host is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Server,
    Client,
}

/// What identified a service, from the weakest to the strongest.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(super) enum Basis {
    /// It is not identified.
    Nothing,
    Port,
    /// The protocol it speaks.
    Protocol,
    /// A fingerprint.
    Pattern,
}

/// A service that a host offers or uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Service {
    pub(super) protocol: u8,
    /// The server's port.
    pub(super) port: u16,
    pub(super) role: Role,
    pub(super) basis: Basis,
    /// Its attributes, `service.name` among them.
    pub(super) says: Attributes,
    pub(super) first: Nanoseconds,
    pub(super) last: Nanoseconds,
}

impl Service {
    /// Takes over these attributes, unless the current basis is stronger.
    pub(super) fn learn(&mut self, basis: Basis, says: Attributes) {
        if basis >= self.basis && !says.is_empty() {
            (self.basis, self.says) = (basis, says);
        }
    }

    fn key(&self) -> (u8, u16, Role) {
        (self.protocol, self.port, self.role)
    }
}

impl Host {
    pub(super) fn new(now: Nanoseconds) -> Self {
        Self {
            first: now,
            last: now,
            hardware: None,
            hardware_changes: 0,
            distance: None,
            mtu: None,
            name: None,
            systems: Vec::new(),
            services: Vec::new(),
        }
    }

    /// Whether more than its address is known.
    pub(super) fn is_known(&self) -> bool {
        self.hardware.is_some() || !self.systems.is_empty() || !self.services.is_empty()
    }

    /// The approximate memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let name = self.name.as_ref().map_or(0, String::capacity);
        let systems = self.systems.iter();
        let systems =
            systems.map(|s| size_of::<System>() + s.signature.capacity() + s.says.memory());
        let services = self.services.iter().map(|s| size_of::<Service>() + s.says.memory());
        size_of::<(HostId, Self)>() + name + systems.sum::<usize>() + services.sum::<usize>()
    }

    /// Records the address of its network card; returns whether it changed.
    pub(super) fn has_hardware(&mut self, address: [u8; 6]) -> bool {
        let before = self.hardware.replace(address);
        let changed = before.is_some_and(|before| before != address);
        self.hardware_changes += u32::from(changed);
        changed
    }

    /// The system identified by this evidence, if it was seen before.
    pub(super) fn system(&mut self, by: Evidence, signature: &str) -> Option<&mut System> {
        self.systems.iter_mut().find(|s| s.by == by && s.signature == signature)
    }

    /// Adds a new system; at the limit it replaces the longest unseen one.
    pub(super) fn add_system(&mut self, system: System) {
        if self.systems.len() >= MAX_SYSTEMS {
            let last = |(_, s): &(usize, &System)| s.last;
            if let Some((oldest, _)) = self.systems.iter().enumerate().min_by_key(last) {
                self.systems.swap_remove(oldest);
            }
        }
        self.systems.push(system);
    }

    /// The service, added now if it is new, and whether another was evicted for it: beyond `most`,
    /// the one with the weakest basis, the least recently used one among equals.
    pub(super) fn service(
        &mut self,
        key: (u8, u16, Role),
        now: Nanoseconds,
        most: usize,
    ) -> (&mut Service, bool) {
        let known = self.services.iter().position(|s| s.key() == key);
        let is_full = known.is_none() && self.services.len() >= most;
        let place = known.unwrap_or_else(|| {
            if is_full {
                let worth = |(_, s): &(usize, &Service)| (s.basis, s.last);
                if let Some((least, _)) = self.services.iter().enumerate().min_by_key(worth) {
                    self.services.swap_remove(least);
                }
            }
            let (protocol, port, role) = key;
            let (basis, says) = (Basis::Nothing, Attributes::default());
            self.services.push(Service {
                protocol,
                port,
                role,
                basis,
                says,
                first: now,
                last: now,
            });
            self.services.len() - 1
        });
        let service = &mut self.services[place];
        service.last = service.last.follow(now);
        (service, is_full)
    }

    /// Merges the record of the same host from imported state; returns the number of services evicted.
    pub(super) fn merge(&mut self, other: &Self, most_services: usize) -> u64 {
        let newer = other.last > self.last;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.hardware_changes += other.hardware_changes;
        let pick = |mine: bool| if newer { true } else { !mine };
        if other.hardware.is_some() && pick(self.hardware.is_some()) {
            self.hardware = other.hardware;
        }
        if other.distance.is_some() && pick(self.distance.is_some()) {
            self.distance = other.distance;
        }
        if other.mtu.is_some() && pick(self.mtu.is_some()) {
            self.mtu = other.mtu;
        }
        if other.name.is_some() && pick(self.name.is_some()) {
            self.name.clone_from(&other.name);
        }
        for system in &other.systems {
            match self.system(system.by, &system.signature) {
                Some(known) => {
                    known.seen += system.seen;
                    known.last = known.last.max(system.last);
                }
                None => self.add_system(system.clone()),
            }
        }
        let mut evicted = 0;
        for theirs in &other.services {
            let (mine, one_went) = self.service(theirs.key(), theirs.last, most_services);
            evicted += u64::from(one_went);
            mine.first = mine.first.min(theirs.first);
            mine.learn(theirs.basis, theirs.says.clone());
        }
        evicted
    }

    /// Whether it satisfies the limits of this module.
    pub(super) fn is_sound(&self, most_services: usize) -> bool {
        let fits = |text: &String| text.len() <= super::attributes::MAX_VALUE;
        self.name.iter().all(fits)
            && self.systems.len() <= MAX_SYSTEMS
            && self.systems.iter().all(|s| fits(&s.signature) && s.says.is_sound())
            && self.services.len() <= most_services
            && self.services.iter().all(|s| s.says.is_sound())
    }
}
