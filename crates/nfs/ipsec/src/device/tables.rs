//! What a device reads to seal and open packets: the tables of AES, and the keys as it wants them.

use std::ops::Range;

use sha1::block_api::compress;
use zeroize::Zeroizing;

/// Where an association's AES key is, in bytes.
pub(super) const KEY: Range<usize> = 0..16;
/// Where its authentication key is.
pub(super) const AUTH_KEY: Range<usize> = 16..36;
/// Bytes of an association.
const ASSOCIATION: usize = 800;
/// Bytes of the tables of AES, with which a table begins.
pub(super) const TABLES: usize = 2560;
/// Where the number of associations is.
const NUMBER: Range<usize> = 2560..2564;
/// Where they begin.
const ASSOCIATIONS: usize = 2624;

/// The keys of an association: AES-128's and HMAC-SHA1's.
pub type Association<'a> = (&'a [u8; 16], &'a [u8; 20]);

/// The table for packets of these associations. It is allocated once, so that no copy of keys is left.
pub fn table(associations: &[Association<'_>]) -> Vec<u8> {
    let sub = substitutions();
    let mut unsub = [0; 256];
    (0..=255u8).for_each(|byte| unsub[usize::from(sub[usize::from(byte)])] = byte);
    let mut table = Vec::with_capacity(ASSOCIATIONS + associations.len() * ASSOCIATION);
    let words = |table: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| table.extend(word.to_ne_bytes()));
    };
    words(&mut table, &sub.map(|byte| column(byte, [2, 1, 1, 3])));
    words(&mut table, &unsub.map(|byte| column(byte, [14, 9, 13, 11])));
    table.extend(sub);
    table.extend(unsub);
    words(&mut table, &[associations.len() as u32]);
    table.resize(ASSOCIATIONS, 0);
    for (key, auth_key) in associations {
        let start = table.len();
        table.extend(*key);
        table.extend(*auth_key);
        table.resize(start + 48, 0);
        let round = Zeroizing::new(expand(key, &sub));
        words(&mut table, &*round);
        words(&mut table, &*Zeroizing::new(inverse(&round)));
        for pad in [0x36, 0x5c] {
            words(&mut table, &*Zeroizing::new(first_state(auth_key, pad)));
        }
        words(&mut table, &[0; 2]);
        words(&mut table, &planes(&round));
        debug_assert_eq!(table.len(), start + ASSOCIATION);
    }
    table
}

/// The association of this number in a table.
pub(super) fn association(table: &[u8], number: usize) -> Option<&[u8]> {
    let count = table.get(NUMBER)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))?;
    let all = table.get(ASSOCIATIONS..)?.chunks_exact(ASSOCIATION);
    all.take(count as usize).nth(number)
}

/// Multiplies in the field of AES (FIPS 197, section 4.2).
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        sum ^= a * (b & 1);
        a = (a << 1) ^ ((a >> 7) * 0x1b);
        b >>= 1;
    }
    sum
}

/// A byte multiplied into a column of four, the first in the highest bits.
fn column(byte: u8, by: [u8; 4]) -> u32 {
    u32::from_be_bytes(by.map(|by| product(byte, by)))
}

/// SubBytes (FIPS 197, section 5.1.1): the inverse in the field, then an affine map.
fn substitutions() -> [u8; 256] {
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        let inverse = (1..=255).find(|other| product(byte, *other) == 1).unwrap_or(0u8);
        (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
    })
}

/// The round keys (FIPS 197, section 5.2).
fn expand(key: &[u8; 16], sub: &[u8; 256]) -> [u32; 44] {
    let mut round = [0; 44];
    for (word, bytes) in round.iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let mut constant = 1;
    for at in 4..44 {
        let mut last = round[at - 1];
        if at % 4 == 0 {
            let turned = last.rotate_left(8).to_be_bytes();
            last = u32::from_be_bytes(turned.map(|byte| sub[usize::from(byte)]));
            last ^= u32::from(constant) << 24;
            constant = product(constant, 2);
        }
        round[at] = round[at - 4] ^ last;
    }
    round
}

/// The round keys of the equivalent inverse cipher (FIPS 197, section 5.3.5).
fn inverse(round: &[u32; 44]) -> [u32; 44] {
    let unmixed = |word: u32| {
        let bytes = word.to_be_bytes().into_iter().enumerate();
        bytes.fold(0, |sum, (at, byte)| {
            sum ^ column(byte, [14, 9, 13, 11]).rotate_right(8 * at as u32)
        })
    };
    std::array::from_fn(|at| match at {
        0..4 | 40..44 => round[40 - at / 4 * 4 + at % 4],
        _ => unmixed(round[40 - at / 4 * 4 + at % 4]),
    })
}

/// The round keys in planes of bits, for both blocks of `aes_sliced.cl`, which has the layout: after each
/// round, row `r` lies `r` columns further. The constant of SubBytes, which passes MixColumns as it is, is
/// in them.
fn planes(round: &[u32; 44]) -> [u32; 88] {
    let mut planes = [0; 88];
    for (at, columns) in round.chunks(4).enumerate() {
        for (column, word) in columns.iter().enumerate() {
            for (row, byte) in word.to_be_bytes().into_iter().enumerate() {
                let byte = byte ^ if at == 0 { 0 } else { 0x63 };
                let place = 8 * (3 - row) + 2 * ((column + at * row) % 4);
                for bit in 0..8 {
                    planes[8 * at + bit] |= u32::from(byte >> bit & 1) * (3 << place);
                }
            }
        }
    }
    planes
}

/// SHA-1 after the first block of HMAC (RFC 2104).
fn first_state(key: &[u8; 20], pad: u8) -> [u32; 5] {
    let mut block = Zeroizing::new([pad; 64]);
    block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    compress(&mut state, std::slice::from_ref(&*block));
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_expand_as_in_the_standard() {
        // FIPS 197, appendix A.1 and figure 7.
        let key = *b"\x2b\x7e\x15\x16\x28\xae\xd2\xa6\xab\xf7\x15\x88\x09\xcf\x4f\x3c";
        let round = expand(&key, &substitutions());
        assert_eq!((round[4], round[43]), (0xa0fa_fe17, 0xb663_0ca6));
        assert_eq!(substitutions()[0x53], 0xed);
    }
}
