//! A region of memory that is shared with a peer.
//!
//! `unsafe` here: memory that another process changes at any time. So no reference to its bytes
//! exists: words are atomic, and bytes are copied.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};

use super::Fault;

/// The file system of memfds (`TMPFS_MAGIC` of linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
/// The longest region in bytes: offsets have 32 bits.
pub(super) const LONGEST: u64 = 1 << 32;

/// A region, mapped. Its bytes are no packet memory of this program.
#[derive(Debug)]
pub(super) struct Region {
    map: MmapRaw,
    file: OwnedFd,
}

impl Region {
    /// Makes a region of `len` bytes, all zero, which nobody can shrink.
    pub(super) fn new(len: usize) -> std::io::Result<Self> {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = memfd_create("thalweg-memif", flags)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Self { map, file })
    }

    /// Maps a region of `len` bytes that a peer made.
    ///
    /// Reading mapped memory that its file no longer has would end this program (SIGBUS). So the file
    /// must be long enough and sealed against shrinking; and not of huge pages, which may run out
    /// when a hole is punched.
    pub(super) fn of_peer(file: OwnedFd, len: u64) -> Result<Self, Fault> {
        let seals = fcntl_get_seals(&file);
        if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            let what = "a region that it could shrink; expected a memfd with F_SEAL_SHRINK";
            return Err(Fault::new(what));
        }
        if !fstatfs(&file).is_ok_and(|of| of.f_type == TMPFS) {
            return Err(Fault::new("a region that is not of ordinary memory pages"));
        }
        let has = fstat(&file).map_or(0, |file| u64::try_from(file.st_size).unwrap_or(0));
        if len == 0 || len > LONGEST || len > has {
            let what = format!("a region of {len} bytes, of a file of {has}");
            return Err(Fault::new(what));
        }
        let map = MmapOptions::new().len(len as usize).map_raw(&file);
        let map = map.map_err(|e| Fault::new(format!("a region that cannot be mapped: {e}")))?;
        Ok(Self { map, file })
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The file, to be passed to a peer.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether it has `len` bytes at `offset`.
    pub(super) fn has(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// The place at `offset`, which the callers have checked.
    #[inline]
    fn place(&self, offset: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// When it is not in the region, or not aligned.
    #[inline]
    pub(super) fn u16(&self, offset: usize) -> &AtomicU16 {
        assert!(self.has(offset, 2) && offset.is_multiple_of(2), "the word is in the region");
        // SAFETY: in the map, which lives as long as the reference and begins at a page; all accesses
        // to the shared words of this program are atomic.
        unsafe { AtomicU16::from_ptr(self.place(offset).cast()) }
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// When it is not in the region, or not aligned.
    #[inline]
    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(self.has(offset, 4) && offset.is_multiple_of(4), "the word is in the region");
        // SAFETY: as for `u16`.
        unsafe { AtomicU32::from_ptr(self.place(offset).cast()) }
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// When it is not in the region, or not aligned.
    #[inline]
    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(self.has(offset, 8) && offset.is_multiple_of(8), "the word is in the region");
        // SAFETY: as for `u16`.
        unsafe { AtomicU64::from_ptr(self.place(offset).cast()) }
    }

    /// Begins to bring the bytes at `offset` into the cache; nothing for bytes beyond the region.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        thalweg_cpu::prefetch::at(self.place(offset));
    }

    /// Copies the bytes at `offset`.
    ///
    /// # Panics
    /// When they are not all in the region.
    #[inline]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(self.has(offset, to.len()), "the bytes are in the region");
        // SAFETY: both ends are as long as that; `to` is ours alone, so that they do not overlap. A
        // peer that writes meanwhile changes only which bytes are copied.
        unsafe { copy(self.place(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    /// When they do not all fit in the region.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.has(offset, from.len()), "the bytes are in the region");
        // SAFETY: as for `read`.
        unsafe { copy(from.as_ptr(), self.place(offset), from.len()) };
    }
}

/// Copies `len` bytes. Short ones are copied in two pieces that overlap: moves of vectors, where
/// `memcpy` would first find out the length.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: there are at least that many bytes, as the caller warrants.
        32..=64 => unsafe { copy_ends::<32>(from, to, len) },
        // SAFETY: likewise.
        65..=128 => unsafe { copy_ends::<64>(from, to, len) },
        // SAFETY: the caller warrants it.
        _ => unsafe { ptr::copy_nonoverlapping(from, to, len) },
    }
}

/// Copies the first and the last `PIECE` of `len` bytes.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`], and `len` is at least `PIECE`, and at most twice as much.
#[inline]
unsafe fn copy_ends<const PIECE: usize>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - PIECE;
    // SAFETY: the first bytes, of at least as many.
    unsafe { ptr::copy_nonoverlapping(from, to, PIECE) };
    // SAFETY: the last bytes, of at least as many; the pieces are copied one after the other.
    unsafe { ptr::copy_nonoverlapping(from.wrapping_add(last), to.wrapping_add(last), PIECE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn refusal(file: OwnedFd, len: u64) -> String {
        Region::of_peer(file, len).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let region = Region::new(8192).unwrap();
        let other = Region::of_peer(region.file().try_clone_to_owned().unwrap(), 8192).unwrap();
        region.write(8188, &[1, 2, 3, 4]);
        let mut bytes = [0; 4];
        other.read(8188, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert!(other.has(8191, 1) && !other.has(8192, 1) && !other.has(usize::MAX, 2));
    }

    #[test]
    fn bytes_of_all_lengths_are_copied_whole() {
        let region = Region::new(4096).unwrap();
        let from: Vec<u8> = (0..300_u32).map(|at| (at % 251) as u8 + 1).collect();
        for len in 0..from.len() {
            region.write(64, &[0xA5; 400]);
            region.write(70, &from[..len]);
            let (mut around, mut back) = ([0; 400], vec![0xA5; len + 2]);
            region.read(64, &mut around);
            region.read(70, &mut back[1..=len]);
            assert_eq!(&around[6..6 + len], &from[..len]);
            assert_eq!(&back[1..=len], &from[..len]);
            assert_eq!([around[5], around[6 + len], back[0], back[len + 1]], [0xA5; 4], "{len}");
        }
    }

    #[test]
    fn a_region_that_may_vanish_is_refused() {
        assert!(refusal(memfd(4096, SealFlags::GROW), 4096).contains("F_SEAL_SHRINK"));
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(refusal(file.into(), 4096).contains("F_SEAL_SHRINK"));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(refusal(pipe, 4096).contains("F_SEAL_SHRINK"));
        let huge = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB);
        // Some kernels have no huge pages.
        if let Ok(huge) = huge {
            fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
            assert!(refusal(huge, 4096).contains("ordinary memory"));
        }
    }

    #[test]
    fn a_region_is_as_long_as_its_file_at_most() {
        for (of_file, len) in
            [(4096, 4097), (4096, 0), (0, 1), (4096, u64::MAX), (1 << 33, 1 << 33)]
        {
            let file = memfd(of_file, SealFlags::SHRINK);
            assert!(refusal(file, len).contains(&format!("a region of {len} bytes")));
        }
        let read_only = memfd(4096, SealFlags::SHRINK | SealFlags::WRITE);
        assert!(refusal(read_only, 4096).contains("cannot be mapped"));
    }
}
