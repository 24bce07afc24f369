//! Compares the search with the Aho-Corasick automaton.

use aho_corasick::{AhoCorasick, MatchKind};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The literals in `text` that end after `from`.
fn reference(literals: &[Vec<u8>], text: &[u8], from: usize) -> Vec<u32> {
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::Standard)
        .build(literals)
        .unwrap();
    let all = automaton.find_overlapping_iter(text).filter(|m| m.end() > from);
    let mut found: Vec<u32> = all.map(|m| m.pattern().as_u32()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn find(literals: &Literals, text: &[u8], from: usize, found: &mut Found) -> Vec<u32> {
    let mut numbers = Vec::new();
    literals.find(text, from, found, |literal| numbers.push(literal));
    numbers.sort_unstable();
    numbers
}

/// Literals of which none is another or too short.
fn distinct(literals: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut literals: Vec<_> = literals.filter(|l| l.len() >= Literals::LEAST).collect();
    literals.sort();
    literals.dedup();
    literals
}

/// Fails unless each filter finds in `text` what the reference does.
fn all_are_found(literals: &[Vec<u8>], text: &[u8], from: usize) -> Result<(), TestCaseError> {
    let mut found = Found::default();
    for literals_of in variants(literals) {
        let expected = reference(literals, text, from);
        prop_assert_eq!(find(&literals_of, text, from, &mut found), expected);
    }
    Ok(())
}

/// Fails unless `prepared` finds in each text what the reference does, whether the texts are filtered
/// one by one or together.
fn in_each_are_found<const N: usize>(
    literals: &[Vec<u8>],
    prepared: &Literals,
    texts: [&[u8]; N],
    fresh: [usize; N],
) -> Result<(), TestCaseError> {
    let mut found = Found::default();
    let joined = texts.concat();
    for joined in [None, Some(&joined[..])] {
        let mut each = [const { Vec::new() }; N];
        prepared.find_in_each(&texts, joined, &fresh, &mut found, |n, l| each[n].push(l));
        for (n, mut numbers) in each.into_iter().enumerate() {
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(numbers, reference(literals, texts[n], fresh[n]));
        }
    }
    Ok(())
}

/// The same literals in each filter that can hold them.
fn variants(literals: &[Vec<u8>]) -> Vec<Literals> {
    let all = 0..literals.len() as u32;
    let by_windows = |stride: usize| {
        let is_long = |n: &u32| literals[*n as usize].len() >= Windows::least(stride);
        let (long, short) = all.clone().partition(is_long);
        Literals::with(literals, short, long, stride)
    };
    vec![
        Literals::new(literals),
        Literals::with(literals, all.clone().collect(), Vec::new(), Windows::SPARSE),
        by_windows(Windows::SPARSE),
        by_windows(Windows::DENSE),
    ]
}

proptest! {
    #[test]
    fn what_stands_in_a_text_is_found(
        literals in proptest::collection::vec(proptest::collection::vec(
            prop_oneof![Just(b'a'), Just(b'B'), Just(b'b'), Just(0), any::<u8>()], 2..14), 1..60),
        pieces in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(prop_oneof![Just(b'A'), Just(b'b'), Just(0), any::<u8>()], 0..80)
                .prop_map(Err),
            (any::<prop::sample::Index>(), any::<bool>()).prop_map(Ok),
        ], 0..12),
        from in any::<prop::sample::Index>(),
    ) {
        let mut literals = literals;
        literals.iter_mut().for_each(|l| l.make_ascii_lowercase());
        literals.sort();
        literals.dedup();
        let mut text = Vec::new();
        for piece in pieces {
            match piece {
                Err(bytes) => text.extend(bytes),
                Ok((which, upper)) => {
                    let literal = &literals[which.index(literals.len())];
                    text.extend(if upper { literal.to_ascii_uppercase() } else { literal.clone() });
                }
            }
        }
        let from = from.index(text.len() + 1);
        let mut found = Found::default();
        for literals_of in variants(&literals) {
            let expected = reference(&literals, &text, from);
            prop_assert_eq!(find(&literals_of, &text, from, &mut found), expected);
            let texts = [&text[..from], &text[..], &[], &text[..]];
            in_each_are_found(&literals, &literals_of, texts, [0, 0, 0, from])?;
        }
    }
}

proptest! {
    /// Literals with runs in texts with longer runs.
    #[test]
    fn what_stands_in_runs_is_found(
        literals in proptest::collection::vec(
            proptest::collection::vec((select(b"\0 aB".to_vec()), 1usize..14), 1..3), 1..20),
        text in proptest::collection::vec((select(b"\0 aAb".to_vec()), 1usize..90), 1..8),
        mixed in proptest::collection::vec(select(b"\0 aA".to_vec()), 0..40),
        from in any::<prop::sample::Index>(),
    ) {
        let text = [runs(&text), mixed].concat();
        let literals = literals.iter().map(|parts| runs(parts).to_ascii_lowercase());
        let literals = distinct(literals);
        prop_assume!(!literals.is_empty());
        let from = from.index(text.len() + 1);
        all_are_found(&literals, &text, from)?;
        // Runs that reach from one text into the next.
        let (first, second) = text.split_at(from);
        for prepared in variants(&literals) {
            let fresh = [0, first.len() / 2, 0, second.len() / 2];
            in_each_are_found(&literals, &prepared, [first, first, second, second], fresh)?;
        }
    }

    /// Few bytes again and again let most places of a text pass.
    #[test]
    fn what_stands_in_dense_texts_is_found(
        literals in proptest::collection::vec(
            proptest::collection::vec(select(b"ab[{".to_vec()), 2..10), 1..12),
        units in proptest::collection::vec(
            (proptest::collection::vec(select(b"ab[{".to_vec()), 1..6), 1usize..60), 1..8),
        cuts in any::<[prop::sample::Index; 3]>(),
        fresh in any::<[prop::sample::Index; 4]>(),
    ) {
        let literals = distinct(literals.into_iter());
        let text: Vec<u8> = units.iter().flat_map(|(unit, times)| unit.repeat(*times)).collect();
        let mut cuts = cuts.map(|cut| cut.index(text.len() + 1));
        cuts.sort_unstable();
        let [a, b, c] = cuts;
        let texts = [&text[..a], &text[a..b], &text[b..c], &text[c..]];
        let fresh = [0, 1, 2, 3].map(|n: usize| fresh[n].index(texts[n].len() + 1));
        for prepared in variants(&literals) {
            in_each_are_found(&literals, &prepared, texts, fresh)?;
        }
    }

    /// A literal that lies over a cut is found by a second search from the seam on, or one of both searches
    /// says that there may be one.
    #[test]
    fn what_lies_over_a_seam_is_found_or_open(
        units in proptest::collection::vec(
            (proptest::collection::vec(select(b"abC0".to_vec()), 1..9), 1usize..4), 8..40),
        literals in proptest::collection::vec((any::<prop::sample::Index>(), 2usize..40), 1..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let text: Vec<u8> = units.iter().flat_map(|(unit, times)| unit.repeat(*times)).collect();
        let part = |(start, length): &(prop::sample::Index, usize)| {
            let rest = &text[start.index(text.len())..];
            rest[..rest.len().min(*length)].to_ascii_lowercase()
        };
        let literals = distinct(literals.iter().map(part));
        prop_assume!(!literals.is_empty() && text.len() > Literals::SEAM);
        let cut = Literals::SEAM + cut.index(text.len() - Literals::SEAM);
        let (first, second) = (&text[..cut], &text[cut - Literals::SEAM..]);
        let expected = reference(&literals, &text, cut);
        for prepared in variants(&literals) {
            let (mut found, mut numbers) = (Found::default(), Vec::new());
            let after = prepared.find_in_each(&[first], None, &[0], &mut found, |_, _| ()).after;
            let (tell, seam) = (|_, literal| numbers.push(literal), [Literals::SEAM]);
            let before = prepared.find_in_each(&[second], None, &seam, &mut found, tell).before;
            let has_all = expected.iter().all(|literal| numbers.contains(literal));
            let is_open = before.contains(0) || after.contains(0);
            prop_assert!(has_all || is_open, "{numbers:?} of {expected:?}");
        }
    }

    #[test]
    fn what_repeats_is_found(
        literals in proptest::collection::vec(
            (any::<prop::sample::Index>(), 2usize..24), 1..30),
        units in proptest::collection::vec(
            (proptest::collection::vec(select(b"abC0".to_vec()), 1..9), 1usize..60), 1..6),
        from in any::<prop::sample::Index>(),
        places in proptest::collection::vec(
            proptest::option::of(any::<prop::sample::Index>()), 30),
    ) {
        let text: Vec<u8> = units.iter().flat_map(|(unit, times)| unit.repeat(*times)).collect();
        let part = |(start, length): &(prop::sample::Index, usize)| {
            let rest = &text[start.index(text.len())..];
            rest[..rest.len().min(*length)].to_ascii_lowercase()
        };
        let literals = distinct(literals.iter().map(part));
        prop_assume!(!literals.is_empty());
        all_are_found(&literals, &text, from.index(text.len() + 1))?;
        let mut found = Found::default();
        let places: Vec<_> = places.iter().take(literals.len())
            .map(|place| place.map(|place| place.index(text.len()) as u32)).collect();
        for literals_of in variants(&literals) {
            let all = reference(&literals, &text, 0);
            let is_at = |place: u32, literal: u32| {
                let (there, literal) = (&text[place as usize..], &literals[literal as usize]);
                there.len() >= literal.len() && there[..literal.len()].eq_ignore_ascii_case(literal)
            };
            let at_places: Vec<u32> = all.iter().copied()
                .filter(|n| places[*n as usize].is_none_or(|place| is_at(place, *n))).collect();
            let found = find(&literals_of.fixed(&places), &text, 0, &mut found);
            prop_assert!(at_places.iter().all(|literal| found.contains(literal)), "{found:?}");
            // What lies in a run is found wherever it is.
            let has_run = |n: &u32| index::has_run(&literals[*n as usize]) || literals[*n as usize].len() < 4;
            prop_assert!(found.iter().all(|n| at_places.contains(n) || has_run(n)), "{found:?}");
        }
    }
}

#[test]
fn a_literal_that_goes_on_after_a_run_is_found_after_a_longer_one() {
    let zeros = (2..=8).map(|times| vec![0; times]);
    let mut literals: Vec<_> = zeros.collect();
    literals
        .extend([&b"  "[..], b"   ", b" bbbb", b"bbbb\0\0\0\0", b"bbbb    "].map(<[u8]>::to_vec));
    let text = [&[b'b'; 36][..], &[0; 8], b"a\0 a "].concat();
    for literals in variants(&literals) {
        let found = find(&literals, &text, 0, &mut Found::default());
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 10]);
    }
}

#[test]
fn what_parts_late_from_what_repeats_is_found() {
    // Each literal is like what repeats up to a byte that is far from its place.
    for (literal, unit) in [
        (&b"${jndi:abcdefgh"[..], &b"${jndi:abcdefgx"[..]),
        (b"habcdefg${jn", b"xabcdefg${jn"),
        // Behind a longer run.
        (b"aaaabcd", b"aaaaaaaabcx"),
        (b"hbaaaaaaaaaa", b"xbaaaaaaaaaa"),
    ] {
        for begin in 0..8 {
            let more = &unit[..unit.len() - literal.len()];
            let units = unit.repeat(200);
            let text = [&b"yyyyyyyy"[..begin], &units, more, literal, b"yyyyyyyy"].concat();
            for literals in variants(&[literal.to_vec()]) {
                assert_eq!(find(&literals, &text, 0, &mut Found::default()), [0]);
            }
        }
    }
}

/// Each byte as often as requested.
pub(super) fn runs(parts: &[(u8, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(byte, times)| std::iter::repeat_n(*byte, *times)).collect()
}

#[test]
fn the_filter_follows_the_number_of_literals() {
    let literal = |n: u32| format!("literal number {n}").into_bytes();
    let few = Literals::new(&(0..100).map(literal).collect::<Vec<_>>());
    let fast = Registers::is_fast();
    assert_eq!((few.registers.is_some(), few.windows.is_none()), (fast, fast));
    // Bytes that look random (the finalizer of SplitMix64).
    let byte = |n: u64| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
    };
    let distinct = |n: u64| (0..12).map(|k| byte(12 * n + k)).collect();
    let many = Literals::new(&(0..5000).map(distinct).collect::<Vec<Vec<u8>>>());
    assert!(many.registers.is_none() && many.windows.is_some());
}
