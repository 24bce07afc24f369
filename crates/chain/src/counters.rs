//! The counters of a worker, which are summed at the end of a run.

use hdrhistogram::Histogram;
use thalweg_classify::{LayerCycles, LayerStats};
use thalweg_io::Shortfall;
use thalweg_packet::DropCounts;

/// A histogram of times in cycles, to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // About a minute of cycles; longer times count as that.
        const MOST: u64 = 1 << 38;
        Self(Histogram::new_with_max(MOST, 3).expect("3 digits up to 2^38 are in range"))
    }

    /// Records that `packets` packets took `cycles`.
    #[inline]
    pub(crate) fn record(&mut self, cycles: u64, packets: u64) {
        self.0.saturating_record_n(cycles.max(1), packets);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

/// The counts of one NF.
#[derive(Clone, Debug)]
pub(crate) struct NfCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) generated: u64,
    pub(crate) drops: DropCounts,
    pub(crate) cycles: u64,
    /// The time that packets spent in the NF: that of their batch.
    pub(crate) latency: Latencies,
    pub(crate) figures: Vec<(&'static str, u64)>,
}

impl NfCounters {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            generated: 0,
            drops: DropCounts::default(),
            cycles: 0,
            latency: Latencies::new(),
            figures: Vec::new(),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.generated += other.generated;
        self.drops.merge(&other.drops);
        self.cycles += other.cycles;
        self.latency.merge(&other.latency);
        for (name, value) in &other.figures {
            match self.figures.iter_mut().find(|(n, _)| n == name) {
                Some((_, sum)) => *sum += value,
                None => self.figures.push((name, *value)),
            }
        }
    }
}

/// The counts of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: DropCounts,
    /// What kept packets from passing whole; known at the end, and not summed.
    pub(crate) shortfall: Shortfall,
}

impl PortCounters {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.drops.merge(&other.drops);
    }
}

/// The counts of one worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCounters {
    pub(crate) nfs: Vec<NfCounters>,
    /// Packets and bytes by packet type, as classified.
    pub(crate) types: Vec<(u64, u64)>,
    /// Drops between NFs: no route, too many hops.
    pub(crate) chain_drops: DropCounts,
    pub(crate) layers: LayerStats,
    /// Cycles spent on batches in total. The inline runtime, which knows its whole time, measures
    /// them only together with those of the stages.
    pub(crate) busy_cycles: u64,
    /// The part of `busy_cycles` spent on parsing and on transmitting; measured only on request.
    pub(crate) parse_cycles: u64,
    pub(crate) transmit_cycles: u64,
    pub(crate) layer_cycles: LayerCycles,
}

impl WorkerCounters {
    pub(crate) fn new(nfs: usize, types: usize) -> Self {
        Self {
            nfs: (0..nfs).map(|_| NfCounters::new()).collect(),
            types: vec![(0, 0); types],
            chain_drops: DropCounts::default(),
            layers: LayerStats::default(),
            busy_cycles: 0,
            parse_cycles: 0,
            transmit_cycles: 0,
            layer_cycles: LayerCycles::default(),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, nf) in self.nfs.iter_mut().zip(&other.nfs) {
            sum.merge(nf);
        }
        for (sum, n) in self.types.iter_mut().zip(&other.types) {
            sum.0 += n.0;
            sum.1 += n.1;
        }
        self.chain_drops.merge(&other.chain_drops);
        self.layers.merge(&other.layers);
        self.busy_cycles += other.busy_cycles;
        self.parse_cycles += other.parse_cycles;
        self.transmit_cycles += other.transmit_cycles;
        self.layer_cycles.emc += other.layer_cycles.emc;
        self.layer_cycles.megaflow += other.layer_cycles.megaflow;
        self.layer_cycles.rules += other.layer_cycles.rules;
    }

    /// Drops at NFs and between them.
    pub(crate) fn drops(&self) -> DropCounts {
        let mut drops = self.chain_drops;
        self.nfs.iter().for_each(|nf| drops.merge(&nf.drops));
        drops
    }

    /// Packets that NFs generated.
    pub(crate) fn generated(&self) -> u64 {
        self.nfs.iter().map(|nf| nf.generated).sum()
    }
}
