//! The counters of a run.

use std::fmt;
use std::sync::Arc;

use hdrhistogram::Histogram;
use indexmap::IndexMap;
use thalweg_classify::{LayerCycles, LayerStats};
use thalweg_io::{PassedOver, Shortfall};
use thalweg_nf::device::DeviceCounts;
use thalweg_packet::DropCounts;

use crate::course::Course;
use crate::device::Device;
use crate::watch::Watch;

/// A histogram of times in cycles, to three digits.
#[derive(Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its tens of thousands of buckets.
        f.debug_struct("Latencies").field("packets", &self.0.len()).finish_non_exhaustive()
    }
}

impl Latencies {
    pub(crate) fn new() -> Self {
        // About a minute of cycles; longer times count as that.
        const MOST: u64 = 1 << 38;
        Self(Histogram::new_with_max(MOST, 3).expect("3 digits up to 2^38 are in range"))
    }

    /// Adds the times of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Records that `packets` packets took `cycles`.
    #[inline]
    pub(crate) fn record(&mut self, cycles: u64, packets: u64) {
        self.0.saturating_record_n(cycles.max(1), packets);
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
    /// Late packets that bypassed it; they are not among `packets`.
    pub(crate) bypassed: u64,
    pub(crate) cycles: u64,
    /// The time that packets spent in the NF: that of their batch.
    pub(crate) latency: Latencies,
    pub(crate) figures: Vec<(&'static str, u64)>,
    /// What went to its devices; `None` if it had none.
    pub(crate) device: Option<DeviceTotals>,
}

/// What went to the devices of an NF, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceTotals {
    pub(crate) counts: DeviceCounts,
    /// Frames that failed devices keep, as they may still write to them.
    pub(crate) kept_frames: u64,
    /// What the device that the NF has now did when it failed.
    pub(crate) failed: Option<Arc<str>>,
}

impl DeviceTotals {
    fn merge(&mut self, other: Self) {
        self.counts.merge(other.counts);
        self.kept_frames += other.kept_frames;
        self.failed = other.failed.or(self.failed.take());
    }
}

impl NfCounters {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            generated: 0,
            drops: DropCounts::default(),
            bypassed: 0,
            cycles: 0,
            latency: Latencies::new(),
            figures: Vec::new(),
            device: None,
        }
    }

    /// Adds what went to a device.
    pub(crate) fn add_device(&mut self, device: Option<&Arc<Device>>) {
        if let Some(device) = device {
            self.device.get_or_insert_default().merge(device.totals());
        }
    }

    /// As [`add_device`](Self::add_device), of a device that the NF has no more.
    pub(crate) fn add_former_device(&mut self, device: Option<&Arc<Device>>) {
        self.add_device(device);
        self.device.iter_mut().for_each(|device| device.failed = None);
    }

    /// Adds the counts of a part of the NF.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.generated += other.generated;
        self.drops.merge(&other.drops);
        self.bypassed += other.bypassed;
        self.cycles += other.cycles;
        self.latency.merge(&other.latency);
        if let Some(device) = other.device.clone() {
            self.device.get_or_insert_default().merge(device);
        }
    }
}

/// The counts of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The packets of a wire that super-packets stand for, less the super-packets.
    pub(crate) more_segments: u64,
    pub(crate) drops: DropCounts,
    /// Packets that an input passed over.
    pub(crate) passed_over: PassedOver,
    /// What kept packets from passing whole; known at the end, and not summed.
    pub(crate) shortfall: Shortfall,
    /// Packets that the port has copied, if it counts them; known at the end, and not summed.
    pub(crate) copied: Option<u64>,
}

impl PortCounters {
    pub(crate) fn merge(&mut self, other: &Self) {
        // Of an output that several lines share, one line may count as lost what another has counted
        // as sent: only the sum is a count.
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.more_segments += other.more_segments;
        self.drops.merge(&other.drops);
        self.passed_over.merge(&other.passed_over);
    }
}

/// The counts of the ports of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortTotals {
    /// Each port: the sum of its queues.
    pub(crate) ports: Vec<PortCounters>,
    /// Each port, by queue.
    pub(crate) queues: Vec<Vec<PortCounters>>,
}

impl PortTotals {
    /// No packets yet, of this many ports.
    pub(crate) fn new(ports: usize) -> Self {
        Self { ports: vec![PortCounters::default(); ports], queues: vec![Vec::new(); ports] }
    }

    /// Adds what a port has counted at one of its queues.
    pub(crate) fn add(&mut self, port: usize, queue: usize, counts: &PortCounters) {
        let queues = &mut self.queues[port];
        queues.resize_with(queues.len().max(queue + 1), PortCounters::default);
        for sum in [&mut queues[queue], &mut self.ports[port]] {
            sum.merge(counts);
            sum.shortfall.longest = sum.shortfall.longest.max(counts.shortfall.longest);
            sum.shortfall.truncated += counts.shortfall.truncated;
            if let Some(copied) = counts.copied {
                *sum.copied.get_or_insert(0) += copied;
            }
        }
    }
}

/// The counts of NFs of one kind that reloads have removed; without times, whose histograms are
/// large.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FormerNfs {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) generated: u64,
    pub(crate) drops: DropCounts,
    /// Frames that their failed devices keep.
    pub(crate) kept_frames: u64,
}

/// The counts of what reloads have removed from the chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Former {
    /// By kind.
    pub(crate) nfs: IndexMap<&'static str, FormerNfs>,
    pub(crate) inputs: PortCounters,
    pub(crate) outputs: PortCounters,
    /// Packets and bytes of packet types.
    pub(crate) types: (u64, u64),
    pub(crate) chain_drops: DropCounts,
    pub(crate) layers: LayerStats,
    /// The number of reloads that changed something.
    pub(crate) reloads: u64,
}

impl Former {
    pub(crate) fn add_nf(&mut self, kind: &'static str, counters: &NfCounters) {
        let sum = self.nfs.entry(kind).or_default();
        sum.packets += counters.packets;
        sum.bytes += counters.bytes;
        sum.generated += counters.generated;
        sum.drops.merge(&counters.drops);
        sum.kept_frames += counters.device.as_ref().map_or(0, |device| device.kept_frames);
    }
}

/// The counts of all stages of a course.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) nfs: Vec<NfCounters>,
    /// Packets and bytes by packet type, as classified.
    pub(crate) types: Vec<(u64, u64)>,
    /// Drops between NFs: no route, too many hops.
    pub(crate) chain_drops: DropCounts,
    pub(crate) layers: LayerStats,
    pub(crate) former: Former,
    /// Cycles spent on packets by all workers, and the part of them spent on parsing and on
    /// transmitting, which is measured only on request.
    pub(crate) busy_cycles: u64,
    pub(crate) parse_cycles: u64,
    pub(crate) io_cycles: u64,
    pub(crate) layer_cycles: LayerCycles,
}

impl Counters {
    /// The counts of a course that has ended, of what reloads have removed from it, and of those
    /// who observed it.
    pub(crate) fn of(mut course: Course, former: Former, watch: &Watch) -> Self {
        let (seats, lost) = course.take_seats();
        let classification = course.classification;
        let mut chain_drops = classification.lost;
        chain_drops.merge(&lost);
        chain_drops.merge(&former.chain_drops);
        let mut layers = classification.classifier.stats();
        layers.merge(&former.layers);
        Self {
            nfs: seats.into_iter().map(|seat| seat.sum().member.counters).collect(),
            types: classification.types,
            chain_drops,
            layers,
            former,
            busy_cycles: watch.busy_cycles,
            parse_cycles: watch.parse_cycles,
            io_cycles: watch.io_cycles,
            layer_cycles: classification.classifier.layer_cycles(),
        }
    }

    /// No packets yet.
    pub(crate) fn new(nfs: usize, types: usize, former: &Former) -> Self {
        Self {
            nfs: (0..nfs).map(|_| NfCounters::new()).collect(),
            types: vec![(0, 0); types],
            chain_drops: former.chain_drops,
            layers: former.layers,
            former: former.clone(),
            busy_cycles: 0,
            parse_cycles: 0,
            io_cycles: 0,
            layer_cycles: LayerCycles::default(),
        }
    }

    /// Drops at NFs and between them.
    pub(crate) fn drops(&self) -> DropCounts {
        let mut drops = self.chain_drops;
        self.nfs.iter().for_each(|nf| drops.merge(&nf.drops));
        self.former.nfs.values().for_each(|nfs| drops.merge(&nfs.drops));
        drops
    }

    /// Frames that failed devices keep, as they may still write to them.
    pub(crate) fn kept_frames(&self) -> u64 {
        let former = self.former.nfs.values().map(|nfs| nfs.kept_frames);
        let devices = self.nfs.iter().filter_map(|nf| nf.device.as_ref());
        devices.map(|device| device.kept_frames).chain(former).sum()
    }

    /// Packets that NFs generated.
    pub(crate) fn generated(&self) -> u64 {
        let former = self.former.nfs.values().map(|nfs| nfs.generated);
        self.nfs.iter().map(|nf| nf.generated).chain(former).sum()
    }
}
