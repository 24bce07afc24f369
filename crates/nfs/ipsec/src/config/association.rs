//! The options of a security association.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_classify::Match;
use toml::Spanned;
use zeroize::Zeroizing;

use super::super::cipher::Cipher;
use super::super::sa::{Association, DontFragment, Inbound, Lifetime, Outbound, Path};
use super::super::suite::Suite;
use super::{Reader, is_unicast};

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Direction {
    /// Packets arrive through the tunnel.
    In,
    /// Packets leave through the tunnel.
    Out,
}

/// A security association.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SaOptions {
    /// Its name in policies and messages.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// The direction of its packets.
    direction: Direction,
    /// Its security parameters index.
    #[schemars(with = "u32", range(min = 256))]
    spi: Spanned<u32>,
    /// Its algorithms: aes128- or aes256- followed by cbc-hmac-sha1-96, cbc-hmac-sha256-128 or
    /// gcm16; or chacha20-poly1305.
    #[schemars(with = "String")]
    suite: Spanned<String>,
    /// The key in hexadecimal: 16 bytes, or 32 for aes256 and chacha20; for GCM and Poly1305
    /// followed by 4 bytes of salt.
    #[schemars(with = "String")]
    encryption_key: Spanned<Zeroizing<String>>,
    /// The key in hexadecimal: 20 bytes for SHA-1, 32 for SHA-256; none for GCM and Poly1305.
    #[schemars(with = "Option<String>")]
    authentication_key: Option<Spanned<Zeroizing<String>>>,
    /// The tunnel end point that sends, an IP address; inbound 0.0.0.0 or :: for any.
    #[schemars(with = "String")]
    source: Spanned<IpAddr>,
    /// The tunnel end point that receives, an IP address.
    #[schemars(with = "String")]
    destination: Spanned<IpAddr>,
    /// Whether sequence numbers are extended to 64 bits.
    #[serde(default)]
    esn: bool,
    /// The pattern that inner packets must match, in flow syntax; inbound only.
    #[schemars(with = "Option<String>")]
    selector: Option<Spanned<String>>,
    /// Source and destination port of the UDP header around ESP, for tunnels through NAT
    /// (RFC 3948); without it ESP follows IP directly. For an inbound SA only the destination port
    /// is compared.
    #[schemars(with = "Option<(u16, u16)>")]
    udp_ports: Option<Spanned<Vec<u16>>>,
    /// The number of packets that it may carry.
    #[schemars(with = "Option<u64>", range(min = 1))]
    lifetime_packets: Option<Spanned<u64>>,
    /// The number of bytes that it may carry, counted over the inner packets.
    #[schemars(with = "Option<u64>", range(min = 1))]
    lifetime_bytes: Option<Spanned<u64>>,
    /// The MTU of its path: the longest packet in bytes of IP, tunnel included; 1280 or more over
    /// IPv6; outbound only.
    #[schemars(with = "Option<u16>", range(min = 576))]
    mtu: Option<Spanned<u16>>,
    /// The DF ("don't fragment") bit of the outer header; outbound only.
    #[schemars(with = "Option<DontFragment>")]
    df: Option<Spanned<DontFragment>>,
    /// Whether a packet that is too long and may be fragmented is fragmented before encryption
    /// (the default). Otherwise its tunnel packet is fragmented: over IPv4 by routers, over IPv6 by
    /// this NF; outbound only.
    #[schemars(with = "Option<bool>")]
    fragment: Option<Spanned<bool>>,
}

/// The smallest MTU of a path: every host accepts packets of this length (RFC 791).
const LEAST_MTU: u16 = 576;
/// The smallest MTU of a link over IPv6 (RFC 8200, section 5).
const LEAST_MTU_IPV6: u16 = 1280;

impl Reader<'_> {
    /// Reads an association. Keeps the name of an outbound one with a mistake, so that its policies
    /// are not reported as well.
    pub(super) fn security_association(&mut self, sa: SaOptions) {
        let (name, direction) = (sa.name.get_ref().clone(), sa.direction);
        let before = self.errors.len();
        self.association(sa);
        if self.errors.len() > before && direction == Direction::Out {
            self.refused.insert(name);
        }
    }

    fn association(&mut self, sa: SaOptions) {
        let Some(suite) = Suite::ALL.into_iter().find(|s| s.name() == sa.suite.get_ref()) else {
            let names: Vec<_> = Suite::ALL.iter().map(|s| s.name()).collect();
            self.error(sa.suite.span(), "unknown suite", format!("one of {}", names.join(", ")));
            return;
        };
        let key = self.key(&sa.encryption_key, suite.key_len(), "encryption_key");
        let auth_key = match (&sa.authentication_key, suite.auth_key_len()) {
            (None, 0) => Some(Zeroizing::default()),
            (Some(key), 0) => {
                let at = key.span().start;
                self.error(at..at, "this suite takes no authentication_key", "no such option");
                None
            }
            (Some(key), len) => self.key(key, len, "authentication_key"),
            (None, len) => {
                let expected = format!("authentication_key = \"...\", {len} bytes in hexadecimal");
                self.error(
                    sa.name.span(),
                    "an SA of this suite needs an authentication_key",
                    expected,
                );
                None
            }
        };
        if *sa.spi.get_ref() < 256 {
            self.error(sa.spi.span(), "SPIs below 256 are reserved", "256 to 4294967295");
        }
        if sa.name.get_ref().is_empty() {
            self.error(sa.name.span(), "an SA with an empty name", "a name");
        }
        if !self.ends(&sa) {
            return;
        }
        let (Some(key), Some(auth_key)) = (key, auth_key) else { return };
        let Some(cipher) = Cipher::new(suite, &key, &auth_key) else { return };
        let association = Association {
            name: sa.name.get_ref().clone(),
            spi: *sa.spi.get_ref(),
            cipher,
            key_id: key_id(&sa, &key, &auth_key),
            source: *sa.source.get_ref(),
            destination: *sa.destination.get_ref(),
            extended: sa.esn,
            udp: self.ports(&sa),
            lifetime: self.lifetime(&sa),
            device: self.device_keys.add(suite, &key, &auth_key),
        };
        match sa.direction {
            Direction::In => self.inbound(association, &sa),
            Direction::Out => self.outbound(association, &sa),
        }
    }

    /// Whether the tunnel's end points are valid.
    fn ends(&mut self, sa: &SaOptions) -> bool {
        let (source, destination) = (*sa.source.get_ref(), *sa.destination.get_ref());
        if source.is_ipv4() != destination.is_ipv4() {
            let expected = "both end points of one IP version";
            self.error(sa.destination.span(), "the end points differ in IP version", expected);
            return false;
        }
        // The source of inbound packets is not compared, as a NAT may change it.
        let any_source = sa.direction == Direction::In && source.is_unspecified();
        let (from, to) = (any_source || is_unicast(source), is_unicast(destination));
        for (end, good) in [(&sa.source, from), (&sa.destination, to)] {
            if !good {
                self.error(end.span(), "not the address of a host", "an end point of the tunnel");
            }
        }
        if to && source == destination {
            let message = "source and destination of the tunnel are the same address";
            self.error(sa.destination.span(), message, "another address");
        }
        from && to && source != destination
    }

    fn lifetime(&mut self, sa: &SaOptions) -> Lifetime {
        for limit in [&sa.lifetime_packets, &sa.lifetime_bytes].into_iter().flatten() {
            if *limit.get_ref() == 0 {
                self.error(limit.span(), "lifetime 0: the SA may carry nothing", "1 or more");
            }
        }
        let most = |limit: &Option<Spanned<u64>>| limit.as_ref().map_or(u64::MAX, |n| *n.get_ref());
        Lifetime { packets: most(&sa.lifetime_packets), bytes: most(&sa.lifetime_bytes) }
    }

    /// Source and destination port of the UDP header around ESP.
    fn ports(&mut self, sa: &SaOptions) -> Option<(u16, u16)> {
        let ports = sa.udp_ports.as_ref()?;
        let message = match ports.get_ref()[..] {
            [0, _] | [_, 0] => "port 0 is not usable",
            [source, destination] => return Some((source, destination)),
            _ => "not two ports",
        };
        self.error(ports.span(), message, "two ports from 1 to 65535, such as [4500, 4500]");
        None
    }

    fn path(&mut self, sa: &SaOptions) -> Path {
        let least = if sa.source.get_ref().is_ipv4() { LEAST_MTU } else { LEAST_MTU_IPV6 };
        if let Some(mtu) = sa.mtu.as_ref().filter(|mtu| *mtu.get_ref() < least) {
            self.error(mtu.span(), "MTU too small", format!("{least} or more"));
        }
        Path {
            mtu: sa.mtu.as_ref().map_or(u16::MAX, |mtu| *mtu.get_ref()),
            dont_fragment: sa.df.as_ref().map_or(DontFragment::Copy, |df| *df.get_ref()),
            cut: sa.fragment.as_ref().is_none_or(|cut| *cut.get_ref()),
        }
    }

    /// Reports the options of an inbound SA that only an outbound SA takes.
    fn no_path(&mut self, sa: &SaOptions) {
        let spans = [
            sa.mtu.as_ref().map(Spanned::span),
            sa.df.as_ref().map(Spanned::span),
            sa.fragment.as_ref().map(Spanned::span),
        ];
        for span in spans.into_iter().flatten() {
            self.error(span, "only an outbound SA takes this option", "no such option");
        }
    }

    fn inbound(&mut self, association: Association, sa: &SaOptions) {
        self.no_path(sa);
        let selector = match &sa.selector {
            Some(text) => self.flow(text),
            None => Some(Match::default()),
        };
        let spi = association.spi;
        let inbound = Inbound::new(association, selector.unwrap_or_default());
        if self.inbound.insert(spi, Arc::new(inbound)).is_some() {
            let message = format!("a second inbound SA with SPI {spi}");
            self.error(sa.spi.span(), message, "another SPI");
        }
    }

    fn outbound(&mut self, association: Association, sa: &SaOptions) {
        if let Some(selector) = &sa.selector {
            let expected = "no `selector`: policies choose what an outbound SA protects";
            self.error(selector.span(), "an outbound SA takes no selector", expected);
        }
        if self.names.insert(association.name.clone(), self.outbound.len()).is_some() {
            let message = format!("a second outbound SA named '{}'", association.name);
            self.error(sa.name.span(), message, "another name");
        }
        if !self.receivers.insert(association.receiver()) {
            let (spi, to, _) = association.receiver();
            let message = format!("a second outbound SA with SPI {spi} to {to}");
            self.error(sa.spi.span(), message, "another SPI");
        }
        let mut start = [0; 8];
        let purpose = format!("outbound SA {}", association.name);
        if let Err(e) = self.seed.fill(&mut start, &purpose) {
            let message = format!("cannot read random bytes: {e}");
            self.error(sa.name.span(), message, "a random source of the operating system");
        }
        if let Some(mtu) = &sa.mtu {
            self.mtus.insert(association.name.clone(), mtu.span());
        }
        let path = self.path(sa);
        let built = Outbound::new(association, path, u64::from_ne_bytes(start));
        self.outbound.extend(built.map(Arc::new));
    }

    fn key(
        &mut self,
        text: &Spanned<Zeroizing<String>>,
        len: usize,
        name: &str,
    ) -> Option<Zeroizing<Vec<u8>>> {
        // Keys stay out of messages: the place is shown, not the text.
        let at = text.span().start;
        let expected = format!("{len} bytes in hexadecimal");
        let Ok(key) = hex::decode(text.get_ref().trim_start_matches("0x")) else {
            self.error(at..at, format!("{name} is not hexadecimal"), expected);
            return None;
        };
        let key = Zeroizing::new(key);
        if key.len() != len {
            let bytes = if key.len() == 1 { "byte" } else { "bytes" };
            self.error(at..at, format!("{name} has {} {bytes}", key.len()), expected);
            return None;
        }
        Some(key)
    }
}

/// A number by which keys differ within this process; it reveals nothing about them.
fn key_id(sa: &SaOptions, key: &[u8], auth_key: &[u8]) -> u64 {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    HASHER.get_or_init(RandomState::new).hash_one((sa.suite.get_ref(), key, auth_key))
}
