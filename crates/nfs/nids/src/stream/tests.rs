use proptest::prelude::*;

use super::*;

fn policy(overlaps: Overlaps) -> Policy {
    Policy { overlaps, tail: Kept::for_search(8), waiting: 1 << 16 }
}

/// Passes all segments to a stream that begins at `first`; returns the delivered bytes.
fn assemble(first: u32, segments: &[(u32, Vec<u8>)], overlaps: Overlaps) -> (Vec<u8>, Notes) {
    let (mut stream, mut notes, mut out) = (Stream::default(), Notes::default(), Vec::new());
    let mut whole = Vec::new();
    stream.begin(first);
    for (sequence, bytes) in segments {
        let fresh =
            stream.segment(*sequence, bytes, false, &policy(overlaps), &mut notes, &mut out);
        assert_eq!(&whole[whole.len() - fresh.from..], &out[..fresh.from], "the past");
        whole.extend_from_slice(&out[fresh.from..]);
    }
    (whole, notes)
}

/// The same, byte by byte: waiting bytes are kept in one cell each.
fn naive(first: u32, segments: &[(u32, Vec<u8>)], overlaps: Overlaps) -> Vec<u8> {
    let mut cells = vec![None::<u8>; 256];
    let mut done = 0;
    for (sequence, bytes) in segments {
        for (i, byte) in bytes.iter().enumerate() {
            let at = sequence.wrapping_add(i as u32).wrapping_sub(first) as i32;
            let Ok(at) = usize::try_from(at) else { continue };
            if at >= done && (cells[at].is_none() || overlaps == Overlaps::Last) {
                cells[at] = Some(*byte);
            }
        }
        while cells[done].is_some() {
            done += 1;
        }
    }
    cells[..done].iter().map(|c| c.unwrap()).collect()
}

proptest! {
    #[test]
    fn segments_in_any_order_give_what_the_policy_says(
        first in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
        segments in proptest::collection::vec(
            (-8i32..60, proptest::collection::vec(any::<u8>(), 0..24)), 0..40),
        overlaps in prop_oneof![Just(Overlaps::First), Just(Overlaps::Last)],
    ) {
        let segments: Vec<_> =
            segments.into_iter().map(|(at, b)| (first.wrapping_add(at as u32), b)).collect();
        let (whole, _) = assemble(first, &segments, overlaps);
        prop_assert_eq!(whole, naive(first, &segments, overlaps));
    }
}

#[test]
fn what_could_not_have_been_kept_is_not_sound() {
    let stream = |waiting: &[(u32, usize)]| Stream {
        next: Some(u32::MAX),
        waiting: waiting
            .iter()
            .map(|(at, size)| Segment {
                sequence: u32::MAX.wrapping_add(*at),
                bytes: vec![0; *size],
            })
            .collect::<Vec<_>>()
            .into(),
        ..Stream::default()
    };
    assert!(stream(&[(1, 5), (6, 5), (20, 1)]).is_sound() && stream(&[]).is_sound());
    for wrong in [&[(0, 5)][..], &[(u32::MAX, 5)], &[(5, 5), (8, 5)], &[(9, 1), (1, 1)], &[(1, 0)]]
    {
        assert!(!stream(wrong).is_sound(), "{wrong:?}");
    }
    assert!(!stream(&[(1 << 30, 4)]).is_sound());
    assert!(!Stream { next: None, ..stream(&[(1, 1)]) }.is_sound());
}

#[test]
fn contradictions_are_counted_whether_handed_on_or_not() {
    let segments = [(0, b"abcd".to_vec()), (2, b"Xdef".to_vec()), (8, b"ij".to_vec())];
    assert_eq!(assemble(0, &segments, Overlaps::First).1.contradictions, 1);
    let segments = [(4, b"efgh".to_vec()), (6, b"XYij".to_vec()), (0, b"abcd".to_vec())];
    let (first, notes) = assemble(0, &segments, Overlaps::First);
    assert_eq!((&first[..], notes.contradictions), (&b"abcdefghij"[..], 1));
    assert_eq!(assemble(0, &segments, Overlaps::Last).0, b"abcdefXYij");
    let same = [(0, b"abcd".to_vec()), (0, b"abcd".to_vec()), (1, b"bc".to_vec())];
    assert_eq!(assemble(0, &same, Overlaps::First).1.contradictions, 0);
}

#[test]
fn what_does_not_come_is_given_up() {
    let (mut stream, mut notes, mut out) = (Stream::default(), Notes::default(), Vec::new());
    let policy = Policy { waiting: 1000, ..policy(Overlaps::First) };
    stream.begin(100);
    for i in 0..15 {
        let fresh = stream.segment(110 + i * 10, &[7; 10], false, &policy, &mut notes, &mut out);
        assert!(!fresh.gap || i == 13, "at {i}");
        assert_eq!(out.len(), [0, 140, 18][usize::from(i == 13) + 2 * usize::from(i > 13)]);
    }
    assert_eq!(notes.gaps, 10);
    // The receiver has it: no segment waits.
    assert_eq!(stream.acknowledged(275, &policy, &mut notes, &mut out), Fresh::default());
    stream.segment(270, b"late", false, &policy, &mut notes, &mut out);
    assert_eq!(stream.acknowledged(270, &policy, &mut notes, &mut out), Fresh::default());
    let fresh = stream.acknowledged(274, &policy, &mut notes, &mut out);
    assert_eq!((fresh.from, fresh.gap, &out[..]), (0, true, &b"late"[..]));
    assert_eq!(stream.acknowledged(275, &policy, &mut notes, &mut out).from, 0);
    assert!(stream.has_gaps());
    stream.segment(5_000_000, b"x", false, &policy, &mut notes, &mut out);
    stream.segment(100_000_000, b"x", false, &policy, &mut notes, &mut out);
    assert!(notes.gaps == 20 && stream.is_sound());
}
