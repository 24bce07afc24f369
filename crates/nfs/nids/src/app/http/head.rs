//! Heads of messages: their first line and their fields.

use super::super::body::{CODINGS, Coding};
use super::super::{Message, uri};
use crate::buffer::Buffer;

/// The maximum number of header fields of a message; of more, one is read, which tells that there are.
pub(super) const FIELDS: usize = 1024;

/// A header field.
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// The end of the first line, after its line feed; the whole length if there is none.
pub(super) fn line_end(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1)
}

/// The end of the first line of a head, after its line end: a line feed, or in a response a lone
/// carriage return, too, as in browsers.
pub(super) fn first_line_end(head: &[u8], to_server: bool) -> usize {
    let end = line_end(head);
    let lone = |at: &usize| !to_server && head.get(at + 1).is_some_and(|next| *next != b'\n');
    memchr::memchr(b'\r', &head[..end]).filter(lone).map_or(end, |at| at + 1)
}

/// The search for the ends of a head, and of its first line, while the head arrives piece by piece:
/// what was searched is not searched again. A copy starts anew.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Bytes of white space before the head.
    blank: usize,
    /// The end of the first line, after its line feed.
    line: Option<usize>,
    /// Bytes without a line feed at the beginning.
    without_line: usize,
    /// Where the search for the end of the head goes on.
    at: usize,
    /// Whether the line there is empty so far. The first line is not.
    is_empty: bool,
}

impl Clone for Ends {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What it remembers makes no difference to results.
impl PartialEq for Ends {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ends {}

impl Ends {
    /// Whether `bytes`, all before the head and of it, are white space. They begin with those of the
    /// last call.
    pub(super) fn is_blank(&mut self, bytes: &[u8]) -> bool {
        let more = bytes[self.blank..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.blank += more;
        self.blank == bytes.len()
    }

    /// The end of the first line, if it is known.
    pub(super) fn line(&self) -> Option<usize> {
        self.line
    }

    /// The end of the first line, after its line feed. `bytes` begin with those of the last call.
    pub(super) fn of_line(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.line.is_none() {
            let found = memchr::memchr(b'\n', &bytes[self.without_line..]);
            self.line = found.map(|at| self.without_line + at + 1);
            self.without_line = bytes.len();
        }
        self.line
    }

    /// The end of the head, after the first empty line. Carriage returns before a line feed belong to
    /// it; in a response, any other carriage return ends a line as well. `bytes` begin with those of
    /// the last call.
    pub(super) fn of_head(&mut self, bytes: &[u8], to_server: bool) -> Option<usize> {
        loop {
            let rest = &bytes[self.at..];
            let skipped = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
            self.at += skipped;
            self.is_empty &= skipped == 0;
            let returns = bytes[self.at..].iter().take_while(|b| **b == b'\r').count();
            let end = match bytes.get(self.at + returns)? {
                b'\n' => self.at + returns + 1,
                _ if to_server => {
                    (self.at, self.is_empty) = (self.at + returns, false);
                    continue;
                }
                _ if returns > 1 => return Some(self.at + returns),
                _ => self.at + returns,
            };
            if self.is_empty {
                return Some(end);
            }
            (self.at, self.is_empty) = (end, true);
        }
    }
}

/// The position of the protocol in a request line.
pub(super) fn protocol_at(line: &[u8]) -> Option<usize> {
    let at = line.iter().rposition(|b| matches!(b, b' ' | b'\t'))? + 1;
    line[at..].get(..5).is_some_and(|p| p.eq_ignore_ascii_case(b"HTTP/")).then_some(at)
}

/// The head's fields with folded lines joined. A lone carriage return ends a line, too, as in
/// some browsers. In a response, a folded line with a colon after a whole field is a field of its
/// own, as in Suricata and in browsers that do not fold.
pub(super) fn unfolded(raw: &[u8], to_server: bool) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in raw.split(|b| matches!(b, b'\r' | b'\n')).filter(|l| !l.is_empty()) {
        let is_folded = matches!(line[0], b' ' | b'\t');
        let is_field = !to_server && line.contains(&b':');
        let goes_on = |last: &&mut Vec<u8>| is_folded && !(is_field && last.contains(&b':'));
        if let Some(last) = lines.last_mut().filter(goes_on) {
            last.push(b' ');
            last.extend_from_slice(trim(line));
        } else if lines.len() <= FIELDS {
            lines.push(line.to_vec());
        }
    }
    lines
}

pub(super) fn read_fields(lines: &[Vec<u8>]) -> Vec<Field<'_>> {
    let field = |line: &'_ Vec<u8>| line.iter().position(|b| *b == b':').unwrap_or(0);
    let fields = lines.iter().map(|line| {
        let at = field(line);
        let value = line.get(at + 1..).filter(|_| at > 0).unwrap_or(line);
        Field { name: trim(&line[..at]), value: trim(value) }
    });
    fields.collect()
}

/// The text without blanks at its ends, including vertical tabs and NULs.
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
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

/// Whether receivers do not skip a character within a name or a value, as they do NULs and other control
/// characters.
fn is_visible(byte: &u8) -> bool {
    *byte >= b' ' && *byte != 0x7f
}

/// Text without the characters that receivers skip.
fn visible(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(is_visible).collect()
}

/// As [`joined`], for fields that decide how a body is read: whatever a receiver may skip is skipped.
fn framing(fields: &[Field<'_>], name: &[u8]) -> Option<Vec<u8>> {
    let is = |field: &&Field<'_>| {
        field.name.eq_ignore_ascii_case(name)
            || !field.name.iter().all(is_visible)
                && trim(&visible(field.name)).eq_ignore_ascii_case(name)
    };
    let values: Vec<_> = fields.iter().filter(is).map(|field| visible(field.value)).collect();
    (!values.is_empty()).then(|| values.join(&b", "[..]))
}

/// The values of all fields of a name, joined by commas.
pub(super) fn joined(fields: &[Field<'_>], name: &[u8]) -> Option<Vec<u8>> {
    let mut values = fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    Some(all)
}

/// The target in a request line.
pub(super) fn target(line: &[u8]) -> &[u8] {
    let method_end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let end = protocol_at(line).filter(|at| *at > method_end).unwrap_or(line.len());
    line[method_end..end].trim_ascii()
}

pub(super) fn put_request_line(message: &mut Message, line: &[u8]) {
    let target = target(line);
    message.put(Buffer::HttpRequestLine, line);
    message.put(Buffer::HttpMethod, method(line));
    message.put(Buffer::HttpRawUri, target);
    message.put(Buffer::HttpUri, uri::normalise(target));
    if let Some(at) = protocol_at(line) {
        message.put(Buffer::HttpProtocol, &line[at..]);
    }
}

pub(super) fn put_host(message: &mut Message, line: &[u8], fields: &[Field<'_>]) {
    let named = joined(fields, b"host");
    if let Some(raw) = uri::host(target(line)).or(named.as_deref()) {
        message.put(Buffer::HttpRawHost, raw);
        let colon = raw.iter().rposition(|b| *b == b':').filter(|at| !raw[*at..].contains(&b']'));
        message.put(Buffer::HttpHost, raw[..colon.unwrap_or(raw.len())].to_ascii_lowercase());
    }
}

pub(super) fn method(line: &[u8]) -> &[u8] {
    line.split(|b| matches!(b, b' ' | b'\t')).next().unwrap_or(&[])
}

/// Adds the buffers of a response line; returns its status, or 0 without one.
pub(super) fn put_response(message: &mut Message, line: &[u8]) -> u16 {
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

pub(super) fn put_fields(message: &mut Message, to_server: bool, fields: &[Field<'_>], raw: &[u8]) {
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

pub(super) fn is_chunked(fields: &[Field<'_>]) -> bool {
    let coding = framing(fields, b"transfer-encoding").unwrap_or_default().to_ascii_lowercase();
    memchr::memmem::find(&coding, b"chunked").is_some()
}

/// The first number in a value; `None` without one, or if it is too large.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    let first = value.iter().position(u8::is_ascii_digit)?;
    let digits = value[first..].iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&value[first..][..digits]).ok()?.parse().ok()
}

/// The first number in Content-Length; `None` without one.
pub(super) fn length(fields: &[Field<'_>]) -> Option<u64> {
    number(&framing(fields, b"content-length")?)
}

/// The codings of the content and of its transfer, in the order in which they were applied.
pub(super) fn codings(fields: &[Field<'_>]) -> Vec<Coding> {
    let values = [&b"content-encoding"[..], b"transfer-encoding"].map(|name| framing(fields, name));
    let words = values.iter().flatten().flat_map(|v| v.split(|b| matches!(b, b',' | b' ' | b';')));
    words.filter_map(Coding::named).take(CODINGS).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    proptest! {
        #[test]
        fn a_head_that_arrives_in_pieces_ends_where_a_whole_one_does(
            bytes in proptest::collection::vec(select(b"\r\n\n aG".to_vec()), 0..40),
            pieces in proptest::collection::vec(1usize..6, 40),
            to_server in any::<bool>(),
        ) {
            let (mut ends, mut length) = (Ends::default(), 0);
            for piece in pieces {
                length = bytes.len().min(length + piece);
                let there = &bytes[..length];
                prop_assert_eq!(ends.is_blank(there), there.trim_ascii_start().is_empty());
                prop_assert_eq!(ends.of_line(there), Ends::default().of_line(there));
                let end = ends.of_head(there, to_server);
                prop_assert_eq!(end, Ends::default().of_head(there, to_server));
                if end.is_some() {
                    break;
                }
            }
        }
    }
}
