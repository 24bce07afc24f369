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

use thalweg_source::{Source, SourceError};

use super::attributes::Attributes;
use super::dhcp::Request;
use super::handshake::Features;
use super::text::Text;
use dhcp::DhcpSignatures;
use pattern::Patterns;
pub(super) use signature::Fit;
use signature::Signatures;

/// The fingerprints that come with the program.
const BUILT_IN: &str = include_str!("built_in.toml");

/// Which side of a handshake a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    Syn,
    SynAck,
}

/// What hosts, services and links are known by.
#[derive(Default)]
pub(super) struct Fingerprints {
    handshakes: [Signatures; 2],
    texts: [Patterns; Text::COUNT],
    dhcp: DhcpSignatures,
    /// Names of services, by TCP (0) or UDP (1) and port.
    ports: HashMap<(u8, u16), String>,
    vendors: Vendors,
    /// Kinds of links, by their largest packet.
    links: HashMap<u16, String>,
}

/// Who made a network card, by the first bits of its address.
#[derive(Default)]
struct Vendors {
    by_prefix: HashMap<(u64, u32), String>,
    /// The lengths of prefixes that there are.
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

/// Reads fingerprints from files; what is read first counts first.
#[derive(Default)]
pub(super) struct Loader {
    fingerprints: Fingerprints,
    /// Lines of other projects' files that are not understood.
    pub(super) warnings: Vec<SourceError>,
    pub(super) errors: Vec<SourceError>,
}

impl Loader {
    /// A file in the project's own format.
    pub(super) fn own(&mut self, source: &Source) {
        own::read(source, &mut self.fingerprints, &mut self.errors);
    }

    /// p0f 3's file.
    pub(super) fn p0f(&mut self, source: &Source) {
        p0f::read(source, &mut self.fingerprints, &mut self.warnings);
    }

    /// One of recog's files.
    pub(super) fn recog(&mut self, source: &Source) {
        if let Err(e) = recog::read(source, &mut self.fingerprints, &mut self.warnings) {
            self.errors.push(e);
        }
    }

    /// PRADS's folder; says whether one of its files was there.
    pub(super) fn prads(&mut self, folder: &Path) -> bool {
        let mut found = false;
        for (name, reads) in prads::FILES {
            let path = folder.join(name);
            if !path.is_file() {
                continue;
            }
            found = true;
            // Some of their comments are in Latin-1.
            match std::fs::read(&path) {
                Ok(bytes) => {
                    let source = Source::new(path, String::from_utf8_lossy(&bytes).into_owned());
                    prads::read(&source, reads, &mut self.fingerprints, &mut self.warnings);
                }
                Err(e) => {
                    let source = Source::new(path, "");
                    let message = format!("cannot read the file: {e}");
                    self.errors.push(source.error(0..0, message, "a readable file"));
                }
            }
        }
        found
    }

    /// What comes with the program.
    pub(super) fn built_in(&mut self) {
        self.own(&Source::new("built-in fingerprints", BUILT_IN));
    }

    /// All that was read.
    pub(super) fn finish(mut self) -> Fingerprints {
        self.fingerprints.texts.iter_mut().for_each(Patterns::build);
        self.fingerprints.name_systems();
        self.fingerprints
    }
}

impl Fingerprints {
    /// Says in the words of `operating_system.name` what signatures know of systems.
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

    /// What the sender of a SYN or SYN-ACK is; `peer_mss` as in the SYN it answers, or 0.
    pub(super) fn handshake(
        &self,
        kind: Handshake,
        features: &Features,
        peer_mss: u16,
    ) -> Option<(&Attributes, Fit)> {
        self.handshakes[kind as usize].find(features, peer_mss)
    }

    /// What a text says.
    pub(super) fn text(&self, kind: Text, text: &[u8]) -> Option<Attributes> {
        self.texts[kind as usize].find(text)
    }

    /// What a DHCP client is.
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

    /// Who made a network card.
    pub(super) fn vendor(&self, [a, b, c, d, e, f]: [u8; 6]) -> Option<&str> {
        self.vendors.find(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The kind of a link with this largest packet.
    pub(super) fn link(&self, mtu: u16) -> Option<&str> {
        self.links.get(&mtu).map(String::as_str)
    }

    /// How many there are: of handshakes, of texts, of DHCP.
    pub(super) fn counts(&self) -> [usize; 3] {
        [
            self.handshakes.iter().map(Signatures::len).sum(),
            self.texts.iter().map(Patterns::len).sum(),
            self.dhcp.len(),
        ]
    }
}
