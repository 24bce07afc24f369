//! The lookups by vectors.
//!
//! `unsafe` here: loads of vectors.
#![allow(unsafe_code)]

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

use thalweg_cpu::avx512;

use super::super::affine::x86::{Matrices, Table, load};
use super::super::dense::{Blocks, PLACES};
use super::super::hits::Told;
use super::{FAR, HASHES, TABLES, Tables};

/// For each of 64 bytes, the buckets of the pair that begins there, according to each table.
type Looked = [__m512i; TABLES];

/// The matrices and tables held in registers.
struct Registers<const IS_NEAR: bool> {
    /// Those of both hashes.
    matrices: [Matrices; 2],
    tables: [Table; TABLES],
}

impl<const IS_NEAR: bool> Registers<IS_NEAR> {
    #[avx512]
    #[target_feature(enable = "avx512vbmi")]
    fn load(Tables([t0, t1, t2, t3]): &Tables) -> Self {
        Self {
            matrices: [Matrices::load(&HASHES[0]), Matrices::load(&HASHES[1])],
            tables: [Table::load(t0), Table::load(t1), Table::load(t2), Table::load(t3)],
        }
    }

    /// Looks up the pairs of 64 bytes and the byte after each.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn look_up(&self, first: __m512i, second: __m512i) -> Looked {
        let one = self.matrices[0].hash(first, second);
        let other = if IS_NEAR { self.matrices[1].hash(first, second) } else { one };
        let [t0, t1, t2, t3] = self.tables;
        [t0.look_up(one), t1.look_up(one), t2.look_up(one), t3.look_up(other)]
    }

    /// The same for the last bytes of a text, at most 64, padded with zeros.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn look_up_rest(&self, rest: &[u8]) -> Looked {
        let there = _bzhi_u64(u64::MAX, rest.len() as u32);
        // SAFETY: only bytes of the text are read.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().cast()) };
        let second = behind::<1>(bytes, _mm512_setzero_si512());
        self.look_up(bytes, second)
    }

    /// The same for 64 bytes that another follows.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn look_up_block(&self, block: &[u8; PLACES + 1]) -> Looked {
        let at = block.as_ptr();
        // SAFETY: the block has one byte more than the load reads.
        let first = unsafe { _mm512_loadu_si512(at.cast()) };
        // SAFETY: as above.
        let second = unsafe { _mm512_loadu_si512(at.wrapping_add(1).cast()) };
        self.look_up(first, second)
    }

    /// Reports the places of a text that pass. Past its end, the results for zeros are used.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn scan(
        &self,
        n: usize,
        text: &[u8],
        nothing: &Looked,
        told: &mut Told<'_>,
        dense: &mut Blocks<'_>,
    ) {
        let from = |base: usize| text.get(base..).unwrap_or_default();
        let looked = |base: usize| match (from(base), from(base).first_chunk()) {
            ([], _) => *nothing,
            (_, Some(block)) => self.look_up_block(block),
            (rest, None) => self.look_up_rest(rest),
        };
        let (mut base, mut now) = (0, looked(0));
        // A loop of its own for the blocks before the last two, which has less to decide.
        while let Some(block) = from(base + PLACES).first_chunk() {
            let next = self.look_up_block(block);
            let passed = Self::passed(&now, &next);
            told.tell_often_but(passed, n, base, |many| dense.divert(many, n, base));
            (base, now) = (base + PLACES, next);
        }
        for base in (base..text.len()).step_by(PLACES) {
            let next = looked(base + PLACES);
            // There are no places past the end.
            let there = (text.len() - base).min(PLACES) as u32;
            let passed = _bzhi_u64(Self::passed(&now, &next), there);
            told.tell_often_but(passed, n, base, |many| dense.divert(many, n, base));
            now = next;
        }
    }

    /// Which of 64 places pass, of which some are decided by the next 64.
    #[avx512]
    #[target_feature(enable = "avx512vbmi,gfni")]
    #[inline]
    fn passed(now: &Looked, next: &Looked) -> u64 {
        let one = behind::<{ FAR[1].1 as i32 }>(now[1], next[1]);
        let two = behind::<{ FAR[2].1 as i32 }>(now[2], next[2]);
        let last = if IS_NEAR { now[3] } else { behind::<{ FAR[3].1 as i32 }>(now[3], next[3]) };
        let near = _mm512_and_si512(now[0], one);
        _mm512_test_epi8_mask(near, _mm512_and_si512(two, last))
    }
}

/// The values `BYTES` bytes after each of 64 places, some of them among the next 64.
#[avx512]
#[target_feature(enable = "avx512vbmi")]
#[inline]
fn behind<const BYTES: i32>(now: __m512i, next: __m512i) -> __m512i {
    const fn places(from: u8) -> [u8; 64] {
        let mut all = [0; 64];
        let mut n = 0;
        while n < 64 {
            all[n] = from + n as u8;
            n += 1;
        }
        all
    }
    _mm512_permutex2var_epi8(now, load(const { &places(BYTES as u8) }), next)
}

/// Neither inlined nor calling functions: either would evict the tables from the registers.
#[avx512]
#[target_feature(enable = "avx512vbmi,gfni")]
#[inline(never)]
pub(super) fn scan<'a, const IS_NEAR: bool>(
    tables: &Tables,
    texts: &[&[u8]],
    mut told: Told<'a>,
    dense: &mut Blocks<'_>,
) -> Told<'a> {
    let registers = Registers::<IS_NEAR>::load(tables);
    let nothing = registers.look_up(_mm512_setzero_si512(), _mm512_setzero_si512());
    for (n, text) in texts.iter().enumerate() {
        registers.scan(n, text, &nothing, &mut told, dense);
    }
    told
}
