//! The rule table that workers read while others change it.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::rule_table::RuleTable;

/// The rule table that all workers read, replaced as a whole (read-copy-update).
#[derive(Debug)]
pub struct SharedRules(ArcSwap<RuleTable>);

impl SharedRules {
    /// Shares `table`.
    pub fn new(table: RuleTable) -> Self {
        Self(ArcSwap::from_pointee(table))
    }

    /// The table of this moment.
    pub fn load(&self) -> Arc<RuleTable> {
        self.0.load_full()
    }

    /// Whether `table` is still the current one. Cheap: asked once a batch.
    pub fn is_current(&self, table: &Arc<RuleTable>) -> bool {
        Arc::ptr_eq(&self.0.load(), table)
    }

    /// Replaces the table. Workers take it up at their next batch.
    pub fn publish(&self, table: RuleTable) {
        self.0.store(Arc::new(table));
    }

    /// Applies `change` to a copy of the current table and publishes that. When
    /// another thread publishes meanwhile, `change` runs again on the newer table,
    /// so that no change is lost.
    ///
    /// The copy shares the rules and all subtables that `change` leaves alone.
    pub fn update(&self, mut change: impl FnMut(&mut RuleTable)) {
        self.0.rcu(|table| {
            let mut next = (**table).clone();
            change(&mut next);
            next
        });
    }
}
