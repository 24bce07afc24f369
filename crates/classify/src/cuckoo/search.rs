//! Searching, while another thread writes.

use super::STEP;
use super::bucket::Bucket;
use super::sync::wait;
use super::table::{Core, Places};
use crate::prefetch;

impl<const W: usize> Core<W> {
    /// The value of `key`.
    pub(super) fn get(&self, key: &[u64; W]) -> Option<u64> {
        self.search(key, self.places_of(self.hash().of(key)))
    }

    /// Searches both buckets until they were seen as they were at one moment.
    fn search(&self, key: &[u64; W], places: Places) -> Option<u64> {
        let (first, second) = (self.bucket(places.first), self.bucket(places.second));
        loop {
            let (Some(before), Some(before_second)) = (first.version(), second.version()) else {
                wait();
                continue;
            };
            let found = [first, second].into_iter().find_map(|bucket| {
                let way = self.way(bucket, key, places.signature)?;
                Some(self.entries()[bucket.entry(way) as usize].value())
            });
            if first.is_still(before) && second.is_still(before_second) {
                return found;
            }
            wait();
        }
    }

    /// The way of a bucket whose entry has `key`.
    #[inline]
    fn way(&self, bucket: &Bucket, key: &[u64; W], signature: u16) -> Option<usize> {
        let mut ways = bucket.signatures().equal(signature);
        while ways != 0 {
            let way = ways.trailing_zeros() as usize;
            // While it is written, a bucket may name any entry, but one there is.
            if self.entries()[bucket.entry(way) as usize].has(key) {
                return Some(way);
            }
            ways &= ways - 1;
        }
        None
    }

    /// Bucket and way of `key`; for the writer, whom nobody disturbs.
    pub(super) fn find(&self, key: &[u64; W]) -> Option<(usize, usize)> {
        let places = self.places_of(self.hash().of(key));
        let buckets = [places.first, places.second].into_iter();
        let mut ways =
            buckets.map(|at| Some((at, self.way(self.bucket(at), key, places.signature)?)));
        ways.find_map(|found| found)
    }

    /// The values of up to [`STEP`] keys.
    ///
    /// In passes: hash all keys and ask for their first buckets; look for signatures
    /// and ask for the entries; compare. What is not settled then (keys in their
    /// second bucket, absent keys, buckets that were written) is searched one by one;
    /// their second buckets were asked for in the second pass.
    #[inline(always)]
    pub(super) fn get_step(&self, keys: &[[u64; W]], values: &mut [Option<u64>]) {
        let count = keys.len().min(values.len()).min(STEP);
        let mut places = [Places { signature: 0, first: 0, second: 0 }; STEP];
        for (place, key) in places.iter_mut().zip(&keys[..count]) {
            *place = self.places_of(self.hash().of(key));
            prefetch::read(self.buckets(), place.first);
        }
        // Which bucket, version and entry a key is looked for at; branches on what is
        // there cannot be foreseen, so there are none.
        let mut looks = [(0usize, 0u32, 0u32); STEP];
        for (look, place) in looks.iter_mut().zip(&places[..count]) {
            let first = self.bucket(place.first);
            let in_first = first.version().unwrap_or(1);
            let ways = first.signatures().equal(place.signature);
            let entry = first.entry(ways.trailing_zeros() as usize % super::bucket::WAYS);
            prefetch::read(self.entries(), entry as usize);
            if ways == 0 {
                prefetch::read(self.buckets(), place.second);
            }
            *look = (place.first, in_first, entry | u32::from(ways == 0) << 31);
        }
        let mut rest = 0u32;
        for (i, (look, key)) in looks[..count].iter().zip(keys).enumerate() {
            let (bucket, version, entry) = *look;
            let absent = entry >> 31 == 1;
            let entry = &self.entries()[(entry & !(1 << 31)) as usize];
            let value = entry.value();
            let settled = !absent
                && entry.has(key)
                && version % 2 == 0
                && self.bucket(bucket).is_still(version);
            values[i] = settled.then_some(value);
            rest |= u32::from(!settled) << i;
        }
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            values[i] = self.search(&keys[i], places[i]);
        }
    }
}
