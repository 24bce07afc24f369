//! Devices with an interface of the kernel, and what is at its other end.

use super::*;
use crate::{InterfaceInput, InterfaceOutput, LinkChange, LinkEvents};

/// A device at `near`, both ways.
fn near(pool: &Arc<Pool>) -> (DpdkInput, DpdkOutput) {
    let settings = settings("net_af_packet0,iface=near");
    (input(&settings, pool), output(&settings, pool))
}

#[test]
fn packets_pass_an_interface_both_ways_whole_and_in_order() {
    laboratory(|| {
        let pool = pool();
        let (mut input, mut output) = near(&pool);
        let mut far = InterfaceInput::open("far", true, None).unwrap();
        let mut back = InterfaceOutput::open("far").unwrap();
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let place = pool.memory().base().as_ptr() as usize;
        for round in 0..200 {
            let packets: Vec<_> =
                (0..BATCH).map(|n| packet(round + n, 60 + (n * 53 + round * 7) % 1440)).collect();
            let sent = output.send_frames(&mut filled(&pool, &packets), Lanes::ALL, &mut drops);
            assert_eq!(sent.unwrap(), Lanes::ALL);
            let mut at = 0;
            while at < BATCH {
                assert!(receive(&mut far, &mut batch, &mut drops) > 0, "{at} of round {round}");
                for (lane, packet) in batch.lanes().into_iter().zip(&packets[at..]) {
                    assert_eq!(batch.bytes(lane), packet);
                }
                at += batch.len();
                back.send(&batch, Lanes::ALL, &mut drops).unwrap();
                batch.release(Lanes::ALL);
            }
            let mut at = 0;
            while at < BATCH {
                assert!(receive(&mut input, &mut batch, &mut drops) > 0, "{at} of round {round}");
                for (lane, packet) in batch.lanes().into_iter().zip(&packets[at..]) {
                    assert_eq!(batch.bytes(lane), packet);
                    let offset = batch.bytes(lane).as_ptr() as usize - place;
                    assert_eq!(
                        pool.locate(offset).unwrap().1,
                        128,
                        "where the driver puts packets"
                    );
                }
                at += batch.len();
                batch.release(Lanes::ALL);
            }
        }
        assert_eq!((drops.total(), output.copied()), (0, Some(0)));
        drop((batch, input, output, far, back));
        assert_eq!(pool.in_use(), 0);
    });
}

/// The kernel takes the tag of a packet out, and the driver leaves it beside the packet.
#[test]
fn vlan_tags_are_where_they_were_sent() {
    laboratory(|| {
        let pool = pool();
        let (mut input, _output) = near(&pool);
        let mut back = InterfaceOutput::open("far").unwrap();
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let mut tagged = packet(1, 100);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0x60, 7, 8, 0]);
        back.send(&filled(&pool, &[tagged.clone()]), Lanes::ALL, &mut drops).unwrap();
        assert_eq!(receive(&mut input, &mut batch, &mut drops), 1);
        assert_eq!(batch.bytes(0), tagged);
        assert_eq!(batch.meta.wire_len[0], 100);
    });
}

/// Packets of a flow arrive by one queue, in their order.
#[test]
fn flows_keep_to_a_queue() {
    laboratory(|| {
        let pool = pool();
        let device = "net_af_packet0,iface=near,qpairs=2";
        let settings = DpdkSettings { queues: 2, ..settings(device) };
        let mut inputs = DpdkInput::open(&settings, &pool, 2).unwrap();
        let mut back = InterfaceOutput::open("far").unwrap();
        let mut drops = DropCounts::default();
        let mut batches = [Batch::new(pool.clone()), Batch::new(pool.clone())];
        let mut seen: Vec<Vec<(u8, u8)>> = vec![Vec::new(), Vec::new()];
        for number in 0..50_u8 {
            let packets: Vec<_> = (0..16).map(|flow| udp(flow, number)).collect();
            back.send(&filled(&pool, &packets), Lanes::ALL, &mut drops).unwrap();
            let since = Instant::now();
            let target = 16 * (usize::from(number) + 1);
            while seen.iter().map(Vec::len).sum::<usize>() < target {
                assert!(since.elapsed() < Duration::from_secs(2), "packets are missing");
                for ((input, batch), seen) in inputs.iter_mut().zip(&mut batches).zip(&mut seen) {
                    input.receive(batch, BATCH, &mut drops).unwrap();
                    let of = |lane| (batch.bytes(lane)[35], batch.bytes(lane)[42]);
                    seen.extend(batch.lanes().into_iter().map(of));
                    batch.release(Lanes::ALL);
                }
            }
        }
        assert!(seen.iter().all(|packets| !packets.is_empty()), "both queues have flows");
        for flow in 0..16 {
            let of = |seen: &Vec<(u8, u8)>| -> Vec<u8> {
                seen.iter().filter(|(of, _)| *of == flow).map(|(_, number)| *number).collect()
            };
            let mut numbers: Vec<_> = seen.iter().map(of).filter(|n| !n.is_empty()).collect();
            assert_eq!(numbers.len(), 1, "flow {flow}");
            assert_eq!(numbers.remove(0), (0..50).collect::<Vec<u8>>());
        }
        assert_eq!(drops.total(), 0);
    });
}

/// A UDP packet of a flow, without a checksum.
fn udp(flow: u8, number: u8) -> Vec<u8> {
    let mut bytes = packet(0, 60);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
    bytes[14..34].copy_from_slice(&header);
    bytes[34..42].copy_from_slice(&[16, flow, 0, 53, 0, 26, 0, 0]);
    bytes[42] = number;
    bytes
}

/// The names of the events so far, of which there are `count` or more soon.
fn events(of: &LinkEvents, count: usize) -> Vec<String> {
    let since = Instant::now();
    while of.since(0).len() < count && since.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(10));
    }
    of.since(0).iter().map(|event| format!("{}: {}", event.change.name(), event.text)).collect()
}

#[test]
fn changes_of_the_link_are_events_of_each_port() {
    laboratory(|| {
        let pool = pool();
        let (input, mut output) = near(&pool);
        let (of_input, of_output) = (input.events().unwrap(), output.events().unwrap());
        // From here on, changes are events.
        while of_input.link().zip(of_output.link()).is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut expected = Vec::new();
        for (change, event, carrier) in [
            ("link set far down", "no-carrier: it has no carrier", Some(false)),
            ("link set far up", "carrier: it has a carrier", Some(true)),
            ("link set near mtu 1400", "mtu: its MTU is 1400, and was 1500", Some(true)),
            ("link set near down", "down: it is down", None),
        ] {
            ip(change);
            expected.push(event);
            for of in [&of_input, &of_output] {
                assert_eq!(events(of, expected.len()), expected);
                assert_eq!(of.link().unwrap().carrier, carrier);
            }
        }
        assert_eq!(of_input.since(0)[0].interface, "near");
        assert_eq!(of_output.link().unwrap().mtu, Some(1400));
        let (mut batch, mut drops) = (filled(&pool, &[packet(0, 1500)]), DropCounts::default());
        assert!(output.send_frames(&mut batch, Lanes::ALL, &mut drops).unwrap().is_empty());
        assert_eq!(drops.get(DropReason::TooBig), 1);
        // An event of a port that has ended is one of the other alone.
        of_output.end();
        ip("link del near");
        expected.push("removed: it was removed");
        assert_eq!(events(&of_input, expected.len()), expected);
        assert_eq!(of_output.since(0).len(), expected.len() - 1);
        assert_eq!(of_input.link().unwrap().up, Some(false));
    });
}

/// The driver of TAP devices knows the state of its interface, and is asked for it as any other is.
#[test]
fn a_device_is_asked_for_its_link() {
    laboratory(|| {
        let pool = pool();
        let input = input(&settings("net_tap0,iface=dtap0"), &pool);
        let of = input.events().unwrap();
        ip("link set dtap0 up");
        let before = events(&of, 0).len();
        ip("link set dtap0 down");
        let seen = events(&of, before + 1);
        assert_eq!(seen.last().unwrap(), "no-carrier: it has no link");
        let event = of.since(0).pop().unwrap();
        assert_eq!((&*event.interface, event.change), ("net_tap0", LinkChange::NoCarrier));
        assert_eq!(of.link().unwrap().carrier, Some(false));
        ip("link set dtap0 up");
        let seen = events(&of, seen.len() + 1);
        assert!(seen.last().unwrap().starts_with("carrier: it has a link"), "{seen:?}");
        drop(input);
        assert_eq!(of.link(), None);
    });
}

#[test]
fn the_counters_of_a_driver_are_those_of_the_direction_and_stay_when_it_is_closed() {
    laboratory(|| {
        let pool = pool();
        let (input, mut output) = near(&pool);
        let (of_input, of_output) = (input.events().unwrap(), output.events().unwrap());
        let mut drops = DropCounts::default();
        let packets = [packet(0, 60), packet(1, 100)];
        output.send_frames(&mut filled(&pool, &packets), Lanes::ALL, &mut drops).unwrap();
        let counters = of_output.device_counters();
        let count =
            |name: &str| counters.iter().find(|(of, _)| of == name).map(|(_, count)| *count);
        assert_eq!([count("tx_good_packets"), count("tx_good_bytes")], [Some(2), Some(160)]);
        assert!(counters.iter().all(|(name, _)| name.starts_with("tx_")), "{counters:?}");
        assert!(of_input.device_counters().iter().all(|(name, _)| !name.starts_with("tx_")));
        drop((input, output));
        assert_eq!(of_output.device_counters(), counters);
    });
}

#[test]
fn an_interface_that_is_removed_ends_its_ports() {
    laboratory(|| {
        let pool = pool();
        let (mut input, mut output) = near(&pool);
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        ip("link del near");
        let since = Instant::now();
        let error = loop {
            match input.receive(&mut batch, BATCH, &mut drops) {
                Err(error) => break error.to_string(),
                Ok(_) => assert!(since.elapsed() < Duration::from_secs(2), "it goes on"),
            }
        };
        assert_eq!(error, "DPDK net_af_packet0: it was removed");
        assert!(input.receive(&mut batch, BATCH, &mut drops).unwrap().ended);
        assert!(output.check().is_err());
        let mut sending = filled(&pool, &[packet(0, 60)]);
        let failure = output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap_err();
        assert_eq!(failure.error.to_string(), error);
        assert_eq!(drops.get(DropReason::OutputFailed), 1);
        drop((batch, sending, input, output));
        assert_eq!(pool.in_use(), 0);
    });
}

/// A device that checks checksums: the driver of TAP devices does so itself.
#[test]
fn packets_with_wrong_checksums_are_dropped_on_request() {
    laboratory(|| {
        let pool = pool();
        let device = "net_tap0,iface=dtap0";
        for is_wanted in [false, true] {
            let settings = DpdkSettings { drop_bad_checksums: is_wanted, ..settings(device) };
            let mut input = input(&settings, &pool);
            ip("link set dtap0 up");
            let mut host = InterfaceOutput::open("dtap0").unwrap();
            let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
            let mut good = udp(1, 1);
            let sum = thalweg_packet::checksum::checksum(&good[14..34]);
            good[24..26].copy_from_slice(&sum.to_be_bytes());
            let (bad, other) = (udp(2, 2), packet(3, 80));
            host.send(&filled(&pool, &[good.clone(), bad, other]), Lanes::ALL, &mut drops).unwrap();
            let mut flows = Vec::new();
            let since = Instant::now();
            while flows.len() < 3 - usize::from(is_wanted)
                && since.elapsed() < Duration::from_secs(2)
            {
                receive(&mut input, &mut batch, &mut drops);
                let of = |lane| (batch.bytes(lane)[13], batch.bytes(lane)[42]);
                flows.extend(batch.lanes().into_iter().map(of).filter(|(kind, _)| *kind != 0xdd));
                batch.release(Lanes::ALL);
            }
            let bad = drops.get(DropReason::BadChecksum);
            assert_eq!((flows.contains(&(0, 2)), bad), (!is_wanted, u64::from(is_wanted)));
            assert!(flows.contains(&(0, 1)), "{flows:?}");
        }
    });
}
