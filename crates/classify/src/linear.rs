//! The oracle of the tests: rules tried one after the other.

use thalweg_packet::{FlowKey, PacketType};

use crate::rule::{Rule, RuleId};

/// Rules in order of precedence, tried one after the other: slow, and right by
/// inspection. Every other structure is checked against it.
#[derive(Clone, Debug)]
pub struct LinearTable {
    rules: Vec<Rule>,
    default_type: PacketType,
}

impl LinearTable {
    /// A table of `rules`.
    pub fn new(mut rules: Vec<Rule>, default_type: PacketType) -> Self {
        rules.sort_by_key(Rule::rank);
        Self { rules, default_type }
    }

    /// The first rule that matches `key`, and the packet type it gives.
    pub fn lookup(&self, key: &FlowKey) -> (Option<RuleId>, PacketType) {
        let rule = self.rules.iter().find(|r| r.matches.iter().any(|m| m.covers(key)));
        (rule.map(|r| r.id), rule.map_or(self.default_type, |r| r.packet_type))
    }
}
