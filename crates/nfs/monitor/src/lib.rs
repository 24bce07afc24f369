//! NF `monitor`: packet and byte counts by flow.
//!
//! A flow is unidirectional, as in IPFIX: five-tuple, input port and packet
//! type. Its counts are exported when it has been idle, has been active for
//! long, on request, at the end, or when it is evicted from a full table; each
//! export holds the counts since the previous one (delta counts), so that the sum over
//! a flow's records is its total.

mod backlog;
mod export;
mod ipfix;
mod record;

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ip_proto;
use thalweg_packet::{BATCH, Batch, FiveTuple, Lanes, Nanoseconds, field};
use toml::Spanned;

use backlog::Backlog;
use export::Exporter;
use record::{Counts, EndReason, FlowId, Labels, Record, Subject};
use thalweg_nf::NfError;
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::flow_table::{FlowTable, Hand, Most, Slot, Walk};
use thalweg_nf::toolkit::output::Rotate;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};

/// The options of a monitor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// A file for records as lines of JSON (schema thalweg.monitor/2).
    #[schemars(with = "Option<String>")]
    json: Option<Spanned<String>>,
    /// A file for records as IPFIX messages (RFC 7011, RFC 5655).
    #[schemars(with = "Option<String>")]
    ipfix: Option<Spanned<String>>,
    /// When each of these files is renamed, and a new one is begun; without it, never.
    #[schemars(with = "Option<Rotate>")]
    rotate: Option<Spanned<Rotate>>,
    /// The most flows; when full, the least recently used of eight is exported for each new one.
    #[schemars(with = "usize", range(min = 1, max = 67_108_864))]
    max_flows: Spanned<usize>,
    /// Seconds without a packet after which a flow is exported.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    idle_timeout_s: Spanned<u64>,
    /// Seconds after which a flow that is still active is exported.
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    active_timeout_s: Spanned<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            json: None,
            ipfix: None,
            rotate: None,
            max_flows: Spanned::new(0..0, 262_144),
            idle_timeout_s: Spanned::new(0..0, 30),
            active_timeout_s: Spanned::new(0..0, 1800),
        }
    }
}

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "monitor",
    summary: "packet and byte counts by flow",
    state: Some("counts of flows, by five-tuple, input port and packet type"),
    grain: Grain::Merge,
    limits: &[
        "max_flows flows: when full, the least recently used of eight is exported for each new one",
    ],
    chooses_output: false,
    keeps_names: true,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build,
};

/// The JSON Schema of a line of `json`: a record of a flow.
pub fn line_schema() -> schemars::Schema {
    thalweg_nf::toolkit::output::schema_of::<record::JsonRecord>()
}

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let mut errors = Vec::new();
    if !(1..=1 << 26).contains(options.max_flows.get_ref()) {
        let span = options.max_flows.span();
        errors.push(section.error(span, "number of flows out of range", "1 to 67108864"));
    }
    for timeout in [&options.idle_timeout_s, &options.active_timeout_s] {
        if !(1..=1 << 32).contains(timeout.get_ref()) {
            let expected = "1 to 4294967296 seconds";
            errors.push(section.error(timeout.span(), "timeout out of range", expected));
        }
    }
    let (json, ipfix) = (options.json.as_ref(), options.ipfix.as_ref());
    let rotation = section.rotation(options.rotate.as_ref(), &[json, ipfix], &mut errors);
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let file = |option| section.output(option, environment);
    let labels = Labels { inputs: environment.inputs.into(), types: environment.types.into() };
    let exporter = Exporter::new(file(json)?, file(ipfix)?, rotation, labels);
    let limits = Limits {
        flows: *options.max_flows.get_ref(),
        idle: Nanoseconds::from_secs(*options.idle_timeout_s.get_ref()),
        active: Nanoseconds::from_secs(*options.active_timeout_s.get_ref()),
    };
    Ok(Box::new(MonitorBlueprint { limits, exporter }))
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    flows: usize,
    idle: Nanoseconds,
    active: Nanoseconds,
}

impl Limits {
    /// Why a record of these counts ends before a packet at `now`.
    fn reason(&self, counts: &Counts, now: Nanoseconds) -> Option<EndReason> {
        if now.since(counts.last) >= self.idle {
            Some(EndReason::IdleTimeout)
        } else if now.since(counts.first) >= self.active {
            Some(EndReason::ActiveTimeout)
        } else {
            None
        }
    }
}

struct MonitorBlueprint {
    limits: Limits,
    exporter: Exporter,
}

impl Blueprint for MonitorBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Monitor::new(self.limits, self.exporter.clone()))
    }

    fn describe(&self) -> String {
        let (flows, idle) = (self.limits.flows, self.limits.idle.split().0);
        format!("at most {flows} flows, idle timeout {idle} s")
    }

    fn memory(&self) -> u64 {
        // All flows may end at one time.
        (Table::bytes(self.limits.flows) + Backlog::bytes(self.limits.flows)) as u64
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let same_files = |old: &&Self| old.exporter.writes_as(&self.exporter);
        old.downcast().filter(same_files)?;
        let (limits, new) = (self.limits, self.exporter.clone());
        Some(Box::new(move |instance| {
            let monitor = instance.downcast_mut::<Monitor>()?;
            monitor.renew(limits, new);
            None
        }))
    }
}

/// The flows with their counts.
type Table = FlowTable<FlowId, Counts, 6>;

/// What a batch does of a sweep, at most.
const STEP: Most = Most { slots: 1024, flows: 64 };
/// The most records of the backlog that are written after a batch: more than a batch of packets ends.
const WRITTEN: usize = 2 * BATCH;

/// The most flows that are evicted for a new one: several after a reload has lowered the limit.
const MOST_EVICTED: usize = 4;

/// A search for flows that were idle, or active for long, at a time; or for all flows.
struct Sweep {
    time: Nanoseconds,
    walk: Walk,
    /// That of the records of these flows.
    round: u64,
    is_of_all: bool,
}

impl Sweep {
    /// Its number, not 0.
    fn number(&self) -> u32 {
        (self.round as u32).max(1)
    }

    /// Why it ends the record of these counts.
    fn reason(&self, counts: &Counts, limits: Limits) -> Option<EndReason> {
        let forced = self.is_of_all.then_some(EndReason::ForcedEnd);
        limits.reason(counts, self.time).or(forced).filter(|_| counts.sweep != self.number())
    }
}

/// A monitor.
struct Monitor {
    flows: Table,
    hand: Hand,
    limits: Limits,
    exporter: Exporter,
    swept: Nanoseconds,
    /// The sweep under way, and what a batch does of it at most.
    sweep: Option<Sweep>,
    step: Most,
    /// The round of the export on request that is under way.
    export: Option<u64>,
    /// The records that ended with the packets of this batch.
    pending: Vec<Record>,
    backlog: Backlog,
    /// Records that are written next; empty, reused.
    next: Vec<Record>,
    failure: Option<NfError>,
    packets: u64,
    bytes: u64,
    exported: u64,
    table_full: u64,
}

impl NetworkFunction for Monitor {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.sweep(context.clock());
        let flows: ArrayVec<(usize, FlowId), BATCH> =
            lanes.into_iter().map(|lane| (lane, flow_of(batch, lane))).collect();
        let found = self.flows.find(flows.iter().map(|(_, flow)| *flow));
        let sweep = self.sweep.as_ref().map_or(0, Sweep::number);
        for (n, (lane, flow)) in flows.into_iter().enumerate() {
            let is_tcp = batch.field(lane, field::NW_PROTO) == u64::from(ip_proto::TCP);
            let flags = if is_tcp { batch.field(lane, field::TCP_FLAGS) as u16 } else { 0 };
            let (time, (packets, bytes)) = (batch.meta.timestamp[lane], batch.on_wire(lane));
            let packet = Counts { sweep, ..Counts::of_packets(time, (packets, bytes), flags) };
            self.packets += packets;
            self.bytes += bytes;
            let packets = self.add(found.slot(n), flow, packet);
            context.explain(lane, || format!("packet {packets} of its flow since the last export"));
        }
        self.write_pending();
    }

    /// A super-packet in a tunnel is as good as its segments: they are counted.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        writer.expect(self.flows.len());
        self.flows.iter().try_for_each(|(flow, counts)| match flow.subject {
            Subject::Ip(tuple) => writer.record([tuple], &(flow, counts)),
            Subject::Other(_) => writer.record([], &(flow, counts)),
        })
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let flows: Vec<(FlowId, Counts)> = reader.records()?;
        let imported = flows.len();
        let room = self.limits.flows.saturating_sub(self.flows.len());
        self.flows.reserve(imported.max(reader.expected()).min(room));
        for (flow, counts) in flows {
            self.add(None, flow, counts);
        }
        Ok(imported)
    }

    fn handed_over(&mut self) {
        // If they were exported here too, their packets would be counted twice.
        self.flows.clear();
        (self.sweep, self.export) = (None, None);
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
        self.export_all();
        self.end_export()
    }

    /// All flows end now; their records are written over some batches.
    fn flush_some(&mut self) -> Result<bool, NfError> {
        let round = self.export.unwrap_or_else(|| self.begin_sweep(self.swept, true));
        self.export = Some(round);
        self.go_on_sweeping(self.step);
        self.write_backlog();
        if self.sweeps_all() || self.backlog.has_any(round) {
            return Ok(false);
        }
        self.end_export().map(|()| true)
    }
}

impl Monitor {
    fn new(limits: Limits, exporter: Exporter) -> Self {
        Self {
            flows: FlowTable::new(limits.flows),
            hand: Hand::default(),
            limits,
            exporter,
            swept: Nanoseconds::default(),
            sweep: None,
            step: STEP,
            export: None,
            pending: Vec::new(),
            backlog: Backlog::default(),
            next: Vec::new(),
            failure: None,
            packets: 0,
            bytes: 0,
            exported: 0,
            table_full: 0,
        }
    }

    /// Goes on with other limits, and the names and the rotation of `new`.
    fn renew(&mut self, limits: Limits, new: Exporter) {
        self.limits = limits;
        self.flows.limit(limits.flows);
        let joined = self.exporter.labels().joined(new.labels());
        if joined.is_none() {
            // The numbers of flows have other meanings now: their records end with the old ones.
            self.export_all();
        }
        self.exporter.renew(new, joined);
    }

    /// Adds to the counts of `flow`, which an earlier lookup found in `slot`, if at all; returns
    /// the flow's packets since its last export.
    fn add(&mut self, slot: Option<Slot>, flow: FlowId, counts: Counts) -> u64 {
        let Some(slot) = self.flows.slot_now(slot, &flow) else { return self.begin(flow, counts) };
        let Some((_, known)) = self.flows.at(slot) else { return counts.packets };
        let before = *known;
        let is_over = self.end_swept(slot, flow, before);
        let reason = self.limits.reason(&before, counts.first).filter(|_| !is_over);
        self.pending.extend(reason.map(|reason| Record { flow, counts: before, reason }));
        let Some((_, known)) = self.flows.at_mut(slot) else { return counts.packets };
        if is_over || reason.is_some() {
            *known = counts;
        } else {
            known.add(&counts);
        }
        known.packets
    }

    /// Adds a flow that the table does not hold.
    fn begin(&mut self, flow: FlowId, counts: Counts) -> u64 {
        self.table_full += u64::from(self.flows.len() >= self.limits.flows);
        for _ in 0..MOST_EVICTED {
            if self.flows.len() >= self.limits.flows {
                self.evict();
            }
        }
        if self.flows.insert(flow, counts).is_err() {
            self.table_full += 1;
            self.pending.push(Record { flow, counts, reason: EndReason::LackOfResources });
        }
        counts.packets
    }

    /// Exports and removes a flow that was not used for long.
    fn evict(&mut self) {
        let slot = self.flows.least(0, &mut self.hand, |_, counts| Some(counts.last));
        let Some(slot) = slot else { return };
        let known = self.flows.at(slot).copied();
        if let Some((flow, counts)) = known
            && !self.end_swept(slot, flow, counts)
        {
            self.pending.push(Record { flow, counts, reason: EndReason::LackOfResources });
        }
        self.flows.remove_at(slot);
    }

    /// Ends the record of a flow that the sweep under way has not come to, if the sweep would end it;
    /// returns whether it did.
    fn end_swept(&mut self, slot: Slot, flow: FlowId, counts: Counts) -> bool {
        let Some(sweep) = &self.sweep else { return false };
        let is_ahead = self.flows.is_ahead(&sweep.walk, slot);
        let reason = sweep.reason(&counts, self.limits).filter(|_| is_ahead);
        let record = reason.map(|reason| Record { flow, counts, reason });
        let round = sweep.round;
        record.map(|record| self.backlog.add(round, record)).is_some()
    }

    /// Periodically exports flows that are idle, or active for long, some with each batch.
    fn sweep(&mut self, now: Nanoseconds) {
        let Limits { idle, active, .. } = self.limits;
        // The difference, since the clock may be set back.
        let is_due = now.0.abs_diff(self.swept.0) >= idle.0.min(active.0) / 4;
        if is_due && !self.sweeps_all() {
            // Time passes faster than packets: little waits for the rest of the sweep before.
            self.go_on_sweeping(Most::ALL);
            self.swept = now;
            self.begin_sweep(now, false);
        }
        self.go_on_sweeping(self.step);
    }

    /// Begins a sweep, which takes the place of one under way; returns the round of its records.
    fn begin_sweep(&mut self, time: Nanoseconds, is_of_all: bool) -> u64 {
        let (walk, round) = (self.flows.walk(0), self.backlog.begin());
        self.sweep = Some(Sweep { time, walk, round, is_of_all });
        round
    }

    /// Whether a sweep of all flows is under way.
    fn sweeps_all(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| sweep.is_of_all)
    }

    /// Goes on with the sweep under way, if there is one.
    fn go_on_sweeping(&mut self, most: Most) {
        let Some(mut sweep) = self.sweep.take() else { return };
        let Self { flows, backlog, limits, .. } = self;
        let mut walk = sweep.walk;
        let is_complete = flows.extract_some(
            &mut walk,
            most,
            |_, counts| sweep.reason(counts, *limits),
            |flow, counts, reason| backlog.add(sweep.round, Record { flow, counts, reason }),
        );
        if !is_complete {
            sweep.walk = walk;
            self.sweep = Some(sweep);
        }
    }

    /// Exports all flows.
    fn export_all(&mut self) {
        self.go_on_sweeping(Most::ALL);
        let pending = &mut self.pending;
        let gone = |flow, counts, reason| pending.push(Record { flow, counts, reason });
        self.flows.extract_if(|_, _| Some(EndReason::ForcedEnd), gone);
        self.write_pending();
        while !self.backlog.is_empty() {
            self.write_backlog();
        }
    }

    /// Completes an export: its files are there even if there was no record.
    fn end_export(&mut self) -> Result<(), NfError> {
        self.export = None;
        let failure = self.failure.take();
        self.exporter.flush()?;
        failure.map_or(Ok(()), Err)
    }

    /// Writes the records that have ended, as far as it is their turn.
    fn write_pending(&mut self) {
        // So that the report does not depend on the order of a hash table.
        self.pending.sort_by_key(|r| (r.counts.first, r.flow));
        let mut pending = std::mem::take(&mut self.pending);
        if self.sweep.is_none() && self.backlog.is_empty() {
            self.write(&pending);
        } else {
            let round = self.backlog.begin();
            pending.iter().for_each(|record| self.backlog.add(round, *record));
            self.write_backlog();
        }
        pending.clear();
        self.pending = pending;
    }

    /// Writes the next records of the backlog: not those that follow records of the sweep under way.
    fn write_backlog(&mut self) {
        let until = self.sweep.as_ref().map_or(u64::MAX, |sweep| sweep.round);
        let mut next = std::mem::take(&mut self.next);
        self.backlog.take(until, WRITTEN, &mut next);
        self.write(&next);
        next.clear();
        self.next = next;
    }

    fn write(&mut self, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        match self.exporter.write(records) {
            Ok(()) => self.exported += records.len() as u64,
            Err(failure) => drop(self.failure.get_or_insert(failure)),
        }
    }
}

/// The identity of the flow of the packet in `lane`.
fn flow_of(batch: &Batch, lane: usize) -> FlowId {
    let ether_type = || batch.field(lane, field::DL_TYPE) as u16;
    FlowId {
        subject: FiveTuple::of(batch, lane)
            .map_or_else(|| Subject::Other(ether_type()), Subject::Ip),
        in_port: batch.meta.in_port[lane].0,
        packet_type: batch.meta.packet_type[lane].0,
    }
}

#[cfg(test)]
mod tests;
