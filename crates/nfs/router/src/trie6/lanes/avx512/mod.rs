//! The descent of addresses, with AVX-512: sixteen or eight to a register.
//!
//! A register waits for the slowest load of its lanes. So, if the addresses are few enough for
//! registers of eight to hold all of them, each waits for fewer others; with more addresses, other
//! registers proceed meanwhile, and registers of sixteen take fewer instructions.

/// Defines `Way` in a module that has imported the instructions for its registers.
macro_rules! way {
    ($vector:ty, $mask:ty) => {
        /// The descent of the addresses of a register.
        #[derive(Clone, Copy)]
        struct Way {
            /// The first 32 bits of the addresses.
            first: $vector,
            /// The second 32 bits.
            second: $vector,
            entries: $vector,
        }

        impl Way {
            #[avx512]
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
            #[avx512]
            #[inline]
            fn first_bits(&self, shift: i32) -> $vector {
                srl(self.first, _mm_cvtsi32_si128(shift))
            }

            /// Likewise of the second 32 bits.
            #[avx512]
            #[inline]
            fn second_bits(&self, shift: i32) -> $vector {
                srl(self.second, _mm_cvtsi32_si128(shift))
            }

            /// Descends by 8 bits, the lowest of each lane of `bits`; returns the lanes not done.
            #[avx512]
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
                // Selects the entry in a leaf's word, which has four. The rotation uses only the
                // lowest 5 bits of its count.
                let right = rorv(next, slli::<3>(bits));
                self.entries = mask_and(next, leaf, right, number(0xff));
                movepi32_mask(self.entries)
            }

            /// Writes the next hops; returns the lanes that have none yet.
            #[avx512]
            #[inline]
            fn finish(&self, hops: &mut [HopId; LANES]) -> $mask {
                // SAFETY: `LANES` next hops are numbers of 16 bits; the store needs no alignment.
                unsafe { store(hops.as_mut_ptr().cast(), narrow(self.entries)) };
                movepi32_mask(self.entries)
            }
        }
    };
}

pub(super) mod eight;
pub(super) mod sixteen;

/// A mask of all lanes. The compiler would compute it from the register k0 and itself, so that the
/// processor waits for the last write to k0: the end of the lookups before.
#[inline]
fn all() -> u32 {
    let lanes: u32;
    // SAFETY: the instruction only sets a register.
    unsafe {
        core::arch::asm!(
            "mov {:e}, 0xffff", out(reg) lanes, options(pure, nomem, nostack, preserves_flags)
        );
    }
    lanes
}
