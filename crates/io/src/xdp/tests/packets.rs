//! Packets arrive and leave as they are, in the frames where they were put.

use super::*;

/// Sends each packet by `output` and receives it by `input`, a batch at a time. Calls `arrived` with
/// each batch that has arrived.
fn pass(
    packets: &[Vec<u8>],
    (output, input): (&mut dyn Output, &mut dyn Input),
    pools: [&Arc<Pool>; 2],
    mut arrived: impl FnMut(&Batch),
) {
    let mut drops = DropCounts::default();
    let mut batch = Batch::new(pools[1].clone());
    let mut expected = packets.iter();
    for some in packets.chunks(BATCH) {
        let mut sending = filled(pools[0], some);
        let lanes = sending.lanes();
        assert_eq!(output.send_frames(&mut sending, lanes, &mut drops).unwrap(), lanes);
        let mut left = some.len();
        while left > 0 {
            let count = receive(input, &mut batch, &mut drops);
            assert!(count > 0 && drops.total() == 0, "{left} of {} lost: {drops:?}", some.len());
            arrived(&batch);
            for lane in batch.lanes() {
                assert!(batch.bytes(lane) == expected.next().unwrap(), "packets differ");
            }
            left -= count;
            batch.release(Lanes::ALL);
        }
    }
    assert!(expected.next().is_none());
}

/// Packets of all lengths up to `longest`, `times` times.
fn all_lengths(longest: usize, step: usize, times: usize) -> Vec<Vec<u8>> {
    let lengths = (0..times).flat_map(|_| (60..=longest).step_by(step));
    lengths.enumerate().map(|(number, len)| packet(number, len)).collect()
}

fn both_ways(mode: XdpMode, ours: &Arc<Pool>) {
    let theirs = pool(2048);
    let packets = all_lengths(1514, 1, 3);
    let mut far_in = InterfaceInput::open("far", true, None).unwrap();
    let mut far_out = InterfaceOutput::open("far").unwrap();
    let mut input = XdpInput::open(&settings(mode), ours).unwrap();
    let mut output = XdpOutput::open(&settings(mode), ours).unwrap();
    let expected =
        format!("AF_XDP, {}, rings with 256 slots, checksums completed, multi-buffer", mode.name());
    assert_eq!([input.mode(), output.mode()], [expected.clone(), expected]);
    // The kernel puts a packet 256 bytes, and our 2, after the start of a frame that it was lent.
    let base = ours.memory().base().as_ptr() as usize;
    let is_in_place = |batch: &Batch| {
        for lane in batch.lanes() {
            let at = batch.bytes(lane).as_ptr() as usize - base;
            assert_eq!(ours.locate(at).unwrap().1, 258, "it is where the kernel has put it");
        }
    };
    pass(&packets, (&mut far_out, &mut input), [&theirs, ours], is_in_place);
    pass(&packets, (&mut output, &mut far_in), [ours, &theirs], |_| {});
    assert_eq!((input.copied(), output.copied()), (Some(0), Some(0)));
    drop((input, output));
    assert_eq!([ours.in_use(), theirs.in_use()], [0, 0]);
}

#[test]
fn packets_pass_byte_for_byte_without_a_copy_of_ours() {
    laboratory(|| both_ways(XdpMode::Copy, &pool(2048)));
}

#[test]
fn so_they_do_with_any_driver() {
    laboratory(|| both_ways(XdpMode::Generic, &pool(2048)));
}

/// In the memory of a GPU, for one.
#[test]
fn so_they_do_in_memory_that_another_owner_allocated() {
    laboratory(|| {
        for mode in [XdpMode::Copy, XdpMode::Generic] {
            both_ways(mode, &crate::foreign::pool(4096, 2048));
        }
    });
}

/// The frame that was received is the one that is sent, at the same address, and returns to the pool
/// once it was sent.
#[test]
fn a_packet_is_forwarded_in_the_frame_that_received_it() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let mut far_in = InterfaceInput::open("far", true, None).unwrap();
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut input = XdpInput::open(&settings(XdpMode::Copy), &ours).unwrap();
        let mut output = XdpOutput::open(&settings(XdpMode::Copy), &ours).unwrap();
        let mut batch = Batch::new(ours.clone());
        let mut drops = DropCounts::default();
        for number in 0..500 {
            let sent = packet(number, 60 + number);
            let one = filled(&theirs, std::slice::from_ref(&sent));
            far_out.send(&one, one.lanes(), &mut drops).unwrap();
            assert_eq!(receive(&mut input, &mut batch, &mut drops), 1);
            assert!(batch.bytes(0) == sent);
            let lent = ours.in_use();
            let gone = output.send_frames(&mut batch, Lanes::first(1), &mut drops).unwrap();
            assert_eq!((gone, batch.lanes()), (Lanes::first(1), Lanes::NONE));
            output.flush().unwrap();
            assert_eq!(ours.in_use(), lent - 1, "the frame is back");
            let mut back = Batch::new(theirs.clone());
            assert_eq!(receive(&mut far_in, &mut back, &mut drops), 1);
            assert!(back.bytes(0) == sent);
        }
        assert_eq!((input.copied(), output.copied(), drops.total()), (Some(0), Some(0), 0));
    });
}

#[test]
fn packets_that_the_caller_keeps_are_copied_and_counted() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let mut far_in = InterfaceInput::open("far", true, None).unwrap();
        let mut output = XdpOutput::open(&settings(XdpMode::Auto), &ours).unwrap();
        let kept = filled(&ours, &[packet(1, 100), packet(2, 13 + 1)]);
        let mut drops = DropCounts::default();
        assert_eq!(output.send(&kept, kept.lanes(), &mut drops).unwrap(), kept.lanes());
        assert_eq!((kept.len(), output.copied(), drops.total()), (2, Some(2), 0));
        let mut batch = Batch::new(theirs);
        receive(&mut far_in, &mut batch, &mut drops);
        assert!(batch.bytes(0) == packet(1, 100));
    });
}

/// A frame of 10 KiB holds two and more chunks: packets arrive and leave in several descriptors.
#[test]
fn jumbo_packets_have_several_buffers() {
    laboratory(|| {
        const FRAME: usize = 10_496;
        ip("link set near mtu 9000");
        ip("link set far mtu 9000");
        let (ours, theirs) = (pool(FRAME), pool(FRAME));
        let packets = all_lengths(9014, 111, 10);
        let mut far_in = InterfaceInput::open("far", true, None).unwrap();
        let mut far_out = InterfaceOutput::open("far").unwrap();
        for mode in [XdpMode::Copy, XdpMode::Generic] {
            let mut input = XdpInput::open(&settings(mode), &ours).unwrap();
            let mut output = XdpOutput::open(&settings(mode), &ours).unwrap();
            pass(&packets, (&mut far_out, &mut input), [&theirs, &ours], |_| {});
            pass(&packets, (&mut output, &mut far_in), [&ours, &theirs], |_| {});
            let long = packets.iter().filter(|packet| packet.len() > 4096 - 258).count() as u64;
            assert!(input.copied() >= Some(long), "{:?} of {long}", input.copied());
            assert_eq!(output.copied(), Some(0));
        }
        assert_eq!(ours.in_use(), 0);
    });
}

/// The kernel calls the driver in our calls, in place of interrupts.
#[test]
fn busy_polling_passes_packets() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let settings = XdpSettings { busy_poll_us: 20, ..settings(XdpMode::Copy) };
        let mut far_in = InterfaceInput::open("far", true, None).unwrap();
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut input = XdpInput::open(&settings, &ours).unwrap();
        let mut output = XdpOutput::open(&settings, &ours).unwrap();
        assert!(input.mode().ends_with("busy poll 20 us"), "{}", input.mode());
        let packets = all_lengths(1514, 7, 3);
        pass(&packets, (&mut far_out, &mut input), [&theirs, &ours], |_| {});
        pass(&packets, (&mut output, &mut far_in), [&ours, &theirs], |_| {});
        assert_eq!((input.copied(), output.copied()), (Some(0), Some(0)));
    });
}

/// An input for each of two queues: all packets arrive by one of them, over one registration of packet
/// memory.
#[test]
fn inputs_share_the_queues_of_an_interface() {
    laboratory(|| {
        ip(
            "link add wide numrxqueues 2 numtxqueues 2 type veth peer name end numrxqueues 2 numtxqueues 2",
        );
        ["wide", "end"].into_iter().for_each(up);
        let (ours, theirs) = (pool(2048), pool(2048));
        let queue = |queue| {
            let wide = settings(XdpMode::Auto);
            let settings = XdpSettings { interface: "wide".into(), queue, ..wide };
            XdpInput::open(&settings, &ours).unwrap()
        };
        let mut inputs = [queue(0), queue(1)];
        assert!(inputs[1].mode().contains("shared memory registration"), "{}", inputs[1].mode());
        let mut drops = DropCounts::default();
        let mut batches = [Batch::new(ours.clone()), Batch::new(ours.clone())];
        let mut arrived = [0, 0];
        for cpu in [0, 1] {
            // A packet socket sends by the queue of its processor.
            stay_on(cpu);
            let mut out = InterfaceOutput::open("end").unwrap();
            let some = filled(&theirs, &(0..20).map(|n| packet(n, 90)).collect::<Vec<_>>());
            assert_eq!(out.send(&some, some.lanes(), &mut drops).unwrap(), some.lanes());
            for _ in 0..2000 {
                for at in 0..2 {
                    inputs[at].receive(&mut batches[at], BATCH, &mut drops).unwrap();
                    arrived[at] += batches[at].len();
                    batches[at].release(Lanes::ALL);
                }
            }
        }
        assert_eq!((arrived[0] + arrived[1], drops.total()), (40, 0), "{arrived:?}");
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        assert!(cpus < 2 || arrived[0] == 20 && arrived[1] == 20, "{arrived:?}");
        drop((inputs, batches));
        assert_eq!(ours.in_use(), 0);
    });
}

/// Longer than a frame, longer than the MTU, shorter than an Ethernet header.
#[test]
fn what_does_not_fit_is_lost_by_name() {
    laboratory(|| {
        ip("link set near mtu 3000");
        ip("link set far mtu 3000");
        let (ours, theirs) = (pool(2048), pool(4096));
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut input = XdpInput::open(&settings(XdpMode::Generic), &ours).unwrap();
        let (mut drops, mut losses) = (DropCounts::default(), DropCounts::default());
        let some = filled(&theirs, &[packet(1, 2500), packet(2, 1700), packet(3, 3014)]);
        far_out.send(&some, some.lanes(), &mut drops).unwrap();
        let mut batch = Batch::new(ours.clone());
        let mut received = 0;
        for _ in 0..10_000 {
            received += input.receive(&mut batch, BATCH, &mut losses).unwrap().packets;
        }
        assert_eq!((received, batch.len(), drops.total()), (3, 1, 0));
        assert_eq!(losses.iter().collect::<Vec<_>>(), [(DropReason::FrameTooSmall, 2)]);
        assert!(batch.bytes(0) == packet(2, 1700));
        ip("link set near mtu 1000");
        let mut output = XdpOutput::open(&settings(XdpMode::Generic), &ours).unwrap();
        let mut short = packet(5, 100);
        short.truncate(13);
        let some = filled(&ours, &[packet(4, 1015), short, packet(6, 1014)]);
        let sent = output.send(&some, some.lanes(), &mut drops).unwrap();
        assert_eq!(sent, Lanes::one(2));
        let reasons: Vec<_> = drops.iter().collect();
        assert_eq!(reasons, [(DropReason::Malformed, 1), (DropReason::TooBig, 1)]);
        assert_eq!(output.shortfall().longest, 1015);
    });
}

/// Without frames of its own to lend, an input loses packets by the pool's name, and goes on after
/// that.
#[test]
fn losses_are_counted_by_their_cause() {
    laboratory(|| {
        let (ours, theirs) = (pool(2048), pool(2048));
        let mut far_out = InterfaceOutput::open("far").unwrap();
        let mut input = XdpInput::open(&settings(XdpMode::Copy), &ours).unwrap();
        let mut drops = DropCounts::default();
        let mut send = |packets: usize| {
            for number in 0..packets {
                let one = filled(&theirs, &[packet(number, 60)]);
                far_out.send(&one, one.lanes(), &mut DropCounts::default()).unwrap();
            }
        };
        // Nothing is received meanwhile, and the rings have 256 slots.
        send(300);
        let mut batch = Batch::new(ours.clone());
        let mut drain = |drops: &mut DropCounts| {
            let (mut taken, mut counted) = (0, 0);
            for _ in 0..2000 {
                counted += input.receive(&mut batch, BATCH, drops).unwrap().packets;
                taken += batch.len();
                batch.release(Lanes::ALL);
            }
            (taken, counted)
        };
        assert_eq!(drain(&mut drops), (256, 300));
        assert_eq!(drops.get(DropReason::ReceiveRingFull), 44);
        let mut hoard = Vec::new();
        ours.take_many(usize::MAX, |frame| hoard.push(frame));
        send(200);
        assert_eq!(drain(&mut drops), (200, 200));
        // Those that were received came back to the pool, so there is one loan for each of them.
        ours.take_many(usize::MAX, |frame| hoard.push(frame));
        let kept = hoard.len();
        assert!(kept >= 4096 - 256, "{kept}");
        ours.give_back(hoard);
        send(100);
        assert_eq!(drain(&mut drops), (100, 100));
        assert_eq!(drops.total(), 44);
    });
}
