//! Long compressed captures are decompressed by a thread, which does not outlive its input.

mod common;

use std::sync::Arc;

use thalweg_io::{CaptureFiles, CaptureInput, CaptureOutput, Input, Output, Selection};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds, Pool};

/// The threads of this process that decompress.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "decompress").count()
}

#[test]
fn an_input_that_is_dropped_leaves_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [0, 1, 2, 3].map(|n| folder.path().join(format!("{n}.pcap.gz")));
    for (n, path) in paths.iter().enumerate() {
        let mut output = CaptureOutput::create(path).unwrap();
        for k in 0..5000 {
            output.write(&[7; 1000], 1000, Nanoseconds(k * 10 + n as u64)).unwrap();
        }
        output.flush().unwrap();
    }
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    let files = CaptureFiles::several(paths.to_vec()).0;
    assert_eq!(threads(), 0, "none to look into the files");
    for (files, expected) in [(CaptureFiles::one(&paths[0]), 1), (files, 2)] {
        // Stopped early, and read to the end.
        for most in [3000, usize::MAX] {
            let mut input = CaptureInput::open_files(&files, Selection::default(), 1).unwrap();
            let (mut packets, mut most_threads) = (0, 0);
            while packets < most {
                let received =
                    input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
                batch.release(Lanes::ALL);
                packets += received.packets;
                most_threads = most_threads.max(threads());
                if received.ended {
                    break;
                }
            }
            assert_eq!(most_threads, expected, "of {most} packets");
            drop(input);
            assert_eq!(threads(), 0, "after {packets} packets");
        }
    }
}
