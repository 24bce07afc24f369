//! Packets that are held until their flow has a verdict, in the order of their arrival.

use std::collections::{BTreeMap, HashSet, VecDeque};

use thalweg_nf::Context;
use thalweg_nf::toolkit::flow_table::FlowTable;
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
    segment_size: u16,
    /// The packets on the wire that it stands for.
    on_wire: u64,
}

/// Packets that are no longer held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Discarded {
    pub(super) packets: u64,
    /// The packets on the wire that they stand for.
    pub(super) on_wire: u64,
}

/// The packets of a flow.
#[derive(Debug)]
struct Queue {
    packets: VecDeque<Packet>,
    due: Due,
    leaves: bool,
}

/// When a queue has been held for too long, and its number among all queues so far.
type Due = (Nanoseconds, u64);

/// The packets that are held.
#[derive(Debug)]
pub(super) struct Hold {
    limits: Limits,
    queues: FlowTable<FlowId, Queue, 5>,
    /// The queues that do not leave.
    due: BTreeMap<Due, FlowId>,
    /// The queues that leave.
    leaving: VecDeque<FlowId>,
    /// The flows whose packets left during the current batch. They are forwarded after it, so
    /// later packets must leave with them.
    left: HashSet<FlowId>,
    packets: usize,
    bytes: usize,
    /// Queues so far.
    begun: u64,
    /// Packets held so far, and those of them that left.
    pub(super) held: u64,
    pub(super) resumed: u64,
}

impl Hold {
    /// Without packets, for up to `flows` flows.
    pub(super) fn new(limits: Limits, flows: usize) -> Self {
        Self {
            limits,
            queues: FlowTable::new(flows),
            due: BTreeMap::new(),
            leaving: VecDeque::new(),
            left: HashSet::new(),
            packets: 0,
            bytes: 0,
            begun: 0,
            held: 0,
            resumed: 0,
        }
    }

    /// The number of packets that are held.
    pub(super) fn len(&self) -> usize {
        self.packets
    }

    pub(super) fn begin_batch(&mut self) {
        self.queues.settle();
        self.left.clear();
    }

    /// Whether packets of a flow are held.
    pub(super) fn has(&self, id: &FlowId) -> bool {
        self.queues.slot(id).is_some()
    }

    /// Whether a packet would overtake earlier ones of its flow if it were forwarded now.
    pub(super) fn precedes(&self, id: &FlowId) -> bool {
        self.has(id) || self.left.contains(id)
    }

    /// Holds the packet of `lane`; returns `false` without room for it.
    pub(super) fn add(&mut self, id: FlowId, now: Nanoseconds, batch: &Batch, lane: usize) -> bool {
        let bytes = batch.bytes(lane);
        if self.bytes + bytes.len() > self.limits.bytes {
            return false;
        }
        if !self.has(&id) && !self.begin(id, now) {
            return false;
        }
        let Some(queue) = self.queues.get_mut(None, &id) else { return false };
        if queue.packets.len() >= self.limits.packets {
            return false;
        }
        queue.packets.push_back(Packet::new(batch, lane));
        self.packets += 1;
        self.bytes += bytes.len();
        self.held += 1;
        true
    }

    /// Begins to hold packets of a flow; returns `false` without a place for it.
    fn begin(&mut self, id: FlowId, now: Nanoseconds) -> bool {
        let due = (now.plus(self.limits.time), self.begun);
        let queue = Queue { packets: VecDeque::new(), due, leaves: false };
        let is_held = self.queues.insert(id, queue).is_ok();
        if is_held {
            self.begun += 1;
            self.due.insert(due, id);
        }
        is_held
    }

    /// The next flow whose packets have been held for too long.
    pub(super) fn expired(&mut self, now: Nanoseconds) -> Option<FlowId> {
        // A clock that was set back would make them wait as long again.
        let latest = now.plus(self.limits.time).plus(Nanoseconds::REORDERING);
        if let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            return Some(first.remove());
        }
        let last = self.due.last_entry().filter(|last| last.key().0 > latest)?;
        Some(last.remove())
    }

    /// Lets the packets of a flow leave at the next [`leave`](Self::leave).
    pub(super) fn release(&mut self, id: &FlowId) {
        if let Some(queue) = self.queues.get_mut(None, id).filter(|queue| !queue.leaves) {
            queue.leaves = true;
            self.due.remove(&queue.due);
            self.leaving.push_back(*id);
        }
    }

    /// Drops the packets of a flow; returns how many.
    pub(super) fn discard(&mut self, id: &FlowId) -> Discarded {
        let Some(queue) = self.queues.remove(id) else { return Discarded::default() };
        self.due.remove(&queue.due);
        self.packets -= queue.packets.len();
        self.bytes -= queue.packets.iter().map(|packet| packet.bytes.len()).sum::<usize>();
        let on_wire = queue.packets.iter().map(|packet| packet.on_wire).sum();
        Discarded { packets: queue.packets.len() as u64, on_wire }
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
            if let Some(queue) = self.queues.get_mut(None, id).filter(|queue| queue.leaves) {
                while let Some(packet) = queue.packets.front() {
                    if !packet.emit(batch, lane, context) {
                        return;
                    }
                    self.packets -= 1;
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
            segment_size: meta.segment_size[lane],
            on_wire: batch.on_wire(lane).0,
        }
    }

    /// Returns `false` without a frame for it.
    fn emit(&self, batch: &Batch, lane: usize, context: &mut Context<'_>) -> bool {
        let made = context.emit_again(batch, lane, &self.bytes, self.segment_size);
        let Some(made) = made else { return false };
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use thalweg_nf::Emitted;
    use thalweg_nf::toolkit::conversation::Conversation;
    use thalweg_packet::{FiveTuple, Pool};

    use super::*;

    fn flow(number: u8) -> FlowId {
        let (src, dst) = ([10, 0, 0, number].into(), [10, 0, 0, 0].into());
        let tuple = FiveTuple { src, dst, protocol: 17, src_port: 1, dst_port: 2 };
        (0, Conversation::of(&tuple).0)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8),
        Release(u8),
        Discard(u8),
        Expire,
        Leave,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1u8..40).prop_map(Step::Add),
            2 => (1u8..40).prop_map(Step::Release),
            2 => (1u8..40).prop_map(Step::Discard),
            1 => Just(Step::Expire),
            1 => Just(Step::Leave),
        ]
    }

    proptest! {
        /// What is due is exactly what waits, however long the time stands still: nothing has to be
        /// tidied.
        #[test]
        fn the_order_holds_the_flows_that_wait(
            steps in proptest::collection::vec((step(), 0u64..3), 0..300),
        ) {
            let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
            let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
            let lane = batch.push_bytes(&[0; 60]).unwrap();
            let time = Nanoseconds(20);
            let mut hold = Hold::new(Limits { packets: 4, bytes: 100 * 60, time }, 1000);
            let (mut now, mut gone) = (Nanoseconds(1000), 0);
            for (step, later) in steps {
                now = now.plus(Nanoseconds(later));
                match step {
                    Step::Add(number) => {
                        hold.add(flow(number), now, &batch, lane);
                    }
                    Step::Release(number) => hold.release(&flow(number)),
                    Step::Discard(number) => gone += hold.discard(&flow(number)).packets,
                    Step::Expire => {
                        while let Some(id) = hold.expired(now) {
                            prop_assert!(hold.queues.get(&id).unwrap().due.0 <= now);
                            hold.release(&id);
                        }
                        prop_assert!(hold.due.keys().all(|due| due.0 > now));
                    }
                    Step::Leave => {
                        hold.leave(&batch, lane, &mut Context::new(now, &mut emitted, None));
                        emitted.hand_over(|made| made.release(thalweg_packet::Lanes::ALL));
                    }
                }
                let waiting = hold.queues.iter().filter(|(_, queue)| !queue.leaves);
                prop_assert_eq!(hold.due.len(), waiting.count());
                let queues = hold.queues.iter().map(|(_, queue)| queue.packets.len());
                prop_assert_eq!(hold.len(), queues.sum::<usize>());
                prop_assert_eq!(hold.bytes, 60 * hold.len());
                prop_assert_eq!(hold.held, hold.resumed + gone + hold.len() as u64);
            }
        }
    }
}
