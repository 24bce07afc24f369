//! Flows that move to another instance.

use std::cell::Cell;
use std::collections::VecDeque;

use proptest::prelude::*;
use thalweg_nf::{Blueprint, Steering, Units};
use thalweg_packet::{BATCH, Nanoseconds};
use thalweg_testkit::cases;
use thalweg_testkit::moving::{Moving, Role, assert_reads_recorded};

use super::super::hello::tests::hello;
use super::wire::{Wire, request};
use super::*;

/// A recorded stream: an HTTP connection and a DNS query.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    let mut bench = Bench::new("rule = [{ action = 'block', host = ['bad.example'] }]");
    assert_reads_recorded(&mut *bench.drive.nf, "l7fw", FORMAT_2, 2);
    let segment = TcpSegment { src_port: 40_000, dst_port: 80, flags: 24, ..TcpSegment::default() };
    let builder = PacketBuilder::new([2; 6], [4; 6]);
    let packet = builder.ip([10, 0, 0, 1].into(), [198, 51, 100, 1].into()).tcp(segment);
    let verdict = bench.send(&packet.build(b"more"));
    assert_eq!(verdict, Verdict::Drop(DropReason::Application));
}

/// The packets of a connection of one of several kinds.
fn connection(client: u16, kind: usize, vlan: bool) -> Vec<Vec<u8>> {
    let wire = Wire { vlan: vlan.then_some(7), ..Wire::new(client) };
    let start = match kind {
        0 => request("good.example"),
        1 => request("bad.example"),
        2 => hello("bad.example"),
        _ => b"neither this nor that".to_vec(),
    };
    let middle = start.len() / 2;
    let places = [(0, middle), (middle, start.len())];
    let later = (0..6).map(|n| wire.data(start.len() + 9 + 4 * n, b"more"));
    let begun = wire.connection(wire.parts(&start, &places), start.len());
    begun.into_iter().chain(later).collect()
}

/// A packet with an MPLS label before its IP header.
fn labelled(packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x88, 0x47, 0, 1, 0x11, 64][..], &packet[14..]].concat()
}

fn blueprint(folder: &Path, file: &str, options: &str) -> Box<dyn Blueprint> {
    let text = format!("flows = '{}/{file}'\n{options}", folder.display());
    KIND.build_in(&text, &Environment::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn flows_move_unit_by_unit_while_packets_flow() {
    let moved = Cell::new(0);
    // nDPI fills its tables for each instance, which takes longer than the packets of a case.
    proptest!(ProptestConfig::with_cases(cases(16)), |(
        seed: u64,
        holds: bool,
        by_host in proptest::bool::weighted(0.25),
        kinds in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 12..32),
        order in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..3), 300..400),
        moves in proptest::collection::vec(0u16..32, 40..180),
        batch in 1usize..=BATCH,
    )| {
        let mut queues: Vec<VecDeque<Vec<u8>>> = (0..)
            .zip(&kinds)
            .map(|(n, (kind, vlan, is_labelled))| {
                let packets = connection(n, *kind, *vlan).into_iter();
                if *is_labelled && !*vlan {
                    packets.map(|packet| labelled(&packet)).collect()
                } else {
                    packets.collect()
                }
            })
            .collect();
        let mut now = 1;
        let arrivals: Vec<_> = order.into_iter().filter_map(|(of, milliseconds)| {
            now += milliseconds;
            let count = queues.len();
            Some((Nanoseconds(now * 1_000_000), queues[of.index(count)].pop_front()?))
        }).collect();

        let folder = tempfile::tempdir().unwrap();
        // With rules on hosts, HTTP connections are read to their ends, and stay.
        let rule = if by_host { "host = ['bad.example']" } else { "application = ['TLS']" };
        let undecided = if holds { "hold" } else { "allow" };
        let options =
            &format!("undecided = '{undecided}'\nrule = [{{ action = 'block', {rule} }}]");
        let one = blueprint(folder.path(), "one.json", options);
        let both = blueprint(folder.path(), "both.json", options);
        let units = Units::new(32, Steering::with_seed(seed)).unwrap();
        let mut moving = Moving::new("l7fw", units, |role| match role {
            Role::Whole => one.instance(),
            Role::Part => both.instance(),
        });
        drop(moving.send_while_moving(&arrivals, batch, moves, 6));
        moving.move_all();
        moving.end();
        moving.flush();
        let lines = |file| {
            let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        prop_assert_eq!(lines("one.json"), lines("both.json"));
        moved.set(moved.get() + moving.moved);
    });
    assert!(moved.get() > 20, "vacuous run: {} flows moved", moved.get());
}

#[test]
fn a_unit_waits_for_the_verdicts_on_its_flows_and_moves_without_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.json");
    let text = format!("flows = '{}'\nundecided = 'hold'", path.display());
    let blueprint = KIND.build_in(&text, &Environment::default()).unwrap();
    let units = Units::whole();
    let mut moving = Moving::new("l7fw", units, |_| blueprint.instance());
    let packets = connection(1, 0, false);
    let timed = |packets: &[Vec<u8>]| -> Vec<_> {
        packets.iter().map(|packet| (Nanoseconds(1), packet.clone())).collect()
    };
    moving.send(&timed(&packets[..4]));
    assert!(moving.begin() && !moving.move_unit(0), "half of a request decides nothing");
    moving.send(&timed(&packets[4..]));
    assert_eq!((moving.move_all(), moving.moved), (0, 1));
    moving.send(&timed(&packets[5..]));
    moving.end();
    moving.flush();
    let reports = std::fs::read_to_string(&path).unwrap();
    assert_eq!(reports.lines().count(), 2, "one of each of the two that decided: {reports}");
}

#[test]
fn what_a_unit_held_passes_when_it_moves_undecided() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = Drive::new(blueprint(folder.path(), "f.json", "undecided = 'hold'").instance());
    old.send(&connection(2, 3, false)[..5]);
    assert_eq!(old.figure("packets_holding"), 2);
    assert!(old.nf.begin_move(Units::whole()) && !old.nf.is_ready(0));
    old.nf.forget_unit(0);
    old.nf.end_move();
    assert_eq!(old.figure("flows"), 0);
    // With the next packet that comes.
    old.send(&connection(3, 0, false)[..1]);
    assert_eq!((old.figure("packets_holding"), old.figure("packets_resumed")), (0, 2));
}
