//! Turning the exact-match cache on and off while packets flow.
//!
//! The cache pays where it is small enough to stay near the processor and the
//! layer below it is slow; else it costs more than it saves. Which is the case
//! depends on the traffic, so it is measured: the flow register estimates whether
//! the active flows fit into the cache at all and how large it must be, and then
//! both modes are timed on the traffic itself.

use crate::emc::Emc;
use crate::flow_register::FlowRegister;

/// Packets over which flows are counted.
const WINDOW: u64 = 1 << 15;
/// Batches that are timed in each of the two modes.
const SAMPLES: usize = 128;
/// Places of the cache per flow.
const PLACES_A_FLOW: usize = 2;
/// Packets a flow for which the cache is filled before it is measured.
const WARM_PACKETS_A_FLOW: u64 = 4;
/// How many times as long as it took to reach a decision holds.
const EXPLOIT: u64 = 32;
/// The most times by which a decision that is confirmed again and again holds longer.
const MOST_PATIENCE: u64 = 16;
/// Bits of the flow register: it distinguishes up to a million flows.
const REGISTER: usize = 1 << 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Flows are counted.
    Count,
    /// Batches are timed without the cache.
    Without,
    /// The cache is filled.
    Warm,
    /// Batches are timed with the cache.
    With,
    /// The faster mode is in use.
    Settled,
}

/// Decides for one classifier whether its exact-match cache is used.
#[derive(Clone, Debug)]
pub(crate) struct EmcControl {
    register: FlowRegister,
    /// The most places the cache may have.
    most: usize,
    phase: Phase,
    /// Packets until the phase ends; for those that take the time, batches.
    left: u64,
    /// Packets since flows were last counted.
    explored: u64,
    on: bool,
    patience: u64,
    /// Cycles a packet, in 256ths.
    samples: Vec<u64>,
    cost_without: u64,
}

impl EmcControl {
    /// A control for a cache of up to `most` places, which is on at first.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            register: FlowRegister::new(REGISTER),
            most,
            phase: Phase::Settled,
            left: WINDOW,
            explored: 0,
            on: true,
            patience: 1,
            samples: Vec::with_capacity(SAMPLES),
            cost_without: 0,
        }
    }

    /// Whether the cache is to be searched now.
    #[inline]
    pub(crate) fn uses_cache(&self) -> bool {
        match self.phase {
            Phase::Without => false,
            Phase::Warm | Phase::With => true,
            Phase::Count | Phase::Settled => self.on,
        }
    }

    /// Whether every missed key is to be cached now.
    #[inline]
    pub(crate) fn fills(&self) -> bool {
        self.phase == Phase::Warm
    }

    /// Whether flows are counted now.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.phase == Phase::Count
    }

    /// Whether each batch is to be timed now.
    #[inline]
    pub(crate) fn measures(&self) -> bool {
        matches!(self.phase, Phase::Without | Phase::With)
    }

    /// Records a packet of the flow with this hash.
    #[inline]
    pub(crate) fn note(&mut self, hash: u32) {
        self.register.note(hash);
    }

    /// Records that a batch of `packets` was classified, in `cycles` when it was
    /// timed.
    #[inline]
    pub(crate) fn batch(&mut self, packets: u64, cycles: u64, emc: &mut Emc) {
        self.explored += packets;
        let spent = if self.measures() {
            self.samples.push((cycles << 8) / packets.max(1));
            1
        } else {
            packets
        };
        self.left = self.left.saturating_sub(spent);
        if self.left == 0 {
            self.next_phase(emc);
        }
    }

    fn next_phase(&mut self, emc: &mut Emc) {
        (self.phase, self.left) = match self.phase {
            Phase::Settled => {
                self.register.clear();
                self.explored = 0;
                (Phase::Count, WINDOW)
            }
            Phase::Count if self.register.flows() > self.most => self.settle(false),
            Phase::Count => (Phase::Without, SAMPLES as u64),
            Phase::Without => {
                self.cost_without = self.median();
                let flows = self.register.flows();
                let places = (flows * PLACES_A_FLOW).clamp(64, self.most).next_power_of_two();
                if places != emc.entries() {
                    emc.resize(places);
                }
                (Phase::Warm, flows as u64 * WARM_PACKETS_A_FLOW + 1)
            }
            Phase::Warm => (Phase::With, SAMPLES as u64),
            Phase::With => {
                let better = self.median() < self.cost_without;
                self.settle(better)
            }
        };
    }

    fn settle(&mut self, on: bool) -> (Phase, u64) {
        self.patience = if on == self.on { (self.patience * 2).min(MOST_PATIENCE) } else { 1 };
        self.on = on;
        (Phase::Settled, self.explored * EXPLOIT * self.patience)
    }

    fn median(&mut self) -> u64 {
        let middle = self.samples.len() / 2;
        let median = *self.samples.select_nth_unstable(middle).1;
        self.samples.clear();
        median
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::murmur3;

    /// Runs batches of 32 packets over `flows` flows; the cache makes a packet
    /// cost `with` cycles instead of 50. How many packets of the last half went
    /// through the cache, in percent.
    fn share(flows: u32, with: u64, most: usize) -> u64 {
        let mut control = EmcControl::new(most);
        let mut emc = Emc::new(most, 100);
        let (mut used, mut all, mut n) = (0, 0, 0u32);
        for batch in 0..400_000u64 {
            let (uses, packets) = (control.uses_cache(), 32);
            for _ in 0..packets {
                n = n.wrapping_add(1);
                if control.counts() {
                    control.note(murmur3::finish(n % flows, 4));
                }
            }
            let cost = if uses { with } else { 50 };
            control.batch(packets, cost * packets, &mut emc);
            if batch >= 200_000 {
                all += 1;
                used += u64::from(uses);
            }
        }
        used * 100 / all
    }

    #[test]
    fn the_better_way_is_taken_nearly_always() {
        assert!(share(1000, 40, 8192) >= 97);
        assert!(share(1000, 60, 8192) <= 3);
    }

    #[test]
    fn more_flows_than_there_are_places_turn_the_cache_off() {
        assert_eq!(share(100_000, 40, 8192), 0);
    }

    #[test]
    fn the_cache_is_as_large_as_its_flows_need() {
        let mut control = EmcControl::new(1 << 16);
        let mut emc = Emc::new(1 << 16, 100);
        for n in 0..20_000u32 {
            if control.counts() {
                (0..32).for_each(|i| control.note(murmur3::finish((n * 32 + i) % 900, 4)));
            }
            control.batch(32, 100, &mut emc);
        }
        assert_eq!(emc.entries(), 2048);
    }
}
