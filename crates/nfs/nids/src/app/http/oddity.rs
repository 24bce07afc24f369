//! What is odd about the head of an HTTP message, by the names of Suricata's events, with which
//! `app-layer-event` asks for it. Where the two differ, docs/nf/nids.md says so.

use std::net::Ipv6Addr;

use super::super::body::Coding;
use super::super::{Message, uri};
use super::METHODS;
use super::head::{FIELDS, Field, joined, method, number, protocol_at, target};
use super::line::is_blank;
use crate::buffer::Buffer;

/// A longer line is odd (Suricata's hard limit).
const LONG_LINE: usize = 18_000;
/// A body with more codings is odd.
const FEW_CODINGS: usize = 2;
/// The largest chunk that is not odd.
pub(super) const LARGE_CHUNK: u64 = i32::MAX as u64;

macro_rules! oddities {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// An oddity of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in super::super::super) enum Oddity { $($(#[$doc])* $variant,)* }

        impl Oddity {
            /// The names of all.
            pub(in super::super::super) const NAMES: &[&str] = &[$($name,)*];

            /// The name of the event.
            pub(super) fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

oddities! {
    RequestLeadingBlank "request_line_leading_whitespace",
    MethodDelimiter "method_delim_non_compliant",
    UriDelimiter "uri_delim_non_compliant",
    RequestLong "request_field_too_long",
    RequestMany "request_too_many_headers",
    RequestFolding "invalid_request_field_folding",
    RequestNoColon "request_field_missing_colon",
    RequestName "request_header_invalid",
    HostMissing "missing_host_header",
    HostAmbiguous "host_header_ambiguous",
    HostOfUri "request_uri_host_invalid",
    HostOfHeader "request_header_host_invalid",
    RequestLength "invalid_content_length_field_in_request",
    RequestLengths "duplicate_content_length_field_in_request",
    RequestTransfer "invalid_transfer_encoding_value_in_request",
    RequestChunk "invalid_request_chunk_len",
    RequestBody "request_body_unexpected",
    Authorization "request_auth_unrecognized",
    ResponseProtocol "response_invalid_protocol",
    ResponseStatus "response_invalid_status",
    ResponseMany "response_too_many_headers",
    ResponseFolding "invalid_response_field_folding",
    ResponseNoColon "response_field_missing_colon",
    ResponseName "response_header_invalid",
    ResponseLength "invalid_content_length_field_in_response",
    ResponseLengths "duplicate_content_length_field_in_response",
    ResponseTransfer "response_abnormal_transfer_encoding",
    ChunkedOldProtocol "response_chunked_old_proto",
    ResponseChunk "invalid_response_chunk_len",
    ContentCoding "abnormal_ce_header",
    ManyCodings "too_many_encoding_layers",
    Undecodable "gzip_decompression_failed",
    /// A body of which only the beginning was decoded, whose bytes became over 500 times as many.
    Bomb "compression_bomb",
    Continued "100_continue_already_seen",
    Unasked "unable_to_match_response_to_request",
    Range "range_invalid",
}

/// The oddity of a chunk whose size is no number, or a very large one.
pub(super) fn of_chunk(to_server: bool) -> Oddity {
    if to_server { Oddity::RequestChunk } else { Oddity::ResponseChunk }
}

/// The oddity of a trailing field without a colon.
pub(super) fn of_trailer(to_server: bool) -> Oddity {
    if to_server { Oddity::RequestNoColon } else { Oddity::ResponseNoColon }
}

impl Message {
    /// Adds an oddity, once.
    pub(super) fn odd(&mut self, oddity: Oddity) {
        let name = oddity.name().as_bytes();
        if self.all(Buffer::HttpEvent).all(|known| known != name) {
            self.put(Buffer::HttpEvent, name);
            self.is_odd = true;
        }
    }
}

/// The oddities of a head's fields that both directions can have.
struct OfFields {
    many: Oddity,
    folding: Oddity,
    no_colon: Oddity,
    name: Oddity,
    length: Oddity,
    lengths: Oddity,
}

const OF_REQUEST: OfFields = OfFields {
    many: Oddity::RequestMany,
    folding: Oddity::RequestFolding,
    no_colon: Oddity::RequestNoColon,
    name: Oddity::RequestName,
    length: Oddity::RequestLength,
    lengths: Oddity::RequestLengths,
};

const OF_RESPONSE: OfFields = OfFields {
    many: Oddity::ResponseMany,
    folding: Oddity::ResponseFolding,
    no_colon: Oddity::ResponseNoColon,
    name: Oddity::ResponseName,
    length: Oddity::ResponseLength,
    lengths: Oddity::ResponseLengths,
};

/// Tells what is odd about a request's head: its first line, not trimmed, its fields as bytes, as
/// unfolded `lines` and parsed.
pub(super) fn of_request(
    line: &[u8],
    raw: &[u8],
    lines: &[Vec<u8>],
    fields: &[Field<'_>],
    tell: &mut impl FnMut(Oddity),
) {
    of_request_line(line, tell);
    if line.len() > LONG_LINE || raw.split(|b| *b == b'\n').any(|line| line.len() > LONG_LINE) {
        tell(Oddity::RequestLong);
    }
    of_fields(true, lines, fields, tell);
    let line = line.trim_ascii();
    let version = protocol_at(line).map_or(&b""[..], |at| &line[at..]);
    of_host(line, fields, version, tell);
    if let Some(coding) = joined(fields, b"transfer-encoding") {
        let is_chunked = |word: &[u8]| word.trim_ascii().eq_ignore_ascii_case(b"chunked");
        let has_token = coding.split(|b| *b == b',').any(is_chunked);
        if !has_token || !version.eq_ignore_ascii_case(b"HTTP/1.1") {
            tell(Oddity::RequestTransfer);
        }
    }
    if let Some(value) = joined(fields, b"authorization") {
        let known = [&b"basic"[..], b"digest", b"bearer"];
        let is = |name: &&[u8]| {
            value.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        };
        if !known.iter().any(is) {
            tell(Oddity::Authorization);
        }
    }
}

/// Whether a line after a request is no request line: it has neither a known method nor a protocol.
pub(super) fn is_no_request(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let known = METHODS.iter().any(|m| m.trim_ascii_end() == method(line));
    !line.is_empty() && !known && protocol_at(line).is_none()
}

fn of_request_line(line: &[u8], tell: &mut impl FnMut(Oddity)) {
    let blanks = |text: &[u8]| text.iter().take_while(|b| is_blank(**b)).count();
    let first = blanks(line);
    if first > 0 {
        tell(Oddity::RequestLeadingBlank);
    }
    let line = line[first..].trim_ascii_end();
    let rest = &line[line.iter().take_while(|b| !is_blank(**b)).count()..];
    let (delimiter, rest) = rest.split_at(blanks(rest));
    if delimiter.iter().any(|b| *b != b' ') {
        tell(Oddity::MethodDelimiter);
    }
    let uri = rest.split(|b| *b == b' ').next().unwrap_or(&[]);
    if uri.iter().any(|b| is_blank(*b)) {
        tell(Oddity::UriDelimiter);
    }
}

fn of_fields(
    to_server: bool,
    lines: &[Vec<u8>],
    fields: &[Field<'_>],
    tell: &mut impl FnMut(Oddity),
) {
    let of = if to_server { &OF_REQUEST } else { &OF_RESPONSE };
    if lines.len() > FIELDS {
        tell(of.many);
    }
    for line in lines {
        let mut line = &line[..];
        if matches!(line[0], b' ' | b'\t') {
            tell(of.folding);
            line = line.trim_ascii_start();
        }
        match line.iter().position(|b| *b == b':') {
            // A NUL ends the line for servers.
            Some(at) if to_server && line[..at].contains(&0) => tell(of.no_colon),
            Some(at) if at == 0 || !line[..at].iter().all(|b| is_of_token(*b)) => tell(of.name),
            Some(_) => {}
            None => tell(of.no_colon),
        }
    }
    let is_length = |field: &&Field<'_>| field.name.eq_ignore_ascii_case(b"content-length");
    let mut lengths = fields.iter().filter(is_length).map(|field| number(field.value));
    if let Some(first) = lengths.next() {
        if first.is_none_or(|length| i64::try_from(length).is_err()) {
            tell(of.length);
        }
        if lengths.any(|other| other != first) {
            tell(of.lengths);
        }
    }
}

/// Whether a byte may occur in a field's name (RFC 9110, section 5.6.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The oddities of the hosts in a request's target and in its `Host`.
fn of_host(line: &[u8], fields: &[Field<'_>], version: &[u8], tell: &mut impl FnMut(Oddity)) {
    let target = target(line);
    let target = target.split(|b| is_blank(*b)).next().unwrap_or(&[]);
    let authority = if method(line).eq_ignore_ascii_case(b"CONNECT") {
        Some(target)
    } else {
        uri::host(target)
    };
    let of_uri = authority.map(Authority::read);
    if of_uri.as_ref().is_some_and(|authority| !authority.is_valid()) {
        tell(Oddity::HostOfUri);
    }
    let Some(value) = joined(fields, b"host") else {
        if version.eq_ignore_ascii_case(b"HTTP/1.1") {
            tell(Oddity::HostMissing);
        }
        return;
    };
    let of_header = Authority::read(&value);
    if !of_header.is_valid() {
        tell(Oddity::HostOfHeader);
    }
    let Some(of_uri) = of_uri else { return };
    let ports = (of_uri.port, of_header.port);
    let differ = matches!(ports, (Ok(Some(a)), Ok(Some(b))) if a != b);
    if differ || !of_uri.host.eq_ignore_ascii_case(of_header.host) {
        tell(Oddity::HostAmbiguous);
    }
}

/// A host and a port.
struct Authority<'a> {
    host: &'a [u8],
    /// `Err` if it is no number of a port.
    port: Result<Option<u16>, ()>,
}

impl<'a> Authority<'a> {
    fn read(text: &'a [u8]) -> Self {
        let text = text.trim_ascii();
        let after = if text.first() == Some(&b'[') {
            text.iter().position(|b| *b == b']').map_or(text.len(), |at| at + 1)
        } else {
            text.iter().position(|b| *b == b':').unwrap_or(text.len())
        };
        let (host, rest) = text.split_at(after);
        let port = match rest {
            [] => Ok(None),
            [b':', digits @ ..] => {
                let number = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
                number.filter(|port| *port > 0).map(Some).ok_or(())
            }
            _ => Err(()),
        };
        let dots = host.iter().rev().take_while(|b| **b == b'.').count();
        Self { host: &host[..host.len() - dots], port }
    }

    fn is_valid(&self) -> bool {
        self.port.is_ok() && is_host(self.host)
    }
}

/// Whether a text may name a host: labels of letters, digits, `-` and `_`, or an IPv6 address in
/// brackets.
fn is_host(host: &[u8]) -> bool {
    if let [b'[', address @ .., b']'] = host {
        return std::str::from_utf8(address).is_ok_and(|a| a.parse::<Ipv6Addr>().is_ok());
    }
    let label = |label: &[u8]| {
        let is_fit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.iter().all(is_fit)
    };
    host.len() <= 255 && host.split(|b| *b == b'.').all(label)
}

/// Tells what is odd about a response's head.
pub(super) fn of_response(
    line: &[u8],
    lines: &[Vec<u8>],
    fields: &[Field<'_>],
    tell: &mut impl FnMut(Oddity),
) {
    let line = line.trim_ascii();
    let mut words = line.splitn(2, |b| matches!(b, b' ' | b'\t'));
    let version = words.next().unwrap_or(&[]);
    if !matches!(version, b"HTTP/1.1" | b"HTTP/1.0" | b"HTTP/0.9") {
        tell(Oddity::ResponseProtocol);
    }
    let rest = words.next().unwrap_or(&[]).trim_ascii_start();
    let status = rest.split(u8::is_ascii_whitespace).next().unwrap_or(&[]);
    let status = std::str::from_utf8(status).ok().and_then(|s| s.parse::<u32>().ok());
    if status.is_none_or(|status| !(100..1000).contains(&status)) {
        tell(Oddity::ResponseStatus);
    }
    of_fields(false, lines, fields, tell);
    let transfer = lines.iter().filter_map(|line| value_of(line, b"transfer-encoding"));
    let transfer = transfer.collect::<Vec<_>>().join(&b", "[..]).to_ascii_lowercase();
    if memchr::memmem::find(&transfer, b"chunked").is_some() {
        if transfer != b"chunked" {
            tell(Oddity::ResponseTransfer);
        }
        if version != b"HTTP/1.1" {
            tell(Oddity::ChunkedOldProtocol);
        }
    }
    if let Some(codings) = joined(fields, b"content-encoding") {
        of_codings(&codings.to_ascii_lowercase(), tell);
    }
    if status == Some(206)
        && joined(fields, b"content-range").is_some_and(|range| !is_range(range.trim_ascii()))
    {
        tell(Oddity::Range);
    }
}

/// The value of a field named `name`, with what only some receivers trim.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let colon = line.iter().position(|b| *b == b':')?;
    let is = line[..colon].trim_ascii().eq_ignore_ascii_case(name);
    is.then(|| line[colon + 1..].trim_ascii())
}

/// The oddities of a `Content-Encoding` in lower case.
fn of_codings(value: &[u8], tell: &mut impl FnMut(Oddity)) {
    const PLAIN: &[&[u8]] =
        &[b"gzip", b"x-gzip", b"deflate", b"x-deflate", b"lzma", b"inflate", b"none"];
    let mut layers = 0;
    for word in value.split(|b| matches!(b, b',' | b' ' | b'\t')).filter(|word| !word.is_empty()) {
        if !PLAIN.contains(&word) {
            tell(Oddity::ContentCoding);
        }
        layers += usize::from(Coding::named(word).is_some());
    }
    if layers > FEW_CODINGS {
        tell(Oddity::ManyCodings);
    }
}

/// Whether a `Content-Range` is one of bytes (RFC 9110, section 14.4).
fn is_range(value: &[u8]) -> bool {
    let Some(Ok(value)) = value.strip_prefix(b"bytes").map(std::str::from_utf8) else {
        return false;
    };
    let Some((range, size)) = value.trim().split_once('/') else { return false };
    let size = if size == "*" { Some(u64::MAX) } else { size.parse().ok() };
    let bounds = range.split_once('-').map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>()));
    match (size, bounds) {
        (Some(size), Some((Ok(from), Ok(to)))) => from <= to && to < size,
        (Some(_), None) => range == "*",
        _ => false,
    }
}
