//! Batch lookup with AVX-512.
//!
//! In passes over 32 keys. The passes over single keys only load, compare and put
//! aside; what it means for sixteen keys is worked out at once. Whether a key is found
//! cannot be predicted, so nothing branches on it until all are compared. With many
//! keys, the lines of the next 32 are prefetched before the current ones are compared.
//!
//! `unsafe` here: functions compiled for more than the build's target are called
//! after the processor was checked, and lines are found by position without a check
//! against their number each time.
#![allow(unsafe_code)]

mod inline;
mod signatures;
mod vectors;

use thalweg_cpu::{Avx512, avx512, prefetch};

use super::STEP;
use super::line::Line;
use super::search::AllPlaces;
use super::store::Form;
use super::table::Core;
use signatures::Candidates;
use vectors::{murmur3, nh, ones, store};

/// Keys that are processed together.
const LANES: usize = 16;
/// Where they begin.
const GROUPS: [usize; STEP / LANES] = [0, LANES];
/// Lines of up to this many bytes fit into the first-level cache: prefetching gains nothing.
const NEAREST: usize = 32 << 10;
/// So many bytes are near enough not to ask for lines that few keys lie in.
const NEAR: usize = 512 << 10;
/// With more bytes, keys and all, waiting for a step's memory costs more than overlapping it
/// with the next step.
const FAR: usize = 8 << 20;

/// As [`Core::get_many`].
#[inline]
pub(super) fn get_many<const W: usize>(
    _: Avx512,
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32],
    found: &mut [u32],
) {
    // SAFETY: an `Avx512` exists only if the processor has AVX-512.
    unsafe { with_avx512(core, keys, values, found) }
}

/// As [`Core::get_many`] for up to [`STEP`] keys; gives the bits.
#[inline]
pub(super) fn get_step<const W: usize>(
    _: Avx512,
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32; STEP],
) -> u32 {
    match keys.first_chunk() {
        // SAFETY: an `Avx512` exists only if the processor has AVX-512.
        Some(whole) => unsafe { whole_step(core, whole, values) },
        // SAFETY: likewise.
        None => unsafe { part_of_step(core, keys, values) },
    }
}

#[avx512]
fn with_avx512<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32],
    found: &mut [u32],
) {
    let (steps, rest) = keys.as_chunks::<STEP>();
    let (values_of, values_of_rest) = values.as_chunks_mut::<STEP>();
    let (found_of, found_of_rest) = found.split_at_mut(steps.len());
    let store = core.store();
    if size_of_val(store.lines()) + size_of_val(store.keys()) > FAR {
        overlapping(core, steps, values_of, found_of);
    } else {
        for ((keys, values), found) in steps.iter().zip(values_of).zip(found_of) {
            *found = whole_step(core, keys, values);
        }
    }
    if let [found] = found_of_rest {
        let mut values = [0; STEP];
        *found = part_of_step(core, rest, &mut values);
        values_of_rest.copy_from_slice(&values[..rest.len()]);
    }
}

/// Runs one step after the other.
#[inline]
#[avx512]
fn whole_step<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    values: &mut [u32; STEP],
) -> u32 {
    let mut places = AllPlaces::new();
    ask_for_lines(core, keys, &mut places);
    let found = if Form::<W>::INLINE {
        inline::find(core, keys, &places, values)
    } else {
        let mut candidates = Candidates::new();
        candidates.find(core, &places);
        candidates.compare(core, keys, values)
    };
    found | absent_or_changing(core, keys, &places, !found, values)
}

/// A step of fewer keys.
#[inline(never)]
#[avx512]
fn part_of_step<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [u32; STEP],
) -> u32 {
    // Zeros in the free places: what is found for them is ignored.
    let mut whole = [[0; W]; STEP];
    whole[..keys.len()].copy_from_slice(keys);
    whole_step(core, &whole, values) & ((1 << keys.len()) - 1)
}

/// Steps in flight at the same time, each a stage after the one before.
#[avx512]
fn overlapping<const W: usize>(
    core: &Core<W>,
    steps: &[[[u64; W]; STEP]],
    values: &mut [[u32; STEP]],
    found: &mut [u32],
) {
    let stages = if Form::<W>::INLINE { 2 } else { 3 };
    let mut work = [const { (AllPlaces::new(), Candidates::new()) }; 3];
    for n in 0..steps.len() + stages - 1 {
        if let Some(keys) = steps.get(n) {
            ask_for_lines(core, keys, &mut work[n % 3].0);
        }
        if !Form::<W>::INLINE && (1..=steps.len()).contains(&n) {
            let (places, candidates) = &mut work[(n - 1) % 3];
            candidates.find(core, places);
        }
        let Some(step) = (n + 1).checked_sub(stages) else { continue };
        let (places, candidates) = &work[step % 3];
        let (keys, values) = (&steps[step], &mut values[step]);
        let of = if Form::<W>::INLINE {
            inline::find(core, keys, places, values)
        } else {
            candidates.compare(core, keys, values)
        };
        found[step] = of | absent_or_changing(core, keys, places, !of, values);
    }
}

/// Hashes the sixteen keys from `from` on and finds their places.
#[inline]
#[avx512]
fn find_places<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]; STEP],
    from: usize,
    places: &mut AllPlaces,
) {
    let keys = &keys[from..from + LANES];
    let mut hashes = [0; LANES];
    match (core.hash().murmur3_seed(), keys.as_flattened().first_chunk()) {
        (Some(seed), Some(words)) if W == 2 => store(&mut hashes, 0, murmur3(seed, words)),
        _ => match core.hash().nh() {
            Some(numbers) if W.is_multiple_of(8) => nh(numbers, keys, &mut hashes),
            _ => core.hash().of_all(keys, &mut hashes),
        },
    }
    places.set(core, from, &hashes);
}

/// Hashes all keys and asks for the lines that will be looked at, as far as they are not
/// near.
#[inline]
#[avx512]
fn ask_for_lines<const W: usize>(core: &Core<W>, keys: &[[u64; W]; STEP], places: &mut AllPlaces) {
    let lines = core.store().lines();
    for from in GROUPS {
        find_places(core, keys, from, places);
        if size_of_val(lines) > NEAREST {
            for first in &places.first[from..from + LANES] {
                prefetch::near(lines, *first as usize);
            }
        }
    }
    if size_of_val(lines) > NEAR {
        for second in places.second {
            prefetch::near(lines, second as usize);
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
