//! Batch lookup, compiled for the instructions that the processor has.
//!
//! `unsafe` here: a function compiled for more than the build's target is called
//! after the processor was asked.
#![allow(unsafe_code)]

use thalweg_packet::Isa;

use super::STEP;
use super::table::Core;

/// The values of `keys`, step by step.
#[inline]
pub(super) fn get_batch<const W: usize>(
    core: &Core<W>,
    keys: &[[u64; W]],
    values: &mut [Option<u64>],
) {
    #[cfg(target_arch = "x86_64")]
    if Isa::active() >= Isa::Avx2 {
        // SAFETY: a level is active only if the processor has it.
        return unsafe { with_avx2(core, keys, values) };
    }
    steps(core, keys, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,sse4.2")]
fn with_avx2<const W: usize>(core: &Core<W>, keys: &[[u64; W]], values: &mut [Option<u64>]) {
    steps(core, keys, values);
}

#[inline(always)]
fn steps<const W: usize>(core: &Core<W>, keys: &[[u64; W]], values: &mut [Option<u64>]) {
    for (keys, values) in keys.chunks(STEP).zip(values.chunks_mut(STEP)) {
        core.get_step(keys, values);
    }
}
