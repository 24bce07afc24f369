//! Batch lookup with AVX-512.
//!
//! In passes over up to 32 keys. The passes over single keys only load, compare and
//! put aside; what it means for sixteen keys is worked out at once. Whether a key is
//! found cannot be foreseen, so nothing branches on it until all are looked at.
//!
//! `unsafe` here: lines are loaded whole by an instruction that the compiler does not
//! look into. To the language, a load that is no atomic one and meets another
//! thread's store is an error, and there are no atomic ones of 64 bytes. To the
//! processor the instruction is a number of loads that come after the loads before
//! it and before those after it; that what they gave is of one moment, the version
//! of the line says, which is read before and after.
#![allow(unsafe_code)]

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use core::arch::x86_64::{
    __m128i, __m512i, _mm_cmpeq_epi16_mask, _mm_loadu_si128, _mm_set1_epi16, _mm_storeu_si128,
    _mm512_add_epi32, _mm512_and_si512, _mm512_broadcast_i64x2, _mm512_castsi512_si256,
    _mm512_cmpeq_epi32_mask, _mm512_cmpeq_epi64_mask, _mm512_cvtepu8_epi32,
    _mm512_extracti64x2_epi64, _mm512_inserti64x4, _mm512_loadu_si512, _mm512_lzcnt_epi32,
    _mm512_mask_expand_epi32, _mm512_mask_mov_epi32, _mm512_mullo_epi32, _mm512_or_si512,
    _mm512_permutex2var_epi32, _mm512_permutexvar_epi32, _mm512_rol_epi32, _mm512_rolv_epi32,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_shuffle_i64x2,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
    _mm512_test_epi32_mask, _mm512_testn_epi32_mask, _mm512_xor_si512, _pdep_u32,
};

use thalweg_packet::Isa;

use super::STEP;
use super::hints::Hints;
use super::line::{Line, State};
use super::search::AllPlaces;
use super::store::{Form, Store};
use super::table::Core;
use crate::prefetch;

/// That the processor has the instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Available(());

impl Available {
    /// Asks the processor.
    pub(super) fn ask() -> Option<Self> {
        Isa::Avx512.is_available().then_some(Self(()))
    }
}

/// The values of up to [`STEP`] keys, and as bits, which keys there are; the other
/// values mean nothing.
#[inline]
pub(super) fn step<const W: usize>(
    _: Available,
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32; STEP],
) -> u32 {
    assert!(keys.len() <= STEP, "{} keys are more than a step", keys.len());
    // SAFETY: there is an `Available`, so the processor was asked.
    unsafe { get_step(core, keys, values) }
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn get_step<const W: usize>(core: &Core<W>, keys: &[[u64; W]], values: &mut [u32; STEP]) -> u32 {
    let Some(whole) = keys.first_chunk() else {
        // Others in the places that are free: nobody looks at what is found for them.
        let mut whole = [[0; W]; STEP];
        whole[..keys.len()].copy_from_slice(keys);
        return get_whole_step(core, &whole, values) & ((1 << keys.len()) - 1);
    };
    get_whole_step(core, whole, values)
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn get_whole_step<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    values: &mut [u32; STEP],
) -> u32 {
    let mut places = AllPlaces::new();
    let found = if Form::<W>::INLINE {
        inline(core, keys, &mut places, values)
    } else {
        signatures(core, keys, &mut places, values)
    };
    found | absent_or_changing(core, keys, &places, !found, values)
}

/// Hashes the sixteen keys from `from` on, finds their places, and gives the hashes.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn find_places<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    from: usize,
    places: &mut AllPlaces,
) -> __m512i {
    let keys = &keys[from..from + LANES];
    let mut hashes = [0; LANES];
    match (core.hash().murmur3_seed(), keys.as_flattened().first_chunk()) {
        (Some(seed), Some(words)) if W == 2 => store(&mut hashes, 0, murmur3(seed, words)),
        _ => core.hash().of_all(keys, &mut hashes),
    }
    places.set(core, from, &hashes);
    load(&hashes, 0)
}

/// Hashes all keys and asks for the lines that will be looked at, as far as they are not
/// near.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn ask_for_lines<const W: usize>(core: &Core<W>, keys: &[[u64; W]; STEP], places: &mut AllPlaces) {
    let lines = core.store().lines();
    let mut hinted = [0; STEP];
    for from in GROUPS {
        let hashes = find_places(core, keys, from, places);
        if size_of_val(lines) > NEAREST {
            for first in &places.first[from..from + LANES] {
                prefetch::near(lines, *first as usize);
            }
        }
        if size_of_val(lines) > NEAR {
            // The first line again costs nothing.
            let (first, second) = (load(&places.first, from), load(&places.second, from));
            let may_be_in_second = look_at_hints(core.hints(), hashes);
            store(&mut hinted, from, _mm512_mask_mov_epi32(first, may_be_in_second, second));
        }
    }
    if size_of_val(lines) > NEAR {
        for line in hinted {
            prefetch::near(lines, line as usize);
        }
    }
}

/// Which of sixteen keys may lie in their second bucket.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn look_at_hints(hints: &Hints, hashes: __m512i) -> u16 {
    let at = _mm512_and_si512(hashes, _mm512_set1_epi32(hints.mask() as i32));
    let half_words = gather(hints.words(), _mm512_srli_epi32::<5>(at));
    _mm512_test_epi32_mask(half_words, _mm512_rolv_epi32(_mm512_set1_epi32(1), at))
}

/// MurmurHash3 of sixteen keys of two words.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn murmur3(seed: u32, keys: &[u64; 2 * LANES]) -> __m512i {
    let (rows, _) = keys.as_chunks();
    let halves = columns([0, 1, 2, 3].map(|n| {
        let row: &[u64; LANES / 2] = &rows[n];
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
    }));
    let all = |n: u32| _mm512_set1_epi32(n as i32);
    let mut hash = all(seed);
    for half in halves {
        let half = _mm512_rol_epi32::<15>(_mm512_mullo_epi32(half, all(0xcc9e_2d51)));
        hash = _mm512_xor_si512(hash, _mm512_mullo_epi32(half, all(0x1b87_3593)));
        hash = _mm512_rol_epi32::<13>(hash);
        // Five times, as one and four times.
        hash = _mm512_add_epi32(hash, _mm512_slli_epi32::<2>(hash));
        hash = _mm512_add_epi32(hash, all(0xe654_6b64));
    }
    let hash = _mm512_xor_si512(hash, all(16));
    let hash = _mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash));
    let hash = _mm512_mullo_epi32(hash, all(0x85eb_ca6b));
    let hash = _mm512_xor_si512(hash, _mm512_srli_epi32::<13>(hash));
    let hash = _mm512_mullo_epi32(hash, all(0xc2b2_ae35));
    _mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash))
}

/// The columns of sixteen rows of four numbers, four rows in a vector.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn columns(rows: [__m512i; 4]) -> [__m512i; 4] {
    let [a, b, c, d] = rows;
    let two = |of: __m512i| {
        let low = _mm512_permutex2var_epi32(a, of, b);
        let high = _mm512_permutex2var_epi32(c, of, d);
        let first = _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high));
        [first, _mm512_shuffle_i64x2::<0b11_10_11_10>(low, high)]
    };
    let of = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    let ([first, second], [third, fourth]) =
        (two(of), two(_mm512_add_epi32(of, _mm512_set1_epi32(2))));
    [first, second, third, fourth]
}

/// So many bytes of lines fit into the first-level cache: there is nothing to ask for.
const NEAREST: usize = 32 << 10;
/// So many bytes are near enough not to ask for lines that few keys lie in.
const NEAR: usize = 512 << 10;
/// Keys that are worked at together.
const LANES: usize = 16;
/// Where they begin.
const GROUPS: [usize; STEP / LANES] = [0, LANES];
/// What lines with keys in them say of the keys they were looked up for.
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
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
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
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
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

/// For keys that lie in the lines.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn inline<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &mut AllPlaces,
    values: &mut [u32; STEP],
) -> u32 {
    ask_for_lines(core, keys, places);
    let mut looks = Looks::new();
    let mut found = 0;
    for n in 0..STEP {
        looks.add(n, line(core, places.first[n]), &keys[n]);
    }
    for from in GROUPS {
        let (value, of) = looks.found(from);
        store(values, from, value);
        found |= u32::from(of) << from;
    }
    found | inline_second(core, keys, places, !found, &mut looks, values)
}

/// Looks `rest` of the keys up in their second lines.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn inline_second<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &AllPlaces,
    rest: u32,
    looks: &mut Looks,
    values: &mut [u32; STEP],
) -> u32 {
    // One behind the other.
    let mut at = 0;
    for n in ones(rest) {
        looks.add(at % STEP, line(core, places.second[n]), &keys[n]);
        at += 1;
    }
    let (mut found, mut at) = (0, 0);
    let (all, there) = looks.found(0);
    for from in GROUPS {
        let of = (rest >> from) as u16;
        let (value, there) = if at + of.count_ones() as usize <= LANES {
            (_mm512_permutexvar_epi32(from_lane(at), all), there >> at)
        } else {
            looks.found(at)
        };
        let value = _mm512_mask_expand_epi32(load(values, from), of, value);
        store(values, from, value);
        found |= _pdep_u32(u32::from(there), u32::from(of)) << from;
        at += of.count_ones() as usize;
    }
    found
}

/// Looks those of the keys up that were not found: one after the other, in both lines.
fn absent_or_changing<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &AllPlaces,
    rest: u32,
    values: &mut [u32; STEP],
) -> u32 {
    let mut found = 0;
    for n in ones(rest) {
        if let Some(value) = core.search(&keys[n], places.of(n)) {
            values[n] = value;
            found |= 1 << n;
        }
    }
    found
}

/// The numbers of the bits that are set.
#[inline(always)]
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let n = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            n
        })
    })
}

/// The line of a bucket that `core` gave for a hash.
#[inline(always)]
fn line<const W: usize>(core: &Core<W>, bucket: u32) -> &Line {
    // SAFETY: places are reduced to the number of buckets, and all are in `AllPlaces`
    // of the core at hand, or still 0, and there are two buckets at least.
    unsafe { core.store().lines().get_unchecked(bucket as usize) }
}

/// The numbers of lanes from `lane` on.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn from_lane(lane: usize) -> __m512i {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(lanes, _mm512_set1_epi32(lane as i32))
}

/// The sixteen numbers from `from` on.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn load(of: &[u32], from: usize) -> __m512i {
    let of: &[u32; LANES] = of[from..].first_chunk().expect("sixteen numbers");
    // SAFETY: the array has the 64 bytes that are read.
    unsafe { _mm512_loadu_si512(of.as_ptr().cast()) }
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn store(to: &mut [u32], from: usize, v: __m512i) {
    let to: &mut [u32; LANES] = to[from..].first_chunk_mut().expect("sixteen numbers");
    // SAFETY: the array has the 64 bytes that are written.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
}

/// Sixteen bytes from `from` on, each in a lane.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn bytes(of: &[u8; STEP], from: usize) -> __m512i {
    let of: &[u8; LANES] = of[from..].first_chunk().expect("sixteen bytes");
    // SAFETY: the array has the 16 bytes that are read.
    _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(of.as_ptr().cast()) })
}

/// Whether lines were as at one moment, by their states before and after.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn is_whole(before: __m512i, after: __m512i) -> u16 {
    let changing = _mm512_set1_epi32(State::CHANGING as i32);
    _mm512_cmpeq_epi32_mask(before, after) & _mm512_testn_epi32_mask(before, changing)
}

/// A key of one or two words, as often as it fits.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn repeat<const W: usize>(key: &[u64; W]) -> __m512i {
    let mut words = [0; 2];
    words[..W].copy_from_slice(key);
    // SAFETY: the array has the 16 bytes that are read.
    let key = unsafe { _mm_loadu_si128(words.as_ptr().cast()) };
    _mm512_broadcast_i64x2(key)
}

/// Where keys may lie by their signatures.
#[repr(align(64))]
struct Candidates {
    /// What is equal to the signature in lines, as bits.
    equal: [u8; STEP],
    /// The lines' buckets, and their states before.
    bucket: [u32; STEP],
    before: [u32; STEP],
    /// The first way that is equal.
    way: [u32; STEP],
}

/// For keys that lie by themselves.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn signatures<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    places: &mut AllPlaces,
    values: &mut [u32; STEP],
) -> u32 {
    ask_for_lines(core, keys, places);
    let mut candidates =
        Candidates { equal: [0; STEP], bucket: places.first, before: [0; STEP], way: [0; STEP] };
    for n in 0..STEP {
        candidates.look(core, n, places);
    }
    let mut are_there = candidates.choose(core, u32::MAX);
    // Most of the others lie in their second line.
    let rest = !are_there;
    for n in ones(rest) {
        candidates.bucket[n] = places.second[n];
        candidates.look(core, n, places);
    }
    if rest != 0 {
        are_there |= candidates.choose(core, rest);
    }
    are_there & candidates.compare(core, keys, values)
}

impl Candidates {
    /// Compares the signature of key `n` with those in its line.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
    fn look<const W: usize>(&mut self, core: &Core<W>, n: usize, places: &AllPlaces) {
        let line = line(core, self.bucket[n]);
        self.before[n] = line.state().0;
        let signature = _mm_set1_epi16(places.signature[n] as i16);
        self.equal[n] = _mm_cmpeq_epi16_mask(load_signatures(line), signature);
    }

    /// Chooses the first way that is equal, for all keys, and asks for what lies there
    /// for `some`; says for which of these there is one.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
    fn choose<const W: usize>(&mut self, core: &Core<W>, some: u32) -> u32 {
        let number = |n: i32| _mm512_set1_epi32(n);
        let mut are_there = 0;
        for from in GROUPS {
            let equal = bytes(&self.equal, from);
            are_there |= u32::from(_mm512_test_epi32_mask(equal, equal)) << from;
            // The lowest bit; the last way if there is none.
            let equal = _mm512_or_si512(equal, number(1 << (Form::<W>::WAYS - 1)));
            let lowest = _mm512_and_si512(equal, _mm512_sub_epi32(number(0), equal));
            let way = _mm512_sub_epi32(number(31), _mm512_lzcnt_epi32(lowest));
            store(&mut self.way, from, way);
        }
        let words = core.store().keys();
        let ask = |n: usize| {
            let at = Store::<W>::key_at(self.bucket[n] as usize, self.way[n] as usize);
            (0..W.div_ceil(8)).for_each(|line| prefetch::near(words, at + 8 * line));
        };
        if some == u32::MAX {
            (0..STEP).for_each(ask);
        } else {
            ones(some).for_each(ask);
        }
        are_there & some
    }

    /// Compares all keys with those in the chosen places, and gives the values there;
    /// says for which keys the places have them.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
    )]
    fn compare<const W: usize>(
        &self,
        core: &Core<W>,
        keys: &[[u64; W]; STEP],
        values: &mut [u32; STEP],
    ) -> u32 {
        let words = core.store().keys();
        let (mut after, mut equal) = ([0; STEP], 0);
        for n in 0..STEP {
            let (bucket, way) = (self.bucket[n], self.way[n] as usize);
            let at = Store::<W>::key_at(bucket as usize, way);
            // SAFETY: `line` says it of buckets; ways are those of a bucket, and there
            // are `W` words for each.
            let there = unsafe { words.get_unchecked(at..at + W) };
            equal |= u32::from(is_equal(there, &keys[n])) << n;
            let line = line(core, bucket);
            values[n] = line.half(Form::<W>::VALUES + way);
            after[n] = line.state_after().0;
        }
        let whole = |from| u32::from(is_whole(load(&self.before, from), load(&after, from)));
        equal & (whole(0) | whole(LANES) << LANES)
    }
}

/// Whether `there` are the words of `key`.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn is_equal<const W: usize>(there: &[AtomicU64], key: &[u64; W]) -> bool {
    let (lines, words) = key.as_chunks::<8>();
    let (lines_there, words_there) = there.as_chunks::<8>();
    let lines = lines.iter().zip(lines_there).fold(u8::MAX, |equal, (line, there)| {
        // SAFETY: the array has the 64 bytes that are read.
        let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        equal & _mm512_cmpeq_epi64_mask(load_words(there), line)
    });
    let words = words
        .iter()
        .zip(words_there)
        .fold(0, |other, (word, there)| other | word ^ there.load(Ordering::Relaxed));
    (lines == u8::MAX) & (words == 0)
}

/// The words of a line.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_line(line: &Line) -> __m512i {
    let words: __m512i;
    // SAFETY: the line has the 64 bytes that are read, and begins at a multiple of 64.
    // See the module for other threads.
    unsafe {
        asm!("vmovdqa64 {}, [{}]", out(zmm_reg) words, in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    words
}

/// Eight words that another thread may write.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(from: &[AtomicU64; 8]) -> __m512i {
    let words: __m512i;
    // SAFETY: the array has the 64 bytes that are read. See the module for other
    // threads.
    unsafe {
        asm!("vmovdqu64 {}, [{}]", out(zmm_reg) words, in(reg) from,
            options(nostack, preserves_flags, readonly));
    }
    words
}

/// The signatures of a line.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn load_signatures(line: &Line) -> __m128i {
    let signatures: __m128i;
    // SAFETY: the line has more than the 16 bytes that are read. See the module for
    // other threads.
    unsafe {
        asm!("vmovdqa {}, [{}]", out(xmm_reg) signatures, in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    signatures
}

/// The half words at sixteen places of `words`, which another thread may write.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather(words: &[AtomicU64], at: __m512i) -> __m512i {
    let mut half_words = _mm512_setzero_si512();
    // SAFETY: hints lie within the words. See the module for other threads.
    unsafe {
        asm!("kxnorw {all}, {all}, {all}",
            "vpgatherdd {to}{{{all}}}, [{from} + {at}*4]",
            all = out(kreg) _, to = inout(zmm_reg) half_words, from = in(reg) words.as_ptr(),
            at = in(zmm_reg) at, options(nostack, preserves_flags, readonly));
    }
    half_words
}
