use crate::parse::Decapsulate;

use super::*;
use crate::key::field;
use crate::write::{PacketBuilder, set_src_port};

fn batch(frames: usize) -> (Arc<Pool>, Batch) {
    let pool = Arc::new(Pool::anonymous(frames, 2048).unwrap());
    (pool.clone(), Batch::new(pool))
}

#[test]
fn a_packet_keeps_its_bytes_through_take_and_push() {
    let (pool, mut a) = batch(4);
    let lane = a.push_bytes(b"hello").unwrap();
    assert!(a.grow_front(lane, 2) && a.grow_back(lane, 1));
    a.bytes_mut(lane)[..2].copy_from_slice(b"__");
    a.bytes_mut(lane)[7] = b'!';
    let packet = a.take(lane).unwrap();
    assert!(a.is_empty());
    let mut b = Batch::new(pool.clone());
    let lane = b.push(packet).unwrap();
    assert_eq!(b.bytes(lane), b"__hello!");
    b.shrink_front(lane, 2);
    b.truncate(lane, 5);
    assert_eq!(b.bytes(lane), b"hello");
    drop(b);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn room_is_never_overrun() {
    let (_pool, mut b) = batch(1);
    let lane = b.push_bytes(&[0; 100]).unwrap();
    let (front, back) = (b.headroom(lane), b.tailroom(lane));
    assert!(!b.grow_front(lane, front + 1) && !b.grow_back(lane, back + 1));
    assert!(b.grow_front(lane, front) && b.grow_back(lane, back));
    assert_eq!(b.packet_len(lane), 2048);
}

#[test]
fn packets_that_are_reshaped_together_are_those_that_were_meant() {
    let (_pool, mut b) = batch(8);
    (0..8u8).for_each(|n| assert!(b.push_bytes(&[n; 20]).is_some()));
    b.release(Lanes::one(4));
    // In order, empty, with too much headroom, too long, out of order, beyond a batch.
    let shapes = [(1, 2, 30), (4, 2, 30), (5, 2, 22), (6, 4000, 4020), (7, 0, 4000), (2, 2, 30)];
    let shapes = shapes.into_iter().chain([(BATCH, 0, 20)]);
    let seen: Vec<_> =
        b.reshape_each(shapes).map(|bytes| bytes.map(|b| (b.len(), b[2], b[21]))).collect();
    assert_eq!(seen, [Some((30, 1, 1)), None, Some((22, 5, 5)), None, None, None, None]);
    let lens: Vec<_> = (0..8).map(|lane| b.packet_len(lane)).collect();
    assert_eq!(lens, [20, 30, 20, 20, 0, 22, 20, 20]);
    assert_eq!((b.meta.wire_len[1], b.meta.wire_len[6]), (30, 20));
}

#[test]
fn exhaustion_and_oversize_refuse_without_a_leak() {
    let (pool, mut b) = batch(1);
    assert!(b.push_bytes(&[0; 4000]).is_none());
    assert_eq!(pool.in_use(), 0);
    assert!(b.push_bytes(b"a").is_some());
    assert!(b.push_bytes(b"b").is_none());
    b.release(Lanes::ALL);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_is_marked_is_parsed_again_and_nothing_else() {
    let (_pool, mut b) = batch(3);
    let between = PacketBuilder::new([2; 6], [4; 6]).ip([10; 4].into(), [11; 4].into());
    let udp = |port| between.clone().udp(port, 7).build(&[0; 9]);
    (0..3).for_each(|n| assert!(b.push_bytes(&udp(n)).is_some()));
    b.parse(Lanes::ALL, Decapsulate::No);
    for lane in 0..3 {
        let headers = *b.headers(lane);
        set_src_port(b.bytes_mut(lane), &headers, 99);
    }
    let ports = |b: &Batch| [0, 1, 2].map(|lane| b.field(lane, field::TP_SRC));
    b.parse_changed();
    assert_eq!(ports(&b), [0, 1, 2]);
    // One that is gone when it would be parsed, and another in its place; one that is parsed by itself.
    b.mark_changed(Lanes::first(3));
    b.release(Lanes::one(0));
    assert_eq!(b.push_bytes(&udp(5)), Some(0));
    b.parse(Lanes::one(1), Decapsulate::No);
    assert_eq!(ports(&b), [0, 99, 2]);
    b.parse_changed();
    assert_eq!(ports(&b), [0, 99, 99]);
}

/// A TCP packet with a payload of `len` bytes.
fn tcp(len: usize) -> Vec<u8> {
    let builder = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = builder.ip("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    builder.tcp(crate::write::TcpSegment::default()).build(&vec![7; len])
}

#[test]
fn a_super_packet_has_a_large_frame_and_stands_for_its_segments() {
    let pool = Arc::new(Pool::anonymous_with(8, 2048, 1).unwrap());
    let (mut b, packet) = (Batch::new(pool.clone()), tcp(10_000));
    b.recycle();
    assert_eq!(b.push_bytes(&packet), None, "it is no packet of the wire");
    b.push_bytes(&tcp(10)).unwrap();
    let lane = b.push_super(packet.len(), 1448).unwrap();
    b.bytes_mut(lane).copy_from_slice(&packet);
    assert_eq!(b.push_super(packet.len(), 1448), None, "no large frame is free");
    assert_eq!(b.push_super(crate::MAX_SUPER_PACKET_LEN + 1, 1448), None);
    assert_eq!((b.supers(), b.is_super(0), b.is_super(lane)), (Lanes::one(lane), false, true));
    assert_eq!((b.count_segments(Lanes::ALL), b.segment_len(lane)), (8, 54 + 1448));
    assert_eq!(b.on_wire(lane), (7, (packet.len() + 6 * 54) as u64));
    assert_eq!((b.on_wire(0), b.segment_len(0)), ((1, 64), 64));

    b.meta.timestamp[lane] = Nanoseconds(5);
    b.meta.out_port[lane] = PortIndex(3);
    let (mut of_wire, mut segments) = (Batch::new(pool.clone()), b.segments(lane).unwrap());
    let mut lanes = Vec::new();
    while let Some(segment) = of_wire.push_segment(&mut segments, &b, lane) {
        lanes.push(segment);
    }
    // The eighth frame holds the small packet.
    assert_eq!((lanes.len(), segments.len(), pool.available()), (7, 0, 0));
    for segment in lanes {
        assert_eq!(of_wire.meta.timestamp[segment], Nanoseconds(5));
        assert_eq!(
            (of_wire.meta.out_port[segment], of_wire.is_super(segment)),
            (PortIndex(3), false)
        );
    }
    assert!(b.grow_front(lane, 8) && b.grow_back(lane, 8));
    let moved = b.take(lane).unwrap();
    assert_eq!((moved.segment_size, of_wire.push(moved).is_ok()), (1448, true));
    assert_eq!(of_wire.supers().count(), 1);
    drop((b, of_wire));
    assert_eq!((pool.in_use(), pool.available()), (0, 8));
}
