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
