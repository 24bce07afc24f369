//! Batch lookup with AVX-512.
//!
//! In passes over 32 keys. The passes over single keys only load, compare and put
//! aside; what it means for sixteen keys is worked out at once. Whether a key is found
//! cannot be foreseen, so nothing branches on it until all are looked at. Of many
//! keys, the lines of the next 32 are asked for before those at hand are looked at.
//!
//! `unsafe` here: functions compiled for more than the build's target are called
//! after the processor was asked, and lines are found by position without a check
//! against their number each time.
#![allow(unsafe_code)]

mod inline;
mod signatures;
mod vectors;

use core::arch::x86_64::{__m512i, _mm512_mask_mov_epi32};

use thalweg_packet::Isa;

use super::STEP;
use super::line::Line;
use super::search::AllPlaces;
use super::store::Form;
use super::table::Core;
use crate::prefetch;
use signatures::Candidates;
use vectors::{load, look_at_hints, murmur3, ones, store};

/// Keys that are worked at together.
const LANES: usize = 16;
/// Where they begin.
const GROUPS: [usize; STEP / LANES] = [0, LANES];
/// So many bytes of lines fit into the first-level cache: there is nothing to ask for.
const NEAREST: usize = 32 << 10;
/// So many bytes are near enough not to ask for lines that few keys lie in.
const NEAR: usize = 512 << 10;

/// That the processor has the instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Available(());

impl Available {
    /// Asks the processor.
    pub(super) fn ask() -> Option<Self> {
        Isa::Avx512.is_available().then_some(Self(()))
    }
}

/// As [`Core::get_many`].
#[inline]
pub(super) fn get_many<const W: usize>(
    _: Available,
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32],
    found: &mut [u32],
) {
    // SAFETY: there is an `Available`, so the processor was asked.
    unsafe { with_avx512(core, keys, values, found) }
}

/// How far work at a step has come.
struct Work {
    places: AllPlaces,
    candidates: Candidates,
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,lzcnt,popcnt,sse4.2"
)]
fn with_avx512<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32],
    found: &mut [u32],
) {
    // Steps that are under way at the same time, each a stage behind the one before.
    let stages = if Form::<W>::INLINE { 2 } else { 3 };
    let (whole, rest) = keys.as_chunks::<STEP>();
    // Zeros in the places that are free: nobody looks at what is found for them.
    let mut last = [[0; W]; STEP];
    last[..rest.len()].copy_from_slice(rest);
    let keys_of = |step: usize| whole.get(step).unwrap_or(&last);
    let steps = keys.len().div_ceil(STEP);
    let mut work = [const { Work { places: AllPlaces::new(), candidates: Candidates::new() } }; 4];
    for n in 0..steps + stages - 1 {
        if n < steps {
            ask_for_lines(core, keys_of(n), &mut work[n % 4].places);
        }
        if !Form::<W>::INLINE && (1..=steps).contains(&n) {
            let Work { places, candidates } = &mut work[(n - 1) % 4];
            candidates.find(core, places);
        }
        let Some(step) = (n + 1).checked_sub(stages) else { continue };
        let (keys, Work { places, candidates }) = (keys_of(step), &work[step % 4]);
        let mut there = [0; STEP];
        let of = if Form::<W>::INLINE {
            inline::find(core, keys, places, &mut there)
        } else {
            candidates.compare(core, keys, &mut there)
        };
        let of = of | absent_or_changing(core, keys, places, !of, &mut there);
        let values = &mut values[step * STEP..];
        let count = values.len().min(STEP);
        values[..count].copy_from_slice(&there[..count]);
        found[step] = of & (u32::MAX >> (STEP - count));
    }
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

/// The line of a bucket that `core` gave for a hash.
#[inline(always)]
fn line<const W: usize>(core: &Core<W>, bucket: u32) -> &Line {
    // SAFETY: places are reduced to the number of buckets, and all are in `AllPlaces`
    // of the core at hand, or still 0, and there are two buckets at least.
    unsafe { core.store().lines().get_unchecked(bucket as usize) }
}
