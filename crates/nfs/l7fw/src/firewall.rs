//! The firewall: from packets to flows, and from verdicts to what happens to packets.

use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::wire::tcp_flags::{FIN, RST};
use thalweg_packet::{BATCH, Batch, DropReason, FiveTuple, Lanes, Layer, Nanoseconds};

use super::application::{Action, Undecided};
use super::flows::{Flow, FlowId, Flows};
use super::hold::{Discarded, Hold};
use super::inspect::{Inspector, Packet};
use super::labels;
use super::record::Record;
use super::report::line;
use super::stream::Arrival;
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::output::LineFile;
use thalweg_nf::toolkit::view::vlan;
use thalweg_nf::{Context, NetworkFunction, NfError, Units};

/// A firewall.
pub(super) struct Firewall {
    inspector: Inspector,
    flows: Flows,
    /// Whether packets of undecided flows are held.
    holds: bool,
    hold: Hold,
    /// The file for the flows.
    file: LineFile,
    /// A packet without its labels; reused.
    frame: Vec<u8>,
    failure: Option<NfError>,
    blocked: u64,
    /// Flows that exceeded the bounds of what is held.
    exceeded: u64,
}

impl NetworkFunction for Firewall {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.hold.begin_batch();
        self.flows.table.settle();
        for lane in lanes {
            self.packet(batch, lane, context);
        }
        if let Some(lane) = lanes.into_iter().next() {
            self.hold.leave(batch, lane, context);
        }
        self.write();
    }

    /// Those of UDP are several datagrams, each a message of its own.
    fn takes_whole(&self, batch: &Batch, lane: usize) -> bool {
        batch.meta.inner_len[lane] == 0 && batch.headers(lane).has_transport(TCP)
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        writer.expect(self.flows.table.len());
        self.export(self.flows.table.iter(), writer)
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<Record> = reader.records()?;
        let mut flows = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().enumerate() {
            let flow = self.inspector.policy.flow(record);
            flows.push(flow.map_err(|what| StateError::Record { index, what })?);
        }
        let imported = flows.len();
        for (id, flow) in flows {
            self.make_room(&id);
            if let Some(former) = self.flows.table.remove(&id) {
                self.hold.release(&id);
                self.inspector.end(id, former);
            }
            self.flows.evicted += u64::from(self.flows.table.insert(id, flow).is_err());
        }
        Ok(imported)
    }

    fn units_of(&self, batch: &Batch, lanes: Lanes, units: Units) -> [u16; BATCH] {
        let (mut of_lanes, mut frame) = ([0; BATCH], Vec::new());
        for lane in lanes {
            let inside = || labels::take_off(batch, lane, &mut frame).map(|inner| inner.tuple);
            let tuple = FiveTuple::of(batch, lane).or_else(inside);
            let bucket = tuple.map_or(0, |tuple| units.steering().of_flow(&tuple));
            of_lanes[lane] = units.of_bucket(bucket);
        }
        of_lanes
    }

    fn begin_move(&mut self, units: Units) -> bool {
        self.flows.table.index_units(units, |(_, ends), steering| ends.bucket(steering))
    }

    /// What nDPI has learned of an undecided flow, the start of a connection that may name more
    /// hosts, and held packets do not move.
    fn is_ready(&self, unit: u16) -> bool {
        self.flows.table.unit(unit).all(|(id, flow)| {
            flow.inspection.is_none() && flow.watch.is_none() && !self.hold.has(id)
        })
    }

    fn export_unit(&self, unit: u16, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.export(self.flows.table.unit(unit), writer)
    }

    fn forget_unit(&mut self, unit: u16) {
        let Self { flows, inspector, hold, .. } = self;
        flows.table.take_unit(unit, |id, mut flow| {
            hold.release(&id);
            inspector.unwatch(&mut flow);
        });
    }

    fn end_move(&mut self) {
        self.flows.table.end_units();
    }

    fn state_version(&self) -> u16 {
        2
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let figures = &self.inspector.figures;
        vec![
            ("flows", self.flows.table.len() as u64),
            ("flows_evicted", self.flows.evicted),
            ("flows_decided", figures.decided),
            ("flows_guessed", figures.guessed),
            ("flows_unknown", figures.unknown),
            ("flows_hold_exceeded", self.exceeded),
            ("packets_inspected", figures.inspected),
            ("packets_blocked", self.blocked),
            ("packets_held", self.hold.held),
            ("packets_resumed", self.hold.resumed),
            ("packets_holding", self.hold.len() as u64),
            ("segments_bad_checksum", figures.damaged),
            ("segments_contradicting", figures.contradicting),
            ("segments_beyond", figures.beyond),
            ("stream_gaps", figures.lost),
        ]
    }

    /// Reports undecided flows with what is known about them so far.
    fn flush(&mut self) -> Result<(), NfError> {
        let inspector = &mut self.inspector;
        if !inspector.tells {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut inspector.lines);
        for (id, flow) in self.flows.sorted() {
            let Some(inspection) = &flow.inspection else { continue };
            let so_far = Flow {
                packets: flow.packets,
                dropped: flow.dropped,
                last: flow.last,
                seen: inspector.library.guess(inspection),
                hosts: flow.all_hosts(Some(inspection)),
                action: flow.action,
                rule: flow.rule,
                ..Flow::new(flow.tuple, flow.first)
            };
            line(&inspector.policy.names, id.0, &so_far, true, &mut lines);
        }
        self.file.write(&lines)?;
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Firewall {
    pub(super) fn new(inspector: Inspector, flows: Flows, hold: Hold, file: LineFile) -> Self {
        let holds = inspector.policy.undecided == Undecided::Hold;
        let (frame, failure) = (Vec::new(), None);
        Self { inspector, flows, holds, hold, file, frame, failure, blocked: 0, exceeded: 0 }
    }

    /// Writes the flows that are decided, in a fixed order.
    fn export<'a>(
        &self,
        flows: impl Iterator<Item = (&'a FlowId, &'a Flow)>,
        writer: &mut StateWriter<'_>,
    ) -> Result<(), StateError> {
        let mut known: Vec<_> = flows.filter(|(_, flow)| flow.inspection.is_none()).collect();
        known.sort_unstable_by_key(|(id, _)| **id);
        let record = |(id, flow): (&FlowId, &Flow)| self.inspector.policy.record(id, flow);
        known.into_iter().try_for_each(|known| writer.record([known.1.tuple], &record(known)))
    }

    fn packet(&mut self, batch: &Batch, lane: usize, context: &mut Context<'_>) {
        let mut frame = std::mem::take(&mut self.frame);
        let vlan = vlan(batch, lane);
        if let Some(tuple) = FiveTuple::of(batch, lane) {
            let is_super = batch.is_super(lane);
            let packet = Packet::new(batch.bytes(lane), batch.headers(lane), &tuple, is_super);
            self.in_flow(vlan, tuple, &packet, (batch, lane), context);
        } else if let Some(inner) = labels::take_off(batch, lane, &mut frame) {
            let packet = Packet::new(inner.frame, &inner.headers, &inner.tuple, false);
            self.in_flow(vlan, inner.tuple, &packet, (batch, lane), context);
        }
        self.frame = frame;
    }

    /// Processes a packet of `tuple`, which is that in `lane` or inside it.
    fn in_flow(
        &mut self,
        vlan: u16,
        tuple: FiveTuple,
        packet: &Packet<'_>,
        (batch, lane): (&Batch, usize),
        context: &mut Context<'_>,
    ) {
        if packet.headers.layer < Layer::Network || packet.headers.fragment {
            return;
        }
        let now = batch.meta.timestamp[lane];
        let (conversation, from_low) = Conversation::of(&tuple);
        let id = (vlan, conversation);
        self.end_holding(now);
        self.make_room(&id);
        let inspector = &mut self.inspector;
        let limits = self.flows.limits;
        let slot = self.flows.slot_or_begin(id, || inspector.begin(tuple, now));
        let Some((_, flow)) = slot.ok().and_then(|slot| self.flows.table.at_mut(slot)) else {
            // What is not inspected does not pass.
            return context.drop(lane, DropReason::StateFull);
        };
        if now.since(flow.last) >= limits.idle || inspector.reopens(flow, packet) {
            self.hold.release(&id);
            let opened = flow.opened;
            inspector.unwatch(flow);
            *flow = Flow { opened, ..inspector.begin(tuple, now) };
        }
        flow.last = flow.last.follow(now);
        let (on_wire, _) = batch.on_wire(lane);
        flow.packets += on_wire;
        let arrival = inspector.packet(vlan, flow, usize::from(from_low), packet);
        let names = &inspector.policy.names;
        context
            .explain(lane, || format!("{}: {}", flow.action.name(), names.application(flow.seen)));
        if matches!(arrival, Some(Arrival::Contradicting | Arrival::NoRoom)) {
            flow.dropped += on_wire;
            context.explain(lane, || "contradicts or exceeds what was inspected".to_owned());
            return context.drop(lane, DropReason::Malformed);
        }
        let repeats = arrival == Some(Arrival::Repeated);
        if flow.action == Action::Allow && self.holds {
            self.pass_in_order(id, packet, repeats, now, (batch, lane), context);
        } else if flow.action == Action::Block {
            self.block(&id, on_wire);
            context.drop(lane, DropReason::Application);
        }
    }

    /// Counts a packet of a blocked flow, which stands for `on_wire`, and drops those that were held.
    fn block(&mut self, id: &FlowId, on_wire: u64) {
        let held = if self.holds { self.hold.discard(id) } else { Discarded::default() };
        self.blocked += 1 + held.packets;
        if let Some(flow) = self.flows.table.get_mut(None, id) {
            flow.dropped += on_wire + held.on_wire;
        }
    }

    /// Holds a packet of an undecided flow; lets others leave after those that were held.
    fn pass_in_order(
        &mut self,
        id: FlowId,
        packet: &Packet<'_>,
        repeats: bool,
        now: Nanoseconds,
        (batch, lane): (&Batch, usize),
        context: &mut Context<'_>,
    ) {
        let Some(flow) = self.flows.table.get_mut(None, &id) else { return };
        let must_wait = packet.segment.is_none_or(|segment| {
            !segment.payload.is_empty() || segment.flags & (FIN | RST) != 0 && self.hold.has(&id)
        });
        if flow.holds && must_wait {
            if repeats || self.hold.add(id, now, batch, lane) {
                context.explain(lane, || "held until the verdict".to_owned());
                return context.drop(lane, DropReason::Consumed);
            }
            self.exceed(&id);
        } else if flow.holds {
            return;
        }
        if self.flows.table.get(&id).is_some_and(|flow| flow.action == Action::Block) {
            self.block(&id, batch.on_wire(lane).0);
            context.drop(lane, DropReason::Application);
        } else if self.hold.precedes(&id) {
            let follows = self.hold.follow(id, now, (batch, lane), context);
            let reason = if follows { DropReason::Consumed } else { DropReason::PoolExhausted };
            context.drop(lane, reason);
        }
    }

    /// Ends the holding of flows that were held for too long.
    fn end_holding(&mut self, now: Nanoseconds) {
        while let Some(id) = self.hold.expired(now) {
            self.exceed(&id);
        }
    }

    /// Ends the holding of a flow that exceeds a bound.
    fn exceed(&mut self, id: &FlowId) {
        self.exceeded += 1;
        let action = self.inspector.policy.hold_exceeded;
        let held = match action {
            Action::Allow => {
                self.hold.release(id);
                Discarded::default()
            }
            Action::Block => self.hold.discard(id),
        };
        self.blocked += held.packets;
        if let Some(flow) = self.flows.table.get_mut(None, id) {
            flow.dropped += held.on_wire;
            (flow.action, flow.holds) = (action, false);
        }
    }

    /// Makes room for a flow; reports one that is evicted undecided.
    fn make_room(&mut self, id: &FlowId) {
        if let Some((id, flow)) = self.flows.make_room(id) {
            self.hold.release(&id);
            self.inspector.end(id, flow);
        }
    }

    fn write(&mut self) {
        /// The bytes of lines that are written at once.
        const CHUNK: usize = 1 << 16;
        let lines = &mut self.inspector.lines;
        if lines.len() < CHUNK {
            return;
        }
        let failure = self.file.write(lines).err();
        self.failure = self.failure.take().or(failure);
        lines.clear();
    }
}
