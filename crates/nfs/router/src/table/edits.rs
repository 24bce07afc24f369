//! The changes that lead from the routes of a table to others.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::{Changes, HopId};
use crate::prefix::{Address, Prefix, PrefixStore};

/// Changes of routes in order: the prefix, and its next hop, or `None` for a removal.
pub(super) type Edits<A> = Vec<(Prefix<A>, Option<HopId>)>;

/// Sorts the routes, keeps the last of each prefix, and replaces the numbers of
/// their next hops by the table's.
pub(super) fn resolve<A: Address>(
    mut routes: Vec<(Prefix<A>, u32)>,
    ids: &[HopId],
) -> Vec<(Prefix<A>, HopId)> {
    keep_last(&mut routes);
    routes.into_iter().map(|(prefix, id)| (prefix, ids[id as usize])).collect()
}

/// The last change of each prefix that changes its route, in order.
pub(super) fn effective<A: Address>(
    store: &PrefixStore<A>,
    mut edits: Edits<A>,
    changes: &mut Changes,
) -> Edits<A> {
    keep_last(&mut edits);
    edits.retain(|(prefix, hop)| {
        match (store.get(*prefix), hop) {
            (None, Some(_)) => changes.added += 1,
            (Some(_), None) => changes.removed += 1,
            (Some(old), Some(new)) if old != *new => changes.changed += 1,
            _ => return false,
        }
        true
    });
    edits
}

/// The changes from `old` to `new`, both in order.
pub(super) fn edits<A: Address>(
    old: impl Iterator<Item = (Prefix<A>, HopId)>,
    new: impl Iterator<Item = (Prefix<A>, HopId)>,
    changes: &mut Changes,
) -> Edits<A> {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    let mut edits = Vec::new();
    while let Some(order) = compare(&mut old, &mut new) {
        let gone = if order.is_le() { old.next() } else { None };
        let come = if order.is_ge() { new.next() } else { None };
        match (gone, come) {
            (Some((_, from)), Some((prefix, to))) if from != to => {
                changes.changed += 1;
                edits.push((prefix, Some(to)));
            }
            (Some((prefix, _)), None) => {
                changes.removed += 1;
                edits.push((prefix, None));
            }
            (None, Some((prefix, to))) => {
                changes.added += 1;
                edits.push((prefix, Some(to)));
            }
            _ => {}
        }
    }
    edits
}

/// Compares the next prefixes of two ordered lists; `None` at the end of both.
fn compare<A: Address>(
    old: &mut Peekable<impl Iterator<Item = (Prefix<A>, HopId)>>,
    new: &mut Peekable<impl Iterator<Item = (Prefix<A>, HopId)>>,
) -> Option<Ordering> {
    match (old.peek(), new.peek()) {
        (Some((old, _)), Some((new, _))) => Some(old.cmp(new)),
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (None, None) => None,
    }
}

/// Sorts by prefix, and keeps the last of each.
fn keep_last<A: Address, T: Copy>(list: &mut Vec<(Prefix<A>, T)>) {
    list.sort_by_key(|(prefix, _)| *prefix);
    list.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            *kept = *later;
        }
        same
    });
}
