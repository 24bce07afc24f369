//! The frames that the kernel has.

use std::sync::Arc;

use thalweg_packet::{Frame, Pool};

/// In the addresses of descriptors, the place in a chunk begins at this bit
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const PLACE: u32 = 48;

/// The frames of a pool that are lent to the kernel by one pair of rings.
///
/// A descriptor of the kernel is an address in the pool's memory. It is honored only if a lent frame
/// holds all of its bytes, and each frame is returned once.
pub(super) struct Lent {
    pool: Arc<Pool>,
    /// By index.
    frames: Vec<Option<Loan>>,
    count: usize,
}

/// A frame that the kernel has, and the descriptors of it that it has not returned.
struct Loan {
    frame: Frame,
    descriptors: u8,
}

impl Lent {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        let frames = std::iter::repeat_with(|| None).take(pool.frames()).collect();
        Self { pool, frames, count: 0 }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How many frames are lent.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Lends a frame for some descriptors, at least one; returns where it begins.
    ///
    /// # Errors
    /// Hands a large frame back.
    #[inline]
    pub(super) fn lend(&mut self, frame: Frame, descriptors: u8) -> Result<u64, Frame> {
        let start = self.pool.offset_of(&frame);
        let Some(place) = self.frames.get_mut(frame.index() as usize) else { return Err(frame) };
        *place = Some(Loan { frame, descriptors });
        self.count += 1;
        Ok(start as u64)
    }

    /// The frame that holds the `len` bytes at an address of a descriptor, and their place in it;
    /// `None` if no lent frame holds them, or other descriptors of it are not returned yet.
    #[inline]
    pub(super) fn reclaim(&mut self, address: u64, len: u32) -> Option<(Frame, usize)> {
        let base = usize::try_from(address & ((1 << PLACE) - 1)).ok()?;
        let (index, at) = self.pool.locate(base)?;
        let place = at + usize::try_from(address >> PLACE).ok()?;
        let size = self.pool.frame_size();
        if place >= size || place + len as usize > size {
            return None;
        }
        let loan = self.frames.get_mut(index as usize)?;
        let left = loan.as_mut()?.descriptors.saturating_sub(1);
        if left > 0 {
            loan.as_mut()?.descriptors = left;
            return None;
        }
        let frame = loan.take()?.frame;
        self.count -= 1;
        Some((frame, place))
    }

    /// Gives all frames back to the pool. The kernel must not have them any more.
    pub(super) fn give_back(&mut self) {
        self.count = 0;
        let loans = self.frames.iter_mut().filter_map(Option::take);
        self.pool.give_back(loans.map(|loan| loan.frame));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAMES: usize = 16;

    fn lent(frames: usize) -> (Arc<Pool>, Lent, Vec<u64>) {
        let pool = Arc::new(Pool::anonymous_with(FRAMES, 2048, 1).unwrap());
        let mut lent = Lent::new(pool.clone());
        let starts = (0..frames).map(|_| lent.lend(pool.take().unwrap(), 1).unwrap()).collect();
        (pool, lent, starts)
    }

    #[test]
    fn a_frame_is_returned_once_with_the_place_of_its_bytes() {
        let (pool, mut lent, starts) = lent(2);
        for (address, len, place) in
            [(starts[0] | 258 << PLACE, 1790, 258), (starts[1] + 130, 1918, 130)]
        {
            assert!(lent.reclaim(address, len + 1).is_none(), "longer than the frame");
            let (frame, at) = lent.reclaim(address, len).unwrap();
            assert_eq!(at, place);
            pool.give_back([frame]);
            assert!(lent.reclaim(address, len).is_none(), "it was returned");
        }
        assert_eq!((lent.count(), pool.in_use()), (0, 0));
    }

    #[test]
    fn a_frame_of_several_descriptors_is_returned_with_the_last_one() {
        let (pool, mut lent, _) = lent(0);
        let start = lent.lend(pool.take().unwrap(), 3).unwrap();
        assert!(lent.reclaim(start, 0).is_none() && lent.reclaim(start + 500, 0).is_none());
        let (frame, _) = lent.reclaim(start + 1000, 0).unwrap();
        pool.give_back([frame]);
        assert_eq!((lent.count(), pool.in_use()), (0, 0));
    }

    #[test]
    fn large_frames_are_not_lent() {
        let (pool, mut lent, _) = lent(0);
        let large = lent.lend(pool.take_large().unwrap(), 1).unwrap_err();
        pool.give_back([large]);
    }

    #[test]
    fn an_address_in_another_frame_than_its_base_is_refused() {
        let (pool, mut lent, starts) = lent(2);
        assert!(lent.reclaim(starts[0] | 2112 << PLACE, 60).is_none());
        lent.give_back();
        assert_eq!((lent.count(), pool.in_use()), (0, 0));
    }

    proptest! {
        /// Whatever descriptors claim, no bytes outside of lent frames are returned, and no frame
        /// twice.
        #[test]
        fn hostile_descriptors_do_no_harm(
            lend in 0..=FRAMES,
            claims in proptest::collection::vec(
                (
                    prop_oneof![any::<u64>(), 0..(FRAMES as u64 + 2) * 2112, (0_u64..4096).prop_map(|n| n << PLACE)],
                    prop_oneof![any::<u32>(), 0_u32..2048],
                ),
                0..200,
            ),
        ) {
            let (pool, mut lent, _) = lent(lend);
            let mut returned = Vec::new();
            for (address, len) in claims {
                if let Some((frame, place)) = lent.reclaim(address, len) {
                    prop_assert!((frame.index() as usize) < lend);
                    prop_assert!(place + len as usize <= 2048);
                    prop_assert!(!returned.contains(&frame));
                    returned.push(frame);
                }
            }
            prop_assert_eq!(lent.count() + returned.len(), lend);
            pool.give_back(returned);
            lent.give_back();
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
