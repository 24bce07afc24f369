//! Reports of a run at two moments, and the rates between them.

use indexmap::IndexMap;
use serde::Deserialize;

/// What of the report of a run so far is shown.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Sample {
    pub duration_s: f64,
    pub workers: u64,
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub packets_dropped: u64,
    pub drops: IndexMap<String, u64>,
    pub latency_ns: Latency,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub nfs: Vec<Nf>,
    pub types: IndexMap<String, Counts>,
    pub by_worker: Vec<Worker>,
    /// Absent without reloads.
    #[serde(default)]
    pub reloads: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Counts {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Port {
    pub name: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub drops: IndexMap<String, u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Nf {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub generated: u64,
    pub drops: IndexMap<String, u64>,
    /// Absent without late packets.
    #[serde(default)]
    pub bypassed: u64,
    pub cycles_per_packet: f64,
    pub latency_ns: Latency,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Worker {
    pub worker: u64,
    /// Absent if it is unknown.
    #[serde(default)]
    pub core: Option<u32>,
    pub busy_s: f64,
    pub packets: u64,
    pub taken_over: u64,
    pub waits: u64,
}

/// What happened between two reports of one run.
pub struct Rates<'a> {
    pub before: &'a Sample,
    pub now: &'a Sample,
    seconds: f64,
}

impl<'a> Rates<'a> {
    /// The rates from `before` to `now`.
    pub fn between(before: &'a Sample, now: &'a Sample) -> Self {
        Self { before, now, seconds: now.duration_s - before.duration_s }
    }

    /// The increase of a count in a second. One that is smaller than before is of a port or an NF
    /// that a reload has put in place of another: all of it is new.
    pub fn per_second(&self, before: u64, now: u64) -> f64 {
        let increase = now.checked_sub(before).unwrap_or(now);
        if self.seconds > 0.0 { increase as f64 / self.seconds } else { 0.0 }
    }

    /// The share of the time in which a worker had something to do, from 0 to 1.
    pub fn busy(&self, before: &Worker, now: &Worker) -> f64 {
        let busy = (now.busy_s - before.busy_s).max(0.0);
        if self.seconds > 0.0 { (busy / self.seconds).min(1.0) } else { 0.0 }
    }

    /// The reasons of drops that increase, and by how much in a second, the most frequent first.
    pub fn drops<'d>(
        &self,
        before: Option<&IndexMap<String, u64>>,
        now: &'d IndexMap<String, u64>,
    ) -> Vec<(&'d str, f64)> {
        let rate = |(reason, count): (&'d String, &u64)| {
            let before = before.and_then(|drops| drops.get(reason)).copied().unwrap_or(0);
            (reason.as_str(), self.per_second(before, *count))
        };
        let mut rates: Vec<_> = now.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect();
        rates.sort_by(|a, b| b.1.total_cmp(&a.1));
        rates
    }

    /// The cycles of an NF for each packet since `before`; `None` without packets.
    pub fn cycles(before: Option<&Nf>, now: &Nf) -> Option<f64> {
        let total = |nf: &Nf| nf.cycles_per_packet * nf.counts.packets as f64;
        let before = before.filter(|nf| nf.counts.packets <= now.counts.packets);
        let packets = now.counts.packets - before.map_or(0, |nf| nf.counts.packets);
        let cycles = total(now) - before.map_or(0.0, total);
        (packets > 0).then(|| (cycles / packets as f64).max(0.0))
    }
}
