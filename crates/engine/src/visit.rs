//! A visit: one call of an NF with the packets of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thalweg_chain::NfIndex;
use thalweg_cpu::cycles;
use thalweg_nf::{Context, Emitted, NetworkFunction, Verdict, Verdicts};
use thalweg_packet::{Batch, DropReason, Lanes, Nanoseconds};

use crate::counters::NfCounters;
use crate::guard::{self, Place};
use crate::observe::{Notes, Observed};

/// The clock of a line: how far the times of packets have come.
#[derive(Default)]
pub(crate) struct Clock {
    /// The time reached at the end of the last batch.
    reached: Option<Nanoseconds>,
    /// The time that all lines have reached, about; `None` with one line. Without it, a line that had no
    /// packets for a while would set the clocks of NFs back.
    common: Option<Arc<AtomicU64>>,
}

/// How far the common clock of several lines may be behind one of them, so that they rarely wait for each
/// other's cache.
const LAG: Nanoseconds = Nanoseconds::from_millis(1);

impl Clock {
    /// The clocks of this many lines, which go on with those of `before`.
    pub(crate) fn divide(before: &[Self], lines: usize) -> Vec<Self> {
        let reached = Self::newest(before);
        let start = reached.unwrap_or_default().0;
        let common = (lines > 1).then(|| Arc::new(AtomicU64::new(start)));
        (0..lines).map(|_| Self { reached, common: common.clone() }).collect()
    }

    /// The newest time of all lines so far; `None` before the first packet.
    pub(crate) fn newest(lines: &[Self]) -> Option<Nanoseconds> {
        lines.iter().filter_map(|line| line.reached).reduce(Nanoseconds::follow)
    }

    /// Begins a batch; returns the time reached before it.
    pub(crate) fn batch(&mut self, batch: &Batch) -> Nanoseconds {
        let (Some(first), Some(last)) = (batch.lanes().lowest(), batch.lanes().highest()) else {
            return self.reached.unwrap_or_default();
        };
        let times = &batch.meta.timestamp;
        let before = self.reached_by_all().unwrap_or(times[first]);
        // Of a batch out of order, that may not be the newest; the next batch makes up for it.
        let reached = before.follow(times[last]);
        self.reached = Some(reached);
        if let Some(common) = &self.common
            && common.load(Relaxed).abs_diff(reached.0) > LAG.0
        {
            common.store(reached.0, Relaxed);
        }
        before
    }

    fn reached_by_all(&self) -> Option<Nanoseconds> {
        let Some(common) = &self.common else { return self.reached };
        // 0: no line has had a packet.
        let common = Some(Nanoseconds(common.load(Relaxed))).filter(|time| time.0 > 0);
        match (self.reached, common) {
            (Some(own), Some(common)) => Some(own.follow(common)),
            (own, common) => own.or(common),
        }
    }
}

/// One call of an NF: the packets, and the places for its results.
pub(crate) struct Visit<'a> {
    pub(crate) nf: NfIndex,
    pub(crate) batch: &'a mut Batch,
    pub(crate) lanes: Lanes,
    pub(crate) clock: Nanoseconds,
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) observed: Option<&'a mut Observed>,
}

/// Lets an NF `serve` a visit's packets, and counts their verdicts; returns the lanes that continue.
/// The other packets are still in the batch.
#[inline]
pub(crate) fn process(
    serve: impl FnOnce(&mut Batch, &mut Context<'_>),
    visit: &mut Visit<'_>,
    counters: &mut NfCounters,
) -> Lanes {
    let mut notes = enter(visit, counters);
    let start = cycles::now();
    let verdicts = part(serve, visit, Verdicts::default(), notes.as_mut());
    leave(visit, counters, &verdicts, cycles::now().wrapping_sub(start), notes)
}

/// Counts the packets of a visit that begins; returns the list for explanations if one is traced.
#[inline]
pub(crate) fn enter(visit: &mut Visit<'_>, counters: &mut NfCounters) -> Option<Notes> {
    let Visit { nf, batch, lanes, observed, .. } = visit;
    counters.packets += lanes.count() as u64;
    counters.bytes += lanes.into_iter().map(|lane| batch.packet_len(lane) as u64).sum::<u64>();
    observed.as_mut().and_then(|observed| observed.enter(batch, *lanes, *nf))
}

/// Lets an NF do a part of what a visit consists of; returns its verdicts, with those so far.
#[inline]
pub(crate) fn part(
    serve: impl FnOnce(&mut Batch, &mut Context<'_>),
    visit: &mut Visit<'_>,
    so_far: Verdicts,
    notes: Option<&mut Notes>,
) -> Verdicts {
    let Visit { nf, batch, clock, emitted, .. } = visit;
    let mut context = Context::resume(*clock, so_far, emitted, notes);
    guard::at(Place::Nf(*nf), || serve(batch, &mut context));
    guard::check();
    context.into_verdicts()
}

/// Counts the verdicts of a visit that took `cycles`; returns the lanes that continue.
#[inline]
pub(crate) fn leave(
    visit: &mut Visit<'_>,
    counters: &mut NfCounters,
    verdicts: &Verdicts,
    cycles: u64,
    notes: Option<Notes>,
) -> Lanes {
    let Visit { nf, batch, lanes, emitted, observed, .. } = visit;
    let dropped = verdicts.dropped().and(*lanes);
    let punted = verdicts.punted().and(*lanes);
    for lane in dropped {
        if let Verdict::Drop(reason) = verdicts.of(lane) {
            counters.drops.add(reason, 1);
        }
    }
    counters.drops.add(DropReason::Punted, punted.count() as u64);
    counters.generated += emitted.len() as u64;
    counters.cycles += cycles;
    counters.latency.record(cycles, lanes.count() as u64);
    if let Some(observed) = observed {
        observed.leave(batch, *lanes, *nf, verdicts, emitted, notes);
    }
    lanes.without(dropped).without(punted)
}

/// Lets an NF write what it holds for the last time; `is_left` if its state was exported for
/// another run.
pub(crate) fn end_nf(
    function: &mut dyn NetworkFunction,
    is_left: bool,
    failures: &mut Vec<String>,
) {
    if is_left {
        function.handed_over();
    }
    failures.extend(function.flush().err().map(|e| e.to_string()));
}
