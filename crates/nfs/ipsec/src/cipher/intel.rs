//! Sealing and opening by Intel's libipsec-mb, many packets at once, for all suites.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::OnceLock;

use arrayvec::ArrayVec;
use subtle::ConstantTimeEq;
use thalweg_cpu::Isa;
use thalweg_packet::BATCH;

use super::Job;
use crate::suite::{Hash, Suite};

/// Bytes of the longest ICV.
const TAG: usize = 16;

/// The opaque type that a pointer of intel.c points to.
#[repr(C)]
struct RawManager {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawKeys {
    _opaque: [u8; 0],
}

/// `struct thalweg_job` of intel.c.
#[repr(C)]
struct RawJob {
    keys: *const RawKeys,
    esp: *mut u8,
    body: u32,
    end: u32,
    icv: u32,
    high: u32,
    extended: u8,
    good: u8,
    nonce: [u8; 12],
    aad: [u8; 12],
    tag: [u8; TAG],
}

unsafe extern "C" {
    fn thalweg_manager_new(avx512: c_int) -> *mut RawManager;
    fn thalweg_manager_free(manager: *mut RawManager);
    fn thalweg_keys_new(
        manager: *mut RawManager,
        cipher: c_int,
        key: *const u8,
        key_len: usize,
        auth_key: *const u8,
        auth_len: usize,
    ) -> *mut RawKeys;
    fn thalweg_keys_free(keys: *mut RawKeys);
    fn thalweg_run(manager: *mut RawManager, jobs: *mut RawJob, count: usize, seal: c_int);
}

/// The library's state.
pub(super) struct Manager(NonNull<RawManager>);

// SAFETY: a manager is not bound to a thread, and has a single user at a time.
unsafe impl Send for Manager {}

impl Manager {
    /// Returns `None` without vector instructions, if the library cannot use them, and for a level
    /// that is not this process's: expanded keys differ by level.
    pub(super) fn new(isa: Isa) -> Option<Self> {
        if isa == Isa::Scalar || isa != Isa::active() {
            return None;
        }
        // SAFETY: the processor has the instructions that the library is set to use.
        let raw = unsafe { thalweg_manager_new((isa == Isa::Avx512).into()) };
        NonNull::new(raw).map(Self)
    }

    /// Seals the jobs that wait.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        let mut waiting = waiting(jobs);
        self.run(&mut waiting, true);
        let done = jobs.iter_mut().filter(takes).zip(&waiting);
        for (job, raw) in done {
            let icv = job.parts().icv;
            icv.copy_from_slice(&raw.tag[..icv.len()]);
            job.finish(raw.good == 1);
        }
    }

    /// Opens the jobs that wait.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        let mut received: ArrayVec<[u8; TAG], BATCH> = ArrayVec::new();
        for job in jobs.iter_mut().filter(takes) {
            let (icv, mut kept) = (&*job.parts().icv, [0; TAG]);
            kept[..icv.len()].copy_from_slice(icv);
            received.push(kept);
        }
        let mut waiting = waiting(jobs);
        self.run(&mut waiting, false);
        let done = jobs.iter_mut().filter(takes).zip(&waiting);
        for ((job, raw), received) in done.zip(&received) {
            let icv = job.cipher.shape.icv;
            let authentic: bool = raw.tag[..icv].ct_eq(&received[..icv]).into();
            job.finish(authentic && raw.good == 1);
        }
    }

    fn run(&mut self, jobs: &mut [RawJob], seal: bool) {
        // SAFETY: the manager is not shared; the jobs point to keys and packets that outlive the
        // call, and hold their lengths.
        unsafe { thalweg_run(self.0.as_ptr(), jobs.as_mut_ptr(), jobs.len(), seal.into()) };
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: it came from `thalweg_manager_new`, and this is its last use.
        unsafe { thalweg_manager_free(self.0.as_ptr()) };
    }
}

/// Whether the job waits, and has keys for the library.
fn takes(job: &&mut Job<'_>) -> bool {
    job.waits() && job.cipher.intel.is_some()
}

fn waiting(jobs: &mut [Job<'_>]) -> ArrayVec<RawJob, BATCH> {
    let waiting = jobs.iter_mut().filter(takes);
    waiting
        .filter_map(|job| {
            Some(RawJob {
                keys: job.cipher.intel.as_ref()?.0.as_ptr(),
                esp: job.esp.as_mut_ptr(),
                body: job.cipher.shape.body as u32,
                end: job.end as u32,
                icv: job.cipher.shape.icv as u32,
                high: job.high.unwrap_or(0),
                extended: job.high.is_some().into(),
                good: 0,
                nonce: [0; 12],
                aad: [0; 12],
                tag: [0; TAG],
            })
        })
        .collect()
}

/// Expanded keys.
pub(super) struct Keys(NonNull<RawKeys>);

// SAFETY: keys are only read after their creation.
unsafe impl Send for Keys {}
// SAFETY: as above.
unsafe impl Sync for Keys {}

impl Keys {
    /// Returns `None` if the library cannot be used.
    ///
    /// # Panics
    /// If a key does not have the length that the suite requires.
    pub(super) fn new(suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<Self> {
        /// The manager whose functions expand keys; they do not change it.
        static EXPANDS: OnceLock<Option<Shared>> = OnceLock::new();
        struct Shared(Manager);
        // SAFETY: only its table of functions is used.
        unsafe impl Sync for Shared {}

        assert_eq!((key.len(), auth_key.len()), (suite.key_len(), suite.auth_key_len()));
        let manager = EXPANDS.get_or_init(|| Manager::new(Isa::active()).map(Shared)).as_ref()?;
        let cipher = match suite {
            Suite::Cbc(_, Hash::Sha1) => 0,
            Suite::Cbc(_, Hash::Sha256) => 1,
            Suite::Gcm(_) => 2,
            Suite::ChaCha20Poly1305 => 3,
        };
        // SAFETY: the keys have the given lengths, which are those that the cipher needs.
        let raw = unsafe {
            thalweg_keys_new(
                manager.0.0.as_ptr(),
                cipher,
                key.as_ptr(),
                key.len(),
                auth_key.as_ptr(),
                auth_key.len(),
            )
        };
        NonNull::new(raw).map(Self)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: they came from `thalweg_keys_new`, and this is their last use.
        unsafe { thalweg_keys_free(self.0.as_ptr()) };
    }
}
