//! Packets that are held until their flow has a verdict, in the order of their arrival.

use std::collections::{HashMap, HashSet, VecDeque};

use thalweg_nf::Context;
use thalweg_packet::{Batch, Cut, Nanoseconds, PacketType, PortIndex};

use super::flows::FlowId;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most packets of a flow.
    pub(super) packets: usize,
    /// The most bytes in all.
    pub(super) bytes: usize,
    /// The longest time.
    pub(super) time: Nanoseconds,
}

/// A copy of a packet.
#[derive(Debug)]
struct Packet {
    bytes: Box<[u8]>,
    wire_len: u32,
    packet_type: PacketType,
    in_port: PortIndex,
    out_port: PortIndex,
    received_at: u64,
    cut: Cut,
}

/// The packets of a flow.
#[derive(Debug)]
struct Queue {
    packets: VecDeque<Packet>,
    since: Nanoseconds,
    leaves: bool,
}

/// The packets that are held.
#[derive(Debug)]
pub(super) struct Hold {
    limits: Limits,
    queues: HashMap<FlowId, Queue>,
    /// When queues have been held for too long, in the order of their first packets.
    due: VecDeque<(Nanoseconds, FlowId)>,
    /// The queues that leave.
    leaving: VecDeque<FlowId>,
    /// The flows whose packets left during the current batch. They are forwarded after it, so
    /// later packets must leave with them.
    left: HashSet<FlowId>,
    bytes: usize,
    /// Packets held so far, and those of them that left.
    pub(super) held: u64,
    pub(super) resumed: u64,
}

impl Hold {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            queues: HashMap::new(),
            due: VecDeque::new(),
            leaving: VecDeque::new(),
            left: HashSet::new(),
            bytes: 0,
            held: 0,
            resumed: 0,
        }
    }

    /// The number of packets that are held.
    pub(super) fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.packets.len()).sum()
    }

    pub(super) fn begin_batch(&mut self) {
        self.left.clear();
    }

    /// Whether packets of a flow are held.
    pub(super) fn has(&self, id: &FlowId) -> bool {
        self.queues.contains_key(id)
    }

    /// Whether a packet would overtake earlier ones of its flow if it were forwarded now.
    pub(super) fn precedes(&self, id: &FlowId) -> bool {
        self.queues.contains_key(id) || self.left.contains(id)
    }

    /// Holds the packet of `lane`; returns `false` without room for it.
    pub(super) fn add(&mut self, id: FlowId, now: Nanoseconds, batch: &Batch, lane: usize) -> bool {
        let bytes = batch.bytes(lane);
        if self.bytes + bytes.len() > self.limits.bytes {
            return false;
        }
        if self.due.len() > 2 * self.queues.len() + 1024 {
            // Most of these have left; the time may stand still.
            self.due.retain(|(_, id)| self.queues.contains_key(id));
        }
        let due = &mut self.due;
        let until = now.plus(self.limits.time);
        let queue = self.queues.entry(id).or_insert_with(|| {
            due.push_back((until, id));
            Queue { packets: VecDeque::new(), since: now, leaves: false }
        });
        if queue.packets.len() >= self.limits.packets {
            return false;
        }
        queue.packets.push_back(Packet::new(batch, lane));
        self.bytes += bytes.len();
        self.held += 1;
        true
    }

    /// The next flow whose packets have been held for too long.
    pub(super) fn expired(&mut self, now: Nanoseconds) -> Option<FlowId> {
        let time = self.limits.time;
        // A clock that was set back would make them wait as long again.
        let latest = now.plus(time).plus(Nanoseconds::REORDERING);
        let is_over = |until: Nanoseconds| until <= now || until > latest;
        while let Some((until, id)) = self.due.front().copied().filter(|(until, _)| is_over(*until))
        {
            self.due.pop_front();
            let is_it = |queue: &Queue| queue.since.plus(time) == until && !queue.leaves;
            if self.queues.get(&id).is_some_and(is_it) {
                return Some(id);
            }
        }
        None
    }

    /// Lets the packets of a flow leave at the next [`leave`](Self::leave).
    pub(super) fn release(&mut self, id: &FlowId) {
        if let Some(queue) = self.queues.get_mut(id).filter(|queue| !queue.leaves) {
            queue.leaves = true;
            self.leaving.push_back(*id);
        }
    }

    /// Drops the packets of a flow; returns how many.
    pub(super) fn discard(&mut self, id: &FlowId) -> u64 {
        let Some(queue) = self.queues.remove(id) else { return 0 };
        self.bytes -= queue.packets.iter().map(|packet| packet.bytes.len()).sum::<usize>();
        queue.packets.len() as u64
    }

    /// Lets the packet of `lane` leave after those of its flow; returns `false` without room or a
    /// frame for it.
    pub(super) fn follow(
        &mut self,
        id: FlowId,
        now: Nanoseconds,
        (batch, lane): (&Batch, usize),
        context: &mut Context<'_>,
    ) -> bool {
        self.release(&id);
        self.leave(batch, lane, context);
        if self.has(&id) {
            return self.add(id, now, batch, lane);
        }
        let emitted = Packet::new(batch, lane).emit(batch, lane, context);
        self.held += u64::from(emitted);
        self.resumed += u64::from(emitted);
        emitted
    }

    /// Sends the packets that leave, as far as there are frames.
    pub(super) fn leave(&mut self, batch: &Batch, lane: usize, context: &mut Context<'_>) {
        while let Some(id) = self.leaving.front() {
            if let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.leaves) {
                while let Some(packet) = queue.packets.front() {
                    if !packet.emit(batch, lane, context) {
                        return;
                    }
                    self.bytes -= packet.bytes.len();
                    self.resumed += 1;
                    queue.packets.pop_front();
                }
                self.queues.remove(id);
                self.left.insert(*id);
            }
            self.leaving.pop_front();
        }
    }
}

impl Packet {
    /// A copy of the packet in `lane`.
    fn new(batch: &Batch, lane: usize) -> Self {
        let meta = &batch.meta;
        Self {
            bytes: batch.bytes(lane).into(),
            wire_len: meta.wire_len[lane],
            packet_type: meta.packet_type[lane],
            in_port: meta.in_port[lane],
            out_port: meta.out_port[lane],
            received_at: meta.received_at[lane],
            cut: meta.cut[lane],
        }
    }

    /// Returns `false` without a frame for it.
    fn emit(&self, batch: &Batch, lane: usize, context: &mut Context<'_>) -> bool {
        let Some(made) = context.emit(batch, lane, &self.bytes) else { return false };
        let (meta, new) = (&mut context.emitted().batch_of(made).meta, made.lane);
        meta.wire_len[new] = self.wire_len;
        meta.packet_type[new] = self.packet_type;
        meta.in_port[new] = self.in_port;
        meta.out_port[new] = self.out_port;
        meta.received_at[new] = self.received_at;
        meta.cut[new] = self.cut;
        true
    }
}
