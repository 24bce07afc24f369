//! IPv6 lookups side by side, with AVX-512 or AVX2: a register holds one address per word, one
//! instruction loads the entries of all of them, and several registers are processed at a time, so
//! that their loads overlap. The fewer instructions, the more of the next batch's loads begin
//! before this batch's complete.
//!
//! `unsafe` here and below: entries are gathered from the memory of the top table and of the
//! groups.
#![allow(unsafe_code)]

use thalweg_cpu::Isa;
use thalweg_packet::BATCH;

use super::Root;
use crate::table::HopId;

/// If no more addresses than this have levels left, they are looked up one by one, as a load of all
/// registers costs as much for few lanes as for all.
const FEW: usize = 4;

/// Looks up as many addresses as its registers hold.
type Kernel = unsafe fn(&Root, &[u128], &mut [HopId]);

/// The most addresses that are looked up together.
const MOST: usize = 64;

/// The kernels of a level, by the number of their registers minus one, and `look`, which looks
/// addresses up by the level's `Way`: the descent of `LANES` addresses.
///
/// A macro, as a function for all levels would not be compiled for the instructions of each.
macro_rules! kernels {
    ($level:ident, $($registers:literal)*) => {
        pub(in $crate::trie6::lanes) const KERNELS: [Kernel; [$($registers),*].len()] =
            [$(look::<$registers>),*];

        #[$level]
        fn look<const N: usize>(root: &Root, addresses: &[u128], hops: &mut [HopId]) {
            let mut ways: [Way; N] = std::array::from_fn(|n| {
                Way::new(root, addresses[n * LANES..].first_chunk().expect("LANES addresses"))
            });
            let words = root.arena.words();
            for shift in [8, 0] {
                for way in &mut ways {
                    way.step(words, way.first_bits(shift));
                }
            }
            // Up to the end of the addresses' upper halves, where groups end.
            for shift in [24, 16, 8, 0] {
                let mut left = 0;
                for way in &mut ways {
                    left += way.step(words, way.second_bits(shift)).count_ones() as usize;
                }
                if left <= FEW.min(N) {
                    break;
                }
            }
            for (way, (addresses, hops)) in
                ways.iter().zip(addresses.chunks(LANES).zip(hops.chunks_mut(LANES)))
            {
                let mut unfinished = way.finish(hops.first_chunk_mut().expect("LANES hops"));
                while unfinished != 0 {
                    let lane = unfinished.trailing_zeros() as usize % LANES;
                    hops[lane] = root.lookup(addresses[lane]);
                    unfinished &= unfinished - 1;
                }
            }
        }
    };
}

mod avx2;
mod avx512;

use avx512::{eight, sixteen};

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
    #[inline]
    pub(super) fn lookup(self, root: &Root, addresses: &[u128], hops: &mut [HopId]) {
        match self.0 {
            // A register of sixteen would wait for more loads than the others have in flight.
            Isa::Avx512 if addresses.len() <= BATCH => {
                look_up::<{ eight::LANES }>(&eight::KERNELS, root, addresses, hops);
            }
            Isa::Avx512 => look_up::<{ sixteen::LANES }>(&sixteen::KERNELS, root, addresses, hops),
            _ => look_up::<{ avx2::LANES }>(&avx2::KERNELS, root, addresses, hops),
        }
    }
}

/// Looks up with the kernels of an available level, of `LANES` addresses per register.
#[inline]
fn look_up<const LANES: usize>(
    kernels: &[Kernel],
    root: &Root,
    addresses: &[u128],
    hops: &mut [HopId],
) {
    // The usual request of a busy router: at 4 ns an address, the code below costs too much.
    if addresses.len() == BATCH && hops.len() == BATCH {
        // SAFETY: the kernel is one of a level that the processor has.
        return unsafe { kernels[BATCH / LANES - 1](root, addresses, hops) };
    }
    for (addresses, hops) in addresses.chunks(MOST).zip(hops.chunks_mut(MOST)) {
        let len = addresses.len();
        // SAFETY: the kernel is one of a level that the processor has.
        let look = |addresses: &[u128], hops: &mut [HopId]| unsafe {
            kernels[len.div_ceil(LANES) - 1](root, addresses, hops);
        };
        if len.is_multiple_of(LANES) {
            look(addresses, hops);
        } else {
            let (mut filled, mut found) = ([0; MOST], [HopId::NO_ROUTE; MOST]);
            filled[..len].copy_from_slice(addresses);
            look(&filled, &mut found);
            hops.copy_from_slice(&found[..len]);
        }
    }
}
