//! Finds the rules that may match a payload or a buffer.
//!
//! One pass over the data finds the rules whose fast patterns occur in it; only those rules, and
//! the few without a pattern, are verified in full.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};
use thalweg_packet::{BATCH, Batch, Lanes};

use super::ahead::Texts;
use super::alert;
use super::buffer::Buffer;
use super::chosen::{Chosen, RuleSet};
use super::device::{Automaton, Results};
use super::group::{Group, GroupBuilder};
use super::heads::{Header, Heads, Suiting};
use super::literals::{Found, Literals, Open};
use super::port_groups::PortGroups;
use super::rule::{Condition, PayloadTest, Rule, View, choose};
use super::twins::Twins;

/// How far rules with several tests reach back in a stream, in bytes.
const TAIL: usize = 4096;

/// Patterns with fewer bytes occur in much traffic by chance.
const WEAK: usize = 4;

/// As many ports are few: they have little of the traffic.
const FEW_PORTS: usize = 16;

/// How many engines were made.
static ENGINES: AtomicU32 = AtomicU32::new(0);

/// All rules of an NF, ready for use.
pub(super) struct Engine {
    /// In the order of evaluation.
    pub(super) rules: Vec<Rule>,
    /// The part of an alert that describes the rule, by rule.
    pub(super) alerts: Vec<String>,
    /// The rules whose pattern belongs to payloads.
    payloads: PortGroups,
    /// The other ones, by buffer.
    messages: Vec<Group>,
    /// The rules without a pattern, by buffer.
    without_pattern: Vec<Vec<u32>>,
    /// The header conditions of all rules.
    heads: Heads,
    /// Likewise for the payload rules without a pattern, in their order.
    heads_without_pattern: Heads,
    pub(super) twins: Twins,
    pub(super) needs: Needs,
    /// Bytes before the new part of a payload in which a pattern may begin.
    pub(super) reach: usize,
    /// Identifies this rule set, and so the meaning of rule numbers.
    pub(super) fingerprint: u64,
    /// Another one for each engine, not 0, which repeats after 2^16 - 1 of them.
    pub(super) number: u16,
    /// What a device reads to look for the patterns of payloads, once it does.
    pub(super) automaton: OnceLock<Automaton>,
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

/// The buffers of a search for rules; reused.
#[derive(Debug, Default)]
pub(super) struct Search {
    literals: Found,
    chosen: Chosen,
    /// The lanes of a batch that each of these groups concerns.
    concerned: Vec<(usize, Lanes)>,
    /// What a device returned for the payloads of the batch.
    pub(super) results: Option<Results>,
}

impl Engine {
    pub(super) fn new(mut rules: Vec<Rule>) -> Self {
        rules.sort_by_key(|r| (r.action, r.bits_rank(), r.severity));
        choose(&mut rules);
        let mut messages = Vec::new();
        messages.resize_with(Buffer::COUNT, GroupBuilder::default);
        let mut without_pattern = vec![Vec::new(); Buffer::COUNT];
        let mut payloads = Vec::new();
        for (rule, number) in rules.iter().zip(0u32..) {
            let buffer = rule.fast_pattern.buffer;
            let has_pattern = match buffer {
                Buffer::Payload => {
                    let searched = is_searched(rule);
                    payloads.extend(searched.then_some((number, rule)));
                    searched
                }
                _ => messages[buffer as usize].add(rule, number),
            };
            if !has_pattern {
                without_pattern[buffer as usize].push(number);
            }
        }
        let payloads = PortGroups::new(&payloads);
        let messages = messages.into_iter().map(GroupBuilder::build).collect();
        let reach = payloads.reach();
        let by_header = without_pattern[Buffer::Payload as usize].iter();
        let by_header: Vec<_> = by_header.map(|rule| &rules[*rule as usize]).collect();
        let heads_without_pattern = Heads::new(&by_header);
        let (needs, fingerprint) = (needs(&rules), fingerprint(&rules));
        let alerts = rules.iter().map(alert::of_rule).collect();
        let heads = Heads::new(&rules.iter().collect::<Vec<_>>());
        let twins = Twins::new(&rules);
        Self {
            rules,
            alerts,
            payloads,
            messages,
            without_pattern,
            heads,
            heads_without_pattern,
            twins,
            needs,
            reach,
            fingerprint,
            number: (ENGINES.fetch_add(1, Ordering::Relaxed) % u32::from(u16::MAX)) as u16 + 1,
            automaton: OnceLock::new(),
        }
    }

    /// The automaton for the patterns of payloads; `None` if there are none.
    pub(super) fn automaton(&self) -> Option<&Automaton> {
        let patterns = self.payloads.patterns();
        (!patterns.is_empty()).then(|| self.automaton.get_or_init(|| Automaton::new(&patterns)))
    }

    /// The rules that the header of a packet suits.
    pub(super) fn suiting(&self, batch: &Batch, lane: usize) -> Suiting<'_> {
        self.heads.suiting(batch, lane)
    }

    /// Appends to `out` the numbers of the rules that may match the `bytes` of a message's buffer, whose
    /// pattern ends after `from`, in order of evaluation.
    pub(super) fn candidates(
        &self,
        buffer: Buffer,
        bytes: &[u8],
        from: usize,
        search: &mut Search,
        out: &mut Vec<u32>,
    ) {
        let group = std::iter::once(&self.messages[buffer as usize]);
        self.candidates_among(group, buffer, (bytes, from), None, search, out);
    }

    /// The same for the payload of packets with a header, or for `bytes` of their stream, for rules
    /// whose pattern ends after `from`; with `suiting`, only rules that the header suits.
    pub(super) fn candidates_of_payload(
        &self,
        header: Header,
        bytes: &[u8],
        from: usize,
        suiting: Option<Suiting<'_>>,
        search: &mut Search,
        out: &mut Vec<u32>,
    ) {
        let groups = self.payloads.of(header);
        self.candidates_among(groups, Buffer::Payload, (bytes, from), suiting, search, out);
    }

    /// The same for the rules of `groups` and those of a buffer without a pattern.
    fn candidates_among<'a>(
        &self,
        groups: impl Iterator<Item = &'a Group>,
        buffer: Buffer,
        (bytes, from): (&[u8], usize),
        suiting: Option<Suiting<'_>>,
        search: &mut Search,
        out: &mut Vec<u32>,
    ) {
        let Search { literals: found, chosen, .. } = search;
        chosen.begin(self.rules.len());
        self.without_pattern[buffer as usize].iter().for_each(|rule| chosen.add_rule(0, *rule));
        for group in groups {
            group.find(bytes, from, found, |rules| chosen.add(0, rules));
        }
        chosen.take(0, suiting, |rule| out.push(rule));
    }

    /// The reference of [`candidates_of_payload`](Self::candidates_of_payload): whatever the header.
    #[cfg(test)]
    pub(super) fn candidates_of_any(
        &self,
        bytes: &[u8],
        from: usize,
        search: &mut Search,
        out: &mut Vec<u32>,
    ) {
        out.extend(&self.without_pattern[Buffer::Payload as usize]);
        for group in self.payloads.all() {
            group.find(bytes, from, &mut search.literals, |rules| out.extend(rules.iter()));
        }
        out.sort_unstable();
        out.dedup();
    }

    /// Appends to `out`, for each of the `texts` of a batch's `lanes`, its lane and the numbers of the
    /// rules that may match it, whose pattern ends after what is known of it, ordered by lane and then
    /// by evaluation.
    pub(super) fn candidates_of_each(
        &self,
        batch: &Batch,
        lanes: Lanes,
        texts: &Texts<'_>,
        search: &mut Search,
        out: &mut Vec<(u32, u32)>,
    ) -> Open {
        let Search { literals: found, chosen, concerned, .. } = search;
        chosen.begin(self.rules.len());
        let without_pattern = &self.without_pattern[Buffer::Payload as usize];
        if !without_pattern.is_empty() {
            for lane in lanes {
                let suiting = self.heads_without_pattern.suiting(batch, lane);
                suiting.each(|n| chosen.add_rule(lane, without_pattern[n]));
            }
        }
        self.payloads.of_each(batch, texts, concerned);
        let (mut by_pattern, mut open) = (Lanes::NONE, Open::default());
        let mut choose = |lane, rules: &RuleSet| {
            by_pattern.insert(lane);
            chosen.add(lane, rules);
        };
        for (group, lanes) in concerned.drain(..) {
            let group = self.payloads.group(group);
            let joined = (lanes == texts.are_joined).then_some(texts.joined);
            if lanes == texts.with_payload {
                let of_group =
                    group.find_in_each(&texts.bytes, joined, &texts.known, found, &mut choose);
                open = open.or(of_group);
                continue;
            }
            let (mut those, mut bytes, mut known) = ([0; BATCH], [&[][..]; BATCH], [0; BATCH]);
            for (n, lane) in lanes.into_iter().enumerate() {
                (those[n], bytes[n], known[n]) = (lane, texts.bytes[lane], texts.known[lane]);
            }
            let count = lanes.count();
            let choose = |n, rules: &RuleSet| choose(those[n], rules);
            let of_group =
                group.find_in_each(&bytes[..count], joined, &known[..count], found, choose);
            open = open.or(of_group.of(lanes));
        }
        for lane in chosen.lanes() {
            // Rules without a pattern suit already.
            let suiting = by_pattern.contains(lane).then(|| self.heads.suiting(batch, lane));
            chosen.take(lane, suiting, |rule| out.push((lane as u32, rule)));
        }
        open
    }
}

/// Whether packets are searched for the pattern of a rule about payloads. The header selects a rule
/// better than a pattern that occurs everywhere.
fn is_searched(rule: &Rule) -> bool {
    let length = rule.fast_pattern.bytes.as_ref().map_or(0, Vec::len);
    let is_weak = length < WEAK && rule.is_of_few_ports(FEW_PORTS);
    length >= Literals::LEAST && !is_weak
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
