//! Segments super-packets ahead of NFs that do not process them.

use thalweg_chain::{NfIndex, Routing};
use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes, PortIndex, parse};

use crate::burst::Burst;
use crate::counters::NfCounters;

/// What the segmentation ahead of an NF counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    /// Segments, less the super-packets.
    pub(crate) generated: u64,
    /// Segments for which packet memory had no frame.
    pub(crate) exhausted: u64,
    /// Super-packets of which an NF has made what cannot be segmented.
    pub(crate) malformed: u64,
}

impl Cut {
    /// Adds it to the counts of the NF.
    pub(crate) fn count(self, counters: &mut NfCounters) {
        counters.generated += self.generated;
        for (reason, packets) in
            [(DropReason::PoolExhausted, self.exhausted), (DropReason::Malformed, self.malformed)]
        {
            if packets > 0 {
                counters.drops.add(reason, packets);
            }
        }
    }
}

/// Segments, and packets behind them, which are to have a round of their own.
pub(crate) struct Pieces {
    batch: Batch,
    /// Those of which NFs see what is in their tunnel.
    inside: Lanes,
}

impl Burst {
    /// Segments the super-packets of `lanes`, which wait in round number `at` for an NF, but for those that it
    /// `takes_whole`; returns the lanes ahead of the first one. The packets behind it go with its segments into
    /// rounds behind this one, so that they stay in order, and wait there for the NF.
    ///
    /// The NF counts the segments as generated, less the super-packets: they are added to `cut`.
    pub(crate) fn segment_supers(
        &mut self,
        (at, lanes): (usize, Lanes),
        takes_whole: impl Fn(&Batch, usize) -> bool,
        nf: NfIndex,
        cut: &mut Cut,
        routing: &Routing,
    ) -> Lanes {
        let batch = &mut self.rounds[at].batch;
        let supers = batch.supers().and(lanes);
        if supers.is_empty() {
            return lanes;
        }
        batch.parse_changed();
        let is_cut = |lane: &usize| !takes_whole(batch, *lane);
        let supers: Lanes = supers.into_iter().filter(is_cut).collect();
        let Some(first) = supers.lowest() else { return lanes };
        let before = lanes.and(Lanes::first(first));
        let pool = self.rounds[at].batch.pool();
        let new = || Pieces { batch: Batch::new(pool.clone()), inside: Lanes::NONE };
        let mut pieces = self.pieces.take().unwrap_or_else(new);
        for lane in lanes.without(before) {
            if supers.contains(lane) {
                self.segment_super(at, lane, nf, cut, &mut pieces, routing);
                continue;
            }
            self.make_room(at, nf, &mut pieces, routing);
            let batch = &mut self.rounds[at].batch;
            let is_inside = sees_inside(batch, lane);
            let packet = batch.take(lane).expect("a packet waits");
            let piece = pieces.batch.push(packet).expect("there is room");
            pieces.add(piece, is_inside);
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
        cut: &mut Cut,
        pieces: &mut Pieces,
        routing: &Routing,
    ) {
        if let Some(mut segments) = self.rounds[at].batch.segments(lane) {
            cut.generated += segments.len() as u64 - 1;
            let is_inside = sees_inside(&self.rounds[at].batch, lane);
            while !segments.is_empty() {
                self.make_room(at, nf, pieces, routing);
                let of = &self.rounds[at].batch;
                let Some(piece) = pieces.batch.push_segment(&mut segments, of, lane) else {
                    cut.exhausted += segments.len() as u64;
                    self.drops += segments.len() as u64;
                    break;
                };
                pieces.add(piece, is_inside);
            }
        } else {
            cut.malformed += 1;
            self.drops += 1;
        }
        self.rounds[at].batch.release(Lanes::one(lane));
    }

    fn make_room(&mut self, at: usize, nf: NfIndex, pieces: &mut Pieces, routing: &Routing) {
        if pieces.batch.is_full() {
            self.add_pieces(at, nf, pieces, routing);
        }
    }

    /// Adds a round with `pieces`, which are empty afterwards, behind round number `at` and what was
    /// added before.
    fn add_pieces(&mut self, at: usize, nf: NfIndex, pieces: &mut Pieces, routing: &Routing) {
        let Pieces { batch, inside } = pieces;
        if batch.is_empty() {
            return;
        }
        let inside = std::mem::replace(inside, Lanes::NONE);
        let round = self.add(at, batch, routing);
        let lanes = round.batch.lanes();
        round.batch.parse(lanes.without(inside), Decapsulate::No);
        round.batch.parse(inside, routing.decapsulate);
        round.queues.put(nf, lanes);
    }
}

impl Pieces {
    fn add(&mut self, piece: usize, is_inside: bool) {
        if is_inside {
            self.inside.insert(piece);
        }
    }
}

/// Whether NFs see what is in the tunnel of a packet, which is parsed.
fn sees_inside(batch: &Batch, lane: usize) -> bool {
    let (_, outermost) = parse(batch.bytes(lane), PortIndex::NONE, Decapsulate::No);
    batch.headers(lane).l3 != outermost.l3
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use thalweg_chain::RouteDecider;
    use thalweg_nf::{Context, Part};
    use thalweg_packet::write::{PacketBuilder, TcpSegment};
    use thalweg_packet::{Pool, PortIndex};

    use super::*;
    use crate::parts::Parts;
    use crate::watch::Watch;

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
        batch.parse(Lanes::ALL, Decapsulate::No);
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
        let (lanes, mut cut) = (burst.rounds[0].batch.lanes(), Cut::default());
        let before = burst.segment_supers((0, lanes), |_, _| false, NF, &mut cut, &routing);
        assert_eq!(before, Lanes::first(2));
        assert_eq!(burst.rounds[0].batch.lanes(), before, "the others have moved");
        let mut expected = vec![(2, 1000); 45];
        expected.extend([(2, 500), (3, 30), (4, 1000), (4, 1000), (5, 40)]);
        assert_eq!(waiting(&mut burst), expected);
        assert_eq!((cut.generated, cut.exhausted + cut.malformed, burst.drops), (45 + 1, 0, 0));
        burst.clear();
        drop(burst);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn super_packets_behind_one_that_is_segmented_move_whole() {
        let (_pool, routing, mut burst) = burst(&[2000, 10, 3500, 20, 4500], 128);
        let (lanes, mut cut) = (burst.rounds[0].batch.lanes(), Cut::default());
        let before = burst.segment_supers((0, lanes), |_, lane| lane != 2, NF, &mut cut, &routing);
        assert_eq!(before, Lanes::first(2));
        assert_eq!(burst.rounds[0].batch.supers(), Lanes::one(0));
        let [_, behind] = &mut burst.rounds[..] else { panic!("two rounds") };
        let waits = behind.queues.take(NF);
        let lens: Vec<_> =
            waits.into_iter().map(|lane| behind.batch.packet_len(lane) - 54).collect();
        assert_eq!(lens, [1000, 1000, 1000, 500, 20, 4500]);
        assert_eq!(behind.batch.supers(), Lanes::one(5));
        assert_eq!(cut.generated, 3);
    }

    #[test]
    fn what_is_seen_inside_of_tunnels_is_seen_in_segments_too() {
        let (_pool, mut routing, mut burst) = burst(&[10], 128);
        routing.decapsulate = Decapsulate::Yes;
        let builder = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder.ip("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
        let builder = builder.udp(9, 4789);
        let of = |len| builder.build(&[&vxlan[..], &tcp(1, len)].concat());
        let (long, short) = (of(2500), of(20));
        let batch = &mut burst.rounds[0].batch;
        let lane = batch.push_super(long.len(), 1000).unwrap();
        batch.bytes_mut(lane).copy_from_slice(&long);
        batch.meta.inner_len[lane] = (tcp(1, 2500).len() - 14) as u16;
        let inside = [lane, batch.push_bytes(&short).unwrap()];
        let outside = batch.push_bytes(&short).unwrap();
        batch.meta.in_port = [PortIndex(7); thalweg_packet::BATCH];
        batch.parse(inside.into_iter().collect(), Decapsulate::Yes);
        batch.parse(Lanes::one(outside), Decapsulate::No);
        let (lanes, mut cut) = (batch.lanes(), Cut::default());
        burst.segment_supers((0, lanes), |_, _| false, NF, &mut cut, &routing);
        let lens: Vec<_> = waiting(&mut burst).into_iter().map(|(_, len)| len).collect();
        assert_eq!(lens, [1000, 1000, 500, 20, short.len() - 42]);
    }

    /// What a part has seen: contents and lengths of payloads.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<(u8, usize)>>>);

    impl Part for Seen {
        fn process(&mut self, batch: &mut Batch, lanes: Lanes, _context: &mut Context<'_>) {
            for lane in lanes {
                let payload = &batch.bytes(lane)[usize::from(batch.headers(lane).payload)..];
                self.0.lock().unwrap().push((payload[0], payload.len()));
            }
        }
    }

    #[test]
    fn parts_get_the_segments_of_those_that_they_do_not_take_whole() {
        let (pool, routing, mut burst) = burst(&[10, 3500, 20, 20_000, 30, 2000], 128);
        let lanes = burst.rounds[0].batch.lanes();
        burst.rounds[0].queues.put(NF, lanes);
        let seen = [Seen::default(), Seen::default()];
        let parts = seen.iter().map(|part| Box::new(part.clone()) as Box<dyn Part>).collect();
        let content = |batch: &Batch, lane: usize| {
            batch.bytes(lane)[usize::from(batch.headers(lane).payload)]
        };
        let bucket = move |batch: &Batch, lane: usize| u16::from(content(batch, lane) & 1) << 11;
        let takes_whole = |batch: &Batch, lane: usize| batch.packet_len(lane) > 10_000;
        let mut parts = Parts::new(NF, parts, Box::new(bucket), Box::new(takes_whole), &pool);
        parts.begin(1);
        let served = parts.serve(&routing, &mut burst, &mut Watch::default());
        assert_eq!(served, (true, true));
        let [even, odd] = seen.map(|part| part.0.lock().unwrap().clone());
        assert_eq!(even, [(0, 10), (2, 20), (4, 30)]);
        let mut expected = vec![(1, 1000), (1, 1000), (1, 1000), (1, 500), (3, 20_000)];
        expected.extend([(5, 1000), (5, 1000)]);
        assert_eq!(odd, expected);
        let mut counters = NfCounters::new();
        parts.add_counters(&mut counters);
        assert_eq!((counters.generated, counters.drops.total()), (3 + 1, 0));
    }

    #[test]
    fn those_without_frames_or_sense_are_counted() {
        let (_pool, routing, mut burst) = burst(&[5000, 1500], 4);
        // An NF has made something else of the second.
        burst.rounds[0].batch.bytes_mut(1)[12..14].fill(0xff);
        let (lanes, mut cut) = (burst.rounds[0].batch.lanes(), Cut::default());
        let before = burst.segment_supers((0, lanes), |_, _| false, NF, &mut cut, &routing);
        assert!(before.is_empty());
        assert_eq!(waiting(&mut burst).len(), 3);
        // The second has the fourth frame.
        assert_eq!((cut.generated, cut.exhausted, cut.malformed), (4, 2, 1));
        let mut counters = NfCounters::new();
        cut.count(&mut counters);
        assert_eq!(counters.generated, 4);
        assert_eq!(counters.drops.get(DropReason::PoolExhausted), 2);
        assert_eq!(counters.drops.get(DropReason::Malformed), 1);
        assert_eq!(burst.drops, 3);
    }
}
