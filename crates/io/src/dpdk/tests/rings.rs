//! Devices without hardware or interfaces: what is sent is what is received, or nothing at all.

use thalweg_packet::{LARGE_FRAME_SIZE, Nanoseconds};

use super::*;
use crate::{CaptureInput, CaptureOutput};

/// Nothing copies: the bytes that are received lie where they lay when they were sent.
#[test]
fn packets_pass_a_ring_in_the_frames_that_they_are_in() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_ring0"));
        let (mut output, mut input) = (output(&settings, &pool), input(&settings, &pool));
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        for round in 0..500 {
            let lens = [14, 60, 1500, 1514, 64, 333];
            let packets: Vec<_> =
                (0..BATCH).map(|n| packet(round + n, lens[n % lens.len()])).collect();
            let mut sending = filled(&pool, &packets);
            let before = places(&sending);
            let sent = output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap();
            assert_eq!((sent, sending.len()), (Lanes::ALL, 0));
            assert_eq!(receive(&mut input, &mut batch, &mut drops), BATCH);
            assert_eq!(places(&batch), before);
            for (lane, packet) in packets.iter().enumerate() {
                assert_eq!(batch.bytes(lane), packet);
                assert_eq!(batch.meta.wire_len[lane] as usize, packet.len());
                assert!(batch.meta.timestamp[lane] > Nanoseconds(0));
            }
            batch.release(Lanes::ALL);
        }
        assert_eq!((output.copied(), drops.total()), (Some(0), 0));
        assert!(input.mode().starts_with("DPDK driver net_ring, 1 queue of "), "{}", input.mode());
        drop((input, output));
        assert_eq!(pool.in_use(), 0);
    });
}

/// Packets lie in memory that somebody else has made, such as that of a GPU.
#[test]
fn packets_pass_a_ring_in_the_frames_of_foreign_memory() {
    with_dpdk(|| {
        let pool = crate::foreign::pool(1024, 2048);
        let base = pool.memory().base().as_ptr() as usize;
        let range = base..base + pool.memory().len();
        let settings = settings("net_ring0");
        let (mut output, mut input) = (output(&settings, &pool), input(&settings, &pool));
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let packets: Vec<_> = (0..BATCH).map(|n| packet(n, 60 + n)).collect();
        let mut sending = filled(&pool, &packets);
        let before = places(&sending);
        output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap();
        assert_eq!(receive(&mut input, &mut batch, &mut drops), BATCH);
        assert_eq!(places(&batch), before);
        assert!(before.iter().all(|place| range.contains(&(*place as usize))));
        assert_eq!((output.copied(), drops.total()), (Some(0), 0));
        drop((batch, sending, input, output));
        assert_eq!(pool.in_use(), 0);
    });
}

#[test]
fn packets_that_the_caller_keeps_are_copied_once_and_short_ones_leave_large_frames() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_ring0"));
        let (mut input, mut output) = (input(&settings, &pool), output(&settings, &pool));
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let packets: Vec<_> = (0..3).map(|n| packet(n, 100)).collect();
        let kept = filled(&pool, &packets);
        let sent = output.send(&kept, Lanes::first(2), &mut drops).unwrap();
        assert_eq!((sent, kept.len()), (Lanes::first(2), 3));
        assert_eq!((receive(&mut input, &mut batch, &mut drops), output.copied()), (2, Some(2)));
        assert_eq!((batch.bytes(0), batch.bytes(1)), (&packets[0][..], &packets[1][..]));
        assert!(places(&batch).iter().all(|place| !places(&kept).contains(place)));
        drop(kept);
        batch.release(Lanes::ALL);

        let mut large = pool.take_large().unwrap();
        let at = LARGE_FRAME_SIZE - 100;
        pool.bytes_mut(&mut large)[at..].copy_from_slice(&packets[2]);
        let mut one = Batch::new(pool.clone());
        one.push(pool.packet(large, at, 100).unwrap()).unwrap();
        output.send_frames(&mut one, Lanes::ALL, &mut drops).unwrap();
        assert_eq!((receive(&mut input, &mut batch, &mut drops), output.copied()), (1, Some(3)));
        assert_eq!(batch.bytes(0), packets[2]);
        drop((batch, one, input, output));
        assert_eq!((pool.in_use(), drops.total()), (0, 0));
    });
}

#[test]
fn a_full_device_drops_after_a_while_and_takes_packets_again_once_it_has_room() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_ring0"));
        let (mut output, mut input) = (output(&settings, &pool), input(&settings, &pool));
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let packets: Vec<_> = (0..BATCH).map(|n| packet(n, 60)).collect();
        let mut sent = 0;
        // A ring of DPDK has 1023 places.
        for _ in 0..40 {
            let mut sending = filled(&pool, &packets);
            sent += output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap().count();
        }
        let lost = drops.get(DropReason::TransmitQueueFull);
        assert_eq!((sent, lost, drops.total()), (1023, 40 * 32 - 1023, lost));
        let mut received = 0;
        while received < sent {
            received += receive(&mut input, &mut batch, &mut drops);
            batch.release(Lanes::ALL);
        }
        let mut sending = filled(&pool, &packets);
        assert_eq!(output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap(), Lanes::ALL);
        assert_eq!((receive(&mut input, &mut batch, &mut drops), received), (BATCH, 1023));
        // What is in the ring when its device is closed comes back.
        let mut sending = filled(&pool, &packets);
        output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap();
        drop((batch, sending, input, output));
        assert_eq!((drops.total(), pool.in_use()), (lost, 0));
    });
}

#[test]
fn packets_that_no_device_sends_are_dropped_with_the_reason() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_null0"));
        let (mut output, mut drops) = (output(&settings, &pool), DropCounts::default());
        let mut sending = filled(&pool, &[packet(0, 1515), packet(1, 1514), packet(2, 60)]);
        sending.push_bytes(&[1; 13]).unwrap();
        let mut tagged = packet(3, 1518);
        tagged[12..14].copy_from_slice(&[0x81, 0]);
        sending.push_bytes(&tagged).unwrap();
        let sent = output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap();
        assert_eq!(sent.into_iter().collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(drops.get(DropReason::TooBig), 1);
        assert_eq!((drops.get(DropReason::Malformed), drops.total()), (1, 2));
        assert_eq!(output.shortfall().longest, 1515);
        drop((sending, output));
        assert_eq!(pool.in_use(), 0);
    });
}

/// Packets of a capture are received in their order, and written to another one as they were.
#[test]
fn captures_by_dpdk_hold_what_was_received_and_sent() {
    with_dpdk(|| {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
        let (pool, mut drops) = (pool(), DropCounts::default());
        let packets: Vec<_> = (0..500).map(|n| packet(n, 60 + n * 3 % 1400)).collect();
        let mut capture = CaptureOutput::create(&from).unwrap();
        for packets in packets.chunks(BATCH) {
            let batch = filled(&pool, packets);
            capture.send(&batch, Lanes::ALL, &mut drops).unwrap();
        }
        capture.flush().unwrap();
        let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", from.display(), to.display());
        let settings = settings(&device);
        let (mut input, mut output) = (input(&settings, &pool), output(&settings, &pool));
        let mut batch = Batch::new(pool.clone());
        let mut received = 0;
        while received < packets.len() {
            let number = receive(&mut input, &mut batch, &mut drops);
            assert!(number > 0, "{received} packets");
            for (lane, packet) in batch.lanes().into_iter().zip(&packets[received..]) {
                assert_eq!(batch.bytes(lane), packet);
                let place = pool.memory().base().as_ptr() as usize;
                let place = batch.bytes(lane).as_ptr() as usize - place;
                assert_eq!(pool.locate(place).unwrap().1, 128, "where the driver puts packets");
            }
            output.send_frames(&mut batch, Lanes::ALL, &mut drops).unwrap();
            received += number;
        }
        drop((batch, input, output));
        assert_eq!((drops.total(), pool.in_use()), (0, 0));
        let mut written = CaptureInput::open(&to, 1).unwrap();
        let mut batch = Batch::new(pool.clone());
        let mut read = 0;
        loop {
            let ended = written.receive(&mut batch, BATCH, &mut drops).unwrap().ended;
            for (lane, packet) in batch.lanes().into_iter().zip(&packets[read..]) {
                assert_eq!(batch.bytes(lane), packet);
            }
            read += batch.len();
            batch.release(Lanes::ALL);
            if ended {
                break;
            }
        }
        assert_eq!(read, packets.len());
    });
}

/// Two inputs take the packets of four queues, each those of its own ones.
#[test]
fn inputs_share_the_queues_of_a_device() {
    with_dpdk(|| {
        let pool = pool();
        let settings =
            DpdkSettings { queues: 4, descriptors: 64, ..settings("net_null0,size=100") };
        let mut inputs = DpdkInput::open(&settings, &pool, 2).unwrap();
        assert_eq!(inputs.len(), 2);
        let mut outputs = DpdkOutput::open(&settings, &pool, 8).unwrap();
        assert_eq!(outputs.len(), 4);
        assert!(inputs[0].mode().contains("4 queues of 64 descriptors"), "{}", inputs[0].mode());
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        for _ in 0..100 {
            for (input, output) in inputs.iter_mut().zip(&mut outputs) {
                assert_eq!(input.receive(&mut batch, BATCH, &mut drops).unwrap().packets, BATCH);
                assert!(batch.lanes().into_iter().all(|lane| batch.bytes(lane).len() == 100));
                output.send_frames(&mut batch, Lanes::ALL, &mut drops).unwrap();
            }
        }
        drop((inputs, outputs));
        assert_eq!((drops.total(), pool.in_use()), (0, 0));
    });
}

#[test]
fn a_device_is_opened_and_closed_a_hundred_times_without_a_frame_lost() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_ring0"));
        let mut drops = DropCounts::default();
        for round in 0..100 {
            let (mut output, mut input) = (output(&settings, &pool), input(&settings, &pool));
            let mut sending = filled(&pool, &[packet(round, 60), packet(round + 1, 60)]);
            output.send_frames(&mut sending, Lanes::ALL, &mut drops).unwrap();
            let mut batch = Batch::new(pool.clone());
            assert_eq!(input.receive(&mut batch, 1, &mut drops).unwrap().packets, 1);
            if round % 2 == 0 {
                drop(output);
                drop(input);
            } else {
                drop(input);
                drop(output);
            }
            drop((batch, sending));
            assert_eq!(pool.in_use(), 0, "round {round}");
        }
        assert_eq!(drops.total(), 0);
    });
}

#[test]
fn a_driver_without_frames_counts_what_it_cannot_receive_and_goes_on_later() {
    with_dpdk(|| {
        let (pool, settings) = (pool(), settings("net_null0"));
        let mut input = input(&settings, &pool);
        let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
        let mut taken = Vec::new();
        pool.take_many(usize::MAX, |frame| taken.push(frame));
        assert_eq!(input.receive(&mut batch, BATCH, &mut drops).unwrap().packets, 0);
        pool.give_back(taken);
        assert_eq!(input.receive(&mut batch, BATCH, &mut drops).unwrap().packets, BATCH);
        drop((batch, input));
        assert_eq!(pool.in_use(), 0);
    });
}

/// A thread that waits for packets sleeps, and only once none have come for a while.
#[test]
fn an_input_without_packets_is_looked_at_now_and_then() {
    with_dpdk(|| {
        let pool = pool();
        for sleep in [0, 200] {
            let settings = DpdkSettings { idle_sleep_us: sleep, ..settings("net_ring0") };
            let (mut output, mut input) = (output(&settings, &pool), input(&settings, &pool));
            let (mut batch, mut drops) = (Batch::new(pool.clone()), DropCounts::default());
            input.receive(&mut batch, BATCH, &mut drops).unwrap();
            assert!(input.due().is_none(), "packets may come at once");
            thread::sleep(Duration::from_millis(2));
            input.receive(&mut batch, BATCH, &mut drops).unwrap();
            assert_eq!(input.due().is_some(), sleep > 0);
            output
                .send_frames(&mut filled(&pool, &[packet(0, 60)]), Lanes::ALL, &mut drops)
                .unwrap();
            assert_eq!(input.receive(&mut batch, BATCH, &mut drops).unwrap().packets, 1);
            assert!(input.due().is_none(), "packets come");
        }
    });
}
