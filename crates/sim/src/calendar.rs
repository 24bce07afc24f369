//! Resources that several users share, by time.
//!
//! The models book resources in program order, which is not the order of time: a load
//! that waits for its address books later than one behind it that does not. So a
//! calendar fills gaps: a request gets the first free cycle that suits it, whatever was
//! booked before.

/// Core cycles since the simulation began.
pub type Cycle = u64;

/// Cycles that a calendar remembers. What lies further back than this behind the
/// latest booking counts as full.
const RING: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    cycle: Cycle,
    used: u32,
}

/// A resource that serves so many requests a cycle.
#[derive(Clone, Debug)]
pub struct Calendar {
    slots: Box<[Slot]>,
    width: u32,
}

impl Calendar {
    /// Nothing is booked yet.
    pub fn new(width: u32) -> Self {
        Self { slots: vec![Slot::default(); RING].into_boxed_slice(), width }
    }

    #[inline]
    fn slot(&mut self, cycle: Cycle) -> &mut Slot {
        &mut self.slots[cycle as usize % RING]
    }

    #[inline]
    fn is_free(&mut self, cycle: Cycle) -> bool {
        let width = self.width;
        let slot = self.slot(cycle);
        slot.cycle < cycle || slot.cycle == cycle && slot.used < width
    }

    #[inline]
    fn book(&mut self, cycle: Cycle) {
        let slot = self.slot(cycle);
        let used = if slot.cycle == cycle { slot.used } else { 0 };
        *slot = Slot { cycle, used: used + 1 };
    }

    /// Books the first free cycle from `earliest` on, and gives it.
    #[inline]
    pub fn reserve(&mut self, earliest: Cycle) -> Cycle {
        let mut at = earliest;
        while !self.is_free(at) {
            at += 1;
        }
        self.book(at);
        at
    }

    /// Books the first `duration` free cycles on end from `earliest` on, and gives the
    /// first of them. Nothing is booked for a duration of 0.
    #[inline]
    pub fn reserve_run(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        let mut start = earliest;
        let mut at = start;
        while at < start + duration {
            if !self.is_free(at) {
                start = at + 1;
            }
            at += 1;
        }
        (start..start + duration).for_each(|cycle| self.book(cycle));
        start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_are_filled_by_those_who_come_later() {
        let mut calendar = Calendar::new(1);
        assert_eq!(calendar.reserve(10), 10);
        assert_eq!(calendar.reserve(10), 11);
        assert_eq!(calendar.reserve(4), 4);
        assert_eq!(calendar.reserve_run(5, 6), 12);
        assert_eq!(calendar.reserve_run(5, 5), 5);
    }

    proptest! {
        #[test]
        fn no_cycle_is_booked_twice_and_none_is_passed_over(
            requests in prop::collection::vec((0u64..200, 1u64..4), 1..100), width in 1u32..4,
        ) {
            let mut calendar = Calendar::new(width);
            let mut used = vec![0u32; 2000];
            for (earliest, duration) in requests {
                let start = calendar.reserve_run(earliest, duration) as usize;
                let free = |at: usize| used[at..at + duration as usize].iter().all(|n| *n < width);
                prop_assert!(free(start));
                prop_assert!((earliest as usize..start).all(|at| !free(at)));
                used[start..start + duration as usize].iter_mut().for_each(|n| *n += 1);
            }
        }
    }
}
