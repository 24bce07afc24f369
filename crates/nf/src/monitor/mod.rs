//! NF `monitor`: packet and byte counts by flow.
//!
//! A flow is unidirectional, as in IPFIX: five-tuple, input port and packet
//! type. Its counts are exported when it has been idle, has been active for
//! long, on request, at the end, or when the table is full; each export holds
//! what was counted since the one before (delta counts), so that the sum over
//! a flow's records is its total.

mod export;
mod ipfix;
mod record;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::{Batch, FiveTuple, Lanes, Nanoseconds, field};
use toml::Spanned;

use crate::function::NfError;
use crate::state::{StateError, StateReader, StateWriter};
use crate::{Blueprint, BuildError, Context, Environment, Kind, NetworkFunction, Section};
use export::Exporter;
use record::{Counts, EndReason, FlowId, Record, Subject};

const TCP: u64 = 6;

/// The options of a monitor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// A file for records as lines of JSON (schema thalweg.monitor/1).
    json: Option<String>,
    /// A file for records as IPFIX messages (RFC 7011, RFC 5655).
    ipfix: Option<String>,
    /// The most flows of a worker; when they are there all are written out.
    #[schemars(with = "usize", range(min = 1, max = 67_108_864))]
    max_flows: Spanned<usize>,
    /// Seconds without a packet after which a flow's record is written.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    idle_timeout_s: Spanned<u64>,
    /// Seconds after which a record of a flow that goes on is written.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    active_timeout_s: Spanned<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            json: None,
            ipfix: None,
            max_flows: Spanned::new(0..0, 262_144),
            idle_timeout_s: Spanned::new(0..0, 30),
            active_timeout_s: Spanned::new(0..0, 1800),
        }
    }
}

pub(crate) const KIND: Kind = Kind {
    name: "monitor",
    summary: "packet and byte counts by flow",
    state: "counts of flows, by five-tuple, input port and packet type",
    limits: &["max_flows flows a worker: the whole table is written out when they are there"],
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let mut errors = Vec::new();
    if !(1..=1 << 26).contains(options.max_flows.get_ref()) {
        let span = options.max_flows.span();
        errors.push(section.error(span, "bad number of flows", "1 to 67108864"));
    }
    for timeout in [&options.idle_timeout_s, &options.active_timeout_s] {
        if !(1..=1 << 32).contains(timeout.get_ref()) {
            let expected = "seconds, 1 and more";
            errors.push(section.error(timeout.span(), "bad timeout", expected));
        }
    }
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let file = |name: &Option<String>| -> Option<PathBuf> {
        name.as_ref().filter(|_| !environment.dry_run).map(|n| section.resolve(n))
    };
    let exporter = Exporter::new(file(&options.json), file(&options.ipfix));
    let limits = Limits {
        flows: *options.max_flows.get_ref(),
        idle: Nanoseconds::from_secs(*options.idle_timeout_s.get_ref()),
        active: Nanoseconds::from_secs(*options.active_timeout_s.get_ref()),
    };
    Ok(Box::new(MonitorBlueprint { limits, exporter: Arc::new(Mutex::new(exporter)) }))
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    flows: usize,
    idle: Nanoseconds,
    active: Nanoseconds,
}

struct MonitorBlueprint {
    limits: Limits,
    exporter: Arc<Mutex<Exporter>>,
}

impl Blueprint for MonitorBlueprint {
    fn instance(&self, _worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(Monitor::new(self.limits, self.exporter.clone()))
    }

    fn describe(&self) -> String {
        let (flows, idle) = (self.limits.flows, self.limits.idle.split().0);
        format!("up to {flows} flows a worker, idle after {idle} s")
    }
}

/// A monitor on one worker.
struct Monitor {
    flows: HashMap<FlowId, Counts>,
    limits: Limits,
    exporter: Arc<Mutex<Exporter>>,
    swept: Nanoseconds,
    pending: Vec<Record>,
    failure: Option<NfError>,
    packets: u64,
    bytes: u64,
    exported: u64,
    table_full: u64,
}

impl NetworkFunction for Monitor {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let now = context.now();
        self.sweep(now);
        for lane in lanes {
            let key = batch.key(lane);
            let subject = FiveTuple::from_key(&key)
                .map_or(Subject::Other(key.get(field::DL_TYPE) as u16), Subject::Ip);
            let flow = FlowId {
                subject,
                in_port: batch.meta.in_port[lane].0,
                packet_type: batch.meta.packet_type[lane].0,
            };
            let flags = match key.get(field::NW_PROTO) {
                TCP => key.get(field::TCP_FLAGS) as u16,
                _ => 0,
            };
            let bytes = u64::from(batch.meta.wire_len[lane]);
            let counts = self.count(flow, batch.meta.timestamp[lane], bytes, flags);
            context.explain(lane, || format!("packet {counts} of its flow here"));
        }
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.flows.iter().try_for_each(|flow| writer.record(&flow))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let flows: Vec<(FlowId, Counts)> = reader.records()?;
        let imported = flows.len();
        for (flow, counts) in flows {
            self.make_room();
            self.flows.entry(flow).and_modify(|c| c.add(&counts)).or_insert(counts);
        }
        Ok(imported)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("packets", self.packets),
            ("bytes", self.bytes),
            ("records_exported", self.exported),
            ("times_table_full", self.table_full),
        ]
    }

    fn flush(&mut self) -> Result<(), NfError> {
        self.export(|_| Some(EndReason::ForcedEnd));
        let failure = self.failure.take();
        self.exporter().flush()?;
        failure.map_or(Ok(()), Err)
    }
}

impl Monitor {
    fn new(limits: Limits, exporter: Arc<Mutex<Exporter>>) -> Self {
        Self {
            flows: HashMap::new(),
            limits,
            exporter,
            swept: Nanoseconds::default(),
            pending: Vec::new(),
            failure: None,
            packets: 0,
            bytes: 0,
            exported: 0,
            table_full: 0,
        }
    }

    /// Counts a packet; the flow's packets since its last export.
    fn count(&mut self, flow: FlowId, time: Nanoseconds, bytes: u64, flags: u16) -> u64 {
        self.packets += 1;
        self.bytes += bytes;
        if !self.flows.contains_key(&flow) {
            self.make_room();
        }
        let counts = self.flows.entry(flow).or_insert_with(|| Counts::new(time));
        counts.packet(time, bytes, flags);
        counts.packets
    }

    /// A full table is exported whole and begins anew: bounded memory, and no
    /// count is lost.
    fn make_room(&mut self) {
        if self.flows.len() >= self.limits.flows {
            self.table_full += 1;
            self.export(|_| Some(EndReason::LackOfResources));
        }
    }

    /// Exports flows that are idle, or active for long, now and then.
    fn sweep(&mut self, now: Nanoseconds) {
        let Limits { idle, active, .. } = self.limits;
        let period = Nanoseconds(idle.0.min(active.0) / 4);
        if now.since(self.swept) < period {
            return;
        }
        self.swept = now;
        self.export(|counts| {
            if now.since(counts.last) >= idle {
                Some(EndReason::IdleTimeout)
            } else if now.since(counts.first) >= active {
                Some(EndReason::ActiveTimeout)
            } else {
                None
            }
        });
    }

    /// Exports and removes the flows that `reason` gives a reason for.
    fn export(&mut self, reason: impl Fn(&Counts) -> Option<EndReason>) {
        let pending = &mut self.pending;
        self.flows.retain(|flow, counts| match reason(counts) {
            Some(reason) => {
                pending.push(Record { flow: *flow, counts: *counts, reason });
                false
            }
            None => true,
        });
        if self.pending.is_empty() {
            return;
        }
        // A report does not depend on the order of a hash table.
        self.pending.sort_by_key(|r| (r.counts.first, r.flow));
        self.exported += self.pending.len() as u64;
        let pending = std::mem::take(&mut self.pending);
        let written = self.exporter().write(&pending);
        self.failure = self.failure.take().or(written.err());
        self.pending = pending;
        self.pending.clear();
    }

    fn exporter(&self) -> MutexGuard<'_, Exporter> {
        self.exporter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
