//! The project's own fingerprint files, in TOML.

use std::collections::BTreeMap;

use serde::Deserialize;
use thalweg_source::{Mistakes, Source, SourceError};
use toml::Spanned;

use super::super::attributes::Attributes;
use super::super::text::Text;
use super::dhcp::DhcpSignature;
use super::pattern::{Pattern, Reading, Template};
use super::{Fingerprints, Handshake, p0f};

/// A whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tcp: Vec<Tcp>,
    #[serde(default)]
    text: Vec<Banner>,
    #[serde(default)]
    dhcp: Vec<Dhcp>,
    #[serde(default)]
    ports: BTreeMap<String, Ports>,
    /// Kinds of links, with their MTUs.
    #[serde(default)]
    links: BTreeMap<String, Vec<u16>>,
}

/// Signatures of a system's handshakes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tcp {
    on: Side,
    /// In p0f 3's notation.
    signatures: Vec<Spanned<String>>,
    #[serde(default)]
    generic: bool,
    set: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Side {
    Syn,
    SynAck,
}

/// A pattern for a text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Banner {
    on: Spanned<String>,
    pattern: Spanned<String>,
    /// Values may refer to groups, as `$1`.
    set: BTreeMap<String, String>,
}

/// A DHCP client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dhcp {
    /// The parameters that option 55 requests, in this order.
    parameters: Vec<u8>,
    /// All options in their order.
    options: Option<Vec<u8>>,
    vendor_class: Option<String>,
    set: BTreeMap<String, String>,
}

/// A service's usual ports.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ports {
    #[serde(default)]
    tcp: Vec<u16>,
    #[serde(default)]
    udp: Vec<u16>,
}

/// Reads `source` into `into`.
pub(super) fn read(source: &Source, into: &mut Fingerprints, errors: &mut Mistakes) {
    let file: File = match toml::from_str(source.text()) {
        Ok(file) => file,
        Err(e) => {
            let span = e.span().unwrap_or(0..0);
            let expected = "[[tcp]], [[text]], [[dhcp]], [ports], [links]";
            errors.push(source.error(span, e.message(), expected));
            return;
        }
    };
    for entry in file.tcp {
        tcp(source, entry, into, errors);
    }
    for entry in file.text {
        if let Err(e) = text(source, entry, into) {
            errors.push(e);
        }
    }
    for entry in file.dhcp {
        let Dhcp { parameters, options, vendor_class, set } = entry;
        let says = attributes(&set);
        into.dhcp.push(parameters, DhcpSignature { message: None, options, vendor_class, says });
    }
    for (name, Ports { tcp, udp }) in file.ports {
        for (transport, list) in [(0, tcp), (1, udp)] {
            for port in list {
                into.ports.entry((transport, port)).or_insert_with(|| name.clone());
            }
        }
    }
    for (name, sizes) in file.links {
        for mtu in sizes {
            into.links.entry(mtu).or_insert_with(|| name.clone());
        }
    }
}

fn attributes(set: &BTreeMap<String, String>) -> Attributes {
    set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn tcp(source: &Source, entry: Tcp, into: &mut Fingerprints, errors: &mut Mistakes) {
    let side = match entry.on {
        Side::Syn => Handshake::Syn,
        Side::SynAck => Handshake::SynAck,
    };
    let says = attributes(&entry.set);
    for text in &entry.signatures {
        match p0f::signature(text.get_ref()) {
            Ok(mut signature) => {
                signature.generic = entry.generic;
                signature.says = says.clone();
                into.handshakes[side as usize].push(signature);
            }
            Err(e) => errors.push_with(|| source.error(text.span(), e, p0f::FORM)),
        }
    }
}

fn text(source: &Source, entry: Banner, into: &mut Fingerprints) -> Result<(), SourceError> {
    let kind = Text::named(entry.on.get_ref()).ok_or_else(|| {
        let expected = format!("one of {}", Text::names());
        source.error(entry.on.span(), "unknown kind of text", expected)
    })?;
    let service = kind.service().map(|name| ("service.name".to_owned(), name.to_owned()));
    let set = service
        .into_iter()
        .chain(entry.set)
        .map(|(name, value)| (name, Template::with_groups(&value)))
        .collect();
    let pattern = Pattern::new(entry.pattern.get_ref(), Reading::default(), set);
    let pattern = pattern.map_err(|e| {
        source.error(entry.pattern.span(), e, "a regular expression without look-around")
    })?;
    into.texts[kind as usize].push(pattern);
    Ok(())
}
