//! Capture files: whatever they hold, reading ends, and no frame is lost.

use std::sync::Arc;

use thalweg_io::{CaptureInput, Input};
use thalweg_packet::{BATCH, Batch, DropCounts, Pool};

/// Reads a capture file to its end.
pub fn captures(data: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("there is a folder for temporary files");
    std::fs::write(file.path(), data).expect("the file can be written");
    let Ok(mut input) = CaptureInput::open(file.path(), 2) else { return };
    let pool = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
    let mut batch = Batch::new(pool.clone());
    let mut drops = DropCounts::default();
    let (mut packets, mut delivered) = (0, 0);
    while let Ok(received) = input.receive(&mut batch, BATCH, &mut drops) {
        packets += received.packets as u64;
        delivered += batch.len() as u64;
        batch.release(batch.lanes());
        // A gzip bomb is bounded by its input: a thousandfold at most.
        assert!(packets <= 200 * data.len() as u64 + 2);
        if received.ended {
            break;
        }
    }
    assert!(packets <= delivered + drops.total());
    drop(batch);
    assert_eq!(pool.in_use(), 0);
}
