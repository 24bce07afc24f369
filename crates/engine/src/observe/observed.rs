//! The observation of the packets of a batch, which travels with them.

use std::sync::Arc;

use thalweg_chain::NfIndex;
use thalweg_classify::Classifier;
use thalweg_nf::{Emitted, Verdict, Verdicts};
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes};

use super::drops::DropPlace;
use super::{Audience, TraceWatch};
use crate::trace::Tracer;

/// What NFs explain, by lane.
pub(crate) type Notes = Vec<(usize, String)>;

/// The observation of the packets of a batch, in which they keep their lanes.
///
/// Its functions are cold: batches are rarely observed.
pub(crate) struct Observed {
    audience: Arc<Audience>,
    /// The number of packets received before the batch.
    before: u64,
    tracers: Vec<(Tracer, Arc<TraceWatch>)>,
}

impl Observed {
    /// The observation of a batch, ahead of which the run has received `before` packets.
    pub(crate) fn new(audience: Arc<Audience>, before: u64) -> Self {
        Self { audience, before, tracers: Vec::new() }
    }

    /// That of packets that are generated for these, whose paths are not traced.
    pub(crate) fn of_generated(&self) -> Option<Self> {
        let audience = &self.audience;
        (!audience.drops.is_empty()).then(|| Self::new(audience.clone(), self.before))
    }

    /// Begins the traces of the packets that match, which are parsed and about to be classified.
    #[cold]
    pub(crate) fn begin(&mut self, batch: &Batch, classifier: &mut Classifier) {
        let Audience { plan, traces, .. } = &*self.audience;
        for watch in traces {
            for (number, lane) in (self.before + 1..).zip(batch.lanes()) {
                if watch.is_done() {
                    break;
                }
                if watch.pattern.covers(batch, lane, plan) && watch.take() {
                    let tracer = Tracer::new(number, batch, lane, plan, classifier);
                    self.tracers.push((tracer, watch.clone()));
                }
            }
        }
    }

    /// Begins the visit of the packets of `lanes` to an NF; returns the list for its explanations if
    /// one of them is traced.
    #[cold]
    pub(crate) fn enter(&mut self, batch: &Batch, lanes: Lanes, nf: NfIndex) -> Option<Notes> {
        let mut is_traced = false;
        for (tracer, _) in self.tracers.iter_mut().filter(|(t, _)| lanes.contains(t.lane())) {
            tracer.enter(batch, &self.audience.plan, nf);
            is_traced = true;
        }
        is_traced.then(Notes::new)
    }

    /// Ends the visit, with all packets still in the batch.
    #[cold]
    pub(crate) fn leave(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        nf: NfIndex,
        verdicts: &Verdicts,
        emitted: &Emitted,
        notes: Option<Notes>,
    ) {
        let Audience { plan, drops, .. } = &*self.audience;
        // A device that has failed keeps frames, and there may be no others for their packets.
        if notes.is_none() && drops.is_empty() || !batch.has_frames(lanes) {
            return;
        }
        batch.parse_changed();
        let place = DropPlace::Nf(self.audience.name(nf));
        let notes = notes.unwrap_or_default();
        for (tracer, _) in self.tracers.iter_mut().filter(|(t, _)| lanes.contains(t.lane())) {
            tracer.leave(batch, plan, emitted, verdicts.of(tracer.lane()), &notes);
        }
        for lane in lanes {
            let reason = match verdicts.of(lane) {
                Verdict::Forward => continue,
                Verdict::Drop(reason) => reason,
                Verdict::Punt => DropReason::Punted,
            };
            self.drop(batch, lane, &place, reason);
        }
    }

    /// Records that the packets of `lanes` are dropped at an NF that does not process them.
    #[cold]
    pub(crate) fn dropped(&mut self, batch: &Batch, lanes: Lanes, nf: NfIndex, reason: DropReason) {
        let place = DropPlace::Nf(self.audience.name(nf));
        lanes.into_iter().for_each(|lane| self.drop(batch, lane, &place, reason));
    }

    /// Records that the packets of `lanes` are dropped after the NF `after`, or ahead of the first one.
    #[cold]
    pub(crate) fn lost(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        after: Option<NfIndex>,
        reason: DropReason,
    ) {
        let place = DropPlace::Chain(after.map(|nf| self.audience.name(nf)));
        lanes.into_iter().for_each(|lane| self.drop(batch, lane, &place, reason));
    }

    /// Records that an output has transmitted the packets of `sent` among `lanes`, and has dropped the
    /// others for these `reasons`.
    #[cold]
    pub(crate) fn transmitted(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        output: usize,
        sent: Lanes,
        reasons: &DropCounts,
    ) {
        let name = self.audience.plan.outputs[output].name.clone();
        for (tracer, _) in self.tracers.iter_mut().filter(|(t, _)| sent.contains(t.lane())) {
            tracer.transmitted(&name);
        }
        let place = DropPlace::Output(name);
        for (lane, reason) in assigned(batch, lanes.without(sent), reasons) {
            self.drop(batch, lane, &place, reason);
        }
    }

    fn drop(&mut self, batch: &Batch, lane: usize, place: &DropPlace, reason: DropReason) {
        for (tracer, _) in self.tracers.iter_mut().filter(|(t, _)| t.lane() == lane) {
            tracer.dropped(place, reason);
        }
        for watch in &self.audience.drops {
            watch.record(batch, lane, &self.audience.plan, place, reason);
        }
    }

    /// Ends the observation: every packet is at its end.
    pub(crate) fn end(self) {
        for (tracer, watch) in self.tracers {
            watch.finish(tracer.finish());
        }
    }
}

/// The packets that an output has dropped, each with its reason. Outputs count their reasons; where
/// there are several, the longest packets were too big and the shortest malformed.
fn assigned(
    batch: &Batch,
    dropped: Lanes,
    reasons: &DropCounts,
) -> impl Iterator<Item = (usize, DropReason)> {
    let mut lanes: Vec<_> = dropped.into_iter().collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(batch.packet_len(*lane)));
    let rank = |reason: DropReason| match reason {
        DropReason::TooBig => 0,
        DropReason::Malformed => 2,
        _ => 1,
    };
    let mut counted: Vec<_> = reasons.iter().collect();
    counted.sort_by_key(|(reason, _)| rank(*reason));
    let one_by_one = |(reason, count)| std::iter::repeat_n(reason, count as usize);
    let reasons = counted.into_iter().flat_map(one_by_one);
    // An output that drops a packet counts it.
    lanes.into_iter().zip(reasons.chain(std::iter::repeat(DropReason::OutputFailed)))
}

#[cfg(test)]
mod tests {
    use thalweg_packet::{BATCH, Pool};

    use super::*;

    #[test]
    fn each_packet_that_an_output_drops_has_one_of_its_reasons() {
        let mut batch = Batch::new(Arc::new(Pool::anonymous(BATCH, 2048).unwrap()));
        for len in [60, 1400, 9, 100, 1500, 70] {
            batch.push_bytes(&vec![0; len]).unwrap();
        }
        let mut reasons = DropCounts::default();
        for reason in [DropReason::TransmitQueueFull, DropReason::TooBig, DropReason::Malformed] {
            reasons.add(reason, 1);
        }
        let found: Vec<_> = assigned(&batch, Lanes(0b01_0101), &reasons).collect();
        let expected = [
            (4, DropReason::TooBig),
            (0, DropReason::TransmitQueueFull),
            (2, DropReason::Malformed),
        ];
        assert_eq!(found, expected);
    }
}
