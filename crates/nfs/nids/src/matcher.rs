//! Verifies a rule's payload tests in full.
//!
//! The tests run in the rule's order. If a test is relative to the previous
//! match, other occurrences of that match are tried too (backtracking), but
//! not those after which the same tests would fail again: a failure tells
//! from where on the previous match may end differently. What remains is
//! limited by a budget, so that no packet can make a rule expensive.

use super::haystack::Haystack;
use super::rule::{
    ByteExtract, ByteJump, ByteTest, Content, MOST_DIGITS, Number, Order, PayloadTest, Place,
    Regex, VARIABLES,
};
use super::work;

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

/// Whether all `tests` hold in a payload.
pub(super) fn verify(tests: &[PayloadTest], hay: &Haystack<'_>) -> Outcome {
    let mut search = Search::new(hay, BUDGET);
    match search.from(tests, 0) {
        Ok(()) => Outcome::Match,
        Err(_) if search.gave_up => Outcome::GaveUp,
        Err(_) => Outcome::NoMatch,
    }
}

/// Whether tests hold if the previous match ended at some place. If not, `Err` has the next place
/// at which they might: they fail at all places before it, too.
type Held = Result<(), usize>;

/// The tests fail wherever the previous match ended.
const NEVER: usize = usize::MAX;

struct Search<'a> {
    hay: &'a Haystack<'a>,
    payload: &'a [u8],
    budget: u32,
    gave_up: bool,
    variables: [u64; VARIABLES],
}

impl<'a> Search<'a> {
    fn new(hay: &'a Haystack<'a>, budget: u32) -> Self {
        Self { hay, payload: hay.bytes(), budget, gave_up: false, variables: [0; VARIABLES] }
    }

    /// Whether `tests` hold if the previous match ended at `cursor`.
    fn from(&mut self, tests: &[PayloadTest], cursor: usize) -> Held {
        let Some((test, rest)) = tests.split_first() else { return Ok(()) };
        let fails = Err(if test.is_relative() { cursor + 1 } else { NEVER });
        match test {
            PayloadTest::Content(content) if content.negated => {
                let bounds = Bounds::new(content, self.payload.len(), cursor, &self.variables);
                match self.hay.find(&content.bytes, bounds.start, bounds.end()) {
                    Some(_) => fails,
                    None => self.from(rest, cursor),
                }
            }
            PayloadTest::Content(content) => self.content(content, rest, cursor),
            PayloadTest::Regex(regex) => {
                if self.regex(regex, rest, cursor) {
                    Ok(())
                } else {
                    fails
                }
            }
            PayloadTest::IsDataAt { at, relative, negated } => {
                let from = if *relative { cursor as i64 } else { 1 };
                let end = from.saturating_add(self.value(*at));
                match (end <= self.payload.len() as i64, negated) {
                    (true, false) | (false, true) => self.from(rest, cursor),
                    (true, true) => fails,
                    // Less follows a later place.
                    (false, false) => Err(NEVER),
                }
            }
            PayloadTest::ByteTest(test) => {
                let value = self.value(test.value) as u64;
                match self.number(&test.place, cursor) {
                    Some((number, _)) if compare(number, test, value) => self.from(rest, cursor),
                    _ => fails,
                }
            }
            PayloadTest::ByteExtract(extract) => {
                let end = self.extract(extract, cursor);
                end.map_or(fails, |end| self.from(rest, end).or(fails))
            }
            PayloadTest::Base64 { bytes, offset, relative, tests } => {
                let from = if *relative { cursor } else { 0 } + offset;
                let encoded = self.payload.get(from..).unwrap_or(&[]);
                let decoded = base64(&encoded[..bytes.unwrap_or(encoded.len()).min(encoded.len())]);
                let hay = Haystack::new(&decoded);
                let mut inner = Search::new(&hay, self.budget);
                inner.variables = self.variables;
                let inner = inner.from(tests, 0);
                if decoded.is_empty() || inner.is_err() { fails } else { self.from(rest, cursor) }
            }
            PayloadTest::Size { low, high, negated } => {
                let size = self.payload.len() as u64;
                let holds = (*low..=*high).contains(&size) != *negated;
                if holds { self.from(rest, cursor) } else { fails }
            }
            PayloadTest::ByteJump(jump) => {
                let end = self.jump(jump, cursor);
                end.map_or(fails, |end| self.from(rest, end).or(fails))
            }
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

    /// A content that has to occur, and the tests after it.
    fn content(&mut self, content: &Content, rest: &[PayloadTest], cursor: usize) -> Held {
        let bounds = Bounds::new(content, self.payload.len(), cursor, &self.variables);
        let (mut at, length) = (bounds.start, content.bytes.len());
        // Beyond what slides with the previous match, too: that tells how far it would have to.
        while let Some(found) = self.hay.find(&content.bytes, at, bounds.fixed_end) {
            let end = found + length;
            if let Some(beyond) = bounds.sliding_end.and_then(|last| (end as i64).checked_sub(last))
                && beyond > 0
            {
                return Err(cursor.saturating_add(beyond as usize));
            }
            if !self.spend() {
                break;
            }
            match self.from(rest, end) {
                Ok(()) => return Ok(()),
                Err(NEVER) => break,
                Err(next) => at = (found + 1).max(next - length),
            }
        }
        // After a later match there are but fewer occurrences.
        Err(NEVER)
    }

    fn regex(&mut self, regex: &Regex, rest: &[PayloadTest], cursor: usize) -> bool {
        let base = if regex.relative { cursor.min(self.payload.len()) } else { 0 };
        let subject = &self.payload[base..];
        let mut at = 0;
        while at <= subject.len() {
            work::add(work::REGEX);
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
            match self.from(rest, base + found.1) {
                Ok(()) => return true,
                Err(NEVER) => return false,
                Err(_) => at = found.0 + 1,
            }
        }
        regex.negated && self.from(rest, cursor).is_ok()
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

/// Where a content may lie, as Suricata counts: offset from the payload's start, depth from
/// offset, distance from the previous match, within from the end of distance.
struct Bounds {
    /// The earliest start.
    start: usize,
    /// The latest end.
    fixed_end: usize,
    /// A latest end that is relative to the previous match; may lie beyond the payload.
    sliding_end: Option<i64>,
}

impl Bounds {
    fn new(content: &Content, len: usize, cursor: usize, variables: &[u64; VARIABLES]) -> Self {
        let of = |number: Option<Number>| number.map(|n| value(n, variables));
        let clamp = |at: i64| at.clamp(0, len as i64) as usize;
        let (mut start, mut fixed_end, mut sliding_end) = (0, len, None);
        if content.is_relative() {
            let from = (cursor as i64).saturating_add(of(content.distance).unwrap_or(0));
            start = clamp(from);
            sliding_end = of(content.within).map(|within| from.saturating_add(within));
        }
        let offset = of(content.offset).unwrap_or(0);
        start = start.max(clamp(offset));
        if let Some(depth) = of(content.depth) {
            fixed_end = clamp(offset.saturating_add(depth));
        }
        if content.ends_with {
            start = start.max(len.saturating_sub(content.bytes.len()));
        }
        Self { start, fixed_end, sliding_end }
    }

    /// The latest end.
    fn end(&self) -> usize {
        let sliding = self.sliding_end.map_or(usize::MAX, |end| end.max(0) as usize);
        self.fixed_end.min(sliding)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::haystack::Needle;
    use super::*;

    fn content(bytes: &[u8]) -> Content {
        Content { bytes: Needle::new(bytes), ..Content::default() }
    }

    /// A content after the previous match, at most `within` bytes.
    fn after(bytes: &[u8], within: Option<i64>) -> Content {
        let (distance, within) = (Some(Number::Literal(0)), within.map(Number::Literal));
        Content { distance, within, ..content(bytes) }
    }

    /// Tries all ways to place the tests, one after the other.
    fn naive(tests: &[PayloadTest], payload: &[u8], cursor: usize) -> bool {
        let Some((first, rest)) = tests.split_first() else { return true };
        let ends: Vec<usize> = match first {
            PayloadTest::Content(content) => places(content, payload, cursor),
            PayloadTest::Regex(regex) => {
                let subject = &payload[cursor..];
                let at = |start| regex.regex.find_at(subject, start).unwrap();
                let matches = (0..=subject.len()).filter_map(|start| {
                    at(start).filter(|found| found.start() == start).map(|found| found.end())
                });
                matches.map(|end| cursor + end).collect()
            }
            PayloadTest::IsDataAt { at: Number::Literal(at), negated, .. } => {
                let is_there = cursor as i64 + at <= payload.len() as i64;
                return is_there != *negated && naive(rest, payload, cursor);
            }
            PayloadTest::ByteTest(ByteTest { value: Number::Literal(value), .. }) => {
                let is = payload.get(cursor).is_some_and(|byte| i64::from(*byte) == *value);
                return is && naive(rest, payload, cursor);
            }
            _ => unreachable!("not generated"),
        };
        match first {
            PayloadTest::Content(Content { negated: true, .. }) => {
                ends.is_empty() && naive(rest, payload, cursor)
            }
            _ => ends.into_iter().any(|end| naive(rest, payload, end)),
        }
    }

    /// The ends of a content.
    fn places(content: &Content, payload: &[u8], cursor: usize) -> Vec<usize> {
        let bounds = Bounds::new(content, payload.len(), cursor, &[0; VARIABLES]);
        let is = |(p, b): (&u8, &u8)| p == b || content.nocase && p.eq_ignore_ascii_case(b);
        let ends = (bounds.start + content.bytes.len()..=payload.len()).filter(|end| {
            let there = &payload[end - content.bytes.len()..*end];
            *end <= bounds.end() && there.iter().zip(&*content.bytes).all(is)
        });
        ends.collect()
    }

    fn number(number: Option<i64>) -> Option<Number> {
        number.map(Number::Literal)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 1..3)
    }

    /// A content from the start, the first of the tests.
    fn first() -> impl Strategy<Value = PayloadTest> {
        let place = (proptest::option::of(0i64..6), proptest::option::of(1i64..8));
        (bytes(), any::<bool>(), place).prop_map(|(bytes, nocase, (offset, depth))| {
            let (offset, depth) = (number(offset), number(depth));
            let (bytes, rest) = (Needle::new(&bytes), Content::default());
            let bytes = if nocase { bytes.in_any_case(|_| 0) } else { bytes };
            PayloadTest::Content(Content { bytes, nocase, offset, depth, ..rest })
        })
    }

    /// A test after another.
    fn next() -> impl Strategy<Value = PayloadTest> {
        let place = (proptest::option::of(-3i64..5), proptest::option::of(1i64..8));
        let relative = (bytes(), any::<bool>(), place).prop_map(|(bytes, negated, place)| {
            let (distance, within) = (number(place.0), number(place.1));
            let (bytes, rest) = (Needle::new(&bytes), Content::default());
            PayloadTest::Content(Content { bytes, negated, distance, within, ..rest })
        });
        let is_data_at = (0i64..8, any::<bool>()).prop_map(|(at, negated)| {
            let at = Number::Literal(at);
            PayloadTest::IsDataAt { at, relative: true, negated }
        });
        let regex = prop_oneof![Just("^a"), Just("b"), Just("a.?b"), Just("^.b")];
        let regex = regex.prop_map(|text| {
            let regex = pcre2::bytes::Regex::new(text).unwrap();
            PayloadTest::Regex(Regex { regex, negated: false, relative: true })
        });
        let byte_test = prop_oneof![Just(b'a'), Just(b'b')].prop_map(|value| {
            let place = Place { count: Number::Literal(1), relative: true, ..Place::default() };
            let value = Number::Literal(value.into());
            let (operator, or_equal, negated) = ('=', false, false);
            PayloadTest::ByteTest(ByteTest { place, operator, or_equal, negated, value })
        });
        let absolute = (first(), any::<bool>()).prop_map(|(mut test, negated)| {
            if let PayloadTest::Content(content) = &mut test {
                content.negated = negated;
            }
            test
        });
        prop_oneof![6 => relative, 2 => absolute, 1 => is_data_at, 1 => regex, 1 => byte_test]
    }

    proptest! {
        #[test]
        fn the_search_finds_what_trying_everything_finds(
            payload in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'A')], 0..20),
            first in first(),
            rest in proptest::collection::vec(next(), 0..5),
        ) {
            let tests: Vec<_> = std::iter::once(first).chain(rest).collect();
            let found = verify(&tests, &Haystack::new(&payload));
            prop_assert_eq!(found == Outcome::Match, naive(&tests, &payload, 0));
        }
    }

    #[test]
    fn what_does_not_depend_on_a_place_is_not_tried_for_others() {
        let relative = |bytes: &[u8]| PayloadTest::Content(after(bytes, None));
        let absolute = |bytes: &[u8]| PayloadTest::Content(content(bytes));
        let payload = [&[b'a'; 3000][..], b"b", &[b'c'; 3000]].concat();
        // Without regard to that, each `a` would be tried with each `c`.
        let tests = [absolute(b"a"), absolute(b"b"), absolute(b"c"), relative(b"x")];
        assert_eq!(verify(&tests, &Haystack::new(&payload)), Outcome::NoMatch);
        let tests = [absolute(b"a"), relative(b"a"), absolute(b"b"), relative(b"cc")];
        assert_eq!(verify(&tests, &Haystack::new(&payload)), Outcome::Match);
    }

    #[test]
    fn places_after_which_the_same_tests_fail_are_not_tried() {
        let far = [&[b'a'; 1400][..], b"xxxxb"].concat();
        for (within, payload) in [(None, &[b'a'; 1400][..]), (Some(4), &far)] {
            let contents = [b"a"; 8].into_iter().chain([b"b"]);
            let tests: Vec<_> =
                contents.map(|bytes| PayloadTest::Content(after(bytes, within))).collect();
            let hay = Haystack::new(payload);
            let mut search = Search::new(&hay, BUDGET);
            assert!(search.from(&tests, 0).is_err());
            assert!(BUDGET - search.budget < 2 * 1400, "{within:?}: {}", BUDGET - search.budget);
        }
    }

    #[test]
    fn a_hostile_payload_is_given_up_on() {
        let mut tests = vec![after(b"a", Some(100)); 8];
        tests.push(Content { negated: true, ..after(b"a", Some(1)) });
        let tests: Vec<_> = tests.into_iter().map(PayloadTest::Content).collect();
        assert_eq!(verify(&tests, &Haystack::new(&[b'a'; 1400])), Outcome::GaveUp);
    }
}
