//! The outputs of a run.

use thalweg_chain::Plan;
use thalweg_cpu::cycles;
use thalweg_io::{Lost, Output, OutputFailure};
use thalweg_packet::{Batch, DropReason, Lanes};

use super::open::{claim_files, claim_output};
use super::queue::{self, FreeQueue, OutputQueue};
use super::{CLOCK_PERIOD, NextPort, more_segments};
use crate::burst::{Burst, Flush, Round};
use crate::control::Control;
use crate::counters::{Latencies, PortCounters, PortTotals};
use crate::guard::{self, Place};
use crate::runtime::error::RunError;
use crate::runtime::options::RunOptions;
use crate::tally::Tally;

/// All outputs, as one line uses them.
pub(crate) struct Outputs {
    /// Its number.
    line: usize,
    /// By output: the queue that the line uses.
    ports: Vec<OutputQueue>,
    /// Queues that no line uses, of outputs with more queues than there are lines.
    unused: Vec<(usize, OutputQueue)>,
    latency: Latencies,
    /// Calls of [`check`](Self::check) until it looks again.
    until_check: u32,
    failures: Vec<String>,
}

/// The counts of all outputs.
pub(crate) struct OutputTotals {
    pub(crate) counters: PortTotals,
    pub(crate) latency: Latencies,
    pub(crate) failures: Vec<String>,
}

impl Outputs {
    /// Opens and locks all files that the run writes, its NFs included, and then empties the
    /// captures: a run that cannot start leaves them as they are. Returns the outputs of each line.
    pub(crate) fn open(
        plan: &Plan,
        options: &RunOptions,
        control: &Control,
        lines: usize,
    ) -> Result<Vec<Self>, RunError> {
        let stop = control.stop_request().after(options.duration);
        let claimed = plan.outputs.iter().map(|output| claim_output(plan, output, lines, &stop));
        let mut ports = claimed.collect::<Result<Vec<_>, _>>()?;
        claim_files(plan, &stop)?;
        for port in ports.iter_mut().flatten() {
            port.flush().map_err(|failure| failure.error)?;
        }
        let ports = ports.into_iter().map(FreeQueue::of).collect();
        Ok(Self::divide(ports, lines))
    }

    /// Divides the queues of each output among the lines.
    fn divide(ports: Vec<Vec<FreeQueue>>, lines: usize) -> Vec<Self> {
        let empty = |line| Self {
            line,
            ports: Vec::new(),
            unused: Vec::new(),
            latency: Latencies::new(),
            until_check: CLOCK_PERIOD,
            failures: Vec::new(),
        };
        let mut divided: Vec<_> = (0..lines).map(empty).collect();
        for (output, queues) in ports.into_iter().enumerate() {
            let (own, mut unused) = queue::divide(queues, lines);
            divided.iter_mut().zip(own).for_each(|(line, queue)| line.ports.push(queue));
            divided[0].unused.extend(unused.drain(..).map(|queue| (output, queue)));
        }
        divided
    }

    /// Goes on with the outputs of a plan that takes the place of that of `lines`; adds the counts of
    /// those that it no longer has to `former`. Returns the outputs of each of `count` lines.
    pub(crate) fn renew(
        mut lines: Vec<Self>,
        next: Vec<NextPort<dyn Output>>,
        count: usize,
        former: &mut PortCounters,
        control: &Control,
    ) -> Vec<Self> {
        let is_kept =
            |at: usize| next.iter().any(|p| matches!(p, NextPort::Kept(was) if *was == at));
        for line in &mut lines {
            for at in (0..line.ports.len()).filter(|at| !is_kept(*at)) {
                line.flush_port(at, control);
            }
        }
        let outputs = lines.first().map_or(0, |line| line.ports.len());
        let mut old: Vec<_> = (0..outputs).map(|_| Vec::new()).collect();
        let (mut latency, mut failures) = (Latencies::new(), Vec::new());
        for line in lines {
            latency.merge(&line.latency);
            failures.extend(line.failures);
            let used = line.ports.into_iter().enumerate();
            used.chain(line.unused).for_each(|(output, queue)| old[output].push(queue));
        }
        let mut old: Vec<_> = old.into_iter().map(|queues| Some(queue::join(queues))).collect();
        let mut take = |next| match next {
            NextPort::New(queues) => FreeQueue::of(queues),
            NextPort::Kept(was) => {
                let queues: &mut Option<_> = &mut old[was];
                queues.take().expect("each output is kept once")
            }
        };
        let ports = next.into_iter().map(&mut take).collect();
        old.iter().flatten().flatten().for_each(|queue| former.merge(&queue.counters));
        let mut divided = Self::divide(ports, count);
        (divided[0].latency, divided[0].failures) = (latency, failures);
        divided
    }

    /// Adds the counts so far to a tally.
    pub(crate) fn count(&self, tally: &mut Tally) {
        tally.add_outputs(|totals| self.add_counts(totals), &self.latency);
    }

    fn add_counts(&self, totals: &mut PortTotals) {
        let used = self.ports.iter().enumerate();
        let unused = self.unused.iter().map(|(output, queue)| (*output, queue));
        used.chain(unused).for_each(|(at, queue)| totals.add(at, queue.number, &queue.counters));
    }

    /// Ends the outputs of all lines; returns their counts.
    pub(crate) fn finish(lines: Vec<Self>, outputs: usize) -> OutputTotals {
        let counters = PortTotals::new(outputs);
        let mut all = OutputTotals { counters, latency: Latencies::new(), failures: Vec::new() };
        for mut line in lines {
            for queue in line.ports.iter_mut().chain(line.unused.iter_mut().map(|(_, q)| q)) {
                queue.counters.shortfall = queue.with(|port| port.shortfall());
                queue.counters.copied = queue.copied_for(line.line);
            }
            line.add_counts(&mut all.counters);
            all.latency.merge(&line.latency);
            all.failures.extend(line.failures);
        }
        all
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
        let queue = &mut self.ports[output];
        let before = observed.is_some().then_some(queue.counters.drops);
        let stays = observed.is_some();
        let outcome = guard::at(Place::Output(output), || queue.send(batch, lanes, stays));
        let (sent, failure) = match outcome {
            Ok(sent) => (sent, None),
            Err(failure) => (failure.sent, Some(failure)),
        };
        control.dropped(lanes.without(sent).count() as u64);
        if let (Some(observed), Some(before)) = (observed, before) {
            if sent != lanes {
                batch.parse_changed();
            }
            let reasons = queue.counters.drops.since(&before);
            observed.transmitted(batch, lanes, output, sent, &reasons);
        }
        self.count_sent(output, batch, sent, control);
        if let Some(failure) = failure {
            self.fail(output, failure, control);
        }
    }

    /// Counts the packets of `lanes`, which `output` has sent.
    fn count_sent(&mut self, output: usize, batch: &Batch, lanes: Lanes, control: &Control) {
        let counters = &mut self.ports[output].counters;
        let packets = lanes.count() as u64;
        let Some(first) = lanes.into_iter().next() else { return };
        let received_at = &batch.meta.received_at;
        let (mut bytes, mut together) = (0, true);
        for lane in lanes {
            bytes += u64::from(batch.lens()[lane]);
            together &= received_at[lane] == received_at[first];
        }
        // They may be less than what was lost: see `fail`.
        counters.packets = counters.packets.wrapping_add(packets);
        counters.bytes = counters.bytes.wrapping_add(bytes);
        counters.more_segments += more_segments(batch, lanes);
        control.sent(self.line, packets);
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
        (0..self.ports.len()).for_each(|at| self.flush_port(at, control));
    }

    fn flush_port(&mut self, output: usize, control: &Control) {
        if let Err(failure) = self.ports[output].with(|port| port.flush()) {
            self.fail(output, failure, control);
        }
        self.settle_lost(output, control);
    }

    /// Ends the run if the target of an output no longer exists, which is looked up now and then.
    pub(crate) fn check(&mut self, control: &Control) {
        self.until_check = self.until_check.checked_sub(1).unwrap_or(CLOCK_PERIOD);
        if self.until_check > 0 {
            return;
        }
        for at in 0..self.ports.len() {
            let checked = self.ports[at].with(|port| port.check());
            self.settle_lost(at, control);
            if let Err(error) = checked {
                self.fail(at, error.into(), control);
            }
        }
    }

    /// Counts the packets as dropped that an output has lost after it had accepted them.
    fn settle_lost(&mut self, output: usize, control: &Control) {
        let lost = self.ports[output].with(|port| port.take_lost());
        if lost.packets > 0 {
            self.count_lost(output, lost, control);
        }
    }

    fn count_lost(&mut self, output: usize, lost: Lost, control: &Control) {
        let counters = &mut self.ports[output].counters;
        // Another line may have counted them as sent.
        counters.packets = counters.packets.wrapping_sub(lost.packets);
        counters.bytes = counters.bytes.wrapping_sub(lost.bytes);
        counters.drops.add(DropReason::OutputFailed, lost.packets);
        control.lost(self.line, lost.packets);
    }

    /// Ends the run. The packets that the output has lost, which were counted as sent, are counted
    /// as dropped.
    fn fail(&mut self, output: usize, failure: OutputFailure, control: &Control) {
        let OutputFailure { error, lost, .. } = failure;
        self.count_lost(output, lost, control);
        let failure = error.to_string();
        // Each failure is reported once; the counts show how often it occurred.
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
        control.stop();
    }
}
