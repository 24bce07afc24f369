//! One batch through a network function.

use std::sync::Arc;

use thalweg_packet::{Batch, Decapsulate, DropReason, Lanes, Nanoseconds, Pool};

use crate::assert_fresh;
use thalweg_nf::{Context, Emitted, NetworkFunction, Verdict};

/// A packet afterwards, or why it was dropped.
pub type Fate = Result<Vec<u8>, DropReason>;

/// Sends packets in one batch through `nf`, and checks that it marked what it changed; returns the
/// fate of each, and the packets that `nf` emitted. All arrive at the time `now`.
///
/// `frames` are the number and the size of the frames. `trace` collects explanations by lane.
///
/// # Panics
/// When the packets do not fit into the frames, when a key or headers are stale, or on a punt.
pub fn pass(
    nf: &mut dyn NetworkFunction,
    frames: (usize, usize),
    packets: &[impl AsRef<[u8]>],
    now: Nanoseconds,
    trace: Option<&mut Vec<(usize, String)>>,
) -> (Vec<Fate>, Vec<Vec<u8>>) {
    let pool = Arc::new(Pool::anonymous(frames.0, frames.1).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for packet in packets {
        let lane = batch.push_bytes(packet.as_ref()).expect("the packet fits");
        batch.meta.timestamp[lane] = now;
    }
    batch.parse(Lanes::ALL, Decapsulate::No);
    let lanes = batch.lanes();
    let mut context = Context::new(now, &mut emitted, trace);
    nf.process(&mut batch, lanes, &mut context);
    assert_fresh(&mut batch, lanes.without(context.dropped()));
    let fate = |lane| match context.verdict(lane) {
        Verdict::Forward => Ok(batch.bytes(lane).to_vec()),
        Verdict::Drop(reason) => Err(reason),
        Verdict::Punt => panic!("lane {lane} is punted"),
    };
    let fates = lanes.into_iter().map(fate).collect();
    (fates, emitted.packets().map(<[u8]>::to_vec).collect())
}

/// As [`pass`], for one packet: its fate, and the packets that `nf` emitted.
///
/// # Panics
/// As [`pass`].
pub fn pass_one(
    nf: &mut dyn NetworkFunction,
    frames: (usize, usize),
    packet: &[u8],
    now: Nanoseconds,
    trace: Option<&mut Vec<(usize, String)>>,
) -> (Fate, Vec<Vec<u8>>) {
    let (mut fates, emitted) = pass(nf, frames, &[packet], now, trace);
    (fates.remove(0), emitted)
}
