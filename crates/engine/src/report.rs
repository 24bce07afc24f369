//! The report of a run, which accounts for every packet.

use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use thalweg_cpu::Isa;
use thalweg_nf::device::DeviceCounts;
use thalweg_packet::DropCounts;

use crate::advice::advice;
use crate::batch_times::BatchReport;
use crate::counters::{
    Counters, DeviceTotals, Former, FormerNfs, Latencies, NfCounters, PortCounters, PortTotals,
};
use crate::published::WorkerCounts;
use crate::series::Series;
use thalweg_chain::{Plan, PortPlan};
use thalweg_io::LinkEvents;
use thalweg_io::kind::PortBlueprint;

/// The report of a run. Its JSON form is versioned by `schema`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// `thalweg.run/1`.
    #[schemars(extend("const" = "thalweg.run/1"))]
    pub schema: &'static str,
    /// Duration of the run, in seconds.
    pub duration_s: f64,
    /// Worker threads.
    pub workers: usize,
    /// What each of them has done.
    pub by_worker: Vec<WorkerReport>,
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets that NFs generated.
    pub generated: u64,
    /// Packets transmitted.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets dropped or lost, by reason, at ports, in NFs and between them.
    pub drops: IndexMap<&'static str, u64>,
    /// Packets dropped or lost in total.
    pub packets_dropped: u64,
    /// Whether in + generated = out + drops.
    pub conserved: bool,
    /// Frames that did not return to the pool, without those that failed devices keep; 0 in a sound run.
    pub leaked_frames: usize,
    /// Packets received per second.
    pub packets_per_second: f64,
    /// Bits received per second.
    pub bits_per_second: f64,
    /// Cycles per packet from receive to transmit, both included, without those in which the run
    /// waited for packets; with several threads, their sum. 0 without packets.
    pub cycles_per_packet: f64,
    /// Cycles per packet in each stage, if requested and with one worker thread; `other` is the
    /// rest of `cycles_per_packet`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub stages: IndexMap<&'static str, f64>,
    /// Processor time from the start of each batch of packets to that of the next, if requested and
    /// with one worker thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_cpu_ns: Option<BatchReport>,
    /// The level of vector instructions in use: scalar, avx2 or avx512.
    pub isa: &'static str,
    /// Time from receive to transmit.
    pub latency_ns: LatencyReport,
    /// Each input.
    pub inputs: Vec<PortReport>,
    /// Each output.
    pub outputs: Vec<PortReport>,
    /// Each NF.
    pub nfs: Vec<NfReport>,
    /// Drops between NFs, by reason.
    pub chain_drops: IndexMap<&'static str, u64>,
    /// Packets and bytes of each packet type.
    pub types: IndexMap<String, TypeReport>,
    /// The number of packets that each layer of classification answered.
    pub classification: IndexMap<&'static str, u64>,
    /// Reloads that changed something; absent if there were none.
    #[serde(skip_serializing_if = "is_none")]
    pub reloads: u64,
    /// How long reloads held packets up, in nanoseconds; absent without reloads, and in a report of a
    /// run that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_pauses_ns: Option<PauseReport>,
    /// The counts of what reloads have removed from the chain, which are part of the sums above;
    /// absent without reloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerReport>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Failures; the run has failed if there is one.
    pub failures: Vec<String>,
    /// What confined the run; absent if nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReport>,
    /// What happened over time; absent if no snapshots were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// The times of `latency_ns`, in cycles.
    #[serde(skip)]
    pub(crate) latencies: Arc<Latencies>,
    #[serde(skip)]
    pub(crate) nanoseconds_per_cycle: f64,
}

/// What confined a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SandboxReport {
    /// The user as which packets were processed.
    pub user: String,
    /// The capabilities that a thread of its own keeps, to open interfaces again. Threads that process
    /// packets have none.
    pub capabilities: Vec<String>,
    /// Whether the program can open only files in the folders that the run uses (Landlock).
    pub files: bool,
    /// Whether threads that process packets can make only the system calls for that (seccomp).
    pub calls: bool,
    /// Whether an input was live.
    #[serde(skip)]
    pub is_live: bool,
}

impl SandboxReport {
    /// What holds, in words.
    pub fn parts(&self) -> Vec<String> {
        let or_not = |holds, what: &str, by: &str| {
            if holds {
                format!("{what} ({by})")
            } else {
                format!("no {by}, so {what} not confined")
            }
        };
        let capabilities = match &*self.capabilities {
            [] => "no capabilities".into(),
            all => format!("{} to open interfaces", all.join(" and ")),
        };
        vec![
            format!("user {}", self.user),
            capabilities,
            or_not(self.files, "files", "Landlock"),
            or_not(self.calls, "system calls", "seccomp"),
        ]
    }
}

/// What a worker has done.
///
/// In a report of a run that has not ended, the time of the burst at hand is not counted yet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WorkerReport {
    /// Its number, from 0.
    pub worker: usize,
    /// The core that it was on, as of its last looks; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// The time in which it had something to do, in seconds.
    pub busy_s: f64,
    /// That time as a share of the run, from 0 to 1.
    pub busy_share: f64,
    /// Bursts of packets that it received.
    pub bursts: u64,
    /// The packets in them.
    pub packets: u64,
    /// Times that it took a burst further that another worker had received.
    pub taken_over: u64,
    /// Times that a burst which it took through the chain had to wait for its turn.
    pub waits: u64,
}

impl WorkerReport {
    fn of((worker, counts): (usize, &WorkerCounts), duration_s: f64, ns: f64) -> Self {
        let WorkerCounts { busy_cycles, bursts, packets, taken_over, waits, core } = *counts;
        let busy_s = busy_cycles as f64 * ns / 1e9;
        // The two clocks may differ by a little.
        let busy_share = (busy_s / duration_s.max(1e-9)).min(1.0);
        Self { worker, core, busy_s, busy_share, bursts, packets, taken_over, waits }
    }
}

/// How long reloads held packets up.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PauseReport {
    /// Time in which no packets were received.
    pub wall: LatencyReport,
    /// The part of it in which a processor was busy with the change.
    pub cpu: LatencyReport,
}

impl PauseReport {
    /// From times in nanoseconds.
    pub(crate) fn of(wall: &Latencies, cpu: &Latencies) -> Self {
        Self { wall: LatencyReport::of(wall, 1.0), cpu: LatencyReport::of(cpu, 1.0) }
    }
}

/// The counts of what reloads have removed from the chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FormerReport {
    /// All inputs.
    pub inputs: SumReport,
    /// All outputs.
    pub outputs: SumReport,
    /// NFs, by kind.
    pub nfs: IndexMap<&'static str, FormerNf>,
    /// All packet types.
    pub types: TypeReport,
}

/// The counts of several ports.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SumReport {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped or lost there, by reason.
    pub drops: IndexMap<&'static str, u64>,
}

/// The counts of NFs of one kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FormerNf {
    /// Packets that they received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets they generated.
    pub generated: u64,
    /// Packets they dropped, by reason.
    pub drops: IndexMap<&'static str, u64>,
}

impl FormerReport {
    fn of(former: &Former) -> Self {
        let sum = |port: &PortCounters| SumReport {
            packets: port.packets,
            bytes: port.bytes,
            drops: by_name(&port.drops),
        };
        let nf = |nf: &FormerNfs| FormerNf {
            packets: nf.packets,
            bytes: nf.bytes,
            generated: nf.generated,
            drops: by_name(&nf.drops),
        };
        Self {
            inputs: sum(&former.inputs),
            outputs: sum(&former.outputs),
            nfs: former.nfs.iter().map(|(kind, counters)| (*kind, nf(counters))).collect(),
            types: TypeReport { packets: former.types.0, bytes: former.types.1 },
        }
    }
}

/// Packets of one packet type.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TypeReport {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

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
    fn of(counts: &PortCounters) -> Self {
        let PortCounters { packets, bytes, drops, .. } = counts;
        Self { packets: *packets, bytes: *bytes, drops: by_name(drops) }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_none(count: &u64) -> bool {
    *count == 0
}

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
    fn of(totals: &DeviceTotals) -> Self {
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

/// Percentiles of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct LatencyReport {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Longest.
    pub max: u64,
}

/// All counts of a run.
pub(crate) struct Totals {
    /// The counts of each worker.
    pub(crate) workers: Vec<WorkerCounts>,
    pub(crate) duration_s: f64,
    pub(crate) stages: bool,
    pub(crate) nanoseconds_per_cycle: f64,
    /// Cycles of receive and transmit outside the workers.
    pub(crate) port_cycles: u64,
    pub(crate) inputs: PortTotals,
    pub(crate) outputs: PortTotals,
    pub(crate) counters: Counters,
    pub(crate) latency: Latencies,
    pub(crate) batch_cpu_ns: Option<BatchReport>,
    pub(crate) reload_pauses_ns: Option<PauseReport>,
    pub(crate) leaked_frames: usize,
    pub(crate) warnings: Vec<String>,
    pub(crate) failures: Vec<String>,
}

impl Report {
    /// Whether something failed.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn new(plan: &Plan, totals: Totals) -> Self {
        let Totals { counters, inputs, outputs, mut failures, .. } = totals;
        let sum = |ports: &[PortCounters]| {
            let mut sum = PortCounters::default();
            for port in ports {
                sum.merge(port);
            }
            sum
        };
        let former = &counters.former;
        let (mut all_in, mut all_out) = (sum(&inputs.ports), sum(&outputs.ports));
        all_in.merge(&former.inputs);
        all_out.merge(&former.outputs);
        let mut drops = counters.drops();
        drops.merge(&all_in.drops);
        drops.merge(&all_out.drops);
        let generated = counters.generated();
        let conserved = all_in.packets + generated == all_out.packets + drops.total();
        if !conserved {
            failures.push(format!(
                "packets are not conserved: {} in + {generated} generated != {} out + {} dropped",
                all_in.packets,
                all_out.packets,
                drops.total()
            ));
        }
        let kept = usize::try_from(counters.kept_frames()).unwrap_or(usize::MAX);
        let leaked_frames = totals.leaked_frames.saturating_sub(kept);
        if leaked_frames > 0 {
            failures.push(format!("frames that did not return to the pool: {leaked_frames}"));
        }
        let mut warnings = totals.warnings;
        warnings.extend(advice(
            plan,
            &inputs.ports,
            &outputs.ports,
            &counters,
            !failures.is_empty(),
        ));
        let ns = totals.nanoseconds_per_cycle;
        let per_second = 1.0 / totals.duration_s.max(1e-9);
        let cycles = counters.busy_cycles + totals.port_cycles;
        let by_worker = totals.workers.iter().enumerate();
        let by_worker = by_worker.map(|of| WorkerReport::of(of, totals.duration_s, ns)).collect();
        Self {
            schema: "thalweg.run/1",
            duration_s: totals.duration_s,
            workers: totals.workers.len(),
            by_worker,
            packets_in: all_in.packets,
            bytes_in: all_in.bytes,
            generated,
            packets_out: all_out.packets,
            bytes_out: all_out.bytes,
            drops: by_name(&drops),
            packets_dropped: drops.total(),
            conserved,
            leaked_frames,
            packets_per_second: all_in.packets as f64 * per_second,
            bits_per_second: all_in.bytes as f64 * 8.0 * per_second,
            cycles_per_packet: per_packet(cycles, all_in.packets),
            stages: if totals.stages {
                stages(&counters, totals.port_cycles, all_in.packets)
            } else {
                IndexMap::new()
            },
            batch_cpu_ns: totals.batch_cpu_ns,
            isa: Isa::active().name(),
            latency_ns: LatencyReport::of(&totals.latency, ns),
            inputs: ports(&plan.inputs, &inputs),
            outputs: ports(&plan.outputs, &outputs),
            nfs: nfs(plan, &counters, ns),
            chain_drops: by_name(&counters.chain_drops),
            types: types(plan, &counters),
            classification: counters.layers.counts().collect(),
            reloads: former.reloads,
            reload_pauses_ns: totals.reload_pauses_ns,
            former: (former.reloads > 0).then(|| FormerReport::of(former)),
            warnings,
            failures,
            sandbox: None,
            series: None,
            latencies: Arc::new(totals.latency),
            nanoseconds_per_cycle: ns,
        }
    }
}

impl LatencyReport {
    fn of(latencies: &Latencies, nanoseconds_per_cycle: f64) -> Self {
        let h = latencies.histogram();
        let at = |q: f64| (h.value_at_quantile(q) as f64 * nanoseconds_per_cycle) as u64;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

fn by_name(drops: &DropCounts) -> IndexMap<&'static str, u64> {
    drops.iter().map(|(reason, n)| (reason.name(), n)).collect()
}

fn ports<B: PortBlueprint + ?Sized>(plans: &[PortPlan<B>], totals: &PortTotals) -> Vec<PortReport> {
    let of = |((plan, counts), queues): ((&PortPlan<B>, &PortCounters), &Vec<_>)| PortReport {
        name: plan.name.clone(),
        packets: counts.packets,
        bytes: counts.bytes,
        segments: if counts.more_segments == 0 { 0 } else { counts.packets + counts.more_segments },
        outside: counts.passed_over.outside,
        filtered: counts.passed_over.filtered,
        drops: by_name(&counts.drops),
        device_drops: plan.events().and_then(LinkEvents::device_drops).unwrap_or(0),
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

fn link_events(events: Option<&LinkEvents>) -> IndexMap<&'static str, u64> {
    let counts = events.into_iter().flat_map(LinkEvents::counts);
    counts.map(|(change, count)| (change.name(), count)).collect()
}

fn nfs(plan: &Plan, counters: &Counters, ns: f64) -> Vec<NfReport> {
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

fn types(plan: &Plan, counters: &Counters) -> IndexMap<String, TypeReport> {
    let counts = counters
        .types
        .iter()
        .map(|(packets, bytes)| TypeReport { packets: *packets, bytes: *bytes });
    plan.types.iter().cloned().zip(counts).collect()
}

/// The share of each packet; 0 without packets.
pub(crate) fn per_packet(cycles: u64, packets: u64) -> f64 {
    if packets == 0 { 0.0 } else { cycles as f64 / packets as f64 }
}

/// Cycles per packet in each stage of the path.
fn stages(counters: &Counters, port_cycles: u64, packets: u64) -> IndexMap<&'static str, f64> {
    let layers = counters.layer_cycles;
    let nfs: u64 = counters.nfs.iter().map(|nf| nf.cycles).sum();
    let io = port_cycles + counters.io_cycles;
    let known = [
        ("io", io),
        ("parse", counters.parse_cycles),
        ("emc", layers.emc),
        ("megaflow", layers.megaflow),
        ("rules", layers.rules),
        ("nfs", nfs),
    ];
    let all = port_cycles + counters.busy_cycles;
    let other = all.saturating_sub(known.iter().map(|(_, cycles)| cycles).sum());
    let all = known.into_iter().chain([("other", other)]);
    all.map(|(name, cycles)| (name, per_packet(cycles, packets))).collect()
}
