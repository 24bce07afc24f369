//! Sealing and opening ESP packets in place, a batch at a time.
//!
//! An ESP packet lies in its buffer as SPI, sequence number, IV, body, ICV (RFC 4303, section
//! 2). The implementation is chosen by suite and processor: our own lanes for CBC with HMAC where
//! there are AVX2 and AES-NI, libipsec-mb for the rest where it is built in, and otherwise, packet
//! by packet, the portable code, which is the reference for the others.

#[cfg(target_arch = "x86_64")]
mod aes_lanes;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod hmac_lanes;
#[cfg(target_arch = "x86_64")]
mod in_step;
#[cfg(feature = "ipsec-mb")]
mod intel;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod portable;
#[cfg(target_arch = "x86_64")]
mod sha;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use thalweg_cpu::Isa;
use thalweg_packet::BATCH;

use super::suite::{HEADER, Suite};

/// A suite with its keys expanded, for each implementation.
pub(super) struct Cipher {
    suite: Suite,
    shape: Shape,
    portable: portable::Keys,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<lanes::Keys>,
    #[cfg(feature = "ipsec-mb")]
    intel: Option<intel::Keys>,
}

impl Cipher {
    /// Expands the keys; returns `None` if one has the wrong length.
    pub(super) fn new(suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<Self> {
        if key.len() != suite.key_len() || auth_key.len() != suite.auth_key_len() {
            return None;
        }
        let body = HEADER + suite.iv_len();
        Some(Self {
            suite,
            shape: Shape { body, icv: suite.icv_len(), last: suite.alignment() - 1 },
            portable: portable::Keys::new(suite, key, auth_key)?,
            #[cfg(target_arch = "x86_64")]
            lanes: lanes::Keys::new(suite, key, auth_key),
            #[cfg(feature = "ipsec-mb")]
            intel: intel::Keys::new(suite, key, auth_key),
        })
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }
}

/// The layout of a suite's packets.
#[derive(Clone, Copy)]
struct Shape {
    /// Where the body begins.
    body: usize,
    /// Bytes of the ICV.
    icv: usize,
    /// The alignment of the body's length, minus one.
    last: usize,
}

/// The progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Done,
    /// The ICV was wrong.
    Refused,
}

/// A packet to be sealed or opened.
pub(super) struct Job<'a> {
    /// The packet's lane in its batch.
    pub(super) lane: usize,
    cipher: &'a Cipher,
    esp: &'a mut [u8],
    /// Where the ICV begins.
    end: usize,
    high: Option<u32>,
    state: State,
}

impl<'a> Job<'a> {
    /// `esp` is the packet from the SPI to the ICV, `high` the upper half of an extended
    /// sequence number. Returns `None` if there is no body, or it is not aligned.
    pub(super) fn new(
        lane: usize,
        cipher: &'a Cipher,
        esp: &'a mut [u8],
        high: Option<u32>,
    ) -> Option<Self> {
        let Shape { body, icv, last } = cipher.shape;
        let end = esp.len().checked_sub(icv)?;
        let fits = end > body && (end - body) & last == 0;
        fits.then_some(Self { lane, cipher, esp, end, high, state: State::Waiting })
    }

    /// Whether the packet is sealed, or is authentic and open.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn waits(&self) -> bool {
        self.state == State::Waiting
    }

    fn finish(&mut self, good: bool) {
        self.state = if good { State::Done } else { State::Refused };
    }

    fn parts(&mut self) -> Parts<'_> {
        let (sealed, icv) = self.esp.split_at_mut(self.end);
        let (head, body) = sealed.split_at_mut(self.cipher.shape.body);
        Parts { head, body, icv }
    }
}

/// An ESP packet in its parts.
struct Parts<'a> {
    /// Header and IV.
    head: &'a mut [u8],
    body: &'a mut [u8],
    icv: &'a mut [u8],
}

/// The implementations that are available, with the memory they work in.
pub(super) struct Engine {
    #[cfg(target_arch = "x86_64")]
    lanes: Option<lanes::Lanes>,
    #[cfg(feature = "ipsec-mb")]
    intel: Option<intel::Manager>,
}

impl Engine {
    /// The fastest engine with the instructions of `isa`.
    pub(super) fn new(isa: Isa) -> Self {
        let _ = isa;
        Self {
            #[cfg(target_arch = "x86_64")]
            lanes: lanes::Lanes::new(isa),
            #[cfg(feature = "ipsec-mb")]
            intel: intel::Manager::new(isa),
        }
    }

    /// Encrypts the bodies of up to a batch of packets, whose headers and IVs are written, and
    /// writes their ICVs. The jobs' order changes.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        order(jobs);
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = &mut self.lanes {
            lanes.seal(jobs);
        }
        #[cfg(feature = "ipsec-mb")]
        if let Some(intel) = self.intel.as_mut().filter(|_| jobs.iter().any(Job::waits)) {
            intel.seal(jobs);
        }
        jobs.iter_mut().filter(|job| job.waits()).for_each(portable::seal);
    }

    /// Checks the ICVs of up to a batch of packets and decrypts the bodies of those that are
    /// authentic; other bodies are undefined. The jobs' order changes.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        order(jobs);
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = &mut self.lanes {
            lanes.open(jobs);
        }
        #[cfg(feature = "ipsec-mb")]
        if let Some(intel) = self.intel.as_mut().filter(|_| jobs.iter().any(Job::waits)) {
            intel.open(jobs);
        }
        jobs.iter_mut().filter(|job| job.waits()).for_each(portable::open);
    }
}

/// Seals or opens one packet, by the portable code.
pub(super) fn seal_or_open(job: &mut Job<'_>, opens: bool) {
    if opens { portable::open(job) } else { portable::seal(job) }
}

/// Sorts jobs suite by suite, the longest first, by what is encrypted and what is authenticated:
/// packets that are processed side by side then have similar lengths.
fn order(jobs: &mut [Job<'_>]) {
    assert!(jobs.len() <= BATCH);
    let len = |job: &Job<'_>| 2 * job.end + usize::from(job.high.is_some());
    let compare = |a: &Job<'_>, b: &Job<'_>| {
        // Most even have the same keys.
        let same = std::ptr::eq(a.cipher, b.cipher);
        let suites = if same { Ordering::Equal } else { a.cipher.suite.cmp(&b.cipher.suite) };
        suites.then_with(|| len(b).cmp(&len(a)))
    };
    if !jobs.is_sorted_by(|a, b| compare(a, b).is_le()) {
        jobs.sort_unstable_by(compare);
    }
}
