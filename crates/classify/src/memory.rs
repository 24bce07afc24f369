//! The words of a table: zeroed, page-aligned, on huge pages where they pay.
//!
//! A lookup touches lines at random. With pages of 4 KB, a table beyond the reach
//! of the address-translation caches pays for a walk of the page table besides
//! each line; so large tables ask for transparent huge pages and say whether they
//! came.
//!
//! `unsafe` here: a mapping of bytes is seen as words.
#![allow(unsafe_code)]

use std::io;

use memmap2::MmapMut;

/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// From this size on, huge pages are asked for.
const ASK_FROM: usize = HUGE;

/// The pages that a table lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary pages: the table is too small to gain from others.
    Ordinary,
    /// Huge pages, all or nearly all of it.
    Huge,
    /// Huge pages were asked for, and did not come: lookups pay for it. See
    /// `/sys/kernel/mm/transparent_hugepage/enabled`.
    HugeMissing,
}

/// A slice of zeroed words that begins a page, or a huge page.
#[derive(Debug)]
pub(crate) struct Words {
    map: MmapMut,
    start: usize,
    len: usize,
    pages: Pages,
}

impl Words {
    /// `len` zeroed words.
    pub(crate) fn zeroed(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(4).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes < ASK_FROM {
            let map = MmapMut::map_anon(bytes.max(1))?;
            return Ok(Self { map, start: 0, len, pages: Pages::Ordinary });
        }
        // Room to begin at a multiple of the huge page's size.
        let whole = bytes.next_multiple_of(HUGE);
        let map = MmapMut::map_anon(whole + HUGE)?;
        let start = map.as_ptr().align_offset(HUGE);
        let mut words = Self { map, start, len, pages: Pages::HugeMissing };
        words.ask_for_huge_pages(whole);
        Ok(words)
    }

    #[cfg(target_os = "linux")]
    fn ask_for_huge_pages(&mut self, whole: usize) {
        if self.map.advise_range(memmap2::Advice::HugePage, self.start, whole).is_err() {
            return;
        }
        // The kernel decides when a page is first written.
        for page in self.map[self.start..self.start + whole].chunks_mut(4096) {
            // Volatile, because a zero over a zero is otherwise left out.
            // SAFETY: `page` is not empty, so its first byte can be written.
            unsafe { page.as_mut_ptr().write_volatile(0) };
        }
        let first = self.map.as_ptr() as usize + self.start;
        if huge_bytes(first, first + whole).is_some_and(|huge| huge * 10 >= whole * 9) {
            self.pages = Pages::Huge;
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for_huge_pages(&mut self, _whole: usize) {}

    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u32] {
        let first = self.map[self.start..][..self.len * 4].as_ptr();
        // SAFETY: the slice above has `len` words, begins a page, and any bits
        // make a word.
        unsafe { std::slice::from_raw_parts(first.cast(), self.len) }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u32] {
        let first = self.map[self.start..][..self.len * 4].as_mut_ptr();
        // SAFETY: as in `as_slice`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(first.cast(), self.len) }
    }
}

/// How much of `from..to` lies on huge pages, as the kernel says.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_can_be_written() -> io::Result<()> {
        for len in [0, 1, 1000, (2 << 20) / 4, (5 << 20) / 4 + 1] {
            let mut words = Words::zeroed(len)?;
            assert_eq!(words.as_slice().len(), len);
            assert!(words.as_slice().iter().all(|w| *w == 0));
            words.as_mut_slice().fill(7);
            assert!(words.as_slice().iter().all(|w| *w == 7));
            assert_eq!(words.pages() == Pages::Ordinary, len * 4 < ASK_FROM);
        }
        Ok(())
    }
}
