//! CBC with HMAC of a whole batch side by side: with AVX-512 and VAES, or with AVX2 and AES-NI.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;
use subtle::ConstantTimeEq;
use thalweg_cpu::{Isa, avx2, avx512};
use thalweg_packet::BATCH;

use super::aes_lanes::{self, AesKeys, BLOCK, Encryption, idle_len};
use super::hmac_lanes::{Authentication, TAG, Tail};
use super::sha::HmacKeys;
use super::{Job, avx2, in_step};
use crate::suite::{HEADER, Hash, Suite};

/// Whether the processor has the instructions that this level needs.
fn is_available(isa: Isa) -> bool {
    use std::arch::is_x86_feature_detected as has;
    isa.is_available()
        && match isa {
            Isa::Scalar => false,
            Isa::Avx2 => has!("aes"),
            Isa::Avx512 => has!("aes") && has!("vaes"),
        }
}

/// Expanded keys.
pub(super) struct Keys {
    pub(super) aes: AesKeys,
    hash: Hash,
    pub(super) hmac: HmacKeys,
}

impl Keys {
    /// Returns `None` for other suites, and if the processor lacks the instructions.
    pub(super) fn new(suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<Self> {
        let Suite::Cbc(_, hash) = suite else { return None };
        if !is_available(Isa::Avx2) {
            return None;
        }
        let hmac = match hash {
            Hash::Sha1 => HmacKeys::new::<false>(auth_key),
            Hash::Sha256 => HmacKeys::new::<true>(auth_key),
        };
        // SAFETY: the processor has the instructions.
        let aes = unsafe { AesKeys::new(key) };
        Some(Self { aes, hash, hmac })
    }
}

/// Proof that the processor has the instructions, and of which level. Holds the memory that idle
/// lanes write, and the ends of messages.
pub(super) struct Lanes {
    isa: Isa,
    idle: Vec<u8>,
    tails: Box<[Tail; BATCH]>,
}

/// A packet as the lanes process it: ESP's header, the IV, and the encrypted body.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) keys: &'a Keys,
    /// Where the header begins.
    pub(super) start: *mut u8,
    /// Blocks that are encrypted.
    pub(super) blocks: usize,
    /// Bytes that are authenticated, from the header on.
    pub(super) len: usize,
}

impl Packet<'_> {
    pub(super) fn iv(&self) -> *mut u8 {
        self.start.wrapping_add(HEADER)
    }
}

/// Whether packets have the same keys.
pub(super) fn alike(packets: &[Packet<'_>]) -> bool {
    packets.windows(2).all(|two| std::ptr::eq(two[0].keys, two[1].keys))
}

/// The packets of a batch that have one suite, the longest first.
type Packets<'a> = ArrayVec<Packet<'a>, BATCH>;

impl Lanes {
    /// Returns `None` if the level or the processor has no such instructions.
    pub(super) fn new(isa: Isa) -> Option<Self> {
        let tails = Box::new([const { Tail::EMPTY }; BATCH]);
        let best = [Isa::Avx512, Isa::Avx2].into_iter().find(|l| *l <= isa && is_available(*l))?;
        Some(Self { isa: best, idle: Vec::new(), tails })
    }

    /// Seals the jobs that have keys for it. They are sorted suite by suite, the longest first.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunk_by_mut(are_of_one_suite) {
            let Some(keys) = &jobs[0].cipher.lanes else { continue };
            let seal: Kernel = match (self.isa, keys.hash) {
                (Isa::Avx512, Hash::Sha1) => Self::seal_sixteens::<false>,
                (Isa::Avx512, Hash::Sha256) => Self::seal_sixteens::<true>,
                (_, Hash::Sha1) => Self::seal_eights::<false>,
                (_, Hash::Sha256) => Self::seal_eights::<true>,
            };
            let (mut packets, mut tags) = (Packets::new(), [[0; TAG]; BATCH]);
            fill(&mut packets, jobs);
            // SAFETY: the processor has the instructions, as there is a `Lanes`; the packets are
            // those of jobs.
            unsafe { seal(self, &packets, &mut tags) };
            for (job, tag) in jobs.iter_mut().zip(&tags) {
                put(tag, &mut job.esp[job.end..]);
                job.finish(true);
            }
        }
    }

    /// Opens the jobs that have keys for it. They are sorted suite by suite, the longest first.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunk_by_mut(are_of_one_suite) {
            let Some(keys) = &jobs[0].cipher.lanes else { continue };
            let authenticate: Kernel = match (self.isa, keys.hash) {
                (Isa::Avx512, Hash::Sha1) => Self::authenticate_sixteens::<false>,
                (Isa::Avx512, Hash::Sha256) => Self::authenticate_sixteens::<true>,
                (_, Hash::Sha1) => Self::authenticate_eights::<false>,
                (_, Hash::Sha256) => Self::authenticate_eights::<true>,
            };
            let mut received = [[0; TAG]; BATCH];
            for (job, received) in jobs.iter_mut().zip(&mut received) {
                let icv = &*job.parts().icv;
                received[..icv.len()].copy_from_slice(icv);
            }
            let (mut packets, mut tags) = (Packets::new(), [[0; TAG]; BATCH]);
            fill(&mut packets, jobs);
            // SAFETY: the processor has the instructions, as there is a `Lanes`; the packets are
            // those of jobs.
            unsafe { authenticate(self, &packets, &mut tags) };
            for (job, (tag, received)) in jobs.iter_mut().zip(tags.iter().zip(&received)) {
                let len = job.cipher.shape.icv;
                let authentic = tag[..len].ct_eq(&received[..len]).into();
                if authentic {
                    self.decrypt(job);
                }
                job.finish(authentic);
            }
        }
    }

    fn decrypt(&self, job: &mut Job<'_>) {
        let Some(keys) = &job.cipher.lanes else { return };
        let text = &mut job.esp[HEADER..job.end];
        let decrypt: unsafe fn(&AesKeys, &mut [u8]) = match self.isa {
            Isa::Avx512 => aes_lanes::decrypt,
            _ => avx2::decrypt,
        };
        // SAFETY: the processor has the instructions, as there is a `Lanes`.
        unsafe { decrypt(&keys.aes, text) };
    }

    /// Makes `idle` long enough for idle lanes beside the longest packet, the first.
    fn lengthen_idle(&mut self, packets: &[Packet<'_>]) {
        let most = packets.first().map_or(0, |longest| idle_len(longest.blocks));
        if self.idle.len() < most {
            self.idle.resize(most, 0);
        }
    }

    /// Encrypts and authenticates in step the blocks that all packets have, and the rest piece by
    /// piece, so that the hash finds its input in the cache.
    ///
    /// # Safety
    /// The processor has the instructions, and the packets are valid memory.
    #[avx512]
    #[target_feature(enable = "vaes")]
    unsafe fn seal_sixteens<const SHA256: bool>(
        &mut self,
        packets: &[Packet<'_>],
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        /// Blocks per piece.
        const PIECE: usize = 16;
        self.lengthen_idle(packets);
        let (alike, idle) = (alike(packets), &mut self.idle[..]);
        let mut encryption = Encryption::new(packets, alike, idle);
        let mut authentication = Authentication::new(packets, alike, &mut self.tails);
        let mut unfinished = packets.len();
        while unfinished > 0 {
            // SAFETY: the packets are valid memory, as the caller guarantees.
            unsafe { in_step::advance::<SHA256>(&mut encryption, &mut authentication, idle) };
            let end = encryption.done() + PIECE;
            // SAFETY: as above.
            unfinished = unsafe { encryption.advance(end, idle) };
            // SAFETY: the packets are valid memory, and encrypted that far.
            unsafe {
                authentication.advance::<SHA256>(HEADER + (1 + end) * BLOCK, unfinished);
            }
        }
        authentication.finish::<SHA256>(tags);
    }

    /// # Safety
    /// The processor has the instructions, and the packets are valid memory.
    #[avx512]
    unsafe fn authenticate_sixteens<const SHA256: bool>(
        &mut self,
        packets: &[Packet<'_>],
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        let mut authentication = Authentication::new(packets, alike(packets), &mut self.tails);
        // SAFETY: the packets are valid memory, as the caller guarantees, the longest first.
        unsafe { authentication.advance::<SHA256>(0, 0) };
        authentication.finish::<SHA256>(tags);
    }

    /// # Safety
    /// The processor has the instructions, and the packets are valid memory.
    #[avx2]
    #[target_feature(enable = "aes")]
    unsafe fn seal_eights<const SHA256: bool>(
        &mut self,
        packets: &[Packet<'_>],
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        self.lengthen_idle(packets);
        // SAFETY: the caller guarantees it.
        unsafe { avx2::seal::<SHA256>(packets, tags, &mut self.idle) };
    }

    /// # Safety
    /// The processor has the instructions, and the packets are valid memory.
    #[avx2]
    #[expect(clippy::unused_self, reason = "a kernel as the others")]
    unsafe fn authenticate_eights<const SHA256: bool>(
        &mut self,
        packets: &[Packet<'_>],
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        // SAFETY: the caller guarantees it.
        unsafe { avx2::authenticate::<SHA256>(packets, tags) };
    }
}

/// Seals or authenticates one packet or more, the longest first, and writes their tags, in order.
type Kernel = unsafe fn(&mut Lanes, &[Packet<'_>], &mut [[u8; TAG]; BATCH]);

fn are_of_one_suite(a: &Job<'_>, b: &Job<'_>) -> bool {
    std::ptr::eq(a.cipher, b.cipher) || a.cipher.suite == b.cipher.suite
}

/// Fills `packets` from jobs. Only the ICVs of these change: an extended sequence number's upper
/// half is authenticated as if it followed the body (RFC 4303, 2.2.1), and is written there. Filled
/// in place, as a copy would wait for the stores just made.
fn fill<'a>(packets: &mut Packets<'a>, jobs: &mut [Job<'a>]) {
    // Either all packets of a suite have such keys, or none.
    packets.extend(jobs.iter_mut().filter_map(|job| {
        let (keys, mut len) = (job.cipher.lanes.as_ref()?, job.end);
        let blocks = (len - job.cipher.shape.body) / BLOCK;
        if let Some(high) = job.high {
            job.esp[len..len + 4].copy_from_slice(&high.to_be_bytes());
            len += 4;
        }
        Some(Packet { keys, start: job.esp.as_mut_ptr(), blocks, len })
    }));
}

/// Writes the first bytes of a tag as the ICV.
fn put(tag: &[u8; TAG], icv: &mut [u8]) {
    // Lengths that the compiler knows are one store each.
    if let Some(icv) = icv.first_chunk_mut::<TAG>() {
        *icv = *tag;
    } else if let (Some(icv), Some(tag)) = (icv.first_chunk_mut::<12>(), tag.first_chunk()) {
        *icv = *tag;
    }
}
