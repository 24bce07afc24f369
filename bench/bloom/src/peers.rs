//! The filters of other projects, through their public functions.
//!
//! `unsafe` here: `sbbf-rs` takes pointers.
#![allow(unsafe_code)]

use std::hash::{BuildHasherDefault, Hasher};

use memmap2::{Advice, MmapMut};
use sbbf_rs::FilterFn;

/// Looks keys up with a function for one key.
pub fn one_by_one(
    contains: impl Fn(u32) -> bool,
    keys: &[u32],
    payloads: &[u32],
    found_keys: &mut [u32],
    found: &mut [u32],
) -> usize {
    let mut count = 0;
    for (key, payload) in keys.iter().zip(payloads) {
        // Without a branch, which random keys would make the processor guess.
        found_keys[count] = *key;
        found[count] = *payload;
        count += usize::from(contains(*key));
    }
    count
}

/// The finisher of MurmurHash3 for 64 bits: both peers take a hash.
fn mix(key: u32) -> u64 {
    let h = (u64::from(key) ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// `sbbf-rs` over memory with huge pages, as ours has.
pub struct ParquetBlocks {
    functions: FilterFn,
    memory: MmapMut,
    bytes: usize,
}

impl ParquetBlocks {
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let memory = MmapMut::map_anon(bytes.max(4 << 20))?;
        if bytes >= 2 << 20 {
            memory.advise(Advice::HugePage)?;
        }
        Ok(Self { functions: FilterFn::new(), memory, bytes })
    }

    pub fn insert(&mut self, key: u32) {
        let (blocks, memory) = (self.bytes / sbbf_rs::BUCKET_SIZE, self.memory.as_mut_ptr());
        // SAFETY: a mapping begins a page and has as many blocks, at least one.
        unsafe { self.functions.insert(memory, blocks, mix(key)) };
    }

    #[inline]
    pub fn contains(&self, key: u32) -> bool {
        let blocks = self.bytes / sbbf_rs::BUCKET_SIZE;
        // SAFETY: as in `insert`.
        unsafe { self.functions.contains(self.memory.as_ptr(), blocks, mix(key)) }
    }
}

/// `fastbloom`, which takes hashes as they are.
pub struct FastBloom(fastbloom::BloomFilter<BuildHasherDefault<Unused>>);

/// `fastbloom` requires a hasher; only functions that take a hash are called.
#[derive(Clone, Default)]
pub struct Unused;

impl Hasher for Unused {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _bytes: &[u8]) {}
}

impl FastBloom {
    pub fn new(bits: usize, hashes: u32) -> Self {
        let builder = fastbloom::BloomFilter::with_num_bits(bits);
        Self(builder.hasher(BuildHasherDefault::default()).hashes(hashes))
    }

    pub fn insert(&mut self, key: u32) {
        self.0.insert_hash(mix(key));
    }

    #[inline]
    pub fn contains(&self, key: u32) -> bool {
        self.0.contains_hash(mix(key))
    }
}
