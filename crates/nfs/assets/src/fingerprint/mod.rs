//! All fingerprints of an NF: its own, and those of p0f, PRADS and recog.

mod dhcp;
mod own;
mod p0f;
mod pattern;
mod prads;
mod recog;
mod signature;
#[cfg(test)]
mod tests;

use hashbrown::HashMap;
use std::path::Path;

use thalweg_source::{Mistakes, Source, SourceError};

use super::attributes::Attributes;
use super::dhcp::Request;
use super::handshake::Features;
use super::text::Text;
use dhcp::DhcpSignatures;
use pattern::Patterns;
pub(super) use signature::Fit;
use signature::Signatures;

/// The built-in fingerprints.
const BUILT_IN: &str = include_str!("built_in.toml");

/// Which side of a handshake a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    Syn,
    SynAck,
}

/// The fingerprints of hosts, services and links.
#[derive(Default)]
pub(super) struct Fingerprints {
    handshakes: [Signatures; 2],
    texts: [Patterns; Text::COUNT],
    dhcp: DhcpSignatures,
    /// Names of services, by TCP (0) or UDP (1) and port.
    ports: HashMap<(u8, u16), String>,
    vendors: Vendors,
    /// Kinds of links, by their MTU.
    links: HashMap<u16, String>,
}

/// The vendors of network cards, by the first bits of the address.
#[derive(Default)]
struct Vendors {
    by_prefix: HashMap<(u64, u32), String>,
    /// The prefix lengths in use, the longest first.
    lengths: Vec<u32>,
}

impl Vendors {
    fn insert(&mut self, address: u64, bits: u32, name: &str) {
        if !self.lengths.contains(&bits) {
            self.lengths.push(bits);
            self.lengths.sort_unstable_by_key(|bits| std::cmp::Reverse(*bits));
        }
        self.by_prefix.entry((address >> (48 - bits), bits)).or_insert_with(|| name.to_owned());
    }

    fn find(&self, address: u64) -> Option<&str> {
        self.lengths
            .iter()
            .find_map(|bits| self.by_prefix.get(&(address >> (48 - bits), *bits)))
            .map(String::as_str)
    }
}

/// Reads fingerprints from files; those read first take precedence.
#[derive(Default)]
pub(super) struct Loader {
    fingerprints: Fingerprints,
    /// Lines of other projects' files that are not understood.
    pub(super) warnings: Vec<SourceError>,
    pub(super) errors: Vec<SourceError>,
}

impl Loader {
    /// Reads a file in the project's own format.
    pub(super) fn own(&mut self, source: &Source) {
        let mut errors = Mistakes::default();
        own::read(source, &mut self.fingerprints, &mut errors);
        self.errors.extend(errors.into_vec());
    }

    /// Reads p0f 3's file.
    pub(super) fn p0f(&mut self, source: &Source) {
        let mut warnings = Mistakes::default();
        p0f::read(source, &mut self.fingerprints, &mut warnings);
        self.warnings.extend(warnings.into_vec());
    }

    /// Reads one of recog's files.
    pub(super) fn recog(&mut self, source: &Source) {
        let mut warnings = Mistakes::default();
        let read = recog::read(source, &mut self.fingerprints, &mut warnings);
        self.warnings.extend(warnings.into_vec());
        self.errors.extend(read.err());
    }

    /// Reads PRADS's folder; returns whether it holds one of PRADS's files.
    pub(super) fn prads(&mut self, folder: &Path) -> bool {
        let mut found = false;
        for (name, reads) in prads::FILES {
            let names = [folder.join(name), folder.join(format!("{name}.gz"))];
            let Some(path) = names.into_iter().find(|path| path.is_file()) else { continue };
            found = true;
            // Some of their comments are in Latin-1.
            match Source::read_lossy(path) {
                Ok(source) => {
                    let mut warnings = Mistakes::default();
                    prads::read(&source, reads, &mut self.fingerprints, &mut warnings);
                    self.warnings.extend(warnings.into_vec());
                }
                Err(e) => self.errors.push(e),
            }
        }
        found
    }

    /// Reads the built-in fingerprints.
    pub(super) fn built_in(&mut self) {
        self.own(&Source::new("built-in fingerprints", BUILT_IN));
    }

    /// All fingerprints that were read.
    pub(super) fn finish(mut self) -> Fingerprints {
        self.fingerprints.texts.iter_mut().for_each(Patterns::build);
        self.fingerprints.name_systems();
        self.fingerprints
    }
}

impl Fingerprints {
    /// Completes the systems of signatures with the attributes of `operating_system.name`.
    fn name_systems(&mut self) {
        let names = std::mem::take(&mut self.texts[Text::SystemName as usize]);
        let handshakes = self.handshakes.iter_mut().flat_map(Signatures::each_mut);
        for says in handshakes.chain(self.dhcp.each_mut()) {
            let Some(product) = says.get("os.product") else { continue };
            let whole = format!("{product} {}", says.get("os.version").unwrap_or(""));
            if let Some(more) = names.find(whole.trim().as_bytes()) {
                says.complete(&more);
            }
        }
        self.texts[Text::SystemName as usize] = names;
    }

    /// The system that sent a SYN or SYN-ACK; `peer_mss` as in the SYN it answers, or 0.
    pub(super) fn handshake(
        &self,
        kind: Handshake,
        features: &Features,
        peer_mss: u16,
    ) -> Option<(&Attributes, Fit)> {
        self.handshakes[kind as usize].find(features, peer_mss)
    }

    /// The attributes that a text implies.
    pub(super) fn text(&self, kind: Text, text: &[u8]) -> Option<Attributes> {
        self.texts[kind as usize].find(text)
    }

    /// The attributes of a DHCP client.
    pub(super) fn dhcp(&self, request: &Request<'_>) -> Option<Attributes> {
        let class = request.vendor_class.and_then(|c| self.text(Text::DhcpVendorClass, c));
        match (self.dhcp.find(request).cloned(), class) {
            (Some(mut says), Some(class)) => {
                says.complete(&class);
                Some(says)
            }
            (says, class) => says.or(class),
        }
    }

    /// The service that usually has this port.
    pub(super) fn port(&self, protocol: u8, port: u16) -> Option<&str> {
        let transport = match protocol {
            6 => 0,
            17 => 1,
            _ => return None,
        };
        self.ports.get(&(transport, port)).map(String::as_str)
    }

    /// The vendor of a network card.
    pub(super) fn vendor(&self, [a, b, c, d, e, f]: [u8; 6]) -> Option<&str> {
        self.vendors.find(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The kind of a link with this MTU.
    pub(super) fn link(&self, mtu: u16) -> Option<&str> {
        self.links.get(&mtu).map(String::as_str)
    }

    /// The number of fingerprints: of handshakes, of texts, of DHCP.
    pub(super) fn counts(&self) -> [usize; 3] {
        [
            self.handshakes.iter().map(Signatures::len).sum(),
            self.texts.iter().map(Patterns::len).sum(),
            self.dhcp.len(),
        ]
    }
}
