//! Tests of the payload.

use super::text::{Fault, Piece};

/// A test of the payload, in the order of the rule.
#[derive(Debug)]
pub(in super::super) enum PayloadTest {
    Content(Content),
    Regex(Regex),
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    IsDataAt { at: i64, relative: bool, negated: bool },
}

/// Bytes to be found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Content {
    /// Lower case when `nocase`.
    pub(in super::super) bytes: Vec<u8>,
    pub(in super::super) nocase: bool,
    pub(in super::super) negated: bool,
    pub(in super::super) offset: Option<usize>,
    pub(in super::super) depth: Option<usize>,
    /// From the end of the match before.
    pub(in super::super) distance: Option<i64>,
    pub(in super::super) within: Option<i64>,
    pub(in super::super) ends_with: bool,
    pub(in super::super) fast_pattern: bool,
}

impl Content {
    pub(in super::super) fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// A regular expression.
#[derive(Debug)]
pub(in super::super) struct Regex {
    pub(in super::super) regex: pcre2::bytes::Regex,
    pub(in super::super) negated: bool,
    pub(in super::super) relative: bool,
}

/// How a number stands in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Order {
    Big,
    Little,
    /// Digits to this base.
    Digits(u32),
}

/// A number compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ByteTest {
    pub(in super::super) count: usize,
    pub(in super::super) operator: char,
    pub(in super::super) or_equal: bool,
    pub(in super::super) negated: bool,
    pub(in super::super) value: u64,
    pub(in super::super) offset: i64,
    pub(in super::super) relative: bool,
    pub(in super::super) order: Order,
    pub(in super::super) mask: u64,
}

/// A number that says where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ByteJump {
    pub(in super::super) count: usize,
    pub(in super::super) offset: i64,
    pub(in super::super) relative: bool,
    pub(in super::super) order: Order,
    pub(in super::super) mask: u64,
    pub(in super::super) multiplier: u64,
    pub(in super::super) align: bool,
    pub(in super::super) from_beginning: bool,
    pub(in super::super) post_offset: i64,
}

/// Reads `"a|00 ff|b"` with its escapes.
pub(super) fn bytes(piece: Piece<'_>) -> Result<Vec<u8>, Fault> {
    let expected = "bytes in quotes, hexadecimal ones between |, \\ before \" ; : \\ and |";
    let inner = piece.unquoted();
    if inner.start == piece.start {
        return Err(piece.fault("content without quotes", expected));
    }
    let (mut bytes, mut hex, mut escaped) = (Vec::new(), None::<String>, false);
    for c in inner.text.chars() {
        match (c, &mut hex) {
            ('|', Some(digits)) => {
                let parsed =
                    ::hex::decode(digits).map_err(|_| piece.fault("bad hexadecimal", expected))?;
                bytes.extend(parsed);
                hex = None;
            }
            (c, Some(digits)) if c.is_ascii_hexdigit() => digits.push(c),
            (c, Some(_)) if c.is_whitespace() => {}
            (_, Some(_)) => return Err(piece.fault("bad hexadecimal", expected)),
            ('|', None) if !escaped => hex = Some(String::new()),
            ('\\', None) if !escaped => {
                escaped = true;
                continue;
            }
            (c, None) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        escaped = false;
    }
    if hex.is_some() || escaped || bytes.is_empty() {
        return Err(piece.fault("content without end, or empty", expected));
    }
    Ok(bytes)
}

/// Reads `"/pattern/flags"`.
pub(super) fn regex(piece: Piece<'_>) -> Result<Regex, Fault> {
    let (piece, negated) = match piece.strip('!') {
        Some(rest) => (rest, true),
        None => (piece, false),
    };
    let inner = piece.unquoted();
    let expected = "\"/pattern/flags\"";
    let body = inner.strip('/').ok_or_else(|| piece.fault("bad pcre", expected))?;
    let end = body.text.rfind('/').ok_or_else(|| piece.fault("bad pcre", expected))?;
    let (pattern, flags) = (body.to(end), body.from(end + 1));
    let mut builder = pcre2::bytes::RegexBuilder::new();
    builder.jit_if_available(true);
    let (mut relative, mut prefix) = (false, String::new());
    for flag in flags.text.chars() {
        match flag {
            'i' => _ = builder.caseless(true),
            's' => _ = builder.dotall(true),
            'm' => _ = builder.multi_line(true),
            'x' => _ = builder.extended(true),
            'A' => prefix += "\\A",
            'G' => prefix.insert_str(0, "(?U)"),
            'R' => relative = true,
            // Our limits are always in force.
            'O' => {}
            other => return Err(Fault::unsupported(flags.span(), format!("pcre flag '{other}'"))),
        }
    }
    // Semicolons and quotes are escaped for the rule's sake.
    let pattern = pattern.text.replace("\\;", ";").replace("\\\"", "\"");
    // A hostile packet must not make a search endless (Suricata's own limits).
    let text = format!("(*LIMIT_MATCH=3500)(*LIMIT_DEPTH=1500){prefix}(?:{pattern})");
    let regex = builder.build(&text);
    let regex =
        regex.map_err(|e| inner.fault(format!("bad pcre: {e}"), "a pattern that PCRE2 takes"))?;
    Ok(Regex { regex, negated, relative })
}
