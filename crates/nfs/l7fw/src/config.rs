//! The options of a layer-7 firewall.

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::application::{Action, Undecided};
use thalweg_nf::toolkit::output::Rotate;

/// The options of a layer-7 firewall.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
// Without the library only their syntax matters.
#[cfg_attr(not(feature = "ndpi"), allow(dead_code))]
pub(super) struct Options {
    /// The action for flows whose application is known and that no rule matches.
    pub(super) default: Action,
    /// The action for packets while the application of their flow is not known, or the host that
    /// it begins to name.
    pub(super) undecided: Undecided,
    /// The most packets of a flow that are held, with undecided = "hold".
    #[schemars(with = "u32", range(min = 1, max = 1024))]
    pub(super) hold_packets: Spanned<u32>,
    /// The most bytes of packets that are held.
    #[schemars(with = "usize", range(min = 65_536, max = 4_294_967_296_u64))]
    pub(super) hold_bytes: Spanned<usize>,
    /// Milliseconds that the first packet of a flow is held at most.
    #[schemars(with = "u64", range(min = 1, max = 60_000))]
    pub(super) hold_ms: Spanned<u64>,
    /// The action for packets of undecided flows that exceed one of these bounds.
    pub(super) hold_exceeded: Action,
    /// Whether to leave out TCP segments with wrong checksums, which no receiver accepts, when the
    /// hosts of a connection are read. A sender all of whose checksums are wrong has a network card
    /// that computes them; false is for captures where that card merged only some segments.
    pub(super) checksums: bool,
    /// The rules; the first match decides.
    #[schemars(with = "Vec<RuleOptions>")]
    pub(super) rule: Vec<Spanned<RuleOptions>>,
    /// A file for flows as lines of JSON (schema thalweg.l7fw/2).
    #[schemars(with = "Option<String>")]
    pub(super) flows: Option<Spanned<String>>,
    /// When the file of flows is renamed, and a new one is begun; without it, never.
    #[schemars(with = "Option<Rotate>")]
    pub(super) rotate: Option<Spanned<Rotate>>,
    /// Packets of a TCP flow that nDPI inspects before it gives up.
    #[schemars(with = "u32", range(min = 1, max = 65_535))]
    pub(super) tcp_packets: Spanned<u32>,
    /// Packets of any other flow that nDPI inspects before it gives up.
    #[schemars(with = "u32", range(min = 1, max = 65_535))]
    pub(super) other_packets: Spanned<u32>,
    /// The most flows; when full, the least recently used of eight is evicted for each new one.
    #[schemars(with = "usize", range(min = 2, max = 67_108_864))]
    pub(super) max_flows: Spanned<usize>,
    /// Seconds without a packet after which a flow expires.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    pub(super) idle_timeout_s: Spanned<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default: Action::Allow,
            undecided: Undecided::Allow,
            hold_packets: Spanned::new(0..0, 32),
            hold_bytes: Spanned::new(0..0, 16 << 20),
            hold_ms: Spanned::new(0..0, 1000),
            hold_exceeded: Action::Allow,
            checksums: true,
            rule: Vec::new(),
            flows: None,
            rotate: None,
            tcp_packets: Spanned::new(0..0, 80),
            other_packets: Spanned::new(0..0, 24),
            max_flows: Spanned::new(0..0, 65_536),
            idle_timeout_s: Spanned::new(0..0, 300),
        }
    }
}

/// A rule: it matches a flow if each list that is present has a matching entry.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "ndpi"), allow(dead_code))]
pub(super) struct RuleOptions {
    /// The action for flows that match.
    pub(super) action: Action,
    /// Applications by nDPI's names; `TLS.Google` is Google over TLS.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) application: Vec<Spanned<String>>,
    /// Categories by nDPI's names.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) category: Vec<Spanned<String>>,
    /// Hosts that clients name (in HTTP, TLS, DNS, ...); `*.example.com` includes its subdomains.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) host: Vec<Spanned<String>>,
}
