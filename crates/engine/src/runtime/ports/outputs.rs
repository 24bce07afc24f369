//! The outputs of a run.

use thalweg_chain::Plan;
use thalweg_cpu::cycles;
use thalweg_io::{Output, OutputFailure};
use thalweg_packet::{Batch, DropReason, Lanes};

use super::open::{claim_files, claim_output};
use super::{CLOCK_PERIOD, NextPort, more_segments};
use crate::burst::{Burst, Flush, Round};
use crate::control::Control;
use crate::counters::{Latencies, PortCounters};
use crate::guard::{self, Place};
use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;
use crate::tally::Tally;

/// All outputs.
pub(crate) struct Outputs {
    ports: Vec<Box<dyn Output>>,
    counters: Vec<PortCounters>,
    latency: Latencies,
    /// Calls of [`check`](Self::check) until it looks again.
    until_check: u32,
    failures: Vec<String>,
}

/// The counts of all outputs.
pub(crate) struct OutputTotals {
    pub(crate) counters: Vec<PortCounters>,
    pub(crate) latency: Latencies,
    pub(crate) failures: Vec<String>,
}

impl Outputs {
    /// Opens and locks all files that the run writes, its NFs included, and then empties the
    /// captures: a run that cannot start leaves them as they are.
    pub(crate) fn open(
        plan: &Plan,
        options: &RunOptions,
        control: &Control,
    ) -> Result<Self, RunError> {
        let stop = control.stop_request().after(options.duration);
        let claimed = plan.outputs.iter().map(|output| claim_output(plan, output, &stop));
        let mut ports = claimed.collect::<Result<Vec<_>, _>>()?;
        claim_files(plan, &stop)?;
        for port in &mut ports {
            port.flush().map_err(|failure| failure.error)?;
        }
        Ok(Self {
            ports,
            counters: vec![PortCounters::default(); plan.outputs.len()],
            latency: Latencies::new(),
            until_check: CLOCK_PERIOD,
            failures: Vec::new(),
        })
    }

    /// Goes on with the outputs of a plan that takes the place of this one; adds the counts of those
    /// that it no longer has to `former`.
    pub(crate) fn renew(
        &mut self,
        next: Vec<NextPort<dyn Output>>,
        former: &mut PortCounters,
        control: &Control,
    ) {
        let is_kept =
            |at: usize| next.iter().any(|p| matches!(p, NextPort::Kept(was) if *was == at));
        for at in (0..self.ports.len()).filter(|at| !is_kept(*at)) {
            if let Err(failure) = self.ports[at].flush() {
                self.fail(at, failure, control);
            }
            former.merge(&self.counters[at]);
        }
        let mut old: Vec<_> = self.ports.drain(..).map(Some).collect();
        let counters = std::mem::take(&mut self.counters);
        for next in next {
            let (port, counters) = match next {
                NextPort::New(port) => (port, PortCounters::default()),
                NextPort::Kept(was) => {
                    let port = old[was].take().expect("each output is kept once");
                    (port, counters[was])
                }
            };
            self.ports.push(port);
            self.counters.push(counters);
        }
    }

    /// Adds the counts so far to a tally.
    pub(crate) fn count(&self, tally: &mut Tally) {
        tally.add_outputs(&self.counters, &self.latency);
    }

    /// Ends the outputs; returns their counts.
    pub(crate) fn finish(mut self) -> OutputTotals {
        for (output, counts) in self.ports.iter().zip(&mut self.counters) {
            counts.shortfall = output.shortfall();
        }
        let Self { counters, latency, failures, .. } = self;
        OutputTotals { counters, latency, failures }
    }

    /// Sends the packets of `lanes`. Packets that are observed stay in the batch; the output may take
    /// the frames of others. When the output fails they are dropped with that reason, and the run is
    /// stopped.
    pub(crate) fn send(
        &mut self,
        output: usize,
        round: &mut Round,
        lanes: Lanes,
        control: &Control,
    ) {
        let Round { batch, observed, .. } = round;
        let counters = &mut self.counters[output];
        let before = observed.is_some().then_some(counters.drops);
        let (port, drops) = (&mut self.ports[output], &mut counters.drops);
        let outcome = guard::at(Place::Output(output), || {
            if observed.is_some() {
                port.send(batch, lanes, drops)
            } else {
                port.send_frames(batch, lanes, drops)
            }
        });
        let (sent, failure) = match outcome {
            Ok(sent) => (sent, None),
            Err(failure) => (failure.sent, Some(failure)),
        };
        control.dropped(lanes.without(sent).count() as u64);
        if let (Some(observed), Some(before)) = (observed, before) {
            if sent != lanes {
                batch.parse_changed();
            }
            let reasons = counters.drops.since(&before);
            observed.transmitted(batch, lanes, output, sent, &reasons);
        }
        self.count_sent(output, batch, sent, control);
        if let Some(failure) = failure {
            self.fail(output, failure, control);
        }
    }

    /// Counts the packets of `lanes`, which `output` has sent.
    fn count_sent(&mut self, output: usize, batch: &Batch, lanes: Lanes, control: &Control) {
        let counters = &mut self.counters[output];
        let packets = lanes.count() as u64;
        let Some(first) = lanes.into_iter().next() else { return };
        let received_at = &batch.meta.received_at;
        let (mut bytes, mut together) = (0, true);
        for lane in lanes {
            bytes += u64::from(batch.lens()[lane]);
            together &= received_at[lane] == received_at[first];
        }
        counters.packets += packets;
        counters.bytes += bytes;
        counters.more_segments += more_segments(batch, lanes);
        control.sent(packets);
        let now = cycles::now();
        // Packets of one batch were usually received together.
        if together {
            self.latency.record(now.wrapping_sub(received_at[first]), packets);
            return;
        }
        for lane in lanes {
            self.latency.record(now.wrapping_sub(received_at[lane]), 1);
        }
    }

    /// Writes what the outputs hold if `burst` requests it. Files of NFs that were renamed are opened
    /// again once all NFs have written what they held.
    pub(crate) fn export(&mut self, burst: &Burst, plan: &Plan, control: &Control) {
        if burst.flush == Flush::No {
            return;
        }
        if burst.flush == Flush::Begin {
            self.flush(control);
        }
        let was_incomplete = control.exported(!burst.leaves_some);
        // Bursts that were on their way when an export became complete open nothing again.
        if !burst.leaves_some && (was_incomplete || burst.flush == Flush::Begin) {
            plan.files.reopen();
        }
    }

    pub(crate) fn flush(&mut self, control: &Control) {
        for at in 0..self.ports.len() {
            if let Err(failure) = self.ports[at].flush() {
                self.fail(at, failure, control);
            }
        }
    }

    /// Ends the run if the target of an output no longer exists, which is looked up now and then.
    pub(crate) fn check(&mut self, control: &Control) {
        self.until_check = self.until_check.checked_sub(1).unwrap_or(CLOCK_PERIOD);
        if self.until_check > 0 {
            return;
        }
        for at in 0..self.ports.len() {
            if let Err(error) = self.ports[at].check() {
                self.fail(at, error.into(), control);
            }
        }
    }

    /// Ends the run. The packets that the output has lost, which were counted as sent, are counted
    /// as dropped.
    fn fail(&mut self, output: usize, failure: OutputFailure, control: &Control) {
        let OutputFailure { error, lost, .. } = failure;
        let counters = &mut self.counters[output];
        counters.packets -= lost.packets;
        counters.bytes -= lost.bytes;
        counters.drops.add(DropReason::OutputFailed, lost.packets);
        control.lost(lost.packets);
        let failure = error.to_string();
        // Each failure is reported once; the counts show how often it occurred.
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
        control.stop();
    }
}
