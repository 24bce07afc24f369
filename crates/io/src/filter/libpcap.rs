//! Compiles and runs filters by libpcap.
//!
//! `unsafe` here: calls of the functions of pcap.c.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::{self, NonNull};

/// The opaque type that pointers of pcap.c refer to.
#[repr(C)]
struct RawProgram {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn thalweg_filter_compile(
        interface: *const c_char,
        text: *const c_char,
        error: *mut c_char,
        size: usize,
    ) -> *mut RawProgram;
    fn thalweg_filter_free(program: *mut RawProgram);
    fn thalweg_filter_matches(
        program: *const RawProgram,
        bytes: *const u8,
        captured: c_uint,
        wire: c_uint,
    ) -> c_int;
    #[cfg(target_os = "linux")]
    fn thalweg_filter_instructions(
        program: *const RawProgram,
        count: *mut c_uint,
    ) -> *const libc::sock_filter;
}

/// A compiled filter.
#[derive(Debug)]
pub(crate) struct Program(NonNull<RawProgram>);

// SAFETY: a program is bound to no thread; it is freed once, by its owner.
unsafe impl Send for Program {}
// SAFETY: nothing changes a program after it was compiled; running it only reads it.
unsafe impl Sync for Program {}

impl Program {
    /// Compiles a filter, for packets as they are inside or for an interface's kernel.
    ///
    /// # Errors
    /// libpcap's message.
    pub(super) fn compile(text: &str, interface: Option<&str>) -> Result<Self, String> {
        let has_zero = |_| "a filter cannot contain a zero byte".to_owned();
        let text = CString::new(text).map_err(has_zero)?;
        let interface = interface.map(CString::new).transpose().map_err(has_zero)?;
        let interface = interface.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut error = [0u8; 512];
        let (place, size) = (error.as_mut_ptr().cast(), error.len());
        // SAFETY: both texts end with zero, or the first is null; at most `size` bytes are written
        // at `place`.
        let program = unsafe { thalweg_filter_compile(interface, text.as_ptr(), place, size) };
        let message = || {
            let text = CStr::from_bytes_until_nul(&error).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
        NonNull::new(program).map(Self).ok_or_else(message)
    }

    /// Whether a packet of `wire_len` bytes, of which the first are `bytes`, matches.
    pub(super) fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        let (place, len) = (bytes.as_ptr(), bytes.len() as c_uint);
        // SAFETY: the program is alive, and `len` bytes are at `place`.
        unsafe { thalweg_filter_matches(self.0.as_ptr(), place, len, wire_len) != 0 }
    }

    /// The instructions, for the kernel.
    #[cfg(target_os = "linux")]
    pub(crate) fn instructions(&self) -> &[libc::sock_filter] {
        let mut count = 0;
        // SAFETY: the program is alive, and `count` is a number.
        let first = unsafe { thalweg_filter_instructions(self.0.as_ptr(), &raw mut count) };
        if first.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: the program has `count` instructions there, of the kernel's form, and keeps them
        // unchanged as long as it lives.
        unsafe { std::slice::from_raw_parts(first, count as usize) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is alive, and not used any more.
        unsafe { thalweg_filter_free(self.0.as_ptr()) }
    }
}
