//! The SAD and SPD of the configuration.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::source::SourceError;
use thalweg_classify::{Match, Rule, RuleId, RuleTable, flow_syntax};
use thalweg_packet::PacketType;
use toml::Spanned;
use zeroize::Zeroizing;

use super::sa::{Association, Inbound, Outbound};
use super::suite::{Cipher, Suite};
use crate::{BuildError, Section};

/// The options of an IPsec gateway.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// Security associations.
    #[serde(default)]
    #[schemars(with = "Vec<SaOptions>")]
    sa: Vec<Spanned<SaOptions>>,
    /// What becomes of packets that are not of a tunnel; the first that matches decides.
    #[serde(default)]
    #[schemars(with = "Vec<PolicyOptions>")]
    policy: Vec<Spanned<PolicyOptions>>,
    /// What becomes of packets that no policy matches.
    #[serde(default)]
    default_policy: DefaultPolicy,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DefaultPolicy {
    /// They pass as they are.
    Bypass,
    /// They are dropped.
    #[default]
    Discard,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Direction {
    /// Packets come through the tunnel.
    In,
    /// Packets go into it.
    Out,
}

/// A security association.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SaOptions {
    /// Its name, for policies and messages.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// Which way its packets go.
    direction: Direction,
    /// Its security parameters index.
    #[schemars(with = "u32", range(min = 256))]
    spi: Spanned<u32>,
    /// Its algorithms: aes128-cbc-hmac-sha1-96 or aes128-gcm16.
    #[schemars(with = "String")]
    suite: Spanned<String>,
    /// The key in hexadecimal: 16 bytes; for GCM 16 and 4 of salt.
    #[schemars(with = "String")]
    encryption_key: Spanned<Zeroizing<String>>,
    /// The key in hexadecimal: 20 bytes; none for GCM.
    #[schemars(with = "Option<String>")]
    authentication_key: Option<Spanned<Zeroizing<String>>>,
    /// The tunnel's end that sends, an IP address.
    #[schemars(with = "String")]
    source: Spanned<IpAddr>,
    /// The tunnel's end that receives, an IP address.
    #[schemars(with = "String")]
    destination: Spanned<IpAddr>,
    /// Whether sequence numbers have 64 bits.
    #[serde(default)]
    esn: bool,
    /// What packets inside must look like, in flow syntax; inbound only.
    #[schemars(with = "Option<String>")]
    selector: Option<Spanned<String>>,
}

/// A security policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyOptions {
    /// Which packets, in flow syntax.
    #[schemars(with = "String")]
    r#match: Spanned<String>,
    /// What becomes of them.
    action: PolicyAction,
    /// The association that protects them.
    #[schemars(with = "Option<String>")]
    sa: Option<Spanned<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PolicyAction {
    /// They go into the tunnel of `sa`.
    Protect,
    /// They pass as they are.
    Bypass,
    /// They are dropped.
    Discard,
}

/// What the security policy says about a packet.
pub(super) enum Policy {
    Protect(Arc<Outbound>),
    Bypass,
    Discard,
}

/// The databases, shared by all workers.
pub(super) struct Databases {
    pub(super) inbound: HashMap<u32, Arc<Inbound>>,
    pub(super) outbound: Vec<Arc<Outbound>>,
    /// By the packet type that [`table`](Self::table) gives; the default first.
    pub(super) policies: Vec<Policy>,
    pub(super) table: RuleTable,
}

pub(super) fn read(section: &Section<'_>) -> Result<Databases, BuildError> {
    // A mistake in here may stand beside a key: show the place, not the text.
    let options: Options = section.parse().map_err(|e| hide(section, &e))?;
    let mut reader =
        Reader { section, errors: Vec::new(), inbound: HashMap::new(), outbound: Vec::new() };
    for sa in options.sa {
        reader.association(sa.into_inner());
    }
    let default = match options.default_policy {
        DefaultPolicy::Bypass => Policy::Bypass,
        DefaultPolicy::Discard => Policy::Discard,
    };
    let mut policies = vec![default];
    let mut table = RuleTable::new(PacketType(0));
    let mut rules = Vec::new();
    for (number, policy) in options.policy.into_iter().enumerate() {
        let (rule, policy) = reader.policy(number, policy);
        rules.extend(rule);
        policies.extend(policy);
    }
    table.extend(rules);
    let Reader { errors, inbound, outbound, .. } = reader;
    if errors.is_empty() {
        Ok(Databases { inbound, outbound, policies, table })
    } else {
        Err(BuildError(errors))
    }
}

/// The same error without the text that it points at.
fn hide(section: &Section<'_>, error: &SourceError) -> SourceError {
    let at = error.span().start;
    section.error(at..at, error.message().lines().next().unwrap_or(""), error.expected())
}

struct Reader<'a> {
    section: &'a Section<'a>,
    errors: Vec<SourceError>,
    inbound: HashMap<u32, Arc<Inbound>>,
    outbound: Vec<Arc<Outbound>>,
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

    fn association(&mut self, sa: SaOptions) {
        let Some(suite) = Suite::ALL.into_iter().find(|s| s.name() == sa.suite.get_ref()) else {
            let names: Vec<_> = Suite::ALL.iter().map(|s| s.name()).collect();
            self.error(sa.suite.span(), "unknown suite", names.join(" or "));
            return;
        };
        let key = self.key(&sa.encryption_key, suite.key_len(), "encryption_key");
        let auth_key = match (&sa.authentication_key, suite.auth_key_len()) {
            (None, 0) => Some(Zeroizing::default()),
            (Some(key), 0) => {
                let at = key.span().start;
                self.error(at..at, "this suite has no authentication_key", "the line left out");
                None
            }
            (Some(key), len) => self.key(key, len, "authentication_key"),
            (None, len) => {
                let expected = format!("authentication_key = \"...\": {len} bytes in hexadecimal");
                self.error(sa.name.span(), "an SA without authentication_key", expected);
                None
            }
        };
        if *sa.spi.get_ref() < 256 {
            self.error(sa.spi.span(), "SPIs below 256 are reserved", "256 to 4294967295");
        }
        if sa.source.get_ref().is_ipv4() != sa.destination.get_ref().is_ipv4() {
            let expected = "both end points of one IP version";
            self.error(sa.destination.span(), "the end points differ in IP version", expected);
            return;
        }
        let (Some(key), Some(auth_key)) = (key, auth_key) else { return };
        let Some(cipher) = Cipher::new(suite, &key, &auth_key) else { return };
        let association = Association {
            name: sa.name.get_ref().clone(),
            spi: *sa.spi.get_ref(),
            cipher,
            source: *sa.source.get_ref(),
            destination: *sa.destination.get_ref(),
            extended: sa.esn,
        };
        match sa.direction {
            Direction::In => self.inbound(association, &sa),
            Direction::Out => self.outbound(association, &sa),
        }
    }

    fn inbound(&mut self, association: Association, sa: &SaOptions) {
        let selector = match &sa.selector {
            Some(text) => self.flow(text),
            None => Some(Match::default()),
        };
        let spi = association.spi;
        let inbound = Inbound::new(association, selector.unwrap_or_default());
        if self.inbound.insert(spi, Arc::new(inbound)).is_some() {
            let message = format!("a second inbound SA of SPI {spi}");
            self.error(sa.spi.span(), message, "another SPI");
        }
    }

    fn outbound(&mut self, association: Association, sa: &SaOptions) {
        if let Some(selector) = &sa.selector {
            let expected = "policies, which say what an outbound SA protects";
            self.error(selector.span(), "an outbound SA has no selector", expected);
        }
        if self.outbound.iter().any(|o| o.association.name == association.name) {
            let message = format!("a second outbound SA named '{}'", association.name);
            self.error(sa.name.span(), message, "another name");
        }
        let mut start = [0; 8];
        if let Err(e) = getrandom::fill(&mut start) {
            self.error(sa.name.span(), format!("no randomness: {e}"), "a random source");
        }
        self.outbound.push(Arc::new(Outbound::new(association, u64::from_ne_bytes(start))));
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
            self.error(at..at, format!("{name} has {} bytes", key.len()), expected);
            return None;
        }
        Some(key)
    }

    fn flow(&mut self, text: &Spanned<String>) -> Option<Match> {
        let parsed = flow_syntax::parse(text.get_ref(), &|_| None);
        match parsed {
            Ok(flow) => Some(flow.pattern),
            Err(e) => {
                let start = text.span().start + 1;
                self.error(start + e.span.start..start + e.span.end, e.message, e.expected);
                None
            }
        }
    }

    fn policy(
        &mut self,
        number: usize,
        options: Spanned<PolicyOptions>,
    ) -> (Option<Rule>, Option<Policy>) {
        let span = options.span();
        let options = options.into_inner();
        let Some(pattern) = self.flow(&options.r#match) else { return (None, None) };
        let policy = match (options.action, &options.sa) {
            (PolicyAction::Protect, Some(name)) => {
                let found = self.outbound.iter().find(|o| o.association.name == *name.get_ref());
                if let Some(sa) = found.cloned() {
                    Policy::Protect(sa)
                } else {
                    let names: Vec<_> =
                        self.outbound.iter().map(|o| o.association.name.clone()).collect();
                    let expected = format!("an outbound SA: {}", names.join(", "));
                    self.error(name.span(), "there is no such outbound SA", expected);
                    return (None, None);
                }
            }
            (PolicyAction::Protect, None) => {
                self.error(span, "a policy that protects names no SA", "sa = \"NAME\"");
                return (None, None);
            }
            (_, Some(name)) => {
                self.error(name.span(), "only 'protect' takes an SA", "the line left out");
                return (None, None);
            }
            (PolicyAction::Bypass, None) => Policy::Bypass,
            (PolicyAction::Discard, None) => Policy::Discard,
        };
        let rule = Rule {
            id: RuleId(number as u32),
            priority: 0,
            matches: vec![pattern],
            packet_type: PacketType(number as u16 + 1),
            text: options.r#match.into_inner(),
        };
        (Some(rule), Some(policy))
    }
}
