//! Segments that were accepted before their turn, and for which rules were found.
//!
//! A segment that only continues its stream changes nothing but that, whether or not rules match it. So
//! it stays accepted, and at its turn only the rules are evaluated.

use std::sync::Arc;

use thalweg_nf::Context;
use thalweg_nf::toolkit::view::payload;
use thalweg_packet::Batch;

use super::engine::Engine;
use super::fit::Stretch;
use super::flow::Flow;
use super::flows::{Flows, Seen};
use super::inspect::{Inspector, Packet, subject};

impl Inspector {
    /// Evaluates the rules that were found for a segment, which was accepted. No later segment of its
    /// connection is.
    #[inline(never)]
    pub(super) fn ask_accepted(
        &mut self,
        engine: &Arc<Engine>,
        flows: &mut Flows,
        batch: &Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = self.ahead.slot(lane) else { return };
        let share = flows.share_of(slot);
        let Some(flow) = flows.at(slot) else { return };
        let Some(tracked) = flow.tracked.as_deref() else { return };
        let to_server = flow.is_to_server(self.ahead.is_from_low(lane));
        let (own, len) = (usize::from(!to_server), payload(batch, lane).len());
        let mut bytes = std::mem::take(&mut self.stretch);
        bytes.clear();
        let past = tracked.streams[own].past(engine.needs.tail + len);
        past.into_iter().for_each(|part| bytes.extend_from_slice(part));
        let stretch = Stretch { bytes: &bytes, fresh: bytes.len() - len };
        let mut seen = Seen {
            share,
            to_server,
            established: flow.is_established(),
            taken: Ok(len),
            before: flow.memory(),
            reset: false,
            application: tracked.app.protocol(),
            flow,
        };
        let subject = subject(engine, batch, lane);
        let mut packet = Packet { subject, context, engine, passed: false };
        packet.subject.stream = Some(stretch);
        self.take_found(lane);
        self.ask(&mut packet, Some(&mut seen));
        self.messages(&mut packet, &mut seen, false);
        self.act(&mut packet, Some(&mut seen));
        if seen.flow.is_woken(own) {
            let (before, after) = (seen.before, seen.flow.memory());
            flows.book(share, before, after);
        }
        self.stretch = bytes;
    }
}

impl Flow {
    /// Whether the rules have decided, or wait for more of a side; its segments are no longer quiet then.
    /// Otherwise they have changed no memory.
    fn is_woken(&mut self, own: usize) -> bool {
        let Some(tracked) = self.tracked.as_deref_mut() else { return true };
        let is_woken = self.verdict.is_some() || !tracked.open.is_empty_in(own);
        if is_woken {
            tracked.wake();
        }
        is_woken
    }
}
