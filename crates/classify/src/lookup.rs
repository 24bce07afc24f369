//! The results of classification, and its statistics.

use thalweg_packet::PacketType;

use crate::rule::{Match, RuleId};

/// The layer that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchLayer {
    /// The exact-match cache.
    Emc,
    /// The megaflow layer.
    Megaflow,
    /// The rule table.
    #[default]
    RuleTable,
}

impl MatchLayer {
    /// The layer's name in traces and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emc => "exact-match cache",
            Self::Megaflow => "megaflow",
            Self::RuleTable => "rule table",
        }
    }
}

/// What classification found for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// The winning rule, if any matched.
    pub rule: Option<RuleId>,
    /// The packet's type.
    pub packet_type: PacketType,
    /// The layer that answered.
    pub layer: MatchLayer,
}

/// How often each layer answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Packets answered by the exact-match cache.
    pub emc_hits: u64,
    /// Packets answered by the megaflow layer.
    pub megaflow_hits: u64,
    /// Packets that went to the rule table.
    pub rule_lookups: u64,
    /// Packets among those that no rule matched.
    pub unmatched: u64,
    /// Subtables that megaflow lookups visited.
    pub subtables_visited: u64,
    /// Megaflows at this moment.
    pub megaflows: u64,
    /// Masks of those.
    pub subtables: u64,
    /// Megaflows removed because no packet matched them.
    pub expired: u64,
    /// Megaflows removed because the rules changed.
    pub revalidated_away: u64,
    /// Answers not cached because the megaflow layer was full.
    pub not_cached: u64,
}

/// How an answer is derived for a key, for `thalweg trace`.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The answer and the layer that would give it now.
    pub lookup: Lookup,
    /// The rule as the user wrote it.
    pub rule_text: Option<String>,
    /// What the megaflow of this answer covers.
    pub megaflow: Match,
}
