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
