//! The inventory: all known hosts, as lines of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use thalweg_packet::wire::ip_proto;

use super::attributes::Attributes;
use super::fingerprint::Fingerprints;
use super::host::{Basis, Evidence, Host, HostId, Role, Service, System};
use thalweg_nf::NfError;
use thalweg_nf::toolkit::output::{OutputFile, json_line, replace};

/// Replaces the content of `file` by `hosts`, as a whole, so that a reader never sees a part of it.
pub(super) fn write(
    file: &OutputFile,
    hosts: &[(&HostId, &Host)],
    known: &Fingerprints,
) -> Result<(), NfError> {
    replace(file, |out| {
        hosts.iter().try_for_each(|(id, host)| json_line(out, &line(**id, host, known)))
    })
}

/// A host as a line of JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct Line<'a> {
    #[schemars(extend("const" = "thalweg.assets/1"))]
    schema: &'static str,
    address: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    first_ns: u64,
    last_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<&'a str>,
    hardware_changes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    systems: Vec<SystemLine<'a>>,
    services: Vec<ServiceLine<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct SystemLine<'a> {
    by: Evidence,
    signature: &'a str,
    seen: u64,
    fuzzy: bool,
    #[schemars(with = "BTreeMap<String, String>")]
    says: Says<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ServiceLine<'a> {
    protocol: Cow<'static, str>,
    port: u16,
    role: Role,
    by: Basis,
    first_ns: u64,
    last_ns: u64,
    #[schemars(with = "BTreeMap<String, String>")]
    says: Says<'a>,
}

/// Attributes as a JSON object.
struct Says<'a>(&'a Attributes);

impl Serialize for Says<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn line<'a>(id: HostId, host: &'a Host, known: &'a Fingerprints) -> Line<'a> {
    let mut systems: Vec<&System> = host.systems.iter().collect();
    systems.sort_by_key(|s| (s.by, std::cmp::Reverse(s.seen), &s.signature));
    let mut services: Vec<&Service> = host.services.iter().collect();
    services.sort_by_key(|s| (s.role, s.protocol, s.port));
    Line {
        schema: "thalweg.assets/1",
        address: id.address(),
        vlan: (id.vlan != 0).then_some(id.vlan),
        first_ns: host.first.0,
        last_ns: host.last.0,
        hardware: host
            .hardware
            .map(|[a, b, c, d, e, f]| format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")),
        vendor: host.hardware.and_then(|card| known.vendor(card)),
        hardware_changes: host.hardware_changes,
        name: host.name.as_deref(),
        distance: host.distance,
        mtu: host.mtu,
        link: host.mtu.and_then(|mtu| known.link(mtu)),
        systems: systems
            .into_iter()
            .map(|s| SystemLine {
                by: s.by,
                signature: &s.signature,
                seen: s.seen,
                fuzzy: s.fuzzy,
                says: Says(&s.says),
            })
            .collect(),
        services: services
            .into_iter()
            .map(|s| ServiceLine {
                protocol: ip_proto::name(s.protocol),
                port: s.port,
                role: s.role,
                by: s.basis,
                first_ns: s.first.0,
                last_ns: s.last.0,
                says: Says(&s.says),
            })
            .collect(),
    }
}
