//! TLS: the server name that a client requests, and the certificate that a server presents
//! (before TLS 1.3, which encrypts it).

use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Guess, HEAD, Input, Message, Progress, message_size};
use crate::buffer::{Buffer, Protocol};

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const CERTIFICATE: u8 = 11;
const FINISHED: u8 = 20;
const SERVER_NAME: u16 = 0;

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Tls {
    sides: [Side; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    input: Input,
    /// Handshake messages, without their record headers.
    handshake: Input,
    message: Message,
    /// The following records are encrypted, or not a handshake.
    done: bool,
}

/// Identifies TLS by a handshake record, of SSL 3 or later, that begins with a hello.
pub(super) fn guess(bytes: &[u8]) -> Guess {
    match bytes {
        [HANDSHAKE, 3, 0..=4, _, _, 1 | 2, ..] => Guess::Is(Protocol::Tls),
        []
        | [HANDSHAKE]
        | [HANDSHAKE, 3]
        | [HANDSHAKE, 3, 0..=4]
        | [HANDSHAKE, 3, 0..=4, _]
        | [HANDSHAKE, 3, 0..=4, _, _] => Guess::TooShort,
        _ => Guess::IsNot,
    }
}

impl Tls {
    pub(super) fn data(&mut self, to_server: bool, bytes: &[u8]) {
        let side = &mut self.sides[usize::from(!to_server)];
        if !side.done {
            side.input.put(bytes);
        }
    }

    pub(super) fn gap(&mut self, to_server: bool) {
        self.sides[usize::from(!to_server)].finish();
    }

    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        self.sides[usize::from(!to_server)].advance()
    }

    pub(super) fn message(&mut self, to_server: bool) -> &mut Message {
        &mut self.sides[usize::from(!to_server)].message
    }

    pub(super) fn memory(&self) -> usize {
        let side = |s: &Side| s.input.0.len() + s.handshake.0.len() + message_size(&s.message);
        self.sides.iter().map(side).sum()
    }
}

impl Side {
    fn advance(&mut self) -> Progress {
        while !self.done {
            if self.handshake_message() {
                return Progress::New;
            }
            let Some(header) = self.input.0.first_chunk::<5>() else { return Progress::More };
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if header[0] != HANDSHAKE || self.handshake.0.len() > HEAD {
                self.finish();
            } else if self.input.0.len() < 5 + length {
                return Progress::More;
            } else {
                let record = self.input.take(5 + length);
                self.handshake.put(&record[5..]);
            }
        }
        Progress::More
    }

    fn finish(&mut self) {
        self.done = true;
        self.input.take_all();
        self.handshake.take_all();
    }

    /// Parses complete handshake messages until one yields a buffer; returns whether one did.
    fn handshake_message(&mut self) -> bool {
        while let Some([kind, length @ ..]) = self.handshake.0.first_chunk::<4>() {
            let kind = *kind;
            let length = length.iter().fold(0, |n, b| n << 8 | usize::from(*b));
            if self.handshake.0.len() < 4 + length {
                return false;
            }
            let body = self.handshake.take(4 + length);
            let before = self.message.buffers.len();
            match kind {
                CLIENT_HELLO => {
                    if let Some(name) = server_name(&body[4..]) {
                        self.message.put(Buffer::TlsSni, name);
                    }
                }
                CERTIFICATE => certificate(&body[4..], &mut self.message),
                FINISHED => self.finish(),
                _ => {}
            }
            if self.message.buffers.len() > before {
                return true;
            }
        }
        false
    }
}

/// Splits off the first `n` bytes.
fn cut<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(head)
}

/// Splits off a part that is preceded by its length in `width` bytes.
fn part<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = cut(rest, width)?.iter().fold(0, |n, b| n << 8 | usize::from(*b));
    cut(rest, length)
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*cut(rest, 2)?.first_chunk()?))
}

/// The host name in a ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3).
fn server_name(mut hello: &[u8]) -> Option<Vec<u8>> {
    let rest = &mut hello;
    cut(rest, 2 + 32)?;
    part(rest, 1)?;
    part(rest, 2)?;
    part(rest, 1)?;
    let mut extensions = part(rest, 2)?;
    while let Some(kind) = number(&mut extensions) {
        let mut extension = part(&mut extensions, 2)?;
        if kind == SERVER_NAME {
            let mut names = part(&mut extension, 2)?;
            let kind = cut(&mut names, 1)?;
            let name = part(&mut names, 2)?;
            return (kind == [0]).then(|| name.to_vec());
        }
    }
    None
}

/// Adds the fields of the first certificate of a chain to `message`.
fn certificate(mut chain: &[u8], message: &mut Message) {
    let Some(mut certificates) = part(&mut chain, 3) else { return };
    let Some(first) = part(&mut certificates, 3) else { return };
    let Ok((_, certificate)) = X509Certificate::from_der(first) else { return };
    for (buffer, name) in [
        (Buffer::TlsCertSubject, certificate.subject()),
        (Buffer::TlsCertIssuer, certificate.issuer()),
    ] {
        let name = name.to_string();
        if !name.is_empty() {
            message.put(buffer, name);
        }
    }
    let serial = certificate.raw_serial_as_string();
    message.put(Buffer::TlsCertSerial, serial.to_ascii_uppercase());
}
