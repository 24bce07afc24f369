//! Verification against trying everything, and its work.

use proptest::prelude::*;

use super::super::haystack::Needle;
use super::super::rule::{Flags, Outline, fix};
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
        let outline = Outline::new(text, Flags::default());
        PayloadTest::Regex(Regex {
            regex,
            outline,
            negated: false,
            relative: true,
            text: text.to_owned(),
        })
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
        let mut tests: Vec<_> = std::iter::once(first).chain(rest).collect();
        fix(&mut tests);
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
