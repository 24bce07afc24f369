//! What operations pass in order.

use std::collections::VecDeque;

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

/// Cycles in which so many operations pass in order.
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
/// leave later, so a new one has hardly anything behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    leave: VecDeque<Cycle>,
}

impl Waiting {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.leave.len()
    }

    #[inline]
    pub(super) fn push(&mut self, at: Cycle) {
        if self.leave.back().is_none_or(|last| *last <= at) {
            return self.leave.push_back(at);
        }
        let behind = self.leave.iter().rev().take_while(|other| **other > at).count();
        self.leave.insert(self.leave.len() - behind, at);
    }

    /// The first, which is forgotten.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Cycle> {
        self.leave.pop_front()
    }

    /// Forgets those that have left at `now`.
    #[inline]
    pub(super) fn forget_until(&mut self, now: Cycle) {
        while self.leave.front().is_some_and(|at| *at <= now) {
            self.leave.pop_front();
        }
    }
}
