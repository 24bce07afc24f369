//! A hash table with a single hash function: HALO's SFH, for comparison with the
//! [cuckoo table](crate::cuckoo).

use crate::hash::murmur3;

/// Keys of a bucket.
const WAYS: usize = 8;

/// A table of buckets of eight keys, in which each key has one bucket. It cannot
/// fill as far as a cuckoo table: a bucket is full long before all are.
#[derive(Clone, Debug)]
pub struct SingleHashTable<const W: usize> {
    buckets: Box<[Bucket<W>]>,
    seed: u32,
    len: usize,
}

#[derive(Clone, Debug)]
struct Bucket<const W: usize> {
    /// Upper halves of the hashes; 0 is a free place.
    signatures: [u16; WAYS],
    keys: [[u64; W]; WAYS],
    values: [u64; WAYS],
}

/// The bucket of a key is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key's bucket is full")]
pub struct BucketFull;

impl<const W: usize> SingleHashTable<W> {
    /// An empty table with at least `places` places.
    pub fn new(places: usize, seed: u32) -> Self {
        let empty = Bucket { signatures: [0; WAYS], keys: [[0; W]; WAYS], values: [0; WAYS] };
        let buckets = places.div_ceil(WAYS).next_power_of_two();
        Self { buckets: vec![empty; buckets].into(), seed, len: 0 }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many keys there are places for.
    pub fn places(&self) -> usize {
        self.buckets.len() * WAYS
    }

    #[inline]
    fn place(&self, key: &[u64; W]) -> (usize, u16) {
        let hash = murmur3::hash(self.seed, key);
        let signature = ((hash.wrapping_mul(0x9e37_79b1) >> 16) as u16).max(1);
        (hash as usize & (self.buckets.len() - 1), signature)
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: &[u64; W]) -> Option<u64> {
        let (at, signature) = self.place(key);
        let bucket = &self.buckets[at];
        let has = |way: &usize| bucket.signatures[*way] == signature && bucket.keys[*way] == *key;
        (0..WAYS).find(has).map(|way| bucket.values[way])
    }

    /// Gives `key` the value `value`; returns the one it had.
    ///
    /// # Errors
    /// [`BucketFull`]; the table is unchanged.
    pub fn insert(&mut self, key: &[u64; W], value: u64) -> Result<Option<u64>, BucketFull> {
        let (at, signature) = self.place(key);
        let bucket = &mut self.buckets[at];
        let has = |way: &usize| bucket.signatures[*way] == signature && bucket.keys[*way] == *key;
        if let Some(way) = (0..WAYS).find(has) {
            return Ok(Some(std::mem::replace(&mut bucket.values[way], value)));
        }
        let way = bucket.signatures.iter().position(|s| *s == 0).ok_or(BucketFull)?;
        bucket.signatures[way] = signature;
        (bucket.keys[way], bucket.values[way]) = (*key, value);
        self.len += 1;
        Ok(None)
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: &[u64; W]) -> Option<u64> {
        let (at, signature) = self.place(key);
        let bucket = &mut self.buckets[at];
        let has = |way: &usize| bucket.signatures[*way] == signature && bucket.keys[*way] == *key;
        let way = (0..WAYS).find(has)?;
        bucket.signatures[way] = 0;
        self.len -= 1;
        Some(bucket.values[way])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_follows_a_map_until_a_bucket_is_full(
            actions in prop::collection::vec((any::<bool>(), 0u64..60), 0..300),
        ) {
            let mut table = SingleHashTable::<2>::new(40, 7);
            let mut map = HashMap::new();
            let mut refused = 0;
            for (n, (insert, at)) in actions.into_iter().enumerate() {
                let key = [at, at << 32];
                if !insert {
                    prop_assert_eq!(table.remove(&key), map.remove(&key));
                } else if let Ok(before) = table.insert(&key, n as u64) {
                    prop_assert_eq!(before, map.insert(key, n as u64));
                } else {
                    refused += 1;
                    prop_assert!(!map.contains_key(&key));
                }
                prop_assert_eq!(table.len(), map.len());
            }
            prop_assert!(refused == 0 || map.len() >= WAYS);
            for at in 0..60 {
                let key = [at, at << 32];
                prop_assert_eq!(table.get(&key), map.get(&key).copied());
            }
        }
    }

    #[test]
    fn a_bucket_is_full_before_the_table_is() {
        let mut table = SingleHashTable::<1>::new(1 << 14, 7);
        let kept = (0..1 << 14).take_while(|n| table.insert(&[*n], *n).is_ok()).count();
        assert!((1 << 11..1 << 14).contains(&kept), "{kept}");
        assert_eq!((table.len(), table.places()), (kept, 1 << 14));
    }
}
