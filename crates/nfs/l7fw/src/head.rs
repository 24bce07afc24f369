//! The hosts that the start of a stream names: in the heads of HTTP requests (RFC 9112) and in
//! TLS ClientHellos.
//!
//! Tolerant, as servers are: a name that some server would read is read.

use std::borrow::Cow;

use super::hello::{HANDSHAKE, Hello, Reading, search};
use super::host::host_name;

/// The longest method of a request.
const LONGEST_METHOD: usize = 32;
/// A server_name extension is at most this long, so the search for one resumes so far back.
const LONGEST_EXTENSION: usize = 300;

/// A protocol whose head was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Tls,
}

#[derive(Debug, Default)]
enum State {
    /// Before a message of either protocol.
    #[default]
    Start,
    /// In the header fields of a request.
    Fields(Fields),
    /// In the body of a request or a chunk of it.
    Body(Body),
    /// Before the size of a chunk.
    Chunk,
    Hello(Box<Hello>),
    /// In a ClientHello that breaks the format.
    Search,
    /// Nothing more is read.
    Done,
}

#[derive(Debug)]
struct Body {
    /// How many bytes are still to come.
    left: u64,
    /// Whether chunks follow.
    chunked: bool,
}

/// The fields of a request so far.
#[derive(Debug, Default)]
struct Fields {
    /// Whether the last one is Host; its value may continue on the next line.
    host: bool,
    length: u64,
    chunked: bool,
}

/// A reader of one direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Head {
    state: State,
    /// Where the next line, record or body begins.
    at: usize,
    /// No line ends before this.
    scanned: usize,
    /// Where the first message begins.
    start: usize,
    /// The protocol of the first message, once it is whole.
    protocol: Option<Protocol>,
    hello: Option<Box<Hello>>,
    settled: bool,
}

impl Head {
    /// Whether the first message is whole, or will never be.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Whether it reads a ClientHello that breaks the format.
    pub(super) fn searches(&self) -> bool {
        matches!(self.state, State::Search)
    }

    /// How many bytes it will not read again.
    pub(super) fn read_until(&self) -> usize {
        if self.is_done() { usize::MAX } else { self.at }
    }

    /// Whether nothing more is read.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Notes that the first `many` bytes of the stream are gone.
    pub(super) fn forget(&mut self, many: usize) {
        self.at = self.at.saturating_sub(many);
        self.scanned = self.scanned.saturating_sub(many);
    }

    /// Ends the reading.
    pub(super) fn give_up(&mut self) {
        self.finish(None);
    }

    fn finish(&mut self, protocol: Option<Protocol>) {
        self.protocol = self.protocol.or(protocol);
        self.settled = true;
        self.state = State::Done;
    }

    /// The first message, as a library reads it best: from its first byte on, a ClientHello in a
    /// single record. `bytes` are those of the stream.
    pub(super) fn message<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.hello {
            Some(hello) => hello.in_one_record().into(),
            None => bytes.get(self.start..).unwrap_or(&[]).into(),
        }
    }

    /// Whether the message differs from the bytes of the stream.
    pub(super) fn is_odd(&self) -> bool {
        self.start > 0 || self.hello.as_ref().is_some_and(|hello| hello.is_divided())
    }

    /// Reads the bytes of the stream from where it stopped; passes hosts to `found`.
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut dyn FnMut(Box<str>)) {
        loop {
            let goes_on = match &mut self.state {
                State::Start => self.begin(bytes, found),
                State::Fields(_) => self.field(bytes, found),
                State::Body(_) => self.body(bytes),
                State::Chunk => self.chunk(bytes),
                State::Hello(_) => self.hello(bytes, found),
                State::Search => self.search(bytes, found),
                State::Done => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads a request line, or recognises a record. Returns whether the reading goes on.
    fn begin(&mut self, bytes: &[u8], found: &mut dyn FnMut(Box<str>)) -> bool {
        let rest = bytes.get(self.at..).unwrap_or(&[]);
        let Some(blanks) = rest.iter().position(|byte| !b"\r\n \t".contains(byte)) else {
            self.at = self.at.max(bytes.len());
            return false;
        };
        self.at += blanks;
        if self.protocol.is_none() {
            self.start = self.at;
        }
        let rest = &rest[blanks..];
        if rest[0] == HANDSHAKE {
            match rest {
                [_] => return false,
                [_, 3, ..] => self.state = State::Hello(Box::default()),
                _ => self.finish(None),
            }
            return true;
        }
        let Some(line) = self.line(bytes) else {
            if !may_be_request(rest) {
                self.finish(None);
            }
            return false;
        };
        let Some(request) = Request::new(line) else {
            self.finish(None);
            return false;
        };
        if let Some(host) = request.host {
            found(host);
        }
        // Nothing follows a line without a version, but for lenient servers.
        self.settled |= !request.versioned;
        self.next_line(line.len());
        self.state = State::Fields(Fields::default());
        true
    }

    /// Reads a line of a request's fields.
    fn field(&mut self, bytes: &[u8], found: &mut dyn FnMut(Box<str>)) -> bool {
        let Some(line) = self.line(bytes) else { return false };
        self.next_line(line.len());
        let State::Fields(fields) = &mut self.state else { return false };
        let text = line.trim_ascii_end();
        if text.is_empty() && !line.starts_with(b" ") && !line.starts_with(b"\t") {
            let left = fields.length;
            self.state = if fields.chunked {
                State::Chunk
            } else {
                State::Body(Body { left, chunked: false })
            };
            self.settled = true;
            self.protocol = self.protocol.or(Some(Protocol::Http));
            return true;
        }
        if fields.host && (line.starts_with(b" ") || line.starts_with(b"\t")) {
            // Other servers read a field here.
            host_name(text).map(&mut *found);
        }
        let Some(colon) = text.iter().position(|byte| *byte == b':') else { return true };
        let (name, value) = (text[..colon].trim_ascii(), text[colon + 1..].trim_ascii());
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        fields.host = is("host");
        if fields.host {
            host_name(value).map(&mut *found);
        } else if is("content-length") {
            let text = str::from_utf8(value).unwrap_or_default();
            fields.length = text.parse().unwrap_or(u64::MAX);
        } else if is("transfer-encoding") {
            fields.chunked = true;
        }
        true
    }

    /// Skips bytes of a body.
    fn body(&mut self, bytes: &[u8]) -> bool {
        let State::Body(body) = &mut self.state else { return false };
        let take = (bytes.len().saturating_sub(self.at) as u64).min(body.left);
        body.left -= take;
        self.at += take as usize;
        if body.left > 0 {
            return false;
        }
        self.state = if body.chunked { State::Chunk } else { State::Start };
        true
    }

    /// Reads the size of a chunk (RFC 9112 §7.1); trailer fields follow the last.
    fn chunk(&mut self, bytes: &[u8]) -> bool {
        let Some(line) = self.line(bytes) else { return false };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = str::from_utf8(&line[..digits]).unwrap_or_default();
        let Ok(size) = u32::from_str_radix(size, 16) else {
            self.finish(None);
            return false;
        };
        self.next_line(line.len());
        self.state = if size == 0 {
            State::Fields(Fields::default())
        } else {
            // The end of the line after the chunk belongs to it.
            State::Body(Body { left: u64::from(size) + 2, chunked: true })
        };
        true
    }

    fn hello(&mut self, bytes: &[u8], found: &mut dyn FnMut(Box<str>)) -> bool {
        let State::Hello(hello) = &mut self.state else { return false };
        let (reading, read) = hello.read(bytes.get(self.at..).unwrap_or(&[]));
        self.at += read;
        match reading {
            Reading::More => false,
            Reading::Whole(hosts) => {
                hosts.into_iter().for_each(found);
                if self.protocol.is_none() {
                    self.hello = Some(std::mem::take(hello));
                }
                self.finish(Some(Protocol::Tls));
                false
            }
            Reading::Other => {
                self.finish(None);
                false
            }
            Reading::Malformed => {
                let in_message = search(hello.message());
                self.state = State::Search;
                self.scanned = self.start;
                if let Some(host) = in_message {
                    found(host);
                    self.finish(Some(Protocol::Tls));
                }
                true
            }
        }
    }

    fn search(&mut self, bytes: &[u8], found: &mut dyn FnMut(Box<str>)) -> bool {
        if let Some(host) = search(bytes.get(self.scanned..).unwrap_or(&[])) {
            found(host);
            self.finish(Some(Protocol::Tls));
        } else {
            self.scanned = self.scanned.max(bytes.len().saturating_sub(LONGEST_EXTENSION));
            self.at = self.scanned;
        }
        false
    }

    /// The line at the current place, without its end, once it is whole.
    fn line<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.scanned.max(self.at);
        let end = bytes.get(from..)?.iter().position(|byte| *byte == b'\n');
        if end.is_none() {
            self.scanned = bytes.len();
        }
        bytes.get(self.at..from + end?)
    }

    /// Moves past a line of `length` bytes and its end.
    fn next_line(&mut self, length: usize) {
        self.at += length + 1;
        self.scanned = self.at;
    }
}

/// A request line.
struct Request {
    host: Option<Box<str>>,
    versioned: bool,
}

impl Request {
    fn new(line: &[u8]) -> Option<Self> {
        /// Methods of requests without a version (HTTP/0.9 has the first alone).
        const METHODS: [&[u8]; 4] = [b"GET", b"HEAD", b"POST", b"CONNECT"];
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (method, target) = (words.next()?, words.next()?);
        let is_version =
            |word: &[u8]| word.get(..5).is_some_and(|w| w.eq_ignore_ascii_case(b"HTTP/"));
        let versioned = words.next_back().is_some_and(is_version);
        if !method.iter().copied().all(is_token) || !versioned && !METHODS.contains(&method) {
            return None;
        }
        let scheme = target.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let authority = match target[scheme..].strip_prefix(b"://") {
            None if method.eq_ignore_ascii_case(b"CONNECT") => Some(target),
            authority => authority,
        };
        Some(Self { host: authority.and_then(host_name), versioned })
    }
}

/// Whether a byte may be in a method (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a line that begins with `start` may be a request line.
fn may_be_request(start: &[u8]) -> bool {
    let method = start.iter().take_while(|byte| is_token(**byte)).count();
    let after = start.get(method);
    method > 0
        && method <= LONGEST_METHOD
        && after.is_none_or(|byte| b" \t".contains(byte))
        && start[method..].iter().all(|byte| *byte >= b' ' || b"\t\r".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::super::hello::tests::{hello, in_records};
    use super::*;

    /// The hosts in `bytes` if they arrive `step` at a time, and the reader.
    fn read(bytes: &[u8], step: usize) -> (Vec<String>, Head) {
        let (mut head, mut hosts) = (Head::default(), Vec::new());
        for end in (step..bytes.len()).step_by(step).chain([bytes.len()]) {
            head.read(&bytes[..end], &mut |host| hosts.push(host.into()));
        }
        (hosts, head)
    }

    #[test]
    fn requests_name_their_hosts_however_they_are_written() {
        for request in [
            "GET / HTTP/1.1\r\nHost: a.example\r\nA: b\r\n\r\n",
            "GET / HTTP/1.1\nhost:a.example\n\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHOST:\t a.example:80 \t\r\n\r\n",
            "GEGET\t/  HTTP/1.0\r\nA: b\r\nHost : A.EXAMPLE.\r\n\r\n",
            "POST / HTTP/1.1\r\nHost:\r\n a.example\r\nContent-Length: 4\r\n\r\nbody",
            "GET http://a.example/b HTTP/1.1\r\n\r\n",
            "GET HTTP://u@a.example:8080?x HTTP/1.1\r\nA: b\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\n\r\n",
            "GET http://a.example/\r\n",
            "GET /?to=http://b.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET / http/1.1\r\n Host: a.example\r\n\r\n",
        ] {
            for step in 1..=request.len() {
                let (hosts, head) = read(request.as_bytes(), step);
                assert_eq!(hosts, ["a.example"], "{request:?} by {step}");
                assert!(head.is_settled());
                assert_eq!(
                    head.protocol() == Some(Protocol::Http),
                    request.ends_with("\n\n")
                        || request.ends_with("\r\n\r\n")
                        || request.ends_with("body")
                );
            }
        }
    }

    #[test]
    fn all_requests_and_fields_are_read() {
        let text = "POST http://a/ HTTP/1.1\r\nHost: b\r\nHost: c\r\nContent-Length: 11\r\n\r\n\
                    Host: none\n\r\nGET / HTTP/1.1\r\nHost: d\r\n\r\n";
        for step in 1..=text.len() {
            assert_eq!(read(text.as_bytes(), step).0, ["a", "b", "c", "d"]);
        }
    }

    #[test]
    fn requests_after_chunks_are_read() {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                    9;x\r\nHost: no\n\r\nA\r\n0123456789\r\n0\r\nT: t\r\n\r\n\
                    GET / HTTP/1.1\r\nHost: b\r\n\r\n";
        for step in 1..=text.len() {
            assert_eq!(read(text.as_bytes(), step).0, ["a", "b"]);
        }
        let wrong = text.replace("9;x", "x;9");
        let (hosts, head) = read(wrong.as_bytes(), 200);
        assert!(hosts == ["a"] && head.is_done() && head.is_settled());
    }

    #[test]
    fn hellos_name_their_hosts_in_any_records_and_after_a_tunnels_request() {
        let whole = hello("a.example");
        let connect = [&b"CONNECT b:443 HTTP/1.1\r\n\r\n"[..], &whole].concat();
        for step in 1..whole.len() {
            for size in [1, 7, 60, 200] {
                let (hosts, head) = read(&in_records(&whole, size), step);
                assert_eq!(
                    (hosts, head.protocol()),
                    (vec!["a.example".into()], Some(Protocol::Tls))
                );
                assert_eq!(&*head.message(&[]), whole);
            }
            assert_eq!(read(&connect, step).0, ["b", "a.example"]);
        }
    }

    #[test]
    fn a_hello_with_repeated_bytes_is_searched() {
        let whole = hello("a.example");
        for cut in 50..whole.len() - 30 {
            let twice = [&whole[..cut], &whole].concat();
            for step in [1, 40, 1000] {
                assert_eq!(read(&twice, step).0, ["a.example"], "{cut}, {step}");
            }
        }
    }

    #[test]
    fn other_streams_are_given_up_at_once() {
        for text in [
            "EHLO a.example\r\n",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0-x\r\n",
            "GET key x\r\n",
            "\x13Bit",
            "RTSP / RTSP/1.0\r\n",
            "get key\r\n",
            "a\x01",
            "GET /\x00",
            "\x16\x02",
            "\x15\x03",
        ] {
            let (hosts, head) = read(text.as_bytes(), 100);
            let known = text.starts_with("GET key");
            assert!(hosts.is_empty() && head.is_settled() && head.protocol().is_none(), "{text:?}");
            assert_eq!(head.is_done(), !known);
        }
        assert!(!read(b"GET /", 5).1.is_settled() && !read(b"\r\n", 2).1.is_settled());
    }
}
