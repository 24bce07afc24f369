//! The report of a run, which accounts for every packet.

mod former;
mod nfs;
mod ports;
mod process;

use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use thalweg_chain::Plan;
use thalweg_cpu::Isa;
use thalweg_packet::DropCounts;

pub use self::former::{FormerNf, FormerReport, SumReport};
pub use self::nfs::{DeviceReport, NfReport};
pub use self::ports::{PortReport, QueueReport};
pub use self::process::{SandboxReport, WorkerReport};

use crate::advice::advice;
use crate::batch_times::BatchReport;
use crate::counters::{Counters, Latencies, PortCounters, PortTotals};
use crate::published::WorkerCounts;
use crate::series::Series;

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

/// Packets of one packet type.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TypeReport {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_none(count: &u64) -> bool {
    *count == 0
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
            inputs: ports::ports(&plan.inputs, &inputs),
            outputs: ports::ports(&plan.outputs, &outputs),
            nfs: nfs::nfs(plan, &counters, ns),
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
