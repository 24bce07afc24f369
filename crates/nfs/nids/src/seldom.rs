//! Collections that few connections use.
//!
//! An empty one takes the room of a pointer: what all packets of a connection use then lies in few
//! cache lines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A collection that is empty in most cases.
#[derive(Clone, Debug)]
pub(super) struct Seldom<C>(Option<Box<C>>);

/// A collection that has an empty value.
pub(super) trait Empty: Default + 'static {
    const EMPTY: &'static Self;

    fn is_empty(&self) -> bool;
}

impl<T: 'static> Empty for Vec<T> {
    const EMPTY: &'static Self = &Self::new();

    #[inline]
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: 'static> Empty for BTreeSet<T> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<K: 'static, V: 'static> Empty for BTreeMap<K, V> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<C: Empty> Seldom<C> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|used| used.is_empty())
    }
}

impl<C> Default for Seldom<C> {
    fn default() -> Self {
        Self(None)
    }
}

impl<C: Empty> Deref for Seldom<C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.0.as_deref().unwrap_or(C::EMPTY)
    }
}

impl<C: Empty> DerefMut for Seldom<C> {
    fn deref_mut(&mut self) -> &mut C {
        self.0.get_or_insert_default()
    }
}

impl<C: Empty> From<C> for Seldom<C> {
    fn from(collection: C) -> Self {
        Self((!collection.is_empty()).then(|| Box::new(collection)))
    }
}

impl<C: Empty + PartialEq> PartialEq for Seldom<C> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<C: Empty + Eq> Eq for Seldom<C> {}

impl<C: Empty + Serialize> Serialize for Seldom<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, C: Empty + Deserialize<'de>> Deserialize<'de> for Seldom<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        C::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_collection_is_an_empty_one() {
        let mut numbers = Seldom::<Vec<u32>>::default();
        assert!(numbers.is_empty() && numbers.iter().next().is_none() && numbers.0.is_none());
        numbers.push(7);
        assert!(!numbers.is_empty() && *numbers == [7] && numbers == vec![7].into());
        numbers.clear();
        assert!(numbers.is_empty() && numbers == Seldom::default());
        assert!(Seldom::from(Vec::<u32>::new()).0.is_none());
        assert_eq!(size_of::<Seldom<BTreeMap<String, u32>>>(), size_of::<usize>());
    }
}
