//! Which entries a full table evicts.

/// The median of `values`; the values up to it are the half worth least, or least recently used.
/// `None` without any.
pub fn median<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<_> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    values.select_nth_unstable(middle);
    Some(values.swap_remove(middle))
}
