//! CBC with HMAC of a whole batch side by side: with AVX-512 and VAES, or with AVX2 and AES-NI.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;
use subtle::ConstantTimeEq;
use thalweg_packet::{BATCH, Isa};

use super::aes_lanes::{self, AesKeys, BLOCK, Encryption, Text, idle_len};
use super::hmac_lanes::{Authentication, Message, TAG, Tail};
use super::sha::HmacKeys;
use super::{Job, avx2, in_step};
use crate::ipsec::suite::{HEADER, Hash, Suite};

/// Whether the processor has what this takes, at the level that uses it.
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
    aes: AesKeys,
    hash: Hash,
    hmac: HmacKeys,
}

impl Keys {
    /// `None` for other suites, and where the processor cannot.
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

/// Says that the processor can, at which level, and holds what idle lanes write, and the ends of messages.
pub(super) struct Lanes {
    isa: Isa,
    idle: Vec<u8>,
    tails: Box<[Tail; BATCH]>,
}

/// The packets of a batch whose suites take the same steps.
#[derive(Default)]
struct Group<'a> {
    /// Which of the jobs they are.
    jobs: ArrayVec<usize, BATCH>,
    texts: ArrayVec<Text<'a>, BATCH>,
    messages: ArrayVec<Message<'a>, BATCH>,
}

impl Lanes {
    /// `None` where the level or the processor has no such instructions.
    pub(super) fn new(isa: Isa) -> Option<Self> {
        let tails = Box::new([const { Tail::EMPTY }; BATCH]);
        let best = [Isa::Avx512, Isa::Avx2].into_iter().find(|l| *l <= isa && is_available(*l))?;
        Some(Self { isa: best, idle: Vec::new(), tails })
    }

    /// Seals those of the jobs, the longest first, that have keys for it.
    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        for kind in kinds(jobs) {
            let mut group = Group::default();
            group.fill(kind, jobs);
            let mut tags = [[0; TAG]; BATCH];
            let seal: Kernel = match (self.isa, kind.hash) {
                (Isa::Avx512, Hash::Sha1) => Self::seal_group::<false>,
                (Isa::Avx512, Hash::Sha256) => Self::seal_group::<true>,
                (_, Hash::Sha1) => Self::seal_eights::<false>,
                (_, Hash::Sha256) => Self::seal_eights::<true>,
            };
            // SAFETY: the processor has the instructions, as there is a `Lanes`; the group's
            // packets are those of jobs.
            unsafe { seal(self, &group, &mut tags) };
            for (job, tag) in group.jobs.iter().zip(&tags) {
                let job = &mut jobs[*job];
                put(tag, &mut job.esp[job.end..]);
                job.finish(true);
            }
        }
    }

    /// Opens those of the jobs, the longest first, that have keys for it.
    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        let mut received = [[0; TAG]; BATCH];
        for (job, received) in jobs.iter_mut().zip(&mut received) {
            let icv = &*job.parts().icv;
            received[..icv.len()].copy_from_slice(icv);
        }
        for kind in kinds(jobs) {
            let mut group = Group::default();
            group.fill(kind, jobs);
            let mut tags = [[0; TAG]; BATCH];
            let authenticate: Kernel = match (self.isa, kind.hash) {
                (Isa::Avx512, Hash::Sha1) => Self::authenticate::<false>,
                (Isa::Avx512, Hash::Sha256) => Self::authenticate::<true>,
                (_, Hash::Sha1) => Self::authenticate_eights::<false>,
                (_, Hash::Sha256) => Self::authenticate_eights::<true>,
            };
            // SAFETY: the processor has the instructions, as there is a `Lanes`; the group's
            // packets are those of jobs.
            unsafe { authenticate(self, &group, &mut tags) };
            for (n, tag) in group.jobs.iter().zip(&tags) {
                let job = &mut jobs[*n];
                let len = job.cipher.shape.icv;
                let authentic = tag[..len].ct_eq(&received[*n][..len]).into();
                if let (true, Some(keys)) = (authentic, &job.cipher.lanes) {
                    let text = &mut job.esp[HEADER..job.end];
                    let decrypt: unsafe fn(&AesKeys, &mut [u8]) = match self.isa {
                        Isa::Avx512 => aes_lanes::decrypt,
                        _ => avx2::decrypt,
                    };
                    // SAFETY: the processor has the instructions, as `Lanes` says.
                    unsafe { decrypt(&keys.aes, text) };
                }
                job.finish(authentic);
            }
        }
    }

    /// Makes it as long as lanes beside the longest packet, the first, need.
    fn lengthen_idle(&mut self, group: &Group<'_>) {
        let most = group.texts.first().map_or(0, |longest| idle_len(longest.blocks));
        if self.idle.len() < most {
            self.idle.resize(most, 0);
        }
    }

    /// Encrypts and authenticates what all packets have in step, and the rest piece by piece: what
    /// is hashed is then still in the cache.
    ///
    /// # Safety
    /// The processor has the instructions, and the group's packets are there.
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    unsafe fn seal_group<const SHA256: bool>(
        &mut self,
        group: &Group<'_>,
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        /// Blocks of a piece.
        const PIECE: usize = 16;
        if group.texts.is_empty() {
            return;
        }
        self.lengthen_idle(group);
        let mut encryption = Encryption::new(&group.texts, &mut self.idle);
        let mut authentication = Authentication::new(&group.messages, &mut self.tails);
        let mut unfinished = group.texts.len();
        while unfinished > 0 {
            let idle = &mut self.idle;
            // SAFETY: the packets are there, as the caller says.
            unsafe { in_step::advance::<SHA256>(&mut encryption, &mut authentication, idle) };
            let end = encryption.done() + PIECE;
            // SAFETY: as above.
            unfinished = unsafe { encryption.advance(end, idle) };
            // SAFETY: the packets are there, and so much of them is encrypted.
            unsafe {
                authentication.advance::<SHA256>(HEADER + (1 + end) * BLOCK, unfinished);
            }
        }
        authentication.finish::<SHA256>(tags);
    }

    /// # Safety
    /// The processor has the instructions, and the group's packets are there.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn authenticate<const SHA256: bool>(
        &mut self,
        group: &Group<'_>,
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        if !group.messages.is_empty() {
            let mut authentication = Authentication::new(&group.messages, &mut self.tails);
            // SAFETY: the packets are there, as the caller says, the longest first.
            unsafe { authentication.advance::<SHA256>(0, 0) };
            authentication.finish::<SHA256>(tags);
        }
    }
}

/// The kernels of eight lanes.
impl Lanes {
    /// # Safety
    /// The processor has the instructions, and the group's packets are there.
    #[target_feature(enable = "avx2,aes")]
    unsafe fn seal_eights<const SHA256: bool>(
        &mut self,
        group: &Group<'_>,
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        self.lengthen_idle(group);
        // SAFETY: the caller says so.
        unsafe { avx2::seal::<SHA256>(&group.texts, &group.messages, tags, &mut self.idle) };
    }

    /// # Safety
    /// The processor has the instructions, and the group's packets are there.
    #[target_feature(enable = "avx2")]
    #[expect(clippy::unused_self, reason = "a kernel as the others")]
    unsafe fn authenticate_eights<const SHA256: bool>(
        &mut self,
        group: &Group<'_>,
        tags: &mut [[u8; TAG]; BATCH],
    ) {
        // SAFETY: the caller says so.
        unsafe { avx2::authenticate::<SHA256>(&group.messages, tags) };
    }
}

/// Does a group's work and gives the tags of its packets, in order.
type Kernel = unsafe fn(&mut Lanes, &Group<'_>, &mut [[u8; TAG]; BATCH]);

/// What packets that are worked on together have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StepKind {
    /// Rounds of AES.
    rounds: usize,
    hash: Hash,
}

impl StepKind {
    fn of(keys: &Keys) -> Self {
        Self { rounds: keys.aes.rounds(), hash: keys.hash }
    }
}

/// The kinds that the jobs are of.
fn kinds(jobs: &[Job<'_>]) -> ArrayVec<StepKind, 4> {
    let mut kinds = ArrayVec::new();
    for alike in jobs.chunk_by(|a, b| std::ptr::eq(a.cipher, b.cipher)) {
        let Some(keys) = &alike[0].cipher.lanes else { continue };
        let kind = StepKind::of(keys);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

impl<'a> Group<'a> {
    /// Takes those of `kind`, which stay as they are but for their ICVs: an extended sequence
    /// number's upper half is authenticated as if it stood behind the body (RFC 4303, 2.2.1), and is
    /// put there. Fills the group where it stays, as a copy would wait for what was just stored.
    fn fill(&mut self, kind: StepKind, jobs: &mut [Job<'a>]) {
        let mut n = 0;
        for alike in jobs.chunk_by_mut(|a, b| std::ptr::eq(a.cipher, b.cipher)) {
            let (first, cipher) = (n, alike[0].cipher);
            n += alike.len();
            if let Some(keys) = cipher.lanes.as_ref().filter(|keys| StepKind::of(keys) == kind) {
                self.extend(first, keys, cipher.shape.body, alike);
            }
        }
    }

    /// Adds jobs with these keys, of which the first has this number.
    fn extend(&mut self, first: usize, keys: &'a Keys, body: usize, jobs: &mut [Job<'a>]) {
        for (n, job) in jobs.iter_mut().enumerate() {
            let mut len = job.end;
            if let Some(high) = job.high {
                job.esp[len..len + 4].copy_from_slice(&high.to_be_bytes());
                len += 4;
            }
            let start = job.esp.as_mut_ptr();
            let (iv, blocks) = (start.wrapping_add(HEADER), (job.end - body) / BLOCK);
            self.texts.push(Text { keys: &keys.aes, iv, blocks });
            self.messages.push(Message { keys: &keys.hmac, start, len });
            self.jobs.push(first + n);
        }
    }
}

/// Puts the first bytes of a tag where the ICV is.
fn put(tag: &[u8; TAG], icv: &mut [u8]) {
    // Lengths that the compiler knows are one store each.
    if let Some(icv) = icv.first_chunk_mut::<TAG>() {
        *icv = *tag;
    } else if let (Some(icv), Some(tag)) = (icv.first_chunk_mut::<12>(), tag.first_chunk()) {
        *icv = *tag;
    }
}
