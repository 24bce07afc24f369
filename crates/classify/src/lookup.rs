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
    /// Answers not cached because the megaflow layer was full or cost more than it saved.
    pub not_cached: u64,
}

impl LayerStats {
    /// As many as there are fields, so that the list of [`fields`](Self::fields) has each.
    const FIELDS: usize = size_of::<Self>() / size_of::<u64>();

    fn fields(&mut self) -> [(&'static str, &mut u64); Self::FIELDS] {
        [
            ("emc_hits", &mut self.emc_hits),
            ("megaflow_hits", &mut self.megaflow_hits),
            ("rule_lookups", &mut self.rule_lookups),
            ("unmatched", &mut self.unmatched),
            ("subtables_visited", &mut self.subtables_visited),
            ("megaflows", &mut self.megaflows),
            ("subtables", &mut self.subtables),
            ("expired", &mut self.expired),
            ("revalidated_away", &mut self.revalidated_away),
            ("not_cached", &mut self.not_cached),
        ]
    }

    /// The counts with their names in reports.
    pub fn counts(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        self.fields().map(|(name, count)| (name, *count)).into_iter()
    }

    /// Adds the counts of another classifier.
    pub fn merge(&mut self, other: &Self) {
        for ((_, sum), (_, count)) in self.fields().into_iter().zip(other.counts()) {
            *sum += count;
        }
    }
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
