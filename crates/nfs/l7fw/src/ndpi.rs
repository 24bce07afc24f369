//! Recognises applications with nDPI.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::application::Seen;
use super::host::host_name;

/// The opaque types that pointers of ndpi.c refer to.
#[repr(C)]
struct RawModule {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawFlow {
    _opaque: [u8; 0],
}

/// `struct thalweg_seen` of ndpi.c.
#[repr(C)]
#[derive(Default)]
struct RawSeen {
    master: u16,
    application: u16,
    category: u16,
    more: u8,
    failed: u8,
    guessed: u8,
}

unsafe extern "C" {
    fn thalweg_ndpi_new() -> *mut RawModule;
    fn thalweg_ndpi_free(module: *mut RawModule);
    fn thalweg_ndpi_application(module: *mut RawModule, id: u16) -> *const c_char;
    fn thalweg_ndpi_category(module: *mut RawModule, id: u16) -> *const c_char;
    fn thalweg_ndpi_flow_new() -> *mut RawFlow;
    fn thalweg_ndpi_flow_free(flow: *mut RawFlow);
    fn thalweg_ndpi_packet(
        module: *mut RawModule,
        flow: *mut RawFlow,
        packet: *const u8,
        length: u16,
        milliseconds: u64,
        seen: *mut RawSeen,
    );
    fn thalweg_ndpi_give_up(module: *mut RawModule, flow: *mut RawFlow, seen: *mut RawSeen);
    fn thalweg_ndpi_guess(module: *mut RawModule, flow: *const RawFlow, seen: *mut RawSeen);
    fn thalweg_ndpi_host(flow: *const RawFlow) -> *const c_char;
}

/// The library's state.
pub(super) struct Library(NonNull<RawModule>);

// SAFETY: a module is bound to no thread; its owner uses it alone.
unsafe impl Send for Library {}

impl Library {
    /// `None` without memory for it.
    pub(super) fn new() -> Option<Self> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no other module is created meanwhile; it returns one or NULL.
        NonNull::new(unsafe { thalweg_ndpi_new() }).map(Self)
    }

    /// The names of all applications, by their numbers.
    pub(super) fn applications(&self) -> Vec<String> {
        self.names(thalweg_ndpi_application)
    }

    /// The names of all categories, by their numbers.
    pub(super) fn categories(&self) -> Vec<String> {
        self.names(thalweg_ndpi_category)
    }

    fn names(
        &self,
        name: unsafe extern "C" fn(*mut RawModule, u16) -> *const c_char,
    ) -> Vec<String> {
        let mut names = Vec::new();
        for id in 0..u16::MAX {
            // SAFETY: the module lives; any number is a valid argument.
            let text = unsafe { name(self.0.as_ptr(), id) };
            if text.is_null() {
                break;
            }
            // SAFETY: names end with a zero and live as long as the module.
            let text = unsafe { CStr::from_ptr(text) };
            names.push(text.to_string_lossy().into_owned());
        }
        names
    }

    /// Inspects a packet of a flow, from its IP header on, seen at `milliseconds`.
    pub(super) fn packet(
        &mut self,
        flow: &mut Inspection,
        packet: &[u8],
        milliseconds: u64,
    ) -> Seen {
        let length = packet.len().min(usize::from(u16::MAX)) as u16;
        let mut seen = RawSeen::default();
        // SAFETY: module and flow live and are ours alone; the packet has that many bytes.
        unsafe {
            thalweg_ndpi_packet(
                self.0.as_ptr(),
                flow.0.as_ptr(),
                packet.as_ptr(),
                length,
                milliseconds,
                &raw mut seen,
            );
        }
        seen.into()
    }

    /// Ends the inspection of a flow; returns what is known about it.
    pub(super) fn give_up(&mut self, mut flow: Inspection) -> Seen {
        let mut seen = RawSeen::default();
        // SAFETY: module and flow live and are ours alone.
        unsafe { thalweg_ndpi_give_up(self.0.as_ptr(), flow.raw(), &raw mut seen) };
        seen.into()
    }

    /// What would be known about a flow if its inspection ended now.
    pub(super) fn guess(&mut self, flow: &Inspection) -> Seen {
        let mut seen = RawSeen::default();
        // SAFETY: module and flow live; the flow is not changed.
        unsafe { thalweg_ndpi_guess(self.0.as_ptr(), flow.0.as_ptr(), &raw mut seen) };
        seen.into()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the module lives, and is not used after this.
        unsafe { thalweg_ndpi_free(self.0.as_ptr()) }
    }
}

/// The library's state of a flow whose application is not known yet.
pub(super) struct Inspection(NonNull<RawFlow>);

// SAFETY: it is memory that is bound to no thread; its owner uses it alone.
unsafe impl Send for Inspection {}

impl Inspection {
    /// `None` without memory for it.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: it takes no argument, and returns a flow or NULL.
        NonNull::new(unsafe { thalweg_ndpi_flow_new() }).map(Self)
    }

    fn raw(&mut self) -> *mut RawFlow {
        self.0.as_ptr()
    }

    /// The name of the host that the flow addresses, if it is known.
    pub(super) fn host_name(&self) -> Option<Box<str>> {
        // SAFETY: the flow lives.
        let text = unsafe { thalweg_ndpi_host(self.0.as_ptr()) };
        // SAFETY: the name is in the flow, and ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        if text.is_empty() { None } else { host_name(text.to_bytes()) }
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        // SAFETY: the flow lives, and is not used after this.
        unsafe { thalweg_ndpi_flow_free(self.0.as_ptr()) }
    }
}

impl From<RawSeen> for Seen {
    fn from(seen: RawSeen) -> Self {
        Self {
            master: seen.master,
            application: seen.application,
            category: seen.category,
            more: seen.more != 0,
            failed: seen.failed != 0,
            guessed: seen.guessed != 0,
        }
    }
}
