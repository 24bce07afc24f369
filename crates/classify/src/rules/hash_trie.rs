//! A hash table that is cheap to copy and to change.

use std::fmt::Debug;
use std::sync::Arc;

/// Branches of a node, as a power of two.
const FAN_BITS: u32 = 4;
const FAN: usize = 1 << FAN_BITS;

/// Items that a leaf holds before it becomes a branch.
const FULL: usize = 12;

/// An item of a [`HashTrie`].
pub(super) trait Item: Clone {
    /// The weight whose minimum the table maintains.
    type Weight: Copy + Ord + Debug;

    /// The item's own weight.
    fn weight(&self) -> Self::Weight;
}

/// Items under 64-bit hashes: a tree that branches by four bits of the hash at each
/// step, the highest first, down to leaves of a few items.
///
/// A copy shares everything; a change copies the nodes on one path, and none that
/// no other copy holds.
#[derive(Clone, Debug)]
pub(super) struct HashTrie<T: Item> {
    root: Child<T>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Child<T: Item> {
    Empty,
    Leaf(Arc<Leaf<T>>),
    Branch(Arc<Branch<T>>),
}

/// Items beside their hashes, which are compared first.
#[derive(Clone, Debug)]
struct Leaf<T> {
    hashes: Vec<u64>,
    items: Vec<T>,
}

#[derive(Clone, Debug)]
struct Branch<T: Item> {
    least: Option<T::Weight>,
    children: [Child<T>; FAN],
}

/// Which child of a branch `depth` steps below the root has `hash`.
fn side(hash: u64, depth: u32) -> usize {
    (hash << (depth * FAN_BITS) >> (64 - FAN_BITS)) as usize
}

impl<T> Leaf<T> {
    fn position(&self, hash: u64, is: &impl Fn(&T) -> bool) -> Option<usize> {
        let of_hash = |(i, h): (usize, &u64)| (*h == hash && is(&self.items[i])).then_some(i);
        self.hashes.iter().enumerate().find_map(of_hash)
    }
}

impl<T: Item> Default for HashTrie<T> {
    fn default() -> Self {
        Self { root: Child::Empty, len: 0 }
    }
}

impl<T: Item> HashTrie<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The least weight of all items.
    pub(super) fn least(&self) -> Option<T::Weight> {
        self.root.least()
    }

    /// The item of `hash` that `is` it.
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut child, mut depth) = (&self.root, 0);
        while let Child::Branch(branch) = child {
            child = &branch.children[side(hash, depth)];
            depth += 1;
        }
        let Child::Leaf(leaf) = child else { return None };
        leaf.position(hash, &is).map(|at| &leaf.items[at])
    }

    /// Adds `item`, which is not there yet.
    pub(super) fn insert(&mut self, hash: u64, item: T) {
        self.root.insert(hash, 0, item);
        self.len += 1;
    }

    /// Changes the item of `hash` that `is` it, if there is one, and removes it
    /// when `change` returns `false`. Returns whether there was one.
    pub(super) fn change(
        &mut self,
        hash: u64,
        is: impl Fn(&T) -> bool,
        mut change: impl FnMut(&mut T) -> bool,
    ) -> bool {
        // Looked up first: a change copies the path to the item.
        if self.find(hash, &is).is_none() {
            return false;
        }
        let stays = self.root.change(hash, 0, &is, &mut change);
        self.len -= usize::from(!stays);
        true
    }

    /// The item of the highest hash.
    pub(super) fn last(&self) -> Option<&T> {
        let mut child = &self.root;
        loop {
            match child {
                Child::Empty => return None,
                Child::Leaf(leaf) => {
                    let (at, _) = leaf.hashes.iter().enumerate().max_by_key(|(_, h)| **h)?;
                    return leaf.items.get(at);
                }
                Child::Branch(branch) => {
                    child = branch.children.iter().rev().find(|c| !c.is_empty())?;
                }
            }
        }
    }

    /// Whether all items are as `test` wants them.
    pub(super) fn all(&self, mut test: impl FnMut(&T) -> bool) -> bool {
        self.root.all(&mut test)
    }
}

impl<T: Item> Child<T> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn least(&self) -> Option<T::Weight> {
        match self {
            Self::Empty => None,
            Self::Leaf(leaf) => leaf.items.iter().map(Item::weight).min(),
            Self::Branch(branch) => branch.least,
        }
    }

    fn insert(&mut self, hash: u64, depth: u32, item: T) {
        match self {
            Self::Empty => {
                *self = Self::Leaf(Arc::new(Leaf { hashes: vec![hash], items: vec![item] }));
            }
            Self::Leaf(leaf) if leaf.items.len() < FULL || (depth + 1) * FAN_BITS > u64::BITS => {
                let leaf = Arc::make_mut(leaf);
                leaf.hashes.push(hash);
                leaf.items.push(item);
            }
            Self::Leaf(leaf) => {
                let Leaf { hashes, items } = Arc::unwrap_or_clone(std::mem::replace(
                    leaf,
                    Arc::new(Leaf { hashes: Vec::new(), items: Vec::new() }),
                ));
                let mut branch =
                    Branch { least: None, children: std::array::from_fn(|_| Self::Empty) };
                for (old_hash, old) in hashes.into_iter().zip(items).chain([(hash, item)]) {
                    branch.insert(old_hash, depth, old);
                }
                *self = Self::Branch(Arc::new(branch));
            }
            Self::Branch(branch) => Arc::make_mut(branch).insert(hash, depth, item),
        }
    }

    fn change(
        &mut self,
        hash: u64,
        depth: u32,
        is: &impl Fn(&T) -> bool,
        change: &mut impl FnMut(&mut T) -> bool,
    ) -> bool {
        match self {
            Self::Empty => true,
            Self::Leaf(shared) => {
                let leaf = Arc::make_mut(shared);
                let Some(at) = leaf.position(hash, is) else { return true };
                let stays = change(&mut leaf.items[at]);
                if !stays {
                    leaf.hashes.swap_remove(at);
                    leaf.items.swap_remove(at);
                    if leaf.items.is_empty() {
                        *self = Self::Empty;
                    }
                }
                stays
            }
            Self::Branch(shared) => {
                let branch = Arc::make_mut(shared);
                let child = &mut branch.children[side(hash, depth)];
                let before = child.least();
                let stays = child.change(hash, depth + 1, is, change);
                let emptied = child.is_empty();
                branch.refresh_least(before, side(hash, depth));
                if emptied && branch.least.is_none() {
                    *self = Self::Empty;
                }
                stays
            }
        }
    }

    fn all(&self, test: &mut impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Empty => true,
            Self::Leaf(leaf) => leaf.items.iter().all(test),
            Self::Branch(branch) => branch.children.iter().all(|c| c.all(test)),
        }
    }
}

impl<T: Item> Branch<T> {
    fn insert(&mut self, hash: u64, depth: u32, item: T) {
        let weight = item.weight();
        self.least = Some(self.least.map_or(weight, |l| l.min(weight)));
        self.children[side(hash, depth)].insert(hash, depth + 1, item);
    }

    /// Updates the least weight after that of child `changed` was `before`. Other
    /// children are read only when the least may have grown: each is a load.
    fn refresh_least(&mut self, before: Option<T::Weight>, changed: usize) {
        let after = self.children[changed].least();
        if after == before {
            return;
        }
        if before == self.least {
            self.least = self.children.iter().filter_map(Child::least).min();
        } else if let Some(after) = after {
            self.least = self.least.map(|l| l.min(after));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Numbered(u64, u32);

    impl Item for Numbered {
        type Weight = u32;
        fn weight(&self) -> u32 {
            self.1
        }
    }

    /// Hashes that lie together, that lie apart, and that are the same for many.
    fn hash(name: u64) -> u64 {
        match name % 3 {
            0 => name,
            1 => name.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            _ => 77,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn it_holds_what_a_map_holds_and_copies_stay_as_they_were(
            steps in proptest::collection::vec((0u64..120, 0u32..50), 1..400),
        ) {
            let mut map = BTreeMap::new();
            let mut table = HashTrie::default();
            let (mut old_map, mut old_table) = (map.clone(), HashTrie::default());
            for (step, (name, weight)) in steps.into_iter().enumerate() {
                if step % 16 == 0 {
                    (old_map, old_table) = (map.clone(), table.clone());
                }
                let is = |item: &Numbered| item.0 == name;
                let stays = weight % 3 != 0;
                let known = table.change(hash(name), is, |item| {
                    item.1 = weight;
                    stays
                });
                prop_assert_eq!(known, map.contains_key(&name));
                if !known {
                    table.insert(hash(name), Numbered(name, weight));
                }
                if known && !stays { map.remove(&name) } else { map.insert(name, weight) };
                for (map, table) in [(&map, &table), (&old_map, &old_table)] {
                    check(map, table);
                }
            }
        }
    }

    fn check(map: &BTreeMap<u64, u32>, table: &HashTrie<Numbered>) {
        assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
        assert_eq!(table.least(), map.values().copied().min());
        for (name, weight) in map {
            let found = table.find(hash(*name), |item| item.0 == *name);
            assert_eq!(found, Some(&Numbered(*name, *weight)));
        }
        let mut count = 0;
        assert!(table.all(|item| {
            count += 1;
            map.contains_key(&item.0)
        }));
        assert_eq!(count, map.len());
        let last = map.keys().map(|name| hash(*name)).max();
        assert_eq!(table.last().map(|item| hash(item.0)), last);
    }
}
