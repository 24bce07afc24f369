//! From a packet to the rules that match it.
//!
//! One pass of an Aho-Corasick automaton over the payload finds which rules'
//! fast patterns are there; only those rules, and the few without a pattern,
//! are looked at in full.

use aho_corasick::{AhoCorasick, MatchKind};
use thalweg_packet::{FiveTuple, FlowKey, Headers};

use super::flows::Seen;
use super::matcher::{Outcome, verify};
use super::rule::{Endpoint, FlowBit, Protocol, Rule};

/// All rules of an NF, ready for use.
pub(super) struct Engine {
    /// In the order in which they are asked.
    pub(super) rules: Vec<Rule>,
    automaton: Option<AhoCorasick>,
    /// For each pattern of the automaton, its rules.
    rules_of_pattern: Vec<Vec<u32>>,
    without_pattern: Vec<u32>,
}

/// Room for the candidates of one packet, reused.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    candidates: Vec<u32>,
    seen: Vec<bool>,
}

/// A packet as rules see it.
pub(super) struct Subject<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) headers: &'a Headers,
    pub(super) key: &'a FlowKey,
    pub(super) tuple: Option<&'a FiveTuple>,
    pub(super) payload: &'a [u8],
}

impl Engine {
    /// # Errors
    /// When the automaton would be too large.
    pub(super) fn new(mut rules: Vec<Rule>) -> Result<Self, aho_corasick::BuildError> {
        rules.sort_by_key(|r| (r.action, r.bits_rank(), r.severity));
        let (mut patterns, mut rules_of_pattern) = (Vec::<Vec<u8>>::new(), Vec::<Vec<u32>>::new());
        let mut without_pattern = Vec::new();
        let mut known = hashbrown::HashMap::new();
        for (number, rule) in rules.iter().enumerate() {
            let number = number as u32;
            let Some(pattern) = &rule.fast_pattern else {
                without_pattern.push(number);
                continue;
            };
            let pattern = pattern.to_ascii_lowercase();
            let at = *known.entry(pattern.clone()).or_insert_with(|| {
                patterns.push(pattern);
                rules_of_pattern.push(Vec::new());
                patterns.len() - 1
            });
            rules_of_pattern[at].push(number);
        }
        let automaton = if patterns.is_empty() {
            None
        } else {
            let mut builder = AhoCorasick::builder();
            builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
            Some(builder.build(&patterns)?)
        };
        Ok(Self { rules, automaton, rules_of_pattern, without_pattern })
    }

    /// The numbers of the rules that may match, in the order to ask them.
    pub(super) fn candidates<'s>(&self, payload: &[u8], scratch: &'s mut Scratch) -> &'s [u32] {
        let Scratch { candidates, seen } = scratch;
        candidates.clear();
        candidates.extend_from_slice(&self.without_pattern);
        if let Some(automaton) = &self.automaton
            && !payload.is_empty()
        {
            seen.clear();
            seen.resize(self.rules_of_pattern.len(), false);
            for found in automaton.find_overlapping_iter(payload) {
                let pattern = found.pattern().as_usize();
                if !std::mem::replace(&mut seen[pattern], true) {
                    candidates.extend_from_slice(&self.rules_of_pattern[pattern]);
                }
            }
        }
        candidates.sort_unstable();
        candidates
    }
}

impl Rule {
    /// Whether the rule matches, but for its flow bits.
    pub(super) fn matches(&self, subject: &Subject<'_>, seen: Option<&Seen<'_>>) -> Outcome {
        let fits = protocol_fits(self.protocol, subject.headers)
            && self.flow_fits(seen)
            && self.ends_fit(subject.tuple)
            && self.conditions.iter().all(|c| c.holds(subject.bytes, subject.headers, subject.key));
        if fits { verify(&self.payload, subject.payload) } else { Outcome::NoMatch }
    }

    /// Rules that set flow bits come before those that ask for them, and rules
    /// that only unset them come last.
    fn bits_rank(&self) -> u8 {
        let any = |test: fn(&FlowBit) -> bool| self.bits.iter().any(test);
        if any(|b| matches!(b, FlowBit::IsSet(_) | FlowBit::IsNotSet(_))) {
            1
        } else if any(|b| matches!(b, FlowBit::Set(_) | FlowBit::Toggle(_))) {
            0
        } else if any(|b| matches!(b, FlowBit::Unset(_))) {
            2
        } else {
            1
        }
    }

    fn flow_fits(&self, seen: Option<&Seen<'_>>) -> bool {
        let test = self.flow;
        match seen {
            Some(seen) => {
                test.to_server.is_none_or(|s| s == seen.to_server)
                    && test.established.is_none_or(|e| e == seen.established)
            }
            None => test.to_server.is_none() && test.established.is_none(),
        }
    }

    fn ends_fit(&self, tuple: Option<&FiveTuple>) -> bool {
        let Some(t) = tuple else { return false };
        let ports = matches!(t.protocol, 6 | 17 | 132);
        let end = |end: &Endpoint, address, port| {
            end.addresses.contains(address) && (!ports || end.ports.contains(port))
        };
        let (a, b) = (&self.source, &self.destination);
        end(a, t.src, t.src_port) && end(b, t.dst, t.dst_port)
            || self.both_ways && end(b, t.src, t.src_port) && end(a, t.dst, t.dst_port)
    }

    /// Whether the flow bits are as the rule asks.
    pub(super) fn bits_fit(&self, seen: Option<&Seen<'_>>) -> bool {
        let set = |name: &String| seen.is_some_and(|s| s.flow.bits.contains(name));
        self.bits.iter().all(|bit| match bit {
            FlowBit::IsSet(names) => names.iter().any(set),
            FlowBit::IsNotSet(names) => !names.iter().any(set),
            _ => true,
        })
    }

    /// Changes the flow bits as the rule says.
    pub(super) fn change_bits(&self, seen: &mut Seen<'_>) {
        let bits = &mut seen.flow.bits;
        for bit in &self.bits {
            match bit {
                FlowBit::Set(name) => _ = bits.insert(name.clone()),
                FlowBit::Unset(name) => _ = bits.remove(name),
                FlowBit::Toggle(name) => {
                    if !bits.remove(name) {
                        bits.insert(name.clone());
                    }
                }
                FlowBit::IsSet(_) | FlowBit::IsNotSet(_) => {}
            }
        }
    }
}

fn protocol_fits(protocol: Protocol, headers: &Headers) -> bool {
    match protocol {
        Protocol::Ip => headers.is_ipv4() || headers.is_ipv6(),
        Protocol::Ipv4 => headers.is_ipv4(),
        Protocol::Ipv6 => headers.is_ipv6(),
        Protocol::Tcp => headers.ip_proto == 6,
        Protocol::Udp => headers.ip_proto == 17,
        Protocol::Sctp => headers.ip_proto == 132,
        Protocol::Icmp => {
            headers.is_ipv4() && headers.ip_proto == 1
                || headers.is_ipv6() && headers.ip_proto == 58
        }
        Protocol::Icmpv6 => headers.is_ipv6() && headers.ip_proto == 58,
    }
}
