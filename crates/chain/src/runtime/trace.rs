//! Sends packets through a chain until the requested one, and returns its trace.

use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes, PortIndex};

use super::error::RunError;
use super::options::RunOptions;
use super::ports::{open_inputs, wait};
use super::workers::build_lone_worker;
use crate::config::Plan;
use crate::forwarding::Exit;
use crate::route_decider::NfIndex;
use crate::trace::{Labels, Trace, Tracer};
use crate::worker::Worker;

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
    worker.tracer =
        wanted.map(|packet| Tracer::new(packet, &plan.inputs[input].name, labels(plan)));
    worker.ingress(batch, &mut Nowhere);
    worker.tracer.take().map(Tracer::finish)
}

fn labels(plan: &Plan) -> Labels {
    Labels {
        inputs: plan.inputs.iter().map(|input| input.name.clone()).collect(),
        nfs: plan.nfs.iter().map(|nf| nf.name.clone()).collect(),
        outputs: plan.outputs.iter().map(|output| output.name.clone()).collect(),
        types: plan.types.iter().cloned().collect(),
    }
}

/// An exit that discards all packets; a traced chain runs on one worker.
struct Nowhere;

impl Exit for Nowhere {
    fn transmit(&mut self, _output: usize, _batch: &mut Batch, _lanes: Lanes) {}

    fn to_pinned(&mut self, _nf: NfIndex, batch: &mut Batch, lanes: Lanes) {
        batch.release(lanes);
    }
}
