//! Packets that are held until the verdict.

use std::sync::Arc;

use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::{Batch, Decapsulate, DropReason, Nanoseconds, Pool};

use super::super::KIND;
use super::wire::{Wire, request};
use super::{Environment, Verdict};

struct Line {
    nf: Box<dyn NetworkFunction>,
    pool: Arc<Pool>,
    now: Nanoseconds,
}

impl Line {
    fn new(options: &str) -> Self {
        let text = format!(
            "undecided = 'hold'\nrule = [{{ action = 'block', host = ['bad.example'] }}]\n{options}"
        );
        let blueprint = KIND.build_in(&text, &Environment::default());
        let blueprint = blueprint.unwrap_or_else(|e| panic!("{e}"));
        let pool = Arc::new(Pool::anonymous(256, 4096).unwrap());
        Self { nf: blueprint.instance(), pool, now: Nanoseconds::from_secs(1) }
    }

    /// Sends packets in one batch; returns those that come out, in their order.
    fn send(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut batch = Batch::new(self.pool.clone());
        for packet in packets {
            let lane = batch.push_bytes(packet).unwrap();
            batch.meta.timestamp[lane] = self.now;
        }
        let lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let mut emitted = Emitted::new(self.pool.clone());
        let mut context = Context::new(self.now, &mut emitted, None);
        self.nf.process(&mut batch, lanes, &mut context);
        let passed = |lane: &usize| context.verdict(*lane) == Verdict::Forward;
        let mut out: Vec<_> =
            lanes.into_iter().filter(passed).map(|lane| batch.bytes(lane).to_vec()).collect();
        out.extend(emitted.packets().map(<[u8]>::to_vec));
        batch.release(lanes);
        out
    }

    fn figure(&self, name: &str) -> u64 {
        self.nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
    }
}

#[test]
fn held_packets_leave_in_order_at_the_verdict() {
    let mut line = Line::new("");
    let bytes = request("god.example");
    for cuts in [vec![3], vec![3, 40], vec![1, 2, 3, 4, 5, 60]] {
        let places: Vec<_> = [0]
            .iter()
            .chain(&cuts)
            .copied()
            .zip(cuts.iter().copied().chain([bytes.len()]))
            .collect();
        let wire = Wire::new(cuts.len() as u16);
        assert_eq!(line.send(&wire.handshake()).len(), 3, "nothing is in them");
        let parts = wire.parts(&bytes, &places);
        let (last, first) = parts.split_last().unwrap();
        for part in first {
            assert!(line.send(std::slice::from_ref(part)).is_empty());
            assert!(line.send(std::slice::from_ref(part)).is_empty(), "a retransmission");
        }
        assert_eq!(line.figure("packets_holding"), first.len() as u64);
        // Those behind it in the batch do not overtake it.
        let answer = wire.answer(bytes.len());
        let batch = [&[last.clone()][..], &answer].concat();
        assert_eq!(line.send(&batch), [&parts[..], &answer].concat());
        assert_eq!(line.figure("packets_holding"), 0);
        // Afterwards they pass as they are.
        assert_eq!(line.send(&answer), answer);
    }
    assert_eq!(line.figure("packets_blocked"), 0);
}

#[test]
fn nothing_of_a_blocked_flow_passes_but_its_handshake() {
    let mut line = Line::new("");
    let bytes = request("bad.example");
    for order in [[(0, 60), (60, bytes.len())], [(60, bytes.len()), (0, 60)]] {
        let wire = Wire::new(order[0].0 as u16);
        let packets = wire.connection(wire.parts(&bytes, &order), bytes.len());
        assert_eq!(line.send(&packets), wire.handshake());
    }
    assert_eq!((line.figure("packets_holding"), line.figure("packets_blocked")), (0, 2 * 5));
    assert_eq!(line.figure("packets_resumed"), 0);
}

#[test]
fn holding_is_bounded() {
    let bytes = request("god.example");
    let one = |wire: &Wire, at: usize| wire.data(at, &bytes[at..=at]);
    // By packets.
    let mut line = Line::new("hold_packets = 4");
    let wire = Wire::new(1);
    line.send(&wire.handshake());
    for at in 0..4 {
        assert!(line.send(&[one(&wire, at)]).is_empty());
    }
    let all: Vec<_> = (0..5).map(|at| one(&wire, at)).collect();
    assert_eq!(line.send(&all[4..]), all);
    assert_eq!(line.send(&[one(&wire, 5)]).len(), 1, "no longer held");
    assert_eq!(line.figure("flows_hold_exceeded"), 1);
    // By time: any packet lets those leave that waited too long.
    let mut line = Line::new("hold_ms = 100");
    line.send(&wire.handshake());
    assert!(line.send(&[one(&wire, 0)]).is_empty());
    line.now = line.now.plus(Nanoseconds::from_millis(99));
    assert_eq!(line.send(&Wire::new(2).handshake()[..1]).len(), 1);
    line.now = line.now.plus(Nanoseconds::from_millis(1));
    let syn = &Wire::new(3).handshake()[0];
    assert_eq!(line.send(std::slice::from_ref(syn)), [syn.clone(), one(&wire, 0)]);
    assert_eq!(line.send(&[one(&wire, 1)]).len(), 1);
    // A clock that is set back does not make them wait longer.
    let mut line = Line::new("");
    line.now = Nanoseconds::from_secs(10_000);
    line.send(&wire.handshake());
    assert!(line.send(&[one(&wire, 0)]).is_empty());
    line.now = Nanoseconds::from_secs(9_000);
    assert_eq!(line.send(std::slice::from_ref(syn)).len(), 2);
    // By bytes in all.
    let mut line = Line::new("hold_bytes = 65536");
    for client in 0..100 {
        let wire = Wire::new(client);
        line.send(&wire.handshake());
        line.send(&[wire.data(0, &[b'a'; 1000])]);
    }
    assert!((60..65).contains(&line.figure("packets_holding")));
    assert!(line.figure("flows_hold_exceeded") >= 35);
    // Those beyond may be blocked instead.
    let mut line = Line::new("hold_packets = 1\nhold_exceeded = 'block'");
    line.send(&wire.handshake());
    assert!(line.send(&[one(&wire, 0)]).is_empty() && line.send(&[one(&wire, 1)]).is_empty());
    assert_eq!((line.figure("packets_holding"), line.figure("packets_blocked")), (0, 2));
    // The verdict still counts.
    let rest = wire.data(2, &bytes[2..]);
    assert_eq!(line.send(std::slice::from_ref(&rest)), [rest]);
}

#[test]
fn packets_wait_for_frames_too() {
    let mut line = Line::new("");
    let bytes = request("god.example");
    let wire = Wire::new(1);
    line.send(&wire.handshake());
    let parts = wire.parts(&bytes, &[(0, 10), (10, 20), (20, bytes.len())]);
    line.send(&parts[..2]);
    let taken: Vec<_> = std::iter::from_fn(|| line.pool.take()).take(255).collect();
    let none = line.send(&parts[2..]);
    assert!(none.len() < 3, "{}", none.len());
    line.pool.give_back(taken);
    let answer = wire.answer(bytes.len());
    let later = line.send(&answer[..1]);
    let all = [none, later].concat();
    assert!(all.starts_with(&parts[..2]), "{all:?}");
    assert_eq!(all.last(), answer.first());
}

#[test]
fn datagrams_are_held_too() {
    let mut line = Line::new("hold_packets = 3");
    let builder = thalweg_packet::write::PacketBuilder::new([2; 6], [4; 6]);
    let to = |port| builder.clone().ip([10, 0, 0, 1].into(), [192, 0, 2, 1].into()).udp(4000, port);
    let query = to(53).build(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x03bad\x07example\0\0\x01\0\x01");
    assert!(line.send(&[query.clone(), query]).is_empty());
    assert_eq!(line.figure("packets_blocked"), 2);
    let unknown: Vec<_> = (0..4).map(|n| to(9999).build(&[n; 40])).collect();
    assert!(line.send(&unknown[..3]).is_empty());
    assert_eq!(line.send(&unknown[3..]), unknown);
}

#[test]
fn wrong_bounds_are_refused() {
    let told = |text: &str| KIND.build_alone(text).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(told("hold_packets = 0").contains("out of range: '0'; expected 1 to 1024"));
    assert!(told("hold_bytes = 100").contains("out of range"));
    assert!(told("hold_ms = 60001").contains("expected 1 to 60000"));
    assert!(told("undecided = 'wait'").contains("unknown variant `wait`"));
    assert!(told("hold_exceeded = 'hold'").contains("unknown variant `hold`"));
    assert_eq!(DropReason::Consumed.name(), "consumed");
}
