//! What is over after a pause in the traffic: it counts for nothing, and is removed some at a time.

use super::full::{figure, sent, talk};
use super::*;

/// The mappings; more than a batch removes.
const ALL: u16 = 1000;

/// A NAT with as many answered mappings as `ALL`, whose sessions end at the second 310; and the answers.
fn full(more: &str) -> (Box<dyn NetworkFunction>, Vec<Vec<u8>>) {
    let mut nat = nat(more);
    let answers = (0..ALL).map(|n| talk(&mut *nat, 1, &sent(1, 1, 2000 + n), 10)).collect();
    (nat, answers)
}

#[test]
fn mappings_that_are_over_at_once_are_removed_some_at_a_time() {
    let (mut nat, answers) = full("");
    let (mut before, mut batches) = (u64::from(ALL), 0);
    while before > 0 {
        // Packets that begin nothing.
        let unknown = answers.last().unwrap();
        assert_eq!(pass(&mut *nat, unknown, 1000), Err(DropReason::NoMapping));
        let left = figure(&*nat, "mappings");
        assert!((1..=STEP as u64).contains(&(before - left)), "{before}, then {left}");
        (before, batches) = (left, batches + 1);
        assert_eq!(figure(&*nat, "expired"), u64::from(ALL) - left);
    }
    assert!(batches >= usize::from(ALL) / STEP, "{batches}");
}

#[test]
fn what_is_over_is_not_used_though_it_was_not_removed() {
    for filtering in ["endpoint-independent", "address-dependent", "address-and-port-dependent"] {
        let (mut nat, answers) = full(&format!("filtering = '{filtering}'\n"));
        let last = ALL - 1;
        assert_eq!(pass(&mut *nat, &answers[usize::from(last)], 400), Err(DropReason::NoMapping));
        assert!(figure(&*nat, "mappings") > u64::from(ALL / 2), "most are still there");
        // The host begins a new mapping, at its own port again.
        let out = pass(&mut *nat, &sent(1, 1, 2000 + last), 400).unwrap();
        assert!(answer(1, &out) == answers[usize::from(last)]);
        assert_eq!(figure(&*nat, "created"), u64::from(ALL) + 1);
        assert!(pass(&mut *nat, &answers[usize::from(last)], 400).is_ok());
        // Only that one moves.
        let mut other = self::nat("");
        assert_eq!(take_over(&*nat, &mut *other, None), 1);
        nat.flush().unwrap();
        assert_eq!((figure(&*nat, "mappings"), figure(&*nat, "sessions")), (1, 1));
        assert_eq!((figure(&*nat, "expired"), figure(&*nat, "evicted")), (ALL.into(), 0));
    }
}

/// Sessions that are over make room for others, as if they were removed.
#[test]
fn what_is_over_makes_room_before_anything_is_evicted() {
    let limit = format!("max_mappings = {ALL}\n");
    let (mut nat, _) = full(&limit);
    let kept = talk(&mut *nat, 1, &sent(1, 1, 2000), 200);
    for n in 0..ALL - 1 {
        assert!(pass(&mut *nat, &sent(1, 2, 2000 + n), 400).is_ok(), "{n}");
        assert!(pass(&mut *nat, &kept, 400).is_ok(), "it is in use");
    }
    assert_eq!((figure(&*nat, "expired"), figure(&*nat, "evicted")), (u64::from(ALL) - 1, 0));
    assert_eq!((figure(&*nat, "mappings"), figure(&*nat, "refused")), (ALL.into(), 0));
}
