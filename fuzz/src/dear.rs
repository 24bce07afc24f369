//! The work of the intrusion detection for a datagram, which libFuzzer is made to increase.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{Batch, Decapsulate, Nanoseconds, Pool};

const RULES: &str = include_str!("../../crates/nfs/nids/tests/dear.rules");

/// Steps of work that count as new.
const LEVELS: usize = 512;

/// libFuzzer keeps an input that sets a counter that no other has set, as if it reached new code: one
/// for each level of work.
// SAFETY: the section is an array of bytes; each access is atomic.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static COUNTERS: [AtomicU8; LEVELS] = [const { AtomicU8::new(0) }; LEVELS];

fn build() -> Box<dyn NetworkFunction> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("dear.rules");
    std::fs::write(&path, RULES).expect("the file can be written");
    let options = format!("rules = ['{}']\nunsupported = 'refuse'", path.display());
    thalweg_nids::KIND.build_alone(&options).expect("the options are right").instance()
}

thread_local! {
    static POOL: Arc<Pool> = Arc::new(Pool::anonymous(4, 2048).expect("there is memory"));
}

/// Inspects a datagram: two bytes of its destination port, and its payload.
///
/// # Panics
/// If the work exceeds the bound.
pub fn dear(data: &[u8]) {
    thread_local!(static NF: std::cell::RefCell<Box<dyn NetworkFunction>> = build().into());
    let Some((port, payload)) = data.split_first_chunk() else { return };
    let payload = &payload[..payload.len().min(1472)];
    let builder = PacketBuilder::new([2; 6], [4; 6]);
    let builder = builder.ip([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
    let packet = builder.udp(40_000, u16::from_be_bytes(*port)).build(payload);
    let pool = POOL.with(Arc::clone);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    batch.push_bytes(&packet).expect("a frame is free");
    let lanes = batch.lanes();
    batch.parse(lanes, Decapsulate::No);
    thalweg_nids::work::take();
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    NF.with_borrow_mut(|nf| nf.process(&mut batch, lanes, &mut context));
    let (work, most) = (thalweg_nids::work::take(), thalweg_nids::work::most(payload.len()));
    assert!(work <= most, "{work} steps for {} bytes, {most} at most", payload.len());
    let level = (work * LEVELS as u64 / (most + 1)) as usize;
    COUNTERS[level].store(1, Ordering::Relaxed);
    batch.release(lanes);
}
