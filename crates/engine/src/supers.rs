//! Segments super-packets ahead of NFs that do not process them.

use thalweg_chain::{NfIndex, Routing};
use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes};

use crate::burst::Burst;
use crate::counters::NfCounters;

impl Burst {
    /// Segments the super-packets `supers` of `lanes`, which wait in round number `at` for an NF; returns
    /// the lanes ahead of the first one. The packets behind it go with its segments into rounds behind
    /// this one, so that they stay in order, and wait there for the NF.
    ///
    /// The NF counts the segments as generated, less the super-packets.
    pub(crate) fn segment_supers(
        &mut self,
        at: usize,
        [lanes, supers]: [Lanes; 2],
        nf: NfIndex,
        counters: &mut NfCounters,
        routing: &Routing,
    ) -> Lanes {
        let supers = supers.and(lanes);
        let Some(first) = supers.lowest() else { return lanes };
        let before = lanes.and(Lanes::first(first));
        let pool = self.rounds[at].batch.pool();
        let mut pieces = self.pieces.take().unwrap_or_else(|| Batch::new(pool.clone()));
        for lane in lanes.without(before) {
            if supers.contains(lane) {
                self.segment_super(at, lane, nf, counters, &mut pieces, routing);
                continue;
            }
            self.make_room(at, nf, &mut pieces, routing);
            let packet = self.rounds[at].batch.take(lane).expect("a packet waits");
            pieces.push(packet).expect("there is room");
        }
        self.add_pieces(at, nf, &mut pieces, routing);
        self.pieces = Some(pieces);
        before
    }

    /// Moves the segments of one super-packet to `pieces`.
    fn segment_super(
        &mut self,
        at: usize,
        lane: usize,
        nf: NfIndex,
        counters: &mut NfCounters,
        pieces: &mut Batch,
        routing: &Routing,
    ) {
        if let Some(mut segments) = self.rounds[at].batch.segments(lane) {
            counters.generated += segments.len() as u64 - 1;
            while !segments.is_empty() {
                self.make_room(at, nf, pieces, routing);
                if pieces.push_segment(&mut segments, &self.rounds[at].batch, lane).is_none() {
                    self.lose(segments.len() as u64, DropReason::PoolExhausted, counters);
                    break;
                }
            }
        } else {
            self.lose(1, DropReason::Malformed, counters);
        }
        self.rounds[at].batch.release(Lanes::one(lane));
    }

    fn lose(&mut self, packets: u64, reason: DropReason, counters: &mut NfCounters) {
        counters.drops.add(reason, packets);
        self.drops += packets;
    }

    fn make_room(&mut self, at: usize, nf: NfIndex, pieces: &mut Batch, routing: &Routing) {
        if pieces.is_full() {
            self.add_pieces(at, nf, pieces, routing);
        }
    }

    /// Adds a round with `pieces`, which are empty afterwards, behind round number `at` and what was
    /// added before.
    fn add_pieces(&mut self, at: usize, nf: NfIndex, pieces: &mut Batch, routing: &Routing) {
        if pieces.is_empty() {
            return;
        }
        let round = self.add(at, pieces, routing);
        let lanes = round.batch.lanes();
        round.batch.parse(lanes, Decapsulate::No);
        round.queues.put(nf, lanes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_chain::RouteDecider;
    use thalweg_packet::write::{PacketBuilder, TcpSegment};
    use thalweg_packet::{Pool, PortIndex};

    use super::*;

    const NF: NfIndex = NfIndex(0);

    /// A TCP packet whose payload is `len` bytes of `content`.
    fn tcp(content: u8, len: usize) -> Vec<u8> {
        let builder = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder.ip("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        builder.tcp(TcpSegment::default()).build(&vec![content; len])
    }

    /// A burst with packets of these payload lengths, of which those above 1,000 are super-packets,
    /// in a pool with `frames` frames.
    fn burst(lens: &[usize], frames: usize) -> (Arc<Pool>, Routing, Burst) {
        let pool = Arc::new(Pool::anonymous_with(frames, 2048, 8).unwrap());
        let (routes, decapsulate) = (RouteDecider::new(1, 1, 1), Decapsulate::No);
        let routing =
            Routing { routes, order: vec![NF], nfs: 1, outputs: 1, types: 1, decapsulate };
        let mut burst = Burst::new(&routing, &pool, 1, false);
        let batch = &mut burst.rounds[0].batch;
        for (number, len) in lens.iter().enumerate() {
            let packet = tcp(number as u8, *len);
            let size = if *len > 1000 { 1000 } else { 0 };
            let lane = match size {
                0 => batch.push_blank(packet.len()).unwrap(),
                _ => batch.push_super(packet.len(), size).unwrap(),
            };
            batch.bytes_mut(lane).copy_from_slice(&packet);
            batch.meta.in_port[lane] = PortIndex(7);
        }
        (pool, routing, burst)
    }

    /// The contents of the packets that wait for the NF, with their lengths, in order.
    fn waiting(burst: &mut Burst) -> Vec<(u8, usize)> {
        let mut all = Vec::new();
        for round in &mut burst.rounds {
            for lane in round.queues.take(NF) {
                assert_eq!(
                    (round.batch.is_super(lane), round.batch.meta.in_port[lane]),
                    (false, PortIndex(7))
                );
                let payload = usize::from(round.batch.headers(lane).payload);
                let bytes = &round.batch.bytes(lane)[payload..];
                all.push((bytes[0], bytes.len()));
            }
        }
        all
    }

    #[test]
    fn segments_take_the_place_of_super_packets_in_order() {
        let (pool, routing, mut burst) = burst(&[10, 20, 45_500, 30, 2000, 40], 128);
        let (lanes, mut counters) = (burst.rounds[0].batch.lanes(), NfCounters::new());
        let supers = burst.rounds[0].batch.supers();
        let before = burst.segment_supers(0, [lanes, supers], NF, &mut counters, &routing);
        assert_eq!(before, Lanes::first(2));
        assert_eq!(burst.rounds[0].batch.lanes(), before, "the others have moved");
        let mut expected = vec![(2, 1000); 45];
        expected.extend([(2, 500), (3, 30), (4, 1000), (4, 1000), (5, 40)]);
        assert_eq!(waiting(&mut burst), expected);
        assert_eq!((counters.generated, counters.drops.total(), burst.drops), (45 + 1, 0, 0));
        burst.clear();
        drop(burst);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn super_packets_behind_one_that_is_segmented_move_whole() {
        let (_pool, routing, mut burst) = burst(&[2000, 10, 3500, 20, 4500], 128);
        let (lanes, mut counters) = (burst.rounds[0].batch.lanes(), NfCounters::new());
        let before = burst.segment_supers(0, [lanes, Lanes::one(2)], NF, &mut counters, &routing);
        assert_eq!(before, Lanes::first(2));
        assert_eq!(burst.rounds[0].batch.supers(), Lanes::one(0));
        let [_, behind] = &mut burst.rounds[..] else { panic!("two rounds") };
        let waits = behind.queues.take(NF);
        let lens: Vec<_> =
            waits.into_iter().map(|lane| behind.batch.packet_len(lane) - 54).collect();
        assert_eq!(lens, [1000, 1000, 1000, 500, 20, 4500]);
        assert_eq!(behind.batch.supers(), Lanes::one(5));
        assert_eq!(counters.generated, 3);
    }

    #[test]
    fn those_without_frames_or_sense_are_counted() {
        let (_pool, routing, mut burst) = burst(&[5000, 1500], 4);
        // An NF has made something else of the second.
        burst.rounds[0].batch.bytes_mut(1)[12..14].fill(0xff);
        let (lanes, mut counters) = (burst.rounds[0].batch.lanes(), NfCounters::new());
        let supers = burst.rounds[0].batch.supers();
        let before = burst.segment_supers(0, [lanes, supers], NF, &mut counters, &routing);
        assert!(before.is_empty());
        assert_eq!(waiting(&mut burst).len(), 3);
        assert_eq!(counters.generated, 4);
        // The second has the fourth frame.
        assert_eq!(counters.drops.get(DropReason::PoolExhausted), 2);
        assert_eq!(counters.drops.get(DropReason::Malformed), 1);
        assert_eq!(burst.drops, 3);
    }
}
