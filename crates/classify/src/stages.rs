//! The time spent in each layer of classification.

use thalweg_cpu::cycles;

/// Cycles spent in each layer of classification, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCycles {
    /// Looking into the exact-match cache and filling it, counting flows.
    pub emc: u64,
    /// Looking for megaflows.
    pub megaflow: u64,
    /// Looking in the rule table, and caching its answers as megaflows.
    pub rules: u64,
}

/// A stop watch that costs nothing while it is off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    on: bool,
    since: u64,
}

impl Watch {
    #[inline]
    pub(crate) fn start(on: bool) -> Self {
        Self { on, since: if on { cycles::now() } else { 0 } }
    }

    /// Adds the cycles since the start, or since the last call, to `sum`.
    #[inline]
    pub(crate) fn lap(&mut self, sum: &mut u64) {
        if self.on {
            let now = cycles::now();
            *sum += now.wrapping_sub(self.since);
            self.since = now;
        }
    }
}
