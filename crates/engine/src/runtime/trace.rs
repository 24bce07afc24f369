//! Sends packets through a chain until the requested one, and returns its trace.

use std::sync::Arc;

use thalweg_packet::{Batch, DropCounts, DropReason};

use super::error::RunError;
use super::options::RunOptions;
use super::ports::{Delivery, Sources, check_options, open_input};
use crate::burst::{Burst, Round};
use crate::course::{Course, transmit};
use crate::observe::{Audience, TraceWatch};
use crate::trace::Trace;
use crate::visit::Clock;
use crate::watch::Watch;
use thalweg_chain::{InputPlan, Plan};
use thalweg_source::Stop;

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
/// Inputs are read in the order of a run. Of the options, the passes over captures and the packets
/// that are selected have an effect. Nothing is transmitted. NFs write files
/// unless the plan was loaded as a dry run. If a live input has too few packets yet,
/// this waits for more.
///
/// # Errors
/// If there is no such packet.
pub fn trace(plan: Plan, packet: u64, options: &RunOptions) -> Result<Trace, TraceError> {
    check_options(&plan, options)?;
    let plan = Arc::new(plan);
    let stop = Stop::default();
    // One line, so that packets are received in the order of one.
    let open = |input: &InputPlan| open_input(&plan, input, options, 1, &stop);
    let mut lines = Sources::open(&plan, 1, open)?;
    let sources = &mut lines[0];
    let mut way = Way {
        burst: Burst::new(&plan.routing, &plan.pool, 1, true),
        course: Course::new(&plan, 1),
        clock: Clock::default(),
    };
    let (mut there, mut damage, mut vain_looks) = (0, None, 0);
    while !sources.have_ended() {
        let Delivery { source, packets, came, failure, .. } = sources.receive(way.batch(), 1, None);
        // As in a run, the other inputs continue.
        damage = damage.or(failure);
        // A live input may have missed several at once.
        let numbers = there + 1..=there + packets as u64;
        there = *numbers.end();
        let drops = sources.take_drops(source);
        let wanted = numbers.contains(&packet).then_some(packet);
        if let (Some(packet), Some((reason, _))) = (wanted, drops.iter().next()) {
            return Err(TraceError::NotReceived { packet, reason });
        }
        if packets > 0
            && let Some(trace) = way.take_through(&plan, wanted)
        {
            return Ok(trace);
        }
        vain_looks = if came { 0 } else { vain_looks + 1 };
        if vain_looks >= sources.len() {
            sources.wait(true, None);
            vain_looks = 0;
        }
    }
    Err(damage.map_or(TraceError::NoSuchPacket { packet, there }, |e| RunError::from(e).into()))
}

/// The way of one packet after the other.
struct Way {
    burst: Burst,
    course: Course,
    clock: Clock,
}

impl Way {
    /// The batch for a packet.
    fn batch(&mut self) -> &mut Batch {
        &mut self.burst.rounds[0].batch
    }

    /// Takes the one packet of the batch, if any, through the chain; explains it if it is the
    /// requested one, whose number is then given.
    fn take_through(&mut self, plan: &Arc<Plan>, wanted: Option<u64>) -> Option<Trace> {
        let Self { burst, course, clock } = self;
        let round = &mut burst.rounds[0];
        round.clock = clock.batch(&round.batch);
        let mut traces = wanted.map(|packet| {
            let (watch, traces) = TraceWatch::of_next();
            round.observe(Some(&Audience::of_trace(plan.clone(), watch)), packet - 1);
            traces
        });
        let mut watch = Watch::default();
        course.serve(burst, &mut watch);
        transmit(burst, &mut watch, |output, Round { batch, observed, .. }, lanes| {
            if let Some(observed) = observed {
                observed.transmitted(batch, lanes, output, lanes, &DropCounts::default());
            }
        });
        burst.clear();
        traces.as_mut().and_then(|traces| traces.try_next().ok())
    }
}
