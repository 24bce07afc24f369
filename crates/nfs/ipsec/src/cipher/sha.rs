//! SHA-1 and SHA-256 (FIPS 180-4) over vectors, of which each lane holds a word of one message,
//! and the keys of their HMACs (RFC 2104).

use std::array::from_mut;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A word of as many messages as it has lanes.
pub(super) trait Words: Copy {
    /// The number of registers: a block and a state with more words than this stay in memory
    /// ([`leave`]).
    const AT_HAND: usize;
    /// Makes the compiler reload what it has stored.
    fn forget() {}
    /// The same word in all lanes.
    fn all(word: u32) -> Self;
    fn add(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shift_right<const N: i32>(self) -> Self;
    /// `RIGHT` is 32 minus `LEFT`, for processors that build a rotation from two shifts.
    fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self;
    fn xor3(self, b: Self, c: Self) -> Self {
        self.xor(b).xor(c)
    }
    /// The bits of `b` where those of `self` are set, and of `c` elsewhere.
    fn choose(self, b: Self, c: Self) -> Self;
    /// The bits that are set in at least two of the three.
    fn majority(self, b: Self, c: Self) -> Self;
}

/// One message: the reference for the vectors.
impl Words for u32 {
    const AT_HAND: usize = usize::MAX;

    fn all(word: u32) -> Self {
        word
    }

    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    fn shift_right<const N: i32>(self) -> Self {
        self >> N
    }

    fn rotate_left<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        self.rotate_left(LEFT as u32)
    }

    fn choose(self, b: Self, c: Self) -> Self {
        self & b | !self & c
    }

    fn majority(self, b: Self, c: Self) -> Self {
        self & b | self & c | b & c
    }
}

/// Leaves the words of `N` blocks in memory if the processor has no registers for them besides `N`
/// states of `S` words. Otherwise the compiler would keep them in registers, and spill others to
/// the stack, where they straddle cache lines.
#[inline(always)]
fn leave<const N: usize, const S: usize, V: Words>() {
    if N * (S + BLOCK / 4) > V::AT_HAND {
        V::forget();
    }
}

/// The hashes' states, word by word.
pub(super) type State<V> = [V; WORDS];
/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
/// Words of a state; SHA-1 has five.
pub(super) const WORDS: usize = 8;

const SHA1_START: [u32; WORDS] =
    [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];
const SHA256_START: [u32; WORDS] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
const SHA1_CONSTANTS: [u32; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];
#[rustfmt::skip]
const SHA256_CONSTANTS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// `$round!(0)` to `$round!(15)`: unrolled, so that each word's index is a constant.
macro_rules! sixteen {
    ($round:ident) => {
        $round!(0);
        $round!(1);
        $round!(2);
        $round!(3);
        $round!(4);
        $round!(5);
        $round!(6);
        $round!(7);
        $round!(8);
        $round!(9);
        $round!(10);
        $round!(11);
        $round!(12);
        $round!(13);
        $round!(14);
        $round!(15);
    };
}
pub(super) use sixteen;

/// The states after the first block of both hashes, which depends on the key alone.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct HmacKeys {
    pub(super) inner: [u32; WORDS],
    pub(super) outer: [u32; WORDS],
}

impl HmacKeys {
    /// The states of a key of at most 64 bytes.
    ///
    /// # Panics
    /// If it is longer.
    pub(super) fn new<const SHA256: bool>(key: &[u8]) -> Self {
        let state = |pad: u8| {
            let mut block = [pad; BLOCK];
            block[..key.len()].iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            let mut words = [0; BLOCK / 4];
            for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
                *word = u32::from_be_bytes(*bytes);
            }
            block.zeroize();
            let mut state = if SHA256 { SHA256_START } else { SHA1_START };
            compress::<SHA256, 1, u32>(from_mut(&mut state), from_mut(&mut words));
            words.zeroize();
            state
        };
        Self { inner: state(0x36), outer: state(0x5c) }
    }
}

/// Hashes a block in each lane of `N` streams.
#[inline(always)]
pub(super) fn compress<const SHA256: bool, const N: usize, V: Words>(
    state: &mut [State<V>; N],
    words: &mut [[V; BLOCK / 4]; N],
) {
    let mut after = *state;
    if SHA256 {
        sha256(&mut after, words);
    } else {
        sha1(&mut after, words);
    }
    for (before, after) in state.iter_mut().flatten().zip(after.as_flattened()) {
        *before = V::add(*before, *after);
    }
}

/// The eighty rounds of SHA-1 (FIPS 180-4, section 6.1.2).
#[inline(always)]
fn sha1<const N: usize, V: Words>(state: &mut [State<V>; N], words: &mut [[V; BLOCK / 4]; N]) {
    macro_rules! round {
        ($function:expr, $k:expr, $i:expr, $extended:expr) => {
            for (state, w) in state.iter_mut().zip(&mut *words) {
                if $extended {
                    let mixed = V::xor3(w[($i + 13) & 15], w[($i + 8) & 15], w[($i + 2) & 15]);
                    w[$i] = V::rotate_left::<1, 31>(V::xor(mixed, w[$i]));
                }
                let [a, b, c, d, e, ..] = *state;
                let sum = V::add(V::add(e, V::all($k)), w[$i]);
                let mixed = $function(b, c, d);
                let sum = V::add(V::add(sum, mixed), V::rotate_left::<5, 27>(a));
                [state[0], state[1], state[2], state[3], state[4]] =
                    [sum, a, V::rotate_left::<30, 2>(b), c, d];
            }
            leave::<N, 5, V>();
        };
    }
    let [k0, k1, k2, k3] = SHA1_CONSTANTS;
    macro_rules! first {
        ($i:expr) => {
            round!(V::choose, k0, $i, false);
        };
    }
    macro_rules! second {
        ($i:expr) => {
            if $i < 4 {
                round!(V::choose, k0, $i, true);
            } else {
                round!(V::xor3, k1, $i, true);
            }
        };
    }
    macro_rules! third {
        ($i:expr) => {
            if $i < 8 {
                round!(V::xor3, k1, $i, true);
            } else {
                round!(V::majority, k2, $i, true);
            }
        };
    }
    macro_rules! fourth {
        ($i:expr) => {
            if $i < 12 {
                round!(V::majority, k2, $i, true);
            } else {
                round!(V::xor3, k3, $i, true);
            }
        };
    }
    macro_rules! fifth {
        ($i:expr) => {
            round!(V::xor3, k3, $i, true);
        };
    }
    sixteen!(first);
    sixteen!(second);
    sixteen!(third);
    sixteen!(fourth);
    sixteen!(fifth);
}

/// The sixty-four rounds of SHA-256 (FIPS 180-4, section 6.2.2).
#[inline(always)]
fn sha256<const N: usize, V: Words>(state: &mut [State<V>; N], words: &mut [[V; BLOCK / 4]; N]) {
    for sixteen in 0..4 {
        let constants = &SHA256_CONSTANTS[16 * sixteen..];
        macro_rules! round {
            ($i:expr) => {
                for (state, w) in state.iter_mut().zip(&mut *words) {
                    if sixteen > 0 {
                        let (x, y) = (w[($i + 1) & 15], w[($i + 14) & 15]);
                        let small0 = V::xor3(
                            V::rotate_left::<25, 7>(x), V::rotate_left::<14, 18>(x), V::shift_right::<3>(x)
                        );
                        let small1 = V::xor3(
                            V::rotate_left::<15, 17>(y), V::rotate_left::<13, 19>(y), V::shift_right::<10>(y)
                        );
                        let sum = V::add(w[$i], w[($i + 9) & 15]);
                        w[$i] = V::add(sum, V::add(small0, small1));
                    }
                    let [a, b, c, d, e, f, g, h] = *state;
                    let big1 = V::xor3(
                        V::rotate_left::<26, 6>(e), V::rotate_left::<21, 11>(e), V::rotate_left::<7, 25>(e)
                    );
                    let choice = V::choose(e, f, g);
                    let sum = V::add(V::add(h, V::all(constants[$i])), w[$i]);
                    let sum = V::add(sum, V::add(big1, choice));
                    let big0 = V::xor3(
                        V::rotate_left::<30, 2>(a), V::rotate_left::<19, 13>(a), V::rotate_left::<10, 22>(a)
                    );
                    let majority = V::majority(a, b, c);
                    let both = V::add(big0, majority);
                    *state = [V::add(sum, both), a, b, c, V::add(d, sum), e, f, g];
                }
                leave::<N, 8, V>();
            };
        }
        sixteen!(round);
    }
}
