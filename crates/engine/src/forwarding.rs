//! Packet forwarding: puts each packet into the queue of its next NF or output.
//!
//! A queue is a set of lanes: packets stay in their lanes of the batch.

use thalweg_chain::{Next, NfIndex, Routing, Stage};
use thalweg_packet::{Batch, Lanes, PortIndex};

/// The packets of one batch that wait, by NF and by output.
pub(crate) struct Queues {
    nfs: Vec<Lanes>,
    outputs: Vec<Lanes>,
}

/// Packets that go no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Packets without a route, or without a chosen output.
    pub(crate) nowhere: Lanes,
    /// Packets whose route is 'drop'.
    pub(crate) dropped: Lanes,
}

impl Queues {
    pub(crate) fn new(routing: &Routing) -> Self {
        Self { nfs: vec![Lanes::NONE; routing.nfs], outputs: vec![Lanes::NONE; routing.outputs] }
    }

    /// Looks up the next step of each packet of `lanes`, which come from an NF or from the
    /// ingress, and queues it; returns the rest.
    pub(crate) fn forward(
        &mut self,
        routing: &Routing,
        batch: &Batch,
        lanes: Lanes,
        behind: Option<NfIndex>,
    ) -> Lost {
        let mut lost = Lost::default();
        let Some(first) = lanes.into_iter().next() else { return lost };
        // Usually all packets of a batch take the same step: then it is looked up once.
        let alike = |lane: usize| {
            let meta = &batch.meta;
            meta.packet_type[lane] == meta.packet_type[first]
                && meta.in_port[lane] == meta.in_port[first]
                && meta.out_port[lane] == meta.out_port[first]
        };
        if lanes.into_iter().all(alike) {
            self.send(routing, batch, first, behind, lanes, &mut lost);
        } else {
            for lane in lanes {
                self.send(routing, batch, lane, behind, Lanes::one(lane), &mut lost);
            }
        }
        lost
    }

    /// Queues the packets of `lanes`, which take the same step as that of `lane`.
    #[inline]
    fn send(
        &mut self,
        routing: &Routing,
        batch: &Batch,
        lane: usize,
        behind: Option<NfIndex>,
        lanes: Lanes,
        lost: &mut Lost,
    ) {
        let stage = behind.map_or(Stage::Ingress(batch.meta.in_port[lane]), Stage::Behind);
        let next = routing.routes.next(batch.meta.packet_type[lane], stage);
        let queue = match next {
            Next::Nf(nf) => self.nfs.get_mut(usize::from(nf.0)),
            Next::Output(output) => self.outputs.get_mut(usize::from(output)),
            Next::Egress => self.egress(batch.meta.out_port[lane]),
            Next::Nowhere => None,
            Next::Drop => Some(&mut lost.dropped),
        };
        let queue = queue.unwrap_or(&mut lost.nowhere);
        *queue = queue.or(lanes);
    }

    /// The queue of the chosen output; never a guess among several.
    fn egress(&mut self, chosen: PortIndex) -> Option<&mut Lanes> {
        let only = chosen == PortIndex::NONE && self.outputs.len() == 1;
        self.outputs.get_mut(if only { 0 } else { usize::from(chosen.0) })
    }

    /// Takes the packets that wait for `nf`.
    #[inline]
    pub(crate) fn take(&mut self, nf: NfIndex) -> Lanes {
        self.nfs.get_mut(usize::from(nf.0)).map(std::mem::take).unwrap_or_default()
    }

    /// Lets the packets of `lanes` wait for `nf`.
    pub(crate) fn put(&mut self, nf: NfIndex, lanes: Lanes) {
        if let Some(queue) = self.nfs.get_mut(usize::from(nf.0)) {
            *queue = queue.or(lanes);
        }
    }

    /// Takes the packets that wait for the first output with any.
    pub(crate) fn pop_output(&mut self) -> Option<(usize, Lanes)> {
        let output = self.outputs.iter().position(|queue| !queue.is_empty())?;
        Some((output, std::mem::take(&mut self.outputs[output])))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_chain::RouteDecider;
    use thalweg_packet::{Decapsulate, PacketType, Pool};

    use super::*;

    fn routing(outputs: usize) -> Routing {
        let mut routes = RouteDecider::new(1, 2, 3);
        let ingress = Stage::Ingress(PortIndex(0));
        routes.set(PacketType(0), ingress, Next::Nf(NfIndex(1)));
        routes.set(PacketType(1), ingress, Next::Drop);
        routes.set(PacketType(0), Stage::Behind(NfIndex(1)), Next::Egress);
        let order = vec![NfIndex(1), NfIndex(0)];
        Routing { routes, order, nfs: 2, outputs, types: 3, decapsulate: Decapsulate::No }
    }

    fn batch() -> Batch {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(4, 512).unwrap()));
        for packet_type in [0, 1, 2, 0] {
            let lane = batch.push_bytes(b"packet").unwrap();
            batch.meta.in_port[lane] = PortIndex(0);
            batch.meta.packet_type[lane] = PacketType(packet_type);
        }
        batch
    }

    #[test]
    fn each_packet_waits_for_its_next_nf_or_is_lost_by_name() {
        let (routing, batch) = (routing(1), batch());
        let mut queues = Queues::new(&routing);
        let lost = queues.forward(&routing, &batch, batch.lanes(), None);
        assert_eq!(lost, Lost { nowhere: Lanes(0b0100), dropped: Lanes(0b0010) });
        assert_eq!(
            [NfIndex(0), NfIndex(1)].map(|nf| queues.take(nf)),
            [Lanes::NONE, Lanes(0b1001)]
        );
        assert_eq!(queues.take(NfIndex(1)), Lanes::NONE);
    }

    #[test]
    fn egress_is_the_chosen_output_or_the_only_one_and_never_a_guess() {
        for outputs in [1, 2] {
            let (routing, mut batch) = (routing(outputs), batch());
            batch.meta.out_port[0] = PortIndex(outputs as u16 - 1);
            let mut queues = Queues::new(&routing);
            let lanes = Lanes(0b1001);
            let lost = queues.forward(&routing, &batch, lanes, Some(NfIndex(1)));
            if outputs == 1 {
                assert_eq!(queues.pop_output(), Some((0, lanes)));
                assert_eq!(lost, Lost::default());
            } else {
                assert_eq!(queues.pop_output(), Some((1, Lanes(1))));
                assert_eq!(lost, Lost { nowhere: Lanes(0b1000), ..Lost::default() });
            }
            assert_eq!(queues.pop_output(), None);
        }
    }
}
