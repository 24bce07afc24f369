//! Late packets at an NF, whole and divided.

use std::sync::{Arc, Mutex};

use thalweg_chain::{Next, NfIndex, RouteDecider, Routing, Stage};
use thalweg_nf::{Context, Emitted, NetworkFunction, Part};
use thalweg_packet::{Decapsulate, PacketType, Pool, PortIndex};

use super::*;
use crate::burst::Burst;
use crate::parts::Parts;
use crate::station::{Member, Station};
use crate::watch::Watch;

/// An NF that records the packets that it sees, by the byte that each consists of, and generates a
/// packet for each of these.
#[derive(Clone, Default)]
struct Seen {
    packets: Arc<Mutex<Vec<u8>>>,
    generates_for: Option<u8>,
}

impl NetworkFunction for Seen {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        for lane in lanes {
            let number = batch.bytes(lane)[0];
            self.packets.lock().unwrap().push(number);
            if self.generates_for == Some(number) {
                context.emit(batch, lane, &[100]).expect("a frame is free");
            }
        }
    }
}

impl Part for Seen {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        NetworkFunction::process(self, batch, lanes, context);
    }
}

const PACKETS: u8 = 8;
/// The packets with even numbers.
const EVEN: [u8; 4] = [0, 2, 4, 6];
const ODD: [u8; 4] = [1, 3, 5, 7];
const AFTER: Nanoseconds = Nanoseconds::from_millis(10);

fn routing(nfs: usize) -> Routing {
    let mut routes = RouteDecider::new(1, nfs, 1);
    let mut stage = Stage::Ingress(PortIndex(0));
    for nf in 0..nfs {
        let nf = NfIndex(nf as u16);
        routes.set(PacketType(0), stage, Next::Nf(nf));
        stage = Stage::Behind(nf);
    }
    routes.set(PacketType(0), stage, Next::Egress);
    let order = (0..nfs).map(|nf| NfIndex(nf as u16)).collect();
    Routing { routes, order, nfs, outputs: 1, types: 1, decapsulate: Decapsulate::No }
}

/// A burst with packets at the first NF, of which those with even numbers arrived `early` before now,
/// and the others will arrive in an hour.
fn burst(routing: &Routing, pool: &Arc<Pool>, is_live: bool, early: Nanoseconds) -> Burst {
    let mut burst = Burst::new(routing, pool, 1, false);
    let round = &mut burst.rounds[0];
    round.is_live = is_live;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    for number in 0..PACKETS {
        let lane = round.batch.push_bytes(&[number]).unwrap();
        let is_even = EVEN.contains(&number);
        let time = if is_even { now - early.0 } else { now + 3_600_000_000_000 };
        round.batch.meta.timestamp[lane] = Nanoseconds(time);
        round.batch.meta.in_port[lane] = PortIndex(0);
        round.batch.meta.out_port[lane] = PortIndex::NONE;
        round.batch.meta.packet_type[lane] = PacketType(0);
    }
    // A clock that timers go by does not make a packet late, or on time.
    round.batch.meta.date(0, Nanoseconds(now + 1));
    round.batch.meta.date(1, Nanoseconds(1));
    round.queues.forward(routing, &round.batch, round.batch.lanes(), None);
    burst
}

/// The packets that wait for the output, by their numbers.
fn sent(burst: &mut Burst) -> Vec<u8> {
    let mut sent = Vec::new();
    for round in &mut burst.rounds {
        let lanes = round.queues.pop_output().map_or(Lanes::NONE, |(_, lanes)| lanes);
        sent.extend(lanes.into_iter().map(|lane| round.batch.bytes(lane)[0]));
    }
    sent
}

/// What an NF with this `overload` sees, what is sent, and its counts: late packets, those dropped
/// as such, and those that it received.
fn served(
    overload: Option<Overload>,
    is_live: bool,
    is_divided: bool,
) -> (Vec<u8>, Vec<u8>, [u64; 3]) {
    let (routing, pool) = (routing(1), Arc::new(Pool::anonymous(64, 512).unwrap()));
    let (nf, seen, watch) = (NfIndex(0), Seen::default(), &mut Watch::default());
    let mut member = Member::new(nf, Box::new(seen.clone()));
    member.overload = overload;
    let mut station = Station::new(vec![member], Emitted::new(pool.clone()));
    let mut burst = burst(&routing, &pool, is_live, Nanoseconds::from_secs(1));
    let mut counters = NfCounters::new();
    if is_divided {
        let parts = [seen.clone(), seen.clone()].map(|part| Box::new(part) as Box<dyn Part>);
        // Half of the early packets and half of the late ones are in each part.
        let bucket = |batch: &Batch, lane: usize| u16::from(batch.bytes(lane)[0] & 2) << 10;
        let mut parts =
            Parts::new(nf, parts.into(), Box::new(bucket), Box::new(|_, _| true), &pool);
        parts.overload = overload;
        assert_eq!(parts.serve(&routing, &mut burst, watch), (true, true));
        station.settle(&routing, &mut burst);
        parts.add_counters(&mut counters);
    } else {
        station.serve(&routing, &mut burst, watch);
    }
    counters.merge(&station.members()[0].counters);
    let mut packets = seen.packets.lock().unwrap().clone();
    packets.sort_unstable();
    let sent = sent(&mut burst);
    let dropped = counters.drops.get(DropReason::Overload);
    assert_eq!((burst.drops, counters.drops.total()), (dropped, dropped));
    assert_eq!(burst.packets(), sent.len() as u64, "what is dropped gives its frame back");
    assert_eq!(counters.packets + counters.bypassed, u64::from(PACKETS));
    (packets, sent, [counters.bypassed, dropped, counters.packets])
}

#[test]
fn late_packets_bypass_an_nf_or_are_dropped_whether_or_not_it_is_divided() {
    let all: Vec<u8> = (0..PACKETS).collect();
    for is_divided in [false, true] {
        let served =
            |action, is_live| served(Some(Overload { action, after: AFTER }), is_live, is_divided);
        let bypassed = served(OnOverload::Bypass, true);
        assert_eq!(bypassed, (ODD.to_vec(), all.clone(), [4, 0, 4]), "divided: {is_divided}");
        let dropped = served(OnOverload::Drop, true);
        assert_eq!(dropped, (ODD.to_vec(), ODD.to_vec(), [0, 4, 8]), "divided: {is_divided}");
    }
}

#[test]
fn packets_of_captures_and_at_nfs_without_the_option_are_never_late() {
    let all: Vec<u8> = (0..PACKETS).collect();
    for is_divided in [false, true] {
        for action in [OnOverload::Bypass, OnOverload::Drop] {
            let overload = Overload { action, after: AFTER };
            let of_capture = served(Some(overload), false, is_divided);
            assert_eq!(of_capture, (all.clone(), all.clone(), [0, 0, 8]));
        }
        assert_eq!(served(None, true, is_divided), (all.clone(), all.clone(), [0, 0, 8]));
    }
}

#[test]
fn a_packet_is_late_only_after_the_time_of_the_option() {
    let (routing, pool) = (routing(1), Arc::new(Pool::anonymous(64, 512).unwrap()));
    let burst = burst(&routing, &pool, true, Nanoseconds::from_secs(100));
    let round = &burst.rounds[0];
    let late = |seconds| {
        let overload =
            Overload { action: OnOverload::Drop, after: Nanoseconds::from_secs(seconds) };
        late(Some(&overload), round, round.batch.lanes()).count()
    };
    assert_eq!([late(1), late(100), late(3600)], [4, 4, 0]);
}

/// A generated packet is as old as the one that it was generated for.
#[test]
fn what_was_generated_for_a_late_packet_is_late() {
    let (routing, pool) = (routing(2), Arc::new(Pool::anonymous(64, 512).unwrap()));
    let (first, second) = (Seen { generates_for: Some(2), ..Seen::default() }, Seen::default());
    let mut stations = [first, second.clone()].map(Box::new).into_iter().enumerate();
    let mut burst = burst(&routing, &pool, true, Nanoseconds::from_secs(1));
    for (number, nf) in stations.by_ref() {
        let mut member = Member::new(NfIndex(number as u16), nf);
        let overload = Overload { action: OnOverload::Bypass, after: AFTER };
        member.overload = Some(overload).filter(|_| number == 1);
        let mut station = Station::new(vec![member], Emitted::new(pool.clone()));
        station.serve(&routing, &mut burst, &mut Watch::default());
        assert_eq!(station.members()[0].counters.bypassed, [0, 5][number]);
    }
    assert_eq!(*second.packets.lock().unwrap(), ODD);
    assert_eq!(sent(&mut burst), [0, 1, 2, 3, 4, 5, 6, 7, 100]);
}
