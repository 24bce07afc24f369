//! Every order in which the steps of a writer and a reader can come, by the model
//! checker loom: `scripts/model.sh`. The lookups are the plain ones; those with vector
//! instructions take what they find under the same two looks at a line's version, and
//! give what they do not find to the plain search.

use loom::thread;
use thalweg_cpu::Isa;

use super::hash::{Hash, HashKind};
use super::table::{Core, Table};

/// A table of four buckets of two places.
fn small<const W: usize>() -> Table<W> {
    Table::with_buckets(4, Hash::new(HashKind::Murmur3, 1), Isa::Scalar)
}

/// A key that implies its value.
fn key<const W: usize>(n: u32) -> [u64; W] {
    [u64::from(n); W]
}

/// A table in which the key `moved` lies in its second bucket (0), has room in its
/// first (1), and makes place there when `last` comes, both of whose buckets (0 and
/// 2) are full. A reader looks into 1 first: it must not miss the key that comes
/// there behind its back.
fn crowded<const W: usize>() -> (Table<W>, u32, u32) {
    let mut table = small();
    let mut unused = 0..10_000;
    let mut next = |table: &Table<W>, first: u32, second: Option<u32>| {
        let fits = |n: &u32| {
            let at = table.core().places_of(table.core().hash().of(&key::<W>(*n)));
            at.first == first && at.second != first && second.is_none_or(|s| s == at.second)
        };
        unused.find(fits).expect("there are keys of all kinds")
    };
    let goes = next(&table, 1, None);
    let stays = next(&table, 1, None);
    let moved = next(&table, 1, Some(0));
    let last = next(&table, 0, Some(2));
    let others = [next(&table, 0, None), next(&table, 2, None), next(&table, 2, None)];
    for n in [goes, stays, moved].into_iter().chain(others) {
        assert_eq!(table.insert(&key(n), n), Ok(None));
    }
    assert_eq!(table.remove(&key(goes)), Some(goes));
    assert_eq!(table.core().find(&key(moved)), Some((0, 0)));
    (table, moved, last)
}

/// One key by batch lookup.
fn get_one<const W: usize>(core: &Core<W>, n: u32) -> Option<u32> {
    let (mut values, mut found) = ([0], [0]);
    core.get_many(&[key(n)], &mut values, &mut found);
    (found[0] == 1).then_some(values[0])
}

fn check(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS, which `make long` raises.
    model.preemption_bound.get_or_insert(3);
    model.check(test);
}

/// A key that is moved is found by `get` before, during and after the move.
fn a_moved_key_is_found<const W: usize>(get: fn(&Core<W>, u32) -> Option<u32>) {
    check(move || {
        let (mut table, moved, last) = crowded::<W>();
        let core = table.core().clone();
        let reader = thread::spawn(move || assert_eq!(get(&core, moved), Some(moved)));
        assert_eq!(table.insert(&key(last), last), Ok(None));
        reader.join().unwrap();
        assert_eq!(table.core().find(&key(moved)).map(|(bucket, _)| bucket), Some(1));
    });
}

#[test]
fn a_key_that_is_moved_is_never_missed() {
    a_moved_key_is_found::<1>(|core, n| core.get(&key(n)));
    a_moved_key_is_found::<3>(|core, n| core.get(&key(n)));
}

#[test]
fn a_batch_misses_no_key_that_is_moved() {
    a_moved_key_is_found::<1>(get_one);
    a_moved_key_is_found::<3>(get_one);
}

fn a_reused_place_gives_no_wrong_value<const W: usize>() {
    check(|| {
        let mut table = small::<W>();
        table.insert(&key(1), 10).unwrap();
        let core = table.core().clone();
        let reader = thread::spawn(move || {
            let value = get_one(&core, 1);
            assert!(value.is_none_or(|value| value == 10), "{value:?}");
        });
        // The place of the one is given to the other.
        assert_eq!(table.remove(&key(1)), Some(10));
        table.insert(&key(2), 20).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_value_is_never_that_of_another_key() {
    a_reused_place_gives_no_wrong_value::<1>();
    a_reused_place_gives_no_wrong_value::<3>();
}
