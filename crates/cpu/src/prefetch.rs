//! Prefetching memory into the cache before it is needed.
//!
//! `unsafe` here: the instruction takes an address; it reads nothing and cannot
//! fault.
#![allow(unsafe_code)]

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Begins to bring the cache line of `slice[at]` into the first-level cache. An
/// index beyond the end does nothing.
#[inline(always)]
pub fn read<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(place) = slice.get(at) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is allowed for any address and changes no state of
        // the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// As [`read`], for the cache line at an address, whatever lies there.
#[inline(always)]
pub fn at(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is allowed for any address and changes no state of
        // the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// As [`read`], without a check of the length: an index beyond the end prefetches what
/// lies there.
#[inline(always)]
pub fn near<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is allowed for any address and changes no state of
        // the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// As [`near`], for all cache lines of a large element.
#[inline(always)]
pub fn whole<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let begin = slice.as_ptr().wrapping_add(at).cast::<i8>();
        // One more where the element does not begin with a line: that of its last byte.
        for line in 0..=size_of::<T>() / LINE {
            let offset = (line * LINE).min(size_of::<T>().saturating_sub(1));
            // SAFETY: prefetching is allowed for any address and changes no state of
            // the program.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Begins to bring the cache line that lies `elements` after the first of `slice`
/// into the second-level cache; there need be none.
#[inline(always)]
pub fn ahead<T>(slice: &[T], elements: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: prefetching is allowed for any address and changes no state of
        // the program.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(slice.as_ptr().wrapping_add(elements).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, elements);
}
