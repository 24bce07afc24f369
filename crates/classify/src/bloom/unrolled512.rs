//! AVX-512 with expanding loads and compressing stores, and the input in partitions
//! that are worked at side by side: Li, Han and Han, "Leveraging SIMD parallelism for
//! accelerating network applications" (APNet 2020).
//!
//! As the AVX2 form, but new keys expand into whichever lanes are idle, and the keys
//! that passed are compressed, so nothing is permuted by a table.
//!
//! `unsafe` here: the gather.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_castsi256_si512, _mm512_cmpeq_epi32_mask,
    _mm512_i32gather_epi32, _mm512_mask_expand_epi32, _mm512_mask_mov_epi32,
    _mm512_permutexvar_epi32, _mm512_rolv_epi32, _mm512_setzero_si512, _mm512_srli_epi32,
    _mm512_test_epi32_mask,
};

use super::bits::{Bits, Input, Output};
use super::lanes256;
use super::lanes512::{Function, LANES, all, append, load, reduce, store};
use thalweg_cpu::{avx512, prefetch};

/// One partition of the input, and the lanes that work at it.
struct Partition {
    keys: __m512i,
    payloads: __m512i,
    functions: __m512i,
    /// Lanes that wait for new keys.
    idle: u16,
    /// The next key, and the end of the partition.
    next: usize,
    end: usize,
    /// Where the first result lies, and how many there are.
    first: usize,
    found: usize,
}

/// The keys that are in the filter, by `U` partitions; `PREFETCH` prefetches the words
/// of all partitions before the first are gathered.
#[avx512]
pub(super) fn select<const U: usize, const SHIFT: bool, const PREFETCH: bool>(
    bits: &Bits,
    input: Input,
    output: &mut Output,
) -> usize {
    let part = input.keys.len() / U;
    let zero = _mm512_setzero_si512();
    let mut partitions: [Partition; U] = std::array::from_fn(|u| Partition {
        keys: zero,
        payloads: zero,
        functions: zero,
        idle: u16::MAX,
        next: u * part,
        end: if u + 1 == U { input.keys.len() } else { (u + 1) * part },
        first: u * part,
        found: 0,
    });
    // A step may take as many keys as there are lanes.
    while partitions.iter().all(|p| p.next + LANES <= p.end) {
        if PREFETCH {
            let mut positions = [zero; U];
            for (partition, positions) in partitions.iter_mut().zip(&mut positions) {
                *positions = partition.find::<SHIFT>(bits, input);
                ask(bits, *positions);
            }
            for (partition, positions) in partitions.iter_mut().zip(positions) {
                partition.test(bits, positions, output);
            }
        } else {
            for partition in &mut partitions {
                let positions = partition.find::<SHIFT>(bits, input);
                partition.test(bits, positions, output);
            }
        }
    }
    let mut found = 0;
    for partition in &mut partitions {
        partition.finish(bits, input, output);
        output.move_down(partition.first, partition.found, found);
        found += partition.found;
    }
    found
}

impl Partition {
    /// Fills the idle lanes, and gives the positions of all.
    #[inline]
    #[avx512]
    fn find<const SHIFT: bool>(&mut self, bits: &Bits, input: Input) -> __m512i {
        let keys = load(input.keys[self.next..].first_chunk().expect("part of the partition"));
        let payloads = input.payloads[self.next..].first_chunk().expect("part of the partition");
        self.keys = _mm512_mask_expand_epi32(self.keys, self.idle, keys);
        self.payloads = _mm512_mask_expand_epi32(self.payloads, self.idle, load(payloads));
        self.functions = _mm512_mask_mov_epi32(self.functions, self.idle, _mm512_setzero_si512());
        self.next += self.idle.count_ones() as usize;
        let of_lane = |table| {
            let table = _mm512_castsi256_si512(lanes256::load(table));
            _mm512_permutexvar_epi32(self.functions, table)
        };
        let hashes = bits.hashes();
        let function =
            Function { multiplier: of_lane(&hashes.multipliers), seed: of_lane(&hashes.seeds) };
        reduce::<SHIFT>(bits.reduction(), function.hash(self.keys))
    }

    /// Tests the bits at `positions`, and writes the keys that passed the last
    /// function.
    #[inline]
    #[avx512]
    fn test(&mut self, bits: &Bits, positions: __m512i, output: &mut Output) {
        let words = gather(bits, _mm512_srli_epi32::<5>(positions));
        let set = _mm512_test_epi32_mask(words, _mm512_rolv_epi32(all(1), positions));
        let last = _mm512_cmpeq_epi32_mask(self.functions, all(bits.hashes().count as u32 - 1));
        let passed = set & last;
        append(output.keys, self.first + self.found, passed, self.keys);
        append(output.payloads, self.first + self.found, passed, self.payloads);
        self.found += passed.count_ones() as usize;
        self.functions = _mm512_add_epi32(self.functions, all(1));
        self.idle = !set | last;
    }

    /// Works at what is left in the lanes and in the partition, key by key.
    #[avx512]
    fn finish(&mut self, bits: &Bits, input: Input, output: &mut Output) {
        let mut lanes = [[0; LANES]; 3];
        store(&mut lanes[0], self.keys);
        store(&mut lanes[1], self.payloads);
        store(&mut lanes[2], self.functions);
        let [keys, payloads, functions] = lanes;
        let busy = (0..LANES).filter(|n| self.idle >> n & 1 == 0);
        let busy = busy.map(|n| (keys[n], payloads[n], functions[n]));
        let rest = (self.next..self.end).map(|n| (input.keys[n], input.payloads[n], 0));
        for (key, payload, function) in busy.chain(rest) {
            if bits.contains_from(function as usize, key) {
                output.put(self.first + self.found, key, payload);
                self.found += 1;
            }
        }
    }
}

/// Asks for the words of `positions`.
#[inline]
#[avx512]
fn ask(bits: &Bits, positions: __m512i) {
    let mut words = [0; LANES];
    store(&mut words, _mm512_srli_epi32::<5>(positions));
    for word in words {
        prefetch::read(bits.words(), word as usize);
    }
}

/// The words at `at`, which positions less than the range lie in.
#[inline]
#[avx512]
fn gather(bits: &Bits, at: __m512i) -> __m512i {
    // SAFETY: positions are less than the range, whose words there are (`Bits`).
    unsafe { _mm512_i32gather_epi32::<4>(at, bits.words().as_ptr().cast()) }
}
