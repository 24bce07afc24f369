//! What goes when a table is full.

/// The value in the middle of `values`; those up to it are the half worth least, or used longest
/// ago. `None` without any.
pub fn median<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<_> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    values.select_nth_unstable(middle);
    Some(values.swap_remove(middle))
}
