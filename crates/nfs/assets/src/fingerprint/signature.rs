//! Signatures of TCP handshakes, and which of them a segment matches.

use hashbrown::HashMap;

use super::super::attributes::Attributes;
use super::super::handshake::{Features, quirk};

/// The longest plausible distance of a host, in hops; beyond it the TTL does not match.
const MAX_DISTANCE: u8 = 35;
/// Above this size, p0f 2 requires no exact size.
const BIG: u16 = 100;

/// A number in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Any,
    Exactly(u16),
    /// A multiple of this number.
    Of(u16),
}

impl Number {
    fn fits(self, value: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(wanted) => value == wanted,
            Self::Of(divisor) => value.checked_rem(divisor) == Some(0),
        }
    }
}

/// How a window relates to the segment size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Plain(Number),
    /// This many times the maximum segment size.
    Segments(u16),
    /// This many times the MTU of the link.
    Packets(u16),
}

/// The size that p0f 2 requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Any,
    Exactly(u16),
    /// Over 100 bytes.
    Big,
}

/// A signature.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    /// IP version; 0 for either.
    pub(super) version: u8,
    pub(super) ttl: u8,
    /// Whether the TTL does not indicate the distance.
    pub(super) any_distance: bool,
    /// Bytes of IP options.
    pub(super) ip_options: Number,
    pub(super) mss: Number,
    pub(super) window: Window,
    pub(super) scale: Number,
    /// As in [`Features`].
    pub(super) layout: Vec<u8>,
    pub(super) quirks: u32,
    /// The quirks that it covers.
    pub(super) asked: u32,
    pub(super) payload: Option<bool>,
    pub(super) size: Size,
    /// Whether it is a fallback for a whole family.
    pub(super) generic: bool,
    pub(super) says: Attributes,
}

/// How well a signature matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Fit {
    Exact,
    /// The signature is one for a whole family.
    Generic,
    /// It matches except for fields that routers and firewalls change on the path.
    Fuzzy,
}

impl Signature {
    /// How well a segment matches; `peer_mss` is the maximum segment size of the SYN it answers,
    /// or 0.
    fn fit(&self, features: &Features, peer_mss: u16) -> Option<Fit> {
        if self.version != 0 && self.version != features.version {
            return None;
        }
        let fixed = self.ip_options.fits(u16::from(features.ip_options))
            && self.mss.fits(features.mss)
            && self.scale.fits(u16::from(features.scale))
            && self.payload.is_none_or(|p| p == features.payload)
            && self.size_fits(features.size)
            && self.window_fits(features, peer_mss)
            && self.ttl >= features.ttl;
        if !fixed {
            return None;
        }
        let near = self.any_distance || self.ttl - features.ttl <= MAX_DISTANCE;
        match (self.quirks_fit(features)?, near) {
            (true, true) if self.generic => Some(Fit::Generic),
            (true, true) => Some(Fit::Exact),
            _ => Some(Fit::Fuzzy),
        }
    }

    fn size_fits(&self, size: u16) -> bool {
        match self.size {
            Size::Any => true,
            Size::Exactly(wanted) => size == wanted,
            Size::Big => size > BIG,
        }
    }

    /// Whether the quirks match, or, `Some(false)`, differ only in what changes on the path: a
    /// firewall clears "don't fragment" and identifications, a router sets ECN.
    fn quirks_fit(&self, features: &Features) -> Option<bool> {
        const IPV4_ONLY: u32 = quirk::DF | quirk::ID_WITH_DF | quirk::NO_ID | quirk::ID_ZERO;
        let other = match (self.version, features.version) {
            (0, 4) => quirk::FLOW,
            (0, _) => IPV4_ONLY,
            _ => 0,
        };
        let asked = self.asked & !other;
        let (wanted, found) = (self.quirks & asked, features.quirks & asked);
        let lenient = self.asked == quirk::P0F3;
        let gone = wanted & !found & !(quirk::DF | quirk::ID_WITH_DF);
        let new = found & !wanted & !(quirk::NO_ID | quirk::ECN);
        if wanted == found {
            return Some(true);
        }
        (lenient && gone == 0 && new == 0).then_some(false)
    }

    fn window_fits(&self, features: &Features, peer_mss: u16) -> bool {
        let times = |count: u16, unit: u16| {
            unit != 0 && u32::from(count) * u32::from(unit) == u32::from(features.window)
        };
        // Some systems subtract the bytes of timestamps, or use the size of another link.
        let stamps = if features.timestamps { 12 } else { 0 };
        let shorter = |mss: u16| [mss, mss.saturating_sub(stamps)];
        match self.window {
            Window::Plain(number) => number.fits(features.window),
            Window::Segments(count) => [features.mss, 1460, 1440, peer_mss]
                .into_iter()
                .flat_map(shorter)
                .any(|unit| times(count, unit)),
            Window::Packets(count) => {
                [features.mss.saturating_add(40), features.mss.saturating_add(features.headers)]
                    .into_iter()
                    .chain([features.mtu().unwrap_or(0), 1500])
                    .any(|unit| times(count, unit))
            }
        }
    }
}

/// Signatures for one kind of segment, by the layout of their options.
#[derive(Clone, Debug, Default)]
pub(super) struct Signatures {
    list: Vec<Signature>,
    by_layout: HashMap<Vec<u8>, Vec<u32>>,
}

impl Signatures {
    pub(super) fn push(&mut self, signature: Signature) {
        let number = self.list.len() as u32;
        self.by_layout.entry(signature.layout.clone()).or_default().push(number);
        self.list.push(signature);
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Attributes> {
        self.list.iter_mut().map(|s| &mut s.says)
    }

    /// The best signature for a segment, the first among equals.
    pub(super) fn find(&self, features: &Features, peer_mss: u16) -> Option<(&Attributes, Fit)> {
        let candidates = self.by_layout.get(&features.layout[..])?;
        let fits = candidates.iter().filter_map(|number| {
            let signature = &self.list[*number as usize];
            signature.fit(features, peer_mss).map(|fit| (&signature.says, fit))
        });
        fits.min_by_key(|(_, fit)| *fit)
    }
}
