//! IPv6 lookups side by side, with AVX-512 or AVX2: as many addresses to a register as it holds
//! places in memory, all of whose entries one instruction loads, and several registers at a time,
//! so that their loads overlap.
//!
//! `unsafe` here and below: entries are gathered from the memory of the top table and of the
//! chunks.
#![allow(unsafe_code)]

use thalweg_packet::Isa;

use super::Root;
use crate::router::table::HopId;

/// So many that have a longer way than the others are looked up one by one instead, as each load
/// of all registers costs as much for few lanes as for all.
const FEW: usize = 4;

/// Looks up as many addresses as its registers hold.
type Kernel = unsafe fn(&Root, &[u128], &mut [HopId]);

/// Registers that are looked up together.
const REGISTERS: usize = 8;
/// Addresses that are looked up together at most.
const MOST: usize = REGISTERS * avx512::LANES;

/// Those of a level, by the number of their registers less one, and `look`, which looks addresses
/// up by the level's `Way`: `LANES` addresses on their way down.
///
/// A macro, as a function for all levels would not be compiled for the instructions of each.
macro_rules! kernels {
    ($features:literal) => {
        pub(super) const KERNELS: [super::Kernel; super::REGISTERS] = [
            look::<1>, look::<2>, look::<3>, look::<4>, look::<5>, look::<6>, look::<7>, look::<8>,
        ];

        #[target_feature(enable = $features)]
        fn look<const N: usize>(root: &Root, addresses: &[u128], hops: &mut [HopId]) {
            let mut ways: [Way; N] = std::array::from_fn(|n| {
                Way::new(root, addresses[n * LANES..].first_chunk().expect("so many addresses"))
            });
            for way in &mut ways {
                way.enter();
            }
            // Up to the end of the addresses' upper halves, where groups end.
            for shift in [24, 16, 8, 0] {
                let mut left = 0;
                for way in &mut ways {
                    left += way.step(shift).count_ones() as usize;
                }
                if left <= super::FEW.min(N) {
                    break;
                }
            }
            for (way, (addresses, hops)) in
                ways.iter().zip(addresses.chunks(LANES).zip(hops.chunks_mut(LANES)))
            {
                let unfinished = way.finish(hops.first_chunk_mut().expect("as many hops"));
                for n in (0..LANES).filter(|n| unfinished >> n & 1 == 1) {
                    hops[n] = root.lookup(addresses[n]);
                }
            }
        }
    };
}

mod avx2;
mod avx512;

/// A level of vectors that the processor has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes(Isa);

impl Lanes {
    pub(super) fn at(isa: Isa) -> Option<Self> {
        (isa != Isa::Scalar && isa.is_available()).then_some(Self(isa))
    }

    #[cfg(test)]
    pub(super) fn level(self) -> Isa {
        self.0
    }

    /// Looks up `addresses` into `hops`, which is of the same length.
    pub(super) fn lookup(self, root: &Root, addresses: &[u128], hops: &mut [HopId]) {
        let (kernels, lanes) = match self.0 {
            Isa::Avx512 => (&avx512::KERNELS, avx512::LANES),
            _ => (&avx2::KERNELS, avx2::LANES),
        };
        let most = kernels.len() * lanes;
        for (addresses, hops) in addresses.chunks(most).zip(hops.chunks_mut(most)) {
            let len = addresses.len();
            // SAFETY: the kernel is one of a level that the processor has.
            let look = |addresses: &[u128], hops: &mut [HopId]| unsafe {
                kernels[len.div_ceil(lanes) - 1](root, addresses, hops);
            };
            if len.is_multiple_of(lanes) {
                look(addresses, hops);
            } else {
                let (mut filled, mut found) = ([0; MOST], [HopId::NO_ROUTE; MOST]);
                filled[..len].copy_from_slice(addresses);
                look(&filled, &mut found);
                hops.copy_from_slice(&found[..len]);
            }
        }
    }
}
