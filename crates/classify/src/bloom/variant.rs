//! The ways to look up keys, and which is the best for a filter.
//!
//! `unsafe` here: functions compiled for more than the build's target are called
//! after the processor was checked.
#![allow(unsafe_code)]

use std::fmt;

use thalweg_cpu::Isa;

use super::bits::{self, Bits, Input, Output};
#[cfg(target_arch = "x86_64")]
use super::{staged, unrolled256, unrolled512};

/// A way to look up keys. All give the same keys; only [`Scalar`](Self::Scalar) and
/// the staged ones keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Key by key: the definition.
    Scalar,
    /// AVX2 after Polychroniou and Ross, over this many partitions of the input.
    Avx2(Unroll),
    /// AVX-512 with expanding loads and compressing stores, over this many partitions.
    Avx512(Unroll),
    /// The same, with the words of all partitions prefetched before the first are
    /// gathered.
    Avx512Prefetch(Unroll),
    /// AVX-512, a pass for each function over a block of keys.
    Staged,
    /// The same for filters beyond the cache: words are prefetched early.
    StagedFar,
}

/// Partitions of the input that are worked at side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unroll {
    /// One.
    By1 = 1,
    /// Two.
    By2 = 2,
    /// Four.
    By4 = 4,
    /// Eight.
    By8 = 8,
}

/// Vectors of the block for short inputs.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 8;

impl Unroll {
    /// All of them, fewest first.
    pub const ALL: [Self; 4] = [Self::By1, Self::By2, Self::By4, Self::By8];
}

/// The variant that was the fastest for filters of up to this many bytes, for each
/// level: medians of `bench/bloom.py` on an AMD EPYC of the Zen 5 generation.
const BEST: [(Isa, u64, Variant); 3] = [
    (Isa::Avx512, 16 << 20, Variant::Staged),
    (Isa::Avx512, u64::MAX, Variant::StagedFar),
    (Isa::Avx2, u64::MAX, Variant::Avx2(Unroll::By2)),
];

impl Variant {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let unrolled = [Self::Avx2, Self::Avx512, Self::Avx512Prefetch];
        let unrolled = unrolled.into_iter().flat_map(|of| Unroll::ALL.map(of));
        [Self::Scalar].into_iter().chain(unrolled).chain([Self::Staged, Self::StagedFar])
    }

    /// The level of instructions that it needs.
    pub fn isa(self) -> Isa {
        match self {
            Self::Scalar => Isa::Scalar,
            Self::Avx2(_) => Isa::Avx2,
            Self::Avx512(_) | Self::Avx512Prefetch(_) | Self::Staged | Self::StagedFar => {
                Isa::Avx512
            }
        }
    }

    /// The best for a filter of `bytes`, with the instructions of `isa`.
    pub fn best(isa: Isa, bytes: u64) -> Self {
        let fits = |(of, most, _): &&(Isa, u64, Self)| *of == isa && bytes <= *most;
        BEST.iter().find(fits).map_or(Self::Scalar, |(.., variant)| *variant)
    }

    /// Looks `input` up.
    ///
    /// # Panics
    /// When the processor lacks the instructions, or the output is too short.
    pub(super) fn select(self, bits: &Bits, input: Input, output: &mut Output) -> usize {
        assert!(self.isa().is_available(), "the processor lacks {}", self.isa());
        if self == Self::Scalar {
            return bits::scalar(bits, input, output);
        }
        #[cfg(target_arch = "x86_64")]
        return if bits.reduction().shift().is_some() {
            // SAFETY: the processor was checked above.
            unsafe { self.vectors::<true>(bits, input, output) }
        } else {
            // SAFETY: likewise.
            unsafe { self.vectors::<false>(bits, input, output) }
        };
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no processor of this kind has the instructions")
    }

    /// # Safety
    /// The processor has the level that the variant needs.
    #[cfg(target_arch = "x86_64")]
    unsafe fn vectors<const SHIFT: bool>(
        self,
        bits: &Bits,
        input: Input,
        output: &mut Output,
    ) -> usize {
        use Unroll::{By1, By2, By4, By8};
        // A short input is not worth the buffers of a large block.
        let short = input.keys.len() <= SHORT * staged::LANES;
        macro_rules! call {
            ($module:ident, $($parameter:tt),*) => {
                // SAFETY: the caller has checked the processor.
                unsafe { $module::select::<$($parameter),*>(bits, input, output) }
            };
        }
        match self {
            Self::Scalar => bits::scalar(bits, input, output),
            Self::Avx2(By1) => call!(unrolled256, 1, SHIFT),
            Self::Avx2(By2) => call!(unrolled256, 2, SHIFT),
            Self::Avx2(By4) => call!(unrolled256, 4, SHIFT),
            Self::Avx2(By8) => call!(unrolled256, 8, SHIFT),
            Self::Avx512(By1) => call!(unrolled512, 1, SHIFT, false),
            Self::Avx512(By2) => call!(unrolled512, 2, SHIFT, false),
            Self::Avx512(By4) => call!(unrolled512, 4, SHIFT, false),
            Self::Avx512(By8) => call!(unrolled512, 8, SHIFT, false),
            Self::Avx512Prefetch(By1) => call!(unrolled512, 1, SHIFT, true),
            Self::Avx512Prefetch(By2) => call!(unrolled512, 2, SHIFT, true),
            Self::Avx512Prefetch(By4) => call!(unrolled512, 4, SHIFT, true),
            Self::Avx512Prefetch(By8) => call!(unrolled512, 8, SHIFT, true),
            Self::Staged if short => call!(staged, SHORT, SHIFT, false),
            Self::Staged => call!(staged, 128, SHIFT, false),
            Self::StagedFar if short => call!(staged, SHORT, SHIFT, true),
            Self::StagedFar => call!(staged, 128, SHIFT, true),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar => f.write_str("scalar"),
            Self::Avx2(unroll) => write!(f, "avx2 u{}", *unroll as u8),
            Self::Avx512(unroll) => write!(f, "avx512 u{}", *unroll as u8),
            Self::Avx512Prefetch(unroll) => write!(f, "avx512 prefetch u{}", *unroll as u8),
            Self::Staged => f.write_str("staged"),
            Self::StagedFar => f.write_str("staged far"),
        }
    }
}
