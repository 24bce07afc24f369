//! From a payload or a buffer to the rules that may match it.
//!
//! One pass of an Aho-Corasick automaton over it finds which rules' fast patterns are
//! there; only those rules, and the few without a pattern, are looked at in full.

use aho_corasick::{AhoCorasick, MatchKind};
use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use super::buffer::Buffer;
use super::rule::{Condition, PayloadTest, Rule, View};

/// Bytes of a stream's past that rules with several tests may reach back to.
const TAIL: usize = 4096;

/// All rules of an NF, ready for use.
pub(super) struct Engine {
    /// In the order in which they are asked.
    pub(super) rules: Vec<Rule>,
    /// By buffer.
    groups: Vec<Group>,
    pub(super) needs: Needs,
    /// Tells this rule set, and with it the numbers of rules, from others.
    pub(super) fingerprint: u64,
}

/// What the rules make it necessary to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Streams have to be put together.
    pub(super) streams: bool,
    /// Application protocols have to be taken apart.
    pub(super) applications: bool,
    /// Packets have to be looked at for what is wrong with them.
    pub(super) events: bool,
    /// Bytes of a stream's past.
    pub(super) tail: usize,
}

/// The rules that are looked for first in one buffer.
#[derive(Default)]
struct Group {
    automaton: Option<AhoCorasick>,
    /// For each pattern of the automaton, its rules.
    rules_of_pattern: Vec<Vec<u32>>,
    without_pattern: Vec<u32>,
}

/// Which patterns were seen in one buffer, reused.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    seen: Vec<bool>,
}

impl Engine {
    /// # Errors
    /// When an automaton would be too large.
    pub(super) fn new(mut rules: Vec<Rule>) -> Result<Self, aho_corasick::BuildError> {
        rules.sort_by_key(|r| (r.action, r.bits_rank(), r.severity));
        let mut groups = Vec::new();
        for _ in 0..Buffer::COUNT {
            groups.push(GroupBuilder::default());
        }
        for (number, rule) in rules.iter().enumerate() {
            groups[rule.fast_pattern.buffer as usize].add(rule, number as u32);
        }
        let groups = groups.into_iter().map(GroupBuilder::build).collect::<Result<_, _>>()?;
        let (needs, fingerprint) = (needs(&rules), fingerprint(&rules));
        Ok(Self { rules, groups, needs, fingerprint })
    }

    /// Appends to `out` the numbers of the rules that may match `bytes`, whose pattern ends
    /// behind `from`, in the order to ask them.
    pub(super) fn candidates(
        &self,
        buffer: Buffer,
        bytes: &[u8],
        from: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let group = &self.groups[buffer as usize];
        let start = out.len();
        out.extend_from_slice(&group.without_pattern);
        if let Some(automaton) = &group.automaton
            && bytes.len() > from
        {
            scratch.seen.clear();
            scratch.seen.resize(group.rules_of_pattern.len(), false);
            for found in automaton.find_overlapping_iter(bytes) {
                let pattern = found.pattern().as_usize();
                if found.end() > from && !std::mem::replace(&mut scratch.seen[pattern], true) {
                    out.extend_from_slice(&group.rules_of_pattern[pattern]);
                }
            }
        }
        out[start..].sort_unstable();
    }
}

#[derive(Default)]
struct GroupBuilder {
    patterns: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, usize>,
    group: Group,
}

impl GroupBuilder {
    fn add(&mut self, rule: &Rule, number: u32) {
        let Some(pattern) = &rule.fast_pattern.bytes else {
            self.group.without_pattern.push(number);
            return;
        };
        let pattern = pattern.to_ascii_lowercase();
        let at = *self.known.entry(pattern.clone()).or_insert_with(|| {
            self.patterns.push(pattern);
            self.group.rules_of_pattern.push(Vec::new());
            self.patterns.len() - 1
        });
        self.group.rules_of_pattern[at].push(number);
    }

    fn build(self) -> Result<Group, aho_corasick::BuildError> {
        let mut group = self.group;
        if !self.patterns.is_empty() {
            let mut builder = AhoCorasick::builder();
            builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
            group.automaton = Some(builder.build(&self.patterns)?);
        }
        Ok(group)
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
        needs.applications |= rule.application.is_some();
        needs.events |= rule.conditions.iter().any(|c| matches!(c, Condition::Event(_)));
        needs.streams |= !rule.stream_sizes.is_empty();
        let payload = rule.parts.iter().find(|p| p.buffer == Buffer::Payload);
        let Some(part) = payload.filter(|_| rule.view != Some(View::Packet)) else { continue };
        needs.streams = true;
        let reach = match &part.tests[..] {
            [PayloadTest::Content(content)] => content.bytes.len() - 1,
            _ => TAIL,
        };
        needs.tail = needs.tail.max(reach);
    }
    needs.streams |= needs.applications;
    needs
}
