//! What a report has about NFs.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use thalweg_chain::Plan;
use thalweg_nf::device::DeviceCounts;

use super::{LatencyReport, by_name, is_none, per_packet};
use crate::counters::{Counters, DeviceTotals, NfCounters};

/// The counts of an NF.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NfReport {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Packets that it received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets it generated.
    pub generated: u64,
    /// Packets it dropped, by reason.
    pub drops: IndexMap<&'static str, u64>,
    /// Late packets that bypassed it (`on_overload = "bypass"`), which it did not receive; absent if
    /// there are none.
    #[serde(skip_serializing_if = "is_none")]
    pub bypassed: u64,
    /// Cycles per packet; 0 without packets.
    pub cycles_per_packet: f64,
    #[serde(skip)]
    pub(crate) cycles: u64,
    /// The time that packets spent in the NF: that of their batch.
    pub latency_ns: LatencyReport,
    /// Figures specific to its kind.
    pub figures: IndexMap<&'static str, u64>,
    /// What went to its device; absent if it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReport>,
}

/// What an NF has left to devices, before reloads included. A device is given slots in rows, of which a
/// work-group works on one at a time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceReport {
    /// Packets submitted.
    pub packets: u64,
    /// Slots that the device was given.
    pub slots: u64,
    /// Slots that were empty, since a work-group had nothing else to do.
    pub dummies: u64,
    /// How packets reach it: `resident` for a kernel that stays and shared memory, `launches-shared` for launches
    /// over shared memory, `launches-copied` for launches to which packets are copied.
    pub way: &'static str,
    /// Launches that had packets of the NF; absent if there were none.
    #[serde(skip_serializing_if = "is_none")]
    pub launches: u64,
    /// Bytes of packets that were copied to the device and back; absent if there were none.
    #[serde(skip_serializing_if = "is_none")]
    pub copied_bytes: u64,
    /// Frames that the run has lost to devices that failed, which may still write to them; absent if there
    /// are none.
    #[serde(skip_serializing_if = "is_none")]
    pub kept_frames: u64,
    /// What its device did when it failed, after which the processor does all of the work, or the run ends;
    /// absent while the device works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl DeviceReport {
    pub(super) fn of(totals: &DeviceTotals) -> Self {
        let DeviceTotals { counts, kept_frames, failed } = totals;
        let DeviceCounts { packets, slots, dummies, way, launches, copied, .. } = *counts;
        Self {
            packets,
            slots,
            dummies,
            way: way.name(),
            launches,
            copied_bytes: copied,
            kept_frames: *kept_frames,
            failed: failed.as_deref().map(str::to_owned),
        }
    }

    /// The share of slots that were empty, from 0 to 1.
    pub fn dummy_share(&self) -> f64 {
        self.dummies as f64 / self.slots.max(1) as f64
    }
}

pub(super) fn nfs(plan: &Plan, counters: &Counters, ns: f64) -> Vec<NfReport> {
    let report = |(nf, c): (&thalweg_chain::NfPlan, &NfCounters)| NfReport {
        name: nf.name.clone(),
        kind: nf.kind.name.to_owned(),
        packets: c.packets,
        bytes: c.bytes,
        generated: c.generated,
        drops: by_name(&c.drops),
        bypassed: c.bypassed,
        cycles_per_packet: per_packet(c.cycles, c.packets),
        cycles: c.cycles,
        latency_ns: LatencyReport::of(&c.latency, ns),
        figures: c.figures.iter().copied().collect(),
        device: c.device.as_ref().map(DeviceReport::of),
    };
    plan.nfs.iter().zip(&counters.nfs).map(report).collect()
}
