//! The baseline: AVX2 after Polychroniou and Ross, "Vectorized Bloom Filters for
//! Advanced SIMD Processors" (DaMoN 2014), with the input in partitions that are
//! worked at side by side.
//!
//! Each lane has a key and the number of the function that it has come to. A step
//! hashes all lanes with their functions, gathers their words and tests their bits.
//! Lanes that failed, or passed the last function, are moved to one end by a
//! permutation from a table, and filled with the keys that come next.
//!
//! `unsafe` here: the gather.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_epi8,
    _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_i32gather_epi32,
    _mm256_movemask_ps, _mm256_or_si256, _mm256_permutevar8x32_epi32, _mm256_setr_epi32,
    _mm256_setzero_si256, _mm256_sllv_epi32, _mm256_srli_epi32,
};

use thalweg_cpu::avx2;

use super::bits::{Bits, Input, Output};
use super::lanes256::{LANES, all, hash, load, reduce, store};

/// For each set of lanes, the permutation that brings the others to the front and
/// those of the set behind them, in order.
static LANES_TO_THE_END: [[u32; LANES]; 256] = lanes_to_the_end();

const fn lanes_to_the_end() -> [[u32; LANES]; 256] {
    let mut table = [[0; LANES]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut front, mut end) = (0, LANES - (set as u8).count_ones() as usize);
        let mut lane = 0;
        while lane < LANES {
            let to = if set >> lane & 1 == 0 { &mut front } else { &mut end };
            table[set][*to] = lane as u32;
            *to += 1;
            lane += 1;
        }
        set += 1;
    }
    table
}

/// One partition of the input, and the lanes that work at it.
struct Partition {
    keys: __m256i,
    payloads: __m256i,
    functions: __m256i,
    /// Lanes at the end that wait for new keys.
    idle: usize,
    /// The next key, and the end of the partition.
    next: usize,
    end: usize,
    /// Where the first result lies, and how many there are.
    first: usize,
    found: usize,
}

/// The keys that are in the filter, by `U` partitions.
#[avx2]
pub(super) fn select<const U: usize, const SHIFT: bool>(
    bits: &Bits,
    input: Input,
    output: &mut Output,
) -> usize {
    let part = input.keys.len() / U;
    let zero = _mm256_setzero_si256();
    let mut partitions: [Partition; U] = std::array::from_fn(|u| Partition {
        keys: zero,
        payloads: zero,
        functions: zero,
        idle: LANES,
        next: u * part,
        end: if u + 1 == U { input.keys.len() } else { (u + 1) * part },
        first: u * part,
        found: 0,
    });
    // A step may take as many keys as there are lanes.
    while partitions.iter().all(|p| p.next + LANES <= p.end) {
        for partition in &mut partitions {
            partition.step::<SHIFT>(bits, input, output);
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
    #[inline]
    #[avx2]
    fn step<const SHIFT: bool>(&mut self, bits: &Bits, input: Input, output: &mut Output) {
        self.refill(input);
        let hashes = bits.hashes();
        let of_lane = |table| _mm256_permutevar8x32_epi32(load(table), self.functions);
        let hashed = hash(self.keys, of_lane(&hashes.multipliers), of_lane(&hashes.seeds));
        let positions = reduce::<SHIFT>(bits.reduction(), hashed);
        let words = gather(bits, _mm256_srli_epi32::<5>(positions));
        let bit = _mm256_sllv_epi32(all(1), _mm256_and_si256(positions, all(31)));
        let failed = _mm256_cmpeq_epi32(_mm256_and_si256(words, bit), _mm256_setzero_si256());
        let last = _mm256_cmpeq_epi32(self.functions, all(hashes.count as u32 - 1));
        let passed = lanes(_mm256_andnot_si256(failed, last));
        if passed != 0 {
            // Those of the set come to the front when the others are sent to the end.
            let front = load(&LANES_TO_THE_END[passed ^ 0xff]);
            let at = self.first + self.found;
            let place = output.keys[at..].first_chunk_mut().expect("part of the partition");
            store(place, _mm256_permutevar8x32_epi32(self.keys, front));
            let place = output.payloads[at..].first_chunk_mut().expect("part of the partition");
            store(place, _mm256_permutevar8x32_epi32(self.payloads, front));
            self.found += passed.count_ones() as usize;
        }
        let gone = lanes(_mm256_or_si256(failed, last));
        let order = load(&LANES_TO_THE_END[gone]);
        self.keys = _mm256_permutevar8x32_epi32(self.keys, order);
        self.payloads = _mm256_permutevar8x32_epi32(self.payloads, order);
        self.functions =
            _mm256_permutevar8x32_epi32(_mm256_add_epi32(self.functions, all(1)), order);
        self.idle = gone.count_ones() as usize;
    }

    /// Gives the idle lanes the next keys and the first function.
    #[inline]
    #[avx2]
    fn refill(&mut self, input: Input) {
        let from_end = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
        let idle = _mm256_cmpgt_epi32(all(self.idle as u32), from_end);
        // The first new key comes into the first idle lane. Lanes have keys only when
        // eight keys and more were taken before.
        let from = self.next - (LANES - self.idle);
        let keys = input.keys[from..].first_chunk().expect("part of the partition");
        self.keys = _mm256_blendv_epi8(self.keys, load(keys), idle);
        let payloads = input.payloads[from..].first_chunk().expect("part of the partition");
        self.payloads = _mm256_blendv_epi8(self.payloads, load(payloads), idle);
        self.functions = _mm256_andnot_si256(idle, self.functions);
        self.next += self.idle;
    }

    /// Works at what is left in the lanes and in the partition, key by key.
    #[avx2]
    fn finish(&mut self, bits: &Bits, input: Input, output: &mut Output) {
        let mut lanes = [[0; LANES]; 3];
        store(&mut lanes[0], self.keys);
        store(&mut lanes[1], self.payloads);
        store(&mut lanes[2], self.functions);
        let [keys, payloads, functions] = lanes;
        let busy = (0..LANES - self.idle).map(|n| (keys[n], payloads[n], functions[n]));
        let rest = (self.next..self.end).map(|n| (input.keys[n], input.payloads[n], 0));
        for (key, payload, function) in busy.chain(rest) {
            if bits.contains_from(function as usize, key) {
                output.put(self.first + self.found, key, payload);
                self.found += 1;
            }
        }
    }
}

/// The lanes that have their highest bits set, as bits.
#[inline]
#[avx2]
fn lanes(v: __m256i) -> usize {
    _mm256_movemask_ps(_mm256_castsi256_ps(v)) as usize
}

/// The words at `at`, which positions less than the range lie in.
#[inline]
#[avx2]
fn gather(bits: &Bits, at: __m256i) -> __m256i {
    // SAFETY: positions are less than the range, whose words there are (`Bits`).
    unsafe { _mm256_i32gather_epi32::<4>(bits.words().as_ptr().cast(), at) }
}
