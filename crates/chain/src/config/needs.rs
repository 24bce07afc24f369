//! Whether the tables of the NFs fit into memory when they are full.

use thalweg_cpu::SystemMemory;
use thalweg_source::SourceError;

use super::nfs::NfPlan;

/// The bytes that the tables of some NFs take at their limits, with the frames if these are new.
pub(super) struct Needs<'a> {
    bytes: u64,
    frames: u64,
    /// The NF that takes most, and its share.
    largest: Option<(&'a NfPlan, u64)>,
}

impl<'a> Needs<'a> {
    /// What `nfs` need, with the bytes of each, and of new frames.
    pub(super) fn of(nfs: impl Iterator<Item = (&'a NfPlan, u64)>, frames: u64) -> Self {
        let mut needs = Self { bytes: frames, frames, largest: None };
        for (nf, bytes) in nfs {
            needs.bytes = needs.bytes.saturating_add(bytes);
            if bytes > needs.largest.map_or(0, |(_, most)| most) {
                needs.largest = Some((nf, bytes));
            }
        }
        needs
    }

    /// A mistake, at the NF that takes most, if this machine has less memory in all.
    pub(super) fn beyond_all(&self, memory: SystemMemory) -> Option<SourceError> {
        self.beyond(memory.total, "that this process may have")
    }

    /// A mistake, at the NF that takes most, if less memory is available.
    pub(super) fn beyond_available(&self, memory: SystemMemory) -> Option<SourceError> {
        self.beyond(memory.available, "that are available")
    }

    fn beyond(&self, limit: u64, which: &str) -> Option<SourceError> {
        let (nf, own) = self.largest.filter(|_| self.bytes > limit)?;
        let [own, all, limit] = [own, self.bytes, limit].map(mebibytes);
        let parts = if self.frames > 0 { "tables and frames" } else { "new tables" };
        let message = format!(
            "NF '{}' may take {own} and all {parts} {all}, more than the {limit} {which}",
            nf.name
        );
        Some(nf.place.error(message, "smaller limits, or more memory"))
    }
}

/// An amount of memory in MiB, rounded up.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
