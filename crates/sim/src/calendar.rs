//! Resources that several users share, by time.
//!
//! The models book resources in program order, which is not the order of time: a load
//! that waits for its address books later than one behind it that does not. So a
//! calendar fills gaps: a request gets the first free cycle that suits it, whatever was
//! booked before.

/// Core cycles since the simulation began.
pub type Cycle = u64;

/// Cycles of a block: the bits of a word.
const BLOCK: u64 = 64;
/// Blocks that a calendar remembers: 4096 cycles. What lies further back than this behind
/// the latest booking counts as full.
const BLOCKS: usize = 64;

/// A resource that serves so many requests a cycle.
///
/// A bit a cycle for each request that it can serve: small, as machines have many of
/// them and time goes on through all.
#[derive(Clone, Debug)]
pub struct Calendar {
    width: usize,
    /// Which block each place holds.
    numbers: [u64; BLOCKS],
    /// The bookings of each place: as many words as the width.
    booked: Box<[u64]>,
}

impl Calendar {
    /// Nothing is booked yet.
    ///
    /// # Panics
    /// When `width` is 0.
    pub fn new(width: u32) -> Self {
        assert!(width > 0, "a resource serves somebody");
        let width = width as usize;
        Self { width, numbers: [0; BLOCKS], booked: vec![0; BLOCKS * width].into() }
    }

    /// The bookings of a block, which is made the one that its place holds; `None` when
    /// it is forgotten.
    #[inline]
    fn block(&mut self, number: u64) -> Option<&mut [u64]> {
        let place = number as usize % BLOCKS;
        let booked = &mut self.booked[place * self.width..(place + 1) * self.width];
        match self.numbers[place].cmp(&number) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Less => {
                self.numbers[place] = number;
                booked.fill(0);
            }
        }
        Some(booked)
    }

    /// The cycles of a block in which nobody more is served, as bits.
    #[inline]
    fn full(&mut self, number: u64) -> u64 {
        self.block(number).map_or(u64::MAX, |booked| booked.iter().fold(u64::MAX, |a, b| a & b))
    }

    /// The first cycle from `earliest` on that is not full.
    #[inline]
    fn free(&mut self, earliest: Cycle) -> Cycle {
        let mut number = earliest / BLOCK;
        let mut before = (1 << (earliest % BLOCK)) - 1;
        loop {
            let full = self.full(number) | before;
            if full != u64::MAX {
                return number * BLOCK + u64::from(full.trailing_ones());
            }
            (number, before) = (number + 1, 0);
        }
    }

    /// Books a cycle, unless it is full.
    #[inline]
    fn book(&mut self, cycle: Cycle) -> bool {
        let bit = 1 << (cycle % BLOCK);
        let Some(booked) = self.block(cycle / BLOCK) else { return false };
        let Some(word) = booked.iter_mut().find(|word| **word & bit == 0) else { return false };
        *word |= bit;
        true
    }

    /// Books the first free cycle from `earliest` on, and gives it.
    #[inline]
    pub fn reserve(&mut self, earliest: Cycle) -> Cycle {
        // Mostly there is room at once.
        if self.book(earliest) {
            return earliest;
        }
        let at = self.free(earliest);
        self.book(at);
        at
    }

    /// Books the first `duration` free cycles on end from `earliest` on, and gives the
    /// first of them. Nothing is booked for a duration of 0.
    #[inline]
    pub fn reserve_run(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        // Mostly there is room for all of it within one block.
        if self.width == 1
            && (1..=BLOCK).contains(&duration)
            && let Some([booked]) = self.block(earliest / BLOCK)
        {
            let free = !(*booked | ((1 << (earliest % BLOCK)) - 1));
            let starts = (1..duration).fold(free, |starts, cycle| starts & free >> cycle);
            if starts != 0 {
                let start = starts.trailing_zeros();
                *booked |= (u64::MAX >> (BLOCK - duration)) << start;
                return earliest / BLOCK * BLOCK + u64::from(start);
            }
        }
        let mut start = earliest;
        let mut at = start;
        while at < start + duration {
            let free = self.free(at);
            if free != at {
                start = free;
            }
            at = free + 1;
        }
        (start..start + duration).for_each(|cycle| {
            self.book(cycle);
        });
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
