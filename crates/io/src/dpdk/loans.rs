//! The frames that are lent to DPDK.
//!
//! `unsafe` here: threads pass frames on through a table without a lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_packet::{Frame, Pool};

/// The frames of a pool that are lent, by index: drivers pass indexes, of which each gets its frame back
/// once.
pub(super) struct Loans(Box<[Loan]>);

#[derive(Default)]
struct Loan {
    is_lent: AtomicBool,
    frame: UnsafeCell<Option<Frame>>,
}

// SAFETY: a frame is written by whom has it, of which there is one, and read by whom has changed
// `is_lent` from true to false, of which there is one for each time that it was written.
unsafe impl Sync for Loans {}

impl Loans {
    pub(super) fn of(pool: &Pool) -> Self {
        Self(std::iter::repeat_with(Loan::default).take(pool.frames()).collect())
    }

    /// Lends a frame; returns its index.
    ///
    /// # Errors
    /// Hands a large frame back.
    #[inline]
    pub(super) fn lend(&self, frame: Frame) -> Result<u32, Frame> {
        let index = frame.index();
        let Some(loan) = self.0.get(index as usize) else { return Err(frame) };
        let place = loan.frame.get();
        // SAFETY: `frame` is the only one with this index, so that none is lent, and no other thread
        // writes here; one that reads has found `is_lent` set before.
        unsafe { *place = Some(frame) };
        loan.is_lent.store(true, Ordering::Release);
        Ok(index)
    }

    /// The frame with this index, if it is lent. It no longer is.
    #[inline]
    pub(super) fn take(&self, index: u32) -> Option<Frame> {
        let loan = self.0.get(index as usize)?;
        if !loan.is_lent.swap(false, Ordering::Acquire) {
            return None;
        }
        let place = loan.frame.get();
        // SAFETY: this thread alone has changed `is_lent`, and no thread writes until the frame is out.
        unsafe { (*place).take() }
    }

    /// How many are lent.
    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|loan| loan.is_lent.load(Ordering::Relaxed)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn each_frame_comes_back_once_and_large_ones_are_not_lent() {
        let pool = Pool::anonymous_with(4, 2048, 1).unwrap();
        let loans = Loans::of(&pool);
        let large = loans.lend(pool.take_large().unwrap()).unwrap_err();
        pool.give_back([large]);
        let indexes: Vec<u32> = (0..3).map(|_| loans.lend(pool.take().unwrap()).unwrap()).collect();
        assert_eq!(loans.count(), 3);
        for index in indexes {
            let frame = loans.take(index).unwrap();
            assert_eq!(frame.index(), index);
            assert!(loans.take(index).is_none(), "it came back");
            pool.give_back([frame]);
        }
        assert!(
            loans.take(3).is_none() && loans.take(4).is_none() && loans.take(u32::MAX).is_none()
        );
        assert_eq!((loans.count(), pool.in_use()), (0, 0));
    }

    #[test]
    fn of_threads_that_claim_the_same_index_one_gets_the_frame() {
        let pool = Arc::new(Pool::anonymous(1, 2048).unwrap());
        let loans = Arc::new(Loans::of(&pool));
        for _ in 0..200 {
            let index = loans.lend(pool.take().unwrap()).unwrap();
            let claim = || {
                let loans = loans.clone();
                thread::spawn(move || loans.take(index))
            };
            let claims: Vec<_> = (0..2).map(|_| claim()).collect();
            let frames: Vec<_> = claims.into_iter().filter_map(|c| c.join().unwrap()).collect();
            assert_eq!(frames.len(), 1);
            pool.give_back(frames);
        }
    }
}
