//! HTTP/1: requests and responses (RFC 9112), read as leniently as servers and browsers do.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::body::{self, CODINGS, Coding};
use super::{BODY, Guess, HEAD, Input, Message, Progress, message_size, uri};
use crate::nids::buffer::{Buffer, Protocol};

/// A body is looked at whenever it grows until it has this many bytes, then whenever it
/// doubled: looking costs in all less than twice the body.
const EACH_TIME: usize = 8192;
/// Requests that may wait for their responses.
const PIPELINED: usize = 64;
/// Header fields of a message.
const FIELDS: usize = 256;
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

struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
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
                side.state = State::Lost;
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
        let due = self.body.len() > self.looked_at
            && (self.body.len() <= EACH_TIME || self.body.len() >= 2 * self.looked_at);
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

/// Where the first line ends, its line feed included; the whole length without one.
fn line_end(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1)
}

/// Where the head ends: behind the first empty line.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\n', &bytes[from..]) {
        let behind = from + at + 1;
        match bytes.get(behind..)? {
            [b'\n', ..] => return Some(behind + 1),
            [b'\r', b'\n', ..] => return Some(behind + 2),
            _ => from = behind,
        }
    }
    None
}

/// Where the protocol stands in a request line.
fn protocol_at(line: &[u8]) -> Option<usize> {
    let at = line.iter().rposition(|b| matches!(b, b' ' | b'\t'))? + 1;
    line[at..].get(..5).is_some_and(|p| p.eq_ignore_ascii_case(b"HTTP/")).then_some(at)
}

/// The head's fields with lines that go on put together. A lone carriage return ends a line
/// too: there are browsers that take it so.
fn unfolded(raw: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in raw.split(|b| matches!(b, b'\r' | b'\n')).filter(|l| !l.is_empty()) {
        let goes_on = matches!(line[0], b' ' | b'\t');
        if let Some(last) = lines.last_mut().filter(|_| goes_on) {
            last.push(b' ');
            last.extend_from_slice(trim(line));
        } else if lines.len() < FIELDS {
            lines.push(line.to_vec());
        }
    }
    lines
}

fn read_fields(lines: &[Vec<u8>]) -> Vec<Field<'_>> {
    let field = |line: &'_ Vec<u8>| line.iter().position(|b| *b == b':').unwrap_or(0);
    let fields = lines.iter().map(|line| {
        let at = field(line);
        let value = line.get(at + 1..).filter(|_| at > 0).unwrap_or(line);
        Field { name: trim(&line[..at]), value: trim(value) }
    });
    fields.collect()
}

/// Without blanks at the ends, the vertical ones too.
fn trim(mut text: &[u8]) -> &[u8] {
    let blank = |b: &u8| b.is_ascii_whitespace() || matches!(b, 0x0b | 0);
    while let [first, rest @ ..] = text
        && blank(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && blank(last)
    {
        text = rest;
    }
    text
}

/// The values of all fields of a name, with commas between.
fn joined(fields: &[Field<'_>], name: &[u8]) -> Option<Vec<u8>> {
    let mut values = fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    Some(all)
}

/// The target in a request line.
fn target(line: &[u8]) -> &[u8] {
    let method_end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let end = protocol_at(line).filter(|at| *at > method_end).unwrap_or(line.len());
    line[method_end..end].trim_ascii()
}

fn put_request_line(message: &mut Message, line: &[u8]) {
    let target = target(line);
    message.put(Buffer::HttpRequestLine, line);
    message.put(Buffer::HttpMethod, method(line));
    message.put(Buffer::HttpRawUri, target);
    message.put(Buffer::HttpUri, uri::normalise(target));
    if let Some(at) = protocol_at(line) {
        message.put(Buffer::HttpProtocol, &line[at..]);
    }
}

fn put_host(message: &mut Message, line: &[u8], fields: &[Field<'_>]) {
    let named = joined(fields, b"host");
    if let Some(raw) = uri::host(target(line)).or(named.as_deref()) {
        message.put(Buffer::HttpRawHost, raw);
        let colon = raw.iter().rposition(|b| *b == b':').filter(|at| !raw[*at..].contains(&b']'));
        message.put(Buffer::HttpHost, raw[..colon.unwrap_or(raw.len())].to_ascii_lowercase());
    }
}

fn method(line: &[u8]) -> &[u8] {
    line.split(|b| matches!(b, b' ' | b'\t')).next().unwrap_or(&[])
}

fn asked(line: &[u8]) -> Asked {
    match method(line) {
        b"HEAD" => Asked::Head,
        b"CONNECT" => Asked::Connect,
        _ => Asked::Other,
    }
}

/// The status, 0 for none.
fn put_response(message: &mut Message, line: &[u8]) -> u16 {
    let mut words = line.splitn(2, |b| matches!(b, b' ' | b'\t'));
    let protocol = words.next().unwrap_or(&[]);
    let rest = words.next().unwrap_or(&[]).trim_ascii_start();
    let digits = rest.iter().take_while(|b| !b.is_ascii_whitespace()).count();
    let (status, text) = rest.split_at(digits);
    message.put(Buffer::HttpResponseLine, line);
    message.put(Buffer::HttpProtocol, protocol);
    message.put(Buffer::HttpStatusCode, status);
    message.put(Buffer::HttpStatusMessage, text.trim_ascii());
    std::str::from_utf8(status).ok().and_then(|s| s.parse().ok()).unwrap_or(0)
}

fn put_fields(message: &mut Message, to_server: bool, fields: &[Field<'_>], raw: &[u8]) {
    let cookie: &[u8] = if to_server { b"cookie" } else { b"set-cookie" };
    let each = if to_server { Buffer::HttpRequestHeader } else { Buffer::HttpResponseHeader };
    let (mut all, mut names) = (Vec::new(), b"\r\n".to_vec());
    for field in fields {
        let line = [field.name, b": ", field.value].concat();
        names.extend_from_slice(field.name);
        names.extend_from_slice(b"\r\n");
        if !field.name.eq_ignore_ascii_case(cookie) {
            all.extend_from_slice(&line);
            all.extend_from_slice(b"\r\n");
        }
        message.put(each, line);
    }
    names.extend_from_slice(b"\r\n");
    if !fields.is_empty() {
        message.put(Buffer::HttpHeader, all);
        message.put(Buffer::HttpRawHeader, raw);
        message.put(Buffer::HttpHeaderNames, names);
    }
    let both: &[(&[u8], Buffer)] = &[
        (b"connection", Buffer::HttpConnection),
        (b"content-type", Buffer::HttpContentType),
        (b"content-length", Buffer::HttpContentLength),
        (cookie, Buffer::HttpCookie),
    ];
    let own: &[(&[u8], Buffer)] = if to_server {
        &[
            (b"user-agent", Buffer::HttpUserAgent),
            (b"referer", Buffer::HttpReferer),
            (b"accept", Buffer::HttpAccept),
            (b"accept-language", Buffer::HttpAcceptLanguage),
            (b"accept-encoding", Buffer::HttpAcceptEncoding),
        ]
    } else {
        &[(b"server", Buffer::HttpServer), (b"location", Buffer::HttpLocation)]
    };
    for (name, buffer) in both.iter().chain(own) {
        if let Some(value) = joined(fields, name) {
            message.put(*buffer, value);
        }
    }
}

fn is_chunked(fields: &[Field<'_>]) -> bool {
    let coding = joined(fields, b"transfer-encoding").unwrap_or_default().to_ascii_lowercase();
    memchr::memmem::find(&coding, b"chunked").is_some()
}

/// The length that the header names. `None` for no number.
fn length(fields: &[Field<'_>]) -> Option<u64> {
    let value = fields.iter().find(|f| f.name.eq_ignore_ascii_case(b"content-length"))?.value;
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
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

fn codings(fields: &[Field<'_>]) -> Vec<Coding> {
    let value = joined(fields, b"content-encoding").unwrap_or_default();
    let words = value.split(|b| matches!(b, b',' | b' ' | b';'));
    words.filter_map(Coding::named).take(CODINGS).collect()
}

/// The size at the beginning of a chunk's line.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = trim(line);
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(text, 16).ok()
}
