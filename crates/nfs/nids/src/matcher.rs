//! Verifies a rule's payload tests in full.
//!
//! The tests run in the rule's order. If a test is relative to the previous
//! match, other occurrences of that match are tried too (backtracking),
//! within a budget, so that no packet can make a rule expensive.

use super::rule::{
    ByteExtract, ByteJump, ByteTest, Content, MOST_DIGITS, Number, Order, PayloadTest, Place,
    Regex, VARIABLES,
};

/// The maximum number of positions that one rule tries in one packet.
const BUDGET: u32 = 4096;

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Match,
    NoMatch,
    /// The budget or the match limit of a regular expression was exhausted.
    GaveUp,
}

/// Whether all `tests` hold in `payload`.
pub(super) fn verify(tests: &[PayloadTest], payload: &[u8]) -> Outcome {
    let mut search = Search { payload, budget: BUDGET, gave_up: false, variables: [0; VARIABLES] };
    match search.from(tests, 0) {
        true => Outcome::Match,
        false if search.gave_up => Outcome::GaveUp,
        false => Outcome::NoMatch,
    }
}

struct Search<'a> {
    payload: &'a [u8],
    budget: u32,
    gave_up: bool,
    variables: [u64; VARIABLES],
}

impl Search<'_> {
    /// Whether `tests` hold if the previous match ended at `cursor`.
    fn from(&mut self, tests: &[PayloadTest], cursor: usize) -> bool {
        let Some((test, rest)) = tests.split_first() else { return true };
        match test {
            PayloadTest::Content(content) => self.content(content, rest, cursor),
            PayloadTest::Regex(regex) => self.regex(regex, rest, cursor),
            PayloadTest::IsDataAt { at, relative, negated } => {
                let from = if *relative { cursor as i64 } else { 1 };
                let end = from.saturating_add(self.value(*at));
                (end <= self.payload.len() as i64) != *negated && self.from(rest, cursor)
            }
            PayloadTest::ByteTest(test) => {
                let value = self.value(test.value) as u64;
                let number = self.number(&test.place, cursor);
                number.is_some_and(|(n, _)| compare(n, test, value)) && self.from(rest, cursor)
            }
            PayloadTest::ByteExtract(extract) => match self.extract(extract, cursor) {
                Some(cursor) => self.from(rest, cursor),
                None => false,
            },
            PayloadTest::Base64 { bytes, offset, relative, tests } => {
                let from = if *relative { cursor } else { 0 } + offset;
                let encoded = self.payload.get(from..).unwrap_or(&[]);
                let decoded = base64(&encoded[..bytes.unwrap_or(encoded.len()).min(encoded.len())]);
                let inner = Search { payload: &decoded, gave_up: false, ..*self }.from(tests, 0);
                !decoded.is_empty() && inner && self.from(rest, cursor)
            }
            PayloadTest::Size { low, high, negated } => {
                let size = self.payload.len() as u64;
                (*low..=*high).contains(&size) != *negated && self.from(rest, cursor)
            }
            PayloadTest::ByteJump(jump) => match self.jump(jump, cursor) {
                Some(cursor) => self.from(rest, cursor),
                None => false,
            },
        }
    }

    fn spend(&mut self) -> bool {
        if let Some(left) = self.budget.checked_sub(1) {
            self.budget = left;
            true
        } else {
            self.gave_up = true;
            false
        }
    }

    fn content(&mut self, content: &Content, rest: &[PayloadTest], cursor: usize) -> bool {
        let (start, end) = bounds(content, self.payload.len(), cursor, &self.variables);
        let mut at = start;
        let again = PayloadTest::depend_on_place(rest);
        while let Some(found) = find(content, self.payload, at, end) {
            if content.negated {
                return false;
            }
            if !self.spend() {
                return false;
            }
            if self.from(rest, found + content.bytes.len()) {
                return true;
            }
            // Another occurrence makes no difference to tests that do not depend on its place.
            if !again {
                return false;
            }
            at = found + 1;
        }
        content.negated && self.from(rest, cursor)
    }

    fn regex(&mut self, regex: &Regex, rest: &[PayloadTest], cursor: usize) -> bool {
        let base = if regex.relative { cursor.min(self.payload.len()) } else { 0 };
        let subject = &self.payload[base..];
        let again = PayloadTest::depend_on_place(rest);
        let mut at = 0;
        while at <= subject.len() {
            let found = match regex.regex.find_at(subject, at) {
                Ok(Some(found)) => (found.start(), found.end()),
                Ok(None) => break,
                Err(_) => {
                    self.gave_up = true;
                    return false;
                }
            };
            if regex.negated {
                return false;
            }
            if !self.spend() {
                return false;
            }
            if self.from(rest, base + found.1) {
                return true;
            }
            if !again {
                return false;
            }
            at = found.0 + 1;
        }
        regex.negated && self.from(rest, cursor)
    }

    fn value(&self, number: Number) -> i64 {
        value(number, &self.variables)
    }

    /// Reads a number into a variable; returns its end, which becomes the end of the previous
    /// match.
    fn extract(&mut self, extract: &ByteExtract, cursor: usize) -> Option<usize> {
        let (number, end) = self.number(&extract.place, cursor)?;
        let number = number.saturating_mul(extract.multiplier);
        let aligned = number.checked_next_multiple_of(extract.align);
        self.variables[extract.variable] = aligned.unwrap_or(number);
        Some(end)
    }

    /// The number at a place, and its end.
    fn number(&self, place: &Place, cursor: usize) -> Option<(u64, usize)> {
        let Place { relative, order, mask, .. } = *place;
        let count = usize::try_from(self.value(place.count)).ok()?;
        let offset = self.value(place.offset);
        let base = if relative { cursor as i64 } else { 0 };
        let start = usize::try_from(base.checked_add(offset)?).ok()?;
        let number = if let Order::Digits(base) = order {
            let there = self.payload.get(start..)?;
            let most = if count == 0 { MOST_DIGITS as usize } else { count };
            let text = &there[..there.len().min(most)];
            // Any bytes may follow the digits; they need not be text.
            let digits = text.iter().take_while(|b| b.is_ascii()).count();
            let text = &text[..digits];
            let text = std::str::from_utf8(text).ok()?.trim_start();
            let text = text.strip_prefix("0x").filter(|_| base == 16).unwrap_or(text);
            let end = text.find(|c: char| !c.is_digit(base)).unwrap_or(text.len());
            u64::from_str_radix(&text[..end], base).ok()?
        } else {
            // A count read from the packet may be any number.
            let bytes =
                self.payload.get(start..start.checked_add(count)?).filter(|b| b.len() <= 8)?;
            let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
            if order == Order::Little {
                bytes.iter().rev().fold(0, fold)
            } else {
                bytes.iter().fold(0, fold)
            }
        };
        // A masked number is shifted right by the position of the mask's lowest bit.
        let number = if mask == u64::MAX {
            number
        } else {
            (number & mask) >> mask.trailing_zeros().min(63)
        };
        Some((number, start.saturating_add(count)))
    }

    fn jump(&self, jump: &ByteJump, cursor: usize) -> Option<usize> {
        let (number, end) = self.number(&jump.place, cursor)?;
        let mut distance = number.checked_mul(jump.multiplier)?;
        if jump.align {
            distance = distance.checked_next_multiple_of(4)?;
        }
        let base = if jump.from_beginning { 0 } else { end as i64 };
        let to = base
            .checked_add(i64::try_from(distance).ok()?)?
            .checked_add(self.value(jump.post_offset))?;
        usize::try_from(to).ok().filter(|to| *to <= self.payload.len())
    }
}

/// Decodes base64 (RFC 4648) up to the first invalid byte; skips line ends and blanks.
fn base64(encoded: &[u8]) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let (mut out, mut bits, mut held) = (Vec::new(), 0, 0u32);
    for byte in encoded.iter().filter(|b| !b.is_ascii_whitespace()) {
        let Some(six) = value(*byte) else { break };
        held = held << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
        }
    }
    out
}

/// The value of a rule's number.
fn value(number: Number, variables: &[u64; VARIABLES]) -> i64 {
    match number {
        Number::Literal(n) => n,
        Number::Variable(index) => i64::try_from(variables[index]).unwrap_or(i64::MAX),
    }
}

fn compare(number: u64, test: &ByteTest, value: u64) -> bool {
    let holds = match test.operator {
        '<' => number < value || test.or_equal && number == value,
        '>' => number > value || test.or_equal && number == value,
        '&' => number & value != 0,
        '^' => number ^ value != 0,
        _ => number == value,
    };
    holds != test.negated
}

/// The earliest start and the latest end of the content, as Suricata counts:
/// offset from the payload's start, depth from offset, distance from the
/// previous match, within from the end of distance.
fn bounds(
    content: &Content,
    len: usize,
    cursor: usize,
    variables: &[u64; VARIABLES],
) -> (usize, usize) {
    let of = |number: Option<Number>| number.map(|n| value(n, variables));
    let clamp = |at: i64| at.clamp(0, len as i64) as usize;
    let (mut start, mut end) = (0, len);
    if content.is_relative() {
        let from = (cursor as i64).saturating_add(of(content.distance).unwrap_or(0));
        start = clamp(from);
        if let Some(within) = of(content.within) {
            end = clamp(from.saturating_add(within));
        }
    }
    let offset = of(content.offset).unwrap_or(0);
    start = start.max(clamp(offset));
    if let Some(depth) = of(content.depth) {
        end = end.min(clamp(offset.saturating_add(depth)));
    }
    if content.ends_with {
        start = start.max(len.saturating_sub(content.bytes.len()));
    }
    (start, end)
}

/// The first occurrence that begins at `start` or later and ends by `end`.
fn find(content: &Content, payload: &[u8], start: usize, end: usize) -> Option<usize> {
    let hay = payload.get(start..end.min(payload.len()))?;
    let needle = &content.bytes[..];
    let at = if content.nocase {
        find_in_any_case(hay, needle, content.anchor)
    } else {
        memchr::memmem::find(hay, needle)
    };
    at.map(|at| start + at)
}

/// The first occurrence of `needle`, in lower case, in any case; looks for its byte at `anchor` first.
fn find_in_any_case(hay: &[u8], needle: &[u8], anchor: usize) -> Option<usize> {
    let rare = *needle.get(anchor)?;
    let last = hay.len().checked_sub(needle.len())?;
    let places = &hay[anchor..=anchor + last];
    memchr::memchr2_iter(rare, rare.to_ascii_uppercase(), places)
        .find(|at| hay[*at..at + needle.len()].eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(bytes: &[u8]) -> Content {
        Content { bytes: bytes.to_vec(), ..Content::default() }
    }

    /// Tries all ways to place the contents, one after the other.
    fn naive(contents: &[Content], payload: &[u8], cursor: usize) -> bool {
        let Some((first, rest)) = contents.split_first() else { return true };
        let (start, end) = bounds(first, payload.len(), cursor, &[0; VARIABLES]);
        let len = first.bytes.len();
        let places: Vec<usize> = (start..=payload.len())
            .filter(|at| at + len <= end)
            .filter(|at| {
                payload[*at..at + len]
                    .iter()
                    .zip(&first.bytes)
                    .all(|(p, b)| p == b || first.nocase && p.eq_ignore_ascii_case(b))
            })
            .collect();
        if first.negated {
            return places.is_empty() && naive(rest, payload, cursor);
        }
        places.into_iter().any(|at| naive(rest, payload, at + len))
    }

    proptest! {
        #[test]
        fn the_search_finds_what_trying_everything_finds(
            payload in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'A')], 0..20),
            tests in proptest::collection::vec((
                proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 1..3), any::<bool>(), any::<bool>(),
                proptest::option::of(0i64..6), proptest::option::of(1i64..8),
                proptest::option::of(-3i64..5), proptest::option::of(1i64..8), any::<bool>(),
            ), 1..5),
        ) {
            let contents: Vec<Content> = tests.into_iter().enumerate().map(|(i, t)| {
                let (bytes, nocase, negated, offset, depth, distance, within, relative) = t;
                let relative = relative && i > 0;
                let number = |n: Option<i64>| n.map(Number::Literal);
                Content {
                    anchor: if nocase { bytes.len() - 1 } else { 0 },
                    bytes, nocase, negated: negated && i > 0,
                    offset: if relative { None } else { number(offset) },
                    depth: if relative { None } else { number(depth) },
                    distance: if relative { number(distance) } else { None },
                    within: if relative { number(within) } else { None },
                    ..Content::default()
                }
            }).collect();
            let expected = naive(&contents, &payload, 0);
            let tests: Vec<_> = contents.into_iter().map(PayloadTest::Content).collect();
            let found = verify(&tests, &payload);
            prop_assert_eq!(found == Outcome::Match, expected);
        }
    }

    #[test]
    fn what_does_not_depend_on_a_place_is_not_tried_for_others() {
        let relative = |bytes: &[u8]| {
            PayloadTest::Content(Content { distance: Some(Number::Literal(0)), ..content(bytes) })
        };
        let absolute = |bytes: &[u8]| PayloadTest::Content(content(bytes));
        let payload = [&[b'a'; 3000][..], b"b", &[b'c'; 3000]].concat();
        // Without regard to that, each `a` would be tried with each `c`.
        let tests = [absolute(b"a"), absolute(b"b"), absolute(b"c"), relative(b"x")];
        assert_eq!(verify(&tests, &payload), Outcome::NoMatch);
        let tests = [absolute(b"a"), relative(b"a"), absolute(b"b"), relative(b"cc")];
        assert_eq!(verify(&tests, &payload), Outcome::Match);
    }

    #[test]
    fn a_hostile_payload_is_given_up_on() {
        let mut tests: Vec<_> = (0..8)
            .map(|_| {
                PayloadTest::Content(Content {
                    distance: Some(Number::Literal(0)),
                    ..content(b"a")
                })
            })
            .collect();
        tests.push(PayloadTest::Content(Content {
            distance: Some(Number::Literal(0)),
            ..content(b"b")
        }));
        assert_eq!(verify(&tests, &[b'a'; 1400]), Outcome::GaveUp);
    }
}
