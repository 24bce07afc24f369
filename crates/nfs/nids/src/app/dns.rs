//! DNS (RFC 1035): the names in the question section.

use serde::{Deserialize, Serialize};

use super::{Guess, Input, Message, Progress, message_size};
use crate::buffer::{Buffer, Protocol};

const HEADER: usize = 12;
/// The response bit, in the third byte of the header.
const RESPONSE: u8 = 0x80;
/// The longest name as text; longer ones are truncated.
const NAME: usize = 255;
/// The maximum number of questions inspected; one is usual.
const QUESTIONS: usize = 16;

/// Both directions of DNS over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Dns {
    sides: [Side; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    input: Input,
    message: Message,
    lost: bool,
}

/// Identifies DNS over TCP by a length and a plausible header.
pub(super) fn guess(bytes: &[u8]) -> Guess {
    let Some((length, header)) = bytes.split_first_chunk::<2>() else { return Guess::TooShort };
    if usize::from(u16::from_be_bytes(*length)) < HEADER {
        return Guess::IsNot;
    }
    match header.first_chunk::<HEADER>() {
        Some(header) if plausible(header) => Guess::Is(Protocol::Dns),
        Some(_) => Guess::IsNot,
        None => Guess::TooShort,
    }
}

/// Whether a header belongs to a query, or to an answer that repeats its questions.
fn plausible(header: &[u8; HEADER]) -> bool {
    let opcode = header[2] >> 3 & 15;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    opcode <= 5 && (1..=QUESTIONS as u16).contains(&questions)
}

/// The buffers of the message `bytes`; `None` if it is not a DNS message with a name.
pub(super) fn message(bytes: &[u8]) -> Option<Message> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    if !plausible(header) {
        return None;
    }
    let mut message = Message::default();
    let mut at = HEADER;
    for _ in 0..u16::from_be_bytes([header[4], header[5]]) {
        let Some((name, end)) = name(bytes, at) else { break };
        if header[2] & RESPONSE == 0 {
            message.put(Buffer::DnsQuery, &name[..]);
        }
        message.put(Buffer::DnsQueryName, name);
        at = end + 4;
    }
    (!message.buffers.is_empty()).then_some(message)
}

/// The name at `at`, its labels joined by dots, and its end. Compression pointers may lead
/// anywhere, so at most `NAME` labels and pointers are followed.
fn name(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let (mut name, mut end) = (Vec::new(), None);
    for _ in 0..NAME {
        match *bytes.get(at)? {
            0 => return Some((name, end.unwrap_or(at + 1))),
            length @ 1..=63 => {
                let label = bytes.get(at + 1..at + 1 + usize::from(length))?;
                if !name.is_empty() {
                    name.push(b'.');
                }
                name.extend_from_slice(label);
                name.truncate(NAME);
                at += 1 + usize::from(length);
            }
            high @ 192.. => {
                end = end.or(Some(at + 2));
                at = usize::from(high & 63) << 8 | usize::from(*bytes.get(at + 1)?);
            }
            _ => return None,
        }
    }
    None
}

impl Dns {
    pub(super) fn data(&mut self, to_server: bool, bytes: &[u8]) {
        let side = &mut self.sides[usize::from(!to_server)];
        if !side.lost {
            side.input.put(bytes);
        }
    }

    pub(super) fn gap(&mut self, to_server: bool) {
        let side = &mut self.sides[usize::from(!to_server)];
        side.lost = true;
        side.input.take_all();
    }

    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        let side = &mut self.sides[usize::from(!to_server)];
        loop {
            let Some(length) = side.input.0.first_chunk::<2>() else { return Progress::More };
            let length = usize::from(u16::from_be_bytes(*length));
            if side.input.0.len() < 2 + length {
                return Progress::More;
            }
            let bytes = side.input.take(2 + length);
            if let Some(message) = message(&bytes[2..]) {
                side.message = message;
                return Progress::Complete;
            }
        }
    }

    pub(super) fn message(&mut self, to_server: bool) -> &mut Message {
        &mut self.sides[usize::from(!to_server)].message
    }

    pub(super) fn memory(&self) -> usize {
        self.sides.iter().map(|s| s.input.0.len() + message_size(&s.message)).sum()
    }
}
