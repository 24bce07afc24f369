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

/// The end of the head, after the first empty line. Carriage returns before a line feed belong to
/// it; in a response, any other carriage return ends a line as well.
pub(super) fn head_end(bytes: &[u8], to_server: bool) -> Option<usize> {
    let mut at = 0;
    // Whether the current line is empty so far. The first line is not.
    let mut is_empty = false;
    loop {
        at += memchr::memchr2(b'\r', b'\n', &bytes[at..]).inspect(|n| is_empty &= *n == 0)?;
        let returns = bytes[at..].iter().take_while(|b| **b == b'\r').count();
        let end = match bytes.get(at + returns)? {
            b'\n' => at + returns + 1,
            _ if to_server => {
                (at, is_empty) = (at + returns, false);
                continue;
            }
            _ if returns > 1 => return Some(at + returns),
            _ => at + returns,
        };
        if is_empty {
            return Some(end);
        }
        (at, is_empty) = (end, true);
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

/// Text without the characters that receivers skip within a name or a value: NULs and other control
/// characters.
fn visible(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|b| *b >= b' ' && *b != 0x7f).collect()
}

/// As [`joined`], for fields that decide how a body is read: whatever a receiver may skip is skipped.
fn framing(fields: &[Field<'_>], name: &[u8]) -> Option<Vec<u8>> {
    let is = |field: &&Field<'_>| {
        field.name.eq_ignore_ascii_case(name)
            || trim(&visible(field.name)).eq_ignore_ascii_case(name)
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
