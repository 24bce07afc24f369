//! Finds the rules that may match a payload or a buffer.
//!
//! One pass over the data finds the rules whose fast patterns occur in it; only those rules, and
//! the few without a pattern, are verified in full.

use hashbrown::HashMap;
use sha2::{Digest, Sha256};
use thalweg_packet::{BATCH, Batch, Lanes};

use super::alert;
use super::buffer::Buffer;
use super::chosen::{Chosen, RuleSet};
use super::heads::{Heads, Suiting};
use super::literals::{Found, Literals};
use super::rule::{Condition, PayloadTest, Rule, View};

/// How far rules with several tests reach back in a stream, in bytes.
const TAIL: usize = 4096;

/// Patterns with fewer bytes occur in much traffic by chance.
const WEAK: usize = 4;

/// As many ports are few: they have little of the traffic.
const FEW_PORTS: usize = 16;

/// All rules of an NF, ready for use.
pub(super) struct Engine {
    /// In the order of evaluation.
    pub(super) rules: Vec<Rule>,
    /// The part of an alert that describes the rule, by rule.
    pub(super) alerts: Vec<String>,
    /// By buffer.
    groups: Vec<Group>,
    /// The header conditions of all rules.
    heads: Heads,
    /// Likewise for the payload rules without a pattern, in their order.
    heads_without_pattern: Heads,
    pub(super) needs: Needs,
    /// Bytes before the new part of a payload in which a pattern may begin.
    pub(super) reach: usize,
    /// Identifies this rule set, and so the meaning of rule numbers.
    pub(super) fingerprint: u64,
}

/// The state and the work that the rules require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Connections must be tracked: those of TCP, and others.
    pub(super) connections: [bool; 2],
    /// Streams must be reassembled.
    pub(super) streams: bool,
    /// Application protocols must be parsed.
    pub(super) applications: bool,
    /// Packets must be examined for defects.
    pub(super) events: bool,
    /// Bytes of a stream's past to keep.
    pub(super) tail: usize,
}

/// The rules whose fast pattern belongs to one buffer.
#[derive(Default)]
struct Group {
    literals: Option<Literals>,
    /// For each literal, its rules.
    rules_of_pattern: Vec<RuleSet>,
    without_pattern: Vec<u32>,
}

/// The buffers of a search for rules; reused.
#[derive(Debug, Default)]
pub(super) struct Search {
    literals: Found,
    chosen: Chosen,
}

impl Engine {
    pub(super) fn new(mut rules: Vec<Rule>) -> Self {
        rules.sort_by_key(|r| (r.action, r.bits_rank(), r.severity));
        let mut groups = Vec::new();
        for _ in 0..Buffer::COUNT {
            groups.push(GroupBuilder::default());
        }
        for (number, rule) in rules.iter().enumerate() {
            groups[rule.fast_pattern.buffer as usize].add(rule, number as u32);
        }
        let groups: Vec<_> = groups.into_iter().map(GroupBuilder::build).collect();
        let Group { literals, without_pattern, .. } = &groups[Buffer::Payload as usize];
        let reach = literals.as_ref().map_or(0, Literals::reach);
        let without_pattern = without_pattern.iter().map(|rule| &rules[*rule as usize]);
        let heads_without_pattern = Heads::new(&without_pattern.collect::<Vec<_>>());
        let (needs, fingerprint) = (needs(&rules), fingerprint(&rules));
        let alerts = rules.iter().map(alert::of_rule).collect();
        let heads = Heads::new(&rules.iter().collect::<Vec<_>>());
        Self { rules, alerts, groups, heads, heads_without_pattern, needs, reach, fingerprint }
    }

    /// The rules that the header of a packet suits.
    pub(super) fn suiting(&self, batch: &Batch, lane: usize) -> Suiting<'_> {
        self.heads.suiting(batch, lane)
    }

    /// Appends to `out` the numbers of the rules that may match `bytes`, whose pattern ends
    /// after `from`, in order of evaluation; with `suiting`, only rules that the header suits.
    pub(super) fn candidates(
        &self,
        buffer: Buffer,
        bytes: &[u8],
        from: usize,
        suiting: Option<Suiting<'_>>,
        search: &mut Search,
        out: &mut Vec<u32>,
    ) {
        let group = &self.groups[buffer as usize];
        let Search { literals: found, chosen } = search;
        chosen.begin(self.rules.len());
        group.without_pattern.iter().for_each(|rule| chosen.add_rule(0, *rule));
        if let Some(literals) = &group.literals
            && bytes.len() > from
        {
            literals.find(bytes, from, found, |literal| {
                chosen.add(0, &group.rules_of_pattern[literal as usize]);
            });
        }
        chosen.take(0, suiting, |rule| out.push(rule));
    }

    /// Appends to `out`, for each of the `payloads` in `lanes` of a batch (the others are empty),
    /// its lane and the numbers of the rules that may match it, whose pattern ends after the
    /// first `fresh` of its bytes, ordered by lane and then by evaluation.
    pub(super) fn candidates_of_each(
        &self,
        batch: &Batch,
        lanes: Lanes,
        payloads: &[&[u8]; BATCH],
        fresh: &[usize; BATCH],
        search: &mut Search,
        out: &mut Vec<(u32, u32)>,
    ) {
        let group = &self.groups[Buffer::Payload as usize];
        let Search { literals: found, chosen } = search;
        chosen.begin(self.rules.len());
        if !group.without_pattern.is_empty() {
            for lane in lanes {
                let suiting = self.heads_without_pattern.suiting(batch, lane);
                suiting.each(|n| chosen.add_rule(lane, group.without_pattern[n]));
            }
        }
        let mut by_pattern = Lanes::NONE;
        if let Some(literals) = &group.literals {
            literals.find_in_each(payloads, fresh, found, |lane, literal| {
                by_pattern.insert(lane);
                chosen.add(lane, &group.rules_of_pattern[literal as usize]);
            });
        }
        for lane in chosen.lanes() {
            // Rules without a pattern suit already.
            let suiting = by_pattern.contains(lane).then(|| self.heads.suiting(batch, lane));
            chosen.take(lane, suiting, |rule| out.push((lane as u32, rule)));
        }
    }
}

#[derive(Default)]
struct GroupBuilder {
    patterns: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, usize>,
    rules_of_pattern: Vec<Vec<u32>>,
    without_pattern: Vec<u32>,
}

impl GroupBuilder {
    fn add(&mut self, rule: &Rule, number: u32) {
        let pattern = rule.fast_pattern.bytes.as_ref();
        // The header selects such a rule better than a pattern that occurs everywhere.
        let is_weak = rule.fast_pattern.buffer == Buffer::Payload
            && pattern.is_some_and(|pattern| pattern.len() < WEAK)
            && rule.is_of_few_ports(FEW_PORTS);
        let Some(pattern) = pattern.filter(|p| p.len() >= Literals::LEAST && !is_weak) else {
            self.without_pattern.push(number);
            return;
        };
        let pattern = pattern.to_ascii_lowercase();
        let at = *self.known.entry(pattern.clone()).or_insert_with(|| {
            self.patterns.push(pattern);
            self.rules_of_pattern.push(Vec::new());
            self.patterns.len() - 1
        });
        self.rules_of_pattern[at].push(number);
    }

    fn build(self) -> Group {
        let literals = (!self.patterns.is_empty()).then(|| Literals::new(&self.patterns));
        let rules_of_pattern = self.rules_of_pattern.into_iter().map(RuleSet::from_iter).collect();
        Group { literals, rules_of_pattern, without_pattern: self.without_pattern }
    }
}

fn fingerprint(rules: &[Rule]) -> u64 {
    let mut hash = Sha256::new();
    for rule in rules {
        for number in [rule.gid, rule.sid, rule.rev] {
            hash.update(number.to_le_bytes());
        }
    }
    let hash = hash.finalize();
    hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn needs(rules: &[Rule]) -> Needs {
    let mut needs = Needs::default();
    for rule in rules {
        let asks = rule.asks_for_connections();
        needs.connections[0] |= asks && rule.protocol.may_be_tcp();
        needs.connections[1] |= asks && rule.protocol.may_be_other();
        needs.applications |= rule.application.is_some();
        needs.events |= rule.conditions.iter().any(|c| matches!(c, Condition::Event(_)));
        needs.streams |= !rule.stream_sizes.is_empty();
        let payload = rule.parts.iter().find(|p| p.buffer == Buffer::Payload);
        let streams = rule.view != Some(View::Packet) && rule.protocol.may_be_tcp();
        let Some(part) = payload.filter(|_| streams) else { continue };
        needs.streams = true;
        let reach = match &part.tests[..] {
            [PayloadTest::Content(content)] => content.bytes.len() - 1,
            _ => TAIL,
        };
        needs.tail = needs.tail.max(reach);
    }
    needs.streams |= needs.applications;
    needs.connections[0] |= needs.streams;
    needs
}
