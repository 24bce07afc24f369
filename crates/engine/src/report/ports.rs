//! What a report has about ports.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use thalweg_chain::PortPlan;
use thalweg_io::LinkEvents;
use thalweg_io::kind::PortBlueprint;

use super::{by_name, is_none};
use crate::counters::{PortCounters, PortTotals};

/// The counts of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Packets that an output sent, or that arrived at an input.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The packets on the wire that they stand for; absent if none is a super-packet.
    #[serde(skip_serializing_if = "is_none")]
    pub segments: u64,
    /// Packets of an input that were not received, since their captured time is outside of the
    /// requested range; absent if there are none.
    #[serde(skip_serializing_if = "is_none")]
    pub outside: u64,
    /// Packets of a capture that were not received, since they do not match the filter; absent if
    /// there are none.
    #[serde(skip_serializing_if = "is_none")]
    pub filtered: u64,
    /// Packets dropped or lost there, by reason.
    pub drops: IndexMap<&'static str, u64>,
    /// Packets that the network interface of an input, its driver or the kernel has dropped on receipt, before
    /// the port could have them, since it was opened: as far as the kernel counts them (the received
    /// packets `dropped` and `missed` of `ip -s link`). They are not in `drops`, but for AF_XDP the kernel may
    /// count some in both. Absent if there are none, and in the intervals of a run.
    #[serde(skip_serializing_if = "is_none")]
    pub device_drops: u64,
    /// The counters of a DPDK device that are not 0, by the names that its driver gives them (xstats): those
    /// of receipt for an input, those of sending (`tx_`) for an output. Absent for other ports, and in the
    /// intervals of a run.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub device_counters: IndexMap<String, u64>,
    /// The counts of each of its queues, in their order; absent if it has one, and in the intervals of a
    /// run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueReport>,
    /// Packets whose bytes Thalweg has copied on their way into packet memory or out of it; what the
    /// kernel, a driver or a peer copies is not counted. Absent if the kind of port does not count them, in
    /// a report of a run that has not ended, and in the intervals of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied: Option<u64>,
    /// What has happened to its network interface, and how often; absent if nothing has.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub link_events: IndexMap<&'static str, u64>,
    /// How packets passed, in a few words: the format of a capture; of an interface what the system
    /// provided. Absent if there is nothing to know, and in the intervals of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether others send or receive its packets, so that its mode is shown as text.
    #[serde(skip)]
    pub is_live: bool,
}

/// The counts of a queue of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueReport {
    /// Packets that were sent by it, or that arrived at it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped or lost there, by reason.
    pub drops: IndexMap<&'static str, u64>,
}

impl QueueReport {
    pub(super) fn of(counts: &PortCounters) -> Self {
        let PortCounters { packets, bytes, drops, .. } = counts;
        Self { packets: *packets, bytes: *bytes, drops: by_name(drops) }
    }
}

pub(super) fn ports<B: PortBlueprint + ?Sized>(
    plans: &[PortPlan<B>],
    totals: &PortTotals,
) -> Vec<PortReport> {
    let of = |((plan, counts), queues): ((&PortPlan<B>, &PortCounters), &Vec<_>)| PortReport {
        name: plan.name.clone(),
        packets: counts.packets,
        bytes: counts.bytes,
        segments: if counts.more_segments == 0 { 0 } else { counts.packets + counts.more_segments },
        outside: counts.passed_over.outside,
        filtered: counts.passed_over.filtered,
        drops: by_name(&counts.drops),
        device_drops: plan.events().and_then(LinkEvents::device_drops).unwrap_or(0),
        device_counters: device_counters(plan.events()),
        queues: if queues.len() < 2 {
            Vec::new()
        } else {
            queues.iter().map(QueueReport::of).collect()
        },
        copied: counts.copied,
        link_events: link_events(plan.events()),
        mode: plan.mode(),
        is_live: plan.is_live(),
    };
    plans.iter().zip(&totals.ports).zip(&totals.queues).map(of).collect()
}

fn device_counters(events: Option<&LinkEvents>) -> IndexMap<String, u64> {
    events.map(LinkEvents::device_counters).into_iter().flatten().collect()
}

fn link_events(events: Option<&LinkEvents>) -> IndexMap<&'static str, u64> {
    let counts = events.into_iter().flat_map(LinkEvents::counts);
    counts.map(|(change, count)| (change.name(), count)).collect()
}
