//! One megaflow as it lies in memory, and the mask it is compared under.

use thalweg_packet::{FlowKey, KEY_WORDS, Nanoseconds, PacketType};

use crate::lookup::{Lookup, MatchLayer};
use crate::rule::RuleId;
use crate::rule_table::Found;

/// Masked words that lie beside the counters, in the same cache line. Masks over
/// TCP and UDP on IPv4 seldom have more.
pub(super) const NEAR_WORDS: usize = 4;

/// No rule matched.
const NO_RULE: u32 = u32::MAX;

/// A megaflow: one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// The first masked words, in the order of the subtable's mask.
    pub(super) near: [u64; NEAR_WORDS],
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    rule: u32,
    pub(crate) packet_type: PacketType,
    pub(super) subtable: u16,
    /// When the last packet arrived, in ticks of the megaflows' clock.
    pub(crate) last_used: Tick,
    /// Unique to this flow since it was last found right; 0 once it is removed.
    pub(crate) stamp: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) fn new(found: &Found, subtable: u16, now: Tick, stamp: u32) -> Self {
        Self {
            near: [0; NEAR_WORDS],
            packets: 0,
            bytes: 0,
            rule: found.rule.map_or(NO_RULE, |rule| rule.0),
            packet_type: found.packet_type,
            subtable,
            last_used: now,
            stamp,
        }
    }

    /// Counts packets of `bytes` bytes together.
    #[inline]
    pub(crate) fn meet(&mut self, packets: u64, bytes: u64, now: Tick) {
        self.packets += packets;
        self.bytes += bytes;
        self.last_used = now;
    }

    /// The answer for packets that this megaflow covers.
    #[inline]
    pub(crate) fn answer(&self, layer: MatchLayer) -> Lookup {
        Lookup { rule: self.rule(), packet_type: self.packet_type, layer }
    }

    #[inline]
    pub(crate) fn rule(&self) -> Option<RuleId> {
        (self.rule != NO_RULE).then_some(RuleId(self.rule))
    }
}

/// Time in ticks of 2^24 ns (about 17 ms) since some beginning: half the size of
/// a time stamp, and good for two years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(super) u32);

/// Turns packet time into ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    beginning: Option<Nanoseconds>,
}

impl Clock {
    const SHIFT: u32 = 24;

    /// The tick of `now`. `true` when the ticks given before mean nothing any
    /// more: time went back to before the beginning, or on for years.
    #[inline]
    pub(super) fn tick(&mut self, now: Nanoseconds) -> (Tick, bool) {
        let beginning = *self.beginning.get_or_insert(now);
        let ticks = now.since(beginning).0 >> Self::SHIFT;
        match u32::try_from(ticks) {
            Ok(ticks) if now >= beginning => (Tick(ticks), false),
            _ => {
                self.beginning = Some(now);
                (Tick(0), true)
            }
        }
    }

    pub(super) fn time(&self, tick: Tick) -> Nanoseconds {
        let beginning = self.beginning.unwrap_or_default();
        beginning.plus(Nanoseconds(u64::from(tick.0) << Self::SHIFT))
    }

    /// How many whole ticks `span` has.
    pub(super) fn ticks(span: Nanoseconds) -> u64 {
        span.0 >> Self::SHIFT
    }
}

/// A mask as the words in which any bit is set, and some of those that are common.
#[derive(Clone, Debug)]
pub(super) struct WordMask {
    pub(super) mask: FlowKey,
    len: usize,
    words: [(u8, u64); KEY_WORDS],
    /// The first words by themselves.
    near: [u64; NEAR_WORDS],
    near_words: Layout,
}

/// Numbers of the words that lie in a flow, in their order there.
pub(super) type Layout = [u8; NEAR_WORDS];

/// Words that most masks have: EtherType, IP protocol, IPv4 addresses, ports, input
/// port, VLAN tag. A layout with room to spare is filled up with them.
const COMMON: [u8; 6] = [7, 11, 12, 18, 6, 9];

impl WordMask {
    /// `mask` with the layout `wanted`, when that has all its words; else with one of
    /// its own.
    pub(super) fn new(mask: FlowKey, wanted: Option<Layout>) -> Self {
        let of_mask = mask.words.iter().enumerate().filter(|(_, bits)| **bits != 0);
        let mut numbers: Vec<u8> = of_mask.map(|(word, _)| word as u8).collect();
        match wanted.filter(|layout| numbers.iter().all(|word| layout.contains(word))) {
            Some(layout) => numbers = layout.to_vec(),
            None => {
                for word in COMMON {
                    if numbers.len() < NEAR_WORDS && !numbers.contains(&word) {
                        numbers.push(word);
                    }
                }
            }
        }
        let mut words = [(0, 0); KEY_WORDS];
        for (place, word) in words.iter_mut().zip(&numbers) {
            *place = (*word, mask.words[usize::from(*word)]);
        }
        let near_words = [0, 1, 2, 3].map(|i| words[i].0);
        let near = [0, 1, 2, 3].map(|i| words[i].1);
        Self { mask, len: numbers.len(), words, near, near_words }
    }

    /// The words and their bits.
    #[inline]
    fn words(&self) -> &[(u8, u64)] {
        &self.words[..self.len]
    }

    /// The numbers of the words that lie in the flow.
    #[inline]
    pub(super) fn layout(&self) -> &Layout {
        &self.near_words
    }

    /// Whether a key whose near words are `row` has these near words; `None` when
    /// that does not settle whether the mask covers the key.
    #[inline]
    pub(super) fn covers_row(
        &self,
        near: &[u64; NEAR_WORDS],
        row: &[u64; NEAR_WORDS],
    ) -> Option<bool> {
        let differs = (0..NEAR_WORDS).fold(0, |d, i| d | row[i] & self.near[i] ^ near[i]);
        if differs != 0 {
            return Some(false);
        }
        (self.len <= NEAR_WORDS).then_some(true)
    }

    /// The masked words of `key`: those that lie in the flow, and the rest.
    pub(super) fn split(&self, key: &FlowKey) -> ([u64; NEAR_WORDS], Box<[u64]>) {
        let mut near = [0; NEAR_WORDS];
        let mut values = self.words().iter().map(|(word, bits)| key.words[*word as usize] & bits);
        near.iter_mut().zip(&mut values).for_each(|(place, value)| *place = value);
        (near, values.collect())
    }

    /// The key whose masked words were split.
    pub(super) fn join(&self, near: &[u64; NEAR_WORDS], far: &[u64]) -> FlowKey {
        let mut key = FlowKey::default();
        for ((word, _), value) in self.words().iter().zip(near.iter().chain(far)) {
            key.words[*word as usize] = *value;
        }
        key
    }

    /// Whether the key of which `word` gives the words has these masked words.
    /// `far` is called only when the mask has more words: it lies in another
    /// cache line.
    #[inline]
    pub(super) fn covers<'a>(
        &self,
        near: &[u64; NEAR_WORDS],
        far: impl FnOnce() -> &'a [u64],
        word: impl Fn(usize) -> u64,
    ) -> bool {
        let differs = |difference: u64, ((at, bits), value): (&(u8, u64), &u64)| {
            difference | word(usize::from(*at)) & bits ^ value
        };
        if self.words().iter().zip(near).fold(0, differs) != 0 {
            return false;
        }
        let rest = self.words().iter().skip(NEAR_WORDS);
        self.len <= NEAR_WORDS || rest.zip(far()).fold(0, differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_begins_anew_when_time_leaves_its_range() {
        let mut clock = Clock::default();
        let start = Nanoseconds::from_secs(1_000_000_000);
        assert_eq!(clock.tick(start), (Tick(0), false));
        let later = start.plus(Nanoseconds::from_secs(10));
        let (tick, anew) = clock.tick(later);
        assert!(!anew && clock.time(tick) <= later);
        assert!(later.since(clock.time(tick)).0 < 1 << 24);
        assert_eq!(clock.tick(Nanoseconds::from_secs(5)), (Tick(0), true));
        assert_eq!(clock.tick(start), (Tick(0), true), "thirty years on");
        let far = start.plus(Nanoseconds::from_secs(100 * 365 * 86_400));
        assert_eq!(clock.tick(far), (Tick(0), true));
    }

    #[test]
    fn a_key_is_covered_by_its_own_masked_words_only() {
        let mut mask = FlowKey::default();
        (2..9).for_each(|i| mask.words[i] = 0xff << i);
        let words = WordMask::new(mask, None);
        let key = FlowKey { words: std::array::from_fn(|i| i as u64 * 0x1111) };
        let (near, far) = words.split(&key);
        assert_eq!((near.len(), far.len()), (4, 3));
        assert_eq!(words.join(&near, &far), key.masked(&mask));
        assert!(words.covers(&near, || &far, |i| key.words[i]));
        for i in 0..KEY_WORDS {
            for bit in [0, 9, 40] {
                let mut other = key;
                other.words[i] ^= 1 << bit;
                let same = mask.words[i] >> bit & 1 == 0;
                assert_eq!(words.covers(&near, || &far, |i| other.words[i]), same, "{i} {bit}");
            }
        }
    }
}
