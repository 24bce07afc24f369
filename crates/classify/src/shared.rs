//! A rule table that classifiers read while others change it.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::rule_table::RuleTable;
use crate::secret::Keys;

/// A rule table that classifiers read, replaced as a whole (read-copy-update).
#[derive(Debug)]
pub struct SharedRules {
    table: ArcSwap<RuleTable>,
    keys: Keys,
}

impl SharedRules {
    /// Shares `table`.
    pub fn new(table: RuleTable) -> Self {
        Self::with_keys(table, Keys::draw())
    }

    /// Shares `table`, over which caches hash with keys that `seed` gives and that are no secret:
    /// with the same one, the same packets hit the same caches.
    pub fn with_seed(table: RuleTable, seed: u64) -> Self {
        Self::with_keys(table, Keys::seeded(seed))
    }

    fn with_keys(table: RuleTable, keys: Keys) -> Self {
        Self { table: ArcSwap::from_pointee(table), keys }
    }

    /// The current table.
    pub fn load(&self) -> Arc<RuleTable> {
        self.table.load_full()
    }

    /// Whether `table` is still the current one. Cheap: called once a batch.
    pub fn is_current(&self, table: &Arc<RuleTable>) -> bool {
        Arc::ptr_eq(&self.table.load(), table)
    }

    /// Replaces the table; returns the old one. Classifiers adopt it at their next batch.
    pub fn publish(&self, table: Arc<RuleTable>) -> Arc<RuleTable> {
        self.table.swap(table)
    }

    /// The keys of the caches over these rules, the same for each: a sender cannot predict which
    /// packets share a bucket.
    pub(crate) fn keys(&self) -> Keys {
        self.keys
    }

    /// Applies `change` to a copy of the current table and publishes that. When
    /// another thread publishes meanwhile, `change` runs again on the newer table,
    /// so that no change is lost.
    ///
    /// The copy shares the rules and all subtables that `change` leaves alone.
    pub fn update(&self, mut change: impl FnMut(&mut RuleTable)) {
        self.table.rcu(|table| {
            let mut next = (**table).clone();
            change(&mut next);
            next
        });
    }
}
