//! Rules and what they match.

use std::fmt;

use thalweg_packet::{FlowKey, PacketType};

/// The number of a rule: its position in the order in which rules were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A wildcard pattern: the bits of `mask` must have the values of `value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    value: FlowKey,
    mask: FlowKey,
}

impl Match {
    /// The pattern of `value` under `mask`; bits outside the mask are cleared.
    pub fn new(value: FlowKey, mask: FlowKey) -> Self {
        Self { value: value.masked(&mask), mask }
    }

    /// The values of the bits that matter; the others are zero.
    pub fn value(&self) -> &FlowKey {
        &self.value
    }

    /// The bits that matter.
    pub fn mask(&self) -> &FlowKey {
        &self.mask
    }

    /// Whether `key` has the pattern.
    pub fn covers(&self, key: &FlowKey) -> bool {
        self.value.matches(key, &self.mask)
    }

    /// Whether every key that has the pattern `other` has this one too.
    pub fn contains(&self, other: &Self) -> bool {
        self.mask.masked(&other.mask) == self.mask && self.covers(&other.value)
    }
}

/// In `ovs-ofctl` flow syntax.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::flow_syntax::print(self, f)
    }
}

/// A rule: any of its patterns gives a packet its type.
///
/// The matching rule with the highest priority wins; among equal priorities, the
/// one that was given first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub id: RuleId,
    /// Higher wins.
    pub priority: u32,
    /// Its patterns; several where a port range was split.
    pub matches: Vec<Match>,
    /// The type it gives.
    pub packet_type: PacketType,
    /// As the user wrote it.
    pub text: String,
}

impl Rule {
    /// Smaller is better: priority first, then the order given.
    pub(crate) fn rank(&self) -> Rank {
        Rank(u32::MAX - self.priority, self.id)
    }
}

/// The place of a rule in the order of precedence; the smallest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u32, RuleId);

impl Rank {
    pub(crate) fn rule(self) -> RuleId {
        self.1
    }
}
