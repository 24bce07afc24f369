//! Capture files: whatever they hold, reading ends, and no frame is lost.

use std::path::Path;
use std::sync::Arc;

use thalweg_io::{
    CaptureFiles, CaptureInput, DirectInput, Input, MemoryInput, Selection, TimeRange,
};
use thalweg_packet::{BATCH, Batch, DropCounts, Pool};

/// Reads a capture file to its end, by copies and without; and, as the files of one input, two that have the same start
/// and one that has the rest.
pub fn captures(data: &[u8]) {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let written = |name: &str, data: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, data).expect("the file can be written");
        path
    };
    let path = written("whole", data);
    read_one(&path, data.len());
    let copying = CaptureInput::open(&path, 2).ok();
    let direct = DirectInput::open(&path, TimeRange::default(), 2).ok();
    if let (Some(copying), Some(direct)) = (copying, direct) {
        assert_eq!(read(Box::new(copying), data.len()), read(Box::new(direct), data.len()));
    }
    let (start, rest) = data.split_at(data.len() * 2 / 3);
    let paths = [path, written("start", start), written("rest", rest)];
    let (files, _) = CaptureFiles::several(paths);
    let all = Selection::default();
    let streamed = CaptureInput::open_files(&files, all.clone(), 1).expect("opened when due");
    let loaded = MemoryInput::load_files(&files, all, 1).expect("opened when due");
    assert_eq!(read(Box::new(streamed), data.len()), read(Box::new(loaded), data.len()));
}

fn read_one(path: &Path, len: usize) {
    if let Ok(input) = CaptureInput::open(path, 2) {
        read(Box::new(input), len);
    }
}

/// Reads an input of at most three files, none longer than `len` bytes, to its end; returns the
/// number of its packets.
fn read(mut input: Box<dyn Input>, len: usize) -> u64 {
    let pool = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
    let mut batch = Batch::new(pool.clone());
    let mut drops = DropCounts::default();
    let (mut packets, mut delivered, mut errors) = (0, 0, 0);
    loop {
        match input.receive(&mut batch, BATCH, &mut drops) {
            Ok(received) => {
                packets += received.packets as u64;
                delivered += batch.len() as u64;
                batch.release(batch.lanes());
                if received.ended {
                    break;
                }
            }
            Err(_) => errors += 1,
        }
        // A gzip bomb is bounded by its input: a thousandfold at most.
        assert!(packets <= 3 * (200 * len as u64 + 2));
        assert!(errors <= 3, "one for each file");
    }
    assert!(packets <= delivered + drops.total());
    drop(batch);
    assert_eq!(pool.in_use(), 0);
    packets
}
