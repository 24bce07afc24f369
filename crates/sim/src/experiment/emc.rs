//! The exact-match cache of a switch, before its tables.

use crate::config::EmcConfig;
use crate::engine::Tag;
use crate::machine::{Layout, Machine, Region};
use crate::table::mix;

/// Bytes of an entry: hash, flow key of 64 bytes, where its flow is.
const ENTRY: u64 = 128;
/// Words of a flow key.
const KEY_WORDS: u64 = 8;
/// Nobody's number.
const EMPTY: u64 = u64::MAX;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const FIRST: u32 = 20;
    pub(super) const SECOND: u32 = 21;
    pub(super) const EQUAL: u32 = 22;
}

/// A cache of whole flow keys, each of which may lie in two places.
#[derive(Clone, Debug)]
pub(super) struct Emc {
    flows: Vec<u64>,
    entries: Region,
    /// A missed flow is cached with a probability of one in this many.
    inverse: u64,
    missed: u64,
}

impl Emc {
    pub(super) fn new(config: &EmcConfig, layout: &mut Layout) -> Self {
        Self {
            flows: vec![EMPTY; config.entries as usize],
            entries: layout.region(config.entries * ENTRY),
            inverse: config.insert_inverse_probability,
            missed: 0,
        }
    }

    /// Both places of a flow.
    fn places(&self, flow: u64) -> [u64; 2] {
        let hash = mix(flow.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mask = self.flows.len() as u64 - 1;
        [hash & mask, hash >> 32 & mask]
    }

    /// Asks for a packet's flow, as Open vSwitch does: its hash comes with the packet, and
    /// only an entry with the same hash is compared. Returns whether it is there, and the evidence.
    pub(super) fn ask(&self, m: &mut Machine, flow: u64, packet: Tag) -> (bool, Tag) {
        let places = self.places(flow);
        let mut tag = packet;
        for (place, pc) in places.into_iter().zip([pc::FIRST, pc::SECOND]) {
            let index = m.chain(2, packet);
            let hash = m.load(self.entries.at(place * ENTRY), &[index]);
            let same = self.flows[place as usize] == flow;
            m.branch(pc, same, &[hash, packet]);
            tag = hash;
            if same {
                return (true, self.compare(m, place, index));
            }
        }
        (false, tag)
    }

    fn compare(&self, m: &mut Machine, place: u64, index: Tag) -> Tag {
        let mut all = Tag::NONE;
        for word in 0..KEY_WORDS {
            let loaded = m.load(self.entries.at(place * ENTRY + 8 + 8 * word), &[index]);
            all = m.alu(&[all, loaded]);
        }
        m.branch(pc::EQUAL, true, &[all]);
        m.load(self.entries.at(place * ENTRY + 8 + 8 * KEY_WORDS), &[index])
    }

    /// Puts a flow that was missed in, now and then.
    pub(super) fn missed(&mut self, m: &mut Machine, flow: u64) {
        self.missed += 1;
        if !self.missed.is_multiple_of(self.inverse) {
            return;
        }
        let place = self.put(flow, mix(self.missed));
        for word in 0..KEY_WORDS + 2 {
            m.store(self.entries.at(place * ENTRY + 8 * word), &[]);
        }
    }

    /// Puts a flow into its first place if that is free, else into one by `chance`; says
    /// which.
    fn put(&mut self, flow: u64, chance: u64) -> u64 {
        let [first, second] = self.places(flow);
        let in_first = self.flows[first as usize] == EMPTY || chance.is_multiple_of(2);
        let place = if in_first { first } else { second };
        self.flows[place as usize] = flow;
        place
    }

    /// Fills the cache as a long run with flows drawn by `draw` does.
    pub(super) fn warm(&mut self, mut draw: impl FnMut() -> u64) {
        // A place changes hands when a missed flow is put in; after so many more draws than
        // places all have been filled often.
        for _ in 0..16 * self.flows.len() {
            let flow = draw();
            if !self.places(flow).iter().any(|place| self.flows[*place as usize] == flow) {
                self.put(flow, mix(flow));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn few_flows_are_found_and_many_are_not() {
        let config = EmcConfig { entries: 1024, insert_inverse_probability: 1 };
        let mut m = Machine::new(&Config::default());
        for (flows, least, most) in [(200u64, 0.9, 1.0), (100_000, 0.0, 0.05)] {
            let mut emc = Emc::new(&config, &mut Layout::default());
            let mut n = 0u64;
            emc.warm(|| {
                n += 1;
                mix(n) % flows
            });
            let hits =
                (0..500).filter(|n| emc.ask(&mut m, mix(n + 7) % flows, Tag::NONE).0).count();
            let rate = hits as f64 / 500.0;
            assert!((least..=most).contains(&rate), "{flows}: {rate}");
        }
    }

    #[test]
    fn a_missed_flow_is_put_in_once_in_so_many_times() {
        let config = EmcConfig { entries: 64, insert_inverse_probability: 3 };
        let mut m = Machine::new(&Config::default());
        let mut emc = Emc::new(&config, &mut Layout::default());
        let seen: Vec<bool> = (0..3)
            .map(|_| {
                emc.missed(&mut m, 5);
                emc.ask(&mut m, 5, Tag::NONE).0
            })
            .collect();
        assert_eq!(seen, [false, false, true]);
    }
}
