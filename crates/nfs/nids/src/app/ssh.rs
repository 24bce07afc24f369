//! SSH: the identification strings of both sides (RFC 4253, section 4.2).

use serde::{Deserialize, Serialize};

use super::{Guess, Input, Message, Progress, begins, message_size};
use crate::buffer::{Buffer, Protocol};

/// The longest line, and the most bytes before it.
const LINE: usize = 255;

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Ssh {
    sides: [Side; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    input: Input,
    message: Message,
    done: bool,
}

pub(super) fn guess(bytes: &[u8]) -> Guess {
    begins(bytes, b"SSH-", Protocol::Ssh)
}

impl Ssh {
    pub(super) fn data(&mut self, to_server: bool, bytes: &[u8]) {
        let side = &mut self.sides[usize::from(!to_server)];
        if !side.done {
            side.input.put(bytes);
        }
    }

    pub(super) fn gap(&mut self, to_server: bool) {
        let side = &mut self.sides[usize::from(!to_server)];
        side.done = true;
        side.input.take_all();
    }

    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        let side = &mut self.sides[usize::from(!to_server)];
        if side.done {
            return Progress::More;
        }
        let Some(end) = side.input.0.iter().position(|b| *b == b'\n') else {
            side.done = side.input.0.len() > LINE;
            return Progress::More;
        };
        let line = side.input.take(end + 1);
        let line = line.trim_ascii_end();
        let Some(rest) = line.strip_prefix(b"SSH-") else { return Progress::New };
        side.done = true;
        side.input.take_all();
        let mut parts = rest.splitn(2, |b| *b == b'-');
        let (proto, software) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
        // Comments follow a blank.
        let software = software.split(|b| *b == b' ').next().unwrap_or(&[]);
        side.message.put(Buffer::SshProto, proto);
        if !software.is_empty() {
            side.message.put(Buffer::SshSoftware, software);
        }
        Progress::New
    }

    pub(super) fn message(&mut self, to_server: bool) -> &mut Message {
        &mut self.sides[usize::from(!to_server)].message
    }

    pub(super) fn memory(&self) -> usize {
        self.sides.iter().map(|s| s.input.0.len() + message_size(&s.message)).sum()
    }
}
