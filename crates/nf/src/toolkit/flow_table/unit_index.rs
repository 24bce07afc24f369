//! The slots of a table by the unit of their flows, while units move to another instance.
//!
//! Doubly linked lists through the slots, one for each unit: a flow that begins or ends costs a few
//! stores, and the memory of a unit is visited only when the unit moves. The slots that were there
//! before are linked a few at a time, so that no batch waits for a scan of all.

use crate::steering::{Steering, Units};

/// The most slots that one call links: under 100 µs of work, with all flows outside the caches.
pub const MOVE_STEP: usize = 2000;

/// Returns the bucket of a flow.
type BucketOf<K> = fn(&K, Steering) -> u16;

/// A slot's neighbours in its list, each one higher than the slot's number; 0 for none.
type Links = [u32; 2];
const NEXT: usize = 0;
const PREVIOUS: usize = 1;

/// The slots of a table by unit.
#[derive(Debug)]
pub(super) struct UnitIndex<K> {
    units: Units,
    bucket_of: BucketOf<K>,
    /// The first slot of each unit, one higher than its number; 0 for none.
    firsts: Vec<u32>,
    links: Vec<Links>,
    /// The taken slots before this one are linked.
    linked: usize,
}

impl<K> UnitIndex<K> {
    /// An index of a table that has `slots` slots, none of which is linked.
    pub(super) fn new(units: Units, bucket_of: BucketOf<K>, slots: usize) -> Self {
        let firsts = vec![0; units.count()];
        // Zeroed memory, which takes no time before it is used.
        let links = vec![[0; 2]; slots];
        Self { units, bucket_of, firsts, links, linked: 0 }
    }

    /// The units that the slots are divided into.
    pub(super) fn units(&self) -> Units {
        self.units
    }

    fn unit_of(&self, flow: &K) -> usize {
        let bucket = (self.bucket_of)(flow, self.units.steering());
        self.units.of_bucket(bucket).into()
    }

    /// Links up to [`MOVE_STEP`] of the slots that are not linked yet; `flow_at` returns the flow in a
    /// slot of a table with `slots` of them. Returns whether all are linked.
    pub(super) fn go_on<'k>(
        &mut self,
        slots: usize,
        flow_at: impl Fn(usize) -> Option<&'k K>,
    ) -> bool
    where
        K: 'k,
    {
        let until = slots.min(self.linked.saturating_add(MOVE_STEP));
        self.fit(until);
        for slot in self.linked.min(until)..until {
            if let Some(flow) = flow_at(slot) {
                self.link(slot, flow);
            }
        }
        self.linked = self.linked.max(until);
        if self.linked >= slots {
            // Slots that are added from now on are linked as soon as they are taken.
            self.linked = usize::MAX;
        }
        self.linked == usize::MAX
    }

    /// Makes room for the links of `slots` slots.
    fn fit(&mut self, slots: usize) {
        if self.links.len() < slots {
            self.links.resize(slots, [0; 2]);
        }
    }

    /// Notes that `flow` has taken a slot.
    #[inline]
    pub(super) fn taken(&mut self, slot: usize, flow: &K) {
        if slot < self.linked {
            self.fit(slot + 1);
            self.link(slot, flow);
        }
    }

    /// Notes that `flow` has left a slot.
    #[inline]
    pub(super) fn freed(&mut self, slot: usize, flow: &K) {
        if slot < self.linked {
            self.unlink(slot, flow);
        }
    }

    fn link(&mut self, slot: usize, flow: &K) {
        let unit = self.unit_of(flow);
        let (own, first) = (slot as u32 + 1, self.firsts[unit]);
        self.links[slot] = [first, 0];
        if first != 0 {
            self.links[first as usize - 1][PREVIOUS] = own;
        }
        self.firsts[unit] = own;
    }

    fn unlink(&mut self, slot: usize, flow: &K) {
        let [next, previous] = self.links[slot];
        if next != 0 {
            self.links[next as usize - 1][PREVIOUS] = previous;
        }
        match previous {
            0 => {
                let unit = self.unit_of(flow);
                self.firsts[unit] = next;
            }
            previous => self.links[previous as usize - 1][NEXT] = next,
        }
    }

    /// The slots of a unit that are linked.
    pub(super) fn slots(&self, unit: u16) -> impl Iterator<Item = usize> + '_ {
        let slot = |number: u32| (number as usize).checked_sub(1);
        let first = self.firsts.get(usize::from(unit)).and_then(|first| slot(*first));
        std::iter::successors(first, move |at| slot(self.links[*at][NEXT]))
    }
}
