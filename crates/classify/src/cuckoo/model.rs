//! Every order in which the steps of a writer and a reader can come, by the model
//! checker loom: `RUSTFLAGS="--cfg loom" cargo test --release -p thalweg-classify
//! --lib model`.

use loom::thread;

use super::hash::{Hash, HashKind};
use super::table::{Core, Table};

/// A table of four buckets of two places.
fn small() -> Table<1> {
    Table::with_buckets(4, Hash::new(HashKind::Murmur3, 1), Isa::Scalar)
}

/// A table in which the key `moved` lies in its second bucket (0), has room in its
/// first (1), and makes place there when `last` comes, both of whose buckets (0 and
/// 2) are full. A reader looks into 1 first: it must not miss the key that comes
/// there behind its back.
fn crowded() -> (Table<1>, u64, u64) {
    let mut table = small();
    let places = |table: &Table<1>, n: u64| {
        let places = table.core().places_of(table.core().hash().of(&[n]));
        (places.first, places.second)
    };
    let mut unused = 0..10_000;
    let mut next = |table: &Table<1>, first, second: Option<usize>| {
        let fits = |n: &u64| {
            let at = places(table, *n);
            at.0 == first && at.0 != at.1 && second.is_none_or(|s| s == at.1)
        };
        unused.find(fits).expect("there are keys of all kinds")
    };
    let goes = next(&table, 1, None);
    let stays = next(&table, 1, None);
    let moved = next(&table, 1, Some(0));
    let last = next(&table, 0, Some(2));
    let others = [next(&table, 0, None), next(&table, 2, None), next(&table, 2, None)];
    for n in [goes, stays, moved].into_iter().chain(others) {
        assert_eq!(table.insert(&[n], n), Ok(None));
    }
    assert_eq!(table.remove(&[goes]), Some(goes));
    assert_eq!(table.core().find(&[moved]), Some((0, 0)));
    (table, moved, last)
}

/// One key by batch lookup; the result says whether it is there.
fn get_one(core: &Core<1>, key: u64, values: &mut [u32; 1]) -> u32 {
    let mut found = [0];
    core.get_many(&[[key]], values, &mut found);
    found[0]
}

fn check(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn a_key_that_is_moved_is_never_missed() {
    check(|| {
        let (mut table, moved, last) = crowded();
        let core = table.core().clone();
        let reader = thread::spawn(move || assert_eq!(core.get(&[moved]), Some(moved)));
        assert_eq!(table.insert(&[last], last), Ok(None));
        reader.join().unwrap();
        assert_eq!(table.core().find(&[moved]).map(|(bucket, _)| bucket), Some(1));
    });
}

#[test]
fn a_batch_misses_no_key_that_is_moved() {
    check(|| {
        let (mut table, moved, last) = crowded();
        let core = table.core().clone();
        let reader = thread::spawn(move || {
            let mut values = [0];
            assert_eq!(get_one(&core, moved, &mut values), 1);
            assert_eq!(values[0], moved as u32);
        });
        assert_eq!(table.insert(&[last], last), Ok(None));
        reader.join().unwrap();
    });
}

#[test]
fn a_value_is_never_that_of_another_key() {
    check(|| {
        let mut table = small();
        table.insert(&[1], 10).unwrap();
        let core = table.core().clone();
        let reader = thread::spawn(move || {
            let mut values = [0];
            let found = get_one(&core, 1, &mut values);
            assert!(found == 0 || values[0] == 10, "{values:?}");
        });
        // The entry of the one is given to the other.
        assert_eq!(table.remove(&[1]), Some(10));
        table.insert(&[2], 20).unwrap();
        reader.join().unwrap();
    });
}
