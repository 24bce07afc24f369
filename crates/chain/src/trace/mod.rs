//! One packet's way through a chain, step by step, in the manner of
//! `ofproto/trace`.

mod render;
mod tracer;
mod words;

use serde::Serialize;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, PortIndex};

use crate::config::Plan;
use crate::forwarding::Exit;
use crate::route_decider::NfIndex;
use crate::runtime::{RunError, RunOptions, build_lone_worker, open_inputs, wait};
use crate::worker::Worker;

pub(crate) use tracer::Tracer;
pub use words::Change;

/// What one packet went through. Its JSON form is versioned by `schema`, its
/// `Display` form is for a reader.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// `thalweg.trace/1`.
    pub schema: &'static str,
    /// The packet's number, from 1, in the order of receive.
    pub packet: u64,
    /// The input it came in by.
    pub input: String,
    /// When it was captured, in nanoseconds.
    pub timestamp_ns: u64,
    /// Its length in bytes.
    pub length: usize,
    /// Its flow key in flow syntax: the fields that are not zero.
    pub flow: String,
    /// How far parsing came, why it ended there, and where the headers lie.
    pub parsed: String,
    /// The layer of classification that answered.
    pub layer: &'static str,
    /// The rule that matched, as written.
    pub rule: Option<String>,
    /// What the megaflow of this answer covers, in flow syntax.
    pub megaflow: String,
    /// Its packet type.
    pub packet_type: String,
    /// What each NF did.
    pub steps: Vec<Step>,
    /// What became of it in the end.
    pub fate: String,
}

/// What one NF did to the packet.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// The NF.
    pub nf: String,
    /// Its reasons, in its own words.
    pub explanations: Vec<String>,
    /// The bytes it changed.
    pub changes: Vec<Change>,
    /// The packet's length in bytes after it.
    pub length: usize,
    /// The flow key after it, when it changed.
    pub flow: Option<String>,
    /// Packets it made: their lengths and flow keys.
    pub emitted: Vec<String>,
    /// Forward, or drop with the reason.
    pub verdict: String,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The inputs end before the packet.
    #[error("there is no packet {packet}: the inputs have {there}, counted from 1")]
    NoSuchPacket {
        /// The packet that was asked for.
        packet: u64,
        /// How many there are.
        there: u64,
    },
    /// The packet was not taken in.
    #[error("packet {packet} was lost on receive: {reason}")]
    NotReceived {
        /// The packet that was asked for.
        packet: u64,
        /// Why.
        reason: DropReason,
    },
    /// An input failed before the packet.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Sends packets through the chain on one worker, up to packet number `packet`
/// (from 1), so that the state it meets is that of a run; explains it.
///
/// Inputs are read as in a run: in turn, 32 packets each. Of the options only
/// the passes over captures count. Nothing is transmitted. NFs write files
/// unless the plan was loaded as a dry run. Where a live input has too few packets yet, this waits
/// for more.
///
/// # Errors
/// When there is no such packet.
#[allow(clippy::needless_pass_by_value)] // a plan is for one run: its NFs hold state and files
pub fn trace(plan: Plan, packet: u64, options: &RunOptions) -> Result<Trace, TraceError> {
    let mut inputs = open_inputs(&plan, options)?;
    let mut open = vec![true; inputs.len()];
    let mut worker = build_lone_worker(&plan);
    let mut batch = Batch::new(plan.pool.clone());
    let (mut there, mut damage) = (0, None);
    while open.contains(&true) {
        let before = there;
        for number in 0..inputs.len() {
            for _ in 0..BATCH {
                if !open[number] {
                    break;
                }
                let mut drops = DropCounts::default();
                let received = match inputs[number].receive(&mut batch, 1, &mut drops) {
                    Ok(received) => received,
                    Err(e) => {
                        // As in a run, the other inputs go on.
                        damage.get_or_insert(e);
                        continue;
                    }
                };
                open[number] = !received.ended;
                // A live input may have missed several at once.
                let numbers = there + 1..=there + received.packets as u64;
                there = *numbers.end();
                if received.packets == 0 {
                    break;
                }
                let wanted = numbers.contains(&packet).then_some(packet);
                if let (Some(packet), Some((reason, _))) = (wanted, drops.iter().next()) {
                    return Err(TraceError::NotReceived { packet, reason });
                }
                if let Some(trace) = take_through(&plan, &mut worker, &mut batch, number, wanted) {
                    return Ok(trace);
                }
            }
        }
        if there == before {
            wait(&inputs, &open);
        }
    }
    Err(damage.map_or(TraceError::NoSuchPacket { packet, there }, |e| RunError::from(e).into()))
}

/// Takes the one packet of `batch`, if any, through the chain; explains it when
/// it is the wanted one, whose number is given.
fn take_through(
    plan: &Plan,
    worker: &mut Worker,
    batch: &mut Batch,
    input: usize,
    wanted: Option<u64>,
) -> Option<Trace> {
    for lane in batch.lanes() {
        batch.meta.in_port[lane] = PortIndex(input as u16);
    }
    worker.tracer = wanted.map(|packet| Tracer::new(plan, packet, &plan.inputs[input].name));
    worker.ingress(batch, &mut Nowhere);
    worker.tracer.take().map(Tracer::finish)
}

/// An exit that keeps nothing; a traced chain runs on one worker.
struct Nowhere;

impl Exit for Nowhere {
    fn transmit(&mut self, _output: usize, _batch: &mut Batch, _lanes: Lanes) {}

    fn to_pinned(&mut self, _nf: NfIndex, batch: &mut Batch, lanes: Lanes) {
        batch.release(lanes);
    }
}
