//! HTTP/1: requests and responses (RFC 9112), read as leniently as servers and browsers do.

mod head;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::body::{self, Coding};
use super::{BODY, Guess, HEAD, Input, Message, Progress, message_size};
use crate::buffer::{Buffer, Protocol};
use head::{
    Field, codings, head_end, is_chunked, joined, length, line_end, method, protocol_at,
    put_fields, put_host, put_request_line, put_response, read_fields, trim, unfolded,
};

/// A body is looked at whenever it grows until it has this many bytes, then whenever it
/// doubled: looking costs in all less than twice the body.
const EACH_TIME: usize = 8192;
/// Requests that may wait for their responses.
const PIPELINED: usize = 64;
/// Bytes of a chunk's size line.
const SIZE_LINE: usize = 1024;

const METHODS: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"TRACE ",
    b"PATCH ",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"SEARCH ",
    b"REPORT ",
    b"NOTIFY ",
    b"SUBSCRIBE ",
    b"M-SEARCH ",
];

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Http {
    sides: [Side; 2],
    /// Whether the requests without response were HEAD (then no body comes) or CONNECT.
    asked: VecDeque<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Asked {
    Head,
    Connect,
    Other,
}

/// What comes next in a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    #[default]
    Head,
    /// So many bytes of body.
    Length(u64),
    ChunkSize,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    Trailer,
    /// Body up to the end of the connection.
    UntilClose,
    /// No HTTP any more.
    Lost,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    state: State,
    input: Input,
    message: Message,
    /// The message's body, without chunks, in its codings.
    body: Vec<u8>,
    codings: Vec<Coding>,
    content_type: Vec<u8>,
    /// How much of the body was looked at.
    looked_at: usize,
    /// The first line of the message at hand was shown to the rules.
    line_shown: bool,
    /// The message is over; the next bytes begin another.
    over: bool,
}

pub(super) fn guess(bytes: &[u8], to_server: bool) -> Guess {
    let bytes = bytes.trim_ascii_start();
    let words: &[&[u8]] = if to_server { METHODS } else { &[b"HTTP/1."] };
    if words.iter().any(|w| bytes.starts_with(w)) {
        Guess::Is(Protocol::Http)
    } else if words.iter().any(|w| w.starts_with(bytes)) {
        Guess::TooShort
    } else {
        Guess::IsNot
    }
}

impl Http {
    pub(super) fn data(&mut self, to_server: bool, bytes: &[u8]) {
        let side = &mut self.sides[usize::from(!to_server)];
        if side.state != State::Lost {
            side.input.put(bytes);
        }
    }

    pub(super) fn message(&mut self, to_server: bool) -> &mut Message {
        &mut self.sides[usize::from(!to_server)].message
    }

    pub(super) fn memory(&self) -> usize {
        let side = |s: &Side| s.input.0.len() + s.body.len() + message_size(&s.message);
        self.sides.iter().map(side).sum()
    }

    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        loop {
            let side = &mut self.sides[usize::from(!to_server)];
            match side.state {
                State::Head => {
                    if side.over && !side.input.0.is_empty() {
                        side.over = false;
                        side.message = Message::default();
                    }
                    let Some(head) = side.take_head(to_server) else {
                        return side.show_line(to_server);
                    };
                    self.head(to_server, &head);
                    return Progress::New;
                }
                State::Lost => return Progress::More,
                _ => {
                    if let Some(progress) = side.body(to_server) {
                        return progress;
                    }
                }
            }
        }
    }

    /// The direction's end: what is there of a message is all there will be.
    pub(super) fn end(&mut self, to_server: bool) -> bool {
        let side = &mut self.sides[usize::from(!to_server)];
        match side.state {
            State::Head if !side.over && !side.input.0.is_empty() => {
                let head = side.input.take_all();
                self.head(to_server, &head);
                true
            }
            State::Head | State::Lost => false,
            state => {
                // A size line that never ended was body.
                if state == State::ChunkSize {
                    let rest = side.input.take_all();
                    side.keep(&rest);
                }
                side.state = State::Lost;
                side.look(to_server)
            }
        }
    }

    /// Bytes of a direction are missing: what follows cannot be told apart.
    pub(super) fn gap(&mut self, to_server: bool) {
        self.sides[usize::from(!to_server)].lose();
        self.asked.clear();
    }

    /// Reads the head of a message.
    fn head(&mut self, to_server: bool, head: &[u8]) {
        let (line, raw) = head.split_at(line_end(head));
        let line = line.trim_ascii();
        let text = unfolded(raw);
        let fields = read_fields(&text);
        let side = &mut self.sides[usize::from(!to_server)];
        let shown = std::mem::take(&mut side.line_shown);
        side.message.put(Buffer::HttpStart, head);
        put_fields(&mut side.message, to_server, &fields, raw);
        side.content_type = joined(&fields, b"content-type").unwrap_or_default();
        if to_server {
            if !shown {
                put_request_line(&mut side.message, line);
            }
            put_host(&mut side.message, line, &fields);
            let asked = asked(line);
            side.state = request_body(&fields);
            self.asked.push_back(asked);
            if self.asked.len() > PIPELINED {
                // Better to mistake a response's body than to see none of the rest.
                self.asked.pop_front();
            }
        } else {
            let status = put_response(&mut side.message, line);
            let asked = if (100..200).contains(&status) {
                self.asked.front().copied()
            } else {
                self.asked.pop_front()
            };
            side.codings = codings(&fields);
            side.state = response_body(status, asked.unwrap_or(Asked::Other), &fields);
            if asked == Some(Asked::Connect) && (200..300).contains(&status) || status == 101 {
                self.sides[0].lose();
            }
        }
        let side = &mut self.sides[usize::from(!to_server)];
        side.over = side.state == State::Head;
    }
}

impl Side {
    fn lose(&mut self) {
        self.state = State::Lost;
        self.input.take_all();
    }

    /// Shows a request's line before its fields are there.
    fn show_line(&mut self, to_server: bool) -> Progress {
        if !to_server || self.line_shown {
            return Progress::More;
        }
        let rest = self.input.0.trim_ascii_start();
        let end = line_end(rest);
        if end == 0 || rest[end - 1] != b'\n' {
            return Progress::More;
        }
        self.line_shown = true;
        put_request_line(&mut self.message, rest[..end].trim_ascii());
        Progress::New
    }

    /// Takes the head out of the input, once it is whole.
    fn take_head(&mut self, to_server: bool) -> Option<Vec<u8>> {
        let bytes = &self.input.0;
        let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let rest = &bytes[blank..];
        let line = line_end(rest);
        // HTTP/0.9 has a request line and nothing else.
        let only_line = to_server
            && line > 0
            && rest[line - 1] == b'\n'
            && protocol_at(rest[..line].trim_ascii()).is_none();
        let end = if only_line { Some(line) } else { head_end(rest) };
        let Some(end) = end else {
            if rest.len() > HEAD {
                self.lose();
            }
            return None;
        };
        self.input.take(blank);
        Some(self.input.take(end))
    }

    /// Goes on with the body; `None` to come again at once.
    fn body(&mut self, to_server: bool) -> Option<Progress> {
        match self.state {
            State::Length(0) => return Some(self.complete(to_server)),
            State::Length(left) => {
                let bytes = self.input.take(usize::try_from(left).unwrap_or(usize::MAX));
                self.state = State::Length(left - bytes.len() as u64);
                return self.grow(&bytes, to_server);
            }
            State::UntilClose => {
                let bytes = self.input.take_all();
                return self.grow(&bytes, to_server);
            }
            State::ChunkSize => {
                let line = line_end(&self.input.0);
                let digit = self.input.0.iter().find(|b| !b.is_ascii_whitespace());
                if digit.is_some_and(|b| !b.is_ascii_hexdigit()) || line > SIZE_LINE {
                    // These are no chunks, whatever the header says.
                    self.state = State::UntilClose;
                    return None;
                }
                if line == 0 || self.input.0[line - 1] != b'\n' {
                    return Some(self.pause(to_server));
                }
                self.state = match chunk_size(&self.input.0[..line]) {
                    Some(0) => State::Trailer,
                    Some(size) => State::Chunk(size),
                    None => State::UntilClose,
                };
                if self.state != State::UntilClose {
                    self.input.take(line);
                }
            }
            State::Chunk(0) => self.state = State::ChunkEnd,
            State::Chunk(left) => {
                let bytes = self.input.take(usize::try_from(left).unwrap_or(usize::MAX));
                if bytes.is_empty() {
                    return Some(self.pause(to_server));
                }
                self.state = State::Chunk(left - bytes.len() as u64);
                self.keep(&bytes);
            }
            State::ChunkEnd => {
                let line = line_end(&self.input.0);
                if line == 0 || self.input.0[line - 1] != b'\n' {
                    return Some(self.pause(to_server));
                }
                self.input.take(line);
                self.state = State::ChunkSize;
            }
            State::Trailer => {
                let line = line_end(&self.input.0);
                if line == 0 || self.input.0[line - 1] != b'\n' {
                    return Some(self.pause(to_server));
                }
                let trailer = self.input.take(line);
                if trailer.trim_ascii().is_empty() {
                    return Some(self.complete(to_server));
                }
            }
            State::Head | State::Lost => {}
        }
        None
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = BODY.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The body grew by `bytes`, as far as there were any.
    fn grow(&mut self, bytes: &[u8], to_server: bool) -> Option<Progress> {
        self.keep(bytes);
        if self.state == State::Length(0) {
            return None;
        }
        Some(self.pause(to_server))
    }

    /// No more bytes for now: looks at the body where that is due.
    fn pause(&mut self, to_server: bool) -> Progress {
        if self.input.0.len() > HEAD {
            // A line that does not end.
            self.lose();
        }
        // Few bytes may decompress to many: those of a coding are not looked at each time.
        let each_time = self.codings.is_empty() && self.body.len() <= EACH_TIME;
        let grew = self.body.len() > self.looked_at;
        let doubled = self.body.len() >= 2 * self.looked_at;
        let due = grew && (each_time || doubled);
        if due && self.look(to_server) { Progress::New } else { Progress::More }
    }

    /// Shows the body to the rules, if there is more of it than before.
    fn look(&mut self, to_server: bool) -> bool {
        if self.body.len() == self.looked_at {
            return false;
        }
        self.looked_at = self.body.len();
        let decoded = body::decode(&self.body, &self.codings);
        if to_server {
            let file = body::files(&self.content_type, &decoded);
            self.message.replace(Buffer::FileData, file.unwrap_or(decoded));
            self.message.replace(Buffer::HttpRequestBody, self.body.clone());
        } else {
            self.message.replace(Buffer::FileData, decoded);
        }
        true
    }

    fn complete(&mut self, to_server: bool) -> Progress {
        self.look(to_server);
        self.state = State::Head;
        self.over = true;
        self.looked_at = 0;
        self.body.clear();
        self.codings.clear();
        Progress::Complete
    }
}

fn asked(line: &[u8]) -> Asked {
    match method(line) {
        b"HEAD" => Asked::Head,
        b"CONNECT" => Asked::Connect,
        _ => Asked::Other,
    }
}

fn request_body(fields: &[Field<'_>]) -> State {
    match length(fields) {
        _ if is_chunked(fields) => State::ChunkSize,
        None | Some(0) => State::Head,
        Some(length) => State::Length(length),
    }
}

fn response_body(status: u16, asked: Asked, fields: &[Field<'_>]) -> State {
    match status {
        101 => State::Lost,
        100..200 | 204 | 304 => State::Head,
        200..300 if asked == Asked::Connect => State::Lost,
        _ if asked == Asked::Head => State::Head,
        _ if is_chunked(fields) => State::ChunkSize,
        _ => length(fields).map_or(State::UntilClose, State::Length),
    }
}

/// The size at the beginning of a chunk's line.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = trim(line);
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(text, 16).ok()
}
