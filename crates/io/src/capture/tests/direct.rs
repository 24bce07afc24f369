//! Packets that the kernel puts into frames are those that are copied there.

use super::claimed::{Reading, compare, reading, steps};
use super::*;
use crate::selection::TimeRange;

#[test]
fn packets_that_are_not_copied_are_those_that_are() {
    let reading = || prop_oneof![reading(), reading().prop_map(Reading::in_bulk)];
    proptest!(ProptestConfig::with_cases(400), |(reading in reading(), steps in steps())| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, reading.file()).unwrap();
        let (selection, loops) = (reading.selection(), reading.loops);
        let files = CaptureFiles::one(&path);
        let copying = CaptureInput::open_files(&files, selection.clone(), loops);
        let direct = DirectInput::open(&path, selection.times, loops);
        match (copying, direct) {
            (Ok(mut copying), Ok(mut direct)) => {
                compare(&mut copying, &mut direct, &steps, false);
            }
            (Err(copying), Err(direct)) => prop_assert_eq!(copying.to_string(), direct.to_string()),
            (copying, direct) => panic!("{:?}, {:?}", copying.err(), direct.err()),
        }
    });
}

#[test]
fn what_has_no_place_in_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap.gz");
    write(&path, &some_packets());
    let refused = |path: &Path| {
        DirectInput::open(path, TimeRange::default(), 1).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&path).contains("it is compressed, so that its packets are copied"));
    let (reader, _writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    assert!(refused(Path::new(&path)).contains("it is not a file"));
}

/// A packet is in the frame that it was read into, and of bulk many come with each call.
#[test]
fn packets_of_one_length_are_read_together_and_none_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    for name in &NAMES[..2] {
        let path = folder.path().join(name);
        let packets: Packets =
            (0..1000u32).map(|n| (vec![n as u8; 1000], 1000, n.into())).collect();
        write(&path, &packets);
        let mut input = DirectInput::open(&path, TimeRange::default(), 1).unwrap();
        let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
        let (mut found, mut calls) = (0, 0);
        loop {
            let received = input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
            for lane in batch.lanes() {
                assert_eq!(batch.bytes(lane), packets[found].0, "{found}");
                found += 1;
            }
            batch.release(batch.lanes());
            calls += 1;
            if received.ended {
                break;
            }
        }
        assert_eq!((found, input.copied()), (1000, Some(0)));
        let reads = input.reads();
        // Runs of 1, 2, 4 and so on, until a call of 32 packets is one.
        assert!(reads <= calls + 6, "{reads} reads in {calls} calls");
    }
}

/// A batch with these packets.
fn batch(packets: &[(Vec<u8>, u32, u64)]) -> Batch {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    for (bytes, wire_len, time) in packets {
        let lane = batch.push_bytes(bytes).unwrap();
        (batch.meta.wire_len[lane], batch.meta.timestamp[lane]) = (*wire_len, Nanoseconds(*time));
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn packets_are_written_alike_with_and_without_copies(
        batches in prop::collection::vec(
            (prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..1500), any::<u16>(), 0u64..1 << 61), 0..=BATCH,
            ), any::<u32>(), any::<bool>()),
            0..6,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for name in NAMES {
            let [copied, direct] = ["copied", "direct"].map(|kind| folder.path().join(format!("{kind}-{name}")));
            let mut copying = CaptureOutput::create(&copied).unwrap();
            let mut writing = CaptureOutput::create(&direct).unwrap().without_copies();
            let mut packets = 0;
            for (of_batch, lanes, flushes) in &batches {
                let of_batch: Packets =
                    of_batch.iter().map(|(b, wire, time)| (b.clone(), (*wire).into(), *time)).collect();
                let (batch, lanes) = (batch(&of_batch), thalweg_packet::Lanes(*lanes));
                let mut drops = DropCounts::default();
                let sent = copying.send(&batch, lanes, &mut drops).unwrap();
                prop_assert_eq!(writing.send(&batch, lanes, &mut drops).unwrap(), sent);
                prop_assert_eq!(drops.total(), 0);
                packets += sent.count() as u64;
                if *flushes {
                    copying.flush().unwrap();
                    writing.flush().unwrap();
                    if !name.ends_with("gz") {
                        prop_assert!(std::fs::read(&copied).unwrap() == std::fs::read(&direct).unwrap());
                    }
                }
            }
            let of_ours = if name.ends_with("gz") { packets } else { 0 };
            prop_assert_eq!((copying.copied(), writing.copied()), (Some(packets), Some(of_ours)));
            drop((copying, writing));
            prop_assert!(read(&copied, 1).0 == read(&direct, 1).0);
            prop_assert!(std::fs::read(&copied).unwrap() == std::fs::read(&direct).unwrap());
        }
    }
}

/// Those that the reader has got whole were sent, and all others are lost and counted, once.
#[test]
fn packets_that_a_reader_does_not_take_are_dropped() {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    let packets: Packets = (0..32u32).map(|n| (vec![n as u8; 1400], 1400, n.into())).collect();
    for read in [0, 1, 3000, 40_000] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let connection = std::fs::File::from(OwnedFd::from(writer));
        let stop = thalweg_source::Stop::default();
        let mut output =
            CaptureOutput::connected(Path::new("peer"), connection, &stop).without_copies();
        let reading = std::thread::spawn(move || reader.read_exact(&mut vec![0; read]).unwrap());
        let (batch, mut drops, mut sent) = (batch(&packets), DropCounts::default(), 0);
        let failure = loop {
            match output.send(&batch, batch.lanes(), &mut drops) {
                Ok(lanes) => sent += lanes.count(),
                Err(failure) => break failure,
            }
        };
        reading.join().unwrap();
        assert!(failure.error.to_string().contains("peer"), "{}", failure.error);
        assert_eq!((failure.lost.packets, failure.sent.count() as u64 + drops.total()), (0, 32));
        sent += failure.sent.count();
        assert!(sent * 1432 >= read.saturating_sub(1432), "{sent} packets of {read} bytes");
        let before = drops.total();
        assert_eq!(output.send(&batch, batch.lanes(), &mut drops).unwrap().count(), 0);
        assert_eq!(drops.total(), before + 32);
        assert!(output.flush().is_ok());
    }
}
