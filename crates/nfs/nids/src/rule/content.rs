//! Payload tests.

use std::hash::{Hash, Hasher};

use super::super::buffer::Buffer;
use super::super::haystack::Needle;
use super::contents::has_upper_case;
use super::outline::{Flags, Outline};
use super::text::{Fault, Piece};

/// A test of the payload, in the order of the rule.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum PayloadTest {
    Content(Content),
    Regex(Regex),
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract(ByteExtract),
    IsDataAt {
        at: Number,
        relative: bool,
        negated: bool,
    },
    /// The data at a position, at most `bytes` long, passes `tests` once decoded.
    Base64 {
        bytes: Option<usize>,
        offset: usize,
        relative: bool,
        tests: Vec<PayloadTest>,
    },
    /// The buffer's size lies in `low..=high`, or, if negated, outside it.
    Size {
        low: u64,
        high: u64,
        negated: bool,
    },
}

impl PayloadTest {
    /// The content, if it is one that has to occur.
    pub(in super::super) fn required(&self) -> Option<&Content> {
        match self {
            Self::Content(content) if !content.negated => Some(content),
            _ => None,
        }
    }

    /// Whether its position is relative to the end of the previous match.
    pub(in super::super) fn is_relative(&self) -> bool {
        match self {
            Self::Content(c) => c.is_relative(),
            Self::Regex(r) => r.relative,
            Self::ByteTest(t) => t.place.relative,
            Self::ByteJump(j) => j.place.relative,
            Self::ByteExtract(e) => e.place.relative,
            Self::IsDataAt { relative, .. } | Self::Base64 { relative, .. } => *relative,
            Self::Size { .. } => false,
        }
    }
}

/// A number in a rule, or a variable read from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Number {
    Literal(i64),
    /// The variable with this index.
    Variable(usize),
}

/// The maximum number of variables in a rule.
pub(in super::super) const VARIABLES: usize = 8;

/// A transformation of a buffer before it is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Transform {
    ToLowercase,
    ToUppercase,
    StripWhitespace,
    CompressWhitespace,
    /// Prepends a dot, so that `.host.com` is found at the beginning too.
    DotPrefix,
}

/// A buffer and its tests.
#[derive(Debug, Default)]
pub(in super::super) struct Part {
    pub(in super::super) buffer: Buffer,
    pub(in super::super) transforms: Vec<Transform>,
    pub(in super::super) tests: Vec<PayloadTest>,
}

/// Bytes to find.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Content {
    pub(in super::super) bytes: Needle,
    pub(in super::super) nocase: bool,
    pub(in super::super) negated: bool,
    pub(in super::super) offset: Option<Number>,
    pub(in super::super) depth: Option<Number>,
    /// From the end of the previous match.
    pub(in super::super) distance: Option<Number>,
    pub(in super::super) within: Option<Number>,
    pub(in super::super) ends_with: bool,
    pub(in super::super) fast_pattern: bool,
    /// Whether `fast_pattern:only` excludes a position.
    pub(in super::super) anywhere: bool,
    /// Its only place in the buffer, if it has one.
    pub(in super::super) place: Option<usize>,
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
    /// What its matches are like at least, if that is known.
    pub(in super::super) outline: Option<Outline>,
    pub(in super::super) negated: bool,
    pub(in super::super) relative: bool,
    /// As the rule has it, with its flags.
    pub(in super::super) text: String,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.negated) == (&other.text, other.negated)
    }
}

impl Eq for Regex {}

impl Hash for Regex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.text, self.negated).hash(state);
    }
}

/// The representation of a number in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Order {
    Big,
    Little,
    /// Digits in this base.
    Digits(u32),
}

/// The maximum number of digits read.
pub(in super::super) const MOST_DIGITS: i64 = 23;

/// The position and representation of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Place {
    /// Bytes of the number; with digits, 0 reads all there are.
    pub(in super::super) count: Number,
    pub(in super::super) offset: Number,
    pub(in super::super) relative: bool,
    pub(in super::super) order: Order,
    pub(in super::super) mask: u64,
}

impl Default for Place {
    fn default() -> Self {
        let zero = Number::Literal(0);
        Self { count: zero, offset: zero, relative: false, order: Order::Big, mask: u64::MAX }
    }
}

/// Compares a number (`byte_test`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct ByteTest {
    pub(in super::super) place: Place,
    pub(in super::super) operator: char,
    pub(in super::super) or_equal: bool,
    pub(in super::super) negated: bool,
    pub(in super::super) value: Number,
}

/// Stores a number in a variable (`byte_extract`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct ByteExtract {
    pub(in super::super) place: Place,
    pub(in super::super) multiplier: u64,
    pub(in super::super) align: u64,
    pub(in super::super) variable: usize,
}

/// Moves the position by a number (`byte_jump`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct ByteJump {
    pub(in super::super) place: Place,
    pub(in super::super) multiplier: u64,
    pub(in super::super) align: bool,
    pub(in super::super) from_beginning: bool,
    pub(in super::super) post_offset: Number,
}

/// Reads `"a|00 ff|b"` with its escapes.
pub(super) fn bytes(piece: Piece<'_>) -> Result<Vec<u8>, Fault> {
    let expected = "quoted bytes, hexadecimal between | and |, with \\ before each \" ; : \\ and |";
    let inner = piece.unquoted();
    if inner.start == piece.start {
        return Err(piece.fault("content without quotes", expected));
    }
    let (mut bytes, mut hex, mut escaped) = (Vec::new(), None::<String>, false);
    for c in inner.text.chars() {
        match (c, &mut hex) {
            ('|', Some(digits)) => {
                let parsed = ::hex::decode(digits)
                    .map_err(|_| piece.fault("bad hexadecimal digits", expected))?;
                bytes.extend(parsed);
                hex = None;
            }
            (c, Some(digits)) if c.is_ascii_hexdigit() => digits.push(c),
            (c, Some(_)) if c.is_whitespace() => {}
            (_, Some(_)) => return Err(piece.fault("bad hexadecimal digits", expected)),
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
        return Err(piece.fault("unterminated or empty content", expected));
    }
    Ok(bytes)
}

/// The value without the exclamation mark before it, and whether there was one.
pub(super) fn negation(value: Piece<'_>) -> (Piece<'_>, bool) {
    value.strip('!').map_or((value, false), |rest| (rest, true))
}

/// Reads `"/pattern/flags"`; a flag may name the buffer to search.
pub(super) fn regex(piece: Piece<'_>) -> Result<(Regex, Option<Buffer>), Fault> {
    let (piece, negated) = negation(piece);
    let inner = piece.unquoted();
    let expected = "\"/pattern/flags\"";
    let body = inner.strip('/').ok_or_else(|| piece.fault("bad pcre", expected))?;
    let end = body.text.rfind('/').ok_or_else(|| piece.fault("bad pcre", expected))?;
    let (pattern, flags) = (body.to(end), body.from(end + 1));
    let mut builder = pcre2::bytes::RegexBuilder::new();
    builder.jit_if_available(true);
    let (mut relative, mut prefix, mut buffer) = (false, String::new(), None);
    let (mut known, mut extended) = (Flags::default(), false);
    for flag in flags.text.chars() {
        match flag {
            'i' => {
                builder.caseless(true);
                known.caseless = true;
            }
            's' => {
                builder.dotall(true);
                known.dot_all = true;
            }
            'm' => {
                builder.multi_line(true);
                known.multi_line = true;
            }
            'x' => {
                builder.extended(true);
                extended = true;
            }
            'A' => {
                prefix += "\\A";
                known.anchored = true;
            }
            'G' => prefix.insert_str(0, "(?U)"),
            'R' => relative = true,
            // Our limits always apply; payloads are always raw.
            'O' | 'B' => {}
            // Names of variables follow, into which Suricata captures text.
            ',' => return Err(Fault::unsupported(flags.span(), "pcre with variables")),
            'E' | 'K' => {
                return Err(Fault::unsupported(flags.span(), format!("pcre flag '{flag}'")));
            }
            _ => match Buffer::of_flag(flag) {
                Some(_) if buffer.is_some() => {
                    return Err(flags.fault("flags for two buffers", "one buffer for each pcre"));
                }
                Some(of_flag) => buffer = Some(of_flag),
                None => {
                    let expected = "flags from ismxAEGROBKUIPQHDMCSYVW";
                    return Err(flags.fault(format!("unknown pcre flag '{flag}'"), expected));
                }
            },
        }
    }
    if buffer == Some(Buffer::HttpHost) && !known.caseless && has_upper_case(pattern.text) {
        let message = "no packet can match: http.host is in lower case";
        return Err(pattern.fault(message, "a pattern in lower case"));
    }
    // The rule syntax requires semicolons and quotes to be escaped.
    let pattern = pattern.text.replace("\\;", ";").replace("\\\"", "\"");
    // Bounds the search on a hostile packet (Suricata's own limits).
    let text = format!("(*LIMIT_MATCH=3500)(*LIMIT_DEPTH=1500){prefix}(?:{pattern})");
    let regex = builder.build(&text);
    let regex =
        regex.map_err(|e| inner.fault(format!("bad pcre: {e}"), "a pattern that PCRE2 accepts"))?;
    // The other parser takes blanks of extended expressions out of classes, too.
    let outline = if extended { None } else { Outline::new(&pattern, known) };
    let text = body.text.to_owned();
    Ok((Regex { regex, outline, negated, relative, text }, buffer))
}
