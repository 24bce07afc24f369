//! The automaton against a search for each literal by itself.

use std::path::PathBuf;

use proptest::prelude::*;
use thalweg_nf::{Emitted, Verdict};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{Decapsulate, DropReason, Pool};
use thalweg_testkit::{cases, data_folder};

use super::automaton::{Automaton, KINDS, Literal, MOST_BYTES};
use super::*;
use crate::*;

/// Literals of few letters, so that they overlap, and long ones.
fn literals() -> impl Strategy<Value = Vec<Literal>> {
    let letter = || prop_oneof![6 => b'a'..b'd', 1 => any::<u8>()];
    let bytes = prop_oneof![
        6 => proptest::collection::vec(letter(), 2..7),
        1 => proptest::collection::vec(letter(), 2..40),
    ];
    let literal = (0..KINDS, 0..32u32, bytes).prop_map(|(kind, group, bytes)| Literal {
        kind,
        groups: 1 << group,
        bytes: bytes.to_ascii_lowercase(),
    });
    proptest::collection::vec(literal, 1..30)
}

/// Texts of the same letters, in both cases, with literals in them.
fn texts(literals: &[Literal]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let letters = proptest::collection::vec(
        prop_oneof![6 => b'a'..b'd', 3 => b'A'..b'D', 1 => any::<u8>()],
        0..12,
    );
    let all: Vec<_> = literals.iter().map(|literal| literal.bytes.clone()).collect();
    let part = prop_oneof![letters, prop::sample::select(all)];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// The groups of which a literal, or as many of its last bytes as are looked for, ends after `past` bytes
/// of a text and begins before; or anywhere, without `past`.
fn found(
    literals: &[Literal],
    kind: usize,
    text: &[u8],
    past: Option<usize>,
    length: usize,
) -> u32 {
    let text = text.to_ascii_lowercase();
    let mut found = 0;
    for literal in literals.iter().filter(|literal| literal.kind == kind) {
        let bytes = &literal.bytes[literal.bytes.len().saturating_sub(length)..];
        let is_across = |at: usize| past.is_none_or(|past| at < past && at + bytes.len() > past);
        let mut places = text.windows(bytes.len()).enumerate();
        if places.any(|(at, there)| there == bytes && is_across(at)) {
            found |= literal.groups;
        }
    }
    found
}

fn with_literals() -> impl Strategy<Value = (Vec<Literal>, Vec<Vec<u8>>)> {
    literals().prop_flat_map(|literals| {
        let texts = proptest::collection::vec(texts(&literals), 1..8);
        (Just(literals), texts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]
    #[test]
    fn the_ends_of_literals_are_found_and_nothing_else((literals, texts) in with_literals()) {
        let automaton = Automaton::new(&literals);
        for text in &texts {
            for kind in 0..KINDS {
                let argument = [kind as u32, 0];
                let result = (LITERALS.scalar)(&mut text.clone(), argument, automaton.table());
                prop_assert_eq!(result, [found(&literals, kind, text, None, 16), automaton.mark()]);
            }
        }
    }

    #[test]
    fn a_text_in_pieces_has_what_it_has_as_a_whole(
        (literals, texts) in with_literals(),
        (piece, most, before) in (1..60usize, 1..40usize, 0..60usize),
    ) {
        let automaton = Automaton::new(&literals);
        let split = Split { piece, ..LITERALS.split.unwrap() };
        let walk = |bytes: &[u8], kind| {
            (LITERALS.scalar)(&mut bytes.to_vec(), [kind as u32, 0], automaton.table())
        };
        // At each distance from a cut, each literal with the bytes around it.
        let padded = literals.iter().map(|literal| {
            [&vec![b'-'; before], &*literal.bytes, &[b'-'; 30]].concat()
        });
        let texts: Vec<_> = texts.into_iter().chain(padded).collect();
        for text in &texts {
            for kind in 0..=KINDS {
                let pieces: Vec<_> = split.pieces(text.len(), most).collect();
                prop_assert!((1..=most).contains(&pieces.len()));
                prop_assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, text.len()));
                let results = pieces.into_iter().map(|piece| walk(&text[piece], kind));
                prop_assert_eq!(results.reduce(split.join).unwrap(), walk(text, kind));
            }
        }
    }

    #[test]
    fn ends_across_the_border_of_segments_are_found(
        (literals, texts) in with_literals(),
        past in any::<prop::sample::Index>(),
    ) {
        let automaton = Automaton::new(&literals);
        for text in &texts {
            let past = past.index(text.len() + 1);
            for kind in 0..KINDS {
                let across = automaton.across(kind, text, past);
                let expected = found(&literals, kind, text, Some(past), 16);
                // What begins after the border may be found here, too.
                let anywhere = found(&literals, kind, text, None, 16);
                prop_assert_eq!(across & expected, expected);
                prop_assert_eq!(across & !anywhere, 0);
            }
        }
    }
}

#[test]
fn a_table_stays_below_its_bound_whatever_the_literals() {
    // The most that two bytes can make, and many that share nothing.
    let pairs = (0..=u16::MAX).map(|n| n.to_be_bytes().to_ascii_lowercase());
    let mut many: Vec<Literal> = pairs
        .flat_map(|bytes| (0..KINDS).map(move |kind| (kind, bytes.clone())))
        .map(|(kind, bytes)| Literal { kind, groups: 1, bytes })
        .collect();
    many.extend((0..50_000u32).map(|n| {
        let bytes = [n.wrapping_mul(0x9e37_79b1).to_be_bytes(), n.to_le_bytes()].concat();
        Literal { kind: 0, groups: 1 << (n % 32), bytes: bytes.to_ascii_lowercase() }
    }));
    let automaton = Automaton::new(&many);
    assert!(automaton.table().len() <= MOST_BYTES, "{}", automaton.table().len());
    assert_eq!((LITERALS.scalar)(&mut [7, 9], [1, 0], automaton.table())[0], 1);
    assert_eq!((LITERALS.scalar)(&mut [7], [1, 0], automaton.table())[0], 0);
}

#[test]
fn more_sets_of_groups_than_have_a_number_become_all_groups() {
    let literals: Vec<Literal> = (1..600u32)
        .map(|n| Literal { kind: 1, groups: n, bytes: n.to_be_bytes().to_ascii_lowercase() })
        .collect();
    let automaton = Automaton::new(&literals);
    let mut all = 0;
    for literal in &literals {
        let [found, _] = (LITERALS.scalar)(&mut literal.bytes.clone(), [1, 0], automaton.table());
        // Other literals of the same lower case add theirs.
        assert_eq!(found & literal.groups, literal.groups);
        all += usize::from(found == u32::MAX);
    }
    assert!((300..400).contains(&all), "{all}");
}

#[test]
fn no_argument_and_no_table_is_harmful() {
    let literal = Literal { kind: 0, groups: 1, bytes: b"abc".to_vec() };
    let automaton = Automaton::new(&[literal]);
    let mark = automaton.mark();
    for kind in [KINDS as u32, u32::MAX] {
        let result = (LITERALS.scalar)(&mut [1, 2], [kind, 5], automaton.table());
        assert_eq!(result, [u32::MAX, mark], "another kind may have anything");
    }
    assert_eq!((LITERALS.scalar)(&mut [], [0, 0], automaton.table()), [0, mark]);
    for len in [0, 3, 4, 20, 300, 1300, automaton.table().len() - 1] {
        (LITERALS.scalar)(&mut b"abcabc".to_vec(), [0, 0], &automaton.table()[..len]);
        (LITERALS.scalar)(&mut b"abcabc".to_vec(), [2, 0], &vec![0xff; len]);
    }
}

#[test]
fn pieces_by_different_tables_exclude_nothing() {
    let join = LITERALS.split.unwrap().join;
    assert_eq!(join([1, 7], [2, 7]), [3, 7]);
    assert_eq!(join([0, 7], [0, 8]), [0, 0], "no table has this mark");
}

#[test]
fn rules_without_contents_leave_a_device_nothing_to_do() {
    let built = |rules: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.rules");
        std::fs::write(&path, rules).unwrap();
        let text = format!("rules = ['{}']", path.display());
        KIND.build_in(&text, &Environment::default()).unwrap().device_work().is_some()
    };
    assert!(!built("alert ip any any -> any any (msg:\"m\"; ttl:1; sid:1;)\n"));
    assert!(built("alert ip any any -> any any (msg:\"m\"; content:\"abcd\"; sid:1;)\n"));
}

#[test]
fn the_rules_of_emerging_threats_fit_with_sixteen_bytes_of_each_content() {
    let Some(folder) = data_folder() else { return };
    let files = std::fs::read_dir(folder.join("ids/rules/emerging-threats")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let is_of_rules = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "rules");
    let files: Vec<_> = files.filter(is_of_rules).collect();
    let text = format!("rules = {files:?}");
    let blueprint = KIND.build_in(&text, &Environment::default()).unwrap();
    let table = blueprint.device_work().unwrap().table;
    assert!((4 << 20..MOST_BYTES).contains(&table.len()), "{} bytes", table.len());
}

#[test]
fn packets_that_a_device_has_lost_are_dropped_and_join_no_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.rules");
    let rule = "alert udp any any -> any any (msg:\"m\"; content:\"abcd\"; sid:1;)\n";
    std::fs::write(&path, rule).unwrap();
    let text = format!("rules = ['{}']", path.display());
    let blueprint = KIND.build_in(&text, &Environment::default()).unwrap();
    let mut nids = blueprint.instance();
    let pool = Arc::new(Pool::anonymous(8, 2048).unwrap());
    let mut batch = Batch::new(pool.clone());
    let builder = PacketBuilder::new([2; 6], [4; 6]);
    let packet = builder.ip([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2).build(b"abcd");
    let lanes: Lanes = (0..3).map(|_| batch.push_bytes(&packet).unwrap()).collect();
    batch.parse(lanes, Decapsulate::No);
    let (mut emitted, mut jobs) = (Emitted::new(pool), Vec::new());
    let mut context = Context::new(Nanoseconds::default(), &mut emitted, None);
    let halves = nids.on_device().unwrap();
    halves.begin(&mut batch, lanes, &mut context, &mut jobs);
    assert_eq!(jobs.len(), 3);
    // The second is lost; the bytes of its lane are gone.
    batch.truncate(1, 0);
    let results = [(2, Some([u32::MAX, 1])), (1, None), (0, Some([0, 0]))];
    halves.finish(&mut batch, &results, &mut context);
    let verdicts: Vec<_> = lanes.into_iter().map(|lane| context.verdict(lane)).collect();
    assert_eq!(
        verdicts,
        [Verdict::Forward, Verdict::Drop(DropReason::DeviceFailed), Verdict::Forward]
    );
    let alerts = nids.figures().into_iter().find(|(name, _)| *name == "alerts");
    assert_eq!(alerts, Some(("alerts", 2)));
}
