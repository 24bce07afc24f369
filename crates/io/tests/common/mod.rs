//! Helpers of the tests of ports.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;

use thalweg_io::{Input, IoError};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, MAX_FRAME_SIZE, Nanoseconds, Pool};

/// One packet as an input delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub timestamp: Nanoseconds,
}

/// All that an input delivered until its end.
#[derive(Debug, Default)]
pub struct Drained {
    pub packets: Vec<Seen>,
    pub received: usize,
    pub bytes: u64,
    pub drops: DropCounts,
    pub error: Option<IoError>,
}

/// Runs `input` until its end, and checks the laws of every input: no packet is
/// lost without a count, at most one error is returned, and no frame leaks.
pub fn drain(input: &mut dyn Input) -> Drained {
    let pool = Arc::new(Pool::anonymous(64, MAX_FRAME_SIZE).unwrap());
    let mut batch = Batch::new(pool.clone());
    let mut all = Drained::default();
    loop {
        match input.receive(&mut batch, BATCH, &mut all.drops) {
            Ok(received) => {
                all.received += received.packets;
                all.bytes += received.bytes;
                for lane in batch.lanes() {
                    all.packets.push(Seen {
                        bytes: batch.bytes(lane).to_vec(),
                        wire_len: batch.meta.wire_len[lane],
                        timestamp: batch.meta.timestamp[lane],
                    });
                }
                batch.release(Lanes::ALL);
                if received.ended {
                    break;
                }
            }
            Err(error) => {
                assert!(
                    batch.is_empty(),
                    "packets before the damage are delivered without the error"
                );
                assert!(all.error.is_none(), "damage is reported once, not again as {error}");
                all.error = Some(error);
            }
        }
    }
    assert_eq!(all.received as u64, all.packets.len() as u64 + all.drops.total());
    assert_eq!(pool.in_use(), 0, "all frames are back");
    all
}
