//! The words of a table: zeroed, page-aligned, on huge pages where they pay.
//!
//! A lookup touches lines at random. With pages of 4 KB, a table beyond the reach
//! of the address-translation caches pays for a walk of the page table besides
//! each line; so large tables request transparent huge pages and report whether
//! they were granted.
//!
//! `unsafe` here: a mapping of bytes is seen as other types.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use memmap2::{MmapMut, MmapRaw};

#[cfg(target_os = "linux")]
use crate::thread;

/// The size of an ordinary page.
const PAGE: usize = 4096;
/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// From this size on, huge pages are requested.
const ASK_FROM: usize = HUGE;

/// The pages that a table lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary pages: the table is too small to gain from others.
    Ordinary,
    /// Huge pages, all or nearly all of it.
    Huge,
    /// Huge pages were requested and not granted: lookups are slower. See
    /// `/sys/kernel/mm/transparent_hugepage/enabled`.
    HugeMissing,
}

/// Types that zero bytes are a value of, that need no dropping, and that are aligned
/// to no more than 4 KB.
///
/// # Safety
/// All of that.
pub unsafe trait Zero {}

// SAFETY: an integer.
unsafe impl Zero for u32 {}
// SAFETY: an integer in a cell.
unsafe impl Zero for AtomicU8 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU16 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU32 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU64 {}
// SAFETY: an array has what its elements have.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// A slice that was zero at first, and begins a page or a huge page.
#[derive(Debug)]
pub struct Zeroed<T> {
    map: MmapRaw,
    start: usize,
    len: usize,
    pages: Pages,
    of: PhantomData<[T]>,
}

/// The bytes of all slices that there are.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The bytes that all [`Zeroed`] slices of this process have mapped, which no allocator counts.
pub fn mapped() -> usize {
    MAPPED.load(Relaxed)
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.map.len(), Relaxed);
    }
}

impl<T: Zero> Zeroed<T> {
    /// `len` zeroed elements, whose pages are all there: no later write waits for the system.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes < ASK_FROM {
            let mut map = MmapMut::map_anon(bytes.max(1))?;
            touch(&mut map);
            return Ok(Self::of(map, 0, len, Pages::Ordinary));
        }
        // Room to begin at a multiple of the huge page's size.
        let whole = bytes.next_multiple_of(HUGE);
        let mut map = MmapMut::map_anon(whole + HUGE)?;
        let start = map.as_ptr().align_offset(HUGE);
        let pages = ask_for_huge_pages(&mut map, start..start + whole);
        Ok(Self::of(map, start, len, pages))
    }

    /// `len` zeroed elements, on ordinary pages that take memory from when they are first written.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn untouched(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::of(MmapMut::map_anon(bytes.max(1))?, 0, len, Pages::Ordinary))
    }

    fn of(map: MmapMut, start: usize, len: usize, pages: Pages) -> Self {
        MAPPED.fetch_add(map.len(), Relaxed);
        Self { map: map.into(), start, len, pages, of: PhantomData }
    }

    /// The pages that it lies on.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    fn first(&self) -> *mut T {
        self.map.as_mut_ptr().wrapping_add(self.start).cast()
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` elements from `start`, which begins
        // a page; it was zero, which is a value of `T`, and it is not shared.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T: Zero> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}

/// Writes to each page of `memory`, which is zero.
fn touch(memory: &mut [u8]) {
    for page in memory.chunks_mut(PAGE) {
        // Volatile, because a zero over a zero is otherwise left out.
        // SAFETY: `page` is not empty, so its first byte can be written.
        unsafe { page.as_mut_ptr().write_volatile(0) };
    }
}

/// Requests huge pages for a range of `map`, and returns what was granted.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(map: &mut MmapMut, range: Range<usize>) -> Pages {
    if map.advise_range(memmap2::Advice::HugePage, range.start, range.len()).is_err() {
        return Pages::HugeMissing;
    }
    let pages = range.len() / PAGE;
    let before = thread::page_faults();
    // The kernel decides when a page is first written.
    touch(&mut map[range]);
    // A huge page comes whole at its first fault, a small one at each of its own.
    let faults = thread::page_faults() - before;
    if faults > 0 && faults * 20 <= pages { Pages::Huge } else { Pages::HugeMissing }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_map: &mut MmapMut, _range: Range<usize>) -> Pages {
    Pages::HugeMissing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_can_be_written() -> io::Result<()> {
        for len in [0, 1, 1000, (2 << 20) / 4, (5 << 20) / 4 + 1] {
            let mut words = Zeroed::<u32>::new(len)?;
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|w| *w == 0));
            words.fill(7);
            assert!(words.iter().all(|w| *w == 7));
            assert_eq!(words.pages() == Pages::Ordinary, len * 4 < ASK_FROM);
        }
        Ok(())
    }

    /// How much of `from..to` lies on huge pages, as the kernel reports.
    #[cfg(target_os = "linux")]
    fn huge_bytes(from: usize, to: usize) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let (mut within, mut huge) = (false, 0);
        for line in text.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if let Some((low, high)) = first.split_once('-') {
                let bound = |text| usize::from_str_radix(text, 16).ok();
                within = bound(low)? < to && bound(high)? > from;
            } else if within && first == "AnonHugePages:" {
                huge += line.split_whitespace().nth(1)?.parse::<usize>().ok()? << 10;
            }
        }
        Some(huge)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn huge_pages_are_there_when_it_says_so() -> io::Result<()> {
        for mib in [2, 8, 31] {
            let words = Zeroed::<u32>::new(mib << 18)?;
            let from = words.as_ptr() as usize;
            let huge = huge_bytes(from, from + (mib << 20)).ok_or(io::ErrorKind::InvalidData)?;
            // Of neighbours some may be counted too.
            let are_there = huge * 10 >= (mib << 20) * 9;
            assert!(are_there || words.pages() == Pages::HugeMissing, "{huge} bytes of {mib} MiB");
        }
        Ok(())
    }
}
