//! The groups of rules that concern a packet, by transport protocol and ports.
//!
//! Most rules about payloads name a few ports. A packet is searched for the patterns of rules about
//! the ports that it has, and for those of rules about any port (the signature groups of Suricata,
//! which has one group for both; here each pattern lies in one group of a protocol, or in one for
//! each set of ports that the same rules name).

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use super::ahead::Texts;
use super::device::Literal;
use super::group::{Group, GroupBuilder};
use super::heads::{Header, Kind};
use super::rule::{Ports, Rule};
use thalweg_packet::{BATCH, Batch, Lanes};

/// As many ports are few: rules about more are searched for whatever the ports.
const FEW_PORTS: usize = 64;

/// The most groups for one end of one protocol's packets; each takes some ten kilobytes. Where rules
/// would need more, those about the ports that fewest rules are about are searched for whatever the port.
const MOST_GROUPS: usize = 128;

/// Rules with their numbers, in order.
type Numbered<'a> = Vec<(u32, &'a Rule)>;

/// The rules about payloads.
pub(super) struct PortGroups {
    groups: Vec<Group>,
    kinds: [OfKind; Kind::ALL.len()],
}

/// The groups of one transport protocol, by number.
#[derive(Default)]
struct OfKind {
    of_any_port: usize,
    sources: Ends,
    destinations: Ends,
}

/// The groups by the port of one end.
#[derive(Default)]
struct Ends {
    /// A bit for each port, whether it has a group: few have. Empty if none has.
    known: Vec<u64>,
    /// Ports and their groups, in order.
    groups: Vec<(u16, u16)>,
}

impl PortGroups {
    /// Groups `rules`, with their numbers, which are in order.
    pub(super) fn new(rules: &[(u32, &Rule)]) -> Self {
        let mut groups = Vec::new();
        let kinds = Kind::ALL.map(|kind| {
            let rules: Vec<_> = rules.iter().copied().filter(|(_, r)| kind.suits(r)).collect();
            OfKind::new(&rules, kind, &mut groups)
        });
        Self { groups, kinds }
    }

    /// Bytes before the new part of a text in which a pattern may begin.
    pub(super) fn reach(&self) -> usize {
        self.groups.iter().map(Group::reach).max().unwrap_or(0)
    }

    /// The groups that concern packets with this header.
    pub(super) fn of(&self, header: Header) -> impl Iterator<Item = &Group> {
        let kind = &self.kinds[header.kind as usize];
        let by_ports = kind.by_ports(header.ports).into_iter().flatten().map(usize::from);
        [kind.of_any_port].into_iter().chain(by_ports).map(|number| &self.groups[number])
    }

    /// Appends to `out` the groups that concern the texts of a batch, each with the lanes that have one.
    pub(super) fn of_each(&self, batch: &Batch, texts: &Texts<'_>, out: &mut Vec<(usize, Lanes)>) {
        self.of_kinds(batch, texts, out);
        // A device has found out that other groups have no pattern there.
        if texts.without != [0; BATCH] {
            out.retain_mut(|(group, lanes)| {
                let bit = self.bit(*group);
                let may_have = lanes.into_iter().filter(|lane| texts.without[*lane] & bit == 0);
                *lanes = may_have.collect();
                !lanes.is_empty()
            });
        }
    }

    /// The same, whatever a device has found out.
    fn of_kinds(&self, batch: &Batch, texts: &Texts<'_>, out: &mut Vec<(usize, Lanes)>) {
        for (kind, lanes) in self.kinds.iter().zip(&texts.of_kinds) {
            let lanes = lanes.and(texts.with_payload);
            if lanes.is_empty() {
                continue;
            }
            out.push((kind.of_any_port, lanes));
            if !kind.has_groups_by_port() {
                continue;
            }
            let first = out.len();
            for lane in lanes {
                for group in kind.by_ports(Header::of(batch, lane).ports).into_iter().flatten() {
                    let group = usize::from(group);
                    match out[first..].iter_mut().find(|(known, _)| *known == group) {
                        Some((_, lanes)) => lanes.insert(lane),
                        None => out.push((group, Lanes::one(lane))),
                    }
                }
            }
        }
    }

    /// All patterns, with the kind of packets that are searched for each and the [bit](Self::bit) of its
    /// group.
    pub(super) fn patterns(&self) -> Vec<Literal> {
        let (mut kind, mut patterns) = (0, Vec::new());
        for (number, group) in self.groups.iter().enumerate() {
            let groups = self.bit(number);
            let literal = |bytes: &Vec<u8>| Literal { kind, groups, bytes: bytes.clone() };
            patterns.extend(group.patterns().iter().map(literal));
            // The last group of a kind.
            kind += usize::from(number == self.kinds[kind].of_any_port);
        }
        patterns
    }

    /// The bit of a group in a set of those of its kind: that of the group of any port is its own.
    fn bit(&self, number: usize) -> u32 {
        let is_of_any_port = self.kinds.iter().any(|kind| kind.of_any_port == number);
        if is_of_any_port { 1 << 31 } else { 1 << (number % 31) }
    }

    /// The group of a number.
    pub(super) fn group(&self, number: usize) -> &Group {
        &self.groups[number]
    }

    /// All groups.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }
}

impl OfKind {
    fn new(rules: &[(u32, &Rule)], kind: Kind, groups: &mut Vec<Group>) -> Self {
        let mut of_any_port = Numbered::new();
        let mut of_ends: [Numbered<'_>; 2] = Default::default();
        for (number, rule) in rules {
            match deciding(rule).filter(|_| kind.has_ports()) {
                None => of_any_port.push((*number, rule)),
                Some((_, ends)) => {
                    let sides = of_ends.iter_mut().zip(ends).filter(|(_, decides)| *decides);
                    sides.for_each(|(of_end, _)| of_end.push((*number, rule)));
                }
            }
        }
        let [sources, destinations] = of_ends.map(|rules| {
            let [own, others] = divided(rules);
            of_any_port.extend(others);
            Ends::new(&own, kind, groups)
        });
        of_any_port.sort_unstable_by_key(|(number, _)| *number);
        of_any_port.dedup_by_key(|(number, _)| *number);
        groups.push(group_of(of_any_port.into_iter(), kind));
        Self { of_any_port: groups.len() - 1, sources, destinations }
    }

    fn has_groups_by_port(&self) -> bool {
        !(self.sources.known.is_empty() && self.destinations.known.is_empty())
    }

    /// The groups by source port and by destination port.
    #[inline]
    fn by_ports(&self, [source, destination]: [u16; 2]) -> [Option<u16>; 2] {
        [self.sources.of(source), self.destinations.of(destination)]
    }
}

impl Ends {
    /// A group for each set of ports that the same `rules` are about.
    fn new(rules: &[(u32, &Rule)], kind: Kind, groups: &mut Vec<Group>) -> Self {
        let mut of_sets = HashMap::<Vec<u32>, u16>::new();
        let mut ends = Vec::new();
        for (port, rules) in by_port(rules) {
            let group = *of_sets.entry(numbers(&rules)).or_insert_with(|| {
                groups.push(group_of(rules.into_iter(), kind));
                (groups.len() - 1) as u16
            });
            ends.push((port, group));
        }
        let mut known = vec![0u64; if ends.is_empty() { 0 } else { (1 << 16) / 64 }];
        ends.iter().for_each(|(port, _)| known[usize::from(port / 64)] |= 1 << (port % 64));
        Self { known, groups: ends }
    }

    #[inline]
    fn of(&self, port: u16) -> Option<u16> {
        let word = self.known.get(usize::from(port / 64)).copied().unwrap_or(0);
        if word >> (port % 64) & 1 == 0 {
            return None;
        }
        let at = self.groups.binary_search_by_key(&port, |(port, _)| *port).ok()?;
        Some(self.groups[at].1)
    }
}

/// The rules about each port.
fn by_port<'a>(rules: &[(u32, &'a Rule)]) -> BTreeMap<u16, Numbered<'a>> {
    let mut of_ports = BTreeMap::<u16, Numbered<'a>>::new();
    for (number, rule) in rules {
        let ports = deciding(rule).into_iter().flat_map(|(ports, _)| ports.each());
        ports.for_each(|port| of_ports.entry(port).or_default().push((*number, rule)));
    }
    of_ports.values_mut().for_each(|rules| rules.dedup_by_key(|(number, _)| *number));
    of_ports
}

fn numbers(rules: &[(u32, &Rule)]) -> Vec<u32> {
    rules.iter().map(|(number, _)| *number).collect()
}

/// The rules of one end that have groups, and the others.
fn divided(rules: Numbered<'_>) -> [Numbered<'_>; 2] {
    let mut sets: Vec<_> = by_port(&rules).into_values().map(|rules| numbers(&rules)).collect();
    sets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    sets.dedup();
    let others: HashSet<u32> = sets.into_iter().skip(MOST_GROUPS).flatten().collect();
    let (own, others) = rules.into_iter().partition(|(number, _)| !others.contains(number));
    [own, others]
}

fn group_of<'a>(rules: impl Iterator<Item = (u32, &'a Rule)>, kind: Kind) -> Group {
    let mut group = GroupBuilder::default();
    for (number, rule) in rules {
        group.add(rule, number);
    }
    // What is searched of TCP is the end of a stream.
    if kind == Kind::Tcp { group.build() } else { group.build_for_whole_texts() }
}

/// The few ports that decide whether `rule` concerns a packet, and whether those are its source port
/// and its destination port; `None` if the rule is about many ports at both ends.
fn deciding(rule: &Rule) -> Option<(&Ports, [bool; 2])> {
    let are_few = |ports: &Ports| ports.are_few(FEW_PORTS);
    let (ports, of_source) = if are_few(&rule.destination.ports) {
        (&rule.destination.ports, false)
    } else {
        (&rule.source.ports, true)
    };
    let ends = [of_source || rule.both_ways, !of_source || rule.both_ways];
    are_few(ports).then_some((ports, ends))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use thalweg_source::Source;

    use super::super::literals::Found;
    use super::super::rule::{Variables, choose, load};
    use super::*;

    #[test]
    fn the_ports_that_most_rules_are_about_keep_their_groups() {
        let mut text = String::new();
        for port in 1..=2 * MOST_GROUPS {
            // Port 100 has most, one of them about another port, too, that has few.
            for n in 0..if port == 100 { 5 } else { 1 + 2 * usize::from(port <= MOST_GROUPS) } {
                let also = if n == 4 { format!(",{}", 2 * MOST_GROUPS) } else { String::new() };
                writeln!(
                    text,
                    "alert udp any any -> any [{port}{also}] (msg:\"m\"; content:\"p{port} n{n}\"; \
                     sid:{};)",
                    10 * port + n
                )
                .unwrap();
            }
        }
        let loaded = load(&Source::new("rules", text), &Variables::new([]), true);
        assert!(loaded.errors.is_empty());
        let mut rules = loaded.rules;
        choose(&mut rules);
        let rules: Vec<_> = (0..).zip(&rules).collect();
        let groups = PortGroups::new(&rules);
        assert_eq!(groups.groups.len(), Kind::ALL.len() + MOST_GROUPS);
        let found = |port, text: &str| {
            let header = Header { kind: Kind::Udp, ports: [1, port] };
            let (mut literals, mut found) = (Found::default(), Vec::new());
            for group in groups.of(header) {
                group.find(text.as_bytes(), 0, &mut literals, |rules| found.extend(rules.iter()));
            }
            found
        };
        let rule = |sid: u32| {
            let is_it = |(_, rule): &&(u32, &Rule)| rule.sid == sid;
            rules.iter().find(is_it).unwrap().0
        };
        assert_eq!(found(100, "p100 n3, p7 n0"), [rule(1003)]);
        assert_eq!(found(7, "p100 n3, p7 n0"), [rule(70)]);
        // Without a group, rules are found whatever the port: the header decides later.
        for port in [7, 100, 2 * MOST_GROUPS as u16] {
            assert_eq!(found(port, "p100 n4"), [rule(1004)]);
            assert_eq!(found(port, "p200 n0"), [rule(2000)]);
        }
    }
}
