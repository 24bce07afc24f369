//! Keys that lie in lines.
//!
//! `unsafe` here: loads and stores of whole arrays.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm512_and_si512, _mm512_broadcast_i64x2,
    _mm512_cmpeq_epi64_mask, _mm512_extracti64x2_epi64, _mm512_mask_expand_epi32,
    _mm512_mask_mov_epi32, _mm512_permutexvar_epi32, _mm512_set1_epi32, _mm512_srli_epi32,
    _mm512_test_epi32_mask, _pdep_u32,
};

use thalweg_cpu::avx512;

use super::vectors::{bytes, columns, from_lane, is_whole, load, load_line, ones, store};
use super::{GROUPS, LANES, STEP, line};
use crate::cuckoo::line::Line;
use crate::cuckoo::search::AllPlaces;
use crate::cuckoo::store::Form;
use crate::cuckoo::table::Core;

/// The results of lines with keys in them, for the keys that were looked up.
#[repr(align(64))]
struct Looks {
    /// The lines' states before and after.
    before: [u32; STEP],
    after: [u32; STEP],
    /// The words of the line that are equal to those of the key, as bits.
    equal: [u8; STEP],
    /// The values and the state.
    values: [[u32; 4]; STEP],
}

impl Looks {
    fn new() -> Self {
        Self { before: [0; STEP], after: [0; STEP], equal: [0; STEP], values: [[0; 4]; STEP] }
    }

    /// Looks for `key` in a line; the result is number `n`.
    #[inline]
    #[avx512]
    fn add<const W: usize>(&mut self, n: usize, line: &Line, key: &[u64; W]) {
        self.before[n] = line.state().0;
        let words = load_line(line);
        self.equal[n] = _mm512_cmpeq_epi64_mask(words, repeat(key));
        let values = _mm512_extracti64x2_epi64::<3>(words);
        // SAFETY: the array has the 16 bytes that are written.
        unsafe { _mm_storeu_si128(self.values[n].as_mut_ptr().cast(), values) };
        self.after[n] = line.state_after().0;
    }

    /// The values that were found for sixteen keys from `from` on, and as bits, for
    /// which.
    #[inline]
    #[avx512]
    fn found(&self, from: usize) -> (__m512i, u16) {
        const { assert!(Form::<2>::VALUES == 12 || cfg!(loom)) };
        let before = load(&self.before, from);
        let is_whole = is_whole(before, load(&self.after, from));
        // Both words of a key; the bits of the state lie where the first word is.
        let equal = bytes(&self.equal, from);
        let equal = _mm512_and_si512(equal, _mm512_srli_epi32::<1>(equal));
        let hit = _mm512_and_si512(equal, before);
        let rows = self.values.as_flattened();
        let [first, second, third, _] =
            columns([0, 4, 8, 12].map(|row| load(rows, 4 * (from + row))));
        let in_way =
            |way| _mm512_test_epi32_mask(hit, _mm512_set1_epi32(Form::<2>::taken(way) as i32));
        let value = _mm512_mask_mov_epi32(first, in_way(1), second);
        let value = _mm512_mask_mov_epi32(value, in_way(2), third);
        (value, (in_way(0) | in_way(1) | in_way(2)) & is_whole)
    }
}

/// The values of keys that lie in lines, and as bits, which keys were found.
#[inline]
#[avx512]
pub(super) fn find<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &AllPlaces,
    values: &mut [u32; STEP],
) -> u32 {
    let mut looks = Looks::new();
    let mut found = 0;
    for (n, (key, place)) in keys.iter().zip(&places.first).enumerate() {
        looks.add(n, line(core, *place), key);
    }
    for from in GROUPS {
        let (value, of) = looks.found(from);
        store(values, from, value);
        found |= u32::from(of) << from;
    }
    found | in_second(core, keys, places, !found, &mut looks, values)
}

/// Looks `rest` of the keys up in their second lines.
#[inline]
#[avx512]
fn in_second<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &AllPlaces,
    rest: u32,
    looks: &mut Looks,
    values: &mut [u32; STEP],
) -> u32 {
    // One after the other.
    for (at, n) in ones(rest).enumerate() {
        looks.add(at % STEP, line(core, places.second[n]), &keys[n]);
    }
    let (mut found, mut at) = (0, 0);
    let (all, there) = looks.found(0);
    for from in GROUPS {
        let of = (rest >> from) as u16;
        let (value, there) = if at + of.count_ones() as usize <= LANES {
            (_mm512_permutexvar_epi32(from_lane(at), all), u32::from(there) >> at)
        } else {
            let (value, there) = looks.found(at);
            (value, u32::from(there))
        };
        let value = _mm512_mask_expand_epi32(load(values, from), of, value);
        store(values, from, value);
        found |= _pdep_u32(there, u32::from(of)) << from;
        at += of.count_ones() as usize;
    }
    found
}

/// A key of one or two words, as often as it fits.
#[inline]
#[avx512]
fn repeat<const W: usize>(key: &[u64; W]) -> __m512i {
    let mut words = [0; 2];
    words[..W].copy_from_slice(key);
    // SAFETY: the array has the 16 bytes that are read.
    let key = unsafe { _mm_loadu_si128(words.as_ptr().cast()) };
    _mm512_broadcast_i64x2(key)
}
