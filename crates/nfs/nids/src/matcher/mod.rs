//! Verifies a rule's payload tests in full.
//!
//! The tests run in the rule's order. If a test is relative to the previous
//! match, other occurrences of that match are tried too (backtracking), but
//! not those after which the same tests would fail again: a failure tells
//! from where on the previous match may end differently. What remains is
//! limited by a budget, so that no packet can make a rule expensive.

mod base64;
mod bounds;

use base64::base64;
use bounds::Bounds;

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

/// Which of `tests` is a content that is required and nowhere in a payload, whatever its place.
pub(super) fn lacking(tests: &[PayloadTest], hay: &Haystack<'_>) -> Option<u16> {
    let is_nowhere =
        |test: &PayloadTest| test.required().is_some_and(|content| !hay.has(&content.bytes));
    tests.iter().position(is_nowhere).and_then(|at| u16::try_from(at).ok())
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
            PayloadTest::Content(content) if let Some(place) = content.place => {
                match content.bytes.is_at(self.payload, place) {
                    true if content.negated => Err(NEVER),
                    false if !content.negated => Err(NEVER),
                    true => self.from(rest, place + content.bytes.len()).or(Err(NEVER)),
                    false => self.from(rest, cursor),
                }
            }
            PayloadTest::Content(content) if content.negated => {
                let bounds = Bounds::new(content, self.payload.len(), cursor, &self.variables);
                match self.hay.find(&content.bytes, bounds.start, bounds.end()) {
                    Some(_) => fails,
                    None => self.from(rest, cursor),
                }
            }
            PayloadTest::Content(content) => self.content(content, rest, cursor),
            PayloadTest::Regex(regex) => self.regex(regex, rest, cursor),
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

    /// A regular expression, and the tests after it.
    fn regex(&mut self, regex: &Regex, rest: &[PayloadTest], cursor: usize) -> Held {
        let outline = regex.outline.as_ref();
        // Later there are but fewer matches.
        let is_final = !regex.relative || outline.is_some_and(|o| o.is_steady && !regex.negated);
        let fails = Err(if is_final { NEVER } else { cursor + 1 });
        let base = if regex.relative { cursor.min(self.payload.len()) } else { 0 };
        let subject = &self.payload[base..];
        let is_anchored = outline.is_some_and(|outline| outline.is_anchored);
        let mut at = 0;
        while at <= subject.len() {
            if is_anchored && (at > 0 || !outline.is_some_and(|o| o.may_begin(subject))) {
                break;
            }
            work::add(work::REGEX);
            let found = match regex.regex.find_at(subject, at) {
                Ok(Some(found)) => (found.start(), found.end()),
                Ok(None) => break,
                Err(_) => {
                    self.gave_up = true;
                    return fails;
                }
            };
            if regex.negated || !self.spend() {
                return fails;
            }
            match self.from(rest, base + found.1) {
                Ok(()) => return Ok(()),
                Err(NEVER) => return fails,
                Err(next) => {
                    let longest = outline.map_or(usize::MAX, |outline| outline.longest);
                    at = (found.0 + 1).max(next.saturating_sub(base).saturating_sub(longest));
                }
            }
        }
        if regex.negated { self.from(rest, cursor) } else { fails }
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

#[cfg(test)]
mod tests;
