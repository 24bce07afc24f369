//! Packets that are fragmented because they exceed the MTU of the port they leave by.

use super::*;

#[test]
fn a_packet_too_long_that_may_be_cut_leaves_in_fragments() {
    let bench = Bench::new(ROUTES);
    let data: Vec<u8> = (0..4000).map(|i| (i / 7) as u8).collect();
    let packet =
        from_to("10.1.1.1", "198.51.100.7").vlan(7).ipv4_id(77, false).udp(1, 2).build(&data);
    let fate = bench.send(&packet);
    let (first, ..) = fate.forwarded();
    let mut put_together = first[38..].to_vec();
    assert_eq!(fate.emitted.len(), 2);
    let emitted = &fate.emitted.batches()[0];
    for lane in emitted.lanes() {
        let (bytes, key, headers) = whole(emitted, lane);
        assert_eq!(bytes[..18], first[..18]);
        assert_eq!(key.get(field::NW_TTL), 63);
        assert_eq!(emitted.meta.out_port[lane], PortIndex(0));
        assert!(headers.fragment && bytes.len() - 18 <= 1400);
        put_together.extend_from_slice(&bytes[38..]);
    }
    assert_eq!(put_together, packet[38..]);
    assert_eq!(fate.figure("fragmented"), 1);
}

#[test]
fn when_there_is_no_room_for_all_fragments_none_goes() {
    let mut bench = Bench::new(ROUTES);
    bench.pool = Arc::new(Pool::anonymous(3, 16384).unwrap());
    let packet = from_to("10.1.1.1", "198.51.100.7").ipv4_id(1, false).udp(1, 2);
    let fate = bench.send(&packet.build(&[0; 9000]));
    assert_eq!(fate.dropped(), DropReason::PoolExhausted);
    assert!(fate.emitted.is_empty());
    assert_eq!(bench.pool.in_use(), 1);
}

#[test]
fn a_whole_batch_of_long_packets_may_be_cut() {
    let bench = Bench::new(ROUTES);
    let pool = Arc::new(Pool::anonymous(512, 16384).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let packet = from_to("10.1.1.1", "198.51.100.7").udp(1, 2);
    for n in 0..32 {
        batch.push_bytes(&packet.clone().ipv4_id(n, false).build(&[n as u8; 8000])).unwrap();
    }
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    bench.blueprint.instance().process(&mut batch, Lanes::ALL, &mut context);
    assert!(context.dropped().is_empty());
    batch.parse_changed();
    let mut bytes = [0; 32];
    for batch in [&batch].into_iter().chain(emitted.batches()) {
        for lane in batch.lanes() {
            let (packet, ..) = whole(batch, lane);
            assert_eq!(batch.meta.out_port[lane], PortIndex(0));
            bytes[usize::from(packet[19])] += packet.len() - 34;
        }
    }
    assert_eq!(bytes, [8008; 32]);
    assert_eq!(emitted.len(), 32 * 5);
}
