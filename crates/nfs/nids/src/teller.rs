//! Alerts: counted, suppressed and written in the order of the packets.

use std::sync::Arc;

use super::alert::{self, InputNames, Occasion};
use super::engine::Engine;
use super::filters::Counts;
use super::rule::FilterKind;

/// Decides which matches become alerts. What it counts concerns all connections, so there is one,
/// even if the connections are divided.
pub(super) struct Teller {
    inputs: InputNames,
    /// Whether alerts are written, not only counted.
    writes: bool,
    counts: Counts,
    /// The rule set to which the counts belong.
    rules: u64,
    /// Alerts not written yet.
    pub(super) lines: Vec<u8>,
    /// Alerts so far.
    pub(super) alerts: u64,
}

impl Teller {
    /// Keeps at most `counts` counts for filters.
    pub(super) fn new(inputs: InputNames, writes: bool, counts: usize) -> Self {
        let counts = Counts::new(counts);
        Self { inputs, writes, counts, rules: 0, lines: Vec::new(), alerts: 0 }
    }

    /// Whether alerts are written, not only counted.
    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    /// Counts evicted before their interval was over.
    pub(super) fn evicted(&self) -> u64 {
        self.counts.evicted
    }

    /// Alerts unless the rule's filters suppress it. Returns whether they let it act.
    pub(super) fn tell(&mut self, engine: &Arc<Engine>, occasion: &Occasion) -> bool {
        // Counts are kept by the number of a rule.
        if self.rules != engine.fingerprint {
            self.rules = engine.fingerprint;
            self.counts.clear();
        }
        let number = occasion.rule;
        let rule = &engine.rules[number as usize];
        let (mut acts, mut speaks) = (true, true);
        for filter in &rule.filters {
            let tuple = occasion.tuple.as_ref();
            let allowed = self.counts.allow(number, filter, tuple, occasion.clock);
            speaks &= allowed;
            // Other filters suppress the alert only.
            acts &= allowed || filter.kind != FilterKind::Detection;
        }
        if rule.no_alert || !speaks {
            return acts;
        }
        self.alerts += 1;
        if self.writes {
            let of_rule = &engine.alerts[number as usize];
            alert::line(of_rule, occasion, &self.inputs, &mut self.lines);
        }
        acts
    }
}
