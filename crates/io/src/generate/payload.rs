//! The payloads of generated packets.

use rand::RngExt;

use super::spec::Payload;

const REQUEST: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: www.example.net\r\nUser-Agent: thalweg\r\n\r\n";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nServer: thalweg\r\n\r\n<html>";

/// Fills `payload` with `len` bytes of the requested kind.
pub(super) fn fill(
    filling: Payload,
    len: usize,
    to_server: bool,
    random: &mut impl RngExt,
    payload: &mut Vec<u8>,
) {
    payload.clear();
    match filling {
        Payload::Zeros => payload.resize(len, 0),
        Payload::Random => {
            payload.resize(len, 0);
            random.fill(&mut payload[..]);
        }
        Payload::Http => {
            let text = if to_server { REQUEST } else { RESPONSE };
            payload.extend(text.iter().cycle().take(len));
        }
    }
}
