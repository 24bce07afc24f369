//! Our own cuckoo table, that of `thalweg_classify::cuckoo`: the very table, with its hash
//! and its displacements, laid out at simulated addresses, and its lookups as programs of
//! micro-operations. Keys have 16 bytes and lie in the buckets' lines, three a line.
//!
//! The steps are those of the code that rustc 1.95 makes for x86-64 at `-O`, in our words:
//! what is loaded and stored, what needs what, and which way branches go.

mod one;
mod step;

use std::sync::Arc;

use thalweg_classify::cuckoo::{self, HashKind, Reader, Walk, Writer};

use crate::machine::{Address, LINE, Layout, Region};
use crate::table::mix;

/// Keys that are looked up together.
pub const STEP: usize = cuckoo::STEP;
/// Bytes of a key.
pub const KEY: u64 = 16;
/// Places of a bucket.
const WAYS: usize = 3;
/// Word of a line that its state lies in.
const STATE: u64 = 7;
/// Word of a line where values begin.
const VALUES: u64 = 6;
/// Of its places, the part that the table fills before it grows, in percent.
const LOAD: u64 = 95;

/// The table.
#[derive(Clone, Debug)]
pub struct OwnTable {
    writer: Arc<Writer<2>>,
    lines: Region,
    /// What a reader keeps, what it shares with the writer, what all lookups need of the
    /// table.
    reader: Region,
    shared: Region,
    core: Region,
    stack: Region,
}

/// A table of about `places` places with keys 0 to `keys`, and its reader.
///
/// # Panics
/// When there is no memory for it.
pub fn filled(places: u64, keys: u32, seed: u64) -> (Writer<2>, Reader<2>) {
    let room = (places * LOAD / 100) as usize;
    let (mut writer, reader) = cuckoo::table(room, HashKind::Murmur3, mix(seed) as u32);
    for number in 0..keys {
        writer.insert(&key_of(number.into()), number);
    }
    (writer, reader)
}

/// Key `number`.
#[inline]
pub fn key_of(number: u64) -> [u64; 2] {
    [number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number]
}

impl OwnTable {
    /// The table that [`filled`] gives.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub fn new(places: u64, keys: u32, seed: u64, layout: &mut Layout) -> Self {
        let (writer, _) = filled(places, keys, seed);
        let lines = layout.region(writer.buckets() as u64 * LINE);
        let [reader, shared] = [(); 2].map(|()| layout.region(LINE));
        let (core, stack) = (layout.region(6 * LINE), layout.region(64 * LINE));
        Self { writer: Arc::new(writer), lines, reader, shared, core, stack }
    }

    /// Keys in it.
    pub fn len(&self) -> u64 {
        self.writer.len() as u64
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Its buckets' lines.
    pub fn lines(&self) -> Region {
        self.lines
    }

    /// The path of a lookup of key `number`.
    pub fn walk(&self, number: u32) -> Walk {
        self.writer.walk(&key_of(number.into()))
    }

    /// A bucket's line.
    fn line(&self, bucket: u32) -> Address {
        self.lines.at(u64::from(bucket) * LINE)
    }
}

/// Word `n` of the line at `line`.
fn word(line: Address, n: u64) -> Address {
    line.plus(8 * n)
}
