//! Base64, as rules decode it.

/// Decodes base64 (RFC 4648) up to the first invalid byte; skips line ends and blanks.
pub(super) fn base64(encoded: &[u8]) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let (mut out, mut bits, mut held) = (Vec::new(), 0, 0u32);
    for byte in encoded.iter().filter(|b| !b.is_ascii_whitespace()) {
        let Some(six) = value(*byte) else { break };
        held = held << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
        }
    }
    out
}
