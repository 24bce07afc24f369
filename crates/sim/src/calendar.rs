//! Resources that several users share, by time.
//!
//! The models book resources in program order, which is not the order of time: a load
//! that waits for its address books later than one after it that does not. So a
//! calendar fills gaps: a request gets the first free cycle that suits it, whatever was
//! booked before.

/// Core cycles since the simulation began.
pub type Cycle = u64;

/// Cycles of a block.
const BLOCK: u64 = 64;
/// Blocks that a calendar remembers: 4096 cycles. What lies further back than this behind
/// the latest booking counts as full.
const BLOCKS: usize = 64;

/// A resource that serves a fixed number of requests a cycle.
#[derive(Clone, Debug)]
pub struct Calendar {
    width: u8,
    blocks: Box<[Counts; BLOCKS]>,
}

/// How many are served in each cycle of a block.
#[derive(Clone, Copy, Debug)]
struct Counts {
    number: u64,
    booked: [u8; BLOCK as usize],
}

impl Calendar {
    /// Nothing is booked yet.
    ///
    /// # Panics
    /// When `width` is 0 or more than 255.
    pub fn new(width: u32) -> Self {
        assert!(width > 0, "a resource serves at least 1");
        let width = u8::try_from(width).expect("a resource serves at most 255");
        let blocks = Box::new([Counts { number: 0, booked: [0; BLOCK as usize] }; BLOCKS]);
        Self { width, blocks }
    }

    /// The bookings of a block, which is made the one that its place holds; `None` when
    /// it is forgotten.
    #[inline]
    fn block(&mut self, number: u64) -> Option<&mut [u8; BLOCK as usize]> {
        let block = &mut self.blocks[number as usize % BLOCKS];
        if block.number < number {
            *block = Counts { number, booked: [0; BLOCK as usize] };
        }
        (block.number == number).then_some(&mut block.booked)
    }

    /// Whether a cycle is full.
    #[inline]
    fn is_full(&mut self, cycle: Cycle) -> bool {
        let width = self.width;
        self.block(cycle / BLOCK).is_none_or(|booked| booked[(cycle % BLOCK) as usize] >= width)
    }

    /// Books a cycle, unless it is full; whether it was not.
    #[inline]
    fn book(&mut self, cycle: Cycle) -> bool {
        let width = self.width;
        let Some(booked) = self.block(cycle / BLOCK) else { return false };
        let booked = &mut booked[(cycle % BLOCK) as usize];
        let free = *booked < width;
        *booked += u8::from(free);
        free
    }

    /// Books the first free cycle from `earliest` on, and gives it.
    #[inline]
    pub fn reserve(&mut self, earliest: Cycle) -> Cycle {
        let mut at = earliest;
        while !self.book(at) {
            at = self.after(at);
        }
        at
    }

    /// The cycle after one that is full, and after its whole block if that is forgotten.
    #[inline]
    fn after(&mut self, cycle: Cycle) -> Cycle {
        let number = cycle / BLOCK;
        if self.block(number).is_some() { cycle + 1 } else { (number + 1) * BLOCK }
    }

    /// Books the first `duration` free cycles on end from `earliest` on, and gives the
    /// first of them. Nothing is booked for a duration of 0.
    pub fn reserve_run(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        let (mut start, mut at) = (earliest, earliest);
        while at < start + duration {
            if self.is_full(at) {
                at = self.after(at);
                start = at;
            } else {
                at += 1;
            }
        }
        (start..start + duration).for_each(|cycle| {
            self.book(cycle);
        });
        start
    }
}

/// A resource that serves one request a cycle, and requests that take several cycles: as a
/// [`Calendar`] of width 1, a bit a cycle.
#[derive(Clone, Debug)]
pub struct Lane {
    blocks: [Block; BLOCKS],
}

/// The bookings of a stretch of cycles.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    number: u64,
    booked: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Self { blocks: [Block::default(); BLOCKS] }
    }
}

impl Lane {
    /// The bookings of a block, which is made the one that its place holds; `None` when it is
    /// forgotten.
    #[inline]
    fn block(&mut self, number: u64) -> Option<&mut u64> {
        let block = &mut self.blocks[number as usize % BLOCKS];
        if block.number < number {
            *block = Block { number, booked: 0 };
        }
        (block.number == number).then_some(&mut block.booked)
    }

    /// Books the first free cycle from `earliest` on, and gives it.
    #[inline]
    pub fn reserve(&mut self, earliest: Cycle) -> Cycle {
        self.reserve_run(earliest, 1)
    }

    /// Books the first `duration` free cycles on end from `earliest` on, and gives the first
    /// of them.
    ///
    /// # Panics
    /// In a debug build, when `duration` is not 1 to 64.
    #[inline]
    pub fn reserve_run(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        debug_assert!((1..=BLOCK).contains(&duration), "{duration} cycles");
        let (run, first) = (u64::MAX >> (BLOCK - duration), earliest % BLOCK);
        // Mostly there is room at once, which our own processor foresees: it need not wait for
        // the bookings to go on.
        if first + duration <= BLOCK
            && let Some(booked) = self.block(earliest / BLOCK)
            && *booked & run << first == 0
        {
            *booked |= run << first;
            return earliest;
        }
        self.later(earliest, duration)
    }

    /// The same where there is no room at once.
    fn later(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        if let Some(booked) = self.block(earliest / BLOCK) {
            let first = earliest % BLOCK;
            let free = !*booked & u64::MAX << first;
            // Where a run can begin in this block.
            let begins = (1..duration).fold(free, |begins, more| begins & free >> more);
            if begins != 0 {
                let start = begins.trailing_zeros();
                *booked |= u64::MAX >> (BLOCK - duration) << start;
                return earliest - first + u64::from(start);
            }
        }
        self.search(earliest, duration)
    }

    /// The same where there is no room in the first block.
    fn search(&mut self, earliest: Cycle, duration: Cycle) -> Cycle {
        let (mut start, mut at) = (earliest, earliest);
        while at < start + duration {
            let before = (1 << (at % BLOCK)) - 1;
            let full = self.block(at / BLOCK).map_or(u64::MAX, |booked| *booked) | before;
            let free = at / BLOCK * BLOCK + u64::from(full.trailing_ones());
            if free != at {
                start = free;
            }
            // A full block means only that the next may be free.
            at = if full == u64::MAX { free } else { free + 1 };
        }
        for cycle in start..start + duration {
            if let Some(booked) = self.block(cycle / BLOCK) {
                *booked |= 1 << (cycle % BLOCK);
            }
        }
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
        fn a_lane_is_a_calendar_of_width_one(
            requests in prop::collection::vec((0u64..9000, 1u64..6), 1..400),
        ) {
            let (mut calendar, mut lane) = (Calendar::new(1), Lane::default());
            for (earliest, duration) in requests {
                let expected = calendar.reserve_run(earliest, duration);
                prop_assert_eq!(lane.reserve_run(earliest, duration), expected);
            }
        }

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
