//! Addresses on their way down, with AVX-512: sixteen or eight to a register.
//!
//! A register waits for the slowest load of its lanes. So, where so few addresses are looked up that
//! registers of eight hold them all on their way, they do not wait for as many others; with more
//! addresses, others go on meanwhile, and registers of sixteen take fewer instructions.

/// `Way` of a module that has named the instructions for its registers.
macro_rules! way {
    ($vector:ty, $mask:ty) => {
        /// Addresses on their way down.
        #[derive(Clone, Copy)]
        struct Way {
            /// The first 32 bits of the addresses.
            first: $vector,
            /// The second 32 bits.
            second: $vector,
            entries: $vector,
        }

        impl Way {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            #[inline]
            fn new(root: &Root, addresses: &[u128; LANES]) -> Self {
                let (first, second) = upper_halves(addresses);
                assert!(root.top.len() == 1 << TOP);
                let (slots, none) = (srli::<16>(first), set1(0));
                let top = root.top.as_ptr().cast();
                // SAFETY: the top table has an entry, which is a word, for each value of 16 bits.
                let entries = unsafe { mask_gather::<4>(none, all() as $mask, slots, top) };
                Self { first, second, entries }
            }

            /// The lowest 8 bits of the lanes are those of the first 32 bits from `shift` on.
            #[target_feature(enable = "avx512f,avx512vl")]
            #[inline]
            fn first_bits(&self, shift: i32) -> $vector {
                srl(self.first, _mm_cvtsi32_si128(shift))
            }

            /// Likewise of the second 32 bits.
            #[target_feature(enable = "avx512f,avx512vl")]
            #[inline]
            fn second_bits(&self, shift: i32) -> $vector {
                srl(self.second, _mm_cvtsi32_si128(shift))
            }

            /// On by 8 bits, the lowest of the lanes of `bits`; those that are not done by that.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            #[inline]
            fn step(&mut self, words: &[AtomicU32], bits: $vector) -> $mask {
                let of = movepi32_mask(self.entries);
                let number = |n: u32| set1(n.cast_signed());
                let leaf = mask_test(of, self.entries, number(Entry::LEAF));
                let slot = and(bits, number(0xff));
                // The flags are shifted out.
                const { assert!(UNIT == 1 << 6 && Entry::LEAF >= 1 << (u32::BITS - 6)) };
                let group = slli::<6>(self.entries);
                let at = add(group, mask_srli::<2>(slot, leaf, slot));
                let words = words.as_ptr().cast();
                // SAFETY: the entries of these lanes name groups of the arena, with a word for each
                // value of 8 bits, or of 6 where they are leaves.
                let next = unsafe { mask_gather::<4>(self.entries, of, at, words) };
                // Of a leaf's word, which has four entries, the right one. Only the lowest 5 bits
                // say how far it is.
                let right = rorv(next, slli::<3>(bits));
                self.entries = mask_and(next, leaf, right, number(0xff));
                movepi32_mask(self.entries)
            }

            /// Writes the next hops; those of the lanes that are returned are none yet.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            #[inline]
            fn finish(&self, hops: &mut [HopId; LANES]) -> $mask {
                // SAFETY: as many next hops are numbers of 16 bits; the store needs no alignment.
                unsafe { store(hops.as_mut_ptr().cast(), narrow(self.entries)) };
                movepi32_mask(self.entries)
            }
        }
    };
}

pub(super) mod eight;
pub(super) mod sixteen;

/// All lanes. The compiler makes such a mask of the register k0 combined with itself, and the
/// processor waits for what k0 is of: the end of the lookups before.
#[inline]
fn all() -> u32 {
    let lanes: u32;
    // SAFETY: a register is set.
    unsafe {
        core::arch::asm!(
            "mov {:e}, 0xffff", out(reg) lanes, options(pure, nomem, nostack, preserves_flags)
        );
    }
    lanes
}
