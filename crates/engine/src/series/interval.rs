//! What happened in one interval of a run.

use std::collections::HashMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::times::Times;
use crate::report::{LatencyReport, NfReport, PortReport, Report, TypeReport, is_none, per_packet};

/// What happened in one interval of a run.
///
/// Counts are those of the interval alone, so that the intervals of a run add up to its report.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Interval {
    /// Its start, in seconds since the start of the run.
    pub start_s: f64,
    /// Its end, in seconds since the start of the run.
    pub end_s: f64,
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
    /// Packets dropped or lost, by reason, at ports, in NFs and between them; reasons without
    /// packets are absent.
    pub drops: IndexMap<&'static str, u64>,
    /// Packets dropped or lost in total.
    pub packets_dropped: u64,
    /// Packets received per second.
    pub packets_per_second: f64,
    /// Bits received per second.
    pub bits_per_second: f64,
    /// Time from receive to transmit of the packets transmitted in this interval, at most 1/32 above
    /// the exact one.
    pub latency_ns: LatencyReport,
    /// Each input.
    pub inputs: Vec<PortReport>,
    /// Each output.
    pub outputs: Vec<PortReport>,
    /// Each NF.
    pub nfs: Vec<NfInterval>,
    /// Packets and bytes of each packet type; types without packets are absent.
    pub types: IndexMap<String, TypeReport>,
    #[serde(skip)]
    times: Times,
}

/// What happened in an NF in one interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NfInterval {
    /// Its name.
    pub name: String,
    /// Packets that it received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets it generated.
    pub generated: u64,
    /// Packets it dropped, by reason.
    pub drops: IndexMap<&'static str, u64>,
    /// Late packets that bypassed it (`on_overload = "bypass"`); absent if there are none.
    #[serde(skip_serializing_if = "is_none")]
    pub bypassed: u64,
    /// Cycles that it took.
    pub cycles: u64,
    /// Cycles per packet; 0 without packets.
    pub cycles_per_packet: f64,
}

impl Interval {
    /// What happened between two reports of one run, of which `before` is the earlier; without it,
    /// since the start of the run. Ports, NFs and packet types are matched by their names.
    pub(super) fn between(before: Option<&Report>, after: &Report) -> Self {
        let earlier = |count: fn(&Report) -> u64| before.map_or(0, count);
        let since = |count: fn(&Report) -> u64| count(after).saturating_sub(earlier(count));
        let ports = |ports: fn(&Report) -> &Vec<PortReport>| {
            let earlier = by_name(before.map(|b| &ports(b)[..]), |port| &port.name);
            let since = |port: &PortReport| port_since(earlier.get(&*port.name).copied(), port);
            ports(after).iter().map(since).collect()
        };
        let nfs = by_name(before.map(|before| &before.nfs[..]), |nf| &nf.name);
        let nfs = after.nfs.iter().map(|nf| nf_since(nfs.get(&*nf.name).copied(), nf)).collect();
        let types = after.types.iter().map(|(name, now)| {
            let old = before.and_then(|before| before.types.get(name));
            let since =
                |count: fn(&TypeReport) -> u64| count(now).saturating_sub(old.map_or(0, count));
            (name.clone(), TypeReport { packets: since(|t| t.packets), bytes: since(|t| t.bytes) })
        });
        let latencies = before.map(|before| &*before.latencies);
        let mut interval = Self {
            start_s: before.map_or(0.0, |before| before.duration_s),
            end_s: after.duration_s,
            packets_in: since(|r| r.packets_in),
            bytes_in: since(|r| r.bytes_in),
            generated: since(|r| r.generated),
            packets_out: since(|r| r.packets_out),
            bytes_out: since(|r| r.bytes_out),
            drops: counts_since(before.map(|before| &before.drops), &after.drops),
            packets_dropped: since(|r| r.packets_dropped),
            packets_per_second: 0.0,
            bits_per_second: 0.0,
            latency_ns: LatencyReport::default(),
            inputs: ports(|r| &r.inputs),
            outputs: ports(|r| &r.outputs),
            nfs,
            types: types.filter(|(_, count)| count.packets > 0).collect(),
            times: Times::between(latencies, &after.latencies, after.nanoseconds_per_cycle),
        };
        interval.derive();
        interval
    }

    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }

    /// A count of it, per second; 0 if it has no length.
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// The number of its ports, NFs, packet types and drop reasons, which take memory.
    pub(super) fn parts(&self) -> usize {
        let nfs = self.nfs.iter().map(|nf| 1 + nf.drops.len()).sum::<usize>();
        let ports = self.inputs.iter().chain(&self.outputs);
        let ports = ports.map(|port| 1 + port.drops.len()).sum::<usize>();
        nfs + ports + self.types.len() + self.drops.len()
    }

    /// Adds the next interval of the same run.
    pub(super) fn join(&mut self, next: &Self) {
        self.end_s = next.end_s;
        self.packets_in += next.packets_in;
        self.bytes_in += next.bytes_in;
        self.generated += next.generated;
        self.packets_out += next.packets_out;
        self.bytes_out += next.bytes_out;
        add_counts(&mut self.drops, &next.drops);
        self.packets_dropped += next.packets_dropped;
        for (own, others) in [(&mut self.inputs, &next.inputs), (&mut self.outputs, &next.outputs)]
        {
            join_all(own, others, |port| &port.name, add_port);
        }
        join_all(&mut self.nfs, &next.nfs, |nf| &nf.name, add_nf);
        for (name, more) in &next.types {
            let own = self.types.entry(name.clone()).or_insert(TypeReport { packets: 0, bytes: 0 });
            own.packets += more.packets;
            own.bytes += more.bytes;
        }
        self.times.merge(&next.times);
        self.derive();
    }

    /// Computes what follows from the counts.
    fn derive(&mut self) {
        self.packets_per_second = self.per_second(self.packets_in);
        self.bits_per_second = 8.0 * self.per_second(self.bytes_in);
        self.latency_ns = self.times.percentiles();
    }
}

fn by_name<T>(all: Option<&[T]>, name: fn(&T) -> &String) -> HashMap<&str, &T> {
    all.into_iter().flatten().map(|one| (name(one).as_str(), one)).collect()
}

/// The counts that have grown, by their growth.
fn counts_since(
    before: Option<&IndexMap<&'static str, u64>>,
    after: &IndexMap<&'static str, u64>,
) -> IndexMap<&'static str, u64> {
    let earlier = |name| before.and_then(|before| before.get(name)).copied().unwrap_or(0);
    let grown = after.iter().map(|(name, count)| (*name, count.saturating_sub(earlier(name))));
    grown.filter(|(_, growth)| *growth > 0).collect()
}

fn port_since(before: Option<&PortReport>, after: &PortReport) -> PortReport {
    let since =
        |count: fn(&PortReport) -> u64| count(after).saturating_sub(before.map_or(0, count));
    PortReport {
        name: after.name.clone(),
        packets: since(|port| port.packets),
        bytes: since(|port| port.bytes),
        segments: since(|port| port.segments),
        outside: since(|port| port.outside),
        filtered: since(|port| port.filtered),
        drops: counts_since(before.map(|before| &before.drops), &after.drops),
        device_drops: 0,
        device_counters: IndexMap::new(),
        queues: Vec::new(),
        copied: None,
        link_events: counts_since(before.map(|before| &before.link_events), &after.link_events),
        mode: None,
        is_live: after.is_live,
    }
}

fn nf_since(before: Option<&NfReport>, after: &NfReport) -> NfInterval {
    let since = |count: fn(&NfReport) -> u64| count(after).saturating_sub(before.map_or(0, count));
    let (packets, cycles) = (since(|nf| nf.packets), since(|nf| nf.cycles));
    NfInterval {
        name: after.name.clone(),
        packets,
        bytes: since(|nf| nf.bytes),
        generated: since(|nf| nf.generated),
        drops: counts_since(before.map(|before| &before.drops), &after.drops),
        bypassed: since(|nf| nf.bypassed),
        cycles,
        cycles_per_packet: per_packet(cycles, packets),
    }
}

fn add_counts(counts: &mut IndexMap<&'static str, u64>, more: &IndexMap<&'static str, u64>) {
    more.iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
}

/// Adds each of `others` to the one of the same name, or to the list.
fn join_all<T: Clone>(
    own: &mut Vec<T>,
    others: &[T],
    name: fn(&T) -> &String,
    add: fn(&mut T, &T),
) {
    for (at, other) in others.iter().enumerate() {
        // Usually at the same place in both.
        let found = own.get(at).filter(|one| name(one) == name(other)).map(|_| at);
        match found.or_else(|| own.iter().position(|one| name(one) == name(other))) {
            Some(at) => add(&mut own[at], other),
            None => own.push(other.clone()),
        }
    }
}

fn add_port(port: &mut PortReport, more: &PortReport) {
    port.packets += more.packets;
    port.bytes += more.bytes;
    port.outside += more.outside;
    port.filtered += more.filtered;
    add_counts(&mut port.drops, &more.drops);
    add_counts(&mut port.link_events, &more.link_events);
}

fn add_nf(nf: &mut NfInterval, more: &NfInterval) {
    nf.packets += more.packets;
    nf.bytes += more.bytes;
    nf.generated += more.generated;
    add_counts(&mut nf.drops, &more.drops);
    nf.bypassed += more.bypassed;
    nf.cycles += more.cycles;
    nf.cycles_per_packet = per_packet(nf.cycles, nf.packets);
}
