//! What operations pass in order.

use crate::calendar::Cycle;

/// Times of the entries of a queue that are given back in order.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    free: Box<[Cycle]>,
    next: usize,
}

impl Queue {
    pub(super) fn new(entries: usize) -> Self {
        Self { free: vec![0; entries].into(), next: 0 }
    }

    /// When the next entry is free.
    #[inline]
    pub(super) fn available(&self) -> Cycle {
        self.free[self.next]
    }

    /// Takes it until `until`.
    #[inline]
    pub(super) fn take(&mut self, until: Cycle) {
        self.free[self.next] = until;
        self.next = if self.next + 1 == self.free.len() { 0 } else { self.next + 1 };
    }
}

/// Cycles in which a limited number of operations pass in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    width: u32,
    pub(super) at: Cycle,
    used: u32,
}

impl Stage {
    pub(super) fn new(width: u32) -> Self {
        Self { width, at: 0, used: 0 }
    }

    /// The cycle of the next operation, which does not come before `earliest`.
    #[inline]
    pub(super) fn pass(&mut self, earliest: Cycle) -> Cycle {
        if earliest > self.at {
            (self.at, self.used) = (earliest, 1);
        } else if self.used < self.width {
            self.used += 1;
        } else {
            (self.at, self.used) = (self.at + 1, 1);
        }
        self.at
    }

    /// The last operation passed later, in `cycle`.
    pub(super) fn catch_up(&mut self, cycle: Cycle) {
        if cycle > self.at {
            (self.at, self.used) = (cycle, 1);
        }
    }
}

/// Times at which operations leave the scheduler, in order: those that come later mostly
/// leave later, so few operations follow a new one.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// A ring, as large as a power of two.
    leave: Box<[Cycle]>,
    /// Where the first is and where the next goes, counted on and on.
    first: usize,
    next: usize,
}

impl Waiting {
    /// For up to `most` operations.
    pub(super) fn new(most: usize) -> Self {
        Self { leave: vec![0; most.next_power_of_two()].into(), first: 0, next: 0 }
    }

    #[inline]
    fn at(&mut self, n: usize) -> &mut Cycle {
        let mask = self.leave.len() - 1;
        &mut self.leave[n & mask]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.next - self.first
    }

    /// Takes one more in.
    ///
    /// # Panics
    /// In a debug build, when there are as many as there may be.
    #[inline]
    pub(super) fn push(&mut self, leaves: Cycle) {
        debug_assert!(self.len() < self.leave.len(), "{} wait", self.len());
        let mut place = self.next;
        self.next += 1;
        while place != self.first {
            let before = *self.at(place - 1);
            if before <= leaves {
                break;
            }
            *self.at(place) = before;
            place -= 1;
        }
        *self.at(place) = leaves;
    }

    /// The first, which is forgotten.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Cycle> {
        if self.first == self.next {
            return None;
        }
        self.first += 1;
        Some(*self.at(self.first - 1))
    }

    /// Forgets those that have left at `now`.
    #[inline]
    pub(super) fn forget_until(&mut self, now: Cycle) {
        while self.first != self.next && *self.at(self.first) <= now {
            self.first += 1;
        }
    }
}
