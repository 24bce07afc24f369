//! How common bytes are in traffic, so that what is rare is looked up.

use std::sync::LazyLock;

/// The approximate frequency of a byte in traffic.
pub(in super::super) fn commonness(byte: u8) -> u32 {
    match byte {
        b'a' | b'e' | b'i' | b'o' | b't' | b'n' | b's' | b'r' | b' ' => 9,
        b'a'..=b'z' | b'A'..=b'Z' => 7,
        b'0'..=b'9' | b'/' | b'.' | b':' | b'-' | b'=' | b'\r' | b'\n' | 0 => 6,
        b'!'..=b'~' => 4,
        0xff => 3,
        _ => 1,
    }
}

/// The share of each byte in traffic, of which half is taken to be text and half random bytes.
pub(super) static SHARES: LazyLock<[f64; 256]> = LazyLock::new(|| {
    let weights: Vec<_> =
        (0..=u8::MAX).map(|byte| f64::from(1 << (commonness(byte) / 2))).collect();
    let all: f64 = weights.iter().sum();
    std::array::from_fn(|byte| f64::midpoint(weights[byte] / all, 1.0 / 256.0))
});
