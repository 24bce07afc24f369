//! Hashes of bytes that are linear over bits, and tables of 256 bytes.
//!
//! A bit of such a hash is the parity of the byte under a row of a matrix. One instruction hashes 64
//! bytes (`gf2p8affineqb`), and a few look them up in a table that is held in registers.
#![allow(unsafe_code)]

/// A matrix, a row for each bit of the hash, the lowest first.
pub(super) type Rows = [u8; 8];

/// A hash of pairs of bytes: the sum of what each byte contributes.
pub(super) struct PairHash {
    /// For the first and the second byte: the matrix, and the contribution of each byte.
    rows: [Rows; 2],
    bytes: [[u8; 256]; 2],
}

impl PairHash {
    pub(super) const fn new(rows: [Rows; 2]) -> Self {
        Self { rows, bytes: [hashes(rows[0]), hashes(rows[1])] }
    }

    pub(super) fn of(&self, [first, second]: [u8; 2]) -> usize {
        usize::from(self.bytes[0][usize::from(first)] ^ self.bytes[1][usize::from(second)])
    }
}

/// The hash of each byte.
const fn hashes(rows: Rows) -> [u8; 256] {
    let mut hashes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            let parity = (rows[bit] & byte as u8).count_ones() as u8 & 1;
            hashes[byte] |= parity << bit;
            bit += 1;
        }
        byte += 1;
    }
    hashes
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    use thalweg_cpu::avx512;

    use super::{PairHash, Rows};

    /// The matrices of a hash of pairs, in registers.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Matrices([__m512i; 2]);

    impl Matrices {
        #[avx512]
        #[inline]
        pub(in super::super) fn load(hash: &PairHash) -> Self {
            Self(hash.rows.map(|rows| _mm512_set1_epi64(matrix(rows))))
        }

        /// The hashes of 64 pairs.
        #[avx512]
        #[target_feature(enable = "gfni")]
        #[inline]
        pub(in super::super) fn hash(self, first: __m512i, second: __m512i) -> __m512i {
            let Self([of_first, of_second]) = self;
            _mm512_xor_si512(
                _mm512_gf2p8affine_epi64_epi8::<0>(first, of_first),
                _mm512_gf2p8affine_epi64_epi8::<0>(second, of_second),
            )
        }
    }

    /// A matrix in the instruction's format: the row of the highest bit first.
    const fn matrix(rows: Rows) -> i64 {
        let mut reversed = [0; 8];
        let mut bit = 0;
        while bit < 8 {
            reversed[7 - bit] = rows[bit];
            bit += 1;
        }
        i64::from_le_bytes(reversed)
    }

    /// A table of 256 bytes, and the lookup of 64 bytes in it.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Table([__m512i; 4]);

    impl Table {
        #[avx512]
        #[target_feature(enable = "avx512vbmi")]
        pub(in super::super) fn load(table: &[u8; 256]) -> Self {
            let (parts, _) = table.as_chunks::<64>();
            Self([load(&parts[0]), load(&parts[1]), load(&parts[2]), load(&parts[3])])
        }

        #[avx512]
        #[target_feature(enable = "avx512vbmi")]
        pub(in super::super) fn look_up(self, at: __m512i) -> __m512i {
            let low = _mm512_permutex2var_epi8(self.0[0], at, self.0[1]);
            let high = _mm512_permutex2var_epi8(self.0[2], at, self.0[3]);
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high)
        }
    }

    #[avx512]
    #[inline]
    pub(in super::super) fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: `bytes` has the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }
}
