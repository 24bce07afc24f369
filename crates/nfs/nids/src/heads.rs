//! Selects the rules that the header of a packet allows.
//!
//! For each value of a few fields, a bit set holds the rules that allow it; the header suits the
//! rules in the intersection of the sets of the packet's values (bit vectors: Lakshman and
//! Stiliadis, "High-Speed Policy-Based Packet Forwarding Using Efficient Multi-dimensional Range
//! Matching", SIGCOMM 1998). A selected rule may still not match; a rule that is not selected
//! cannot match.

use std::iter::repeat_n;

use hashbrown::HashMap;
use thalweg_packet::wire::ip_proto::{SCTP, TCP, UDP};
use thalweg_packet::{Batch, field};

use super::rule::{Protocol, Rule};

/// Rules by their conditions on headers, numbered in the order given.
#[derive(Debug)]
pub(super) struct Heads {
    kinds: Sets,
    flags: Sets,
    sources: Sets,
    destinations: Sets,
}

/// The sets of a packet's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suiting<'a>([&'a [u64]; 4]);

/// For each value of a field, the rules that it suits.
#[derive(Debug)]
struct Sets {
    /// For each upper byte of a value, where its block of `numbers` begins. Most share one.
    blocks: Vec<u32>,
    /// For each lower byte, the number of the value's set; block by block.
    numbers: Vec<u32>,
    /// The distinct sets one after the other, with a bit for each rule.
    bits: Vec<u64>,
    /// Words of `bits` per set.
    words: usize,
}

/// The kind of a packet by transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tcp,
    Udp,
    Other,
}

/// What a packet's header says about its transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Source port and destination port; 0 where there is none.
    pub(super) ports: [u16; 2],
}

impl Header {
    pub(super) fn of(batch: &Batch, lane: usize) -> Self {
        let kind = Kind::of(batch, lane);
        let port = |place| batch.field(lane, place) as u16;
        Self { kind, ports: [port(field::TP_SRC), port(field::TP_DST)] }
    }

    /// That of a packet in the other direction.
    pub(super) fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self { ports: [destination, source], ..self }
    }
}

impl Heads {
    pub(super) fn new(rules: &[&Rule]) -> Self {
        let kinds = Sets::new(rules, 1..3, |rule, kind| Kind::ALL[usize::from(kind)].suits(rule));
        let flags = Sets::new(rules, 1..=u16::from(u8::MAX), |rule, flags| {
            rule.conditions.iter().all(|condition| condition.suits_flags(flags as u8))
        });
        let begins: Vec<u16> = rules.iter().copied().flat_map(Rule::port_begins).collect();
        let sources = Sets::new(rules, begins.iter().copied(), |rule, port| {
            let back = rule.both_ways && rule.destination.ports.contains(port);
            rule.source.ports.contains(port) || back
        });
        let destinations = Sets::new(rules, begins.iter().copied(), |rule, port| {
            let back = rule.both_ways && rule.source.ports.contains(port);
            rule.destination.ports.contains(port) || back
        });
        Self { kinds, flags, sources, destinations }
    }

    /// The rules that the header of a packet suits.
    pub(super) fn suiting(&self, batch: &Batch, lane: usize) -> Suiting<'_> {
        let Header { kind, ports: [source, destination] } = Header::of(batch, lane);
        let mut sets = [self.kinds.of(kind as u16); 4];
        if kind == Kind::Tcp {
            sets[1] = self.flags.of(batch.field(lane, field::TCP_FLAGS) as u16 & 0xff);
        }
        if kind.has_ports() || batch.headers(lane).ip_proto == SCTP {
            sets[2] = self.sources.of(source);
            sets[3] = self.destinations.of(destination);
        }
        Suiting(sets)
    }
}

/// The places of the bits of `word` that are 1, in order.
#[inline]
pub(super) fn ones(word: u64) -> impl Iterator<Item = usize> {
    let next = |left: &u64| Some(left & (left - 1)).filter(|left| *left != 0);
    let left = std::iter::successors(Some(word).filter(|word| *word != 0), next);
    left.map(|left| left.trailing_zeros() as usize)
}

impl Suiting<'_> {
    /// The rules of a word that the header suits: those from 64 times its number on, a bit each.
    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.0.iter().fold(u64::MAX, |left, set| left & set[word])
    }

    /// Passes all rules that the header suits to `tell`, in order.
    pub(super) fn each(&self, mut tell: impl FnMut(usize)) {
        for word in 0..self.0[0].len() {
            ones(self.word(word)).for_each(|bit| tell(64 * word + bit));
        }
    }
}

impl Sets {
    /// The sets of `rules`, for ranges of values that begin at 0 and at `begins`.
    fn new(
        rules: &[&Rule],
        begins: impl IntoIterator<Item = u16>,
        suits: impl Fn(&Rule, u16) -> bool,
    ) -> Self {
        let mut begins: Vec<u16> = begins.into_iter().chain([0]).collect();
        begins.sort_unstable();
        begins.dedup();
        let words = rules.len().div_ceil(64);
        let (mut known, mut bits) = (HashMap::new(), Vec::new());
        let set_of = |value: u16| {
            let mut set = vec![0u64; words];
            for (n, rule) in rules.iter().enumerate() {
                set[n / 64] |= u64::from(suits(rule, value)) << (n % 64);
            }
            let next = known.len() as u32;
            let number = *known.entry(set.clone()).or_insert(next);
            if number == next {
                bits.extend(set);
            }
            (value, number)
        };
        let ranges: Vec<_> = begins.into_iter().map(set_of).collect();
        let (blocks, numbers) = in_two_levels(&ranges);
        Self { blocks, numbers, bits, words }
    }

    #[inline]
    fn of(&self, value: u16) -> &[u64] {
        let [upper, lower] = value.to_be_bytes().map(usize::from);
        let number = self.numbers[self.blocks[upper] as usize + lower] as usize;
        &self.bits[number * self.words..][..self.words]
    }
}

/// For each upper byte of a value, where its block begins, and the blocks, which have a number for each lower
/// byte: that of the last of `ranges` that begins there or before. The ranges are in order, from 0 on.
fn in_two_levels(ranges: &[(u16, u32)]) -> (Vec<u32>, Vec<u32>) {
    let begins = ranges.iter().map(|(begin, _)| usize::from(*begin));
    let ends = begins.clone().skip(1).chain([1 << u16::BITS]);
    let each = begins.zip(ends).zip(ranges);
    let all = each.flat_map(|((begin, end), (_, number))| repeat_n(*number, end - begin));
    let (mut uniform, mut numbers) = (HashMap::new(), Vec::new());
    let block_of = |block: &[u32]| {
        let new = numbers.len() as u32;
        let is_uniform = block.iter().all(|number| *number == block[0]);
        let at = if is_uniform { *uniform.entry(block[0]).or_insert(new) } else { new };
        if at == new {
            numbers.extend(block);
        }
        at
    };
    let blocks = all.collect::<Vec<_>>().chunks(1 << u8::BITS).map(block_of).collect();
    (blocks, numbers)
}

impl Kind {
    /// Each, in the order of their numbers.
    pub(super) const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Other];

    /// The kind of a packet.
    #[inline]
    pub(super) fn of(batch: &Batch, lane: usize) -> Self {
        Self::of_protocol(batch.headers(lane).ip_proto)
    }

    /// The kind of a packet with this IP protocol.
    #[inline]
    pub(super) fn of_protocol(protocol: u8) -> Self {
        match protocol {
            TCP => Self::Tcp,
            UDP => Self::Udp,
            _ => Self::Other,
        }
    }

    /// Whether all its packets have ports.
    pub(super) fn has_ports(self) -> bool {
        self != Self::Other
    }

    /// Whether a packet of this kind can have the rule's protocol.
    pub(super) fn suits(self, rule: &Rule) -> bool {
        match self {
            Self::Tcp => rule.protocol.may_be_tcp(),
            Self::Udp => rule.protocol == Protocol::Udp || rule.protocol.is_open(),
            Self::Other => rule.protocol != Protocol::Udp && rule.protocol.may_be_other(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_value_has_the_number_of_its_range(
            ranges in proptest::collection::btree_map(
                prop_oneof![any::<u16>(), 0u16..600, 65_000u16.., Just(256), Just(512)], 0u32..4, 0..40),
        ) {
            let mut ranges = ranges;
            ranges.insert(0, 9);
            let ranges: Vec<_> = ranges.into_iter().collect();
            let (blocks, numbers) = in_two_levels(&ranges);
            prop_assert_eq!(blocks.len(), 256);
            for value in 0..=u16::MAX {
                let [upper, lower] = value.to_be_bytes().map(usize::from);
                let range = ranges.partition_point(|(begin, _)| *begin <= value) - 1;
                prop_assert_eq!(numbers[blocks[upper] as usize + lower], ranges[range].1);
            }
        }
    }
}
