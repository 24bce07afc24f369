//! The groups of rules that concern a packet, by transport protocol and ports.
//!
//! Most rules about payloads name a few ports. A packet is searched for the patterns of rules about
//! the ports that it has, and for those of rules about any port (the signature groups of Suricata,
//! which has one group for both; here each pattern lies in one group of a protocol, or in one for
//! each set of ports that the same rules name).

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::ahead::Texts;
use super::group::{Group, GroupBuilder};
use super::heads::{Header, Kind};
use super::rule::{Ports, Rule};
use thalweg_packet::{Batch, Lanes};

/// As many ports are few: rules about more are searched for whatever the ports.
const FEW_PORTS: usize = 64;

/// The most groups for one end of one protocol's packets; each takes some ten kilobytes. Where rules
/// would need more, none of them has a group by port.
const MOST_GROUPS: usize = 128;

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
        for (kind, lanes) in self.kinds.iter().zip(texts.of_kinds) {
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
        let mut of_any_port: Vec<(u32, &Rule)> = Vec::new();
        let mut of_ends: [Vec<(u32, &Rule)>; 2] = Default::default();
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
            Ends::new(&rules, kind, groups).unwrap_or_else(|| {
                of_any_port.extend(rules);
                Ends::default()
            })
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
    /// A group for each set of ports that the same `rules` are about; `None` if these are too many.
    fn new(rules: &[(u32, &Rule)], kind: Kind, groups: &mut Vec<Group>) -> Option<Self> {
        let mut of_ports = BTreeMap::<u16, Vec<(u32, &Rule)>>::new();
        for (number, rule) in rules {
            let ports = deciding(rule).into_iter().flat_map(|(ports, _)| ports.each());
            ports.for_each(|port| of_ports.entry(port).or_default().push((*number, rule)));
        }
        let (mut known, first) = (HashMap::<Vec<u32>, u16>::new(), groups.len());
        let mut ends = Vec::new();
        for (port, mut rules) in of_ports {
            rules.dedup_by_key(|(number, _)| *number);
            let key = rules.iter().map(|(number, _)| *number).collect();
            let group = *known.entry(key).or_insert_with(|| {
                groups.push(group_of(rules.into_iter(), kind));
                (groups.len() - 1) as u16
            });
            if known.len() > MOST_GROUPS {
                groups.truncate(first);
                return None;
            }
            ends.push((port, group));
        }
        let mut known = vec![0u64; if ends.is_empty() { 0 } else { (1 << 16) / 64 }];
        ends.iter().for_each(|(port, _)| known[usize::from(port / 64)] |= 1 << (port % 64));
        Some(Self { known, groups: ends })
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
