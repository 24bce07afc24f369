//! Traces the path of one packet through a chain, step by step, like
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

/// The path of one packet. Its JSON form is versioned by `schema`, its `Display` form is for a
/// person.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// `thalweg.trace/1`.
    pub schema: &'static str,
    /// The packet's number, from 1, in the order received.
    pub packet: u64,
    /// The input that received it.
    pub input: String,
    /// The time of its capture, in nanoseconds.
    pub timestamp_ns: u64,
    /// Its length in bytes.
    pub length: usize,
    /// Its flow key in flow syntax: the fields that are not zero.
    pub flow: String,
    /// How far parsing got, why it ended there, and the positions of the headers.
    pub parsed: String,
    /// The layer of classification that answered.
    pub layer: &'static str,
    /// The rule that matched, as written.
    pub rule: Option<String>,
    /// The packets that the megaflow of this answer covers, in flow syntax.
    pub megaflow: String,
    /// Its packet type.
    pub packet_type: String,
    /// The steps of the path, one for each NF.
    pub steps: Vec<Step>,
    /// Its fate: transmitted, or dropped with the reason.
    pub fate: String,
}

/// The effect of one NF on the packet.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// The NF.
    pub nf: String,
    /// Its reasons, in the NF's own words.
    pub explanations: Vec<String>,
    /// The bytes it changed.
    pub changes: Vec<Change>,
    /// The packet's length in bytes after it.
    pub length: usize,
    /// The flow key after it, when it changed.
    pub flow: Option<String>,
    /// Packets it generated: their lengths and flow keys.
    pub emitted: Vec<String>,
    /// Forward, or drop with the reason.
    pub verdict: String,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The inputs end before the packet.
    #[error("there is no packet {packet}: the inputs end after packet {there}")]
    NoSuchPacket {
        /// The requested packet.
        packet: u64,
        /// The number of packets in the inputs.
        there: u64,
    },
    /// The packet was dropped or lost on receive.
    #[error("packet {packet} was lost on receive: {reason}")]
    NotReceived {
        /// The requested packet.
        packet: u64,
        /// Why.
        reason: DropReason,
    },
    /// An input failed before the packet.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Sends packets through the chain on one worker, until packet number `packet`
/// (from 1), so that it meets the state of a run; explains that packet.
///
/// Inputs are read as in a run: in turn, 32 packets each. The options other than
/// the passes over captures have no effect. Nothing is transmitted. NFs write files
/// unless the plan was loaded as a dry run. If a live input has too few packets yet,
/// this waits for more.
///
/// # Errors
/// If there is no such packet.
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
                        // As in a run, the other inputs continue.
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

/// Takes the one packet of `batch`, if any, through the chain; explains it if
/// it is the requested one, whose number is then given.
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

/// An exit that discards all packets; a traced chain runs on one worker.
struct Nowhere;

impl Exit for Nowhere {
    fn transmit(&mut self, _output: usize, _batch: &mut Batch, _lanes: Lanes) {}

    fn to_pinned(&mut self, _nf: NfIndex, batch: &mut Batch, lanes: Lanes) {
        batch.release(lanes);
    }
}
