//! HTTP/1: requests and responses (RFC 9112), parsed as leniently as servers and browsers do.

mod framing;
mod head;
mod line;
mod oddity;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::body::{self, Coding, Decoding};
use super::{BODY, Guess, HEAD, Input, Message, Progress, message_size};
use crate::buffer::{Buffer, Protocol};
use framing::{Asked, Rest, State, asked, declared, request_body, response_body};
use head::{
    Ends, codings, first_line_end, joined, line_end, protocol_at, put_fields, put_host,
    put_request_line, put_response, read_fields, unfolded,
};
use line::{chunk_size, is_blank, junk_line, status_line};
pub(in super::super) use oddity::Oddity;

/// A body is inspected each time it grows until it has this many bytes, then each time it has
/// doubled: in total, inspection covers less than twice the body.
const EACH_TIME: usize = 8192;
/// Requests that may wait for their responses.
const PIPELINED: usize = 64;
/// Bytes of a body that are kept after its end, in case that the sender goes on.
const KEPT: usize = 4096;
/// The longest size line of a chunk.
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
    /// Whether the unanswered requests are HEAD (whose responses have no body) or CONNECT.
    asked: VecDeque<Asked>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    state: State,
    input: Input,
    /// Of the head that the input begins with, after line ends.
    #[serde(skip)]
    ends: Ends,
    message: Message,
    /// The message's body, without chunking but still content-coded.
    body: Vec<u8>,
    codings: Vec<Coding>,
    content_type: Vec<u8>,
    #[serde(skip)]
    decoding: Decoding,
    /// The number of body bytes inspected so far.
    looked_at: usize,
    /// The body so far is in none of its codings.
    undecodable: bool,
    /// The rules have inspected the first line of the current message.
    line_shown: bool,
    /// The message is over; the next bytes begin another.
    over: bool,
    /// How bytes are read that follow the message and are no status line.
    rest: Rest,
    /// The message before this one was of HTTP/1.
    follows: bool,
    /// A response told the sender of a body to continue, and the final one has not come.
    continued: bool,
}

pub(super) fn guess(bytes: &[u8], to_server: bool) -> Guess {
    let bytes = bytes.trim_ascii_start();
    let words: &[&[u8]] = if to_server { METHODS } else { &[b"HTTP/1."] };
    let tab = |w: &&[u8]| {
        w.strip_suffix(b" ")
            .and_then(|w| bytes.strip_prefix(w))
            .is_some_and(|r| r.starts_with(b"\t"))
    };
    if words.iter().any(|w| bytes.starts_with(w) || tab(w)) {
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
        let side = |s: &Side| {
            s.input.0.len() + s.body.len() + s.decoding.memory() + message_size(&s.message)
        };
        self.sides.iter().map(side).sum()
    }

    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        let progress = self.parse(to_server);
        let is_odd = std::mem::take(&mut self.message(to_server).is_odd);
        if progress == Progress::More && is_odd { Progress::New } else { progress }
    }

    /// Parses on until there is something to inspect.
    fn parse(&mut self, to_server: bool) -> Progress {
        loop {
            let side = &mut self.sides[usize::from(!to_server)];
            match side.state {
                State::Head => {
                    if !to_server && !side.input.0.is_empty() {
                        match status_line(&side.input.0) {
                            Some(true) => {}
                            Some(false) => match junk_line(&side.input.0) {
                                Some(0) => {
                                    side.go_on();
                                    continue;
                                }
                                Some(end) => {
                                    let line = side.input.take(end);
                                    add(&mut side.body, &line[..if side.over { end } else { 0 }]);
                                    if side.look(false) {
                                        return Progress::New;
                                    }
                                    continue;
                                }
                                None => return Progress::More,
                            },
                            None => {
                                side.forget_blanks();
                                return Progress::More;
                            }
                        }
                    }
                    if side.over && !side.ends.is_blank(&side.input.0) {
                        side.begin();
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

    /// Ends the direction: the message will not grow any more.
    pub(super) fn end(&mut self, to_server: bool) -> bool {
        let side = &mut self.sides[usize::from(!to_server)];
        match side.state {
            State::Head if !to_server && status_line(&side.input.0) == Some(false) => {
                side.go_on();
                let rest = side.input.take_all();
                add(&mut side.body, &rest);
                side.state = State::Lost;
                side.look(false)
            }
            State::Head if !side.over && !side.input.0.is_empty() => {
                let head = side.input.take_all();
                side.ends = Ends::default();
                self.head(to_server, &head);
                true
            }
            State::Head | State::Lost => false,
            state => {
                // An unterminated size line belongs to the body.
                if state == State::ChunkSize {
                    let rest = side.input.take_all();
                    add(&mut side.body, &rest);
                }
                side.state = State::Lost;
                let grew = side.look(to_server);
                side.judge_coding();
                grew || std::mem::take(&mut side.message.is_odd)
            }
        }
    }

    /// Bytes of a direction are missing: the rest cannot be parsed.
    pub(super) fn gap(&mut self, to_server: bool) {
        self.sides[usize::from(!to_server)].lose();
        self.asked.clear();
    }

    /// Reads the head of a message.
    fn head(&mut self, to_server: bool, head: &[u8]) {
        let (whole, raw) = head.split_at(first_line_end(head, to_server));
        let line = whole.trim_ascii();
        let text = unfolded(raw, to_server);
        let fields = read_fields(&text);
        let requests = &self.sides[0];
        let all_read = requests.state != State::Lost && requests.input.0.is_empty();
        let side = &mut self.sides[usize::from(!to_server)];
        let shown = std::mem::take(&mut side.line_shown);
        side.message.put(Buffer::HttpStart, head);
        put_fields(&mut side.message, to_server, &fields, raw);
        side.content_type = joined(&fields, b"content-type").unwrap_or_default();
        if to_server {
            oddity::of_request(whole, raw, &text, &fields, &mut |odd| side.message.odd(odd));
            let follows = std::mem::replace(&mut side.follows, protocol_at(line).is_some());
            if follows && whole.ends_with(b"\n") && oddity::is_no_request(line) {
                side.message.odd(Oddity::RequestBody);
            }
            if !shown {
                put_request_line(&mut side.message, line);
            }
            put_host(&mut side.message, line, &fields);
            let asked = asked(line);
            side.state = request_body(&fields);
            self.asked.push_back(asked);
            if self.asked.len() > PIPELINED {
                // Misjudging a response's body is better than missing all the rest.
                self.asked.pop_front();
            }
        } else {
            oddity::of_response(whole, &text, &fields, &mut |odd| side.message.odd(odd));
            let status = put_response(&mut side.message, line);
            if all_read && self.asked.is_empty() {
                side.message.odd(Oddity::Unasked);
            }
            if std::mem::replace(&mut side.continued, status == 100) && side.continued {
                side.message.odd(Oddity::Continued);
            }
            let asked = if (100..200).contains(&status) {
                self.asked.front().copied()
            } else {
                self.asked.pop_front()
            };
            side.codings = codings(&fields);
            side.rest = declared(&fields);
            side.state = response_body(status, asked.unwrap_or(Asked::Other), &fields);
            if side.state == State::Lost {
                self.sides[0].lose();
            }
        }
        let side = &mut self.sides[usize::from(!to_server)];
        side.over = side.state == State::Head;
    }
}

/// Appends `bytes` to a body, as far as it is inspected.
fn add(body: &mut Vec<u8>, bytes: &[u8]) {
    let room = BODY.saturating_sub(body.len());
    body.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl Side {
    fn lose(&mut self) {
        self.state = State::Lost;
        self.input.take_all();
        self.ends = Ends::default();
    }

    /// Begins the next message.
    fn begin(&mut self) {
        self.over = false;
        self.message = Message::default();
        self.looked_at = 0;
        self.body.clear();
        self.decoding = Decoding::default();
        self.codings.clear();
    }

    /// Reads on though no head begins: a response without one (HTTP/0.9), a body where there should
    /// be none, or more of it than declared. Receivers take it all the same.
    fn go_on(&mut self) {
        self.over = false;
        self.state = match std::mem::take(&mut self.rest) {
            Rest::UntilClose => State::UntilClose,
            Rest::Length(length) => State::Length(length),
            Rest::Chunked => State::ChunkSize,
        };
    }

    /// Adds the request line before the header fields have arrived.
    fn show_line(&mut self, to_server: bool) -> Progress {
        if !to_server || self.line_shown {
            return Progress::More;
        }
        let Some(end) = self.ends.line() else { return Progress::More };
        self.line_shown = true;
        let line = &self.input.0[self.line_ends()..][..end];
        put_request_line(&mut self.message, line.trim_ascii());
        Progress::New
    }

    /// Drops white space before a response, except what a line could have.
    fn forget_blanks(&mut self) {
        let blank = self.input.0.iter().take_while(|b| is_blank(**b)).count();
        self.input.skip(blank.saturating_sub(SIZE_LINE));
    }

    /// The number of line ends before a head.
    fn line_ends(&self) -> usize {
        self.input.0.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count()
    }

    /// Removes the head from the input once it is complete.
    fn take_head(&mut self, to_server: bool) -> Option<Vec<u8>> {
        let blank = self.line_ends();
        if blank == self.input.0.len() {
            // One is as good as many.
            self.input.skip(blank.saturating_sub(1));
            self.ends = Ends::default();
            return None;
        }
        let rest = &self.input.0[blank..];
        // HTTP/0.9 has a request line only.
        let is_line_only = |end: &usize| protocol_at(rest[..*end].trim_ascii()).is_none();
        let line = self.ends.of_line(rest).filter(|end| to_server && is_line_only(end));
        let end = line.or_else(|| self.ends.of_head(rest, to_server));
        let Some(end) = end else {
            if rest.len() > HEAD {
                if to_server {
                    self.message.odd(Oddity::RequestLong);
                }
                self.lose();
            }
            return None;
        };
        self.ends = Ends::default();
        self.input.take(blank);
        Some(self.input.take(end))
    }

    /// Parses the body; `None` if it must be called again at once.
    fn body(&mut self, to_server: bool) -> Option<Progress> {
        match self.state {
            State::Length(0) => return Some(self.complete(to_server)),
            State::Length(left) => {
                let moved = self.take_body(left);
                self.state = State::Length(left - moved);
                return (self.state != State::Length(0)).then(|| self.pause(to_server));
            }
            State::UntilClose => {
                self.take_body(u64::MAX);
                return Some(self.pause(to_server));
            }
            State::ChunkSize => {
                let line = line_end(&self.input.0);
                let blank = self.input.0.iter().take_while(|b| is_blank(**b)).count();
                if blank > 0 {
                    // Receivers skip line ends and blanks before a size.
                    self.input.take(blank);
                    return None;
                }
                let digit = self.input.0.first();
                if digit.is_some_and(|b| !b.is_ascii_hexdigit()) || line > SIZE_LINE {
                    // The body is not chunked, whatever the header claims.
                    self.message.odd(oddity::of_chunk(to_server));
                    self.state = State::UntilClose;
                    return None;
                }
                if line == 0 || self.input.0[line - 1] != b'\n' {
                    return Some(self.pause(to_server));
                }
                let size = chunk_size(&self.input.0[..line]);
                if size.is_none_or(|size| size > oddity::LARGE_CHUNK) {
                    self.message.odd(oddity::of_chunk(to_server));
                }
                self.state = match size {
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
                let moved = self.take_body(left);
                if moved == 0 {
                    return Some(self.pause(to_server));
                }
                self.state = State::Chunk(left - moved);
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
                if !trailer.contains(&b':') {
                    self.message.odd(oddity::of_trailer(to_server));
                }
            }
            State::Head | State::Lost => {}
        }
        None
    }

    /// Moves up to `most` bytes of the input to the body, and returns how many.
    fn take_body(&mut self, most: u64) -> u64 {
        let moved = self.input.0.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        add(&mut self.body, &self.input.0[..moved]);
        self.input.skip(moved);
        moved as u64
    }

    /// Waits for more bytes: inspects the body if that is due.
    fn pause(&mut self, to_server: bool) -> Progress {
        if self.input.0.len() > HEAD {
            // An unterminated line.
            self.lose();
        }
        // Few bytes may decompress to many: a coded body is not inspected each time it grows.
        let each_time = self.codings.is_empty() && self.body.len() <= EACH_TIME;
        let grew = self.body.len() > self.looked_at;
        let doubled = self.body.len() >= 2 * self.looked_at;
        let due = grew && (each_time || doubled);
        if due && self.look(to_server) { Progress::New } else { Progress::More }
    }

    /// Adds the body for inspection if it has grown.
    fn look(&mut self, to_server: bool) -> bool {
        if self.body.len() == self.looked_at {
            return false;
        }
        let looked_at = std::mem::replace(&mut self.looked_at, self.body.len());
        let body::Decoded { bytes: decoded, old, failed, is_bomb } =
            self.decoding.decode(&self.body, &self.codings);
        self.undecodable = failed;
        if is_bomb {
            self.message.odd(Oddity::Bomb);
        }
        if to_server {
            // What ends a file may be taken from what there was of it before.
            match body::files(&self.content_type, &decoded) {
                Some(files) => self.message.replace(Buffer::FileData, files, 0),
                None => self.message.replace(Buffer::FileData, decoded, old),
            }
            self.message.replace(Buffer::HttpRequestBody, self.body.clone(), looked_at);
        } else {
            self.message.replace(Buffer::FileData, decoded, old);
        }
        true
    }

    /// At the end of a body: whether it was in its codings.
    fn judge_coding(&mut self) {
        if std::mem::take(&mut self.undecodable) {
            self.message.odd(Oddity::Undecodable);
        }
    }

    fn complete(&mut self, to_server: bool) -> Progress {
        self.look(to_server);
        self.judge_coding();
        self.state = State::Head;
        self.over = true;
        let may_go_on = !to_server && self.codings.is_empty();
        self.body.drain(..self.body.len() - if may_go_on { self.body.len().min(KEPT) } else { 0 });
        self.body.shrink_to_fit();
        self.decoding = Decoding::default();
        self.looked_at = self.body.len();
        self.codings.clear();
        self.rest = Rest::UntilClose;
        Progress::Complete
    }
}
