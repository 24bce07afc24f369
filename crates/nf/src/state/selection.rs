//! Which records of a stream are written or read.

use thalweg_packet::FiveTuple;

use super::FlowFilter;
use crate::steering::Buckets;

/// The records that are selected: all of them, unless there is a filter or a set of buckets.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Those that one of whose flows matches.
    pub(super) filter: Option<FlowFilter>,
    /// Those of some buckets.
    pub(super) buckets: Option<Buckets>,
}

impl Selection {
    /// Whether all records are selected.
    pub(super) fn is_all(&self) -> bool {
        self.filter.is_none() && self.buckets.is_none()
    }

    /// Whether the record of `flows` is selected.
    pub(super) fn has(&self, flows: &[FiveTuple]) -> bool {
        let matches = |filter: &FlowFilter| flows.iter().any(|flow| filter.has(flow));
        self.filter.as_ref().is_none_or(matches)
            && self.buckets.as_ref().is_none_or(|buckets| buckets.have(flows))
    }
}
