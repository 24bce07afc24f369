//! Detects contents that a buffer never has, and contents both required and excluded.

use std::ops::Range;

use super::super::buffer::Buffer;
use super::super::fit::transformed;
use super::content::{self, Content, Number, PayloadTest, Transform};
use super::draft::Draft;
use super::text::{Fault, Piece};

/// Rejects a content that `buffer`, after `transforms`, never has. `place` is the option that joins
/// the two.
pub(super) fn check(
    content: &Content,
    buffer: Buffer,
    transforms: &[Transform],
    place: Piece<'_>,
) -> Result<(), Fault> {
    let never = |reason: &str, expected: &str| {
        Err(place.fault(format!("no packet can match: {reason}"), expected.to_owned()))
    };
    let Content { bytes, nocase, .. } = content;
    if buffer == Buffer::HttpHost && (*nocase || bytes.iter().any(u8::is_ascii_uppercase)) {
        return never("http.host is in lower case", "lower case without nocase");
    }
    let blank = |byte: Option<&u8>| byte.is_some_and(|b| matches!(b, b' ' | b'\t'));
    if buffer == Buffer::HttpMethod && (blank(bytes.first()) || blank(bytes.last())) {
        return never("http.method has no blanks around it", "a method");
    }
    // A prepended dot adds to the bytes and changes none.
    let changes: Vec<_> =
        transforms.iter().filter(|t| **t != Transform::DotPrefix).copied().collect();
    if *transformed(&changes, bytes) != **bytes {
        return never("the transformation removes these bytes", "a content after it");
    }
    Ok(())
}

/// Whether the pattern of a `pcre` has letters in upper case outside escapes.
pub(super) fn has_upper_case(pattern: &str) -> bool {
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let digits = if chars.next() == Some('x') { 2 } else { 0 };
            for _ in 0..digits {
                chars.next_if(char::is_ascii_hexdigit);
            }
        } else if c.is_ascii_uppercase() {
            return true;
        }
    }
    false
}

/// Rejects a rule that requires and excludes the same content, or the same `pcre`. `list` holds its
/// options.
pub(super) fn check_opposites(draft: &Draft, list: Piece<'_>) -> Result<(), Fault> {
    let message = "the rule both requires and excludes this";
    let expected = "only one of the two, or two positions that differ";
    let at = |span: &Range<usize>| list.from(span.start - list.start).to(span.len());
    for part in &draft.rule.parts {
        if let Some(content) = opposed(&part.tests) {
            let same = |span: &&Range<usize>| {
                let (value, negated) = content::negation(at(span));
                negated
                    && content::bytes(value).is_ok_and(|b| b.eq_ignore_ascii_case(&content.bytes))
            };
            let span = draft.contents.iter().rev().find(same).map_or(list.span(), Range::clone);
            return Err(Fault::new(span, message, expected));
        }
    }
    let negation = |span: &Range<usize>| content::negation(at(span));
    for (i, (part, span)) in draft.regexes.iter().enumerate() {
        let (regex, negated) = negation(span);
        let opposite = |(other, span): &(usize, Range<usize>)| {
            let (text, sign) = negation(span);
            other == part && sign != negated && text.text == regex.text
        };
        if draft.regexes[..i].iter().any(opposite) {
            return Err(Fault::new(span.clone(), message, expected));
        }
    }
    Ok(())
}

/// A negated content that fails wherever another content of `tests` is found.
fn opposed(tests: &[PayloadTest]) -> Option<&Content> {
    // The contents that precede the next one without a test in between that moves the position.
    let mut since_moved = 0;
    let mut found = None;
    for (i, test) in tests.iter().enumerate() {
        match test {
            PayloadTest::Content(required) if !required.negated => {
                let excluded = tests.iter().enumerate().find_map(|(j, other)| match other {
                    PayloadTest::Content(other) if other.negated => {
                        let same_base = (since_moved..i).contains(&j) && required.is_relative();
                        let comparable = !other.is_relative() || same_base;
                        (comparable && excludes(other, required)).then_some(other)
                    }
                    _ => None,
                });
                found = found.or(excluded);
                since_moved = i + 1;
            }
            PayloadTest::Base64 { tests, .. } => found = found.or(opposed(tests)),
            PayloadTest::Regex(_) | PayloadTest::ByteJump(_) | PayloadTest::ByteExtract(_) => {
                since_moved = i + 1;
            }
            _ => {}
        }
    }
    found
}

/// Whether `excluded` is in its place wherever `required` is in its own.
fn excludes(excluded: &Content, required: &Content) -> bool {
    let (Some((low, high)), Some((least, most))) = (window(excluded), window(required)) else {
        return false;
    };
    // A relative content may be anywhere.
    let (least, most) = if required.is_relative() && !excluded.is_relative() {
        (0, i64::MAX)
    } else {
        (least, most)
    };
    let (inner, outer) = (&*excluded.bytes, &*required.bytes);
    let same = |at: usize| {
        let there = &outer[at..at + inner.len()];
        if excluded.nocase {
            there.eq_ignore_ascii_case(inner)
        } else {
            let fixed = !required.nocase || !inner.iter().any(u8::is_ascii_alphabetic);
            fixed && there == inner
        }
    };
    let last = outer.len().checked_sub(inner.len());
    last.is_some_and(|last| {
        (0..=last).any(|at| {
            let ends = !excluded.ends_with || required.ends_with && at == last;
            let (before, after) = (at as i64, (last - at) as i64);
            let inside = least.saturating_add(before) >= low
                && (high == i64::MAX || most != i64::MAX && most - after <= high);
            ends && inside && same(at)
        })
    })
}

/// The first position at which a content may begin and the last at which it may end, from the
/// beginning or from the previous match; `None` if they depend on the packet.
fn window(content: &Content) -> Option<(i64, i64)> {
    let literal = |number: Option<Number>| match number {
        Some(Number::Variable(_)) => None,
        Some(Number::Literal(n)) => Some(Some(n)),
        None => Some(None),
    };
    let (offset, depth) = (literal(content.offset)?, literal(content.depth)?);
    let (distance, within) = (literal(content.distance)?, literal(content.within)?);
    let (start, room) = if content.is_relative() { (distance, within) } else { (offset, depth) };
    let start = start.unwrap_or(0);
    let end = room.map_or(i64::MAX, |room| start.saturating_add(room));
    Some((start, end))
}
