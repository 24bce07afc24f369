//! Where the connections of a batch lie: found together, so that no packet waits for memory alone.

use thalweg_cpu::prefetch;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::Slot;
use thalweg_packet::{BATCH, Batch, Lanes};

use super::ahead::Ahead;
use super::flow::Flow;
use super::flows::Flows;
use super::recent::{Located, Tuple};
use super::stream::Stream;

/// The stream that a packet from the lower or from the higher endpoint goes on with; prefetches what a
/// [quiet](super::quiet) segment needs.
#[inline]
fn stream_of(flow: &Flow, from_low: bool) -> Option<&Stream> {
    let tracked = flow.tracked.as_deref()?;
    let stream = &tracked.streams[usize::from(!flow.is_to_server(from_low))];
    prefetch::whole(std::slice::from_ref(stream), 0);
    prefetch::whole(std::slice::from_ref(&tracked.ends), 0);
    prefetch::read(std::slice::from_ref(&tracked.calm), 0);
    Some(stream)
}

impl Ahead {
    /// Looks up the connections, and prefetches them and their streams.
    #[inline(always)]
    pub(super) fn locate(&mut self, flows: &mut Flows, batch: &Batch) {
        flows.settle();
        let tuple = Tuple::of(batch);
        let (mut remembered, mut from_lows) = (0, 0);
        for lane in self.segmented {
            let Some(Located { slot, from_low }) = flows.recent.get(tuple(lane)) else { continue };
            flows.ask_for(slot);
            self.slots[lane] = slot.0;
            remembered |= 1 << lane;
            from_lows |= u32::from(from_low) << lane;
        }
        let remembered = Lanes(remembered);
        (self.known, self.tracked, self.from_low) = (remembered, remembered, Lanes(from_lows));
        let rest = self.connected.without(remembered);
        if !rest.is_empty() {
            self.look_up(flows, batch, rest);
        }
        let mut streams = [None; BATCH];
        for lane in self.segmented.and(self.known) {
            let (slot, from_low) = (Slot(self.slots[lane]), self.from_low.contains(lane));
            let flow = flows.in_slot(slot);
            debug_assert!(
                !remembered.contains(lane) || flows.is_in(slot, from_low, tuple(lane)),
                "another connection is in its slot"
            );
            streams[lane] = flow.and_then(|flow| stream_of(flow, from_low));
        }
        streams.iter().flatten().for_each(|stream| stream.ask_for());
    }

    /// Looks up the connections of the packets of some lanes, which are not remembered.
    #[inline(never)]
    fn look_up(&mut self, flows: &mut Flows, batch: &Batch, lanes: Lanes) {
        let mut ids = [[0; 5]; BATCH];
        let (tracked, from_low) = Conversation::in_lanes(batch, lanes, &mut ids);
        let found = flows.find(&ids[..tracked.count()]);
        let tuple = Tuple::of(batch);
        for (n, lane) in tracked.into_iter().enumerate() {
            let Some(slot) = found.slot(n) else { continue };
            self.slots[lane] = slot.0;
            self.known.insert(lane);
            if self.segmented.contains(lane) {
                let from_low = from_low.contains(lane);
                flows.recent.put(tuple(lane), Located { slot, from_low });
            }
        }
        (self.tracked, self.from_low) = (self.tracked.or(tracked), self.from_low.or(from_low));
    }
}
