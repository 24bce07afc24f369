//! The prefixes that rules require of one field, as a binary trie.
//!
//! Prefix tracking is from Pfaff et al., "The Design and Implementation of Open
//! vSwitch", NSDI 2015, section 5.4. Two things differ. A node knows the lengths
//! of all prefixes below it, so that a search learns for each length by itself
//! how many bits distinguish the key from the prefixes of that length. And tries are
//! persistent: a copy shares all nodes, and a change copies one path.

use std::sync::Arc;

use super::fields::{WIDEST, ones};

/// Prefixes and how often each was added.
#[derive(Clone, Debug, Default)]
pub(super) struct Trie(Option<Arc<Node>>);

#[derive(Clone, Debug)]
struct Node {
    /// The bits that all prefixes at or below the node begin with, at the top.
    bits: u128,
    len: u8,
    /// How often this very prefix was added; 0 where paths only part.
    count: u32,
    /// The lengths of the prefixes at and below the node: bit n for n + 1 bits.
    lengths: u128,
    children: [Option<Arc<Node>>; 2],
}

/// For each length of prefix: how many leading bits of the key show that no
/// prefix of that length matches it; 0 where one does, or where there is none.
pub(super) type Differing = [u8; WIDEST + 1];

fn length_bit(len: u8) -> u128 {
    1 << (len - 1)
}

/// The bit of `bits` after the first `len`.
fn bit(bits: u128, len: u8) -> usize {
    (bits << len >> 127) as usize
}

/// How many leading bits `a` and `b` share.
fn common(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}

impl Node {
    fn end(bits: u128, len: u8) -> Arc<Self> {
        let lengths = length_bit(len);
        Arc::new(Self { bits, len, count: 1, lengths, children: [None, None] })
    }

    /// The node where the paths to `a` and `b` part, after `len` bits.
    fn fork(len: u8, a: Arc<Self>, b: Arc<Self>) -> Arc<Self> {
        let (bits, lengths) = (a.bits & ones(len), a.lengths | b.lengths);
        let children = if bit(a.bits, len) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
        Arc::new(Self { bits, len, count: 0, lengths, children })
    }

    /// The node `upper`, which has the shorter prefix, above `below`.
    fn above(mut upper: Arc<Self>, below: Arc<Self>) -> Arc<Self> {
        let node = Arc::make_mut(&mut upper);
        node.lengths |= below.lengths;
        let side = bit(below.bits, node.len);
        node.children[side] = Some(below);
        upper
    }

    fn refresh_lengths(&mut self) {
        let own = if self.count > 0 { length_bit(self.len) } else { 0 };
        self.lengths = self.children.iter().flatten().fold(own, |l, c| l | c.lengths);
    }
}

impl Trie {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds the first `len` bits of `bits`; none is no prefix.
    pub(super) fn insert(&mut self, bits: u128, len: u8) {
        let mut place = &mut self.0;
        loop {
            let Some(node) = place.as_deref() else {
                *place = Some(Node::end(bits & ones(len), len));
                return;
            };
            let common = common(node.bits, bits).min(node.len).min(len);
            if common < node.len {
                let new = Node::end(bits & ones(len), len);
                *place = place.take().map(|old| {
                    if common == len { Node::above(new, old) } else { Node::fork(common, old, new) }
                });
                return;
            }
            let Some(shared) = place else { return };
            let node = Arc::make_mut(shared);
            node.lengths |= length_bit(len);
            if node.len == len {
                node.count += 1;
                return;
            }
            place = &mut node.children[bit(bits, node.len)];
        }
    }

    /// Undoes one [`insert`](Self::insert).
    pub(super) fn remove(&mut self, bits: u128, len: u8) {
        remove(&mut self.0, bits, len);
    }

    /// Compares the bits of a key with the prefixes.
    pub(super) fn differing(&self, bits: u128, differing: &mut Differing) {
        let mut next = self.0.as_deref();
        while let Some(node) = next {
            let common = common(node.bits, bits);
            if common < node.len {
                set(differing, node.lengths, common + 1);
                return;
            }
            let own = if node.count > 0 { length_bit(node.len) } else { 0 };
            next = if node.len as usize == WIDEST {
                None
            } else {
                node.children[bit(bits, node.len)].as_deref()
            };
            // Prefixes of these lengths all went the other way.
            let gone = node.lengths & !own & !next.map_or(0, |n| n.lengths);
            set(differing, gone, node.len + 1);
        }
    }
}

fn set(differing: &mut Differing, mut lengths: u128, bits: u8) {
    while lengths != 0 {
        differing[lengths.trailing_zeros() as usize + 1] = bits;
        lengths &= lengths - 1;
    }
}

fn remove(place: &mut Option<Arc<Node>>, bits: u128, len: u8) {
    let Some(shared) = place else { return };
    let node = Arc::make_mut(shared);
    if node.len == len {
        node.count -= 1;
    } else {
        remove(&mut node.children[bit(bits, node.len)], bits, len);
    }
    // A node that stands for no prefix is there only where two paths part.
    if node.count == 0
        && let [one, None] | [None, one] = &mut node.children
    {
        *place = one.take();
    } else {
        node.refresh_lengths();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Prefixes that often begin alike, of a field of 16 bits.
    fn prefix() -> impl Strategy<Value = (u128, u8)> {
        (prop_oneof![Just(0u16), Just(0xff00), any::<u16>()], 0u16..16, 1u8..=16)
            .prop_map(|(base, low, len)| ((u128::from(base ^ low) << 112), len))
    }

    fn expected(prefixes: &[(u128, u8)], key: u128, len: u8) -> u8 {
        let longest = prefixes.iter().filter(|p| p.1 == len).map(|p| common(p.0, key)).max();
        longest.map_or(0, |l| if l >= len { 0 } else { l + 1 })
    }

    proptest! {
        #[test]
        fn a_search_says_for_each_length_where_the_key_parts_from_its_prefixes(
            mut prefixes in proptest::collection::vec(prefix(), 0..40),
            keys in proptest::collection::vec(prefix(), 1..10),
            gone in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut trie = Trie::default();
            prefixes.iter().for_each(|(bits, len)| trie.insert(*bits, *len));
            for index in gone {
                if !prefixes.is_empty() {
                    let (bits, len) = prefixes.swap_remove(index.index(prefixes.len()));
                    let before = trie.clone();
                    trie.remove(bits, len);
                    prop_assert!(!before.is_empty());
                }
            }
            prop_assert_eq!(trie.is_empty(), prefixes.is_empty());
            for (key, _) in keys {
                let mut differing = [0; WIDEST + 1];
                trie.differing(key, &mut differing);
                for len in 1..=16u8 {
                    prop_assert_eq!(differing[usize::from(len)], expected(&prefixes, key, len));
                }
            }
        }
    }

    #[test]
    fn prefixes_of_a_whole_wide_field_are_told_apart_at_their_last_bit() {
        let mut trie = Trie::default();
        trie.insert(6, 128);
        let mut differing = [0; WIDEST + 1];
        trie.differing(7, &mut differing);
        assert_eq!(differing[128], 128);
        trie.insert(7, 128);
        let mut differing = [0; WIDEST + 1];
        trie.differing(7, &mut differing);
        assert_eq!(differing[128], 0);
    }
}
