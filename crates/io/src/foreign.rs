//! Packet memory that another owner allocated, such as the driver of a GPU: for tests.
//!
//! `unsafe` here: the memory is adopted by its address.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapOptions;
use thalweg_packet::{PacketMemory, Pool};

/// A pool in such memory.
pub(crate) fn pool(frames: usize, frame_size: usize) -> Arc<Pool> {
    let len = Pool::region_len(frames, frame_size);
    let mut map = MmapOptions::new().len(len).map_anon().unwrap();
    let base = NonNull::new(map.as_mut_ptr()).unwrap();
    // SAFETY: the map is the owner, which is handed over, and nothing else refers to its bytes.
    let memory = unsafe { PacketMemory::from_raw_parts(base, len, Box::new(map)) };
    Arc::new(Pool::new(memory, frame_size).unwrap())
}

/// The same in memory whose pages the kernel cannot pin for a device to write, as is so with that of some
/// drivers. Its frames must not be written.
pub(crate) fn unpinnable_pool(frames: usize, frame_size: usize) -> Arc<Pool> {
    let len = Pool::region_len(frames, frame_size);
    let map = MmapOptions::new().len(len).map_anon().unwrap().make_read_only().unwrap();
    let base = NonNull::new(map.as_ptr().cast_mut()).unwrap();
    // SAFETY: as above; the test writes no frame.
    let memory = unsafe { PacketMemory::from_raw_parts(base, len, Box::new(map)) };
    Arc::new(Pool::new(memory, frame_size).unwrap())
}
